"""Looking messages and queue units up."""

from __future__ import annotations

import attrs

from rocketmq_sdk.protocol.header import Header, Long, TopicQueueRequestHeader, TopicRequestHeader
from rocketmq_sdk.protocol.limits import COUNT, NOT_NEGATIVE, QUEUE_ID, limited


@attrs.define(kw_only=True)
class QueryMessageRequestHeader(TopicRequestHeader):
    """QUERY_MESSAGE (12): by key or unique id, within store times in milliseconds."""

    topic: str
    key: str
    max_num: int = limited(COUNT)
    begin_timestamp: Long
    end_timestamp: Long
    index_type: str | None = None
    last_key: str | None = None


@attrs.define(kw_only=True)
class QueryMessageResponseHeader(Header):
    """Answer to QUERY_MESSAGE: how far the index reaches."""

    index_last_update_timestamp: Long
    index_last_update_phyoffset: Long


@attrs.define(kw_only=True)
class ViewMessageRequestHeader(Header):
    """VIEW_MESSAGE_BY_ID (33): `offset` is the commit-log offset."""

    topic: str | None = None
    offset: Long = limited(NOT_NEGATIVE)


@attrs.define(kw_only=True)
class ViewMessageResponseHeader(Header):
    """Answer to VIEW_MESSAGE_BY_ID, without fields."""


@attrs.define(kw_only=True)
class QueryConsumeQueueRequestHeader(TopicQueueRequestHeader):
    """QUERY_CONSUME_QUEUE (321): units of a queue as stored."""

    topic: str | None = None
    queue_id: int = limited(QUEUE_ID, 0)
    index: Long = 0
    count: int = 0
    consumer_group: str | None = None
