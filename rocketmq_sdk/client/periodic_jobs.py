"""What a client and its members do again and again; one task waits for all of it.

With a thousand idle members, each job that needs no task of its own saves a thousand
tasks.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from heapq import heappop, heappush, heapreplace
from itertools import count
from typing import Final

import trio

from rocketmq_sdk.sleeper import Sleeper

Job = Callable[[], Awaitable[float]]
"""Runs once and returns the seconds from its end until it is due again."""
Idle = Callable[[], float | None]
"""Returns the seconds until a job is due again that has nothing to do, else None."""
_numbers: Final = count()


async def _nothing() -> float:
    return math.inf


class _Entry:
    """One job, and the nursery that it runs in."""

    __slots__ = ("idle", "job", "nursery")

    def __init__(self, job: Job | None, nursery: trio.Nursery, idle: Idle) -> None:
        self.job = job
        self.nursery = nursery
        self.idle = idle


class PeriodicJobs:
    """Jobs, each of which runs in a task of its owner's nursery when it is due.

    So none waits for another one, and the error of a job is raised by its owner.
    """

    __slots__ = ("_heap", "_of_owner", "_sleeper")

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, _Entry]] = []
        self._of_owner: dict[trio.Nursery, list[_Entry]] = {}
        self._sleeper = Sleeper(self._pass_over)

    def add(
        self,
        nursery: trio.Nursery,
        job: Job,
        after: float = 0.0,
        idle: Idle = lambda: None,
    ) -> None:
        """Run a job in `nursery`, for the first time `after` seconds from now.

        `idle` is asked when it is due: where there is nothing to do, no task is
        started. Call `leave` before the nursery ends.
        """
        entry = _Entry(job, nursery, idle)
        self._of_owner.setdefault(nursery, []).append(entry)
        self._schedule(entry, after)

    def add_quick(self, nursery: trio.Nursery, work: Callable[[], float]) -> None:
        """Do something now and then, without a task; it returns the seconds until then.

        It must not raise. Call `leave` before the nursery ends.
        """
        self.add(nursery, _nothing, idle=work)

    def leave(self, nursery: trio.Nursery) -> None:
        """Start no job in this nursery any more; those that run go on."""
        for entry in self._of_owner.pop(nursery, ()):
            entry.job = None

    def _schedule(self, entry: _Entry, after: float) -> None:
        due = trio.current_time() + after
        heappush(self._heap, (due, next(_numbers), entry))
        self._sleeper.wake_at(due)

    def _pass_over(self, now: float) -> float:
        """When a task is to be started next; jobs that are due and idle are put off."""
        heap = self._heap
        while heap and heap[0][0] <= now:
            entry = heap[0][2]
            if entry.job is None:
                heappop(heap)
            elif (pause := entry.idle()) is None:
                return now
            else:
                heapreplace(heap, (now + pause, next(_numbers), entry))
        return heap[0][0] if heap else math.inf

    async def run(self) -> None:
        """Start what is due, until cancelled."""
        heap = self._heap
        while True:
            now = trio.current_time()
            while heap and heap[0][0] <= now:
                entry = heappop(heap)[2]
                if entry.job is None:
                    continue
                pause = entry.idle()
                if pause is None:
                    entry.nursery.start_soon(self._once, entry, entry.job)
                else:
                    self._schedule(entry, pause)
            await self._sleeper.sleep_until(heap[0][0] if heap else math.inf)

    async def _once(self, entry: _Entry, job: Job) -> None:
        pause = await job()
        if entry.job is not None:
            self._schedule(entry, pause)
