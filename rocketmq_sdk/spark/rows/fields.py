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
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias

import attrs
import pyarrow as pa
import pyarrow.compute as pc

from rocketmq_sdk.errors import RemoteProtocolError
from rocketmq_sdk.protocol.compression import decompress
from rocketmq_sdk.protocol.flags import SysFlag
from rocketmq_sdk.protocol.message_codec import HEAD_SIZE_V4, MAGIC_V1
from rocketmq_sdk.spark.rows.records import LARGEST, ODD, Record, read_records, record_starts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

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
_INTEGERS: Final = {2: ("h", pa.int16()), 4: ("i", pa.int32()), 8: ("q", pa.int64())}
_MAGIC: Final = MAGIC_V1.to_bytes(4, "big")
_BODY, _TOPIC, _TOLD, _PROPERTIES, _PIECES = 0, 2, 3, 4, 6
"""Numbers of the pieces into which a record and the head of the next one are cut."""


Damaged: TypeAlias = "Callable[[int, RemoteProtocolError], object]"
"""Is told the number of a message whose body cannot be inflated, and why; may raise."""


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

    def bodies(self, at_once: int, damaged: Damaged) -> Iterator[pa.Array]:
        """The bodies, inflated, in arrays of about `at_once` bytes one after another.

        An array is larger where a single body is. One that cannot be inflated is null
        if `damaged` does not raise.
        """


def read_fields(
    data: bytes, *, offset_delta: int = 0, starts: array[int] | None = None
) -> Fields | None:
    """The fields of all messages of a body of records; None without any.

    `starts` are the `record_starts` of `data`, where somebody has found them already.
    `offset_delta` is added to queue offsets, as answers to pulls ask for. Raises
    `RemoteProtocolError` for broken records and `CodecMissingError` when a body needs a
    library that is not installed.
    """
    if starts is None or not data:
        starts = record_starts(data)
    if starts is None:
        rows = read_records(data, starts, offset_delta=offset_delta)
        return _Rows(list(zip(*rows, strict=True))) if rows else None
    heads = _Heads.of(_binary(starts, data))
    odd = heads.odd()
    packed = None if odd else _packed(heads, offset_delta)
    return packed or _mixed(heads.records, odd, offset_delta)


@attrs.frozen(eq=False)
class _Heads:
    """Records, and what has to be known of each before it is taken apart."""

    records: pa.Array
    magics: bytes
    flags: array[int]
    lengths: array[int]
    """Of bodies."""

    @classmethod
    def of(cls, records: pa.Array) -> _Heads:
        magics = _from_bytes(pc.binary_slice(records, *_PLACES["magic"]), "i").tobytes()
        return cls(records, magics, _native(records, "sys_flag"), _native(records, "body_length"))

    def odd(self) -> list[int]:
        """The numbers of records that are not laid out as usual, as heads tell."""
        count = len(self.flags)
        lengths = pc.min_max(_array(self.lengths))
        if (
            self.magics == _MAGIC * count
            and not any(flag & ODD for flag in different(self.flags))
            and lengths["min"].as_py() >= 0
            and lengths["max"].as_py() <= LARGEST
        ):
            return []
        return [
            number
            for number, (flag, length) in enumerate(zip(self.flags, self.lengths, strict=True))
            if self.magics[4 * number : 4 * number + 4] != _MAGIC
            or flag & ODD
            or not 0 <= length <= LARGEST
        ]


def different(values: array[int]) -> set[int]:
    """The different ones of some numbers, of which all are equal most of the time."""
    return {values[0]} if values == values[:1] * len(values) else set(values)


def _misfits(records: pa.Array) -> list[int]:
    """The numbers of records whose lengths do not fit, which are not odd otherwise."""
    return [
        number
        for number, record in enumerate(records.to_pylist())
        if _packed(_Heads.of(pa.array([record], pa.binary())), 0) is None
    ]


def _mixed(records: pa.Array, odd: list[int], offset_delta: int) -> Fields | None:
    """Fields of records some of which are odd, or have lengths that do not fit."""
    if not odd:
        odd = _misfits(records)
    usual, strange = _parted(records, odd)
    packed = _packed(_Heads.of(usual), offset_delta) if len(usual) else None
    if packed is None and len(usual):
        places = [number for number in range(len(records)) if number not in set(odd)]
        odd = sorted([*odd, *(places[number] for number in _misfits(usual))])
        usual, strange = _parted(records, odd)
        packed = _packed(_Heads.of(usual), offset_delta) if len(usual) else None
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

    def bodies(self, at_once: int, damaged: Damaged) -> Iterator[pa.Array]:  # noqa: ARG002
        return _in_parts(self._column("body"), at_once)

    def _column(self, name: str) -> Sequence[Any]:
        return self._columns[Record._fields.index(name)]


@attrs.frozen(eq=False)
class _Packed:
    """Fields of usual records; `pieces` are what records were cut into.

    Nothing is copied before somebody asks for it.
    """

    count: int
    offset_delta: int
    records: pa.Array
    pieces: pa.Array
    flags: array[int]

    def numbers(self, name: str) -> pa.Array:
        found = _array(_native(self.records, name))
        return (
            pc.add(found, self.offset_delta)
            if self.offset_delta and name == "queue_offset"
            else found
        )

    def octets(self, name: str) -> pa.Array:
        if name == "topic":
            return self._pieces(_TOPIC)
        if name == "properties":
            return self._pieces(_PROPERTIES)
        return pc.binary_slice(self.records, *_PLACES[name])

    def bodies(self, at_once: int, damaged: Damaged) -> Iterator[pa.Array]:
        stored = self._pieces(_BODY)
        if not any(flag & SysFlag.COMPRESSED for flag in different(self.flags)):
            yield stored
            return
        yield from _in_parts(_inflated(stored.to_pylist(), self.flags, damaged), at_once)

    def _pieces(self, number: int) -> pa.Array:
        return self.pieces.take(every(_PIECES, number, self.count))


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

    def bodies(self, at_once: int, damaged: Damaged) -> Iterator[pa.Array]:
        def at_its_place(number: int, error: RemoteProtocolError) -> None:
            damaged(self.order.to_pylist().index(number), error)

        usual, odd = (
            chain.from_iterable(part.to_pylist() for part in fields.bodies(at_once, at_its_place))
            for fields in (self.usual, self.odd)
        )
        count = self.usual.count  # both kinds come in the order of their numbers
        turns = (next(usual if number < count else odd) for number in self.order.to_pylist())
        return _in_parts(turns, at_once)


def _inflated(
    bodies: Sequence[bytes], flags: array[int], damaged: Damaged
) -> Iterator[bytes | None]:
    for number, (body, flag) in enumerate(zip(bodies, flags, strict=True)):
        found: bytes | None = body
        if flag & SysFlag.COMPRESSED:
            try:
                found = decompress(body, flag)
            except RemoteProtocolError as error:
                damaged(number, error)
                found = None
        yield found


def _in_parts(bodies: Iterable[bytes | None], at_once: int) -> Iterator[pa.Array]:
    part, size = list[bytes | None](), 0
    for body in bodies:
        length = 0 if body is None else len(body)
        if part and size + length > at_once:
            yield pa.array(part, pa.binary())
            part, size = [], 0
        part.append(body)
        size += length
    yield pa.array(part, pa.binary())


def _packed(heads: _Heads, offset_delta: int) -> _Packed | None:
    """Take records apart that are not odd; None where lengths do not fit."""
    count, data = len(heads.flags), heads.records.buffers()[2]
    starts = _from_offsets(heads.records)
    ends = _array(starts[1:])
    bodies_at = _plus(_array(starts[:-1]), HEAD_SIZE_V4)
    sizes_at = pc.add(bodies_at, _array(heads.lengths))
    if pc.any(pc.greater(sizes_at, _plus(ends, -3))).as_py():
        return None
    topics_at = _plus(sizes_at, 1)
    between = _cut(data, count, (sizes_at,), topics_at)
    sizes = _from_bytes(between.take(every(2, 0, count)), "B")
    known = different(sizes)
    if max(known) >= 128:
        return None
    told_at = (
        _plus(topics_at, known.pop())
        if len(known) == 1
        else pc.add(topics_at, _array(array("i", sizes)))
    )
    properties_at = _plus(told_at, 2)
    if pc.any(pc.greater(properties_at, ends)).as_py():
        return None
    begins = (bodies_at, sizes_at, topics_at, told_at, properties_at)
    pieces = _cut(data, count, begins, ends)
    told = _array(_swapped(pieces.take(every(_PIECES, _TOLD, count)), "h"))
    if not pc.subtract(ends, properties_at).equals(told.cast(pa.int32())):
        return None
    return _Packed(count, offset_delta, heads.records, pieces, heads.flags)


def _plus(numbers: pa.Array, more: int) -> pa.Array:
    return pc.add(numbers, pa.scalar(more, pa.int32()))


def _cut(data: pa.Buffer, count: int, begins: Sequence[pa.Array], ends: pa.Array) -> pa.Array:
    """The pieces of each record that begin at some places, and what is behind it."""
    width = len(begins) + 1
    bounds = array("i", bytes(4 * (width * count + 1)))
    for number, places in enumerate((*begins, ends)):
        bounds[number : width * count : width] = _from_bytes(places, "i")
    bounds[-1] = bounds[-2]
    return _binary(bounds, data)


# --- between Arrow's buffers and Python's arrays


def every(step: int, first: int, count: int) -> pa.Array:
    """Indices for `take`: `count` of them from `first` on."""
    return _indices(step, first, 1 << count.bit_length()).slice(0, count)


@lru_cache(maxsize=128)
def _indices(step: int, first: int, count: int) -> pa.Array:
    return pa.array(range(first, first + step * count, step), pa.int32())


@lru_cache(maxsize=16)
def in_turn(columns: int, length: int) -> pa.Array:
    """Indices that interleave columns of one length which follow each other.

    The first of each column, the second of each, and so on.
    """
    found = array("i", bytes(4 * columns * length))
    for number in range(columns):
        found[number::columns] = _from_bytes(_plus(every(1, 0, length), number * length), "i")
    return _array(found)


def again(length: int, times: int) -> pa.Array:
    """Indices: 0, 1, ... length - 1, and so again."""
    return _array(array("i", range(length)) * times)


def all_equal(values: pa.Array) -> bytes | None:
    """The value of a binary array of equal values; None where they differ."""
    first: bytes = values[0].as_py()
    lengths = pc.min_max(pc.binary_length(values))
    if lengths["min"].as_py() != lengths["max"].as_py():
        return None
    bounds, data = _from_offsets(values), values.buffers()[2]
    together = memoryview(data)[bounds[0] : bounds[-1]].tobytes() if data is not None else b""
    return first if together == first * len(values) else None


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
    begin = values.offset
    found.frombytes(memoryview(values.buffers()[1])[4 * begin : 4 * (begin + len(values) + 1)])
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
