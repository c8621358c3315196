"""Progress of topics and groups, and rates."""

from __future__ import annotations

import attrs

from rocketmq_sdk.model.queue import MessageQueue
from rocketmq_sdk.protocol.body import Body
from rocketmq_sdk.protocol.header import Long


@attrs.frozen
class OffsetWrapper(Body):
    """How far a group is in one queue.

    `broker_offset` is the end of the queue, `last_timestamp` the store time of the last
    consumed message.
    """

    broker_offset: Long = 0
    consumer_offset: Long = 0
    pull_offset: Long = 0
    last_timestamp: Long = 0


@attrs.frozen
class ConsumeStats(Body):
    """Answer to GET_CONSUME_STATS (208)."""

    offset_table: dict[MessageQueue, OffsetWrapper] = attrs.field(factory=dict)
    consume_tps: float = 0.0


@attrs.frozen
class ConsumeStatsList(Body):
    """Answer to GET_BROKER_CONSUME_STATS (317)."""

    consume_stats_list: tuple[dict[str, tuple[ConsumeStats, ...]], ...] = ()
    broker_addr: str | None = None
    total_diff: Long = 0
    total_inflight_diff: Long = 0


@attrs.frozen
class BrokerStatsItem(Body):
    """One rate: sum over the span, per second, average per call."""

    sum: Long = 0
    tps: float = 0.0
    avgpt: float = 0.0


@attrs.frozen
class BrokerStatsData(Body):
    """Answer to VIEW_BROKER_STATS_DATA (315)."""

    stats_minute: BrokerStatsItem | None = None
    stats_hour: BrokerStatsItem | None = None
    stats_day: BrokerStatsItem | None = None


@attrs.frozen
class QueueTimeSpan(Body):
    """Store times of a queue: first, last, last consumed (epoch milliseconds).

    `delay_time` is how far a group is behind (milliseconds).

    The texts are derived; they have the form `2023-11-14#22:13:20:000` in the broker's
    time zone.
    """

    message_queue: MessageQueue | None = None
    min_time_stamp: Long = 0
    max_time_stamp: Long = 0
    consume_time_stamp: Long = 0
    delay_time: Long = 0
    min_time_stamp_str: str | None = None
    max_time_stamp_str: str | None = None
    consume_time_stamp_str: str | None = None


@attrs.frozen
class QueryConsumeTimeSpanBody(Body):
    """Answer to QUERY_CONSUME_TIME_SPAN (303)."""

    consume_time_span_set: tuple[QueueTimeSpan, ...] = ()


@attrs.frozen
class TopicOffset(Body):
    """The ends of a queue and the time of its last message."""

    min_offset: Long = 0
    max_offset: Long = 0
    last_update_timestamp: Long = 0


@attrs.frozen
class TopicStatsTable(Body):
    """Answer to GET_TOPIC_STATS_INFO (202)."""

    offset_table: dict[MessageQueue, TopicOffset] = attrs.field(factory=dict)
    topic_put_tps: float = 0.0
