"""The doors for asyncio and for threads beside the one for trio, in the same run.

Sends one at a time and many under way, in process and over TCP, and consumption of a
backlog over TCP.
"""

from __future__ import annotations

import asyncio
import gc
import threading
import time
from collections import deque
from statistics import median
from typing import TYPE_CHECKING

import trio

from benchmarks.consume import backlog, consume
from benchmarks.sending import BODY, in_flight, one_at_a_time
from benchmarks.workers import broker_process
from rocketmq_sdk import ConsumeFrom, EmbeddedBroker, Message, Producer, aio, sync

if TYPE_CHECKING:
    from benchmarks.harness import Report
    from rocketmq_sdk import ReceivedMessage

DEPTH = 256
MEMORY_LIMIT = 2**31
TURNS = 5
"""Turns of each door in a round."""


def _add(report: Report, door: str, where: str, times: list[float], rate: float) -> None:
    """The figures of one door; those of trio are what the others are divided by."""
    one, many = f"{where} send, one at a time, p50", f"{where} send, {DEPTH} in flight"
    beside = door != "trio"
    microseconds = median(times) * 1e6
    report.add(f"{door}, {one}", "us", microseconds, f"trio, {one}" if beside else None)
    report.add(f"{door}, {many}", "/s", rate, f"trio, {many}" if beside else None)


async def _sends(namesrv: str | None, count: int) -> tuple[list[float], float]:
    """Sends on trio: to a broker over TCP, else to one in the process."""
    if namesrv is None:
        async with (
            EmbeddedBroker(memory_limit=MEMORY_LIMIT) as broker,
            Producer("bench", namesrv=broker) as inside,
        ):
            return await _measured(inside, count)
    async with Producer("bench", namesrv=namesrv) as producer:
        return await _measured(producer, count)


async def _measured(producer: Producer, count: int) -> tuple[list[float], float]:
    await one_at_a_time(producer, "doors", count // 20)
    times = await one_at_a_time(producer, "doors", count // 5)
    return times, await in_flight(producer, "doors", count, DEPTH)


# --- asyncio


async def aio_sends(namesrv: str | None, count: int) -> tuple[list[float], float]:
    """The same in asyncio."""
    if namesrv is None:
        async with (
            aio.EmbeddedBroker(memory_limit=MEMORY_LIMIT) as broker,
            aio.Producer("bench", namesrv=broker) as inside,
        ):
            return await _aio_measured(inside, count)
    async with aio.Producer("bench", namesrv=namesrv) as producer:
        return await _aio_measured(producer, count)


async def _aio_measured(producer: aio.Producer, count: int) -> tuple[list[float], float]:
    await _aio_one_at_a_time(producer, count // 20)
    times = await _aio_one_at_a_time(producer, count // 5)
    begin = time.perf_counter()
    handles: deque[aio.SendHandle] = deque()
    for _ in range(count):
        handles.append(producer.submit(Message("doors", BODY)))
        if len(handles) >= DEPTH:
            await handles.popleft()
            while handles and handles[0].done:
                handles.popleft()
    for handle in handles:
        await handle
    await producer.flush()
    return times, count / (time.perf_counter() - begin)


async def _aio_one_at_a_time(producer: aio.Producer, count: int) -> list[float]:
    times: list[float] = []
    for _ in range(count):
        begin = time.perf_counter()
        await producer.send(Message("doors", BODY))
        times.append(time.perf_counter() - begin)
    return times


async def aio_consume(namesrv: str, group: str, count: int) -> float:
    """Messages per second of a listener in asyncio that only counts."""
    consumed, first = 0, 0.0
    finished = asyncio.Event()

    async def listener(_message: ReceivedMessage) -> None:
        nonlocal consumed, first
        if not consumed:
            first = time.perf_counter()
        consumed += 1
        if consumed >= count:
            finished.set()

    async with aio.PushConsumer(
        group,
        namesrv=namesrv,
        subscriptions={"backlog": "*"},
        listener=listener,
        consume_from=ConsumeFrom.FIRST_OFFSET,
    ):
        async with asyncio.timeout(120):
            await finished.wait()
        return count / (time.perf_counter() - first)


# --- threads


def sync_sends(namesrv: str | None, count: int) -> tuple[list[float], float]:
    """The same from a thread."""
    if namesrv is None:
        with (
            sync.EmbeddedBroker(memory_limit=MEMORY_LIMIT) as broker,
            sync.Producer("bench", namesrv=broker) as inside,
        ):
            return _sync_measured(inside, count)
    with sync.Producer("bench", namesrv=namesrv) as producer:
        return _sync_measured(producer, count)


def _sync_measured(producer: sync.Producer, count: int) -> tuple[list[float], float]:
    _sync_one_at_a_time(producer, count // 20)
    times = _sync_one_at_a_time(producer, count // 5)
    begin = time.perf_counter()
    handles: deque[sync.SendHandle] = deque()
    for _ in range(count):
        handles.append(producer.submit(Message("doors", BODY)))
        if len(handles) >= DEPTH:
            handles.popleft().result()
            while handles and handles[0].done():
                handles.popleft()
    for handle in handles:
        handle.result()
    producer.flush()
    return times, count / (time.perf_counter() - begin)


def _sync_one_at_a_time(producer: sync.Producer, count: int) -> list[float]:
    times: list[float] = []
    for _ in range(count):
        begin = time.perf_counter()
        producer.send(Message("doors", BODY))
        times.append(time.perf_counter() - begin)
    return times


def sync_consume(namesrv: str, group: str, count: int) -> float:
    """Messages per second of a plain listener that only counts."""
    lock, finished = threading.Lock(), threading.Event()
    consumed, first = 0, 0.0

    def listener(_message: ReceivedMessage) -> None:
        nonlocal consumed, first
        with lock:
            if not consumed:
                first = time.perf_counter()
            consumed += 1
        if consumed >= count:
            finished.set()

    with sync.PushConsumer(
        group,
        namesrv=namesrv,
        subscriptions={"backlog": "*"},
        listener=listener,
        consume_from=ConsumeFrom.FIRST_OFFSET,
    ):
        if not finished.wait(120):
            raise TimeoutError(f"{consumed} of {count} messages came")
        return count / (time.perf_counter() - first)


def run(report: Report, scale: float) -> None:
    """One round: the doors by turns, so that all of them meet the same machine."""
    count = int(30_000 * scale) // TURNS
    # A full collection goes through all that is loaded, 25 ms in a turn of 70: the door
    # that met more of them would be the slower one.
    gc.collect()
    gc.freeze()
    _by_turns(report, "in-process", None, count)
    with broker_process() as namesrv:
        _by_turns(report, "tcp", namesrv, count)
        stored = trio.run(backlog, namesrv, int(100_000 * scale) // TURNS)
        rates: dict[str, list[float]] = {"trio": [], "aio": [], "sync": []}
        for turn in range(TURNS):
            rates["trio"].append(trio.run(consume, namesrv, f"trio{turn}", stored, 1))
            rates["aio"].append(asyncio.run(aio_consume(namesrv, f"aio{turn}", stored)))
            rates["sync"].append(sync_consume(namesrv, f"sync{turn}", stored))
        figure = "consume a backlog, one message at a time"
        for door, measured in rates.items():
            beside = None if door == "trio" else f"trio, {figure}"
            report.add(f"{door}, {figure}", "/s", median(measured), beside)
    gc.unfreeze()


def _by_turns(report: Report, where: str, namesrv: str | None, count: int) -> None:
    sends: dict[str, list[tuple[list[float], float]]] = {"trio": [], "aio": [], "sync": []}
    for _ in range(TURNS):
        sends["trio"].append(trio.run(_sends, namesrv, count))
        sends["aio"].append(asyncio.run(aio_sends(namesrv, count)))
        sends["sync"].append(sync_sends(namesrv, count))
    for door, measured in sends.items():
        times = [median(turn) for turn, _ in measured]
        _add(report, door, where, times, median(rate for _, rate in measured))
