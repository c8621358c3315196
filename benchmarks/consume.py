"""How fast a push consumer takes a backlog over TCP.

Its listener only counts.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import trio

from benchmarks.sending import batches
from benchmarks.workers import broker_process
from rocketmq_sdk import Admin, ConsumeFrom, Producer, PushConsumer, ReceivedMessage

if TYPE_CHECKING:
    from benchmarks.harness import Report


async def consume(namesrv: str, group: str, count: int, batch: int) -> float:
    """Messages per second of a listener that only counts."""
    consumed = 0
    finished = trio.Event()
    first = 0.0

    async def one(_message: ReceivedMessage) -> None:
        nonlocal consumed, first
        if not consumed:
            first = time.perf_counter()
        consumed += 1
        if consumed >= count:
            finished.set()

    async def many(messages: list[ReceivedMessage]) -> None:
        nonlocal consumed, first
        if not consumed:
            first = time.perf_counter()
        consumed += len(messages)
        if consumed >= count:
            finished.set()

    options: dict[str, Any] = {"namesrv": namesrv, "consume_from": ConsumeFrom.FIRST_OFFSET}
    backlog = {"backlog": "*"}
    async with (
        PushConsumer(group, subscriptions=backlog, listener=one, **options)
        if batch == 1
        else PushConsumer(group, subscriptions=backlog, listener=many, batch=batch, **options)
    ):
        with trio.fail_after(120):
            await finished.wait()
        return count / (time.perf_counter() - first)


async def backlog(namesrv: str, count: int) -> int:
    """Store about `count` messages; how many."""
    count = count // 100 * 100
    async with Producer("bench", namesrv=namesrv) as producer:
        await Admin(client=producer.client).topics.create("backlog", queues=4)
        await batches(producer, "backlog", count, 100)
    return count


async def _measure(namesrv: str, report: Report, scale: float) -> None:
    count = await backlog(namesrv, int(200_000 * scale))
    report.add(
        "consume a backlog, one message at a time", "/s", await consume(namesrv, "one", count, 1)
    )
    report.add(
        "consume a backlog, batch listener of 32", "/s", await consume(namesrv, "many", count, 32)
    )


def run(report: Report, scale: float) -> None:
    """One round."""
    with broker_process() as namesrv:
        trio.run(_measure, namesrv, report, scale)
