"""Stored records become Arrow columns, as Spark's Python workers hand them on.

Only the columns that are asked for are made.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from rocketmq_sdk.client.namespace import Namespace
from rocketmq_sdk.model.route import join_address, unpack_host
from rocketmq_sdk.protocol.message_id import create_offset_id
from rocketmq_sdk.spark.property_columns import MAP, SPECIAL, PropertyColumns
from rocketmq_sdk.spark.records import Record, read_records
from rocketmq_sdk.spark.schema import BY_NAME, PROPERTIES, Column

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
"""What Spark 4.2 and later demand, to the letter: not large, not naive, not of other units."""

_QUEUE_ID, _FLAG, _QUEUE_OFFSET, _PHYSICAL, _BORN, _BORN_HOST, _STORED, _STORE_HOST, _TIMES, _BODY, _TOPIC, _TEXT = (
    Record._fields.index(name)
    for name in (
        "queue_id", "flag", "queue_offset", "physical_offset", "born_timestamp", "born_host", "store_timestamp", "store_host", "reconsume_times",
        "body", "topic", "properties",
    )
)  # fmt: skip
"""Places in a record's tuple."""
_Fields = Sequence[Sequence[Any]]


def arrow_schema(columns: Sequence[Column]) -> pa.Schema:
    """The schema of the batches."""
    return pa.schema([pa.field(column.name, TYPES[column.type]) for column in columns])


class RowDecoder:
    """Makes record batches of some columns out of the bodies of pulls.

    `tags` are the only tags to let through, checked exactly, as brokers compare hashes only; None lets all through. Topics are shown without their
    `namespace`.
    """

    def __init__(self, columns: Sequence[Column], tags: frozenset[str] | None = None, *, namespace: str | None = None) -> None:
        self.schema = arrow_schema(columns)
        self._names = [column.name for column in columns]
        self._tags = None if tags is None else pa.array(sorted(tags), pa.string())
        wanted = {*self._names, *(("tags",) if tags is not None else ())}
        self._properties = PropertyColumns(sorted(wanted))
        self._namespace = Namespace(namespace or "")
        self._id_starts: dict[bytes, str] = {}

    def decode(self, data: bytes, broker: str, *, begin: int, end: int, offset_delta: int = 0) -> pa.RecordBatch | None:
        """The rows of the messages in `data` whose queue offsets lie in [begin, end); None when there is none.

        Raises `RemoteProtocolError` for records that can not be read, `CodecMissingError` for a body whose compression is not installed.
        """
        rows = read_records(data, offset_delta=offset_delta)
        if rows and not (begin <= rows[0][_QUEUE_OFFSET] and rows[-1][_QUEUE_OFFSET] < end):  # type: ignore[operator]
            rows = [row for row in rows if begin <= row[_QUEUE_OFFSET] < end]  # type: ignore[operator]
        if not rows:
            return None
        fields: _Fields = list(zip(*rows, strict=True))
        parsed = self._properties.make(fields[_TEXT]) if self._properties else {}
        arrays = [parsed[name] if name in parsed else _MAKERS[name](self, fields, broker) for name in self._names]
        batch = pa.RecordBatch.from_arrays(arrays, schema=self.schema)
        if self._tags is not None:
            batch = batch.filter(pc.is_in(parsed["tags"], value_set=self._tags))
        return batch if batch.num_rows else None

    # --- plain columns

    def _topic(self, fields: _Fields, _broker: str) -> pa.Array:
        return _texts(fields[_TOPIC], lambda raw: self._namespace.unwrap(raw.decode("utf-8", "replace")))

    def _ids(self, fields: _Fields, _broker: str) -> pa.Array:
        starts = self._id_starts
        for host in set(fields[_STORE_HOST]):
            starts[host] = create_offset_id(host, 0)[:-16]
        return pa.array([f"{starts[host]}{at:016X}" for host, at in zip(fields[_STORE_HOST], fields[_PHYSICAL], strict=True)], pa.string())


def _texts(raw: Sequence[bytes], read: Callable[[bytes], str]) -> pa.Array:
    """A column of few different values, each read once."""
    known = {item: read(item) for item in set(raw)}
    if len(known) == 1:
        return pa.repeat(pa.scalar(known[raw[0]], pa.string()), len(raw))
    return pa.array([known[item] for item in raw], pa.string())


def _host(packed: bytes) -> str:
    return join_address(*unpack_host(packed))


def _moments(values: Sequence[int]) -> pa.Array:
    return pc.multiply(pa.array(values, pa.int64()), 1000).view(TIMESTAMP)


_Maker = Callable[[RowDecoder, _Fields, str], pa.Array]
_MAKERS: Final[dict[str, _Maker]] = {
    "topic": RowDecoder._topic,
    "brokerName": lambda _decoder, fields, broker: pa.repeat(pa.scalar(broker, pa.string()), len(fields[0])),
    "queueId": lambda _decoder, fields, _broker: pa.array(fields[_QUEUE_ID], pa.int32()),
    "queueOffset": lambda _decoder, fields, _broker: pa.array(fields[_QUEUE_OFFSET], pa.int64()),
    "messageId": RowDecoder._ids,
    "body": lambda _decoder, fields, _broker: pa.array(fields[_BODY], pa.binary()),
    "flag": lambda _decoder, fields, _broker: pa.array(fields[_FLAG], pa.int32()),
    "bornTimestamp": lambda _decoder, fields, _broker: _moments(fields[_BORN]),
    "storeTimestamp": lambda _decoder, fields, _broker: _moments(fields[_STORED]),
    "bornHost": lambda _decoder, fields, _broker: _texts(fields[_BORN_HOST], _host),
    "storeHost": lambda _decoder, fields, _broker: _texts(fields[_STORE_HOST], _host),
    "reconsumeTimes": lambda _decoder, fields, _broker: pa.array(fields[_TIMES], pa.int32()),
}
assert _MAKERS.keys() | SPECIAL.keys() | {PROPERTIES} == BY_NAME.keys()
