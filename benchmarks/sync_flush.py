"""Sends acknowledged once they are on disk, client and broker in two processes.

Eight at a time, like Apache's in `apache.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio

from benchmarks.sending import many_tasks
from benchmarks.workers import broker_process
from rocketmq_sdk import Admin, Producer

if TYPE_CHECKING:
    from benchmarks.harness import Report

TASKS = 8
COUNT = 6_000


async def measure(namesrv: str, report: Report, scale: float, name: str) -> None:
    """Warm up and measure the broker at `namesrv`, which has SYNC_FLUSH.

    The figure gets the given name.
    """
    async with Producer("bench", namesrv=namesrv) as producer:
        await Admin(client=producer.client).topics.create("synced", queues=4)
        await many_tasks(producer, "synced", max(400, int(COUNT * scale)), TASKS)
        report.add(
            name, "/s", await many_tasks(producer, "synced", max(400, int(COUNT * scale)), TASKS)
        )


def run(report: Report, scale: float) -> None:
    """One round."""
    with broker_process("--set", "flushDiskType=SYNC_FLUSH") as namesrv:
        trio.run(measure, namesrv, report, scale, "sync flush, 8 at a time")
