"""Encodes columns of rows as frames of client batches, all rows at once.

The frames are those of `protocol.batch_codec`. Python looks at a row only to hash it.

Arrow joins constants and columns into the texts and frames that `Message` and the codec
of batches would make one by one. That holds for rows that are plain: nothing in them
that could be refused, no delay, no large body. `odd_rows` finds those that are not, and
rather one too many: they are left to code that looks at one row at a time, knows
all rules and names the column that breaks one.
"""

from __future__ import annotations

import sys
from array import array
from bisect import bisect_right
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Final, TypeAlias

import attrs
import pyarrow as pa
import pyarrow.compute as pc

from rocketmq_sdk.errors import ConfigurationError
from rocketmq_sdk.model.message_arguments import TRIMMED
from rocketmq_sdk.model.properties import RESERVED_NAMES
from rocketmq_sdk.names import RETRY_PREFIX, check_send_topic
from rocketmq_sdk.protocol.batch_codec import FRAME_OVERHEAD
from rocketmq_sdk.spark.schema import DEDUP_PROPERTY
from rocketmq_sdk.spark.write.dedup_ids import DedupIds, content_hash
from rocketmq_sdk.spark.write.places import place_column

MOST_PROPERTY_BYTES: Final = 32767 - 300
"""What a record has room for, less what producer and broker add."""
_ID_ROOM: Final = 40
"""A dedup id after its start: 32 digits, an ordinal."""
_MOST_NAMES: Final = 10_000
_NOT_IN_TAGS: Final = (b"|", b",", b"*")
_TRIMMED: Final = TRIMMED.encode()
_SEPARATORS: Final = (b"\x01", b"\x02")
_ZEROS: Final = bytes(4)
_join = pc.binary_join_element_wise
_Part: TypeAlias = "bytes | pa.Array"


@attrs.frozen
class Frames:
    """Frames of messages of one topic, one after another.

    Frame k lies between `offsets[k]` and `offsets[k + 1]`.

    `sharding` holds the sharding key of each message, and is None when none has one.
    """

    topic: str
    data: memoryview
    offsets: array[int]
    sharding: Sequence[str | None] | None

    def __len__(self) -> int:
        return len(self.offsets) - 1


@attrs.frozen
class PlainRows:
    """Plain rows, with their properties before and after the dedup id."""

    batch: pa.RecordBatch
    own: _Part
    rest: Sequence[_Part]

    def filter(self, mask: pa.BooleanArray) -> PlainRows:
        """Some of the rows."""
        own, *rest = (
            part if isinstance(part, bytes) else part.filter(mask)
            for part in (self.own, *self.rest)
        )
        return PlainRows(self.batch.filter(mask), own, rest)

    def slice(self, begin: int, end: int) -> PlainRows:
        """The rows from one number up to another."""
        own, *rest = (
            part if isinstance(part, bytes) else part.slice(begin, end - begin)
            for part in (self.own, *self.rest)
        )
        return PlainRows(self.batch.slice(begin, end - begin), own, rest)


class _Rows:
    """Marks rows; the result is None as long as there is none."""

    def __init__(self, count: int) -> None:
        self._count = count
        self.mask: pa.BooleanArray | None = None

    def mark(self, mask: pa.BooleanArray) -> None:
        """Mark rows; null counts as marked."""
        found = pc.fill_null(mask, True)
        if pc.any(found).as_py():
            self.mask = found if self.mask is None else pc.or_(self.mask, found)

    def mark_elements(self, lists: pa.ListArray | pa.MapArray, mask: pa.BooleanArray) -> None:
        """Mark the rows of some of the elements that lists share."""
        places = pc.indices_nonzero(pc.fill_null(mask, True)).to_pylist()
        if places:
            offsets = lists.offsets.to_pylist()
            self.mark_numbers({bisect_right(offsets, place) - 1 for place in places})

    def mark_numbers(self, numbers: set[int]) -> None:
        """Mark rows by number; those that are out of range belong to other slices."""
        self.mark(pa.array([number in numbers for number in range(self._count)]))


def _bytes(column: pa.Array) -> bytes:
    """The values of a text or binary column, one after another.

    Includes those of other slices of the same memory.
    """
    buffer = column.buffers()[2]
    return b"" if buffer is None else buffer.to_pybytes()


def _not_utf8(column: pa.Array) -> pa.BooleanArray | None:
    """Where texts are not UTF-8."""
    try:
        column.validate(full=True)
    except pa.ArrowInvalid:
        return pa.array([not _is_utf8(raw) for raw in column.cast(pa.binary()).to_pylist()])
    return None


def _is_utf8(raw: bytes | None) -> bool:
    try:
        (raw or b"").decode()
    except UnicodeDecodeError:
        return False
    return True


def _contains(column: pa.Array, *patterns: bytes) -> pa.BooleanArray | None:
    """Where a column has one of some bytes; None when it has none.

    The usual None takes one look at its memory.
    """
    memory = _bytes(column)
    raw = column.cast(pa.binary())
    mask: pa.BooleanArray | None = None
    for pattern in patterns:
        if pattern in memory:
            found = pc.fill_null(pc.match_substring(raw, pattern), False)
            mask = found if mask is None else pc.or_(mask, found)
    return mask


def _masks_of_text(column: pa.Array, *forbidden: bytes) -> list[pa.BooleanArray]:
    """Where a text is none, or has what it must not have."""
    return [
        mask
        for mask in (_not_utf8(column), _contains(column, *_SEPARATORS, *forbidden))
        if mask is not None
    ]


def _blank(column: pa.Array, masks: Sequence[pa.BooleanArray]) -> pa.BooleanArray:
    """Where a text is only white space.

    Never for texts that its masks mark, which may not be UTF-8.
    """
    for mask in masks:
        column = pc.if_else(mask, pa.scalar("", column.type), column)
    return pc.fill_null(pc.utf8_is_space(column), False)


def _untrimmed(column: pa.Array, masks: Sequence[pa.BooleanArray]) -> pa.BooleanArray | None:
    """Where a text begins or ends with what a subscription cuts off; as `_blank`.

    The usual None takes one look at its memory.
    """
    memory = _bytes(column)
    if len(memory.translate(None, _TRIMMED)) == len(memory):
        return None
    for mask in masks:
        column = pc.if_else(mask, pa.scalar("", column.type), column)
    return pc.fill_null(pc.not_equal(pc.utf8_trim(column, characters=TRIMMED), column), False)


def _big_endian(numbers: pa.Array, code: str) -> pa.Array:
    """Numbers as big-endian binary values; `code` is that of `array`. No nulls."""
    values = array(code)
    size = values.itemsize
    buffer = numbers.buffers()[1]
    values.frombytes(
        buffer.to_pybytes()[numbers.offset * size : (numbers.offset + len(numbers)) * size]
    )
    if sys.byteorder == "little":
        values.byteswap()
    return pa.Array.from_buffers(pa.binary(size), len(numbers), [None, pa.py_buffer(values)]).cast(
        pa.binary()
    )


def _equal_pieces(data: bytes, size: int) -> pa.Array:
    """A binary column of values of one size."""
    count = len(data) // size
    return pa.Array.from_buffers(pa.binary(size), count, [None, pa.py_buffer(data)]).cast(
        pa.binary()
    )


def _offsets(column: pa.Array) -> array[int]:
    """Where the values of a binary column begin, and where the last one ends."""
    offsets = array("i")
    offsets.frombytes(
        column.buffers()[1].to_pybytes()[column.offset * 4 : (column.offset + len(column) + 1) * 4]
    )
    return offsets


def _glue(parts: Sequence[_Part], count: int) -> pa.Array:
    """Parts of each row joined; a null is nothing."""
    merged: list[_Part] = []
    for part in parts:
        if isinstance(part, bytes) and merged and isinstance(merged[-1], bytes):
            merged[-1] += part
        else:
            merged.append(part)
    if all(isinstance(part, bytes) for part in merged):
        return pa.repeat(
            pa.scalar(b"".join(part for part in merged if isinstance(part, bytes)), pa.binary()),
            count,
        )
    return _join(*merged, b"", null_handling="replace", null_replacement=b"")


def _entry(name: bytes, values: pa.Array) -> _Part:
    """A property of each row, nothing where the value is null."""
    if values.null_count == len(values):
        return b""
    return _join(name + b"\x01", values, b"\x02", b"", null_handling="emit_null")


def _without_empty(column: pa.Array) -> pa.Array:
    """A text column as bytes, null instead of empty."""
    raw = column.cast(pa.binary())
    lengths = pc.binary_length(raw)
    if pc.min(lengths).as_py() == 0:
        return pc.if_else(pc.equal(lengths, 0), pa.scalar(None, pa.binary()), raw)
    return raw


class ColumnEncoder:
    """Encodes the plain rows of record batches with some columns of the sink.

    `topic` wins over the column. A plain body has at most `largest` bytes.
    """

    def __init__(self, columns: Sequence[str], *, topic: str | None, largest: int) -> None:
        self._columns = frozenset(columns)
        self._topic = topic
        self._largest = largest
        self._topics: dict[str, bool] = {}
        self._names: dict[bytes, bool] = {}

    # --- what is plain

    def odd_rows(self, batch: pa.RecordBatch) -> pa.BooleanArray | None:
        """The rows that are not plain; None when all are.

        What a row holds decides alone, not its neighbours.
        """
        odd = _Rows(batch.num_rows)
        body = batch.column("body").cast(pa.binary())
        lengths = pc.binary_length(body)
        odd.mark(pc.or_(pc.equal(lengths, 0), pc.greater(lengths, self._largest)))
        if "delayLevel" in self._columns:
            odd.mark(pc.not_equal(pc.fill_null(batch.column("delayLevel"), 0), 0))
        if "deliverAt" in self._columns:
            odd.mark(pc.is_valid(batch.column("deliverAt")))
        if self._topic is None:
            self._mark_topics(odd, batch.column("topic"))
        elif not self._is_plain_topic(self._topic):
            odd.mark(pa.repeat(True, batch.num_rows))
        for name in ("tags", "shardingKey", "dedupKey"):
            if name in self._columns:
                masks = _masks_of_text(
                    batch.column(name), *(_NOT_IN_TAGS if name == "tags" else ())
                )
                for mask in masks:
                    odd.mark(mask)
                if name == "dedupKey":
                    odd.mark(_blank(batch.column(name), masks))
                elif (
                    name == "tags"
                    and (untrimmed := _untrimmed(batch.column(name), masks)) is not None
                ):
                    odd.mark(untrimmed)
        if "keys" in self._columns:
            self._mark_keys(odd, batch.column("keys"))
        if "properties" in self._columns:
            self._mark_properties(odd, batch.column("properties"))
        return odd.mask

    def _mark_topics(self, odd: _Rows, column: pa.Array) -> None:
        if (mask := _not_utf8(column)) is not None:
            odd.mark(mask)
            return
        found = column.dictionary_encode()
        bad = [not self._is_plain_topic(topic) for topic in found.dictionary.to_pylist()]
        if any(bad) or column.null_count:
            odd.mark(pc.take(pa.array(bad, pa.bool_()), found.indices))

    def _is_plain_topic(self, topic: str) -> bool:
        """Whether batches can be sent to a topic."""
        known = self._topics.get(topic)
        if known is None:
            try:
                check_send_topic(topic)
                known = not topic.startswith(RETRY_PREFIX)
            except ConfigurationError:
                known = False
            self._topics[topic] = known
        return known

    def _mark_keys(self, odd: _Rows, column: pa.Array) -> None:
        if pa.types.is_string(column.type):
            for mask in _masks_of_text(column, b" "):
                odd.mark(mask)
            return
        if column.values.null_count:
            odd.mark_elements(column, pc.is_null(column.values))
        for mask in _masks_of_text(column.values, b" "):
            odd.mark_elements(column, mask)

    def _mark_properties(self, odd: _Rows, column: pa.MapArray) -> None:
        names, values = column.keys, column.items
        if values.null_count:
            odd.mark_elements(column, pc.is_null(values))
        masks = _masks_of_text(values)
        for mask in masks:
            odd.mark_elements(column, mask)
        blank = pc.or_(pc.equal(pc.binary_length(values), 0), _blank(values, masks))
        if pc.any(blank).as_py():
            odd.mark_elements(column, pc.fill_null(blank, False))
        found = names.cast(pa.binary()).dictionary_encode()
        bad = [not self._is_plain_name(name) for name in found.dictionary.to_pylist()]
        if any(bad):
            odd.mark_elements(column, pc.take(pa.array(bad, pa.bool_()), found.indices))
        self._mark_repeated(odd, column, found)

    def _is_plain_name(self, name: bytes) -> bool:
        known = self._names.get(name)
        if known is None:
            if len(self._names) >= _MOST_NAMES:
                self._names.clear()
            known = self._names[name] = _is_utf8(name) and _is_plain_name(name.decode())
        return known

    @staticmethod
    def _mark_repeated(odd: _Rows, column: pa.MapArray, names: pa.DictionaryArray) -> None:
        """Mark maps that have a name twice."""
        offsets = column.offsets.to_pylist()
        width = offsets[1] - offsets[0]
        if (
            width
            and len(names.dictionary) == width
            and offsets == list(range(offsets[0], offsets[0] + width * len(column) + 1, width))
        ):
            codes = names.indices.to_pylist()[offsets[0] : offsets[-1]]
            if codes == codes[:width] * len(
                column
            ):  # the same names in each row, as many as there are at all
                return
        codes = names.indices.to_pylist()
        odd.mark_numbers(
            {
                row
                for row, (begin, end) in enumerate(pairwise(offsets))
                if end - begin > 1 and len(set(codes[begin:end])) < end - begin
            }
        )

    # --- encoding

    def plain(self, batch: pa.RecordBatch, start: int) -> tuple[PlainRows, list[int]]:
        """The plain rows of a batch, and the numbers of the others.

        Dedup ids begin with `start` bytes.
        """
        count = batch.num_rows
        texts = self._texts(batch)
        odd = _Rows(count)
        odd.mask = self.odd_rows(batch)
        lengths = pc.binary_length(_glue([texts[0], *texts[1]], count))
        if "dedupKey" in self._columns:
            lengths = pc.add(lengths, pc.fill_null(pc.binary_length(batch.column("dedupKey")), 0))
        odd.mark(
            pc.greater(lengths, MOST_PROPERTY_BYTES - len(DEDUP_PROPERTY) - 2 - start - _ID_ROOM)
        )
        rows = PlainRows(batch, *texts)
        if odd.mask is None:
            return rows, []
        return rows.filter(pc.invert(odd.mask)), pc.indices_nonzero(odd.mask).to_pylist()

    def encode(self, rows: PlainRows, ids: Sequence[str], dedup: DedupIds) -> list[Frames]:
        """The frames of rows, at least one, with a unique id each.

        They are grouped by topic, in the order of the rows.
        """
        batch, count = rows.batch, rows.batch.num_rows
        body = batch.column("body").cast(pa.binary())
        body_lengths = _big_endian(pc.binary_length(body), "i")
        flags = self._flags(batch)
        topics = None if self._topic is not None else batch.column("topic")
        topic: _Part = (self._topic or "").encode() if topics is None else topics.cast(pa.binary())
        places = place_column(batch, topic_is_source=self._topic is not None)
        content = _glue(
            [
                *(() if places is None else (places,)),
                *(body_lengths, body, flags, topic, b"\x02", rows.own, *rows.rest),
            ],
            count,
        )
        dedup_id = self._dedup_ids(batch, content, places, dedup)
        names = _equal_pieces("".join(ids).encode(), len(ids[0]))
        text = _glue(
            [
                b"UNIQ_KEY\x01",
                names,
                b"\x02",
                rows.own,
                f"{DEDUP_PROPERTY}\x01".encode(),
                *dedup_id,
                b"\x02",
                *rows.rest,
            ],
            count,
        )
        text_lengths = pc.binary_length(text)
        total = pc.add(
            pc.add(pc.binary_length(body), text_lengths), pa.scalar(FRAME_OVERHEAD, pa.int32())
        )
        short = _big_endian(text_lengths.cast(pa.int16()), "h")
        frames = _glue(
            [_big_endian(total, "i"), _ZEROS, _ZEROS, flags, body_lengths, body, short, text], count
        )
        sharding = self._sharding(batch)
        if topics is None or len(distinct := pc.unique(topics)) == 1:
            return [_frames(self._topic or distinct[0].as_py(), frames, sharding)]
        found: list[Frames] = []
        for name in distinct:
            mask = pc.equal(topics, name)
            found.append(
                _frames(
                    name.as_py(),
                    frames.filter(mask),
                    None if sharding is None else sharding.filter(mask),
                )
            )
        return found

    def _texts(self, batch: pa.RecordBatch) -> tuple[_Part, list[_Part]]:
        """User properties, before and after the dedup id, in the order of a message."""
        own: _Part = b""
        if "properties" in self._columns:
            column = batch.column("properties")
            entries = _join(
                column.keys.cast(pa.binary()), b"\x01", column.items.cast(pa.binary()), b"\x02", b""
            )
            own = pc.binary_join(pa.ListArray.from_arrays(column.offsets, entries), b"")
            if column.null_count:
                own = pc.if_else(pc.is_null(column), b"", own)
        keys: _Part = b""
        tags: _Part = b""
        sharding: _Part = b""
        if "keys" in self._columns:
            keys = _entry(b"KEYS", self._keys(batch.column("keys")))
        if "tags" in self._columns:
            tags = _entry(b"TAGS", _without_empty(batch.column("tags")))
        if "shardingKey" in self._columns:
            sharding = _entry(b"__SHARDINGKEY", _without_empty(batch.column("shardingKey")))
        return own, [keys, b"WAIT\x01true\x02", tags, sharding]

    @staticmethod
    def _keys(column: pa.Array) -> pa.Array:
        if pa.types.is_string(column.type):
            return _without_empty(column)
        joined = pc.binary_join(column.cast(pa.list_(pa.binary())), b" ")
        lengths = pc.fill_null(pc.list_value_length(column), 0)
        return pc.if_else(pc.equal(lengths, 0), pa.scalar(None, pa.binary()), joined)

    def _flags(self, batch: pa.RecordBatch) -> _Part:
        if "flag" not in self._columns:
            return _ZEROS
        return _big_endian(pc.fill_null(batch.column("flag"), 0), "i")

    def _sharding(self, batch: pa.RecordBatch) -> pa.Array | None:
        if "shardingKey" not in self._columns:
            return None
        keys = _without_empty(batch.column("shardingKey"))
        return None if keys.null_count == len(keys) else keys.cast(pa.string())

    def _dedup_ids(
        self,
        batch: pa.RecordBatch,
        content: pa.Array,
        places: pa.Array | None,
        dedup: DedupIds,
    ) -> list[_Part]:
        """The id of each row, in parts."""
        if "dedupKey" not in self._columns:
            return _made_ids(content, places, dedup)
        given = _without_empty(batch.column("dedupKey"))
        if not given.null_count:
            return [given]
        missing = pc.is_null(given)
        made = _made_ids(
            content.filter(missing), None if places is None else places.filter(missing), dedup
        )
        return [pc.replace_with_mask(given, missing, _glue(made, given.null_count))]


def _made_ids(content: pa.Array, places: pa.Array | None, dedup: DedupIds) -> list[_Part]:
    data, offsets = _bytes(content), _offsets(content)
    hashes = [content_hash(data[begin:end]) for begin, end in pairwise(offsets)]
    ordinals = dedup.ordinals(hashes)
    digits = _equal_pieces(b"".join(hashes).hex().encode(), 32)
    last: _Part = (
        b":0"
        if ordinals is None
        else pa.array([b":%d" % ordinal for ordinal in ordinals], pa.binary())
    )
    return [_starts(places, dedup), digits, last]


def _starts(places: pa.Array | None, dedup: DedupIds) -> _Part:
    """What the ids of rows begin with."""
    plain, placed = dedup.start.encode(), dedup.placed_start.encode()
    if places is None:
        return plain
    if not places.null_count:
        return placed
    return pc.if_else(
        pc.is_null(places), pa.scalar(plain, pa.binary()), pa.scalar(placed, pa.binary())
    )


def _is_plain_name(name: str) -> bool:
    """Whether nothing is to be said against a property's name."""
    return (
        bool(name)
        and not name.isspace()
        and name not in RESERVED_NAMES
        and name != DEDUP_PROPERTY
        and "\x01" not in name
        and "\x02" not in name
    )


def _frames(topic: str, column: pa.Array, sharding: pa.Array | None) -> Frames:
    keys: Any = None if sharding is None else sharding.to_pylist()
    return Frames(topic, memoryview(column.buffers()[2]), _offsets(column), keys)
