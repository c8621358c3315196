"""Periodic work of the broker: it saves tables and advances the statistics.

Apache scans each 10 s and writes each 5 s; here each task sleeps until something is
due.
"""

from __future__ import annotations

import math
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

import trio

from rocketmq_sdk.broker_embedded.part import Service
from rocketmq_sdk.broker_embedded.store.services import OnCall
from rocketmq_sdk.broker_embedded.tables.stats import TICK_SECONDS
from rocketmq_sdk.sleeper import Sleeper

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from rocketmq_sdk.broker_embedded.core import Core
    from rocketmq_sdk.broker_embedded.part import SavedTable


_RESERVE_INTERVAL_MS: Final = 5000


class _Job(NamedTuple):
    """Something that is done every `interval_ms` milliseconds.

    `begin` does what needs no waiting, and tells whether `work` has to follow, which is
    done in a task of its own.
    """

    interval_ms: Callable[[], float]
    begin: Callable[[], bool]
    work: Callable[[], Awaitable[None]] | None


class Housekeeping:
    """The periodic tasks of a broker."""

    def __init__(self, core: Core, tables: Sequence[SavedTable]) -> None:
        self._core = core
        self._jobs = {
            table.name: _Job(table.interval_ms, table.changed, partial(self._save, table))
            for table in tables
            if table.interval_ms is not None
        }
        if core.store.reserve.is_kept:
            self._jobs["reserve"] = _Job(
                lambda: _RESERVE_INTERVAL_MS, lambda: True, core.store.reserve.keep
            )
        self._jobs["statistics"] = _Job(lambda: TICK_SECONDS * 1000, self._count, None)
        self._due: dict[str, float] = {}
        """When each job that is not being done is due."""
        self._sleeper = Sleeper(self._pass_over)

    def service(self) -> Service:
        """All of them; the time of each begins now."""
        for name in self._jobs:
            self._arm(name)
        first = min(self._due.values()) - trio.current_time()
        return Service("housekeeping", self.run, on_call=OnCall(first))

    async def run(self) -> None:
        """Do each job when it is due, none behind another one: a disk may hang.

        All that wait for their time have this task together. Works until cancelled.
        """
        for name in self._jobs.keys() - self._due.keys():  # an error ended this task
            self._arm(name)
        async with trio.open_nursery() as nursery:
            while True:
                await self._sleeper.sleep_until(min(self._due.values(), default=math.inf))
                now = trio.current_time()
                for name in [name for name, when in self._due.items() if when <= now]:
                    job = self._jobs[name]
                    del self._due[name]  # after an error it has to wait, and no other
                    if job.begin() and job.work is not None:
                        nursery.start_soon(self._work, name, job.work)
                    else:
                        self._due[name] = now + job.interval_ms() / 1000

    def _pass_over(self, now: float) -> float:
        """When a task is needed next; what is due and needs none is done at once."""
        for name, when in self._due.items():
            if when <= now:
                job = self._jobs[name]
                if job.begin() and job.work is not None:
                    return now
                self._due[name] = now + job.interval_ms() / 1000
        return min(self._due.values(), default=math.inf)

    def _arm(self, name: str) -> None:
        self._due[name] = due = trio.current_time() + self._jobs[name].interval_ms() / 1000
        self._sleeper.wake_at(due)

    async def _work(self, name: str, work: Callable[[], Awaitable[None]]) -> None:
        await work()
        self._arm(name)

    async def _save(self, table: SavedTable) -> None:
        try:
            await table.save()
        except Exception as error:  # noqa: BLE001 - one table keeps no other from being saved
            self._core.supervisor.save_failed(table.name, error)
        else:
            self._core.supervisor.tables.over(table.name)

    def _count(self) -> bool:
        now = self._core.clock.now_ms() / 1000
        self._core.stats.advance(datetime.fromtimestamp(now).toordinal())
        return False


def _has_to_save(table: SavedTable) -> bool:
    """Whether a save is more than a task for nothing."""
    try:
        return table.changed()
    except Exception:  # noqa: BLE001 - the save meets it again, where it belongs
        return True


async def save_all(tables: Sequence[SavedTable], left: dict[str, Exception | None]) -> None:
    """Save tables, whatever happens to the others and however long they take.

    `left` names those that are not saved, in their order, also when this is cancelled:
    with their error, or None while they are being saved.
    """
    tables = [table for table in tables if _has_to_save(table)]
    if not tables:
        return
    left.update((table.name, None) for table in tables)

    async def save(table: SavedTable) -> None:
        try:
            await table.save()
        except Exception as error:  # noqa: BLE001 - for the caller, who tells it
            left[table.name] = error
        else:
            del left[table.name]

    async with trio.open_nursery() as nursery:
        for table in tables:
            nursery.start_soon(save, table)
