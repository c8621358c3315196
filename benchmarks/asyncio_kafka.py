"""The door for asyncio beside aiokafka on Kafka, for orientation.

Needs Java and Maven, from which Kafka's broker comes (one node), and `aiokafka`, which
nothing else here needs: `pip install aiokafka`. Both sides at their defaults, where an
answer waits for no disk; both brokers on the machine that runs this, by turns. Sends
one at a time, 256 of them under way, and a backlog taken one message at a time.
"""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict, deque
from statistics import median
from typing import TYPE_CHECKING, Any, Final, TypeVar

import trio

from benchmarks.consume import backlog
from benchmarks.doors import DEPTH, aio_consume, aio_sends
from benchmarks.kafka_node import kafka
from benchmarks.sending import BODY
from benchmarks.workers import broker_process

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from benchmarks.harness import Report

TURNS: Final = 3
QUEUES: Final = 4
ONE: Final = "send, one at a time, p50"
MANY: Final = f"send, {DEPTH} in flight"
READ: Final = "consume a backlog, one message at a time"
SPENT: Final = "processor time of the client for a message of the backlog"
_Figure = TypeVar("_Figure")


async def _kafka_sends(address: str, count: int) -> tuple[list[float], float]:
    from aiokafka import AIOKafkaProducer

    producer = AIOKafkaProducer(bootstrap_servers=address)
    await producer.start()
    try:
        times: list[float] = []
        for number in range(count // 20 + count // 5):
            begin = time.perf_counter()
            await producer.send_and_wait("doors", BODY)
            if number >= count // 20:
                times.append(time.perf_counter() - begin)
        begin = time.perf_counter()
        waiting: deque[asyncio.Future[Any]] = deque()
        for _ in range(count):
            waiting.append(await producer.send("doors", BODY))
            if len(waiting) >= DEPTH:
                await waiting.popleft()
                while waiting and waiting[0].done():
                    waiting.popleft()
        for each in waiting:
            await each
        return times, count / (time.perf_counter() - begin)
    finally:
        await producer.stop()


async def _kafka_backlog(address: str, count: int) -> None:
    from aiokafka import AIOKafkaProducer

    async with AIOKafkaProducer(bootstrap_servers=address) as producer:
        sent = [await producer.send("backlog", BODY) for _ in range(count)]
        await asyncio.gather(*sent)


async def _kafka_consume(address: str, turn: int, count: int) -> float:
    from aiokafka import AIOKafkaConsumer

    consumer = AIOKafkaConsumer(
        "backlog", bootstrap_servers=address, group_id=f"turn{turn}", auto_offset_reset="earliest"
    )
    await consumer.start()
    try:
        async with asyncio.timeout(120):
            consumed, first = 0, 0.0
            async for _message in consumer:
                if not consumed:
                    first = time.perf_counter()
                consumed += 1
                if consumed >= count:
                    break
        return count / (time.perf_counter() - first)
    finally:
        await consumer.stop()


def _spent(work: Coroutine[Any, Any, _Figure]) -> tuple[_Figure, float]:
    """Run it; its result, and the processor seconds of this process."""
    began = time.process_time()
    result = asyncio.run(work)
    return result, time.process_time() - began


def run(report: Report, scale: float) -> None:
    """One round."""
    count = int(20_000 * scale)
    with kafka(QUEUES) as address, broker_process() as namesrv:
        stored = trio.run(backlog, namesrv, int(50_000 * scale))
        asyncio.run(_kafka_backlog(address, stored))
        sides: dict[str, defaultdict[str, list[float]]] = {
            "aiokafka": defaultdict(list),
            "aio": defaultdict(list),
        }
        for turn in range(TURNS):
            for side, sends, reads in (
                ("aiokafka", _kafka_sends(address, count), _kafka_consume(address, turn, stored)),
                ("aio", aio_sends(namesrv, count), aio_consume(namesrv, f"turn{turn}", stored)),
            ):
                figures = sides[side]
                (times, rate), _ = _spent(sends)
                figures[ONE].append(median(times) * 1e6)
                figures[MANY].append(rate)
                read, spent = _spent(reads)
                figures[READ].append(read)
                figures[SPENT].append(spent / stored * 1e6)
        for name, unit in ((ONE, "us"), (MANY, "/s"), (READ, "/s"), (SPENT, "us")):
            for side, figures in sides.items():
                beside = None if side == "aiokafka" else f"aiokafka, {name}"
                report.add(f"{side}, {name}", unit, median(figures[name]), beside)
