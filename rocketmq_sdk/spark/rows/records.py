"""Stored records taken apart into tuples of fields, one for a message, without an
object for each.

The usual record, two IPv4 hosts, body not compressed, no inner batch, is read with one
struct; whatever is unusual or broken goes through the codec of messages, which knows it
all and raises what is to be raised.
"""

from __future__ import annotations

from struct import Struct
from typing import Final, NamedTuple

from rocketmq_sdk.protocol.flags import SysFlag
from rocketmq_sdk.protocol.message_codec import (
    HEAD_SIZE_V4,
    HEAD_V4,
    HOST_BITS,
    MAGIC_V1,
    decode_messages,
)

UNUSUAL: Final = SysFlag.COMPRESSED | SysFlag.NEED_UNWRAP | SysFlag.INNER_BATCH | HOST_BITS
_OFFSET_AND_FLAG: Final = Struct(">iI12xq8xi")


class Record(NamedTuple):
    """The fields of a message; a plain tuple of them in this order is what
    `read_records` gives.
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


def read_records(data: bytes, *, offset_delta: int = 0) -> list[tuple[object, ...]]:
    """All messages of a body of records, each as the fields of `Record`.

    `offset_delta` is added to queue offsets, as answers to pulls ask for. Raises
    `RemoteProtocolError` for broken records and `CodecMissingError` when a body needs a
    library that is not installed.
    """
    rows: list[tuple[object, ...]] = []
    append, unpack, size, position = rows.append, HEAD_V4.unpack_from, len(data), 0
    while position < size:
        if size - position > HEAD_SIZE_V4:
            head = unpack(data, position)
            topic_at = position + HEAD_SIZE_V4 + head[14]
            end = position + head[0]
            if (
                head[1] == MAGIC_V1
                and not head[7] & UNUSUAL
                and position < topic_at < end - 2
                and end <= size
            ):
                topic_end = topic_at + 1 + data[topic_at]
                if (
                    data[topic_at] < 128
                    and topic_end + 2 <= end
                    and topic_end + 2 + (data[topic_end] << 8 | data[topic_end + 1]) == end
                ):
                    append(
                        (
                            *head,
                            data[position + HEAD_SIZE_V4 : topic_at],
                            data[topic_at + 1 : topic_end],
                            data[topic_end + 2 : end],
                        )
                    )
                    position = end
                    continue
        position = _read_unusual(rows, data, position)
    if offset_delta:
        rows = [(*row[:5], row[5] + offset_delta, *row[6:]) for row in rows]  # type: ignore[operator]
    return rows


def cut_to(data: bytes, begin: int, end: int) -> bytes | None:
    """Those records of one queue whose offsets lie in [begin, end); None when an
    unusual or broken one is among them, which only reading can tell.
    """
    unpack, size, position = _OFFSET_AND_FLAG.unpack_from, len(data), 0
    first, last = size, 0
    while position < size:
        if size - position < HEAD_SIZE_V4:
            return None
        total, magic, offset, sys_flag = unpack(data, position)
        if magic != MAGIC_V1 or sys_flag & UNUSUAL or not HEAD_SIZE_V4 < total <= size - position:
            return None
        if begin <= offset < end:
            if position > last > 0:
                return None
            first, last = min(first, position), position + total
        position += total
    return data[first:last]


def _read_unusual(rows: list[tuple[object, ...]], data: bytes, position: int) -> int:
    """Read one record by the codec, which gives several messages for an inner batch;
    where the next one begins.
    """
    total = int.from_bytes(data[position : position + 4], "big", signed=True)
    end = position + total if 0 < total <= len(data) - position else len(data)
    for message in decode_messages(data[position:end]):
        rows.append(  # noqa: PERF401
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
        )
    return end
