"""Offsets of queues and of consumer groups."""

from __future__ import annotations

import attrs

from rocketmq_sdk.model.enums import BoundaryType
from rocketmq_sdk.protocol.header import (
    Header,
    Long,
    RpcRequestHeader,
    TopicQueueRequestHeader,
    TopicRequestHeader,
)
from rocketmq_sdk.protocol.limits import LISTED, QUEUE_ID, QUEUE_OR_ALL, limited


@attrs.define(kw_only=True)
class QueryConsumerOffsetRequestHeader(TopicQueueRequestHeader):
    """QUERY_CONSUMER_OFFSET (14): the committed offset of a group in a queue."""

    consumer_group: str
    topic: str
    queue_id: int = limited(QUEUE_ID)
    set_zero_if_not_found: bool | None = None


@attrs.define(kw_only=True)
class QueryConsumerOffsetResponseHeader(Header):
    """Answer to QUERY_CONSUMER_OFFSET."""

    offset: Long


@attrs.define(kw_only=True)
class UpdateConsumerOffsetRequestHeader(TopicQueueRequestHeader):
    """UPDATE_CONSUMER_OFFSET (15): commit an offset."""

    consumer_group: str
    topic: str
    queue_id: int = limited(QUEUE_ID)
    commit_offset: Long


@attrs.define(kw_only=True)
class UpdateConsumerOffsetResponseHeader(Header):
    """Answer to UPDATE_CONSUMER_OFFSET, without fields."""


@attrs.define(kw_only=True)
class SearchOffsetRequestHeader(TopicQueueRequestHeader):
    """SEARCH_OFFSET_BY_TIMESTAMP (29): `boundary_type` None means the lower one."""

    topic: str
    queue_id: int = limited(QUEUE_ID)
    timestamp: Long
    boundary_type: BoundaryType | None = None


@attrs.define(kw_only=True)
class SearchOffsetResponseHeader(Header):
    """Answer to SEARCH_OFFSET_BY_TIMESTAMP."""

    offset: Long


@attrs.define(kw_only=True)
class GetMaxOffsetRequestHeader(TopicQueueRequestHeader):
    """GET_MAX_OFFSET (30): the offset behind the last message."""

    topic: str
    queue_id: int = limited(QUEUE_ID)
    committed: bool = True


@attrs.define(kw_only=True)
class GetMaxOffsetResponseHeader(Header):
    """Answer to GET_MAX_OFFSET."""

    offset: Long


@attrs.define(kw_only=True)
class GetMinOffsetRequestHeader(TopicQueueRequestHeader):
    """GET_MIN_OFFSET (31): the first offset that is still stored."""

    topic: str
    queue_id: int = limited(QUEUE_ID)


@attrs.define(kw_only=True)
class GetMinOffsetResponseHeader(Header):
    """Answer to GET_MIN_OFFSET."""

    offset: Long


@attrs.define(kw_only=True)
class GetEarliestMsgStoretimeRequestHeader(TopicQueueRequestHeader):
    """GET_EARLIEST_MSG_STORETIME (32)."""

    topic: str
    queue_id: int = limited(QUEUE_ID)


@attrs.define(kw_only=True)
class GetEarliestMsgStoretimeResponseHeader(Header):
    """Answer to GET_EARLIEST_MSG_STORETIME; -1 when the queue is empty."""

    timestamp: Long


@attrs.define(kw_only=True)
class ResetOffsetRequestHeader(TopicQueueRequestHeader):
    """INVOKE_BROKER_TO_RESET_OFFSET (222) and RESET_CONSUMER_CLIENT_OFFSET (220).

    A timestamp of -1 means the end.
    """

    group: str
    topic: str
    queue_id: int = limited(QUEUE_OR_ALL, -1)
    offset: Long | None = None
    timestamp: Long = 0
    is_force: bool = False


@attrs.define(kw_only=True)
class GetConsumerStatusRequestHeader(TopicRequestHeader):
    """INVOKE_BROKER_TO_GET_CONSUMER_STATUS (223).

    GET_CONSUMER_STATUS_FROM_CLIENT (221) has the same header.
    """

    topic: str
    group: str
    client_addr: str | None = None


@attrs.define(kw_only=True)
class CloneGroupOffsetRequestHeader(RpcRequestHeader):
    """CLONE_GROUP_OFFSET (314): copy the offsets of a group."""

    src_group: str
    dest_group: str
    topic: str | None = None
    offline: bool = False


@attrs.define(kw_only=True)
class QueryCorrectionOffsetHeader(TopicRequestHeader):
    """QUERY_CORRECTION_OFFSET (308): `filter_groups` is a list with commas."""

    filter_groups: str | None = limited(LISTED, None)
    compare_group: str
    topic: str


@attrs.define(kw_only=True)
class InitConsumerOffsetRequestHeader(TopicRequestHeader):
    """Set the first offset of a group, used by proxies."""

    topic: str | None = None
    init_mode: int = 0
