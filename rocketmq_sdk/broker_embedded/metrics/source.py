"""Where metrics come from: a broker, and what takes longer to find out."""

from __future__ import annotations

import shutil
from collections import Counter
from typing import TYPE_CHECKING, Final, NamedTuple

import trio

from rocketmq_sdk.broker_embedded.metrics.lag import LagCalculator, LagReport
from rocketmq_sdk.broker_embedded.slices import slices
from rocketmq_sdk.errors import StoreError
from rocketmq_sdk.names import TIMER_TOPIC

if TYPE_CHECKING:
    from pathlib import Path

    from rocketmq_sdk.broker_embedded.composition import Parts
    from rocketmq_sdk.broker_embedded.core import Core
    from rocketmq_sdk.broker_embedded.metrics.request_times import RequestTimes
    from rocketmq_sdk.broker_embedded.tables.figures import Figures
    from rocketmq_sdk.remoting.server import RemotingServer

TIMER_BOUNDS: Final = (5, 60, 300, 900, 3600, 14400, 28800, 86400)
"""Seconds for which `timer_message_snapshot` looks ahead (`TimerMetrics.timerDist`)."""


class ReviveLag(NamedTuple):
    """How far revival is behind in one queue of its topic."""

    messages: int
    milliseconds: int


class Source:
    """A broker that is open; `look` finds out what a look-up does not tell."""

    def __init__(
        self,
        core: Core,
        parts: Parts,
        figures: Figures,
        times: RequestTimes,
        servers: dict[str, RemotingServer],
        path: Path | None,
    ) -> None:
        """`path` is the directory of the store; None in memory."""
        self.core = core
        self._path = path
        self.parts = parts
        self.figures = figures
        self.times = times
        self.servers = servers
        """The servers by their names."""
        self.lag = LagReport()
        self.half_messages: Counter[tuple[str]] = Counter()
        """Open transactions by topic."""
        self.timer_snapshot: dict[int, int] = {}
        self.timer_enqueue_latency = 0
        self.revive_lag: dict[int, ReviveLag] = {}
        self.used_bytes = -1
        """Bytes in use where the store lies, in memory those of the log; -1 unknown."""
        self.used_ratio = -1.0
        """The part of the disk that is in use; -1 unknown."""
        self._lags = LagCalculator(core, parts.members, parts.pop)
        self._looking = trio.Lock()

    async def look(self) -> None:
        """Look at what takes time, in steps. Does not raise."""
        async with self._looking:
            self.lag = await self._lags.report()
            await self._count_halves()
            await self._look_at_timers()
            self.revive_lag = await self._revive_lag()
            store = self.core.store
            try:
                await store.find_earliest()
            except StoreError:
                pass  # a record that cannot be read: then its age is not told
            if self._path is None:
                self.used_bytes = store.max_physical_offset - store.min_physical_offset
            else:
                await trio.to_thread.run_sync(self._look_at_disk)

    def _look_at_disk(self) -> None:
        try:
            usage = shutil.disk_usage(self._path) if self._path is not None else None
        except OSError:
            return  # the disk is gone; health says what that means
        if usage is not None:
            self.used_bytes = usage.total - usage.free
            self.used_ratio = self.core.store.used_ratio()

    async def _count_halves(self) -> None:
        halves: Counter[tuple[str]] = Counter()
        async for some in slices(self.parts.transactions.table.open_topics()):
            halves.update((topic,) for topic in some)
        self.half_messages = halves

    async def _look_at_timers(self) -> None:
        timers, now = self.parts.timers.service.timers, self.core.clock.now_ms()
        found = dict.fromkeys(TIMER_BOUNDS, 0)
        async for some in slices(timers.waiting_slots(now + TIMER_BOUNDS[-1] * 1000)):
            for time in some:
                ahead = (time - now) / 1000
                bound = next((bound for bound in TIMER_BOUNDS if ahead <= bound), None)
                if bound is not None:
                    found[bound] += timers.congestion(time)
        self.timer_snapshot = found
        self.timer_enqueue_latency = 0
        if self.parts.timers.service.behind_messages > 0:
            self.timer_enqueue_latency = await self._age(TIMER_TOPIC, 0, timers.next_offset)

    async def _age(self, topic: str, queue_id: int, offset: int) -> int:
        """Milliseconds since a message was stored; 0 if that cannot be told."""
        (time,) = await self.core.store.store_times([(topic, queue_id, offset)])
        return max(0, self.core.clock.now_ms() - time) if time > 0 else 0

    async def _revive_lag(self) -> dict[int, ReviveLag]:
        found: dict[int, ReviveLag] = {}
        if self.core.config.current.is_slave:
            return found
        state, store = self.parts.pop.state, self.core.store
        topic, next_offset = state.records.topic, state.revive.next_offset
        for queue_id in range(self.core.config.current.revive_queue_num):
            offset = next_offset(queue_id)
            behind = max(0, store.max_offset(topic, queue_id) - offset)
            age = await self._age(topic, queue_id, offset) if behind else 0
            found[queue_id] = ReviveLag(behind, age)
        return found
