"""Turns rows into messages with dedup ids, and names what cannot become one.

Spark is not needed here.

Plain rows become frames of client batches column by column (`ColumnEncoder`). What is
written here looks at one row at a time: at those that are delayed or large, which
are sent alone, and at those that break a rule. They become a `Message`, which the
producer encodes, compresses and refuses like any other; so only columns are encoded in
this package. Both ways give the same bytes and the same dedup id for a row, which a
property test compares.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import attrs
import pyarrow as pa

from rocketmq_sdk.errors import ConfigurationError, MessageIllegalError, RocketMQError
from rocketmq_sdk.model.message import Message
from rocketmq_sdk.names import check_send_topic
from rocketmq_sdk.spark.schema import DEDUP_PROPERTY
from rocketmq_sdk.spark.write.arrow_types import usual_types
from rocketmq_sdk.spark.write.columns import MOST_PROPERTY_BYTES, ColumnEncoder, Frames
from rocketmq_sdk.spark.write.dedup_ids import DedupIds, content_hash
from rocketmq_sdk.spark.write.places import place_column

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from rocketmq_sdk.spark.write.columns import PlainRows

_ARGUMENTS: Final = {
    "tags": "tags",
    "keys": "keys",
    "properties": "properties",
    "shardingKey": "sharding_key",
    "flag": "flag",
}
_MOST_AT_ONCE: Final = 32 << 20
"""Bytes of rows that are encoded together: a few copies of them are in memory then."""
_PLAIN: Final = 256 * 1024
"""Bytes of the largest body that goes into a batch with others."""


class BadRowError(RocketMQError):
    """A row that cannot be a message.

    The text names partition, row and column, and what became of the other rows once
    that is known.
    """

    def __init__(
        self, partition: int, row: int, column: str, reason: str, outcome: str = ""
    ) -> None:
        text = (
            f"row {row} of partition {partition} cannot be written, column {column}: {reason}. "
            "onBadRow=skip leaves such rows out"
        )
        super().__init__(f"{text}. {outcome}" if outcome else text)
        self.partition, self.row, self.column, self.reason = partition, row, column, reason

    def told(self, outcome: str) -> BadRowError:
        """The same error with what became of the other rows."""
        return BadRowError(self.partition, self.row, self.column, self.reason, outcome)


@attrs.frozen
class LoneRow:
    """A row that is sent in a request of its own, so a refusal is about this row."""

    message: Message
    partition: int
    row: int

    def refused(self, error: MessageIllegalError) -> BadRowError:
        """The error for what a broker refused; it looks at the delay and at sizes."""
        late = self.message.deliver_at_ms is not None and "timer" in (error.remark or "")
        column = "deliverAt" if late else "body"
        return BadRowError(
            self.partition,
            self.row,
            column,
            f"the broker at {error.address} refuses it: {error.remark}",
        )


class RowMaker:
    """Makes what one task sends: frames of many rows, and messages that go alone.

    `topic` wins over the column. `next_ids` makes unique ids. With `alone` no rows are
    sent together. Dedup ids begin with `scope` and `partition`.
    """

    def __init__(
        self,
        columns: Sequence[str],
        *,
        topic: str | None,
        scope: str,
        partition: int,
        max_body: int,
        skip_bad: bool,
        next_ids: Callable[[int], Sequence[str]],
        alone: bool = False,
    ) -> None:
        self._columns = [name for name in columns if not (name == "topic" and topic)]
        self._topic = topic
        self._partition = partition
        self._max_body = max_body
        self._skip_bad = skip_bad
        self._next_ids = next_ids
        self._alone = alone
        # A batch of one row must not be larger than the largest body, properties
        # included.
        self._encoder = ColumnEncoder(
            self._columns,
            topic=topic,
            largest=min(max_body - min(max_body // 2, MOST_PROPERTY_BYTES), _PLAIN),
        )
        self._dedup = DedupIds(scope, partition)
        self._checked: set[str] = set()
        self.rows = 0
        self.skipped = 0
        self.first_skipped: BadRowError | None = None

    def parts(self, batch: pa.RecordBatch) -> Iterator[Frames | LoneRow]:
        """Frames and lone messages of a batch; rows with a sharding key stay in order.

        Raises `BadRowError`, unless bad rows are skipped and counted.
        """
        if batch.num_rows > 1 and batch.nbytes > _MOST_AT_ONCE:
            half = batch.num_rows // 2
            yield from self.parts(batch.slice(0, half))
            yield from self.parts(batch.slice(half))
        elif batch.num_rows:
            yield from self._parts(usual_types(batch))
            self.rows += batch.num_rows

    def _parts(self, batch: pa.RecordBatch) -> Iterator[Frames | LoneRow]:
        if self._alone:
            yield from (
                self._lone(number, message)
                for number, message in self._messages(batch, range(batch.num_rows))
            )
        else:
            plain, odd = self._encoder.plain(batch, len(self._dedup.start))
            messages = list(self._messages(batch, odd))
            yield from self._in_order(plain, odd, messages)

    def _lone(self, number: int, message: Message) -> LoneRow:
        return LoneRow(message, self._partition, self.rows + number)

    def _in_order(
        self, plain: PlainRows, odd: list[int], messages: list[tuple[int, Message]]
    ) -> Iterator[Frames | LoneRow]:
        begin, count = 0, plain.batch.num_rows
        before = {number: passed for passed, number in enumerate(odd)}
        for number, message in messages:
            end = number - before[number]
            if end > begin and message.sharding_key and not is_delayed(message):
                yield from self._frames(plain.slice(begin, end))
                begin = end
            yield self._lone(number, message)
        if count > begin:
            yield from self._frames(plain.slice(begin, count) if begin else plain)

    def _frames(self, rows: PlainRows) -> list[Frames]:
        return self._encoder.encode(rows, self._next_ids(rows.batch.num_rows), self._dedup)

    # --- one row after the other

    def _messages(
        self, batch: pa.RecordBatch, numbers: Sequence[int]
    ) -> Iterator[tuple[int, Message]]:
        """The messages of some rows of a batch, with the numbers of the rows."""
        columns = (
            [(name, _column(name, batch.column(name))) for name in self._columns] if numbers else []
        )
        places = place_column(batch, topic_is_source=self._topic is not None) if numbers else None
        for number in numbers:
            try:
                yield (
                    number,
                    self._message(
                        {name: self._value(name, column, number) for name, column in columns},
                        self.rows + number,
                        None if places is None else places[number].as_py(),
                    ),
                )
            except BadRowError as error:
                if not self._skip_bad:
                    raise
                self.skipped += 1
                self.first_skipped = self.first_skipped or error

    def _value(self, name: str, column: pa.Array, number: int) -> Any:
        try:
            return column[number].as_py()
        except UnicodeDecodeError as error:
            raise BadRowError(
                self._partition, self.rows + number, name, f"it is no UTF-8: {error}"
            ) from None

    def _message(self, row: dict[str, Any], number: int, place: bytes | None) -> Message:
        def bad(column: str, reason: str) -> BadRowError:
            return BadRowError(self._partition, number, column, reason)

        topic, body = self._topic or row.get("topic"), row["body"]
        if body is None:
            raise bad("body", "it is null")
        if topic is None:
            raise bad("topic", "it is null")
        if not body:
            raise bad("body", "it is empty; brokers do not store empty messages")
        if len(body) > self._max_body:
            raise bad("body", f"it has {len(body)} bytes; the limit is {self._max_body}")
        given: dict[str, Any] = {"properties": dict(row.get("properties") or ())}
        for column, argument in _ARGUMENTS.items():
            if row.get(column) and column != "properties":
                given[argument] = row[column]
        level, moment = row.get("delayLevel"), row.get("deliverAt")
        if level and moment is not None:
            raise bad("deliverAt", "delayLevel is set as well; give one of them")
        if level:
            if level < 0:
                raise bad("delayLevel", f"it is {level}; levels begin with 1")
            given["delay_level"] = level
        if moment is not None:
            given["deliver_at"] = moment
        try:
            if topic not in self._checked:
                check_send_topic(topic)
                self._checked.add(topic)
            message = self._with_id(topic, body, given, row.get("dedupKey"), place)
        except (ConfigurationError, TypeError) as error:
            raise bad(self._culprit(topic, row), str(error)) from None
        if len(message.property_text().encode()) > MOST_PROPERTY_BYTES:
            raise bad(
                "properties",
                f"properties, keys and tags take more than {MOST_PROPERTY_BYTES} bytes together",
            )
        return message

    def _with_id(
        self,
        topic: str,
        body: bytes,
        given: dict[str, Any],
        dedup_key: str | None,
        place: bytes | None,
    ) -> Message:
        if not dedup_key:
            content = (place or b"") + content_of(Message(topic, body, **given))
            dedup_key = self._dedup.id_of(content_hash(content), placed=place is not None)
        given["properties"][DEDUP_PROPERTY] = dedup_key
        return Message(topic, body, **given)

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


def is_delayed(message: Message) -> bool:
    """Whether a message is not delivered at once."""
    return message.is_delayed


def content_of(message: Message) -> bytes:
    """What the dedup id of a message is a hash of.

    `ColumnEncoder` makes the same bytes of a plain row.
    """
    body = message.body
    head = len(body).to_bytes(4, "big") + body + message.flag.to_bytes(4, "big", signed=True)
    return head + f"{message.topic}\x02{message.property_text()}".encode()


def _try(topic: str, argument: dict[str, Any]) -> None:
    Message(topic, b"", **argument)


def _column(name: str, column: pa.Array) -> pa.Array:
    """A column as messages take it.

    Text becomes bytes; moments become milliseconds, because Python does not know every
    time zone that a session may have.
    """
    if name == "body":
        return column.cast(pa.binary())
    if name != "deliverAt":
        return column
    return pa.array(
        [
            None if moment is None else (moment + 500) // 1000
            for moment in column.cast("int64").to_pylist()
        ],
        pa.int64(),
    )
