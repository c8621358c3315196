"""Transactional sends, and batches joined by the producer, over TCP loopback.

Client and broker run in two processes.
"""

from __future__ import annotations

import gc
import time
from collections import deque
from typing import TYPE_CHECKING

import trio

from benchmarks.workers import broker_process
from rocketmq_sdk import Admin, Message, Producer, TransactionProducer, TransactionState

if TYPE_CHECKING:
    from benchmarks.harness import Report
    from rocketmq_sdk.model.received import ReceivedMessage
    from rocketmq_sdk.producer.gathered import AccumulatedHandle
    from rocketmq_sdk.producer.handle import SendHandle

BODY = bytes(100)
UNDER_WAY = 20_000


async def _unknown(_message: ReceivedMessage) -> TransactionState:
    return TransactionState.UNKNOWN


async def transactions(producer: TransactionProducer, topic: str, count: int, tasks: int) -> float:
    """Committed transactions per second, `tasks` at a time."""

    async def work(share: int) -> None:
        for _ in range(share):
            async with producer.transaction(Message(topic, BODY)):
                pass

    begin = time.perf_counter()
    async with trio.open_nursery() as nursery:
        for _ in range(tasks):
            nursery.start_soon(work, count // tasks)
    return count / (time.perf_counter() - begin)


async def accumulated(producer: Producer, topic: str, count: int) -> float:
    """Messages per second of a producer that joins them; each handle is awaited."""
    begin = time.perf_counter()
    handles: deque[SendHandle | AccumulatedHandle] = deque()
    for _ in range(count):
        handles.append(producer.submit(Message(topic, BODY)))
        if len(handles) >= UNDER_WAY:
            await handles.popleft()
            while handles and handles[0].done:
                handles.popleft().outcome()
    for handle in handles:
        await handle
    return count / (time.perf_counter() - begin)


async def _measure(namesrv: str, report: Report, scale: float) -> None:
    async with TransactionProducer("bench-tx", _unknown, namesrv=namesrv) as producer:
        await Admin(client=producer.client).topics.create("transactions", queues=4)
        await transactions(producer, "transactions", int(2_000 * scale), 64)
        for tasks in (1, 64):
            rate = await transactions(producer, "transactions", int(20_000 * scale), tasks)
            report.add(
                f"transactions, {tasks} at a time",
                "/s",
                rate,
                f"java, transactions, {tasks} at a time",
            )


async def _measure_accumulated(namesrv: str, report: Report, scale: float) -> None:
    async with Producer("bench-auto", namesrv=namesrv, auto_batch=True) as joining:
        await Admin(client=joining.client).topics.create("accumulated", queues=4)
        await accumulated(joining, "accumulated", int(50_000 * scale))
        gc.collect()
        gc.freeze()  # as the page of producers advises
        try:
            rate = await accumulated(joining, "accumulated", int(500_000 * scale))
        finally:
            gc.unfreeze()
        report.add("accumulated sends", "/s", rate, "java, accumulated sends")


def run(report: Report, scale: float) -> None:
    """One round, each half with a new broker."""
    for measure in (_measure, _measure_accumulated):
        with broker_process() as namesrv:
            trio.run(measure, namesrv, report, scale)
