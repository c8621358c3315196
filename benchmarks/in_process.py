"""Sends to an embedded broker over the local channel, beside bare calls.

A bare call makes the same append.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import trio

from benchmarks.append import message
from benchmarks.sending import in_flight, one_at_a_time
from rocketmq_sdk import EmbeddedBroker, Producer
from rocketmq_sdk.broker_embedded.settings.config import BrokerConfig

if TYPE_CHECKING:
    from benchmarks.harness import Report


async def _bare_calls(broker: EmbeddedBroker, count: int) -> float:
    """Messages per second of bare in-process calls with the same append.

    The call is an async function that puts and passes one checkpoint, as trio demands.
    """
    store = broker.store

    async def call() -> None:
        store.put(message())
        await trio.lowlevel.checkpoint()

    begin = time.perf_counter()
    for _ in range(count):
        await call()
    return count / (time.perf_counter() - begin)


async def _measure(report: Report, scale: float) -> None:
    config, _ = BrokerConfig.from_properties("memoryLimit=2147483648")
    async with (
        EmbeddedBroker(config=config) as broker,
        Producer("bench", namesrv=broker) as producer,
    ):
        report.add("bare in-process call", "/s", await _bare_calls(broker, int(100_000 * scale)))
        await one_at_a_time(producer, "inproc", 2_000)
        times = await one_at_a_time(producer, "inproc", int(20_000 * scale))
        report.add(
            "in-process send, one at a time", "/s", len(times) / sum(times), "bare in-process call"
        )
        rate = await in_flight(producer, "inproc", int(60_000 * scale), 64)
        report.add("in-process send, 64 in flight", "/s", rate, "bare in-process call")


def run(report: Report, scale: float) -> None:
    """One round."""
    trio.run(_measure, report, scale)
