"""What clients notice of a broker in trouble: `python -m tools.failover [--java]`, in
the directory `tests`.

Two brokers of ours run in processes of their own, each with a topic of four queues.
Then the second one is stopped with SIGSTOP, killed with SIGKILL, or becomes a black
hole: its port takes no connection and refuses none. A producer with its default
settings sends 60 messages one after another, with 50 ms between two, from just before
the trouble; a simple consumer receives what the healthy broker has. Prints a table.
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
from typing import TYPE_CHECKING

import trio

from rocketmq_sdk import (
    Client,
    ConsumeFrom,
    Message,
    Producer,
    RocketMQError,
    SimpleConsumer,
)
from rocketmq_sdk.client.api.topics import create_topic
from rocketmq_sdk.model.route import split_address
from rocketmq_sdk.protocol.bodies.topics import TopicConfig
from support import java
from support.processes import BrokerProcess
from support.programs import ProgramError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

SENDS = 60
PAUSE = 0.05
WARM = 10
TOPIC = "orders"
TROUBLES = ("stopped", "killed", "black hole")


class Pair:
    """Two brokers, and trouble for the second one."""

    def __init__(self, stack: ExitStack) -> None:
        self.first = BrokerProcess()
        self.first.start()
        stack.callback(self.first.stop)
        self.namesrv = self.first.namesrv
        self.second = BrokerProcess(
            settings={"namesrvAddr": self.namesrv, "brokerName": "broker-b"}
        )
        self.second.start()
        stack.callback(self._end_second)
        self._stack = stack

    def _end_second(self) -> None:
        process = self.second.process
        assert process is not None
        with suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGCONT)
        process.kill()
        process.wait()

    def make(self, trouble: str) -> None:
        process = self.second.process
        assert process is not None
        if trouble == "stopped":
            os.kill(process.pid, signal.SIGSTOP)
            return
        process.kill()
        process.wait()
        if trouble == "black hole":
            self._swallow(self.second.address)

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


async def prepare(pair: Pair) -> None:
    """The topic on both brokers."""
    async with Client(pair.namesrv) as client:
        for address in (pair.first.address, pair.second.address):
            config = TopicConfig(TOPIC, read_queue_nums=4, write_queue_nums=4)
            await create_topic(client, address, config)
        with trio.fail_after(60):
            while len((await client.route(TOPIC, refresh=True)).broker_datas) < 2:
                await trio.sleep(0.05)


async def measure(pair: Pair, trouble: str, send: Callable[[int], Awaitable[object]]) -> str:
    """Send before and after the trouble; gives the columns of a row."""
    failed, times = 0, []
    for number in range(WARM):
        await send(number)
    pair.make(trouble)
    for number in range(SENDS):
        began = time.perf_counter()
        try:
            await send(number)
        except (RocketMQError, ProgramError):
            failed += 1
        times.append(time.perf_counter() - began)
        await trio.sleep(PAUSE)
    times.sort()
    p99 = times[int(len(times) * 0.99) - 1]
    return f"{failed:2d} of {SENDS} | {times[-1]:.2f} s | {p99:.2f} s"


async def ours(trouble: str) -> str:
    """Our producer, and our simple consumer at what the healthy broker has."""
    with ExitStack() as stack:
        pair = Pair(stack)
        await prepare(pair)
        async with (
            Producer("pg", namesrv=pair.namesrv) as producer,
            SimpleConsumer(
                "cg",
                namesrv=pair.namesrv,
                subscriptions={TOPIC: "*"},
                consume_from=ConsumeFrom.FIRST_OFFSET,
            ) as consumer,
        ):
            row = await measure(
                pair, trouble, lambda number: producer.send(Message(TOPIC, b"%d" % number))
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


async def of_java(trouble: str) -> str:
    """Apache's producer."""
    with ExitStack() as stack:
        pair = Pair(stack)
        await prepare(pair)
        driver = java.Driver()
        stack.callback(driver.close)
        await driver.do("producer", id="p", group="pg", namesrv=pair.namesrv)

        async def send(number: int) -> None:
            await driver.do("send", id="p", topic=TOPIC, body=str(number))

        return f"{await measure(pair, trouble, send)} | -"


async def run(*, with_java: bool) -> None:
    print("| client | second broker | failed | worst | p99 | simple consumer |")
    print("|---|---|---|---|---|---|")
    for trouble in TROUBLES:
        print(f"| ours | {trouble} | {await ours(trouble)} |", flush=True)
        if with_java:
            print(f"| Java | {trouble} | {await of_java(trouble)} |", flush=True)


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description="Sends while one of two brokers is in trouble.")
    parser.add_argument("--java", action="store_true", help="Apache's Java client beside ours")
    options = parser.parse_args()
    if options.java and (reason := java.why_not()):
        parser.error(f"--java: {reason}")
    logging.disable(logging.CRITICAL)
    trio.run(lambda: run(with_java=options.java))
    return 0


if __name__ == "__main__":
    sys.exit(main())
