"""Streams through Spark: batches, limits, restarts, topics that come and go."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest
import trio
from pyspark.errors import StreamingQueryException
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from rocketmq_sdk import Admin
from rocketmq_sdk.spark import LagListener, lag
from rocketmq_sdk.spark.options.parsing import parse
from rocketmq_sdk.spark.options.table import Use
from rocketmq_sdk.spark.read.stream import StreamReader
from support import waiting
from support.waiting import unique

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession
    from pyspark.sql.streaming import StreamingQuery

    from support.processes import BrokerProcess

pytestmark = [pytest.mark.real_time, pytest.mark.slow, pytest.mark.timeout(300)]
Fill = Callable[..., None]
PATIENCE = 200


class Streamed:
    """A query from a topic to Parquet files, on one checkpoint; may be started again
    and again.
    """

    def __init__(self, spark: SparkSession, namesrv: str, directory: Path) -> None:
        self.spark, self.namesrv, self.directory = spark, namesrv, directory
        self.query: StreamingQuery | None = None

    def start(
        self, *, available_now: bool = False, once: bool = False, **options: Any
    ) -> StreamingQuery:
        reader = (
            self.spark.readStream.format("rocketmq")
            .option("namesrvAddr", self.namesrv)
            .options(**options)
        )
        writer = (
            reader.load()
            .writeStream.format("parquet")
            .option("checkpointLocation", str(self.directory / "checkpoint"))
        )
        trigger: Any = {"availableNow": True} if available_now else {"processingTime": "0 seconds"}
        if once:
            trigger = {"once": True}
        self.query = writer.option("path", str(self.directory / "out")).trigger(**trigger).start()
        return self.query

    def run(self, **options: Any) -> list[int]:
        """Read all there is; how many rows the batches had."""
        query = self.start(available_now=True, **options)
        assert query.awaitTermination(PATIENCE), "the query goes on"
        return [progress["numInputRows"] for progress in query.recentProgress]

    def bodies(self) -> list[bytes]:
        """What was written, doubles included."""
        return sorted(
            bytes(row.body)
            for row in self.spark.read.schema("body BINARY")
            .parquet(str(self.directory / "out"))
            .collect()
        )

    def ends(self) -> list[dict[str, Any]]:
        """The offsets that Spark has written down, batch by batch."""
        files = sorted(
            (self.directory / "checkpoint" / "offsets").glob("[0-9]*"),
            key=lambda path: int(path.name),
        )
        return [json.loads(path.read_text().splitlines()[-1]) for path in files]


@pytest.fixture
def streamed(spark: SparkSession, broker: BrokerProcess, tmp_path: Path) -> Iterator[Streamed]:
    made = Streamed(spark, broker.namesrv, tmp_path)
    yield made
    if made.query is not None and made.query.isActive:
        made.query.stop()


def until(condition: Callable[[], bool], query: StreamingQuery) -> None:
    """Poll; a query that failed says why."""

    def holds() -> bool:
        if not query.isActive and query.exception() is not None:
            raise AssertionError(str(query.exception()))
        return condition()

    trio.run(waiting.until, holds, PATIENCE, 0.1)


def numbers(begin: int, end: int) -> list[bytes]:
    return [b"%05d" % number for number in range(begin, end)]


def test_a_checkpoint_wins_over_starting_offsets(
    streamed: Streamed, fill: Fill, topic: str
) -> None:
    """And what is there is read whole under a limit, nothing where there is nothing
    new, and offsets that a later release wrote are refused.
    """
    fill(topic, numbers(0, 1000))
    rows = streamed.run(subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger=400)
    assert [count for count in rows if count] == [400, 400, 200]
    assert streamed.run(subscribe=topic) in ([], [0])
    fill(topic, numbers(1000, 1250))
    streamed.run(subscribe=topic, startingOffsets="latest")
    assert streamed.bodies() == numbers(0, 1250)
    last = max(
        (streamed.directory / "checkpoint" / "offsets").glob("[0-9]*"),
        key=lambda path: int(path.name),
    )
    lines = last.read_text().splitlines()
    last.write_text("\n".join([*lines[:-1], lines[-1].replace('"v": 1', '"v": 2')]))
    (last.parent / f".{last.name}.crc").unlink(missing_ok=True)
    with pytest.raises(
        StreamingQueryException, match="have version 2; this release reads version 1"
    ):
        streamed.run(subscribe=topic)


def test_latest_is_written_down_before_anything_is_read(
    streamed: Streamed, fill: Fill, topic: str
) -> None:
    """Were the first batch to be planned again, latest would be later by then."""
    fill(topic, numbers(0, 40))
    query = streamed.start(subscribe=topic)
    # Stopped in the middle of a batch, Spark leaves now this behind and now that.
    commits = streamed.directory / "checkpoint" / "commits"
    until((commits / "0").exists, query)
    query.stop()
    first = streamed.ends()[0]
    assert sum(first["t"][topic]["broker-a"].values()) == 40
    for name in ("0", ".0.crc"):
        (commits / name).unlink()
    fill(topic, numbers(40, 70))
    streamed.run(subscribe=topic)
    assert streamed.bodies() == numbers(40, 70)


def test_equal_offsets_make_no_batch(streamed: Streamed, fill: Fill, topic: str) -> None:
    fill(topic, numbers(0, 10))
    query = streamed.start(subscribe=topic, startingOffsets="earliest")
    until(lambda: sum(item["numInputRows"] for item in query.recentProgress) == 10, query)
    batches = len(streamed.ends())
    until(lambda: query.status["message"] == "Waiting for data to arrive", query)
    assert len(streamed.ends()) == batches
    fill(topic, numbers(10, 15))
    until(lambda: sum(item["numInputRows"] for item in query.recentProgress) == 15, query)
    assert len(streamed.ends()) == batches + 1
    texts = (streamed.directory / "checkpoint" / "offsets" / "0").read_text().splitlines()
    assert texts[-1] == json.dumps(json.loads(texts[-1]))


def test_a_restart_plans_an_unfinished_batch_alike(
    streamed: Streamed, fill: Fill, topic: str
) -> None:
    fill(topic, numbers(0, 200))
    streamed.run(subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger=120)
    planned = streamed.ends()
    last = len(planned) - 1
    for directory in (
        streamed.directory / "checkpoint" / "commits",
        streamed.directory / "out" / "_spark_metadata",
    ):
        for name in (str(last), f".{last}.crc"):
            (directory / name).unlink()
    fill(topic, numbers(200, 300))
    streamed.run(subscribe=topic)
    assert streamed.ends()[: last + 1] == planned
    assert streamed.bodies() == numbers(0, 300)


def test_a_new_topic_of_a_pattern_begins_at_its_first_message(
    streamed: Streamed, fill: Fill
) -> None:
    start = unique("coming")
    fill(f"{start}-1", numbers(0, 10))
    streamed.run(subscribePattern=f"{start}-.*", startingOffsets="earliest")
    fill(f"{start}-2", numbers(10, 25))
    streamed.run(subscribePattern=f"{start}-.*", startingOffsets="latest")
    assert streamed.bodies() == numbers(0, 25)


def test_a_topic_that_is_no_longer_subscribed_to_is_forgotten(
    streamed: Streamed, fill: Fill
) -> None:
    first, second = unique("kept"), unique("left")
    fill(first, numbers(0, 10))
    fill(second, numbers(10, 20))
    streamed.run(subscribe=f"{first},{second}", startingOffsets="earliest")
    fill(second, numbers(20, 30))
    fill(first, numbers(30, 40))
    streamed.run(subscribe=first)
    assert streamed.bodies() == numbers(0, 20) + numbers(30, 40)
    assert list(streamed.ends()[-1]["t"]) == [first]


def test_a_topic_that_was_deleted(
    streamed: Streamed, fill: Fill, broker: BrokerProcess, topic: str
) -> None:
    other = unique("other")
    fill(other, numbers(0, 5))
    fill(topic, numbers(5, 10))
    streamed.run(subscribe=f"{topic},{other}", startingOffsets="earliest")

    async def delete() -> None:
        async with Admin(namesrv=broker.namesrv) as admin:
            await admin.topics.delete(topic)

    trio.run(delete)
    fill(other, numbers(10, 15))
    with pytest.raises(
        StreamingQueryException,
        match=f"the queue {topic}/broker-a/. should be read up to offset .*failOnDataLoss=false",
    ):
        streamed.run(subscribe=f"{topic},{other}")
    streamed.run(subscribe=f"{topic},{other}", failOnDataLoss="false")
    assert streamed.bodies() == numbers(0, 15)


def test_offsets_at_the_broker_follow_and_are_never_read(
    streamed: Streamed, fill: Fill, broker: BrokerProcess, topic: str
) -> None:
    group = unique("shown")
    fill(topic, numbers(0, 60))
    options: dict[str, Any] = {
        "subscribe": topic,
        "consumerGroup": group,
        "commitOffsetsToBroker": "true",
        "maxOffsetsPerTrigger": 30,
    }
    streamed.run(startingOffsets="earliest", **options)
    fill(topic, numbers(60, 61))
    streamed.run(**options)

    async def committed() -> int:
        async with Admin(namesrv=broker.namesrv) as admin:
            progress = await admin.groups.progress(group)
            return sum(each.consumer_offset for each in progress.queues.values())

    assert trio.run(committed) >= 60
    assert streamed.bodies() == numbers(0, 61)


def test_lag_of_a_query(streamed: Streamed, fill: Fill, spark: SparkSession, topic: str) -> None:
    listener = LagListener()
    spark.streams.addListener(listener)
    try:
        fill(topic, numbers(0, 100))
        query = streamed.start(subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger=60)
        until(lambda: sum(item["numInputRows"] for item in query.recentProgress) == 100, query)
        first = next(item for item in query.recentProgress if item["numInputRows"] == 60)
        assert lag(first).total == 40
        assert sum(lag(first).queues.values()) == 40
        until(
            lambda: str(query.id) in listener.lags and listener.lags[str(query.id)].total == 0,
            query,
        )
    finally:
        spark.streams.removeListener(listener)


def test_the_trigger_once_reads_everything(streamed: Streamed, fill: Fill, topic: str) -> None:
    """It is known by the limit that Spark does not hand back."""
    fill(topic, [b"%d" % number for number in range(50)])
    options: dict[str, Any] = {"subscribe": topic, "startingOffsets": "earliest"}
    options |= {"startingTimestamp": "1", "startingOffsetsByTimestampStrategy": "latest"}
    query = streamed.start(once=True, maxOffsetsPerTrigger=6, **options)
    assert query.awaitTermination(PATIENCE)
    assert len(streamed.bodies()) == 50, "a beginning by time is not recorded by an empty batch"
    (end,) = streamed.ends()
    assert set(end) == {"b", "n", "t", "v"}
    given = {"namesrvAddr": streamed.namesrv, "subscribe": topic}
    for limits in ({"minOffsetsPerTrigger": "1000"}, {"maxOffsetsPerTrigger": "6"}, {}):
        reader = StreamReader(parse({**given, **limits}, Use.STREAM), (), default_tasks=1)
        assert type(reader.getDefaultReadLimit()) is ReadMaxRows
    start = reader.initialOffset()
    limited = StreamReader(
        parse({**given, "minOffsetsPerTrigger": "1000", **options}, Use.STREAM), (), default_tasks=1
    )
    earliest = limited.initialOffset()
    assert start != earliest
    assert limited.latestOffset(earliest, limited.getDefaultReadLimit()) == earliest
    assert limited.latestOffset(earliest, ReadAllAvailable())["t"] == start["t"]


def test_a_batch_planned_again_has_the_tasks_that_are_written_down(
    streamed: Streamed, fill: Fill, topic: str
) -> None:
    """Whatever the session's parallelism and the options are then: ids of rows that
    have no place name the partition.
    """
    fill(topic, [b"%d" % number for number in range(50)])
    options = {"subscribe": topic, "startingOffsets": "earliest"}
    streamed.run(numPartitions=5, **options)
    (end,) = streamed.ends()
    assert end["n"] == 5
    given = {"namesrvAddr": streamed.namesrv, "subscribe": topic, "numPartitions": "2"}
    reader = StreamReader(parse(given, Use.STREAM), (), default_tasks=1)
    brokers = end["t"][topic].items()
    start = {"t": {topic: {name: dict.fromkeys(queues, 0) for name, queues in brokers}}, "v": 1}
    assert len(reader.partitions(start, end)) == 5
    del end["n"]
    assert len(reader.partitions(start, end)) == 2
