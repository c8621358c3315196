"""Reading records out of the log: the checks of recovery, and single fields.

`check_record` follows `CommitLog.checkMessageAndReturnSize` of Apache RocketMQ 5.4.0:
magic, lengths that add up, the body's CRC. As there, damage in the properties is not
noticed. Two more things fail here. A topic that cannot be the name of a directory fails
in Apache when the queue is made. And a record that names another position than its own:
with `writeWithoutMmap` Apache 5.5 leaves old bytes of its buffer behind the last
record, up to the next page.
"""

from __future__ import annotations

import zlib
from struct import Struct
from typing import Final, NamedTuple

from rocketmq_sdk.names import SCHEDULE_TOPIC
from rocketmq_sdk.protocol.flags import SysFlag
from rocketmq_sdk.protocol.message_codec import (
    BODY_CRC_MASK,
    HOST_BITS,
    MAGIC_BLANK,
    MAGIC_V1,
    MAGIC_V2,
    MAX_PROPERTIES,
    MAX_TOPIC_BYTES_V1,
    RECORD_OVERHEAD_V1,
)

_HEADS: Final = tuple(
    Struct(f">iIIiiqqiq{born}sq{store}siqi") for store in (8, 20) for born in (8, 20)
)
_HEAD_V4: Final = _HEADS[0]
_PLAIN: Final = Struct(">iIIi4xqqi16xq20xi")
"""What a scan needs from the head of a record with two IPv4 hosts."""
SIZE_AND_MAGIC: Final = Struct(">iI")
_LONG: Final = Struct(">q")
_INT: Final = Struct(">i")
_SHORT: Final = Struct(">h")
BLANK_SIZE: Final = 8
STORE_TIME_SPAN: Final = 76
"""How many first bytes of a record always include its store time."""
HEAD_SPAN: Final = _HEADS[3].size
"""How many first bytes of a record always include all that precedes its body."""
MAX_TOPIC_BYTES: Final = 255


class RecordHead(NamedTuple):
    """The fields of a record that dispatch needs."""

    position: int
    size: int
    queue_id: int
    queue_offset: int
    physical_offset: int
    sys_flag: int
    store_timestamp: int
    topic: str
    properties: bytes


def blank(rest: int) -> bytes:
    """The record that says that the rest of its file, in bytes, is empty."""
    return SIZE_AND_MAGIC.pack(rest, MAGIC_BLANK)


def size_and_magic(data: bytes | bytearray, at: int) -> tuple[int, int]:
    """The first two fields of a record."""
    size, magic = SIZE_AND_MAGIC.unpack_from(data, at)
    return size, magic


def is_message_magic(magic: int) -> bool:
    """Whether a magic number begins a message."""
    return magic in (MAGIC_V1, MAGIC_V2)


def check_record(
    data: bytes, at: int, position: int, topics: dict[bytes, str | None], *, check_crc: bool
) -> RecordHead | None:
    """The record at index `at` of `data`; None when it is broken or incomplete.

    `position` is its position in the log. `topics` remembers decoded topics from call
    to call.
    """
    if (available := len(data) - at) < RECORD_OVERHEAD_V1:
        return None
    fields = _HEAD_V4.unpack_from(data, at)
    size, magic, crc, queue_id, _flag, queue_offset, physical_offset, sys_flag = fields[:8]
    if not RECORD_OVERHEAD_V1 <= size <= available or physical_offset != position:
        return None
    if magic not in (MAGIC_V1, MAGIC_V2):
        return None
    head = _HEAD_V4
    if sys_flag & HOST_BITS:
        head = _HEADS[sys_flag >> 4 & 3]
        if head.size >= size:
            return None
        fields = head.unpack_from(data, at)
    body_length = fields[14]
    body_start = at + head.size
    body_end = body_start + body_length
    end = at + size
    wide = magic == MAGIC_V2
    if body_length < 0 or body_end + 3 + wide > end or queue_id < 0 or queue_offset < 0:
        return None
    topic_length = _SHORT.unpack_from(data, body_end)[0] if wide else data[body_end]
    topic_start = body_end + 1 + wide
    topic_end = topic_start + topic_length
    if topic_length < 0 or (topic_length > 127 and not wide) or topic_end + 2 > end:
        return None
    properties_length = _SHORT.unpack_from(data, topic_end)[0]
    if properties_length < 0 or topic_end + 2 + properties_length != end:
        return None
    if (
        check_crc
        and body_length
        and zlib.crc32(memoryview(data)[body_start:body_end]) & BODY_CRC_MASK != crc
    ):
        return None
    raw = data[topic_start:topic_end]
    topic = topics.get(raw)
    if topic is None:
        topic = topics[raw] = decode_topic(raw)
    if topic is None:
        return None
    return RecordHead(
        position,
        size,
        queue_id,
        queue_offset,
        physical_offset,
        sys_flag,
        fields[10],
        topic,
        data[topic_end + 2 : end],
    )


def plain_records(
    data: bytes, at: int, position: int, topics: dict[bytes, str | None], *, check_crc: bool
) -> list[RecordHead]:
    """The records from index `at` of `data` on, as `check_record` returns them.

    Ends at the first one that is not plain or not complete. Plain is what nearly every
    record is: V1, two IPv4 hosts, a topic that `topics` has, and nothing wrong with it.
    This loop is nearly all the time of a scan.
    """
    heads: list[RecordHead] = []
    append, new, unpack, crc32, get_topic, view = (
        heads.append,
        tuple.__new__,
        _PLAIN.unpack_from,
        zlib.crc32,
        topics.get,
        memoryview(data),
    )
    length, head_size = len(data), _PLAIN.size
    last = length - RECORD_OVERHEAD_V1
    while at <= last:
        size, magic, crc, queue, offset, physical, sys_flag, stored, body = unpack(data, at)
        body_start = at + head_size
        topic_at = body_start + body
        end = at + size
        if (
            magic != MAGIC_V1
            or physical != position
            or sys_flag & HOST_BITS
            or queue | offset | body < 0
            or not topic_at + 3 <= end <= length
        ):
            break
        topic_length = data[topic_at]
        topic_end = topic_at + 1 + topic_length
        topic = get_topic(data[topic_at + 1 : topic_end])
        start = topic_end + 2
        if (
            topic is None
            or topic_length > MAX_TOPIC_BYTES_V1
            or not 0 <= end - start <= MAX_PROPERTIES
        ):
            break
        if end - start != data[topic_end] << 8 | data[topic_end + 1]:
            break
        if check_crc and body and crc32(view[body_start:topic_at]) & BODY_CRC_MASK != crc:
            break
        fields = (position, size, queue, offset, physical, sys_flag, stored, topic, data[start:end])
        append(new(RecordHead, fields))
        at = end
        position += size
    return heads


def decode_topic(raw: bytes) -> str | None:
    """The topic of a record; None when it cannot be the name of a directory."""
    try:
        topic = raw.decode()
    except UnicodeDecodeError:
        return None
    return topic if is_directory_name(topic) else None


def is_directory_name(topic: str) -> bool:
    """Whether a queue directory of this name stays inside its parent."""
    return (
        bool(topic)
        and topic not in (".", "..")
        and "/" not in topic
        and "\\" not in topic
        and "\0" not in topic
    )


def is_dispatched(sys_flag: int) -> bool:
    """Whether consumers see a record.

    Half messages and rollback marks of old versions are in no queue.
    """
    return sys_flag & SysFlag.TRANSACTION_ROLLBACK in (0, SysFlag.TRANSACTION_COMMIT)


def store_time(head: bytes) -> int:
    """The store time in the first `STORE_TIME_SPAN` bytes of a record."""
    sys_flag = _INT.unpack_from(head, 36)[0]
    time: int = _LONG.unpack_from(head, 68 if sys_flag & SysFlag.BORN_HOST_V6 else 56)[0]
    return time


def is_schedule_topic(topic: str) -> bool:
    """Whether queue units of a topic hold delivery times instead of tags codes."""
    return topic == SCHEDULE_TOPIC


def properties_of(record: bytes) -> str:
    """The text of the properties of a whole record."""
    return properties_behind(record, body_end(record), record)


def body_end(head: bytes) -> int:
    """Where in a record its body ends.

    The first `HEAD_SPAN` bytes of the record are enough.
    """
    sys_flag = _INT.unpack_from(head, 36)[0]
    form = _HEADS[sys_flag >> 4 & 3]
    end: int = form.size + _INT.unpack_from(head, form.size - 4)[0]
    return end


def properties_behind(data: bytes, at: int, head: bytes) -> str:
    """The text of the properties, from the bytes that follow a record's body.

    `data` has the record from its body's end (at index `at`) to its own end; `head` is
    its beginning.
    """
    at += 2 + _SHORT.unpack_from(data, at)[0] if head[7] == MAGIC_V2 & 0xFF else 1 + data[at]
    return data[at + 2 :].decode("utf-8", "replace")
