"""What a member does again and again, in one task: a thousand idle members are a
thousand tasks less for each thing that has none of its own.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from heapq import heapreplace

import trio

Job = Callable[[], Awaitable[float]]
"""Does one thing once and gives the seconds until it is to be done again, counted from
its end.
"""


class PeriodicJobs:
    """Jobs that one task does one after the other, each when it is due. A job that
    waits for a broker holds the others up, so its wait is bounded.
    """

    __slots__ = ("_jobs",)

    def __init__(self) -> None:
        self._jobs: list[tuple[float, int, Job]] = []

    def add(self, job: Job, after: float = 0.0) -> None:
        """Do a job for the first time `after` seconds from now. All jobs are added
        before `run` first looks.
        """
        self._jobs.append((trio.current_time() + after, len(self._jobs), job))

    async def run(self) -> None:
        """Do the jobs until cancelled; returns at once when there are none. An error of
        a job is raised.
        """
        jobs = self._jobs
        jobs.sort(key=lambda entry: entry[:2])
        while jobs:
            due, number, job = jobs[0]
            await trio.sleep_until(due)
            pause = await job()
            heapreplace(jobs, (trio.current_time() + pause, number, job))
