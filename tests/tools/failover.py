"""What clients notice of a broker in trouble: `python -m tools.failover [--java]
[--apache]`, in the directory `tests`.

Two brokers, ours or with `--apache` Apache's too, run in processes of their own, each
with a topic of four queues. Then the second one is stopped with SIGSTOP, killed with
SIGKILL, or becomes a black hole: its port takes no connection and refuses none. A
producer with its default settings sends 60 messages one after another, with 50 ms
between two, from just before the trouble. A push consumer has the topic since before
it; told is the longest time in which it got nothing although messages were stored. A
simple consumer of ours then receives what the healthy broker has. Prints a table.
"""

from __future__ import annotations

import argparse
import logging
import os
import signal
import socket
import sys
import time
from contextlib import ExitStack, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import trio

from rocketmq_sdk import (
    Client,
    ConsumeFrom,
    Message,
    Producer,
    PushConsumer,
    ReceivedMessage,
    RocketMQError,
    SimpleConsumer,
)
from rocketmq_sdk.client.api.topics import create_topic
from rocketmq_sdk.model.route import split_address
from rocketmq_sdk.protocol.bodies.topics import TopicConfig
from support import java
from support.ports import free_port
from support.processes import BrokerProcess
from support.programs import ProgramError

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Awaitable, Callable

SENDS = 60
PAUSE = 0.05
WARM = 10
TOPIC = "orders"
ON_THE_OTHER = WARM
"""At most so many messages may be stored at the second broker and out of reach."""
TROUBLES = ("stopped", "killed", "black hole")


class Pair:
    """Two brokers of ours, and trouble for the second one."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack
        self.namesrv, self.addresses, self._second = self._start()
        stack.callback(self._end_second)

    def _start(self) -> tuple[str, tuple[str, str], subprocess.Popen[Any]]:
        """Name server, addresses of both brokers, and the process of the second."""
        first = BrokerProcess()
        first.start()
        self._stack.callback(first.stop)
        second = BrokerProcess(settings={"namesrvAddr": first.namesrv, "brokerName": "broker-b"})
        second.start()
        assert second.process is not None
        return first.namesrv, (first.address, second.address), second.process

    def _end_second(self) -> None:
        with suppress(ProcessLookupError):
            os.kill(self._second.pid, signal.SIGCONT)
        self._second.kill()
        self._second.wait()

    def make(self, trouble: str) -> None:
        if trouble == "stopped":
            os.kill(self._second.pid, signal.SIGSTOP)
            return
        self._second.kill()
        self._second.wait()
        if trouble == "black hole":
            self._swallow(self.addresses[1])

    def _swallow(self, address: str) -> None:
        """Fill the queue of a port: Linux then drops what asks for a connection."""
        host, port = split_address(address)
        listener = self._stack.enter_context(socket.socket())
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(0)
        for _ in range(4):
            filler = self._stack.enter_context(socket.socket())
            filler.setblocking(False)
            filler.connect_ex((host, port))
        time.sleep(0.2)


class ApachePair(Pair):
    """Two brokers of Apache's."""

    def _start(self) -> tuple[str, tuple[str, str], subprocess.Popen[Any]]:
        home = Path(self._stack.enter_context(TemporaryDirectory()))
        first, second = (
            java.ApacheCluster(home / name, "", f"127.0.0.1:{free_port(-2, 1)}", {})
            for name in "ab"
        )
        first.namesrv = second.namesrv = f"127.0.0.1:{free_port()}"
        for cluster in (first, second):
            cluster.directory.mkdir()
            self._stack.callback(cluster.close)
        java.start_namesrv(first)
        java.start_broker(first)
        java.start_broker(second, brokerName="broker-b")
        process = second.processes.pop("broker")
        return first.namesrv, (first.broker, second.broker), process


async def prepare(pair: Pair) -> None:
    """The topic on both brokers."""
    async with Client(pair.namesrv) as client:
        for address in pair.addresses:
            config = TopicConfig(TOPIC, read_queue_nums=4, write_queue_nums=4)
            await create_topic(client, address, config)
        with trio.fail_after(60):
            while len((await client.route(TOPIC, refresh=True)).broker_datas) < 2:
                await trio.sleep(0.05)


class Gaps:
    """The longest time in which a consumer got nothing although it should have."""

    def __init__(self, count: Callable[[], Awaitable[int]]) -> None:
        self._count = count
        self.longest = 0.0
        self.seen = 0

    async def watch(self) -> None:
        """Look until cancelled."""
        last = time.perf_counter()
        while True:
            count, now = await self._count(), time.perf_counter()
            if count > self.seen:
                self.seen, last = count, now
            self.longest = max(self.longest, now - last)
            await trio.sleep(0.02)


async def measure(
    pair: Pair,
    trouble: str,
    send: Callable[[int], Awaitable[object]],
    count: Callable[[], Awaitable[int]],
) -> str:
    """Send before and after the trouble; gives the columns of a row."""
    failed, times = 0, []
    for number in range(WARM):
        await send(number)
    with trio.fail_after(60):
        while await count() < WARM:
            await trio.sleep(0.02)
    pair.make(trouble)
    gaps = Gaps(count)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(gaps.watch)
        for number in range(SENDS):
            began = time.perf_counter()
            try:
                await send(number)
            except (RocketMQError, ProgramError):
                failed += 1
            times.append(time.perf_counter() - began)
            await trio.sleep(PAUSE)
        with trio.move_on_after(30):
            while gaps.seen < WARM + SENDS - failed - ON_THE_OTHER:
                await trio.sleep(0.02)
        nursery.cancel_scope.cancel()
    times.sort()
    p99 = times[int(len(times) * 0.99) - 1]
    worst = f"{failed:2d} of {SENDS} | {times[-1]:.2f} s | {p99:.2f} s"
    return f"{worst} | {gaps.longest:.2f} s | {gaps.seen}"


async def ours(kind: type[Pair], trouble: str) -> str:
    """Our producer and consumers."""
    got = 0

    async def listener(_message: ReceivedMessage) -> None:
        nonlocal got
        got += 1

    async def count() -> int:
        return got

    with ExitStack() as stack:
        pair = await trio.to_thread.run_sync(kind, stack)
        await prepare(pair)
        subscriptions = {TOPIC: "*"}
        async with (
            Producer("pg", namesrv=pair.namesrv) as producer,
            PushConsumer(
                "push",
                namesrv=pair.namesrv,
                subscriptions=subscriptions,
                listener=listener,
                consume_from=ConsumeFrom.FIRST_OFFSET,
            ),
            SimpleConsumer(
                "simple",
                namesrv=pair.namesrv,
                subscriptions=subscriptions,
                consume_from=ConsumeFrom.FIRST_OFFSET,
            ) as consumer,
        ):
            row = await measure(
                pair, trouble, lambda number: producer.send(Message(TOPIC, b"%d" % number)), count
            )
            began, received, longest = time.perf_counter(), 0, 0.0
            while received < SENDS:
                asked = time.perf_counter()
                with suppress(RocketMQError):
                    received += len(await consumer.receive(4, await_duration=10))
                longest = max(longest, time.perf_counter() - asked)
                if time.perf_counter() - began > 60:
                    break
            rate = received / (time.perf_counter() - began)
        return f"{row} | {rate:.0f}/s, longest wait {longest:.2f} s"


async def of_java(kind: type[Pair], trouble: str) -> str:
    """Apache's producer and push consumer, with the settings that they have."""
    with ExitStack() as stack:
        pair = await trio.to_thread.run_sync(kind, stack)
        await prepare(pair)
        sender, taker = java.Driver(), java.Driver()
        stack.callback(sender.close)
        stack.callback(taker.close)
        await sender.do("producer", id="p", group="pg", namesrv=pair.namesrv, timeout=3000)
        await taker.do("consumer", id="c", group="push", topic=TOPIC, namesrv=pair.namesrv)

        async def send(number: int) -> None:
            await sender.do("send", id="p", topic=TOPIC, body=str(number))

        async def count() -> int:
            return int(await taker.do("count", id="c"))

        return f"{await measure(pair, trouble, send, count)} | -"


async def run(kinds: dict[str, type[Pair]], *, with_java: bool) -> None:
    print(
        "| brokers | second one | client | failed | worst | p99 | push consumer's longest gap | "
        "it got | simple consumer |"
    )
    print("|---|---|---|---|---|---|---|---|---|")
    for name, kind in kinds.items():
        for trouble in TROUBLES:
            print(f"| {name} | {trouble} | ours | {await ours(kind, trouble)} |", flush=True)
            if with_java:
                print(f"| {name} | {trouble} | Java | {await of_java(kind, trouble)} |", flush=True)


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description="Sends while one of two brokers is in trouble.")
    parser.add_argument("--java", action="store_true", help="Apache's Java client beside ours")
    parser.add_argument("--apache", action="store_true", help="two brokers of Apache's as well")
    options = parser.parse_args()
    if (options.java or options.apache) and (reason := java.why_not()):
        parser.error(f"Apache's software cannot run here: {reason}")
    logging.disable(logging.CRITICAL)
    kinds: dict[str, type[Pair]] = {"ours": Pair}
    if options.apache:
        kinds["Apache's"] = ApachePair
    trio.run(lambda: run(kinds, with_java=options.java))
    return 0


if __name__ == "__main__":
    sys.exit(main())
