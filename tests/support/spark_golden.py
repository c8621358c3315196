"""The checkpoint in `tests/spark/golden`, and a query that goes on from it. Run as a
program this makes the checkpoint anew.

Two queues of one topic hold 40 and 20 messages; the query reads 25 offsets at a time.
Its third batch is planned and not committed, as a kill leaves it.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import trio

from rocketmq_sdk import Admin, Message, MessageQueue, Producer
from support.paths import TESTS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TOPIC = "golden-checkpoint"
CHECKPOINT = TESTS / "spark" / "golden"


async def send(namesrv: str, begin: tuple[int, int], end: tuple[int, int]) -> None:
    """Messages up to an offset of each queue; bodies say queue and offset."""
    async with Producer("golden", namesrv=namesrv) as producer:
        await Admin(client=producer.client).topics.create(TOPIC, queues=2)
        for queue in (0, 1):
            for offset in range(begin[queue], end[queue]):
                await producer.send(
                    Message(TOPIC, b"%d-%d" % (queue, offset)),
                    queue=MessageQueue(TOPIC, "broker-a", queue),
                )


def read(spark: SparkSession, namesrv: str, checkpoint: Path, out: Path) -> list[int]:
    """Read all there is; how many rows each batch had."""
    source = spark.readStream.format("rocketmq").options(
        namesrvAddr=namesrv, subscribe=TOPIC, startingOffsets="earliest", maxOffsetsPerTrigger=25
    )

    def keep(frame: DataFrame, batch: int) -> None:
        frame.select("body").write.mode("append").parquet(str(out / str(batch)))

    query = (
        source.load()
        .writeStream.foreachBatch(keep)
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    if not query.awaitTermination(200):
        raise AssertionError("the query goes on")
    return [progress["numInputRows"] for progress in query.recentProgress]


def main() -> None:
    """Make the directory."""
    from rocketmq_sdk.spark import local_session
    from support.processes import broker_process

    with broker_process() as broker, tempfile.TemporaryDirectory() as text:
        trio.run(send, broker.namesrv, (0, 0), (40, 20))
        spark = local_session()
        checkpoint = Path(text) / "checkpoint"
        print(read(spark, broker.namesrv, checkpoint, Path(text) / "out"))
        spark.stop()
        (checkpoint / "commits" / "2").unlink()
        shutil.rmtree(CHECKPOINT, ignore_errors=True)
        shutil.copytree(checkpoint, CHECKPOINT, ignore=shutil.ignore_patterns(".*", "sources"))


if __name__ == "__main__":
    main()
