"""A broker that is killed and comes back while a job reads from it, or writes to it.
Where the job is then is decided, not left to chance.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest
import trio

from rocketmq_sdk import Admin, Message, Producer
from rocketmq_sdk.spark import deduplicated
from support.processes import BrokerProcess, broker_process

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.real_time, pytest.mark.slow, pytest.mark.timeout(300)]
Gate = Callable[[Iterable[Any]], Iterator[Any]]
ROWS = 48_000
BODY = 4_000
"""Bytes of a row that is read: 192 MB are more than Spark, the sockets (up to 38 MB)
and the reader (48 MB) hold while the gate is closed, if the batches of rows are small.
"""
ROWS_A_BATCH = "spark.sql.execution.arrow.maxRecordsPerBatch"
WRITTEN = 24_000
PATIENCE = 120.0


def gate(directory: Path, rows: int) -> Gate:
    """Lets some rows through, says that it did, and waits for the word to let the
    others through.
    """
    reached, go_on = directory / "reached", directory / "go-on"

    def passing(found: Iterable[Any]) -> Iterator[Any]:
        for seen, row in enumerate(found):
            if seen == rows:
                reached.touch()
                limit = time.monotonic() + PATIENCE
                while not go_on.exists() and time.monotonic() < limit:
                    time.sleep(0.02)
            yield row

    return passing


@contextmanager
def restarted_at_the_gate(broker: BrokerProcess, directory: Path) -> Iterator[None]:
    """Beside the block: when the gate is reached the broker is killed with -9 and
    started again, then the gate opens.
    """
    over = threading.Event()
    restarts: list[float] = []

    def restart() -> None:
        while not over.is_set():
            if (directory / "reached").exists():
                broker.kill()
                broker.start()
                restarts.append(time.monotonic())
                (directory / "go-on").touch()
                return
            time.sleep(0.02)

    thread = threading.Thread(target=restart)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
    assert restarts, "the gate was never reached"


async def fill(namesrv: str, topic: str) -> None:
    async with Producer("filler", namesrv=namesrv) as producer:
        await Admin(client=producer.client).topics.create(topic, queues=1)
        for begin in range(0, ROWS, 500):
            await producer.send_batch(
                [Message(topic, b"%0*d" % (BODY, number)) for number in range(begin, begin + 500)]
            )


async def gotten(broker: BrokerProcess) -> int:
    """Messages that a broker gave since it started."""
    async with Admin(namesrv=broker.namesrv) as admin:
        info = await admin.cluster.runtime_info(broker.address)
        return int(info["msgGetTotalTodayNow"])


def read(spark: SparkSession, broker: BrokerProcess, topic: str) -> DataFrame:
    return (
        spark.read.format("rocketmq")
        .options(namesrvAddr=broker.namesrv, subscribe=topic, retryTimeout=f"{PATIENCE:.0f}s")
        .load()
    )


@contextmanager
def setting(spark: SparkSession, name: str, value: str) -> Iterator[None]:
    before = spark.conf.get(name)
    spark.conf.set(name, value)
    try:
        yield
    finally:
        spark.conf.set(name, str(before))


def test_in_the_middle_of_a_read(spark: SparkSession, topic: str, tmp_path: Path) -> None:
    with broker_process(tmp_path / "store") as broker:
        trio.run(fill, broker.namesrv, topic)
        frame = read(spark, broker, topic)
        with setting(spark, ROWS_A_BATCH, "500"), restarted_at_the_gate(broker, tmp_path):
            passing = gate(tmp_path, 1_000)
            found = (
                frame.select("body")
                .rdd.mapPartitions(lambda rows: (int(row.body) for row in passing(rows)))
                .collect()
            )
        assert sorted(found) == list(range(ROWS))
        assert trio.run(gotten, broker) > 0, (
            "a part was read before the restart, and a part after it"
        )


def test_in_the_middle_of_a_write(spark: SparkSession, topic: str, tmp_path: Path) -> None:
    with broker_process(tmp_path / "store") as broker:
        passing = gate(tmp_path, 5_000)
        numbers = spark.sparkContext.range(0, WRITTEN, 1, 2).mapPartitions(
            lambda rows: ((f"{number:0200}",) for number in passing(rows))
        )
        rows = spark.createDataFrame(numbers, "body STRING")
        with restarted_at_the_gate(broker, tmp_path):
            writer = rows.write.format("rocketmq").options(
                namesrvAddr=broker.namesrv, topic=topic, retryTimeout=f"{PATIENCE:.0f}s"
            )
            writer.mode("append").save()
        frame = read(spark, broker, topic)
        assert sorted(
            int(row.body) for row in deduplicated(frame).select("body").collect()
        ) == list(range(WRITTEN))
        assert WRITTEN <= frame.count() < 2 * WRITTEN
