"""Properties of many messages become columns.

Messages of one producer have the same names in the same order, only the values differ.
So the names are looked at once for each such shape; it says which of the values are
tags, keys and ids and which are the user's. Where all messages of a batch have one
shape, Arrow's own loops cut the values out; where shapes change, each text is split by
itself. Texts whose separators do not alternate, with names that come twice, blank names
or values are rare and go through the codec of properties.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import Any, Final

import attrs
import pyarrow as pa
import pyarrow.compute as pc

from rocketmq_sdk.model import properties as names
from rocketmq_sdk.model.properties import decode_properties
from rocketmq_sdk.spark.rows.fields import again, every, in_turn, tail
from rocketmq_sdk.spark.schema import DEDUP_PROPERTY, PROPERTIES

SPECIAL: Final = {
    "tags": names.TAGS,
    "keys": names.KEYS,
    "uniqueKey": names.UNIQ_KEY,
    "dedupId": DEDUP_PROPERTY,
}
"""Columns that are single properties."""
MAP: Final = pa.map_(pa.string(), pa.string())
_RESERVED: Final = frozenset({*SPECIAL.values(), *names.RESERVED_NAMES})
_NO_SEPARATORS: Final = bytes(sorted(set(range(256)) - {1, 2}))
_ALTERNATING: Final = b"\x01\x02" * (1 << 14)
_MOST_SHAPES: Final = 1000

_Pick = Callable[[Sequence[bytes]], tuple[bytes | None, ...]]


@attrs.frozen
class _Shape:
    """The shape of a property text.

    Which pieces are the columns (None: it has none), the names of user properties, and
    how to take their values.
    """

    columns: tuple[int | None, ...]
    users: tuple[int, ...]
    user_names: tuple[bytes, ...]
    pick_users: _Pick | None


def _shape(found: Sequence[bytes], columns: Sequence[bytes]) -> _Shape | None:
    """The shape of names, which are every second piece.

    None where the codec has to look.
    """
    if b"" in found or len(set(found)) != len(found):
        return None
    try:
        texts = [name.decode() for name in found]
    except UnicodeDecodeError:
        return None
    users = tuple(2 * at + 1 for at, name in enumerate(texts) if name not in _RESERVED)
    picked = tuple(2 * found.index(name) + 1 if name in found else None for name in columns)
    pick: _Pick | None = None
    if len(users) > 1:
        pick = itemgetter(*users)
    elif users:
        only = users[0]
        pick = lambda pieces: (pieces[only],)  # noqa: E731
    return _Shape(picked, users, tuple(found[at // 2] for at in users), pick)


class PropertyColumns:
    """Makes the columns tags, keys, uniqueKey, dedupId and properties, as wanted."""

    def __init__(self, wanted: Sequence[str]) -> None:
        self._columns = [name for name in SPECIAL if name in wanted]
        self._raw_names = [SPECIAL[name].encode() for name in self._columns]
        self._map = PROPERTIES in wanted
        self._shapes: dict[tuple[bytes, ...], _Shape | None] = {}

    def __bool__(self) -> bool:
        return bool(self._columns) or self._map

    def make(self, texts: pa.Array) -> dict[str, pa.Array]:
        """The columns for the properties of some messages, as records hold them."""
        try:
            result = self._in_step(texts) or self._by_shape(texts.to_pylist())
        except pa.ArrowInvalid:  # bytes that are no UTF-8
            result = None
        if result is None:
            result = self._by_codec(texts.to_pylist())
        if "keys" in result:
            result["keys"] = _split_keys(result["keys"])
        return result

    def _in_step(self, texts: pa.Array) -> dict[str, pa.Array] | None:
        """All columns by Arrow's own loops.

        None unless all texts have the same names in the same order.
        """
        *entries, rest = texts[0].as_py().split(b"\x02")
        found = tuple(entry.partition(b"\x01")[0] for entry in entries)
        shape = None if rest else self._shape_of(found)
        if shape is None:
            return None
        count, width = len(texts), len(found) + 1
        lists = pc.split_pattern(texts, b"\x02")
        lengths = pc.min_max(pc.list_value_length(lists))
        if lengths["min"].as_py() != width or lengths["max"].as_py() != width:
            return None
        pieces = lists.flatten()
        if pc.max(pc.binary_length(pieces.take(every(width, width - 1, count)))).as_py():
            return None
        values: list[pa.Array] = []
        for at, name in enumerate(found):
            entry = pieces.take(every(width, at, count))
            if (
                not pc.all(pc.starts_with(entry, name + b"\x01")).as_py()
                or pc.min(pc.binary_length(entry)).as_py() == len(name) + 1
            ):
                return None
            values.append(tail(entry, len(name) + 1))
        result = {
            name: pa.nulls(count, pa.string()) if at is None else values[at >> 1].cast(pa.string())
            for name, at in zip(self._columns, shape.columns, strict=True)
        }
        if self._map:
            result[PROPERTIES] = _maps(shape, values, count)
        return result

    def _by_shape(self, texts: Sequence[bytes]) -> dict[str, pa.Array] | None:
        columns: list[list[bytes | None]] = [[] for _ in self._columns]
        offsets, keys, values = [0], list[bytes](), list[bytes | None]()
        wanted = [(column.append, number) for number, column in enumerate(columns)]
        last: list[bytes] | None = None
        shape: _Shape | None = None
        for text in texts:
            pieces = text.replace(b"\x01", b"\x02").split(b"\x02")
            separators = text.translate(None, _NO_SEPARATORS)
            if len(separators) & 1 or pieces[-1] or not _ALTERNATING.startswith(separators):
                return None
            found = pieces[:-1:2]
            if found != last:
                last, shape = found, self._shape_of(tuple(found))
            if shape is None:
                return None
            for append, number in wanted:
                at = shape.columns[number]
                append(None if at is None else pieces[at])
            if self._map:
                if shape.pick_users is not None:
                    keys += shape.user_names
                    values += shape.pick_users(pieces)
                offsets.append(len(keys))
        if any(b"" in column for column in (*columns, values)):
            return None
        result = {
            name: pa.array(column, pa.string())
            for name, column in zip(self._columns, columns, strict=True)
        }
        if self._map:
            result[PROPERTIES] = pa.MapArray.from_arrays(
                pa.array(offsets, pa.int32()),
                pa.array(keys, pa.string()),
                pa.array(values, pa.string()),
            )
        return result

    def _shape_of(self, found: tuple[bytes, ...]) -> _Shape | None:
        if found in self._shapes:
            return self._shapes[found]
        if len(self._shapes) >= _MOST_SHAPES:
            self._shapes.clear()
        shape = self._shapes[found] = _shape(found, self._raw_names)
        return shape

    def _by_codec(self, texts: Sequence[bytes]) -> dict[str, pa.Array]:
        decoded = [decode_properties(text.decode("utf-8", "replace")) for text in texts]
        result: dict[str, Any] = {
            name: pa.array([item.get(SPECIAL[name]) for item in decoded], pa.string())
            for name in self._columns
        }
        if self._map:
            users = [
                [pair for pair in item.items() if pair[0] not in _RESERVED] for item in decoded
            ]
            result[PROPERTIES] = pa.array(users, MAP)
        return result


def _maps(shape: _Shape, values: Sequence[pa.Array], count: int) -> pa.Array:
    """The user properties of messages of one shape; `values` are those of all names."""
    users = len(shape.users)
    keys, taken = pa.array([], pa.string()), pa.array([], pa.string())
    if users:
        keys = pa.array(shape.user_names, pa.string()).take(again(users, count))
        taken = (
            pa.concat_arrays([values[at >> 1] for at in shape.users])
            .cast(pa.string())
            .take(in_turn(users, count))
        )
    return pa.MapArray.from_arrays(
        every(users, 0, count + 1) if users else pa.repeat(pa.scalar(0, pa.int32()), count + 1),
        keys,
        taken,
    )


def _split_keys(column: pa.Array) -> pa.Array:
    """Keys without the empty ones that doubled spaces make; null where none is left."""
    lists = pc.split_pattern(column, " ")
    if pc.any(pc.equal(lists.flatten(), "")).as_py():
        texts = [
            [key for key in keys if key] if keys is not None else None for keys in lists.to_pylist()
        ]
        return pa.array([keys or None for keys in texts], pa.list_(pa.string()))
    return lists
