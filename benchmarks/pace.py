"""Moments at an even rate, for programs that send so many messages a second."""

from __future__ import annotations

import os
import threading
import time
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING

import trio

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator


@asynccontextmanager
async def moments(count: int, rate: float) -> AsyncIterator[AsyncIterator[float]]:
    """So many moments, `rate` of them a second, by `time.perf_counter`.

    A thread waits for them and wakes the task, as a thread of Java's program waits for
    them (`LockSupport.parkNanos`). Trio itself sleeps whole milliseconds: of a thousand
    messages a second, two would often leave together. Each moment is when the thread
    woke, which is what Java's program puts into a message. The task learns of it later,
    much later while the loop is busy: a time from then on leaves such waits out.
    """
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    over, woken = threading.Event(), list[float]()

    def tick() -> None:
        begin = time.perf_counter()
        for number in range(count):
            wait = begin + number / rate - time.perf_counter()
            if wait > 0:
                time.sleep(wait)
            if over.is_set():
                break
            woken.append(time.perf_counter())
            with suppress(BlockingIOError):  # there is enough to wake the task
                os.write(writing, b".")

    async def each() -> AsyncGenerator[float, None]:
        given = 0
        while given < count:
            await trio.lowlevel.wait_readable(reading)
            os.read(reading, 65536)
            while given < len(woken):
                yield woken[given]
                given += 1

    thread = threading.Thread(target=tick, name="pace", daemon=True)
    thread.start()
    found = each()
    try:
        yield found
    finally:
        over.set()
        thread.join()
        os.close(reading)
        os.close(writing)
        await found.aclose()
