"""Consumer and producer groups: configuration, connections, statistics."""

from __future__ import annotations

import attrs

from rocketmq_sdk.protocol.header import Header, RpcRequestHeader, TopicRequestHeader


@attrs.define(kw_only=True)
class DeleteSubscriptionGroupRequestHeader(RpcRequestHeader):
    """DELETE_SUBSCRIPTIONGROUP (207)."""

    group_name: str
    clean_offset: bool = False


@attrs.define(kw_only=True)
class GetAllSubscriptionGroupRequestHeader(Header):
    """GET_ALL_SUBSCRIPTIONGROUP_CONFIG (201), a page of the table; old peers send no
    header and want all of it.
    """

    group_seq: int | None = None
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


@attrs.define(kw_only=True)
class GetConsumeStatsRequestHeader(TopicRequestHeader):
    """GET_CONSUME_STATS (208): `topic_list` is a list with semicolons."""

    consumer_group: str
    topic: str | None = None
    topic_list: str | None = None


@attrs.define(kw_only=True)
class GetConsumerConnectionListRequestHeader(RpcRequestHeader):
    """GET_CONSUMER_CONNECTION_LIST (203)."""

    consumer_group: str


@attrs.define(kw_only=True)
class GetProducerConnectionListRequestHeader(RpcRequestHeader):
    """GET_PRODUCER_CONNECTION_LIST (204)."""

    producer_group: str


@attrs.define(kw_only=True)
class GetAllProducerInfoRequestHeader(Header):
    """GET_ALL_PRODUCER_INFO (328), without fields."""


@attrs.define(kw_only=True)
class QueryTopicsByConsumerRequestHeader(RpcRequestHeader):
    """QUERY_TOPICS_BY_CONSUMER (343)."""

    group: str


@attrs.define(kw_only=True)
class QuerySubscriptionByConsumerRequestHeader(TopicRequestHeader):
    """QUERY_SUBSCRIPTION_BY_CONSUMER (345)."""

    group: str
    topic: str | None = None


@attrs.define(kw_only=True)
class QueryConsumeTimeSpanRequestHeader(TopicRequestHeader):
    """QUERY_CONSUME_TIME_SPAN (303)."""

    topic: str
    group: str
