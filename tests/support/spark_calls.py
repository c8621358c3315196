"""The source and the sink without Spark: what their tasks do, called directly."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import trio

from rocketmq_sdk.spark.cluster import bridge
from rocketmq_sdk.spark.cluster.access import ClusterAccess
from rocketmq_sdk.spark.options.parsing import parse
from rocketmq_sdk.spark.options.table import Use
from rocketmq_sdk.spark.read.batch import TaskReader
from rocketmq_sdk.spark.read.edges import batch_ranges
from rocketmq_sdk.spark.schema import BY_NAME
from rocketmq_sdk.spark.write.rows import RowMaker
from rocketmq_sdk.spark.write.send_plan import SendPlan
from rocketmq_sdk.spark.write.sending import Tally, send_all
from rocketmq_sdk.spark.write.visible import until_visible

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


def written(options: Mapping[str, str], bodies: Sequence[bytes]) -> int:
    """Write rows as one task does and wait for the queues as its commit does; how many
    rows were acknowledged.
    """
    settings = parse({"retryTimeout": "20s", **options}, Use.SINK)
    access = ClusterAccess.of(settings)
    made = RowMaker(
        ["body"],
        topic=settings.topic,
        scope="s",
        partition=0,
        max_body=1 << 20,
        skip_bad=False,
        next_ids=lambda count: [f"{number:032X}" for number in range(count)],
    )
    tally = Tally()

    async def send() -> None:
        sending, receiving = trio.open_memory_channel[Any](10)
        async with sending:
            for part in made.parts(pa.RecordBatch.from_arrays([pa.array(bodies)], ["body"])):
                await sending.send(part)
        await send_all(receiving, SendPlan.of(settings, access), tally)
        await until_visible(access, tally.ends)

    bridge.run(send, timeout=60)
    return tally.acknowledged


def read(options: Mapping[str, str], **more: str) -> list[bytes]:
    """The bodies that a batch gives, in order."""
    settings = parse({"retryTimeout": "2s", **options, **more}, Use.BATCH)
    ranges = bridge.run(batch_ranges, settings, timeout=60)
    found: list[bytes] = []
    for batch in TaskReader(settings, [BY_NAME["body"]]).read(ranges):
        found += batch.column(0).to_pylist()
    return sorted(found)
