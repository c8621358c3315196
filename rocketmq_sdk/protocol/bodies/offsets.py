"""Offsets of groups: resets, states of consumers, the broker's tables."""

from __future__ import annotations

import attrs

from rocketmq_sdk.model.queue import MessageQueue
from rocketmq_sdk.protocol.bodies.topics import DataVersion
from rocketmq_sdk.protocol.body import Body
from rocketmq_sdk.protocol.header import Long


@attrs.frozen
class ResetOffsetBody(Body):
    """Offsets that queues were, or are to be, reset to."""

    offset_table: dict[MessageQueue, Long] = attrs.field(factory=dict)


@attrs.frozen
class MessageQueueForC(Body):
    """A queue with its offset in one flat object."""

    topic: str
    broker_name: str
    queue_id: int
    offset: Long


@attrs.frozen
class ResetOffsetBodyForC(Body):
    """`ResetOffsetBody` as a list, for clients that asked with the language CPP."""

    offset_table: tuple[MessageQueueForC, ...] = ()


@attrs.frozen
class GetConsumerStatusBody(Body):
    """Offsets of one consumer or of several.

    `message_queue_table` comes from a client, `consumer_table` (by client id) from a
    broker.
    """

    message_queue_table: dict[MessageQueue, Long] = attrs.field(factory=dict)
    consumer_table: dict[str, dict[MessageQueue, Long]] = attrs.field(factory=dict)


@attrs.frozen
class ConsumerOffsetSerializeWrapper(Body):
    """The table of all consumer offsets: `topic@group` to queue id to offset.

    The answer to GET_ALL_CONSUMER_OFFSET (43), and a file of the broker.
    """

    offset_table: dict[str, dict[int, Long]] = attrs.field(factory=dict)
    data_version: DataVersion | None = None
    group_topic_map: dict[str, tuple[str, ...]] | None = None


@attrs.frozen
class DelayOffsetSerializeWrapper(Body):
    """Delivery offsets of the delay levels.

    The answer to GET_ALL_DELAY_OFFSET (45), and a file of the broker.
    """

    offset_table: dict[int, Long] = attrs.field(factory=dict)
    data_version: DataVersion | None = None


@attrs.frozen
class QueryCorrectionOffsetBody(Body):
    """Answer to QUERY_CORRECTION_OFFSET (308).

    The lowest offset of other groups by queue id.
    """

    correction_offsets: dict[int, Long] = attrs.field(factory=dict)
