"""Runs: plain messages that arrived together and are put together, each for itself.

The store is afterwards as if they had been put one after the other. They cost less: the
log grows once, each queue once, the index is told once. Plain is a message that goes
into an ordinary queue and that nobody has to wait for. A run takes as many as it can,
from the first on; whatever is special about the next one (it begins a new file, it does
not fit its record, the disk is full) is the matter of `MessageStore.put`. A run that
ends with a message of the broker's own (`Run.end_with`) is put whole or not at all.
"""

from __future__ import annotations

import struct
import zlib
from itertools import groupby
from typing import TYPE_CHECKING, Final

from rocketmq_sdk.broker_embedded.store.log.record import BLANK_SIZE
from rocketmq_sdk.broker_embedded.store.queues.consume_queue import ConsumeQueue
from rocketmq_sdk.broker_embedded.store.queues.unit_chain import UNIT
from rocketmq_sdk.errors import LocalProtocolError
from rocketmq_sdk.protocol.message_codec import (
    BODY_CRC_MASK,
    HOST_BITS,
    MAGIC_V1,
    MAX_TOPIC_BYTES_V1,
    encode_record,
    record_form,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rocketmq_sdk.broker_embedded.store.messages import MessageToStore
    from rocketmq_sdk.broker_embedded.store.queues.consume_queue_table import Queue

_SHORT: Final = struct.Struct(">h")
_pack_unit = UNIT.pack


class Lane:
    """What a run adds to one queue."""

    __slots__ = ("middle", "offset", "queue", "queue_id", "size", "topic", "units")

    def __init__(self, queue: ConsumeQueue) -> None:
        self.queue = queue
        self.topic = queue.topic
        self.queue_id = queue.queue_id
        self.offset = queue.next_offset
        """The queue offset of the next message."""
        self.size = 0
        """Bytes of the records."""
        self.units: list[bytes] = []
        raw = queue.topic_bytes
        self.middle = bytes((len(raw),)) + raw
        """What stands in a record between body and properties."""

    @property
    def end(self) -> int:
        """Where its last record ends in the log; other lanes may have later ones."""
        position: int
        size: int
        position, size, _code = UNIT.unpack(self.units[-1])
        return position + size


Numbers = tuple[int, int, int, int]
"""Flag, system flag, reconsume times and prepared offset of a message."""

PlainMessage = tuple[Lane, bytes, bytes, int, Numbers, int]
"""Lane, body, stored properties, born time, numbers and tags code of a message.

A tuple, because there is one for each message.
"""


class Run:
    """One run: `messages` to put and, once it is put, where they are.

    `positions` and `offsets` have an entry for each message that was put, so they tell
    how many were.
    """

    __slots__ = (
        "_behind",
        "_last",
        "_queues",
        "end",
        "lanes",
        "messages",
        "offsets",
        "positions",
    )

    def __init__(self, queues: Mapping[str, Mapping[int, Queue]], *, behind: bool = False) -> None:
        """`behind`: messages wait for their sync before they go into the queues."""
        self._queues = queues
        self._behind = behind
        self._last: tuple[Lane, MessageToStore] | None = None
        self.messages: list[PlainMessage] = []
        self.lanes: list[Lane] = []
        self.positions: list[int] = []
        """Positions of the records in the log."""
        self.offsets: list[int] = []
        """Queue offsets."""
        self.end = 0
        """The position after the last record."""

    def lane(self, topic: str, queue_id: int) -> Lane | None:
        """The way into a queue, to be asked for once.

        None for one that does not exist yet, or is no ordinary one.
        """
        queue = self._queues.get(topic, {}).get(queue_id)
        if (
            type(queue) is not ConsumeQueue
            or queue.ext is not None
            or queue.is_schedule
            or (queue.next_offset != queue.end and not self._behind)
            or len(queue.topic_bytes) > MAX_TOPIC_BYTES_V1
        ):
            return None
        lane = Lane(queue)
        self.lanes.append(lane)
        return lane

    def end_with(self, lane: Lane, message: MessageToStore) -> None:
        """Put a message of the broker's own behind the others.

        The run is then put whole or not at all, with one write. After a crash the log
        may end within it, but never has a later message without an earlier one.
        """
        self._last = lane, message

    def encode(
        self, position: int, *, limit: int, most: int, born_host: bytes, store_host: bytes, now: int
    ) -> bytes:
        """The records for the log from `position` on; units and places are noted.

        Ends before a message that would reach behind `limit`, whose body has more than
        `most` bytes, or of which a number does not fit. Empty where not all of a run
        can be put that is put whole.
        """
        parts: list[bytes] = []
        head, host_bits = record_form(born_host, store_host)
        note_position, note_offset = self.positions.append, self.offsets.append
        pack, pack_short, crc32 = head.pack, _SHORT.pack, zlib.crc32
        limit, fixed = limit - BLANK_SIZE, head.size + _SHORT.size
        try:
            for lane, body, properties, born, (flag, bits, times, prepared), code in self.messages:
                middle, length, properties_length = lane.middle, len(body), len(properties)
                size = fixed + length + len(middle) + properties_length
                if position + size > limit or length > most:
                    break
                offset = lane.offset
                parts += (
                    pack(
                        size,
                        MAGIC_V1,
                        crc32(body) & BODY_CRC_MASK,
                        lane.queue_id,
                        flag,
                        offset,
                        position,
                        bits & ~HOST_BITS | host_bits,
                        born,
                        born_host,
                        now,
                        store_host,
                        times,
                        prepared,
                        length,
                    ),
                    body,
                    middle,
                    pack_short(properties_length),
                    properties,
                )
                lane.units.append(_pack_unit(position, size, code))
                lane.offset = offset + 1
                lane.size += size
                note_position(position)
                note_offset(offset)
                position += size
        except struct.error:
            pass  # `put` says of this message what is wrong
        self.end = position
        whole = self._last is None or self._complete(parts, limit, store_host, now)
        return b"".join(parts) if whole else b""

    def _complete(self, parts: list[bytes], limit: int, store_host: bytes, now: int) -> bool:
        """Add the message that ends the run; False when not all of it can be put."""
        assert self._last is not None
        if len(self.positions) < len(self.messages):
            return False
        record = self._encode_last(*self._last, store_host, now)
        parts.append(record)
        return bool(record) and self.end <= limit

    def _encode_last(
        self, lane: Lane, message: MessageToStore, store_host: bytes, now: int
    ) -> bytes:
        """The record of the message that ends the run, noted as the others are.

        Empty when it fits no record.
        """
        position, offset = self.end, lane.offset
        properties = message.properties.encode("utf-8", "replace")
        try:
            record = encode_record(
                lane.queue.topic_bytes,
                message.body,
                properties,
                queue_id=lane.queue_id,
                flag=message.flag,
                queue_offset=offset,
                physical_offset=position,
                sys_flag=message.sys_flag,
                born_timestamp=message.born_timestamp,
                born_host=message.born_host,
                store_timestamp=now,
                store_host=store_host,
                reconsume_times=message.reconsume_times,
                prepared_offset=message.prepared_offset,
            )
        except LocalProtocolError:
            return b""
        size, code = len(record), message.tags_code
        numbers = message.flag, message.sys_flag, message.reconsume_times, message.prepared_offset
        self.messages.append(
            (lane, message.body, properties, message.born_timestamp, numbers, code)
        )
        lane.units.append(_pack_unit(position, size, code))
        lane.offset = offset + 1
        lane.size += size
        self.positions.append(position)
        self.offsets.append(offset)
        self.end = position + size
        return record

    def by_topic(self) -> list[tuple[str, list[PlainMessage]]]:
        """What was put, by topic; a topic comes again after messages of another."""
        put = self.messages[: len(self.positions)]
        if len({lane.topic for lane in self.lanes}) == 1:
            return [(self.lanes[0].topic, put)]
        groups = groupby(put, key=lambda message: message[0].topic)
        return [(topic, list(group)) for topic, group in groups]
