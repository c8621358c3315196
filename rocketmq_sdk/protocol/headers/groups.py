"""Consumer groups: their configuration."""

from __future__ import annotations

import attrs

from rocketmq_sdk.protocol.header import Header, RpcRequestHeader, TopicRequestHeader
from rocketmq_sdk.protocol.limits import COUNT, limited


@attrs.define(kw_only=True)
class DeleteSubscriptionGroupRequestHeader(RpcRequestHeader):
    """DELETE_SUBSCRIPTIONGROUP (207)."""

    group_name: str
    clean_offset: bool = False


@attrs.define(kw_only=True)
class GetAllSubscriptionGroupRequestHeader(Header):
    """GET_ALL_SUBSCRIPTIONGROUP_CONFIG (201), a page of the table.

    Old peers send no header and want all of it.
    """

    group_seq: int | None = limited(COUNT, None)
    data_version: str | None = None
    max_group_num: int | None = None


@attrs.define(kw_only=True)
class GetAllSubscriptionGroupResponseHeader(Header):
    """Answer to a page of GET_ALL_SUBSCRIPTIONGROUP_CONFIG."""

    total_group_num: int


@attrs.define(kw_only=True)
class GetSubscriptionGroupConfigRequestHeader(RpcRequestHeader):
    """GET_SUBSCRIPTIONGROUP_CONFIG (352)."""

    group: str


@attrs.define(kw_only=True)
class UpdateGroupForbiddenRequestHeader(TopicRequestHeader):
    """UPDATE_AND_GET_GROUP_FORBIDDEN (353): `readable` None only asks."""

    group: str
    topic: str
    readable: bool | None = None
