"""The fields of stored records as Arrow arrays.

Arrow's own loops take usual records out of a whole body of records: those with two IPv4
hosts that are no inner batch. Only where each record begins is found in Python, every
field is cut out of all records at once, and other threads run meanwhile. Compressed
bodies are inflated one after the other, the rest of their records is as usual.

Records that are odd are read one by one (`read_records`), with the same result or its
error, and put back into their places; the others do not pay for them.
"""

from __future__ import annotations

import sys
from array import array
from functools import lru_cache
from itertools import chain
from typing import TYPE_CHECKING, Any, Final, Protocol

import attrs
import pyarrow as pa
import pyarrow.compute as pc

from rocketmq_sdk.protocol.compression import decompress
from rocketmq_sdk.protocol.flags import SysFlag
from rocketmq_sdk.protocol.message_codec import HEAD_SIZE_V4, MAGIC_V1
from rocketmq_sdk.spark.rows.records import LARGEST, ODD, Record, read_records, record_starts

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

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
        """A field of bytes but the body; the bytes of a physical offset, too."""

    def bodies(self, at_once: int) -> Iterator[pa.Array]:
        """The bodies, inflated, in arrays of about `at_once` bytes one after another.

        An array is larger where a single body is.
        """


def read_fields(data: bytes, *, offset_delta: int = 0) -> Fields | None:
    """The fields of all messages of a body of records; None without any.

    `offset_delta` is added to queue offsets, as answers to pulls ask for. Raises
    `RemoteProtocolError` for broken records and `CodecMissingError` when a body needs a
    library that is not installed.
    """
    starts = record_starts(data)
    if starts is None:
        rows = read_records(data, starts, offset_delta=offset_delta)
        return _Rows(list(zip(*rows, strict=True))) if rows else None
    records = _binary(starts, data)
    odd = _odd(records)
    packed = None if odd else _packed(records, offset_delta)
    return packed or _mixed(records, odd, offset_delta)


def _odd(records: pa.Array) -> list[int]:
    """The numbers of records that are not laid out as usual, as far as heads tell."""
    magic, flags = pc.binary_slice(records, *_PLACES["magic"]), _native(records, "sys_flag")
    lengths = _native(records, "body_length")
    if (
        not pc.any(pc.not_equal(magic, _MAGIC)).as_py()
        and not any(flag & ODD for flag in set(flags))
        and min(lengths) >= 0
        and max(lengths) <= LARGEST
    ):
        return []
    usual = pc.equal(magic, _MAGIC).to_pylist()
    return [
        number
        for number, (known, flag, length) in enumerate(zip(usual, flags, lengths, strict=True))
        if not known or flag & ODD or not 0 <= length <= LARGEST
    ]


def _misfits(records: pa.Array) -> list[int]:
    """The numbers of records whose lengths do not fit, which are not odd otherwise."""
    return [
        number
        for number, record in enumerate(records.to_pylist())
        if _packed(pa.array([record], pa.binary()), 0) is None
    ]


def _mixed(records: pa.Array, odd: list[int], offset_delta: int) -> Fields | None:
    """Fields of records some of which are odd, or have lengths that do not fit."""
    if not odd:
        odd = _misfits(records)
    usual, strange = _parted(records, odd)
    packed = _packed(usual, offset_delta) if len(usual) else None
    if packed is None and len(usual):
        places = [number for number in range(len(records)) if number not in set(odd)]
        odd = sorted([*odd, *(places[number] for number in _misfits(usual))])
        usual, strange = _parted(records, odd)
        packed = _packed(usual, offset_delta) if len(usual) else None
    rows: list[tuple[object, ...]] = []
    order, begin = array("i"), 0
    for passed, (number, record) in enumerate(zip(odd, strange.to_pylist(), strict=True)):
        found = read_records(record, array("i", [0, len(record)]), offset_delta=offset_delta)
        order.extend(range(begin - passed, number - passed))
        order.extend(range(len(usual) + len(rows), len(usual) + len(rows) + len(found)))
        rows += found
        begin = number + 1
    order.extend(range(begin - len(odd), len(usual)))
    one_by_one = _Rows(list(zip(*rows, strict=True))) if rows else None
    if packed is None or one_by_one is None:
        return packed or one_by_one
    return _Mixed(packed, one_by_one, _array(order))


def _parted(records: pa.Array, odd: Sequence[int]) -> tuple[pa.Array, pa.Array]:
    mask = bytearray(len(records))
    for number in odd:
        mask[number] = 1
    is_odd = pc.cast(pa.array(mask, pa.uint8()), pa.bool_())
    return records.filter(pc.invert(is_odd)), records.filter(is_odd)


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

    def bodies(self, at_once: int) -> Iterator[pa.Array]:
        return _in_parts(self._column("body"), at_once)

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
    flags: array[int]

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
        return pc.binary_slice(self.heads, *_PLACES[name])

    def bodies(self, at_once: int) -> Iterator[pa.Array]:
        stored = tail(self.heads, HEAD_SIZE_V4)
        if not any(flag & SysFlag.COMPRESSED for flag in set(self.flags)):
            yield stored
            return
        yield from _in_parts(map(_inflated, stored.to_pylist(), self.flags), at_once)


@attrs.frozen(eq=False)
class _Mixed:
    """Fields of usual records and of odd ones; `order` are their numbers in turn."""

    usual: _Packed
    odd: _Rows
    order: pa.Array

    @property
    def count(self) -> int:
        return len(self.order)

    def numbers(self, name: str) -> pa.Array:
        return pa.concat_arrays([self.usual.numbers(name), self.odd.numbers(name)]).take(self.order)

    def octets(self, name: str) -> pa.Array:
        return pa.concat_arrays([self.usual.octets(name), self.odd.octets(name)]).take(self.order)

    def bodies(self, at_once: int) -> Iterator[pa.Array]:
        usual, odd = (
            chain.from_iterable(part.to_pylist() for part in fields.bodies(at_once))
            for fields in (self.usual, self.odd)
        )
        count = self.usual.count  # both kinds come in the order of their numbers
        turns = (next(usual if number < count else odd) for number in self.order.to_pylist())
        return _in_parts(turns, at_once)


def _inflated(body: bytes, flag: int) -> bytes:
    return decompress(body, flag) if flag & SysFlag.COMPRESSED else body


def _in_parts(bodies: Iterable[bytes], at_once: int) -> Iterator[pa.Array]:
    part, size = list[bytes](), 0
    for body in bodies:
        if part and size + len(body) > at_once:
            yield pa.array(part, pa.binary())
            part, size = [], 0
        part.append(body)
        size += len(body)
    yield pa.array(part, pa.binary())


def _packed(records: pa.Array, offset_delta: int) -> _Packed | None:
    """Take records apart that are not odd; None where lengths do not fit."""
    count = len(records)
    starts, data = _from_offsets(records), records.buffers()[2]
    lengths = _native(records, "body_length")
    topics_at = pc.add(
        _array(starts[:-1]), pc.add(_array(lengths), pa.scalar(HEAD_SIZE_V4, pa.int32()))
    )
    ends = _array(starts[1:])
    if pc.any(pc.greater(topics_at, pc.subtract(ends, 3))).as_py():
        return None
    bounds = array("i", bytes(4 * (2 * count + 1)))
    bounds[0::2] = starts
    bounds[1::2] = _from_bytes(topics_at, "i")
    parts = _binary(bounds, data)
    found = _topics_and_properties(data, topics_at, ends, parts.take(every(2, 1, count)))
    if found is None:
        return None
    heads = parts.take(every(2, 0, count))
    return _Packed(count, offset_delta, heads, *found, _native(records, "sys_flag"))


def _topics_and_properties(
    data: pa.Buffer, begins: pa.Array, ends: pa.Array, tails: pa.Array
) -> tuple[pa.Array, pa.Array] | None:
    """Topics and properties out of what follows the bodies.

    None when a length is wrong.
    """
    sizes = _from_bytes(pc.binary_slice(tails, 0, 1), "B")
    different = set(sizes)
    if max(different) >= 128:
        return None
    if len(different) == 1:
        start = 1 + different.pop()
        if pc.min(pc.binary_length(tails)).as_py() < start + 2:
            return None
        topics, properties = pc.binary_slice(tails, 1, start), tail(tails, start + 2)
        told = pc.binary_slice(tails, start, start + 2)
    else:
        topics_at = pc.add(begins, pa.scalar(1, pa.int32()))
        told_at = pc.add(topics_at, _array(array("i", sizes)))
        properties_at = pc.add(told_at, pa.scalar(2, pa.int32()))
        if pc.any(pc.greater(properties_at, ends)).as_py():
            return None
        bounds = [topics_at, told_at, properties_at]
        topics, told, properties = _cut(data, len(tails), bounds, ends)
    lengths = _array(array("i", _swapped(told, "h")))
    if pc.any(pc.not_equal(pc.binary_length(properties), lengths)).as_py():
        return None
    return topics, properties


def _cut(data: pa.Buffer, count: int, begins: Sequence[pa.Array], ends: pa.Array) -> list[pa.Array]:
    """The pieces of each record between some places in it, and its end."""
    width = len(begins) + 1
    bounds = array("i", bytes(4 * (width * count + 1)))
    for number, places in enumerate((*begins, ends)):
        bounds[number : width * count : width] = _from_bytes(places, "i")
    bounds[-1] = bounds[-2]
    parts = _binary(bounds, data)
    return [parts.take(every(width, number, count)) for number in range(len(begins))]


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


def _binary(bounds: array[int], data: bytes | pa.Buffer) -> pa.Array:
    """An array of the parts of `data` between bounds; nothing is copied."""
    return pa.Array.from_buffers(
        pa.binary(), len(bounds) - 1, [None, pa.py_buffer(bounds), pa.py_buffer(data)]
    )


def _from_offsets(values: pa.Array) -> array[int]:
    """Where the values of a binary array begin in its data, and the end of the last."""
    found = array("i")
    found.frombytes(memoryview(values.buffers()[1])[: 4 * (len(values) + 1)])
    return found


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
