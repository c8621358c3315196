"""Rows become messages, each with its dedup id; what can not become one is named. Spark is not needed here."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Final

from rocketmq_sdk.errors import ConfigurationError, RocketMQError
from rocketmq_sdk.model.message import Message
from rocketmq_sdk.names import check_send_topic
from rocketmq_sdk.spark.schema import DEDUP_PROPERTY

if TYPE_CHECKING:
    import pyarrow as pa

_ARGUMENTS: Final = {"tags": "tags", "keys": "keys", "properties": "properties", "shardingKey": "sharding_key", "flag": "flag"}
_MOST_PROPERTY_BYTES: Final = 32767 - 300
"""What a record has room for, less what producer and broker add."""


class BadRowError(RocketMQError):
    """A row that can not be a message; the text names partition, row and column."""

    def __init__(self, partition: int, row: int, column: str, reason: str) -> None:
        super().__init__(f"row {row} of partition {partition} can not be written, column {column}: {reason}. onBadRow=skip leaves such rows out")
        self.partition, self.row, self.column = partition, row, column


class RowMaker:
    """Makes the messages of one task.

    `scope` is the first part of dedup ids: scope, partition, a hash of the row's content, and which of the task's rows of that content it is, so that
    a task that runs again over the same rows gives the same ids whatever their order. `topic` wins over the column.
    """

    def __init__(self, columns: Sequence[str], *, topic: str | None, scope: str, partition: int, max_body: int, skip_bad: bool) -> None:
        self._columns = columns
        self._topic = topic
        self._start = f"{scope}:{partition}:"
        self._partition = partition
        self._max_body = max_body
        self._skip_bad = skip_bad
        self._seen: defaultdict[bytes, int] = defaultdict(int)
        self._checked: set[str] = set()
        self.rows = 0
        self.skipped = 0
        self.first_skipped: BadRowError | None = None

    def messages(self, batch: "pa.RecordBatch") -> Iterator[Message]:
        """The messages of a batch of rows. Raises `BadRowError`, unless bad rows are skipped and counted."""
        used = [(name, _values(name, batch.column(name))) for name in self._columns if not (name == "topic" and self._topic)]
        for number in range(batch.num_rows):
            row = {name: values[number] for name, values in used}
            try:
                yield self._message(row)
            except BadRowError as error:
                if not self._skip_bad:
                    raise
                self.skipped += 1
                self.first_skipped = self.first_skipped or error
            finally:
                self.rows += 1

    def _message(self, row: dict[str, Any]) -> Message:
        topic, body = self._topic or row.get("topic"), row["body"]
        if body is None:
            raise self._bad("body", "it is null")
        if topic is None:
            raise self._bad("topic", "it is null")
        if type(body) is str:
            body = body.encode()
        if not body:
            raise self._bad("body", "it is empty; brokers do not store empty messages")
        if len(body) > self._max_body:
            raise self._bad("body", f"it has {len(body)} bytes; the limit is {self._max_body}")
        properties = row.get("properties")
        given: dict[str, Any] = {"properties": dict(properties) if properties else {}}
        for column in ("tags", "keys"):
            if row.get(column):
                given[column] = row[column]
        if row.get("shardingKey"):
            given["sharding_key"] = row["shardingKey"]
        if row.get("flag"):
            given["flag"] = row["flag"]
        self._delay(row, given)
        try:
            if topic not in self._checked:
                check_send_topic(topic)
                self._checked.add(topic)
            given["properties"][DEDUP_PROPERTY] = row.get("dedupKey") or self._dedup_id(topic, body, given)
            message = Message(topic, body, **given)
        except (ConfigurationError, TypeError) as error:
            raise self._bad(self._culprit(topic, row), str(error)) from None
        if len(message.property_text()) * 4 > _MOST_PROPERTY_BYTES and len(message.property_text().encode()) > _MOST_PROPERTY_BYTES:
            raise self._bad("properties", f"properties, keys and tags take more than {_MOST_PROPERTY_BYTES} bytes together")
        return message

    def _delay(self, row: dict[str, Any], given: dict[str, Any]) -> None:
        level, moment = row.get("delayLevel"), row.get("deliverAt")
        if level and moment is not None:
            raise self._bad("deliverAt", "delayLevel is set as well; give one of them")
        if level:
            if level < 0:
                raise self._bad("delayLevel", f"it is {level}; levels begin with 1")
            given["delay_level"] = level
        if moment is not None:
            given["deliver_at"] = moment

    def _dedup_id(self, topic: str, body: bytes, given: dict[str, Any]) -> str:
        content = blake2b(body, digest_size=16)
        content.update(repr((topic, sorted(given.items(), key=_name_of))).encode("utf-8", "surrogatepass"))
        digest = content.digest()
        ordinal = self._seen[digest]
        self._seen[digest] = ordinal + 1
        return f"{self._start}{digest.hex()}:{ordinal}"

    def _culprit(self, topic: str, row: dict[str, Any]) -> str:
        """The column because of which a message was refused."""
        try:
            check_send_topic(topic)
        except ConfigurationError:
            return "topic"
        for column, argument in _ARGUMENTS.items():
            if row.get(column):
                value: Any = dict(row[column]) if column == "properties" else row[column]
                try:
                    _try(topic, {argument: value})
                except (ConfigurationError, TypeError):
                    return column
        return "dedupKey" if row.get("dedupKey") else "properties"

    def _bad(self, column: str, reason: str) -> BadRowError:
        return BadRowError(self._partition, self.rows, column, reason)


def _try(topic: str, argument: dict[str, Any]) -> None:
    Message(topic, b"", **argument)


def _values(name: str, column: "pa.Array") -> list[Any]:
    """The values of a column; moments as milliseconds, as not every time zone that a session may have is known to Python."""
    if name != "deliverAt":
        values: list[Any] = column.to_pylist()
        return values
    return [None if moment is None else (moment + 500) // 1000 for moment in column.cast("int64").to_pylist()]


def _name_of(item: tuple[str, Any]) -> str:
    return item[0]
