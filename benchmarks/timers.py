"""Timers over TCP: lateness and throughput.

How late 100,000 timers are that are due within a minute while others send, and how long
100,000 of one second take.
"""

from __future__ import annotations

import time
from collections import deque
from typing import TYPE_CHECKING

import trio

from benchmarks.sending import BODY
from benchmarks.workers import broker_process
from rocketmq_sdk import Admin, ConsumeFrom, Message, Producer, PushConsumer, ReceivedMessage

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.harness import Report

SIDE_RATE = 2000
IN_FLIGHT = 256
LEAD_MS = 4000


class Arrivals:
    """Lateness of what came, by the broker's clock.

    The time when it was stored in its real topic, against its due time.
    """

    def __init__(self, count: int) -> None:
        self.late: list[int] = []
        self.stored: list[int] = []
        self.count = count
        self.complete = trio.Event()

    async def take(self, messages: list[ReceivedMessage]) -> None:
        for message in messages:
            self.stored.append(message.store_timestamp)
            self.late.append(message.store_timestamp - int(message.properties["TIMER_DELIVER_MS"]))
        if len(self.late) >= self.count:
            self.complete.set()

    def percentile(self, share: float) -> float:
        return sorted(self.late)[min(len(self.late) - 1, int(len(self.late) * share))] / 1000


async def _submit(
    producer: Producer, topic: str, count: int, moment: Callable[[int], int]
) -> float:
    """Send timers, `IN_FLIGHT` at a time; gives the rate."""
    begin = time.perf_counter()
    handles = deque(
        producer.submit(Message(topic, BODY, deliver_at=moment(number)))
        for number in range(min(count, IN_FLIGHT))
    )
    for number in range(len(handles), count):
        await handles.popleft()
        handles.append(producer.submit(Message(topic, BODY, deliver_at=moment(number))))
    for handle in handles:
        await handle
    return count / (time.perf_counter() - begin)


async def _beside(producer: Producer, times: list[float]) -> None:
    """Ordinary sends at a steady rate, until cancelled."""
    begin = trio.current_time()
    async with trio.open_nursery() as nursery:

        async def one() -> None:
            started = time.perf_counter()
            await producer.send(Message("beside", BODY))
            times.append(time.perf_counter() - started)

        for number in range(1 << 40):
            await trio.sleep_until(begin + number / SIDE_RATE)
            nursery.start_soon(one)


async def _round(
    namesrv: str, report: Report, prefix: str, name: str, count: int, span_ms: int
) -> None:
    """`count` timers due evenly within a span, beside other sends.

    A span of 0 makes all due in one second.
    """
    topic = f"timers-{time.time_ns()}"
    arrivals, times = Arrivals(count), list[float]()
    async with (
        Producer("bench", namesrv=namesrv) as producer,
        Producer("beside", namesrv=namesrv) as other,
    ):
        await Admin(client=producer.client).topics.create(topic, queues=4)
        await Admin(client=other.client).topics.create("beside", queues=4)
        # Room for the sends themselves: the first moment comes after the last send.
        first = producer.client.clock.now_ms() + LEAD_MS + count // 8
        first -= first % 1000 - 500
        rate = await _submit(
            producer, topic, count, lambda number: first + number * span_ms // count
        )
        report.add(f"{prefix}timers sent, {IN_FLIGHT} in flight", "/s", rate)
        async with (
            PushConsumer(
                f"group-{topic}",
                namesrv=namesrv,
                subscriptions={topic: "*"},
                listener=arrivals.take,
                batch=32,
                consume_from=ConsumeFrom.FIRST_OFFSET,
            ),
            trio.open_nursery() as nursery,
        ):
            nursery.start_soon(_beside, other, times)
            with trio.fail_after((LEAD_MS + span_ms) / 1000 + 240):
                await arrivals.complete.wait()
            nursery.cancel_scope.cancel()
    times.sort()
    report.add(f"{prefix}timers {name}, earliest (below 0: early)", "s", min(arrivals.late) / 1000)
    report.add(f"{prefix}timers {name}, late p99", "s", arrivals.percentile(0.99))
    report.add(
        f"{prefix}timers {name}, other sends p99", "ms", times[int(len(times) * 0.99)] * 1000
    )
    if not span_ms:
        seconds = max(1, max(arrivals.stored) - min(arrivals.stored)) / 1000
        report.add(f"{prefix}timers {name}, all delivered within", "s", seconds)
        report.add(f"{prefix}timers {name}, delivered", "/s", count / seconds)


async def measure(namesrv: str, report: Report, scale: float, prefix: str = "") -> None:
    """Both measurements at a broker; `prefix` names it in the figures."""
    count = max(1000, int(100_000 * scale))
    await _round(
        namesrv, report, prefix, "over a minute", count, max(2000, int(60_000 * min(1.0, scale)))
    )
    await _round(namesrv, report, prefix, "of one second", count, 0)


def run(report: Report, scale: float) -> None:
    """One round."""
    with broker_process() as namesrv:
        trio.run(measure, namesrv, report, scale)
