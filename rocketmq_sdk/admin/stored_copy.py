"""One stored copy of a message: where it is, what delays it, its retries."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Final

import attrs

from rocketmq_sdk.model import properties as names
from rocketmq_sdk.model.queue import MessageQueue
from rocketmq_sdk.model.route import join_address, unpack_host
from rocketmq_sdk.names import (
    DLQ_PREFIX,
    RETRY_PREFIX,
    SCHEDULE_TOPIC,
    TIMER_TOPIC,
    TRANSACTION_HALF_TOPIC,
)

if TYPE_CHECKING:
    from rocketmq_sdk.model.received import ReceivedMessage

_DELAY_QUEUE_OFFSET: Final = 1


class CopyKind(Enum):
    """What a stored copy of a message is for."""

    TOPIC = "in its topic"
    DELAYED = "waiting for a delay level"
    TIMED = "waiting for its time"
    PREPARED = "half message of a transaction"
    RETRY = "to be delivered to a group again"
    DEAD = "given up by a group"


@attrs.frozen(kw_only=True)
class StoredCopy:
    """One stored copy of a message, in words.

    `topic` is the topic that the producer sent to, `queue` where this copy is stored,
    `target` the topic that it will go to or came for when that is another one. Times
    are epoch milliseconds. `group` is the consumer group of a retry or a dead letter,
    `retries` how often it was tried before, `delay_level` and `deliver_at` what it
    waits or waited for. `origin_message_id` is the offset id of the copy that was first
    sent back.
    """

    kind: CopyKind
    topic: str
    queue: MessageQueue
    offset: int
    message_id: str
    offset_message_id: str
    born_time: int
    born_host: str
    store_time: int
    store_host: str
    target: str | None = None
    group: str | None = None
    retries: int = 0
    max_retries: int | None = None
    delay_level: int | None = None
    deliver_at: int | None = None
    origin_message_id: str | None = None
    producer_group: str | None = None
    prepared_offset: int | None = None

    @classmethod
    def of(cls, message: ReceivedMessage, stored_in: str | None = None) -> StoredCopy:
        """What a stored message says of itself.

        `stored_in` is the topic of its record, for messages of a retry topic that bear
        the original one.
        """
        properties = message.properties
        place = stored_in or message.topic
        kind = _kind(place)
        target = (
            properties.get(names.REAL_TOPIC)
            if kind in (CopyKind.DELAYED, CopyKind.TIMED, CopyKind.PREPARED)
            else None
        )
        origin = properties.get(names.DLQ_ORIGIN_TOPIC) or properties.get(names.RETRY_TOPIC)
        if origin is None:
            origin = target or message.topic
        deliver_at = _number(properties.get(names.TIMER_OUT_MS)) or _number(
            properties.get(names.TIMER_DELIVER_MS)
        )
        return cls(
            kind=kind,
            topic=origin,
            queue=MessageQueue(place, message.broker_name, message.queue_id),
            offset=message.offset,
            message_id=message.message_id,
            offset_message_id=message.offset_message_id,
            born_time=message.born_timestamp,
            born_host=join_address(*unpack_host(message.born_host)),
            store_time=message.store_timestamp,
            store_host=join_address(*unpack_host(message.store_host)),
            target=target,
            group=_group(target or place, origin),
            retries=message.reconsume_times,
            max_retries=_number(properties.get(names.MAX_RECONSUME_TIMES)),
            delay_level=message.queue_id + _DELAY_QUEUE_OFFSET
            if kind is CopyKind.DELAYED
            else _number(properties.get(names.DELAY)),
            deliver_at=deliver_at,
            origin_message_id=properties.get(names.DLQ_ORIGIN_MESSAGE_ID)
            or properties.get(names.ORIGIN_MESSAGE_ID),
            producer_group=properties.get(names.PGROUP),
            prepared_offset=message.prepared_transaction_offset or None,
        )


def _kind(topic: str) -> CopyKind:
    if topic.startswith(RETRY_PREFIX):
        return CopyKind.RETRY
    if topic.startswith(DLQ_PREFIX):
        return CopyKind.DEAD
    return {
        SCHEDULE_TOPIC: CopyKind.DELAYED,
        TIMER_TOPIC: CopyKind.TIMED,
        TRANSACTION_HALF_TOPIC: CopyKind.PREPARED,
    }.get(topic, CopyKind.TOPIC)


def _group(place: str, topic: str) -> str | None:
    """The group in the name of a retry or dead letter topic.

    Retry topics of pop consumers have the topic behind it.
    """
    for prefix in (RETRY_PREFIX, DLQ_PREFIX):
        if place.startswith(prefix):
            group = place.removeprefix(prefix)
            return next(
                (
                    group.removesuffix(end)
                    for end in (f"_{topic}", f"+{topic}")
                    if group.endswith(end)
                ),
                group,
            )
    return None


def _number(text: str | None) -> int | None:
    return (
        int(text)
        if text is not None and text.isascii() and text.removeprefix("-").isdecimal()
        else None
    )
