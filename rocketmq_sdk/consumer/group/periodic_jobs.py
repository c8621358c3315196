"""Periodic jobs of a member, run by one task.

With a thousand idle members, each job that needs no task of its own saves a thousand
tasks.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from heapq import heapreplace

import trio

Job = Callable[[], Awaitable[float]]
"""Runs once and returns the seconds from its end until it is due again."""


class PeriodicJobs:
    """Jobs that one task runs one after another, each when it is due.

    A job that waits for a broker delays the others, so its wait must be bounded.
    """

    __slots__ = ("_jobs",)

    def __init__(self) -> None:
        self._jobs: list[tuple[float, int, Job]] = []

    def add(self, job: Job, after: float = 0.0) -> None:
        """Run a job for the first time `after` seconds from now.

        Add all jobs before `run` first looks at them.
        """
        self._jobs.append((trio.current_time() + after, len(self._jobs), job))

    async def run(self) -> None:
        """Run the jobs until cancelled; returns at once when there are none.

        An error of a job is raised.
        """
        jobs = self._jobs
        jobs.sort(key=lambda entry: entry[:2])
        while jobs:
            due, number, job = jobs[0]
            await trio.sleep_until(due)
            pause = await job()
            heapreplace(jobs, (trio.current_time() + pause, number, job))
