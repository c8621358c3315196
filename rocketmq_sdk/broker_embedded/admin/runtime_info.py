"""GET_BROKER_RUNTIME_INFO (28): names and texts that tools and dashboards show.

Apache fills about a hundred keys. Here are those that mean something in this broker;
the lengths of thread pool queues, which mqadmin and dashboards parse, are always 0,
because requests are served as they are read. Left out is what belongs to Apache's own
buffers.
"""

from __future__ import annotations

import contextlib
from collections import deque
from typing import TYPE_CHECKING, Final, NamedTuple

from rocketmq_sdk.broker_embedded import needs
from rocketmq_sdk.broker_embedded.needs import Action
from rocketmq_sdk.broker_embedded.request import Cost, Request
from rocketmq_sdk.codes import RequestCode
from rocketmq_sdk.errors import StoreError
from rocketmq_sdk.names import SCHEDULE_TOPIC
from rocketmq_sdk.protocol.bodies.admin import KVTable
from rocketmq_sdk.protocol.command import Command

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rocketmq_sdk.broker_embedded.access.audit import Audit
    from rocketmq_sdk.broker_embedded.core import Core
    from rocketmq_sdk.broker_embedded.timers.part import TimerPart
    from rocketmq_sdk.remoting.channel import Continuation

VERSION_TEXT: Final = "V5_4_0"
WINDOWS: Final = (10.0, 60.0, 600.0)
_QUEUES: Final = ("send", "pull", "litePull", "query", "ack")


class Totals(NamedTuple):
    """What the broker has done since its start."""

    put: int
    found: int
    missed: int
    transferred: int
    put_bytes: int
    timers_in: int = 0
    timers_out: int = 0


class RateMeter:
    """Rates out of looks at growing sums.

    Nothing runs between the looks, so a window begins at the last look that is as old
    as the window, else at the start.
    """

    __slots__ = ("_looks",)

    def __init__(self, now: float, totals: Totals) -> None:
        self._looks = deque([(now, totals)])

    def look(self, now: float, totals: Totals) -> dict[float, tuple[float, ...]]:
        """The rates per second of each sum by window in seconds."""
        rates: dict[float, tuple[float, ...]] = {}
        for window in WINDOWS:
            since, before = next(
                (look for look in reversed(self._looks) if look[0] <= now - window), self._looks[0]
            )
            span = now - since
            rates[window] = tuple(
                (new - old) / span if span > 0 else 0.0
                for new, old in zip(totals, before, strict=True)
            )
        if now - self._looks[-1][0] >= 1.0:
            self._looks.append((now, totals))
        while len(self._looks) > 1 and self._looks[1][0] <= now - WINDOWS[-1]:
            self._looks.popleft()
        return rates


class RuntimeInfo:
    """Makes the table of the broker's running info."""

    __slots__ = ("_audit", "_core", "_meter", "_timer_part")

    def __init__(self, core: Core, timers: TimerPart, audit: Audit) -> None:
        self._core = core
        self._audit = audit
        self._timer_part = timers
        self._meter = RateMeter(core.clock.monotonic(), self._totals())

    def requests(self) -> Iterable[Request]:
        """The one row."""
        return (
            Request(
                RequestCode.GET_BROKER_RUNTIME_INFO,
                self.serve,
                needs.cluster(Action.GET),
                cost=Cost.TABLE,
            ),
        )

    def serve(self) -> Command | Continuation:
        """Answer the request."""
        store = self._core.store
        if store.earliest_store_time() >= 0 or not store.files.blocking:
            return self._answer()

        async def answer() -> Command:
            # What cannot be read is shown as -1.
            with contextlib.suppress(StoreError):
                await store.find_earliest()
            return self._answer()

        return answer

    def _answer(self) -> Command:
        return Command.response(body=KVTable.of(self.table()).encode())

    def _totals(self) -> Totals:
        stats = self._core.stats
        timers = self._timer_part.service
        return Totals(
            stats.put_messages,
            stats.pull_found,
            stats.pull_missed,
            stats.got_messages,
            stats.put_bytes,
            timers.enqueued,
            timers.dequeued,
        )

    def table(self) -> dict[str, object]:
        """All keys."""
        core = self._core
        now_ms = core.clock.now_ms()
        totals = self._totals()
        config = core.config.current
        return {
            "bootTimestamp": core.boot_ms,
            "runtime": duration_text(now_ms - core.boot_ms),
            "brokerActive": "true",
            "brokerVersionDesc": VERSION_TEXT,
            "startAcceptSendRequestTimeStamp": config.start_accept_send_request_time_stamp,
            **self._puts(totals),
            **self._rates(totals),
            **self._log(),
            **self._delays(),
            **self._timers(),
            **{
                f"{name}ThreadPoolQueue{what}": 0
                for name in _QUEUES
                for what in ("Size", "HeadWaitTimeMills")
            },
            "EndTransactionQueueSize": 0,
            **self._connections(),
            **self._access(),
            "embeddedBrokerUnreadableRecords": core.store.unreadable.count,
            **self._health(),
        }

    def _health(self) -> dict[str, object]:
        health = self._core.supervisor.health()
        return {
            "embeddedBrokerHealth": str(health),
            "embeddedBrokerServices": "; ".join(map(str, health.services)),
        }

    def _puts(self, totals: Totals) -> dict[str, object]:
        stats = self._core.stats
        yesterday, today = stats.mornings
        return {
            "putMessageTimesTotal": stats.put_times,
            "putMessageFailedTimes": stats.put_failed,
            "putMessageSizeTotal": totals.put_bytes,
            "putMessageAverageSize": totals.put_bytes / stats.put_messages
            if stats.put_messages
            else 0.0,
            "msgPutTotalYesterdayMorning": yesterday.put,
            "msgPutTotalTodayMorning": today.put,
            "msgPutTotalTodayNow": totals.put,
            "msgGetTotalYesterdayMorning": yesterday.got,
            "msgGetTotalTodayMorning": today.got,
            "msgGetTotalTodayNow": totals.transferred,
            # How long a put has been holding the lock; here none runs while this does.
            "pageCacheLockTimeMills": 0,
            "dispatchMaxBuffer": 0,
            **self._core.put_times.figures(),
        }

    def _rates(self, totals: Totals) -> dict[str, object]:
        rates = self._meter.look(self._core.clock.monotonic(), totals)

        def text(*places: int) -> str:
            return " ".join(
                str(sum(rates[window][place] for place in places)) for window in WINDOWS
            )

        return {
            "putTps": text(0),
            "getFoundTps": text(1),
            "getMissTps": text(2),
            "getTotalTps": text(1, 2),
            "getTransferredTps": text(3),
            "timerEnqueueTps": rates[WINDOWS[0]][5],
            "timerDequeueTps": rates[WINDOWS[0]][6],
        }

    def _log(self) -> dict[str, object]:
        store = self._core.store
        end = store.max_physical_offset
        ratio = store.used_ratio()
        return {
            "commitLogDiskRatio": ratio,
            f"commitLogDiskRatio_{store.description}/commitlog": ratio,
            "consumeQueueDiskRatio": ratio,
            "commitLogMinOffset": store.min_physical_offset,
            "commitLogMaxOffset": end,
            "earliestMessageTimeStamp": store.earliest_store_time(),
            "dispatchBehindBytes": max(0, end - store.dispatched.value),
            "remainHowManyDataToFlush": f"{max(0, end - store.flushed.value)} B",
        }

    def _connections(self) -> dict[str, object]:
        memory = self._core.memory
        return {
            "connectionMemoryUsed": memory.used,
            "connectionMemoryLimit": memory.limit,
            "connectionMemoryPauses": memory.paused,
            "connectionMemoryRefusedRequests": memory.refused,
            "connectionMemoryClosedConnections": memory.closed,
        }

    def _access(self) -> dict[str, object]:
        counters = self._audit.counters
        return {
            "accessRequestsNotAuthenticated": counters["notAuthenticated"],
            "accessRequestsDenied": counters["denied"],
        }

    def _timers(self) -> dict[str, object]:
        service = self._timer_part.service
        return {
            "timerReadBehind": service.timers.behind_ms // 1000,
            "timerOffsetBehind": service.behind_messages,
            "timerCongestNum": service.timers.pending_count,
        }

    def _delays(self) -> dict[str, object]:
        core = self._core
        delivered = self._timer_part.schedule.wrapper().offset_table
        return {
            f"scheduleMessageOffset_{level}": (
                f"{offset},{core.store.max_offset(SCHEDULE_TOPIC, level - 1)}"
            )
            for level, offset in sorted(delivered.items())
        }


def duration_text(milliseconds: int) -> str:
    """`[ 0 days, 1 hours, 2 minutes, 3 seconds ]`, as Apache writes it."""
    minutes, seconds = divmod(max(0, milliseconds) // 1000, 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    return f"[ {days} days, {hours} hours, {minutes} minutes, {seconds} seconds ]"
