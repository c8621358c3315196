"""Periodic work of the broker: it saves tables and advances the statistics.

Apache scans each 10 s and writes each 5 s; here each task sleeps until something is
due.
"""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

import trio

from rocketmq_sdk.broker_embedded.tables.stats import TICK_SECONDS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rocketmq_sdk.broker_embedded.core import Core
    from rocketmq_sdk.broker_embedded.part import SavedTable


class Housekeeping:
    """The periodic tasks of a broker."""

    def __init__(self, core: Core, tables: Sequence[SavedTable]) -> None:
        self._core = core
        self._tables = tables

    async def run(self) -> None:
        """Work until cancelled."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._save_periodically)
            nursery.start_soon(self._count)

    async def _save_periodically(self) -> None:
        """Save each table when it is due, one after another."""
        began = trio.current_time()
        due = {
            table.name: (began + table.interval_ms() / 1000, table, table.interval_ms)
            for table in self._tables
            if table.interval_ms is not None
        }
        while due:
            await trio.sleep_until(min(when for when, _table, _interval in due.values()))
            now = trio.current_time()
            for name, (when, table, interval_ms) in due.items():
                if when <= now:
                    await self._save(table)
                    due[name] = now + interval_ms() / 1000, table, interval_ms
            await self._core.store.keep_reserve()

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
