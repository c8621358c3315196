"""Stored records as tuples of fields, without an object for each message.

The usual record (two IPv4 hosts, body not compressed, no inner batch) is read with one
struct. Whatever is unusual or broken goes through the message codec, which handles
everything and raises the errors.
"""

from __future__ import annotations

from array import array
from itertools import pairwise
from struct import Struct
from typing import TYPE_CHECKING, Final, NamedTuple

from rocketmq_sdk.errors import RemoteProtocolError
from rocketmq_sdk.protocol.flags import SysFlag
from rocketmq_sdk.protocol.message_codec import (
    HEAD_SIZE_V4,
    HEAD_V4,
    HOST_BITS,
    MAGIC_V1,
    decode_messages,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

SEVERAL: Final = SysFlag.NEED_UNWRAP | SysFlag.INNER_BATCH
"""Of records that hold several messages."""
ODD: Final = SEVERAL | HOST_BITS
"""Of records that are not laid out as most are."""
SMALLEST: Final = HEAD_SIZE_V4 + 3
"""Bytes of a record without a body, a topic and properties."""
LARGEST: Final = (1 << 30) - 1
"""Bytes of a body of records up to which all places in it are int32."""
_BY_CODEC: Final = ODD | SysFlag.COMPRESSED
_TOTAL: Final = Struct(">i")
_HEAD: Final = Struct(">iI12xq8xi")
"""Size, magic code, queue offset and system flag of a record."""


class Record(NamedTuple):
    """The fields of a message.

    `read_records` gives plain tuples of them in this order.
    """

    total: int
    magic: int
    body_crc: int
    queue_id: int
    flag: int
    queue_offset: int
    physical_offset: int
    sys_flag: int
    born_timestamp: int
    born_host: bytes
    store_timestamp: int
    store_host: bytes
    reconsume_times: int
    prepared_offset: int
    body_length: int
    body: bytes
    topic: bytes
    properties: bytes


def record_starts(data: bytes) -> array[int] | None:
    """Where records begin, and the end of the last one.

    None where their sizes do not add up, there is no record, or places in `data` are
    beyond int32.
    """
    starts, size, position, unpack = array("i"), len(data), 0, _TOTAL.unpack_from
    append, last = starts.append, size - SMALLEST
    if not size or size > LARGEST:
        return None
    while position <= last:
        append(position)
        (total,) = unpack(data, position)
        if total < SMALLEST:
            return None
        position += total
    append(size)
    return starts if position == size else None


def read_records(
    data: bytes, starts: Sequence[int] | None, *, offset_delta: int = 0
) -> list[tuple[object, ...]]:
    """All messages of a body of records, each as the fields of `Record`.

    `starts` is the `record_starts` of `data`.

    `offset_delta` is added to queue offsets, as answers to pulls ask for. Raises
    `RemoteProtocolError` for broken records and `CodecMissingError` when a body needs a
    library that is not installed.
    """
    if starts is None:
        rows = _by_codec(data)
    else:
        rows = []
        unpack = HEAD_V4.unpack_from
        for position, end in pairwise(starts):
            head = unpack(data, position)
            topic_at = position + HEAD_SIZE_V4 + head[14]
            if head[1] == MAGIC_V1 and not head[7] & _BY_CODEC and position < topic_at < end - 2:
                topic_end = topic_at + 1 + data[topic_at]
                if (
                    data[topic_at] < 128
                    and topic_end + 2 <= end
                    and topic_end + 2 + (data[topic_end] << 8 | data[topic_end + 1]) == end
                ):
                    rows.append(
                        (
                            *head,
                            data[position + HEAD_SIZE_V4 : topic_at],
                            data[topic_at + 1 : topic_end],
                            data[topic_end + 2 : end],
                        )
                    )
                    continue
            try:
                rows += _by_codec(data[position:end])
            except RemoteProtocolError as error:
                error.add_note(f"in the record at offset {head[5]} of queue {head[3]}")
                raise
    if offset_delta:
        rows = [
            (*row[:5], row[5] + offset_delta, *row[6:])  # type: ignore[operator]
            for row in rows
        ]
    return rows


class Cut(NamedTuple):
    """Some records of a body, and where each begins with the end of the last one."""

    records: bytes
    starts: array[int]


def cut_to(data: bytes, begin: int, end: int, *, at: int = 0) -> Cut | None:
    """Those records of one queue whose offsets lie in [begin, end).

    Their starts are counted from `at`, for records that others are in front of. None
    when an inner batch, a broken record or one out of turn is among them, which only
    decoding can tell.
    """
    starts, size, position, unpack = array("i"), len(data), 0, _HEAD.unpack_from
    append, last = starts.append, size - SMALLEST
    first = behind = 0
    while position <= last:
        total, magic, offset, sys_flag = unpack(data, position)
        if total < SMALLEST or magic != MAGIC_V1 or sys_flag & SEVERAL:
            return None
        if begin <= offset < end:
            if not starts:
                first = behind = position
            elif position > behind:
                return None
            append(at + position - first)
            behind = position + total
        position += total
    append(at + behind - first)
    return Cut(data[first:behind], starts) if position == size else None


def _by_codec(data: bytes) -> list[tuple[object, ...]]:
    """All messages of some records, read by the codec; an inner batch gives several."""
    return [
        Record(
            message.store_size,
            MAGIC_V1,
            message.body_crc,
            message.queue_id,
            message.flag,
            message.offset,
            message.commit_log_offset,
            message.sys_flag,
            message.born_timestamp,
            message.born_host,
            message.store_timestamp,
            message.store_host,
            message.reconsume_times,
            message.prepared_transaction_offset,
            len(message.body),
            message.body,
            message.topic.encode("utf-8", "surrogateescape"),
            message._properties_raw,
        )
        for message in decode_messages(data)
    ]
