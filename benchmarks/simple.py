"""How fast simple consumers and lite pull consumers take a backlog over TCP.

"merged" is a broker that keeps pops and acknowledgements in memory as long as it may
(`enablePopBufferMerge`), which is its way of being quick; "not merged" writes each of
them, as Apache's does by default.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import trio

from benchmarks.sending import batches
from benchmarks.workers import broker_process
from rocketmq_sdk import (
    Admin,
    ConsumeFrom,
    LitePullConsumer,
    PoppedMessage,
    Producer,
    SimpleConsumer,
)

if TYPE_CHECKING:
    from benchmarks.harness import Report

TASKS = 4
"""Receives under way at a time."""
ACKS = 32
"""Single acknowledgements under way for each of them."""
WARM = 20_000
"""Messages that a group takes before one is measured, on the same broker.

As many as Java's group takes for its own warm-up.
"""


async def take_simply(namesrv: str, group: str, count: int, *, single: bool) -> float:
    """Messages per second from the first answer to the last acknowledgement.

    A receive that still waits then does not count.
    """
    taken = 0
    first = last = 0.0

    async with SimpleConsumer(
        group,
        namesrv=namesrv,
        subscriptions={"backlog": "*"},
        consume_from=ConsumeFrom.FIRST_OFFSET,
        await_duration=1,
    ) as consumer:

        async def acknowledge(messages: list[PoppedMessage]) -> None:
            if not single:
                await consumer.batch_ack(messages)
                return
            async with trio.open_nursery() as nursery:
                for message in messages[:ACKS]:
                    nursery.start_soon(consumer.ack, message)

        async def work() -> None:
            nonlocal taken, first, last
            while taken < count:
                messages = await consumer.receive(32, 60)
                first = first or time.perf_counter()
                taken += len(messages)
                if messages:
                    await acknowledge(messages)
                    last = time.perf_counter()

        with trio.fail_after(300):
            async with trio.open_nursery() as nursery:
                for _ in range(TASKS):
                    nursery.start_soon(work)
        return taken / (last - first)


async def _lite_pull(namesrv: str, count: int) -> float:
    taken = 0
    async with LitePullConsumer(
        "lite",
        namesrv=namesrv,
        subscriptions={"backlog": "*"},
        consume_from=ConsumeFrom.FIRST_OFFSET,
        pull_batch_size=32,
    ) as consumer:
        with trio.fail_after(300):
            messages = await consumer.poll(60)
            consumer.done(*messages)  # one that is not done stops its queue at the thresholds
            taken = already = len(messages)
            first = time.perf_counter()
            while taken < count:
                messages = await consumer.poll()
                taken += len(messages)
                consumer.done(*messages)
        return (taken - already) / (time.perf_counter() - first)


async def fill(namesrv: str, count: int) -> None:
    """Send the messages that groups take."""
    async with Producer("bench", namesrv=namesrv) as producer:
        await Admin(client=producer.client).topics.create("backlog", queues=4)
        await batches(producer, "backlog", count, 100)


def run(report: Report, scale: float) -> None:
    """One round."""
    count = int(100_000 * scale) // 100 * 100
    with broker_process("--set", "enablePopBufferMerge=true") as namesrv:
        trio.run(fill, namesrv, count)
        trio.run(lambda: take_simply(namesrv, "warm", min(WARM, count), single=False))
        rate = trio.run(lambda: take_simply(namesrv, "batch", count, single=False))
        report.add(
            "simple consumer, receive(32), batch ack, merged",
            "/s",
            rate,
            "java, pop(32), batch ack, merged",
        )
        report.add("lite pull consumer, backlog", "/s", trio.run(_lite_pull, namesrv, count))
    with broker_process("--set", "enablePopBufferMerge=false") as namesrv:
        trio.run(fill, namesrv, count // 4)
        trio.run(lambda: take_simply(namesrv, "warm", min(WARM, count // 4), single=True))
        rate = trio.run(lambda: take_simply(namesrv, "single", count // 4, single=True))
        report.add(
            "simple consumer, single acks, not merged",
            "/s",
            rate,
            "java, pop(32), single acks, not merged",
        )
