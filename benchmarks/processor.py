"""Processor time of a message, client and broker apart, over TCP.

It hardly depends on what else runs, unlike a rate. Each figure is the least of some
slices: others can only add to it.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final

import trio

from benchmarks.consume import backlog, consume
from benchmarks.sending import batches, batches_in_flight, in_flight, many_tasks
from benchmarks.workers import broker_process
from rocketmq_sdk import Admin, Producer

if TYPE_CHECKING:
    from benchmarks.harness import Report
    from benchmarks.workers import Broker

SLICES: Final = 12
CONSUMERS: Final = 4
"""Groups that consume the same backlog one after the other, each with its start."""
Work = Callable[[Producer, int], Awaitable[float]]

WORKS: Final[dict[str, tuple[int, Work]]] = {
    "256 in flight": (4000, lambda producer, count: in_flight(producer, "cost", count, 256)),
    "64 tasks": (4000, lambda producer, count: many_tasks(producer, "cost", count, 64)),
    "batches of 100": (15_000, lambda producer, count: batches(producer, "cost", count, 100)),
    "batches of 100, 4 in flight": (
        15_000,
        lambda producer, count: batches_in_flight(producer, "cost", count, 100, 4),
    ),
}
"""Messages of a slice, and what sends them."""


def processor_seconds(process: int) -> float:
    """What another process has used so far, with threads that have ended (Linux)."""
    return time.clock_gettime(~process << 3 | 2)  # `clock_getcpuclockid`


async def _measure_consumers(broker: Broker, report: Report, scale: float) -> None:
    count = await backlog(broker, max(1000, int(40_000 * scale)))
    for batch, name in ((1, "one at a time"), (32, "by 32")):
        costs: list[tuple[float, float]] = []
        for number in range(CONSUMERS):
            client, served = time.process_time(), processor_seconds(broker.process)
            await consume(broker, f"cost-{batch}-{number}", count, batch)
            costs.append(
                (
                    (time.process_time() - client) / count * 1e6,
                    (processor_seconds(broker.process) - served) / count * 1e6,
                )
            )
        for side, values in zip(("client", "broker"), zip(*costs, strict=True), strict=True):
            report.add(f"processor: {side}, consumed {name}", "us", min(values))


async def _measure(broker: Broker, report: Report, scale: float) -> None:
    async with Producer("bench", namesrv=broker) as producer:
        await Admin(client=producer.client).topics.create("cost", queues=4)
        for name, (count, work) in WORKS.items():
            messages = max(500, int(count * scale))
            await work(producer, messages)
            costs: list[tuple[float, float]] = []
            for _ in range(SLICES):
                client, served = time.process_time(), processor_seconds(broker.process)
                await work(producer, messages)
                costs.append(
                    (
                        (time.process_time() - client) / messages * 1e6,
                        (processor_seconds(broker.process) - served) / messages * 1e6,
                    )
                )
            for side, values in zip(("client", "broker"), zip(*costs, strict=True), strict=True):
                report.add(f"processor: {side}, {name}", "us", min(values))
    await _measure_consumers(broker, report, scale)


def run(report: Report, scale: float) -> None:
    """One round."""
    with broker_process() as broker:
        trio.run(_measure, broker, report, scale)
