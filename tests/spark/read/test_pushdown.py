"""Filters that a read applies itself: with them and without, the rows are the same."""

from __future__ import annotations

import pickle
import random
import sys
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import trio
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import datasource as spark
from pyspark.sql.datasource import DataSourceReader, Filter

from rocketmq_sdk import Admin, Client, EmbeddedBroker, Message, Producer
from rocketmq_sdk.spark.cluster import bridge
from rocketmq_sdk.spark.options.parsing import parse
from rocketmq_sdk.spark.options.table import Use
from rocketmq_sdk.spark.plan.conditions import Conditions, both, span, spans_of
from rocketmq_sdk.spark.read.batch import BatchReader, TaskReader
from rocketmq_sdk.spark.read.edges import batch_ranges
from rocketmq_sdk.spark.read.pulls import joined, pull_ranges
from rocketmq_sdk.spark.read.pushdown import PushingReader, are_pushed, taken
from rocketmq_sdk.spark.schema import BY_NAME
from rocketmq_sdk.spark.source import RocketMQDataSource

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    import pytest
    from trio.testing import MockClock

    from rocketmq_sdk.spark.cluster.access import ClusterAccess
    from rocketmq_sdk.spark.read.pulls import Piece

Row = dict[str, Any]
NAMES = ["topic", "brokerName", "queueId", "queueOffset", "storeTimestamp", "tags"]
TAGS = [None, "A", "B", "Aa", "BB"]  # the last two have the same hash


@asynccontextmanager
async def filled(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[None]:
    """Two topics of three queues with 20 messages each, stored within some hours."""
    lots = random.Random(7)
    async with EmbeddedBroker() as broker, Client(broker) as client:
        async with Producer("filler", client=client) as producer:
            for topic in ("T", "U"):
                await Admin(client=client).topics.create(topic, queues=3)
                for queue in await producer.publish_queues(topic):
                    for number in range(20):
                        tag = lots.choice(TAGS)
                        message = Message(topic, b"%d" % number, tags=tag)
                        await producer.send(message, queue=queue)
                        await trio.sleep(lots.choice([0, 0.001, 1, 200]))

        @asynccontextmanager
        async def lent(_connection: ClusterAccess) -> AsyncIterator[Client]:
            yield client

        monkeypatch.setattr(bridge, "client", lent)
        yield


async def read(conditions: Conditions, **options: str) -> tuple[list[Row], int]:
    """The rows of a batch under conditions, and how many offsets it looks at."""
    settings = parse({"namesrvAddr": "unused:1", "subscribe": "T,U", **options}, Use.BATCH)
    columns = [BY_NAME[name] for name in NAMES]
    reader = TaskReader(settings, columns, conditions)
    decoder, rows = reader.decoder(), list[Row]()

    async def put(pieces: Sequence[Piece]) -> None:
        for piece in joined(pieces):
            for batch in decoder.batches(
                piece.records, piece.queue.broker, begin=piece.begin, end=piece.end
            ):
                rows.extend(batch.to_pylist())

    ranges = await batch_ranges(settings, conditions)
    await pull_ranges(put, reader.plan, ranges)
    assert all(
        one.queue != other.queue or one.end <= other.begin for one, other in pairwise(ranges)
    )
    return sorted(rows, key=repr), sum(map(len, ranges))


def holds(given: Filter, row: Row) -> bool | None:
    """What SQL says: None where a null is looked at."""
    if isinstance(given, spark.Not):
        inner = holds(given.child, row)
        return None if inner is None else not inner
    each: Any = given
    value = row[each.attribute[0]]
    if isinstance(given, spark.IsNotNull):
        return value is not None
    if isinstance(given, spark.IsNull):
        return value is None
    if isinstance(given, spark.EqualNullSafe):
        return bool(value == given.value)
    if isinstance(given, spark.In):
        if value is None or (value not in given.value and None in given.value):
            return None
        return value in given.value
    if value is None or each.value is None:
        return None
    compare: dict[type[Filter], Any] = {
        spark.EqualTo: lambda: value == each.value,
        spark.LessThan: lambda: value < each.value,
        spark.LessThanOrEqual: lambda: value <= each.value,
        spark.GreaterThan: lambda: value > each.value,
        spark.GreaterThanOrEqual: lambda: value >= each.value,
        spark.StringStartsWith: lambda: value.startswith(each.value),
        spark.StringEndsWith: lambda: value.endswith(each.value),
        spark.StringContains: lambda: each.value in value,
    }
    return bool(compare[type(given)]())


COMPARING = (
    spark.EqualTo,
    spark.EqualNullSafe,
    spark.LessThan,
    spark.LessThanOrEqual,
    spark.GreaterThan,
    spark.GreaterThanOrEqual,
)
OF_TEXTS = (spark.StringStartsWith, spark.StringEndsWith, spark.StringContains)


def some_filter(lots: random.Random, rows: Sequence[Row]) -> Filter:
    """A filter as Spark could hand it over, mostly about values that occur."""
    name = lots.choice(NAMES)
    column = (name,)

    def value() -> Any:
        found = lots.choice(rows)[name]
        if name in ("queueId", "queueOffset"):
            return found + lots.choice([-1, 0, 0, 1])
        if name == "storeTimestamp":
            return found + timedelta(microseconds=lots.choice([-100_000_000, -1, 0, 0, 1, 1500]))
        return lots.choice([found, found, "no such", "A|B", " A", ""])

    kind = lots.randrange(6)
    made: Filter
    if kind == 0:
        made = spark.In(column, tuple(value() for _ in range(lots.randrange(5))))
    elif kind == 1:
        made = lots.choice([spark.IsNotNull, spark.IsNull])(column)
    elif kind == 2 and name in ("topic", "brokerName", "tags"):
        made = lots.choice(OF_TEXTS)(column, value() or "x")
    else:
        made = lots.choice(COMPARING)(column, value())
    return spark.Not(made) if lots.random() < 0.15 else made


async def test_random_filters_change_no_row(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    lots, applied, spared = random.Random(5), 0, 0
    async with filled(monkeypatch):
        for options in ({}, {"subExpression": "A || Aa"}, {"startingOffsets": STARTS}):
            whole, total = await read(Conditions(), **options)
            for _ in range(60):
                filters = [some_filter(lots, whole) for _ in range(lots.choice([1, 1, 2, 3]))]
                conditions, left = taken(filters)
                rows, looked_at = await read(conditions, **options)
                found = [row for row in rows if all(holds(each, row) for each in left)]
                wanted = [row for row in whole if all(holds(each, row) for each in filters)]
                assert found == wanted, (options, filters, left)
                assert all(holds(each, row) for each in filters if each not in left for row in rows)
                applied += len(filters) - len(left)
                spared += total - looked_at
    assert applied > 120
    assert spared > 5_000


STARTS = '{"T":{"broker-a":{"0":5,"1":20}}}'


async def test_only_what_can_fit_is_read(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with filled(monkeypatch):
        whole, total = await read(Conditions())
        assert (len(whole), total) == (120, 120)

        async def looked_at(*filters: Filter) -> int:
            conditions, left = taken(filters)
            assert left == []
            return (await read(conditions))[1]

        assert await looked_at(spark.EqualTo(("topic",), "T"), spark.IsNotNull(("topic",))) == 60
        assert await looked_at(spark.In(("queueId",), (0, 2))) == 80
        assert await looked_at(spark.Not(spark.EqualTo(("queueId",), 0))) == 80
        assert await looked_at(spark.GreaterThanOrEqual(("queueOffset",), 15)) == 30
        assert await looked_at(spark.In(("queueOffset",), (3, 4, 11))) == 18
        assert await looked_at(spark.StringStartsWith(("brokerName",), "other")) == 0
        assert await looked_at(spark.EqualTo(("tags",), "A"), spark.EqualTo(("tags",), "B")) == 0
        late = sorted(row["storeTimestamp"] for row in whole)[-5]
        assert await looked_at(spark.GreaterThan(("storeTimestamp",), late)) < 20
        assert await looked_at(spark.LessThan(("storeTimestamp",), late - timedelta(hours=9))) <= 6


def test_what_cannot_be_taken_is_left_to_spark() -> None:
    naive = datetime(2026, 1, 1)
    left: list[Filter] = [
        spark.EqualTo(("properties", "a"), "x"),
        spark.EqualTo(("body",), b"x"),
        spark.GreaterThan(("storeTimestamp",), naive),
        spark.EqualTo(("bornTimestamp",), datetime(2026, 1, 1, tzinfo=UTC)),
        spark.EqualTo(("queueOffset",), None),
        spark.Not(spark.EqualTo(("queueOffset",), 1)),
        spark.Not(spark.EqualTo(("tags",), "A")),
        spark.GreaterThan(("tags",), "A"),
        spark.EqualTo(("tags",), "A|B"),
        spark.EqualTo(("tags",), "*"),
        spark.In(("tags",), tuple(f"tag{number}" for number in range(1000))),
        spark.In(("queueOffset",), tuple(range(1000))),
        spark.In(("queueId",), (1, None)),
        spark.IsNull(("tags",)),
        spark.IsNotNull(("tags",)),
    ]
    assert taken(left) == (Conditions(), left)
    tag: list[Filter] = [spark.EqualTo(("tags",), "A")]
    assert taken(tag, tags=False) == (Conditions(), tag)


def test_a_reader_offers_to_take_filters_only_where_spark_pushes_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Spark refuses one that offers it elsewhere (DATA_SOURCE_PUSHDOWN_DISABLED)."""
    from pyspark.sql.types import StructType

    source = RocketMQDataSource({"namesrvaddr": "unused:1", "subscribe": "T"})
    schema = StructType().add("body", "binary").add("tags", "string")
    assert not are_pushed()
    reader: Any = source.reader(schema)
    assert type(reader) is BatchReader
    assert type(reader).pushFilters is DataSourceReader.pushFilters
    worker = "pyspark.sql.worker.data_source_pushdown_filters"
    monkeypatch.setitem(sys.modules, worker, sys)
    reader = source.reader(schema)
    assert type(reader) is PushingReader
    queue, other = spark.EqualTo(("queueId",), 1), spark.EqualTo(("body",), b"x")
    assert list(reader.pushFilters([queue, other])) == [other]
    assert pickle.loads(pickle.dumps(reader))._conditions == taken([queue])[0]


NUMBERS = st.lists(st.tuples(st.integers(-3, 20), st.integers(-3, 20)), max_size=4)


@given(NUMBERS, st.lists(st.integers(-3, 20), max_size=8))
def test_spans_are_sets_of_offsets(pairs: list[tuple[int, int]], single: list[int]) -> None:
    spans, wanted = spans_of(single), {number for number in single if number >= 0}
    for begin, end in pairs:
        other = span(begin, end)
        spans = both(spans, other)
        assert spans == both(other, spans)
        wanted &= set(range(begin, end))
    assert [number for begin, end in spans for number in range(begin, end)] == sorted(wanted)
    assert all(one[1] < other[0] for one, other in pairwise(spans))
