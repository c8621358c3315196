"""Checkpoints and acks as timer messages for the revive topic.

A checkpoint is due one second before its messages are visible again, an ack at that
time, so an ack never comes before its checkpoint.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rocketmq_sdk.broker_embedded.store.messages import MessageToStore, PutStatus
from rocketmq_sdk.broker_embedded.timers.intake import STORED
from rocketmq_sdk.names import revive_topic
from rocketmq_sdk.protocol.bodies.pop_records import (
    ACK_TAG,
    BATCH_ACK_TAG,
    CHECKPOINT_TAG,
    PopCheckPoint,
)
from rocketmq_sdk.protocol.subscription import tags_code

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rocketmq_sdk.broker_embedded.settings.config import LiveConfig
    from rocketmq_sdk.broker_embedded.store.messages import PutResult
    from rocketmq_sdk.broker_embedded.tables.stats import BrokerStats
    from rocketmq_sdk.broker_embedded.timers.intake import Intake
    from rocketmq_sdk.clock import Clock
    from rocketmq_sdk.protocol.bodies.pop_records import AckRecord

CHECKPOINT_LEAD_MS: Final = 1000
"""How much earlier than its messages a checkpoint is due."""
_TAG_CODES: Final = {tag: tags_code(tag) for tag in (CHECKPOINT_TAG, ACK_TAG, BATCH_ACK_TAG)}
COMPLETE: Final = "POP_COMPLETE"
"""Property of a checkpoint: nothing before it was in memory only.

That holds for its queue. Apache's broker does not look at it.
"""
_COMPLETE_TEXT: Final = f"{COMPLETE}\x01true\x02"


class PopRecords:
    """Writes checkpoints and acks."""

    __slots__ = ("_clock", "_in_flight", "_put", "_stats", "_store_host", "topic", "written")

    def __init__(
        self,
        put: Intake,
        config: LiveConfig,
        clock: Clock,
        store_host: bytes,
        stats: BrokerStats,
    ) -> None:
        self._put = put
        self._stats = stats
        self._clock = clock
        self._store_host = store_host
        self.topic = revive_topic(config.current.broker_cluster_name)
        """The revive topic."""
        self._in_flight: dict[object, dict[int, tuple[int, int]]] = {}
        """In memory: where the messages of stored checkpoints are, by offset."""
        self.written = 0
        """How many records were written since the start."""

    def put_checkpoint(
        self, checkpoint: PopCheckPoint, revive_queue_id: int, *, complete: bool = False
    ) -> PutResult:
        """Store a checkpoint; the caller looks whether it is stored.

        `complete`: it is that of a pop, and what the group has taken in front of it is
        stored or done, so a position may be raised above all of it.
        """
        due = checkpoint.revive_time - CHECKPOINT_LEAD_MS
        more = _COMPLETE_TEXT if complete else ""
        body = checkpoint.encode()
        result = self._store(
            body, CHECKPOINT_TAG, checkpoint.unique_key, revive_queue_id, due, more
        )
        self._note(checkpoint, result)
        if self._put.store.needs is not None and is_stored(result):
            self._in_flight[PopCheckPoint.decode(body).identity] = self._places_of(checkpoint)
        return result

    def _places_of(self, checkpoint: PopCheckPoint) -> dict[int, tuple[int, int]]:
        find = self._put.store.queue_unit
        units = (
            (offset, find(checkpoint.topic, checkpoint.queue_id, offset))
            for offset in checkpoint.open_offsets()
        )
        return {offset: unit[:2] for offset, unit in units if unit is not None}

    def finished(self, checkpoint: PopCheckPoint) -> None:
        """The messages of a stored checkpoint are needed no more."""
        if self._in_flight:
            self._in_flight.pop(checkpoint.identity, None)

    def place(self, checkpoint: PopCheckPoint, offset: int) -> tuple[int, int] | None:
        """Position and size of a message whose queue may have lost it, in memory."""
        return self._in_flight.get(checkpoint.identity, {}).get(offset)

    def places(self, low: int, high: int) -> Iterator[tuple[int, int]]:
        """Positions and sizes of popped messages, between two positions."""
        for places in self._in_flight.values():
            for position, size in places.values():
                if low <= position < high:
                    yield position, size

    def put_ack(self, ack: AckRecord, revive_queue_id: int, due_ms: int) -> PutResult:
        """Store an ack, due when its checkpoint's messages would be visible again."""
        result = self._store(ack.encode(), ack.tag, ack.unique_key, revive_queue_id, due_ms)
        self._note(ack, result)
        return result

    # --- counting

    def _note(self, record: PopCheckPoint | AckRecord, result: PutResult) -> None:
        figures = self._stats.figures
        if figures is not None:
            key = record.group, record.topic, _kind(record), result.status.name
            figures.revive_in.add(key)

    def read(self, record: PopCheckPoint | AckRecord, queue_id: int) -> None:
        """A record came out of a queue of the revive topic."""
        figures = self._stats.figures
        if figures is not None:
            figures.revive_out.add((record.group, record.topic, str(queue_id), _kind(record)))

    def revived(
        self, checkpoint: PopCheckPoint, topic: str, queue_id: int, result: PutResult
    ) -> None:
        """A message of a checkpoint was put into a retry topic."""
        self._stats.put(topic, queue_id, result.count, result.size)
        figures = self._stats.figures
        if figures is not None:
            key = checkpoint.group, checkpoint.topic, result.status.name
            figures.revive_retries.add(key)
            figures.returned(checkpoint.topic, checkpoint.group, checkpoint.queue_id)

    def _store(
        self, body: bytes, tag: str, unique_key: str, queue_id: int, due_ms: int, more: str = ""
    ) -> PutResult:
        properties = (
            f"TAGS\x01{tag}\x02UNIQ_KEY\x01{unique_key}\x02TIMER_DELIVER_MS\x01{due_ms}\x02{more}"
        )
        now = self._clock.now_ms()
        message = MessageToStore(
            self.topic,
            queue_id,
            body,
            properties,
            born_timestamp=now,
            born_host=self._store_host,
            tags_code=_TAG_CODES[tag],
            store_host=self._store_host,
        )
        self.written += 1
        return self._put.put_at(message, due_ms, now)


def _kind(record: PopCheckPoint | AckRecord) -> str:
    """The kind of a record in metrics (`PopReviveMessageType`)."""
    return "CK" if isinstance(record, PopCheckPoint) else "ACK"


def is_stored(result: PutResult) -> bool:
    """Whether a record is in the store."""
    status = result.status
    return status is PutStatus.PUT_OK or status in STORED
