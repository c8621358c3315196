"""Ways to send many messages that several benchmarks share."""

from __future__ import annotations

import time
from collections import deque
from typing import TYPE_CHECKING

import trio

from rocketmq_sdk import Message, Producer

if TYPE_CHECKING:
    from rocketmq_sdk.producer.gathered import AccumulatedHandle
    from rocketmq_sdk.producer.handle import SendHandle

BODY = b"x" * 100


async def one_at_a_time(producer: Producer, topic: str, count: int) -> list[float]:
    """Seconds that each of `count` sends took."""
    times: list[float] = []
    for _ in range(count):
        begin = time.perf_counter()
        await producer.send(Message(topic, BODY))
        times.append(time.perf_counter() - begin)
    return times


async def in_flight(
    producer: Producer, topic: str, count: int, depth: int, body: bytes = BODY
) -> float:
    """Messages per second with `depth` submitted sends under way.

    Raises what one of them has failed by.
    """
    begin = time.perf_counter()
    handles: deque[SendHandle | AccumulatedHandle] = deque()
    for _ in range(count):
        handles.append(producer.submit(Message(topic, body)))
        if len(handles) >= depth:
            await handles.popleft()
            # the answers of one chunk arrive together: those that are there need no
            # waiting
            while handles and handles[0].done:
                handles.popleft()
    for handle in handles:
        await handle
    await producer.flush()  # raises the failure of one that nobody looked at
    return count / (time.perf_counter() - begin)


async def many_tasks(producer: Producer, topic: str, count: int, tasks: int) -> float:
    """Messages per second of `tasks` tasks that each await `send`."""

    async def sender() -> None:
        for _ in range(count // tasks):
            await producer.send(Message(topic, BODY))

    begin = time.perf_counter()
    async with trio.open_nursery() as nursery:
        for _ in range(tasks):
            nursery.start_soon(sender)
    return count // tasks * tasks / (time.perf_counter() - begin)


async def batches(producer: Producer, topic: str, count: int, size: int) -> float:
    """Messages per second in batches of `size`, one batch under way."""
    begin = time.perf_counter()
    for _ in range(count // size):
        await producer.send_batch([Message(topic, BODY) for _ in range(size)])
    return count // size * size / (time.perf_counter() - begin)


async def batches_in_flight(
    producer: Producer, topic: str, count: int, size: int, depth: int
) -> float:
    """Messages per second in batches of `size`, up to `depth` of them under way."""
    begin = time.perf_counter()
    handles: deque[SendHandle] = deque()
    for _ in range(count // size):
        handles.append(producer.submit_batch([Message(topic, BODY) for _ in range(size)]))
        if len(handles) >= depth:
            await handles.popleft()
    for handle in handles:
        await handle
    return count // size * size / (time.perf_counter() - begin)
