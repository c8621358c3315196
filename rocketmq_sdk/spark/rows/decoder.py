"""Stored records become Arrow columns, as Spark's Python workers hand them on.

Only the columns that are asked for are made.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc

from rocketmq_sdk.client.namespace import Namespace
from rocketmq_sdk.model.route import join_address, unpack_host
from rocketmq_sdk.spark.plan.conditions import Times
from rocketmq_sdk.spark.plan.loss import DamagedBodyError
from rocketmq_sdk.spark.plan.offsets import QueueKey
from rocketmq_sdk.spark.rows.fields import Fields, all_equal, read_fields
from rocketmq_sdk.spark.rows.properties import MAP, SPECIAL, PropertyColumns
from rocketmq_sdk.spark.schema import BY_NAME, PROPERTIES, Column

if TYPE_CHECKING:
    from array import array

    from rocketmq_sdk.errors import RemoteProtocolError

logger = logging.getLogger("rocketmq_sdk.spark")
TIMESTAMP: Final = pa.timestamp("us", tz="UTC")
TYPES: Final[dict[str, pa.DataType]] = {
    "STRING": pa.string(),
    "INT": pa.int32(),
    "BIGINT": pa.int64(),
    "BINARY": pa.binary(),
    "TIMESTAMP": TIMESTAMP,
    "ARRAY<STRING>": pa.list_(pa.string()),
    "MAP<STRING,STRING>": MAP,
}
"""The Arrow types that Spark 4.2 and later demand.

Not large, not naive, not of other units.
"""
AT_ONCE: Final = 8 << 20
"""Bytes of inflated bodies in one batch, more only where a single one is larger."""
_BODY: Final = "body"
_ALWAYS: Final = Times()
_NOTHING: Final = pa.scalar(b"", pa.binary())


def arrow_schema(columns: Sequence[Column]) -> pa.Schema:
    """The schema of the batches."""
    return pa.schema([pa.field(column.name, TYPES[column.type]) for column in columns])


class RowDecoder:
    """Makes record batches of some columns out of the bodies of pulls.

    `tags` are the only tags to let through, checked exactly, as brokers compare hashes
    only; None lets all through. `times` are the store times to let through. Topics are
    shown without their `namespace`. Bodies that cannot be inflated are null and told in
    a warning if `bears_damage`. `meant` is how many messages of the data that was
    looked at last lie in its range, whether they were let through or not.
    """

    def __init__(
        self,
        columns: Sequence[Column],
        tags: frozenset[str] | None = None,
        *,
        times: Times = _ALWAYS,
        namespace: str | None = None,
        bears_damage: bool = False,
    ) -> None:
        self.schema = arrow_schema(columns)
        self._names = [column.name for column in columns]
        self._tags = None if tags is None else pa.array(sorted(tags), pa.string())
        wanted = {*self._names, *(("tags",) if tags is not None else ())}
        self._properties = PropertyColumns(sorted(wanted))
        self._times = times
        self._namespace = Namespace(namespace or "")
        self._bears_damage = bears_damage
        self.meant = 0

    def batches(
        self,
        data: bytes,
        broker: str,
        *,
        begin: int,
        end: int,
        offset_delta: int = 0,
        starts: array[int] | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """The rows of the messages in `data` whose queue offsets lie in [begin, end).

        `starts` are the `record_starts` of `data`, where they are known already.
        Several batches where bodies inflate to more than `AT_ONCE`; none where there is
        no row.

        Raises `RemoteProtocolError` for records that cannot be read, `DamagedBodyError`
        for a body that cannot be, `CodecMissingError` for one whose compression is not
        installed.
        """
        self.meant = 0
        fields = read_fields(data, offset_delta=offset_delta, starts=starts)
        if fields is None:
            return
        meant = _within(fields.numbers("queue_offset"), begin, end)
        self.meant = fields.count if meant is None else pc.sum(meant).as_py()
        parsed = self._properties.make(fields.octets("properties")) if self._properties else {}
        if self._tags is not None:
            meant = _and(meant, pc.is_in(parsed["tags"], value_set=self._tags))
        if self._times:
            stored = fields.numbers("store_timestamp")
            if self._times.least is not None:
                meant = _and(meant, pc.greater_equal(stored, self._times.least))
            if self._times.before is not None:
                meant = _and(meant, pc.less(stored, self._times.before))
        if meant is not None and not pc.any(meant).as_py():
            return
        arrays = {
            name: parsed[name] if name in parsed else _MAKERS[name](self, fields, broker)
            for name in self._names
            if name != _BODY
        }
        at = 0
        for body in self._bodies(fields, broker, meant) if _BODY in self._names else [None]:
            count = fields.count if body is None else len(body)
            part = [
                body if name == _BODY else arrays[name].slice(at, count) for name in self._names
            ]
            batch = pa.RecordBatch.from_arrays(part, schema=self.schema)
            if meant is not None:
                batch = batch.filter(meant.slice(at, count))
            at += count
            if batch.num_rows:
                yield batch

    def decode(
        self, data: bytes, broker: str, *, begin: int, end: int, offset_delta: int = 0
    ) -> pa.RecordBatch | None:
        """`batches` as one, whatever its size; None without a row."""
        found = list(self.batches(data, broker, begin=begin, end=end, offset_delta=offset_delta))
        return pa.concat_batches(found) if found else None

    def _bodies(self, fields: Fields, broker: str, meant: pa.Array | None) -> Iterator[pa.Array]:
        def damaged(number: int, error: RemoteProtocolError) -> None:
            if meant is not None and not meant[number].as_py():
                return
            topic = self._topic(fields, broker)[number].as_py()
            queue = QueueKey(topic, broker, fields.numbers("queue_id")[number].as_py())
            offset = fields.numbers("queue_offset")[number].as_py()
            told = DamagedBodyError(queue, offset, error)
            if not self._bears_damage:
                raise told from error
            logger.warning("failOnDataLoss is false: %s", told)

        return fields.bodies(AT_ONCE, damaged)

    # --- plain columns

    def _topic(self, fields: Fields, _broker: str) -> pa.Array:
        return _texts(
            fields.octets("topic"),
            lambda raw: self._namespace.unwrap(raw.decode("utf-8", "replace")),
        )


def _ids(fields: Fields) -> pa.Array:
    """Offset ids: store host and physical offset as hexadecimal digits.

    The same as `create_offset_id`.
    """
    hosts, offsets = fields.octets("store_host"), fields.octets("physical_offset")
    raw = pc.binary_join_element_wise(hosts, offsets, _NOTHING)
    ends = pa.Array.from_buffers(pa.int32(), fields.count + 1, [None, raw.buffers()[1]])
    digits = raw.buffers()[2].to_pybytes().hex().upper().encode()
    return pa.Array.from_buffers(
        pa.string(), fields.count, [None, pc.add(ends, ends).buffers()[1], pa.py_buffer(digits)]
    )


def _within(offsets: pa.Array, begin: int, end: int) -> pa.Array | None:
    """Which offsets lie in [begin, end); None when all do."""
    if begin <= offsets[0].as_py() and offsets[-1].as_py() < end:
        return None
    return pc.and_(pc.greater_equal(offsets, begin), pc.less(offsets, end))


def _and(one: pa.Array | None, other: pa.Array) -> pa.Array:
    return other if one is None else pc.and_(one, other)


def _texts(raw: pa.Array, read: Callable[[bytes], str]) -> pa.Array:
    """A column of few different values, each read once."""
    only = all_equal(raw)
    if only is not None:
        return pa.repeat(pa.scalar(read(only), pa.string()), len(raw))
    coded = raw.dictionary_encode()
    known = pa.array([read(item) for item in coded.dictionary.to_pylist()], pa.string())
    return known.take(coded.indices)


def _host(packed: bytes) -> str:
    return join_address(*unpack_host(packed))


def _moments(values: pa.Array) -> pa.Array:
    return pc.multiply(values, 1000).view(TIMESTAMP)


_Maker = Callable[[RowDecoder, Fields, str], pa.Array]
_MAKERS: Final[dict[str, _Maker]] = {
    "topic": RowDecoder._topic,
    "brokerName": lambda _decoder, fields, broker: pa.repeat(
        pa.scalar(broker, pa.string()), fields.count
    ),
    "queueId": lambda _decoder, fields, _broker: fields.numbers("queue_id"),
    "queueOffset": lambda _decoder, fields, _broker: fields.numbers("queue_offset"),
    "messageId": lambda _decoder, fields, _broker: _ids(fields),
    "flag": lambda _decoder, fields, _broker: fields.numbers("flag"),
    "bornTimestamp": lambda _decoder, fields, _broker: _moments(fields.numbers("born_timestamp")),
    "storeTimestamp": lambda _decoder, fields, _broker: _moments(fields.numbers("store_timestamp")),
    "bornHost": lambda _decoder, fields, _broker: _texts(fields.octets("born_host"), _host),
    "storeHost": lambda _decoder, fields, _broker: _texts(fields.octets("store_host"), _host),
    "reconsumeTimes": lambda _decoder, fields, _broker: fields.numbers("reconsume_times"),
}
assert _MAKERS.keys() | SPECIAL.keys() | {PROPERTIES, _BODY} == BY_NAME.keys()
