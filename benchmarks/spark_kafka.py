"""The source and the sink beside Spark's own connector for Kafka, in one session.

Kafka's broker (one node, KRaft) and the connector come from Maven; driver, JVM, workers
and both brokers are on the machine that runs this. Both sides are at their defaults,
but for headers of Kafka, which it reads only when asked. Kafka's fetches are of a
megabyte, so this package's reads are measured with limits of a pull like that, too.

The same rows go to both: 100-byte bodies, one key, a tag and three properties, which
are four headers to Kafka. Both topics have as many queues as there are tasks. Here a
row also gets its dedup id. Reads with all columns make 17 here and 8 of Kafka's; those
with the same columns keep to what is there of Kafka's. The median of turns counts.

Rows of a second of processor time count what driver, JVM, workers and both brokers use
meanwhile: unlike a rate, that hardly depends on what else runs (Linux only).
"""

from __future__ import annotations

import os
import statistics
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

import trio
from pyspark.sql import functions as f

from benchmarks.kafka_node import POMS, kafka
from benchmarks.spark_read import RAISED
from benchmarks.spark_write import TASKS, rows
from benchmarks.workers import broker_process
from rocketmq_sdk import Admin
from rocketmq_sdk.spark import local_session

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from support import java

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from benchmarks.harness import Report

ROWS: Final = 400_000
TURNS: Final = 3
TOPIC: Final = "bench"
KAFKA: Final = "Kafka's connector"
OURS: Final = "beside Kafka's"
SAME: Final = "the same columns, beside Kafka's"
LARGE: Final = "large pulls, beside Kafka's"
BOTH: Final = "large pulls, the same columns, beside Kafka's"
SCHEMA: Final = (
    "keys ARRAY<STRING>, body BINARY, topic STRING, queueId INT, queueOffset BIGINT, "
    "storeTimestamp TIMESTAMP, tags STRING, properties MAP<STRING,STRING>"
)
"""Key, value, topic, partition, offset, timestamp and headers.

Without the type of the timestamp, but with the tag apart from the properties.
"""
_OWN_JARS: Final = ("spark-sql-kafka", "spark-token-provider", "kafka-clients", "commons-pool2")
"""Of the connector; Spark has the others."""


def for_kafka(frame: DataFrame) -> DataFrame:
    """Rows for the sink of this package as rows for Kafka's."""
    tag = f.struct(f.lit("TAGS").alias("key"), f.col("tags").cast("binary").alias("value"))
    own = f.transform(
        f.map_entries("properties"),
        lambda entry: f.struct(
            entry["key"].alias("key"), entry["value"].cast("binary").alias("value")
        ),
    )
    return frame.select(
        f.col("body").alias("value"),
        f.col("keys")[0].alias("key"),
        f.concat(f.array(tag), own).alias("headers"),
    ).localCheckpoint()


def _written(frame: DataFrame, name: str, **options: str) -> float:
    begin = time.perf_counter()
    frame.write.format(name).options(**options).mode("append").save()
    return time.perf_counter() - begin


def _read(frame: DataFrame, count: int) -> tuple[float, float]:
    """Seconds that a read takes, and those of processors."""
    found = frame.count()
    if found != count:
        raise RuntimeError(f"{found} rows are in the topic, not {count}")
    begin, used = time.perf_counter(), _processor_seconds()
    frame.write.format("noop").mode("overwrite").save()
    return time.perf_counter() - begin, _processor_seconds() - used


def _processor_seconds() -> float:
    """What this process and all that come from it have used so far."""
    parents: dict[int, int] = {}
    ticks: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue  # it has just ended
            parents[int(entry.name)] = int(fields[1])
            ticks[int(entry.name)] = sum(map(int, fields[11:15]))
    ours = {os.getpid()}
    found = set(ours)
    while found:
        found = {each for each, parent in parents.items() if parent in ours} - ours
        ours |= found
    return sum(ticks.get(each, 0) for each in ours) / os.sysconf("SC_CLK_TCK")


async def _topic(namesrv: str) -> None:
    async with Admin(namesrv=namesrv) as admin:
        await admin.topics.create(TOPIC, queues=TASKS)


def run(report: Report, scale: float) -> None:
    """One round; nothing where there is no Java or no Maven."""
    if reason := java.why_not():
        print(f"  left out: {reason}", file=sys.stderr)
        return
    count = max(20_000, int(ROWS * scale))
    libraries = java.jars("kafka-spark", POMS / "spark" / "pom.xml") / "lib"
    own = [str(jar) for jar in sorted(libraries.iterdir()) if jar.name.startswith(_OWN_JARS)]
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    limits = [part for name, value in RAISED.items() for part in ("--set", f"{name}={value}")]
    with broker_process() as namesrv, broker_process(*limits) as raised, kafka(TASKS) as bootstrap:
        trio.run(_topic, namesrv)
        trio.run(_topic, raised)
        spark = local_session(TASKS, spark__jars=",".join(own))
        try:
            spark.sparkContext.setLogLevel("ERROR")
            ours = rows(spark, count)
            theirs = for_kafka(ours)
            server = {"kafka.bootstrap.servers": bootstrap}
            writes: dict[str, list[float]] = {KAFKA: [], OURS: []}
            for _ in range(TURNS + 1):
                writes[KAFKA].append(_written(theirs, "kafka", topic=TOPIC, **server))
                writes[OURS].append(_written(ours, "rocketmq", topic=TOPIC, namesrvAddr=namesrv))
                _written(ours, "rocketmq", topic=TOPIC, namesrvAddr=raised)
            readers = {
                KAFKA: spark.read.format("kafka").options(
                    subscribe=TOPIC, includeHeaders="true", **server
                ),
                OURS: spark.read.format("rocketmq").options(subscribe=TOPIC, namesrvAddr=namesrv),
                LARGE: spark.read.format("rocketmq").options(
                    subscribe=TOPIC, namesrvAddr=raised, pullBatchSize=4096
                ),
            }
            frames = {name: reader.load() for name, reader in readers.items()}
            frames[SAME] = readers[OURS].schema(SCHEMA).load()
            frames[BOTH] = readers[LARGE].schema(SCHEMA).load()
            stored = (TURNS + 1) * count
            reads: dict[str, list[float]] = {name: [] for name in frames}
            used: dict[str, list[float]] = {name: [] for name in frames}
            for _ in range(TURNS):
                for name, frame in frames.items():
                    seconds, of_processors = _read(frame, stored)
                    reads[name].append(seconds)
                    used[name].append(of_processors)
        finally:
            spark.stop()
    for what, times, each in (
        ("write", writes, count),
        ("read", reads, stored),
        ("read, processor time", used, stored),
    ):
        for name, taken in times.items():
            rate = each / statistics.median(taken[-TURNS:])
            base = None if name == KAFKA else f"spark {what}, {KAFKA}"
            report.add(f"spark {what}, {name}", "rows/s", rate, base)
