"""Benchmarks that stay, so that two trees can be compared in short turns.

`python -m benchmarks --against TREE --turns 40` starts each of them once for each tree,
in a process that does a turn whenever it is told to. The code of this module is always
that of this tree; what it measures is the package of the tree that started it.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from itertools import count
from typing import Final

import trio

from benchmarks.consume import backlog, consume
from benchmarks.harness import percentile
from benchmarks.pace import moments
from benchmarks.processor import processor_seconds
from benchmarks.sending import in_flight, one_at_a_time
from benchmarks.simple import fill, take_simply
from benchmarks.workers import Broker, broker_process
from rocketmq_sdk import Admin, EmbeddedBroker, Message, Producer, PushConsumer, ReceivedMessage

Figures = dict[str, tuple[str, float]]
"""Unit and value of each figure of a turn, by name."""

Turn = Callable[[float], Awaitable[Figures]]
"""Does one turn, whose number of messages is multiplied by the argument."""

RATE: Final = 1_000
"""Messages in a second where latency is measured."""
MEMORY_LIMIT: Final = 2**31


class _Spent:
    """Processor time from now on, of this process and of its broker.

    Other work on the machine makes everything wait, but hardly any of this dearer.
    """

    def __init__(self, broker: Broker | None = None) -> None:
        self._broker = broker
        self._client, self._server = time.process_time(), self._of_broker()

    def _of_broker(self) -> float:
        return 0.0 if self._broker is None else processor_seconds(self._broker.process)

    def figures(self, name: str, messages: int) -> Figures:
        """What each of so many messages has taken."""
        client, server = time.process_time() - self._client, self._of_broker() - self._server
        if self._broker is None:
            return {f"{name}, processor": ("us", client / messages * 1e6)}
        return {
            f"{name}, client's processor": ("us", client / messages * 1e6),
            f"{name}, broker's processor": ("us", server / messages * 1e6),
        }


@asynccontextmanager
async def in_process() -> AsyncIterator[Turn]:
    async with (
        EmbeddedBroker(memory_limit=MEMORY_LIMIT) as broker,
        Producer("bench", namesrv=broker) as producer,
    ):

        async def turn(scale: float) -> Figures:
            name, spent = "in-process send, one at a time", _Spent()
            times = await one_at_a_time(producer, "turns", int(2_000 * scale))
            figures = {name: ("us", percentile(times, 0.5) * 1e6)}
            figures |= spent.figures(name, len(times))
            rate = await in_flight(producer, "turns", int(6_000 * scale), 64)
            return {**figures, "in-process send, 64 in flight": ("/s", rate)}

        yield turn


@asynccontextmanager
async def loopback() -> AsyncIterator[Turn]:
    with broker_process() as namesrv:
        async with Producer("bench", namesrv=namesrv) as producer:
            await Admin(client=producer.client).topics.create("turns", queues=4)

            async def turn(scale: float) -> Figures:
                name, spent = "tcp send, one at a time", _Spent(namesrv)
                times = await one_at_a_time(producer, "turns", int(500 * scale))
                figures = {name: ("us", percentile(times, 0.5) * 1e6)}
                figures |= spent.figures(name, len(times))
                for depth, many in ((16, 6_000), (256, 15_000)):
                    rate = await in_flight(producer, "turns", int(many * scale), depth)
                    figures[f"tcp send, {depth} in flight"] = ("/s", rate)
                return figures

            yield turn


@asynccontextmanager
async def consuming() -> AsyncIterator[Turn]:
    with broker_process() as namesrv:
        stored, groups = await backlog(namesrv, 20_000), count()

        async def turn(_scale: float) -> Figures:
            one = await consume(namesrv, f"turn{next(groups)}", stored, 1)
            many = await consume(namesrv, f"turn{next(groups)}", stored, 32)
            return {
                "consume a backlog, one message at a time": ("/s", one),
                "consume a backlog, batch listener of 32": ("/s", many),
            }

        yield turn


@asynccontextmanager
async def simple() -> AsyncIterator[Turn]:
    merged, written = (f"enablePopBufferMerge={merge}" for merge in ("true", "false"))
    with broker_process("--set", merged) as quick, broker_process("--set", written) as plain:
        for namesrv in (quick, plain):
            await fill(namesrv, 10_000)
        groups = count()

        async def turn(_scale: float) -> Figures:
            group, spent = f"turn{next(groups)}", _Spent(quick)
            many = await take_simply(quick, f"{group}-many", 10_000, single=False)
            figures = spent.figures("receive(32), batch ack, merged", 10_000)
            spent = _Spent(plain)
            one = await take_simply(plain, f"{group}-one", 5_000, single=True)
            return {
                "simple consumer, receive(32), batch ack, merged": ("/s", many),
                **figures,
                "simple consumer, single acks, not merged": ("/s", one),
                **spent.figures("single acks, not merged", 5_000),
            }

        yield turn


@asynccontextmanager
async def latency() -> AsyncIterator[Turn]:
    times: list[float] = []
    arrived = trio.Event()

    async def listener(message: ReceivedMessage) -> None:
        times.append(time.perf_counter() - float(message.body))
        arrived.set()

    with broker_process() as namesrv:
        async with Producer("bench", namesrv=namesrv) as producer:
            await Admin(client=producer.client).topics.create("turns", queues=4)
            async with PushConsumer(
                "bench", namesrv=namesrv, subscriptions={"turns": "*"}, listener=listener
            ) as consumer:
                while sum(queue.topic == "turns" for queue in consumer.statistics().queues) < 4:
                    await trio.sleep(0.05)

                async def turn(scale: float) -> Figures:
                    nonlocal arrived
                    times.clear()
                    name, spent = "end to end at 1,000/s", _Spent(namesrv)
                    most = int(2_000 * scale)
                    async with moments(most, RATE) as due:
                        async for _moment in due:
                            producer.submit(Message("turns", b"%.9f" % time.perf_counter()))
                    with trio.fail_after(60):
                        while len(times) < most:
                            arrived = trio.Event()
                            await arrived.wait()
                    return {
                        f"{name}, p50": ("us", percentile(times, 0.5) * 1e6),
                        f"{name}, p99": ("us", percentile(times, 0.99) * 1e6),
                        **spent.figures(name, most),
                    }

                yield turn


RESIDENT: Final[dict[str, Callable[[], AbstractAsyncContextManager[Turn]]]] = {
    "in_process": in_process,
    "loopback": loopback,
    "consume": consuming,
    "simple": simple,
    "latency": latency,
}
"""The benchmarks that can stay."""


async def _serve(name: str, scale: float) -> None:
    async with RESIDENT[name]() as turn:
        await turn(scale)  # not told: caches and pools fill
        print("ready", flush=True)
        for _line in sys.stdin:
            print(json.dumps(await turn(scale)), flush=True)


def serve(name: str, scale: float) -> None:
    """Do a turn for each line of standard input, until it ends."""
    trio.run(_serve, name, scale)
