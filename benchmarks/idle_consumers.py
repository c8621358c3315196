"""What idle consumers cost.

Each is a member of a group of its own, with a client and connections of its own, on one
broker. Then all share one client, as consumers of one process share connections in
Apache's Java client by default. Counted are the processor time of both processes and
the growth of their resident memory, divided by the number of consumers.
"""

from __future__ import annotations

import os
import resource
import time
from functools import partial
from pathlib import Path
from typing import Any

import trio

from benchmarks.harness import Report
from benchmarks.workers import broker_process
from rocketmq_sdk import (
    Admin,
    Client,
    LitePullConsumer,
    Producer,
    PushConsumer,
    ReceivedMessage,
    SimpleConsumer,
)

CONSUMERS = 1_000
OPENING = 20
"""Consumers that start at a time."""
REST = 30.0
"""Seconds that are measured: one heartbeat, two pulls and six commits of each."""


def _resident(process: int) -> int:
    """Bytes of a process that are in memory."""
    return int(Path(f"/proc/{process}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def _processor_seconds(process: int) -> float:
    """Processor time that a process has used."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def _ignore(_message: ReceivedMessage) -> None:
    """Nothing comes."""


async def _rest(
    kind: str, place: dict[str, Any], number: int, opened: trio.MemorySendChannel[None]
) -> None:
    group, subscriptions = f"idle_{kind}_{number}", {"idle": "*"}
    if kind == "push":
        async with PushConsumer(
            group, **place, subscriptions=subscriptions, listener=_ignore, concurrency=1
        ):
            await opened.send(None)
            await trio.sleep_forever()
    elif kind == "lite pull":
        async with LitePullConsumer(
            group.replace(" ", "_"), **place, subscriptions=subscriptions
        ) as lite:
            await opened.send(None)
            while True:
                await lite.poll(15)
    else:
        async with SimpleConsumer(
            group, **place, subscriptions=subscriptions, await_duration=15
        ) as simple:
            await opened.send(None)
            while True:
                await simple.receive()


async def _measure(
    kind: str, namesrv: str, broker: int, report: Report, count: int, *, shared: bool
) -> None:
    async with Producer("bench", namesrv=namesrv) as producer:
        await Admin(client=producer.client).topics.create("idle", queues=1)
    if shared:
        async with Client(namesrv) as client:
            await _rests(
                kind,
                {"client": client},
                broker,
                report,
                count,
                name=f"idle {kind} consumer of a shared client",
            )
    else:
        await _rests(
            kind, {"namesrv": namesrv}, broker, report, count, name=f"idle {kind} consumer"
        )


async def _rests(
    kind: str, place: dict[str, Any], broker: int, report: Report, count: int, *, name: str
) -> None:
    memory = _resident(os.getpid()), _resident(broker)
    send, receive = trio.open_memory_channel[None](OPENING)
    async with trio.open_nursery() as nursery:
        with trio.fail_after(600):
            for first in range(0, count, OPENING):
                numbers = range(first, min(first + OPENING, count))
                for number in numbers:
                    nursery.start_soon(_rest, kind, place, number, send)
                for _ in numbers:
                    await receive.receive()
        await trio.sleep(5)
        spent = _processor_seconds(os.getpid()), _processor_seconds(broker)
        begin = time.perf_counter()
        await trio.sleep(REST)
        seconds = time.perf_counter() - begin
        client, server = (
            _processor_seconds(os.getpid()) - spent[0],
            _processor_seconds(broker) - spent[1],
        )
        report.add(f"{name}, processor, client", "% core", 100 * client / seconds / count)
        report.add(f"{name}, processor, broker", "% core", 100 * server / seconds / count)
        report.add(
            f"{name}, memory, client", "KiB", (_resident(os.getpid()) - memory[0]) / count / 1024
        )
        report.add(f"{name}, memory, broker", "KiB", (_resident(broker) - memory[1]) / count / 1024)
        nursery.cancel_scope.cancel()


def _in_a_process(
    kind: str, namesrv: str, broker: int, report: Report, count: int, *, shared: bool
) -> None:
    """Measure in a child process, so one kind does not inherit memory of another."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        own = Report()
        trio.run(partial(_measure, kind, namesrv, broker, own, count, shared=shared))
        with os.fdopen(writer, "w") as out:
            out.writelines(
                f"{name}\t{figure.unit}\t{figure.rounds[0]}\n"
                for name, figure in own.figures.items()
            )
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as lines:
        for line in lines:
            name, unit, value = line.rstrip("\n").split("\t")
            report.add(name, unit, float(value))
    _, status = os.waitpid(child, 0)
    if status:
        raise RuntimeError(f"measuring idle {kind} consumers failed")


def run(report: Report, scale: float) -> None:
    """One round."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    count = max(int(CONSUMERS * scale), 1)
    for kind in ("push", "simple", "lite pull"):
        for shared in (False, True):
            with broker_process() as namesrv:
                _in_a_process(kind, namesrv, namesrv.process, report, count, shared=shared)
