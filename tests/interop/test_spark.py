"""Spark on Apache's name server and broker: topics written by Java are read by
Spark and the reverse, batches and streams.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest
import trio
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from rocketmq_sdk.spark import deduplicated, lag, local_session
from support import java
from support.waiting import unique

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame

pytestmark = [pytest.mark.slow]
Read = Callable[..., "DataFrame"]
Write = Callable[..., None]


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    """The session that runs already, else one for this module."""
    running = SparkSession.getActiveSession()
    jvm = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
    settings: dict[str, Any] = {
        "spark__sql__shuffle__partitions": 1,
        "spark__driver__memory": "768m",
        "spark__driver__extraJavaOptions": jvm,
    }
    session = running or local_session("2,3", **settings)
    session.sparkContext.setLogLevel("OFF")
    yield session
    if running is None:
        session.stop()


@pytest.fixture
def read(spark: SparkSession, apache: java.ApacheCluster) -> Read:
    """A batch of a topic at Apache's broker."""

    def load(topic: str, **options: Any) -> DataFrame:
        trio.run(java.dispatched, apache)
        return (
            spark.read.format("rocketmq")
            .options(namesrvAddr=apache.namesrv, subscribe=topic, **options)
            .load()
        )

    return load


@pytest.fixture
def write(apache: java.ApacheCluster) -> Write:
    """Append a frame to a topic at Apache's broker."""

    def save(df: DataFrame, topic: str, **options: Any) -> None:
        df.write.format("rocketmq").options(
            namesrvAddr=apache.namesrv, topic=topic, **options
        ).mode("append").save()

    return save


@pytest.fixture
def producer(json_driver: java.Driver, apache: java.ApacheCluster) -> Iterator[str]:
    """The id of a producer in Java."""
    name = unique("p")
    json_driver.perform(
        {"do": "producer", "id": name, "group": unique("pg"), "namesrv": apache.namesrv}
    )
    yield name
    json_driver.perform({"do": "stop", "id": name})


def sent_by_java(
    driver: java.Driver, producer: str, topic: str, body: str, **fields: Any
) -> dict[str, Any]:
    """Send one message; where it went."""
    answer: dict[str, Any] = driver.perform(
        {"do": "send", "id": producer, "topic": topic, "body": body, **fields}
    )
    return answer


def consumed_by_java(
    driver: java.Driver, namesrv: str, topic: str, count: int
) -> list[dict[str, Any]]:
    """What a push consumer in Java gets, until it has so many."""
    name = unique("c")
    driver.perform(
        {"do": "consumer", "id": name, "group": unique("cg"), "topic": topic, "namesrv": namesrv}
    )
    deadline = time.monotonic() + 200
    while driver.perform({"do": "count", "id": name}) < count and time.monotonic() < deadline:
        time.sleep(0.1)
    messages: list[dict[str, Any]] = driver.perform({"do": "received", "id": name})
    driver.perform({"do": "stop", "id": name})
    return messages


def test_all_columns_of_messages_of_java(
    json_driver: java.Driver, producer: str, read: Read
) -> None:
    topic = unique("spark")
    first = sent_by_java(
        json_driver,
        producer,
        topic,
        "sync ü€😀",
        tags="a",
        keys="k1 k2",
        properties={"color": "rød"},
        flag=7,
    )
    batch = [{"topic": topic, "body": f"batch{number}", "tags": "b"} for number in range(5)]
    json_driver.perform({"do": "send", "id": producer, "how": "batch", "messages": batch})
    big = "compressed " * 2000
    sent_by_java(json_driver, producer, topic, big)
    sent_by_java(
        json_driver, producer, topic, "queue", how="queue", broker=first["broker"], queue_id=2
    )
    rows = {bytes(row.body).decode(): row for row in read(topic).collect()}
    assert rows.keys() == {"sync ü€😀", "queue", big, *(f"batch{number}" for number in range(5))}
    row = rows["sync ü€😀"]
    assert (row.tags, row["keys"], row.properties, row.flag) == (
        "a",
        ["k1", "k2"],
        {"color": "rød"},
        7,
    )
    assert (row.topic, row.brokerName, row.queueId, row.queueOffset) == (
        topic,
        first["broker"],
        first["queueId"],
        first["queueOffset"],
    )
    assert (row.messageId, row.uniqueKey) == (first["offsetMsgId"], first["msgId"])
    assert abs(row.storeTimestamp.astimezone(UTC).timestamp() - time.time()) < 250
    assert row.dedupId is None
    assert (rows["queue"].queueId, rows["batch3"].tags) == (2, "b")


def test_filters_run_at_apaches_broker(json_driver: java.Driver, producer: str, read: Read) -> None:
    topic = unique("spark")
    for number in range(12):
        tag = ("red", "green", "blue")[number % 3]
        sent_by_java(
            json_driver, producer, topic, str(number), tags=tag, properties={"number": str(number)}
        )

    def numbers(**options: Any) -> list[int]:
        return sorted(int(bytes(row.body)) for row in read(topic, **options).collect())

    assert numbers(subExpression="red || blue") == [
        number for number in range(12) if number % 3 != 1
    ]
    assert numbers(subExpression="number > 8 AND TAGS = 'red'", filterType="sql92") == [9]
    with pytest.raises(AnalysisException, match=r"broker-a"):
        numbers(subExpression="number >", filterType="sql92")


def test_offsets_and_moments(json_driver: java.Driver, producer: str, read: Read) -> None:
    topic = unique("spark")
    places = [
        sent_by_java(json_driver, producer, topic, str(number), how="selector", key="one queue")
        for number in range(6)
    ]
    queue, broker, base = places[0]["queueId"], places[0]["broker"], places[0]["queueOffset"]
    begin = f'{{"{topic}":{{"{broker}":{{"{queue}":{base + 2}}}}}}}'
    end = f'{{"{topic}":{{"{broker}":{{"{queue}":{base + 4}}}}}}}'
    assert sorted(
        bytes(row.body) for row in read(topic, startingOffsets=begin, endingOffsets=end).collect()
    ) == [b"2", b"3"]
    stored = {bytes(row.body): row.storeTimestamp for row in read(topic).collect()}
    moment = round(stored[b"3"].astimezone(UTC).timestamp() * 1000)
    late = {
        body
        for body, at in stored.items()
        if round(at.astimezone(UTC).timestamp() * 1000) >= moment
    }
    from_then = read(topic, startingTimestamp=moment, startingOffsetsByTimestampStrategy="latest")
    assert {bytes(row.body) for row in from_then.collect()} == late
    with pytest.raises(
        AnalysisException,
        match=rf"{topic}/{broker}/\d has no message stored at or after {moment + 600_000}",
    ):
        read(topic, startingTimestamp=moment + 600_000).collect()


def test_rows_reach_a_java_consumer(
    spark: SparkSession, json_driver: java.Driver, apache: java.ApacheCluster, write: Write
) -> None:
    topic = unique("spark")
    rows = [
        ("zwei ü", "A", ["k1", "k2"], {"color": "rød"}, 7, None),
        ("late", None, None, None, None, 1),
    ]
    schema = (
        "body string, tags string, keys array<string>, properties map<string,string>, flag int, "
        "delayLevel int"
    )
    write(spark.createDataFrame(rows, schema).coalesce(1), topic)
    plain = spark.range(0, 3000, 1, 2).select(
        f.col("id").cast("string").alias("body"),
        (f.col("id") % 5).cast("string").alias("shardingKey"),
    )
    write(plain.where("id % 2 = 0").drop("shardingKey"), topic)
    write(plain.where("id % 2 = 1"), topic, batchSize=50)
    messages = consumed_by_java(json_driver, apache.namesrv, topic, 3002)
    assert sorted(message["body"] for message in messages) == sorted(
        ["zwei ü", "late", *map(str, range(3000))]
    )
    first = next(message for message in messages if message["body"] == "zwei ü")
    assert (first["tags"], first["keys"], first["flag"], first["properties"]["color"]) == (
        "A",
        "k1 k2",
        7,
        "rød",
    )
    assert first["properties"]["SPARK_DEDUP_ID"].endswith(":0")
    queues: dict[int, set[int]] = {}
    for message in messages:
        if message["body"].isdigit() and int(message["body"]) % 2:
            queues.setdefault(int(message["body"]) % 5, set()).add(message["queueId"])
    assert all(len(found) == 1 for found in queues.values())
    assert len(queues) == 5


def test_what_spark_writes_spark_reads(
    spark: SparkSession, apache: java.ApacheCluster, write: Write
) -> None:
    """At once, though Apache's broker fills its queues only after it has
    acknowledged.
    """

    def at_once(topic: str) -> DataFrame:
        return (
            spark.read.format("rocketmq")
            .options(namesrvAddr=apache.namesrv, subscribe=topic)
            .load()
        )

    topic, copy = unique("spark"), unique("copy")
    write(
        spark.range(0, 20_000, 1, 4).select(
            f.col("id").cast("string").alias("body"), f.lit("A").alias("tags")
        ),
        topic,
    )
    write(at_once(topic), copy)
    df = at_once(copy)
    found = Counter(int(bytes(row.body)) for row in df.collect())
    missing = [number for number in range(20_000) if number not in found]
    assert not missing, f"{len(missing)} rows are missing, the first {missing[0]}"
    assert deduplicated(df.union(df)).count() == 20_000


def test_a_stream_from_topic_to_topic_goes_on_where_it_ended(
    spark: SparkSession,
    apache: java.ApacheCluster,
    json_driver: java.Driver,
    producer: str,
    read: Read,
    tmp_path: Path,
) -> None:
    topic, target = unique("spark"), unique("target")
    json_driver.perform(
        {"do": "send_many", "id": producer, "topic": topic, "count": 1000, "prefix": "a-"}
    )

    def run() -> list[int]:
        trio.run(java.dispatched, apache)
        options: dict[str, Any] = {
            "namesrvAddr": apache.namesrv,
            "subscribe": topic,
            "startingOffsets": "earliest",
            "maxOffsetsPerTrigger": 400,
        }
        rows = spark.readStream.format("rocketmq").options(**options).load()
        writer = rows.writeStream.format("rocketmq").options(
            namesrvAddr=apache.namesrv, topic=target, checkpointLocation=str(tmp_path)
        )
        query = writer.trigger(availableNow=True).start()
        assert query.awaitTermination(250)
        assert lag(query.lastProgress).total == 0
        return [
            progress["numInputRows"]
            for progress in query.recentProgress
            if progress["numInputRows"]
        ]

    assert run() == [400, 400, 200]
    json_driver.perform(
        {"do": "send_many", "id": producer, "topic": topic, "count": 300, "prefix": "b-"}
    )
    assert run() == [300]
    bodies = [bytes(row.body) for row in read(target).collect()]
    assert len(bodies) == len(set(bodies)) == 1300
    assert set(bodies) == {
        bytes(row.body)
        for row in read(
            topic, endingTimestamp=int(datetime.now(UTC).timestamp() * 1000) + 60_000
        ).collect()
    }
