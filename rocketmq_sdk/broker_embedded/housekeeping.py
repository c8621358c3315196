"""Periodic work of the broker: it saves tables and advances the statistics.

Apache scans each 10 s and writes each 5 s; here each task sleeps until something is
due.
"""

from __future__ import annotations

import math
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Final

import trio

from rocketmq_sdk.broker_embedded.tables.stats import TICK_SECONDS

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from rocketmq_sdk.broker_embedded.core import Core
    from rocketmq_sdk.broker_embedded.part import SavedTable


_RESERVE_INTERVAL_MS: Final = 5000


class Housekeeping:
    """The periodic tasks of a broker."""

    def __init__(self, core: Core, tables: Sequence[SavedTable]) -> None:
        self._core = core
        self._jobs: dict[str, tuple[Callable[[], int], Callable[[], Awaitable[None]]]] = {
            table.name: (table.interval_ms, partial(self._save, table))
            for table in tables
            if table.interval_ms is not None
        }
        self._jobs["reserve"] = (lambda: _RESERVE_INTERVAL_MS, core.store.keep_reserve)
        self._due: dict[str, float] = {}
        """When each job that is not being done is due."""
        self._changed = trio.Event()

    async def run(self) -> None:
        """Work until cancelled."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._work_periodically)
            nursery.start_soon(self._count)

    async def _work_periodically(self) -> None:
        """Do each job when it is due, none behind another one: a disk may hang.

        All that wait for their time have this task together.
        """
        for name in self._jobs:
            self._arm(name)
        async with trio.open_nursery() as nursery:
            while True:
                self._changed = trio.Event()
                with trio.move_on_at(min(self._due.values(), default=math.inf)):
                    await self._changed.wait()
                now = trio.current_time()
                for name in [name for name, when in self._due.items() if when <= now]:
                    del self._due[name]
                    nursery.start_soon(self._work, name)

    def _arm(self, name: str) -> None:
        interval_ms, _work = self._jobs[name]
        self._due[name] = trio.current_time() + interval_ms() / 1000
        self._changed.set()

    async def _work(self, name: str) -> None:
        _interval_ms, work = self._jobs[name]
        await work()
        self._arm(name)

    async def _save(self, table: SavedTable) -> None:
        try:
            await table.save()
        except Exception as error:  # noqa: BLE001 - one table keeps no other from being saved
            self._core.supervisor.save_failed(table.name, error)
        else:
            self._core.supervisor.tables.over(table.name)

    async def _count(self) -> None:
        while True:
            await trio.sleep(TICK_SECONDS)
            now = self._core.clock.now_ms() / 1000
            self._core.stats.advance(datetime.fromtimestamp(now).toordinal())


async def save_all(tables: Sequence[SavedTable], left: dict[str, Exception | None]) -> None:
    """Save tables, whatever happens to the others and however long they take.

    `left` names those that are not saved, in their order, also when this is cancelled:
    with their error, or None while they are being saved.
    """
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
