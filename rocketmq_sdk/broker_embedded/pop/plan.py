"""What a pop reads, in which order, and how it reports the result.

Pure: randomness comes as an argument.
"""

from __future__ import annotations

from struct import Struct, iter_unpack
from typing import TYPE_CHECKING, Final

import attrs

from rocketmq_sdk.errors import LocalProtocolError, StoreCorruptError
from rocketmq_sdk.model.properties import POP_CK, without_property
from rocketmq_sdk.names import pop_retry_topic_v1, pop_retry_topic_v2
from rocketmq_sdk.protocol.message_codec import (
    MAX_PROPERTIES,
    POSITION_QUEUE_OFFSET,
    decode_messages,
    encode_record,
)
from rocketmq_sdk.protocol.receipt_handle import (
    ReceiptHandle,
    message_offsets_part,
    start_offset_part,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

HUNDRED: Final = 100
_SIZE: Final = Struct(">i")
_QUEUE_OFFSET: Final = Struct(">q")
_SHORTEST: Final = POSITION_QUEUE_OFFSET + _QUEUE_OFFSET.size


@attrs.frozen
class PopPolicy:
    """What the settings say about retry topics and the order of queues."""

    retry_probability: int = 20
    retry_v2: bool = False
    read_retry_v1: bool = True
    descending: bool = True

    def retry_topics(self, topic: str, group: str, draw: int) -> tuple[str, ...]:
        """The retry topics of a group in reading order; `draw` is below 100."""
        first, second = pop_retry_topic_v1(topic, group), pop_retry_topic_v2(topic, group)
        if not self.retry_v2:
            return (first,)
        if not self.read_retry_v1:
            return (second,)
        return (first, second) if draw % 2 == 0 else (second, first)

    def retry_first(self, draw: int) -> bool:
        """Whether this pop looks at retries before the topic."""
        return draw < self.retry_probability


def queue_order(queues: int, draw: int, *, descending: bool) -> Iterator[int]:
    """All queues of a topic, beginning with one that `draw` chooses."""
    for index in range(queues):
        yield (queues - 1 - index + draw) % queues if descending else (index + draw) % queues


def first_offset(body: bytes) -> int:
    """The queue offset of the first of joined records; -1 when they are too short."""
    if len(body) < _SHORTEST:
        return -1
    offset: int = _QUEUE_OFFSET.unpack_from(body, POSITION_QUEUE_OFFSET)[0]
    return offset


def record_offsets(body: bytes, end: int) -> list[int]:
    """The queue offsets of joined records, all of which lie below `end`.

    Raises `StoreCorruptError` when sizes or offsets cannot be those of such records:
    the log is damaged there.
    """
    offsets = _offsets(body)
    if not offsets or min(offsets) < 0 or max(offsets) >= end:
        raise StoreCorruptError("the log holds no record where the queue says so")
    return offsets


def _offsets(body: bytes) -> list[int]:
    """What stands at the places of the queue offsets; nothing when sizes are wrong."""
    size = _SIZE.unpack_from(body)[0] if body else 0
    if size > _SHORTEST and len(body) % size == 0:
        # Records of one length, as most backlogs are made of: read without looking for
        # where each begins.
        before = POSITION_QUEUE_OFFSET - _SIZE.size
        behind = size - POSITION_QUEUE_OFFSET - _QUEUE_OFFSET.size
        found = list(iter_unpack(f">i{before}xq{behind}x", body))
        if all(length == size for length, _offset in found):
            return [offset for _length, offset in found]
    offsets: list[int] = []
    position, end = 0, len(body)
    while position < end:
        size = _SIZE.unpack_from(body, position)[0] if position + _SHORTEST <= end else 0
        if size < _SHORTEST:
            return []
        offsets.append(_QUEUE_OFFSET.unpack_from(body, position + POSITION_QUEUE_OFFSET)[0])
        position += size
    return offsets if position == end else []


class PopAnswer:
    """What a pop has found so far.

    `rest` counts messages that it left behind, `free_at` is when a blocked queue may be
    popped (0: none is). `unseen` is set when a read ended before the end of its queue
    with nothing for the pop: what follows was not looked at yet.
    """

    __slots__ = (
        "bodies",
        "count",
        "free_at",
        "offset_parts",
        "order_parts",
        "rest",
        "start_parts",
        "unseen",
    )

    def __init__(self) -> None:
        self.bodies: list[bytes] = []
        self.count = 0
        self.rest = 0
        self.free_at = 0
        self.unseen = False
        self.start_parts: list[str] = []
        self.offset_parts: list[str] = []
        self.order_parts: list[str] = []

    def add(self, kind: str, queue_id: int, body: bytes, offsets: list[int]) -> None:
        """Messages of one queue."""
        self.bodies.append(body)
        self.count += len(offsets)
        self.start_parts.append(start_offset_part(kind, queue_id, offsets[0]))
        self.offset_parts.append(message_offsets_part(kind, queue_id, offsets))

    def note_blocked(self, free_at: int) -> None:
        """A queue is blocked until a time."""
        self.free_at = free_at if not self.free_at else min(self.free_at, free_at)

    def infos(self) -> tuple[str, str, str]:
        """The three texts from which clients make receipt handles."""
        return ";".join(self.start_parts), ";".join(self.offset_parts), ";".join(self.order_parts)


def as_of_topic(body: bytes, topic: str, handle: ReceiptHandle) -> bytes:
    """Records of a retry topic as records of the topic that the consumer knows.

    Each gets its receipt handle as a property; `handle` is that of the pop. A record
    whose properties have no room for a handle stays as it is, which clients understand
    too.
    """
    return b"".join(_rewritten(body, topic, handle))


def _rewritten(body: bytes, topic: str, handle: ReceiptHandle) -> Iterable[bytes]:
    name = topic.encode()
    position = 0
    while position < len(body):
        end = position + _SIZE.unpack_from(body, position)[0]
        record = body[position:end]
        position = end
        message = decode_messages(record, inflate=False, unwrap=False)[0]
        text = without_property(message.properties_bytes.decode("utf-8", "surrogateescape"), POP_CK)
        if text and not text.endswith("\x02"):
            text += "\x02"
        text += f"{POP_CK}\x01{attrs.evolve(handle, offset=message.offset)}\x02"
        properties = text.encode("utf-8", "surrogateescape")
        if len(properties) > MAX_PROPERTIES:
            yield record
            continue
        try:
            yield encode_record(
                name,
                message.body,
                properties,
                queue_id=message.queue_id,
                flag=message.flag,
                queue_offset=message.offset,
                physical_offset=message.commit_log_offset,
                sys_flag=message.sys_flag,
                born_timestamp=message.born_timestamp,
                born_host=message.born_host,
                store_timestamp=message.store_timestamp,
                store_host=message.store_host,
                reconsume_times=message.reconsume_times,
                prepared_offset=message.prepared_transaction_offset,
                body_crc=message.body_crc,
            )
        except LocalProtocolError:
            yield record
