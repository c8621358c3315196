"""Reads of the Spark source beside a reader that hands over prebuilt batches.

Driver, JVM, workers and broker are on the machine that runs this.

Rows have 100-byte bodies, a tag, one key and three properties. As many messages lie in
1, 16 and 256 queues. Limits of a pull are raised.

Bodies of 5 KB are read as they are and compressed, as producers send them by default.
"""

from __future__ import annotations

import random
import time
from typing import TYPE_CHECKING

import trio
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from benchmarks.workers import broker_process
from rocketmq_sdk import Admin, Message, Producer
from rocketmq_sdk.spark import local_session

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

    from benchmarks.harness import Report

ROWS = 600_000
TASKS = 2
QUEUES = (1, 16, 256)
LARGE = 5 << 10
RAISED = {
    "maxTransferCountOnMessageInMemory": "4096",
    "maxTransferBytesOnMessageInMemory": str(4 << 20),
    "maxTransferCountOnMessageInDisk": "4096",
    "maxTransferBytesOnMessageInDisk": str(4 << 20),
}


class PrebuiltReader(DataSourceReader):
    """Hands over one batch repeatedly: the least that any source in Python costs."""

    def __init__(self, rows: int) -> None:
        self._rows = rows

    def partitions(self) -> list[InputPartition]:
        """Two tasks."""
        return [InputPartition(self._rows // TASKS) for _ in range(TASKS)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The batch of 4,096 rows, as often as it takes."""
        from rocketmq_sdk.protocol.message_codec import encode_record
        from rocketmq_sdk.spark.rows.decoder import RowDecoder
        from rocketmq_sdk.spark.schema import COLUMNS

        host = bytes([127, 0, 0, 1, 0, 0, 42, 159])
        properties = (
            b"UNIQ_KEY\x017F0000015C7231AC793D725F665D00C9\x02TAGS\x01A\x02KEYS\x01k1\x02"
            b"a\x01one\x02b\x01two\x02c\x013\x02"
        )
        records = [
            encode_record(
                b"bench",
                b"x" * 100,
                properties,
                queue_id=0,
                flag=0,
                queue_offset=number,
                physical_offset=number,
                sys_flag=0,
                born_timestamp=1,
                born_host=host,
                store_timestamp=1,
                store_host=host,
                reconsume_times=0,
                prepared_offset=0,
            )
            for number in range(4096)
        ]
        batch = RowDecoder(COLUMNS).decode(b"".join(records), "broker-a", begin=0, end=4096)
        assert batch is not None
        for _ in range(partition.value // 4096):
            yield batch


class Prebuilt(DataSource):
    """`format("prebuilt")`."""

    @classmethod
    def name(cls) -> str:
        """Name of the format."""
        return "prebuilt"

    def schema(self) -> str:
        """All columns of the source."""
        from rocketmq_sdk.spark.schema import COLUMNS, ddl

        return ddl(COLUMNS)

    def reader(self, schema: StructType) -> PrebuiltReader:  # noqa: ARG002 - Spark's signature
        """The reader."""
        return PrebuiltReader(int(self.options["rows"]))


def large_body(number: int) -> bytes:
    """5 KB of text which zlib makes a quarter as long."""
    words = random.Random(number)
    rows = (f'{{"id":{words.getrandbits(40)},"customer":"somebody"}}' for _ in range(200))
    return ",".join(rows).encode()[:LARGE]


async def _fill_large(namesrv: str, topic: str, rows: int, threshold: int) -> None:
    bodies = [large_body(number) for number in range(64)]
    async with (
        Producer("bench", namesrv=namesrv, compress_over=threshold) as producer,
        trio.open_nursery() as nursery,
    ):
        await Admin(client=producer.client).topics.create(topic, queues=TASKS)
        limiter = trio.CapacityLimiter(64)

        async def send(begin: int) -> None:
            async with limiter:
                for number in range(begin, min(begin + 50, rows)):
                    await producer.send(Message(topic, bodies[number % 64]))

        for begin in range(0, rows, 50):
            nursery.start_soon(send, begin)


async def _fill(namesrv: str, topic: str, queues: int, rows: int) -> None:
    async with Producer("bench", namesrv=namesrv) as producer, trio.open_nursery() as nursery:
        await Admin(client=producer.client).topics.create(topic, queues=queues)
        limiter = trio.CapacityLimiter(8)

        async def send(begin: int) -> None:
            async with limiter:
                numbers = range(begin, begin + 200)
                own = {"a": "one", "b": "two"}
                await producer.send_batch(
                    [
                        Message(
                            topic,
                            b"x" * 100,
                            tags="A",
                            keys=[f"k{n}"],
                            properties={**own, "c": str(n)},
                        )
                        for n in numbers
                    ]
                )

        for begin in range(0, rows, 200):
            nursery.start_soon(send, begin)


def rate(frame: DataFrame, rows: int) -> float:
    """Rows of a read per second; the second time counts."""
    frame.write.format("noop").mode("overwrite").save()
    begin = time.perf_counter()
    frame.write.format("noop").mode("overwrite").save()
    return rows / (time.perf_counter() - begin)


def of_apache(namesrv: str, topic: str, rows: int) -> float:
    """Rows per second of all columns of a topic, with the options' defaults."""
    spark = local_session(TASKS)
    try:
        spark.sparkContext.setLogLevel("ERROR")
        frame = (
            spark.read.format("rocketmq")
            .option("namesrvAddr", namesrv)
            .option("subscribe", topic)
            .load()
        )
        if frame.count() != rows:
            raise RuntimeError(f"{frame.count()} rows were read, not {rows}")
        return rate(frame, rows)
    finally:
        spark.stop()


def run(report: Report, scale: float) -> None:
    """One round."""
    rows = max(20_000, int(ROWS * scale)) // 4096 * 4096
    rows -= rows % 200
    with broker_process(
        *(part for name, value in RAISED.items() for part in ("--set", f"{name}={value}"))
    ) as namesrv:
        for queues in QUEUES:
            trio.run(_fill, namesrv, f"bench-{queues}", queues, rows)
        large = rows // 10
        for name, threshold in (("plain", 1 << 20), ("compressed", 4096)):
            trio.run(_fill_large, namesrv, name, large, threshold)
        spark = local_session(TASKS)
        try:
            spark.sparkContext.setLogLevel("ERROR")
            spark.dataSource.register(Prebuilt)
            ceiling = "spark read, batches made before"
            report.add(
                ceiling,
                "rows/s",
                rate(spark.read.format("prebuilt").option("rows", rows).load(), rows),
            )
            reader = (
                spark.read.format("rocketmq")
                .option("namesrvAddr", namesrv)
                .option("pullBatchSize", 4096)
            )
            for queues in QUEUES:
                frame = reader.option("subscribe", f"bench-{queues}").load()
                report.add(
                    f"spark read, all columns, {queues} queues",
                    "rows/s",
                    rate(frame, rows),
                    ceiling,
                )
            bare = reader.option("subscribe", "bench-16").option("includeProperties", "false")
            report.add(
                "spark read, no properties, 16 queues", "rows/s", rate(bare.load(), rows), ceiling
            )
            base = None
            for name in ("plain", "compressed"):
                found = rate(reader.option("subscribe", name).load(), large)
                figure = f"spark read, 5 KB {name}, inflated bytes"
                report.add(figure, "MB/s", found * LARGE / 1e6, base)
                base = figure
        finally:
            spark.stop()
