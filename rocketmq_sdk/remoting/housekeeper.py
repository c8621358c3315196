"""Two tasks for all channels of a `trio.run`: one writes, the other watches the time.

As a Netty event loop serves all of its channels. With thousands of idle connections,
each task that a channel does not need for itself saves thousands of tasks. Both belong
to the run, not to an owner of channels: they start with the first channel and end with
the last one.

A channel hands in what it has queued during a turn of the loop. It is written when the
turn is over, so that all that was queued meanwhile leaves with one write. What a socket
does not take at once is left to a task of the channel.
"""

from __future__ import annotations

import logging
import math
from heapq import heapify, heappop, heappush, heapreplace
from typing import TYPE_CHECKING, Final, Protocol

import trio

from rocketmq_sdk.clock import AlarmClock
from rocketmq_sdk.remoting.side_lane import SideLane
from rocketmq_sdk.sleeper import Sleeper

if TYPE_CHECKING:
    from collections.abc import Callable

    from rocketmq_sdk.remoting.call_table import CallTable

STOOD_STILL: Final = 0.05
"""Seconds too late that tell of a loop that was blocked."""
LAST_CHANCE: Final = 0.05
"""Seconds for an answer to a request that could not leave before."""
QUIET_TURNS: Final = 3
"""Turns of the loop without news after which all is read that had come."""
READ_FIRST: Final = 1.0
"""The most seconds that overdue calls wait for what came while the loop was blocked."""
logger = logging.getLogger("rocketmq_sdk.remoting")


class Kept(Protocol):
    """A channel, as the housekeeper sees it."""

    channel_id: int

    @property
    def calls(self) -> CallTable:
        """Its requests under way, with the next moment at which something is due."""
        ...

    @property
    def last_read(self) -> float:
        """When the peer was last heard from."""
        ...

    def sweep(self, now: float) -> float:
        """Do what is due; returns the next moment at which something will be."""
        ...

    def quiet_until(self, now: float) -> float:
        """When `sweep` has something to do if nothing happens; `now` for at once."""
        ...

    def flush_queued(self) -> None:
        """Write what was queued."""
        ...

    def abort(self, reason: str) -> None:
        """Close it at once."""
        ...


class Housekeeper:
    """What the channels of one run share. `housekeeper` gives that of the caller."""

    __slots__ = (
        "_after",
        "_alarms",
        "_armed",
        "_at_once",
        "_behind",
        "_heap",
        "_holding",
        "_in_chunk",
        "_kept",
        "_later",
        "_queued",
        "_sleeper",
        "_watching",
        "_writer",
        "_writing",
        "alone",
        "chunks",
        "lane",
        "now",
    )

    def __init__(self) -> None:
        self._kept: dict[int, Kept] = {}
        self._heap: list[tuple[float, int]] = []
        self._queued: list[Kept] = []
        self._later: dict[trio.lowlevel.Task, None] = {}
        self._sleeper = Sleeper(self._pass_over)
        self._writer: trio.lowlevel.Task | None = None
        self._watching = self._writing = False
        self._in_chunk = self._holding = self._armed = False
        self._at_once: list[Callable[[], None]] = []
        self._after: list[Callable[[], None]] = []
        self._behind: list[Callable[[], None]] = []
        clock = trio.lowlevel.current_clock()
        self._alarms = clock if isinstance(clock, AlarmClock) else None
        self.now = clock.current_time
        """`trio.current_time`, in less time."""
        self.chunks = 0
        """Chunks that were handled, of all channels."""
        self.alone = False
        """Whether the request that is served is the only one of its chunk, and nobody
        looks on: see `hide_nothing`. Not at a client: what it serves may call a broker
        in the same process, and look there.
        """
        self.lane = SideLane()
        """For those that would hold up many others."""

    def keep(self, channel: Kept) -> None:
        """Look after a channel until `forget`."""
        self._kept[channel.channel_id] = channel
        self._sweep(channel, trio.current_time())
        if not self._watching:
            self._watching = True
            trio.lowlevel.spawn_system_task(self._watch, name="watch of all channels")
        if not self._writing and self._alarms is None:
            self._writing = True
            trio.lowlevel.spawn_system_task(self._write, name="writer of all channels")

    def forget(self, channel: Kept) -> None:
        """A channel has ended."""
        self._kept.pop(channel.channel_id, None)
        if self._in_chunk:  # it ended by an unforeseen error in the middle of a chunk
            self.end_chunk()
        if not self._kept:
            self._sleeper.wake_at(-math.inf)
            self._wake_writer()

    # -- writing

    def flush_soon(self, channel: Kept) -> None:
        """Have a channel write what it has queued, after this turn of the loop."""
        self._queued.append(channel)
        if not self._holding:
            self._wake_writer()

    def _write_at_alarm(self) -> bool:
        """What the writer does, where the clock has alarms: without a turn."""
        self._armed = False
        self._flush_all()
        self._let_go_on()
        return self._alarms is None or self._alarms.has_runnable_tasks()

    def _wake_writer(self) -> None:
        alarms, writer = self._alarms, self._writer
        if alarms is not None:
            if not self._armed:
                self._armed = True
                alarms.call_at(alarms.current_time(), self._write_at_alarm)
        elif writer is not None:
            self._writer = None
            trio.lowlevel.reschedule(writer)

    def _stop_waiting(self, _raise_cancel: object) -> trio.lowlevel.Abort:
        self._writer = None
        return trio.lowlevel.Abort.SUCCEEDED

    @trio.lowlevel.enable_ki_protection
    async def _write(self) -> None:
        while self._kept or self._queued or self._later:
            if not self._queued and not self._later:
                self._writer = trio.lowlevel.current_task()
                await trio.lowlevel.wait_task_rescheduled(self._stop_waiting)
            self._flush_all()
            self._let_go_on()
        self._writing = False

    def _let_go_on(self) -> None:
        while self._later:
            trio.lowlevel.reschedule(self._later.popitem()[0])

    def _flush_all(self) -> None:
        queued, self._queued = self._queued, []
        for channel in queued:
            try:
                channel.flush_queued()
            except Exception:
                logger.exception("writing to a connection failed in an unforeseen way")
                channel.abort("writing failed in an unforeseen way")

    def go_on_later(self, task: trio.lowlevel.Task) -> None:
        """Reschedule a task behind those that are rescheduled now, not beside them.

        It may be cancelled meanwhile; then it says so by `stay`.
        """
        self._later[task] = None
        self._wake_writer()

    def stay(self, task: trio.lowlevel.Task) -> None:
        """A task goes on by itself."""
        self._later.pop(task, None)

    # -- chunks

    def begin_chunk(self) -> None:
        """What a channel has read is handled now; nothing else runs until its end."""
        self._in_chunk = True
        self.chunks += 1

    def end_chunk(self) -> None:
        """It is handled, and its answers have left."""
        self.alone = False
        if self._at_once:
            at_once, self._at_once = self._at_once, []
            self._call_all(at_once)
        self._in_chunk = False
        if self._after:
            after, self._after = self._after, []
            self._holding = True
            try:
                self._call_all(after)
            finally:
                self._holding = False
                self._flush_all()
        if self._behind:
            behind, self._behind = self._behind, []
            self._call_all(behind)

    @staticmethod
    def _call_all(calls: list[Callable[[], None]]) -> None:
        for call in calls:
            try:
                call()
            except Exception:
                logger.exception("what follows on a chunk has failed in an unforeseen way")

    def after_chunk(self, call: Callable[[], None]) -> bool:
        """Call this as soon as the answers to the chunk that is handled have left.

        What it answers leaves at once too, without another turn of the loop. It is to
        be short: the connection is not read meanwhile. False, and nothing is done,
        where no chunk is handled now.
        """
        if self._in_chunk:
            self._after.append(call)
        return self._in_chunk

    def after_answer(self, call: Callable[[], None]) -> bool:
        """Call this before all that follows on the chunk, once the answer has left.

        For what a request leaves to do that is the only one of its chunk: nobody sees
        that it was not done at once. False, and nothing is done, elsewhere.
        """
        if self.alone:
            self._at_once.append(call)
        return self.alone

    def hide_nothing(self) -> None:
        """Let `after_answer` put nothing off for the request that is served now.

        For whoever calls its handler and may look at what it did before it returns.
        """
        self.alone = False

    def behind_chunk(self, call: Callable[[], None]) -> bool:
        """`after_chunk` for what answers nothing: it waits for what does to leave."""
        if self._in_chunk:
            self._behind.append(call)
        return self._in_chunk

    # -- time

    def look_at(self, channel_id: int, moment: float) -> None:
        """Sweep a channel at `moment`, which is earlier than it was to be."""
        heap, kept = self._heap, self._kept
        if len(heap) > 2 * len(kept) + 64:
            heap[:] = [(channel.calls.due, number) for number, channel in kept.items()]
            heapify(heap)
        else:
            heappush(heap, (moment, channel_id))
        self._sleeper.wake_at(moment)

    def _sweep(self, channel: Kept, now: float) -> None:
        calls = channel.calls
        try:
            calls.due = channel.sweep(now)
        except Exception:
            logger.exception("watching a connection failed in an unforeseen way")
            channel.abort("watching it failed in an unforeseen way")
            return
        if calls.due != math.inf:
            self.look_at(channel.channel_id, calls.due)

    def _due(self, now: float) -> tuple[list[Kept], float]:
        """The channels at which something is due, and how late the first of them is."""
        heap, due, first = self._heap, [], now
        while heap and heap[0][0] <= now:
            moment, number = heappop(heap)
            channel = self._kept.get(number)
            # An entry from before its moment was changed says nothing.
            if channel is not None and channel.calls.due == moment:
                channel.calls.due = -math.inf  # it will be swept; nothing comes earlier
                due.append(channel)
                first = min(first, moment)
        return due, now - first

    def _pass_over(self, now: float) -> float:
        """The next moment at which a channel has to be swept; `now` for at once.

        Most entries are deadlines of calls that have their answers.
        """
        heap, kept = self._heap, self._kept
        if not kept:
            return now
        while heap and heap[0][0] <= now:
            moment, number = heap[0]
            channel = kept.get(number)
            due = math.inf
            if channel is not None and channel.calls.due == moment:
                due = channel.quiet_until(now)
                if due <= now:
                    return now
                channel.calls.due = due
            if due == math.inf:
                heappop(heap)
            else:
                heapreplace(heap, (due, number))
        return heap[0][0] if heap else math.inf

    @trio.lowlevel.enable_ki_protection
    async def _watch(self) -> None:
        """Sleep until the next moment at which anything is due."""
        while self._kept:
            await self._sleeper.sleep_until(self._heap[0][0] if self._heap else math.inf)
            now = trio.current_time()
            due, late = self._due(now)
            if late > STOOD_STILL:
                # The loop was blocked. Requests leave and answers that have come
                # meanwhile are read, before calls that were overdue by `now` fail.
                await self._read_first(due)
                if any(channel.calls.is_overdue(now) for channel in due):
                    await trio.sleep(LAST_CHANCE)
                    await self._read_first(due)
            for channel in due:
                if channel.channel_id in self._kept:
                    self._sweep(channel, now)
        self._watching = False

    async def _read_first(self, channels: list[Kept]) -> None:
        """Wait until the readers find nothing more, for at most a moment."""
        ends = trio.current_time() + READ_FIRST
        before: list[float] = []
        while trio.current_time() < ends:
            last = [channel.last_read for channel in channels if channel.channel_id in self._kept]
            if last == before:
                return
            before = last
            for _ in range(QUIET_TURNS):
                await trio.lowlevel.checkpoint()


_housekeeper: trio.lowlevel.RunVar[Housekeeper] = trio.lowlevel.RunVar("housekeeper")


def housekeeper() -> Housekeeper:
    """That of the `trio.run` of the caller."""
    try:
        return _housekeeper.get()
    except LookupError:
        _housekeeper.set(made := Housekeeper())
        return made
