"""Writes through Spark: columns, ids, order, rows that cannot be written, failing
tasks.
"""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
import trio
from pyspark.errors import AnalysisException, PythonException
from pyspark.sql import functions as f

from rocketmq_sdk.errors import ConfigurationError
from rocketmq_sdk.protocol.batch_codec import decode_batch
from rocketmq_sdk.spark import deduplicated, with_dedup_keys
from support.processes import BrokerProcess, broker_process
from support.waiting import unique

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.real_time, pytest.mark.slow, pytest.mark.timeout(300)]
Read = Callable[..., "DataFrame"]
Write = Callable[..., None]


@pytest.fixture
def write(broker: BrokerProcess) -> Write:
    """Append a frame to a topic: `write(df, topic, option=value)`."""

    def save(df: DataFrame, topic: str | None = None, **options: Any) -> None:
        writer = (
            df.write.format("rocketmq").option("namesrvAddr", broker.namesrv).options(**options)
        )
        (writer if topic is None else writer.option("topic", topic)).mode("append").save()

    return save


def test_all_columns_arrive(spark: SparkSession, write: Write, read: Read, topic: str) -> None:
    df = spark.createDataFrame(
        [(b"\x00\xff", "A", ["k1", "k2"], {"a": "one", "b": "ü"}, 7)],
        "body binary, tags string, keys array<string>, properties map<string,string>, flag int",
    )
    write(df, topic)
    row = read(topic).collect()[0]
    assert (bytes(row.body), row.tags, row["keys"], row.properties, row.flag) == (
        b"\x00\xff",
        "A",
        ["k1", "k2"],
        {"a": "one", "b": "ü"},
        7,
    )
    assert row.dedupId is not None


def test_a_text_body_and_topics_from_the_column(
    spark: SparkSession, write: Write, read: Read
) -> None:
    first, second = unique("first"), unique("second")
    df = spark.createDataFrame([("zwei ü", first), ("b", second)], "body string, topic string")
    write(df)
    assert [bytes(row.body) for row in read(first).collect()] == ["zwei ü".encode()]
    write(df, second)  # the option wins
    assert sorted(bytes(row.body) for row in read(second).collect()) == [
        b"b",
        b"b",
        "zwei ü".encode(),
    ]


def test_many_rows_of_many_tasks_arrive_once_each(
    spark: SparkSession, write: Write, read: Read, topic: str
) -> None:
    df = spark.range(0, 20_000, 1, 4).select(f.col("id").cast("string").alias("body"))
    write(df, topic)
    got = read(topic).select("body", "dedupId").collect()
    assert sorted(int(bytes(row.body)) for row in got) == list(range(20_000))
    assert len({row.dedupId for row in got}) == 20_000


def test_equal_rows_have_ids_of_their_own_and_survive_deduplication(
    spark: SparkSession, write: Write, read: Read, topic: str
) -> None:
    write(spark.createDataFrame([("same",)] * 5, "body string").coalesce(1), topic)
    df = read(topic)
    assert deduplicated(df).count() == 5
    assert deduplicated(df.union(df)).count() == 5


def test_rows_of_a_sharding_key_stay_in_order(
    spark: SparkSession, write: Write, read: Read, topic: str
) -> None:
    rows = [(f"{number:04d}", f"key-{number % 3}") for number in range(900)]
    write(
        spark.createDataFrame(rows, "body string, shardingKey string").coalesce(1),
        topic,
        batchSize=10,
    )
    got = read(topic).orderBy("queueId", "queueOffset").collect()
    order: dict[int, list[tuple[int, int]]] = {}
    queues: dict[int, set[int]] = {}
    for row in got:
        number = int(bytes(row.body))
        queues.setdefault(number % 3, set()).add(row.queueId)
        order.setdefault(number % 3, []).append((row.queueOffset, number))
    assert len(got) == 900
    assert all(len(found) == 1 for found in queues.values())
    assert all(
        [number for _, number in each] == sorted(number for _, number in each)
        for each in order.values()
    )


def test_delays_and_moments(spark: SparkSession, write: Write, read: Read, topic: str) -> None:
    soon = datetime.now(UTC) + timedelta(seconds=2)
    df = spark.createDataFrame(
        [("level", 1, None), ("moment", None, soon), ("now", 0, None)],
        "body string, delayLevel int, deliverAt timestamp",
    )
    write(df, topic)

    async def wait() -> None:
        with trio.fail_after(120):
            while (got := sorted(bytes(row.body) for row in read(topic).collect())) != [
                b"level",
                b"moment",
                b"now",
            ]:
                assert b"now" in got
                await trio.sleep(0.5)

    trio.run(wait)
    stored = {bytes(row.body): row.storeTimestamp.astimezone(UTC) for row in read(topic).collect()}
    assert stored[b"moment"] >= soon - timedelta(milliseconds=1)


def test_a_topic_is_copied_without_naming_columns(
    spark: SparkSession, write: Write, read: Read, topic: str
) -> None:
    write(spark.createDataFrame([("a", "A"), ("b", "B")], "body string, tags string"), topic)
    other = unique("copy")
    write(read(topic), other)
    rows = {bytes(row.body): row for row in read(other).collect()}
    assert {body: row.tags for body, row in rows.items()} == {b"a": "A", b"b": "B"}
    assert not {row.dedupId for row in rows.values()} & {
        row.dedupId for row in read(topic).collect()
    }


@pytest.mark.parametrize(
    ("schema", "told"),
    [
        ("body string, tag string", r"no column 'tag'; did you mean tags\?"),
        ("body int", "the column body must be BINARY or STRING for the sink, not int"),
        ("tags string", r"needs a column body \(BINARY or STRING\)"),
    ],
)
def test_wrong_columns_are_told_when_planning(
    spark: SparkSession, write: Write, topic: str, schema: str, told: str
) -> None:
    with pytest.raises(AnalysisException, match=told):
        write(spark.createDataFrame([], schema), topic)


def test_no_topic_and_overwriting(
    spark: SparkSession, write: Write, broker: BrokerProcess, topic: str
) -> None:
    df = spark.createDataFrame([("a",)], "body string")
    with pytest.raises(AnalysisException, match="say where to write to"):
        write(df)
    with pytest.raises(AnalysisException, match="a topic cannot be overwritten"):
        df.write.format("rocketmq").option("namesrvAddr", broker.namesrv).option(
            "topic", topic
        ).mode("overwrite").save()


BAD: list[tuple[str, tuple[Any, ...], str, str]] = [
    ("body binary", (None,), "body", "it is null"),
    ("body binary", (b"",), "body", "it is empty"),
    ("body binary, topic string", (b"x", None), "topic", "it is null"),
    ("body binary, topic string", (b"x", "a b"), "topic", "a b"),
    (
        "body binary, delayLevel int, deliverAt timestamp",
        (b"x", 3, datetime(2030, 1, 1, tzinfo=UTC)),
        "deliverAt",
        "delayLevel is set as well",
    ),
    ("body binary, delayLevel int", (b"x", -1), "delayLevel", "it is -1"),
    ("body binary, properties map<string,string>", (b"x", {"KEYS": "k"}), "properties", "reserved"),
    ("body binary, keys array<string>", (b"x", ["a b"]), "keys", "space"),
    ("body binary, tags string", (b"x", "a\x01"), "tags", "x01"),
    (
        "body binary, properties map<string,string>",
        (b"x", {"a": "v" * 40_000}),
        "properties",
        "more than",
    ),
]


@pytest.mark.parametrize(
    ("schema", "row", "column", "told"),
    BAD,
    ids=[f"{column}: {told}" for _, _, column, told in BAD],
)
def test_a_bad_row_is_named(schema: str, row: tuple[Any, ...], column: str, told: str) -> None:
    import pyarrow as pa

    from rocketmq_sdk.spark.write.columns import Frames
    from rocketmq_sdk.spark.write.rows import BadRowError, RowMaker

    names = [part.split()[0] for part in schema.split(", ")]
    types = {
        "body": pa.binary(),
        "keys": pa.list_(pa.string()),
        "properties": pa.map_(pa.string(), pa.string()),
        "delayLevel": pa.int32(),
    }
    types |= {"deliverAt": pa.timestamp("us", tz="UTC")}
    values = [list(value.items()) if isinstance(value, dict) else value for value in row]
    good: list[Any] = [b"good", *[("T" if name == "topic" else None) for name in names[1:]]]
    columns = [
        pa.array([good[at], values[at]], types.get(name, pa.string()))
        for at, name in enumerate(names)
    ]
    batch = pa.RecordBatch.from_arrays(columns, names=names)
    topic = None if "topic" in names else "T"
    common: dict[str, Any] = {
        "topic": topic,
        "scope": "s",
        "partition": 3,
        "max_body": 1000,
        "next_ids": lambda count: ["0" * 32] * count,
    }
    maker = RowMaker(names, skip_bad=False, **common)
    with pytest.raises(
        BadRowError, match=f"row 1 of partition 3 cannot be written, column {column}: .*{told}"
    ):
        list(maker.parts(batch))
    skipping = RowMaker(names, skip_bad=True, **common)
    (frames,) = skipping.parts(batch)
    assert isinstance(frames, Frames)
    assert [body for _, body, _ in decode_batch(bytes(frames.data))] == [b"good"]
    assert (skipping.rows, skipping.skipped) == (2, 1)
    assert skipping.first_skipped is not None
    assert skipping.first_skipped.column == column


def test_bad_rows_fail_or_are_skipped(
    spark: SparkSession, write: Write, read: Read, topic: str
) -> None:
    df = spark.createDataFrame([(b"a",), (None,), (b"c",)], "body binary").coalesce(1)
    with pytest.raises(
        PythonException, match="row 1 of partition 0 cannot be written, column body: it is null"
    ) as caught:
        write(df, topic)
    assert "0 rows were acknowledged, of 0 rows nobody knows whether they are stored" in str(
        caught.value
    )
    skipped = unique("skipped")
    write(df, skipped, onBadRow="skip")
    assert sorted(bytes(row.body) for row in read(skipped).collect()) == [b"a", b"c"]


def test_rows_that_only_the_broker_refuses(
    spark: SparkSession, write: Write, read: Read, topic: str
) -> None:
    """A broker takes a default `timerMaxDelaySec` of three days, and bodies up to 4
    MiB.
    """
    rows: list[tuple[bytes, datetime | None]] = [(b"%d" % number, None) for number in range(10)]
    rows[3] = b"3", datetime(2126, 1, 1, tzinfo=UTC)
    rows[7] = secrets.token_bytes(5_000_000), None
    df = spark.createDataFrame(rows, "body binary, deliverAt timestamp").coalesce(1)
    with pytest.raises(
        PythonException,
        match=r"row 3 of partition 0 cannot be written, column deliverAt: the broker at .* refuses "
        "it: .*illegal",
    ):
        write(df, topic, maxMessageSize="8m")
    skipped = unique("skipped")
    write(df, skipped, maxMessageSize="8m", onBadRow="skip")
    assert sorted(bytes(row.body) for row in read(skipped).collect()) == [
        b"%d" % number for number in range(10) if number not in (3, 7)
    ]


def test_bodies_as_large_as_the_brokers_take(
    spark: SparkSession, write: Write, read: Read, topic: str
) -> None:
    bodies = [secrets.token_bytes(9_000_000), secrets.token_bytes(4_200_000)]
    df = spark.createDataFrame([(body,) for body in bodies], "body binary").coalesce(1)
    with broker_process(maxMessageSize=10_000_000) as large:
        with pytest.raises(
            PythonException,
            match="row 0 of partition 0 cannot be written, column body: it has 9000000 bytes; the "
            "limit is 4128768",
        ):
            write(df, topic, namesrvAddr=large.namesrv)
        write(df, topic, namesrvAddr=large.namesrv, maxMessageSize="9500000")
        got = [
            bytes(row.body)
            for row in read(topic, namesrvAddr=large.namesrv).select("body").collect()
        ]
        assert sorted(map(len, got)) == [4_200_000, 9_000_000]
        assert set(got) == set(bodies)


def test_a_task_that_runs_again_gives_the_same_ids(
    spark: SparkSession, write: Write, read: Read, topic: str, tmp_path: Path
) -> None:
    """The second try of a task sends its rows again: nothing is missing, and
    `deduplicated` leaves one of each.
    """
    marker = str(tmp_path / "failed")

    def fail_once(rows: Any) -> Any:
        import os

        for number, row in enumerate(rows):
            if number == 2500 and not os.path.exists(marker):  # noqa: PTH110 - runs in a worker
                os.close(os.open(marker, os.O_CREAT))
                raise ValueError("on purpose")
            yield row

    df = spark.createDataFrame(
        spark.range(0, 4000, 1, 1).rdd.mapPartitions(fail_once).map(lambda row: (str(row.id),)),
        "body string",
    )
    write(df, topic, batchSize=100)
    got = read(topic)
    counts = Counter(int(bytes(row.body)) for row in got.collect())
    assert set(counts) == set(range(4000))
    assert deduplicated(got).count() == 4000


def test_a_stream_from_topic_to_topic(
    spark: SparkSession, broker: BrokerProcess, write: Write, read: Read, topic: str, tmp_path: Path
) -> None:
    """Its rows can be observed on their way."""
    write(spark.range(0, 1000).select(f.col("id").cast("string").alias("body")), topic)
    target = unique("target")
    source = spark.readStream.format("rocketmq").options(
        namesrvAddr=broker.namesrv,
        subscribe=topic,
        startingOffsets="earliest",
        maxOffsetsPerTrigger=400,
    )
    sent = f.count(f.lit(1)).alias("rows"), f.sum(f.length("body")).alias("bytes")
    query = (
        source.load()
        .observe("sent", *sent)
        .writeStream.format("rocketmq")
        .options(namesrvAddr=broker.namesrv, topic=target)
        .option("checkpointLocation", str(tmp_path / "check"))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(200)
    rows = read(target).collect()
    assert sorted(int(bytes(row.body)) for row in rows) == list(range(1000))
    batches = {row.dedupId.rsplit(":", 3)[0] for row in rows}
    assert len(batches) == 3  # query and batch id of three batches
    told = [item["observedMetrics"]["sent"] for item in query.recentProgress]
    assert sum(row["rows"] for row in told) == 1000
    assert sum(row["bytes"] or 0 for row in told) == sum(len(bytes(row.body)) for row in rows)


def test_a_stream_without_doubles(
    spark: SparkSession, broker: BrokerProcess, write: Write, topic: str, tmp_path: Path
) -> None:
    """A row that goes to two topics is no double."""
    df = spark.range(0, 200).select(
        f.col("id").cast("string").alias("body"), f.lit("mine:").alias("start")
    )
    df = df.select("body", f.concat("start", "body").alias("dedupKey")).localCheckpoint()
    other = unique("other")
    for target in (topic, topic, other):
        write(df, target)
    write(df.drop("dedupKey"), topic)
    source = (
        spark.readStream.format("rocketmq")
        .option("namesrvAddr", broker.namesrv)
        .option("subscribe", f"{topic},{other}")
    )
    once = deduplicated(
        source.option("startingOffsets", "earliest").load(), within=timedelta(minutes=10)
    )
    writer = once.select("body").writeStream.format("parquet")
    query = (
        writer.option("path", str(tmp_path / "out"))
        .option("checkpointLocation", str(tmp_path / "check"))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(200)
    counts = Counter(bytes(row.body) for row in spark.read.parquet(str(tmp_path / "out")).collect())
    assert set(counts.values()) == {3}
    assert len(counts) == 200


def test_what_was_not_seen_before_is_never_taken_for_a_double(
    spark: SparkSession,
    broker: BrokerProcess,
    fill: Callable[..., None],
    topic: str,
    tmp_path: Path,
) -> None:
    """Messages of one queue are older than those of another by far more than `within`,
    and are read later.
    """
    newer = unique("newer")
    fill(topic, [b"old %d" % number for number in range(40)])
    fill(newer, [b"new %d" % number for number in range(40)])
    reader = spark.readStream.format("rocketmq").option("namesrvAddr", broker.namesrv)
    options = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": 16}
    source = reader.options(subscribe=f"{topic},{newer}", **options).load()
    once = deduplicated(source, within="1 millisecond").select("body")
    writer = once.writeStream.format("parquet").option("path", str(tmp_path / "out"))
    query = (
        writer.option("checkpointLocation", str(tmp_path / "check"))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(200)
    assert len(query.recentProgress) >= 5
    assert spark.read.parquet(str(tmp_path / "out")).count() == 80


def test_ids_of_rows_with_a_place_do_not_follow_the_partitions(
    spark: SparkSession, write: Write, read: Read, topic: str, fill: Callable[..., None]
) -> None:
    """Nor the types that the session makes columns of."""
    fill(topic, [b"equal"] * 60)
    target, wide = unique("target"), "spark.sql.execution.arrow.useLargeVarTypes"
    for partitions in (1, 3):
        rows = read(topic).repartition(partitions).withColumn("keys", f.col("body").cast("string"))
        spark.conf.set(wide, str(partitions == 3).lower())
        try:
            write(rows, target, dedupScope="copy", dedupBatch="1")
        finally:
            spark.conf.unset(wide)
    assert read(target).count() == 120
    assert deduplicated(read(target)).count() == 60


def test_keys_of_rows_do_not_follow_the_partitions(
    spark: SparkSession, write: Write, read: Read, topic: str
) -> None:
    """Equal rows in several tasks, spread in two ways: none is taken for another, and a
    second write is seen as one.
    """
    columns = "body string, properties map<string,string>, deliverAt timestamp, dedupKey string"
    rows = [(f"row-{n % 7}", {"b": "1", "a": str(n % 2)}, None, None) for n in range(40)]
    given = [*rows, ("own", None, None, "mine"), ("own", None, None, ""), (None, None, None, None)]
    df = spark.createDataFrame(given, columns)
    for tasks, batch in ((1, 4), (3, 4)):
        keyed = with_dedup_keys(df.repartition(tasks), batch, scope="job")
        write(keyed.repartition(tasks), topic, onBadRow="skip")
    ids = Counter(row.dedupId for row in read(topic).collect())
    assert len(ids) == 42
    assert set(ids.values()) == {2}
    assert {key.rpartition(":-:")[0] for key in ids} == {"", "job:4"}
    assert deduplicated(read(topic)).count() == 42
    stream = spark.readStream.format("rate").load().selectExpr("CAST(value AS STRING) AS body")
    with pytest.raises(ConfigurationError, match="foreachBatch"):
        with_dedup_keys(stream, 1, scope="job")
    with pytest.raises(ConfigurationError, match="the column body"):
        with_dedup_keys(df.drop("body"), 1, scope="job")


def test_a_scope_names_its_batch_outside_of_a_query(
    spark: SparkSession, write: Write, read: Read, topic: str
) -> None:
    df = spark.range(0, 20).select(f.col("id").cast("string").alias("body"))
    with pytest.raises(PythonException, match="dedupScope 'nightly' without dedupBatch"):
        write(df, topic, dedupScope="nightly")
    for batch in ("monday", "monday", "tuesday"):
        write(df, topic, dedupScope="nightly", dedupBatch=batch)
    assert read(topic).count() == 60
    assert deduplicated(read(topic)).count() == 40


def test_inserting_by_sql(
    spark: SparkSession, broker: BrokerProcess, read: Read, topic: str
) -> None:
    options = f"namesrvAddr '{broker.namesrv}', topic '{topic}'"
    spark.sql(
        f"CREATE TEMPORARY VIEW sink_{topic} (body BINARY, tags STRING) USING rocketmq OPTIONS "
        f"({options})"
    )
    spark.sql(f"INSERT INTO sink_{topic} VALUES (CAST('by sql' AS BINARY), 'A')")
    assert [(bytes(row.body), row.tags) for row in read(topic).collect()] == [(b"by sql", "A")]
