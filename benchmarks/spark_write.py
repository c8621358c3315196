"""Writes of the Spark sink beside a sink that throws the same rows away.

Driver, JVM, workers and broker are on the machine that runs this.

Rows have 100-byte bodies, a tag, one key and three properties; each gets its dedup id.
They are made before the clock starts.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from pyspark.sql import functions as f
from pyspark.sql.datasource import DataSource, DataSourceArrowWriter, WriterCommitMessage

from benchmarks.workers import broker_process
from rocketmq_sdk.spark import local_session

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from benchmarks.harness import Report

ROWS = 400_000
TASKS = 2


class NullWriter(DataSourceArrowWriter):
    """Discards record batches: the least that any sink in Python costs."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Count rows."""
        for batch in iterator:
            assert batch.num_rows
        return WriterCommitMessage()


class NullSink(DataSource):
    """`format("null")`."""

    @classmethod
    def name(cls) -> str:
        """Name of the format."""
        return "null"

    # Spark's signature.
    def writer(self, schema: StructType, overwrite: bool) -> NullWriter:  # noqa: ARG002
        """The writer."""
        return NullWriter()


def rows(spark: SparkSession, count: int) -> DataFrame:
    """The rows, computed and kept by the JVM."""
    number = f.col("id").cast("string")
    frame = spark.range(0, count, 1, TASKS).select(
        f.lpad(number, 100, "x").cast("binary").alias("body"),
        f.lit("A").alias("tags"),
        f.array(f.concat(f.lit("k"), number)).alias("keys"),
        f.create_map(f.lit("a"), f.lit("one"), f.lit("b"), f.lit("two"), f.lit("c"), number).alias(
            "properties"
        ),
    )
    return frame.localCheckpoint()


def timed(frame: DataFrame, name: str, **options: str) -> float:
    """Rows of a write per second."""
    begin = time.perf_counter()
    frame.write.format(name).options(**options).mode("append").save()
    return 1 / (time.perf_counter() - begin)


def run(report: Report, scale: float) -> None:
    """One round."""
    count = max(20_000, int(ROWS * scale))
    with broker_process() as namesrv:
        spark = local_session(TASKS)
        try:
            spark.sparkContext.setLogLevel("ERROR")
            spark.dataSource.register(NullSink)
            frame = rows(spark, count)
            for name, options in (
                ("null", {}),
                ("rocketmq", {"namesrvAddr": namesrv, "topic": "bench"}),
            ):
                timed(frame, name, **options)
                figure = (
                    "spark write, a sink that forgets rows" if name == "null" else "spark write"
                )
                baseline = None if name == "null" else "spark write, a sink that forgets rows"
                report.add(figure, "rows/s", count * timed(frame, name, **options), baseline)
            stored = (
                spark.read.format("rocketmq")
                .options(namesrvAddr=namesrv, subscribe="bench", includeProperties="false")
                .load()
                .count()
            )
            if stored != 2 * count:
                raise RuntimeError(f"{stored} messages are in the topic, not {2 * count}")
        finally:
            spark.stop()
