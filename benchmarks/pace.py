"""Moments at an even rate, for programs that send so many messages a second."""

from __future__ import annotations

import os
import threading
import time
from typing import TYPE_CHECKING

import trio

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


async def moments(count: int, rate: float) -> AsyncIterator[int]:
    """The numbers below `count`, each when it is due, `rate` of them a second.

    A thread waits for the moments and wakes the task, as a thread of Java's program
    waits for them (`LockSupport.parkNanos`). Trio itself sleeps whole milliseconds: of
    a thousand messages a second, two would often leave together.
    """
    reading, writing = os.pipe()
    over = threading.Event()

    def tick() -> None:
        begin = time.perf_counter()
        for number in range(count):
            wait = begin + number / rate - time.perf_counter()
            if wait > 0:
                time.sleep(wait)
            if over.is_set():
                break
            os.write(writing, b".")

    thread = threading.Thread(target=tick, name="pace", daemon=True)
    thread.start()
    given = 0
    try:
        while given < count:
            await trio.lowlevel.wait_readable(reading)
            for _ in os.read(reading, 4096):
                yield given
                given += 1
    finally:
        over.set()
        thread.join()
        os.close(reading)
        os.close(writing)
