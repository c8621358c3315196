"""The fields of stored records as Arrow arrays.

Where records are usual, Arrow's own loops take them out of a whole body of records.

Usual records have two IPv4 hosts, a body that is neither compressed nor an inner batch,
and topics of one length. Then only where each record begins is found in Python, every
field is cut out of all records at once, and other threads run meanwhile. Whatever is
unusual or broken is read record by record (`read_records`), with the same result or its
error.
"""

from __future__ import annotations

import sys
from array import array
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, Protocol

import attrs
import pyarrow as pa
import pyarrow.compute as pc

from rocketmq_sdk.protocol.message_codec import HEAD_SIZE_V4, MAGIC_V1
from rocketmq_sdk.spark.rows.records import LARGEST, UNUSUAL, Record, read_records, record_starts

if TYPE_CHECKING:
    from collections.abc import Sequence

_PLACES: Final = {
    "magic": (4, 8),
    "queue_id": (12, 16),
    "flag": (16, 20),
    "queue_offset": (20, 28),
    "physical_offset": (28, 36),
    "sys_flag": (36, 40),
    "born_timestamp": (40, 48),
    "born_host": (48, 56),
    "store_timestamp": (56, 64),
    "store_host": (64, 72),
    "reconsume_times": (72, 76),
    "body_length": (84, 88),
}
"""Begin and end of fixed-size fields in a record with two IPv4 hosts.

See `MessageDecoder`.
"""
_INTEGERS: Final = {4: ("i", pa.int32()), 8: ("q", pa.int64())}
_MAGIC: Final = pa.scalar(MAGIC_V1.to_bytes(4, "big"), pa.binary())


class Fields(Protocol):
    """The fields of some messages, each made when asked for.

    Names are those of `Record`.
    """

    @property
    def count(self) -> int:
        """How many messages these are, at least one."""

    def numbers(self, name: str) -> pa.Array:
        """A field of integers, int32 or int64 as records hold it."""

    def octets(self, name: str) -> pa.Array:
        """A field of bytes; the bytes of a physical offset, too."""


def read_fields(data: bytes, *, offset_delta: int = 0) -> Fields | None:
    """The fields of all messages of a body of records; None without any.

    `offset_delta` is added to queue offsets, as answers to pulls ask for. Raises
    `RemoteProtocolError` for broken records and `CodecMissingError` when a body needs a
    library that is not installed.
    """
    starts = record_starts(data)
    packed = None if starts is None else _packed(data, starts, offset_delta)
    if packed is not None:
        return packed
    rows = read_records(data, starts, offset_delta=offset_delta)
    return _Rows(list(zip(*rows, strict=True))) if rows else None


class _Rows:
    """Fields of records that were read one by one."""

    def __init__(self, columns: Sequence[Sequence[Any]]) -> None:
        self._columns = columns
        self.count = len(columns[0])

    def numbers(self, name: str) -> pa.Array:
        start, end = _PLACES[name]
        return pa.array(self._column(name), _INTEGERS[end - start][1])

    def octets(self, name: str) -> pa.Array:
        values = self._column(name)
        if name == "physical_offset":
            values = [value.to_bytes(8, "big", signed=True) for value in values]
        return pa.array(values, pa.binary())

    def _column(self, name: str) -> Sequence[Any]:
        return self._columns[Record._fields.index(name)]


@attrs.frozen(eq=False)
class _Packed:
    """Fields of usual records; `heads` are records up to the end of their bodies."""

    count: int
    offset_delta: int
    heads: pa.Array
    topics: pa.Array
    properties: pa.Array

    def numbers(self, name: str) -> pa.Array:
        found = _array(_native(self.heads, name))
        return (
            pc.add(found, self.offset_delta)
            if self.offset_delta and name == "queue_offset"
            else found
        )

    def octets(self, name: str) -> pa.Array:
        if name == "topic":
            return self.topics
        if name == "properties":
            return self.properties
        if name == "body":
            return tail(self.heads, HEAD_SIZE_V4)
        return pc.binary_slice(self.heads, *_PLACES[name])


def _packed(data: bytes, starts: array[int], offset_delta: int) -> _Packed | None:
    """Take usual records apart; None when there is another one among them."""
    count = len(starts) - 1
    records = _binary(starts, data)
    magic, flags = pc.binary_slice(records, *_PLACES["magic"]), set(_native(records, "sys_flag"))
    if pc.any(pc.not_equal(magic, _MAGIC)).as_py() or any(flag & UNUSUAL for flag in flags):
        return None
    lengths = _native(records, "body_length")
    if min(lengths) < 0 or max(lengths) > len(data):
        return None
    topics_at = pc.add(
        _array(starts[:-1]), pc.add(_array(lengths), pa.scalar(HEAD_SIZE_V4, pa.int32()))
    )
    if pc.any(pc.greater(topics_at, pc.subtract(_array(starts[1:]), 3))).as_py():
        return None
    bounds = array("i", bytes(4 * (2 * count + 1)))
    bounds[0::2] = starts
    bounds[1::2] = _from_bytes(topics_at, "i")
    parts = _binary(bounds, data)
    ends = _ends(parts.take(every(2, 1, count)))
    return (
        None
        if ends is None
        else _Packed(count, offset_delta, parts.take(every(2, 0, count)), *ends)
    )


def _ends(tails: pa.Array) -> tuple[pa.Array, pa.Array] | None:
    """Topics and properties out of what follows the bodies.

    None when topics differ in length or a length is wrong.
    """
    topic_sizes = set(_from_bytes(pc.binary_slice(tails, 0, 1), "B"))
    start = 1 + topic_sizes.pop()
    if topic_sizes or start > 128 or pc.min(pc.binary_length(tails)).as_py() < start + 2:
        return None
    properties = tail(tails, start + 2)
    told = pc.binary_slice(tails, start, start + 2)
    if pc.any(
        pc.not_equal(pc.binary_length(properties), _array(array("i", _swapped(told, "h"))))
    ).as_py():
        return None
    return pc.binary_slice(tails, 1, start), properties


# --- between Arrow's buffers and Python's arrays


@lru_cache(maxsize=64)
def every(step: int, first: int, count: int) -> pa.Array:
    """Indices for `take`: `count` of them from `first` on."""
    return pa.array(range(first, first + step * count, step), pa.int32())


def tail(values: pa.Array, start: int) -> pa.Array:
    """Binary values without their first bytes.

    The end is given because an open one makes Arrow 26 fail for some lengths: it
    multiplies both.
    """
    return pc.binary_slice(values, start, LARGEST)


def _binary(bounds: array[int], data: bytes) -> pa.Array:
    """An array of the parts of `data` between bounds; nothing is copied."""
    return pa.Array.from_buffers(
        pa.binary(), len(bounds) - 1, [None, pa.py_buffer(bounds), pa.py_buffer(data)]
    )


def _from_bytes(values: pa.Array, code: str) -> array[int]:
    """The bytes of a new array without nulls, as numbers of this machine."""
    found = array(code)
    found.frombytes(memoryview(values.buffers()[-1])[: found.itemsize * len(values)])
    return found


def _swapped(pieces: pa.Array, code: str) -> array[int]:
    """Big-endian numbers out of pieces of their size."""
    found = _from_bytes(pieces, code)
    if sys.byteorder == "little":
        found.byteswap()
    return found


def _native(records: pa.Array, name: str) -> array[int]:
    start, end = _PLACES[name]
    return _swapped(pc.binary_slice(records, start, end), _INTEGERS[end - start][0])


def _array(values: array[int]) -> pa.Array:
    return pa.Array.from_buffers(
        _INTEGERS[values.itemsize][1], len(values), [None, pa.py_buffer(values)]
    )
