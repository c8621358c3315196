"""What a trigger of the streaming source takes, with 1, 16 and 256 queues.

It is compared with Spark's own `rate-micro-batch`.

Messages drip into the topic while a query runs as fast as it can; the median over
triggers that had rows counts. Driver, JVM, workers and broker are on the machine that
runs this.
"""

from __future__ import annotations

import statistics
import tempfile
import threading
import time
from functools import partial
from typing import TYPE_CHECKING

import trio

from benchmarks.workers import broker_process
from rocketmq_sdk import Admin, Message, Producer
from rocketmq_sdk.spark import local_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from benchmarks.harness import Report

TRIGGERS = 24
WARM = 6
QUEUES = (1, 16, 256)
BASE = "spark trigger, rate-micro-batch"


async def _drip(
    namesrv: str, topic: str, queues: int, over: threading.Event, ready: threading.Event
) -> None:
    """One message for each queue again and again, a few milliseconds apart."""
    async with Producer("drip", namesrv=namesrv) as producer:
        await Admin(client=producer.client).topics.create(topic, queues=queues)
        places = await producer.publish_queues(topic)
        number = 0
        while not over.is_set():
            async with trio.open_nursery() as nursery:
                for place in places[: queues if queues < 64 else 64]:
                    nursery.start_soon(
                        partial(producer.send, Message(topic, b"x" * 100), queue=place)
                    )
            number += 1
            ready.set()
            await trio.sleep(0.02)


def _triggers(frame: DataFrame, count: int) -> float:
    """Median milliseconds of a trigger with rows, after some to get warm."""
    with tempfile.TemporaryDirectory() as checkpoint:
        query = (
            frame.writeStream.format("noop")
            .option("checkpointLocation", checkpoint)
            .trigger(processingTime="0 seconds")
            .start()
        )
        try:
            deadline = time.monotonic() + 60
            found: list[int] = []
            while len(found) < count + WARM and time.monotonic() < deadline:
                if query.exception() is not None:
                    raise RuntimeError(str(query.exception()))
                found = [
                    item["durationMs"]["triggerExecution"]
                    for item in query.recentProgress
                    if item["numInputRows"]
                ]
                time.sleep(0.1)
        finally:
            query.stop()
    if len(found) <= WARM:
        raise RuntimeError(f"only {len(found)} triggers with rows in a minute")
    return statistics.median(found[WARM:])


def _queues(spark: SparkSession, namesrv: str, queues: int, count: int) -> float:
    over, ready = threading.Event(), threading.Event()
    topic = f"drip-{queues}"
    dripping = threading.Thread(target=trio.run, args=(_drip, namesrv, topic, queues, over, ready))
    dripping.start()
    try:
        if not ready.wait(30):
            raise RuntimeError("no message could be sent")
        return _triggers(
            spark.readStream.format("rocketmq")
            .options(namesrvAddr=namesrv, subscribe=topic)
            .load(),
            count,
        )
    finally:
        over.set()
        dripping.join()


def run(report: Report, scale: float) -> None:
    """One round."""
    count = max(8, int(TRIGGERS * scale))
    for sockets in ("true", "false"):
        kind = "Unix sockets" if sockets == "true" else "TCP"
        with broker_process() as namesrv:
            spark = local_session(2, spark__python__unix__domain__socket__enabled=sockets)
            try:
                spark.sparkContext.setLogLevel("OFF")
                rate = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 10).load()
                report.add(f"{BASE} ({kind})", "ms", _triggers(rate, count))
                for queues in QUEUES if sockets == "true" else (1,):
                    base = f"{BASE} ({kind})" if queues == 1 else f"spark trigger, 1 queue ({kind})"
                    name = f"spark trigger, {queues} queue{'s' * (queues > 1)} ({kind})"
                    report.add(name, "ms", _queues(spark, namesrv, queues, count), base)
            finally:
                spark.stop()
