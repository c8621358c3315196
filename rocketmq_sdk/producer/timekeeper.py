"""The time of messages under way: their ends, and pauses before attempts.

A message has a deadline of its own. Normally the connection or the waiting room that it
is with ends it in time; this is for what neither of them notices. One task looks after
all messages and sleeps until the earliest deadline. It costs a message one comparison.
"""

from __future__ import annotations

import heapq
from itertools import count
from typing import TYPE_CHECKING, Final

import trio

from rocketmq_sdk.clock import STOOD_STILL
from rocketmq_sdk.remoting.housekeeper import READ_FIRST
from rocketmq_sdk.sleeper import Sleeper

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from rocketmq_sdk.producer.handle import SendHandle

GRACE: Final = 0.1
"""Seconds after its deadline at which a message is ended here."""
REST: Final = 0.02
"""Seconds before a look at all messages, of which there may be many."""
AFTER_STANDSTILL: Final = READ_FIRST + 0.1
"""Seconds before it when the loop was blocked: connections read first what has come."""


class Timekeeper:
    """Calls `expired` for each message of `handles` that has outlived its deadline.

    `resume` is called for each message whose pause is over.
    """

    __slots__ = ("_expired", "_handles", "_numbers", "_paused", "_resume", "_sleeper", "due")

    def __init__(
        self,
        handles: Collection[SendHandle],
        *,
        expired: Callable[[SendHandle], None],
        resume: Callable[[SendHandle], None],
    ) -> None:
        self._handles = handles
        self._expired = expired
        self._resume = resume
        self._paused: list[tuple[float, int, SendHandle]] = []
        self._numbers = count()
        self._sleeper = Sleeper()
        self.due = float("inf")
        """The earliest deadline looked after; tell `watch` of an earlier one."""

    def watch(self, deadline: float) -> None:
        """Look after a deadline that is earlier than `due`."""
        self.due = deadline
        self._wake_at(deadline + GRACE)

    def pause(self, handle: SendHandle, seconds: float) -> None:
        """Let a message rest before its next attempt."""
        moment = trio.current_time() + seconds
        heapq.heappush(self._paused, (moment, next(self._numbers), handle))
        self._wake_at(moment)

    def _wake_at(self, moment: float) -> None:
        self._sleeper.wake_at(moment)

    def _next_look(self) -> float:
        resume = self._paused[0][0] if self._paused else float("inf")
        return min(self.due + GRACE, resume)

    @trio.lowlevel.enable_ki_protection
    async def run(self) -> None:
        """Look after messages until cancelled."""
        while True:
            moment = self._next_look()
            await self._sleeper.sleep_until(moment)
            now = trio.current_time()
            self._resume_rested(now)
            if self.due + GRACE <= now:
                # If the loop has stood still, answers that have come meanwhile are
                # read first.
                await trio.sleep(AFTER_STANDSTILL if now - moment > STOOD_STILL else REST)
                self._end_overdue(now)

    def _resume_rested(self, now: float) -> None:
        paused = self._paused
        while paused and paused[0][0] <= now:
            handle = heapq.heappop(paused)[2]
            if not handle.done:
                self._resume(handle)

    def _end_overdue(self, now: float) -> None:
        handles, self.due = list(self._handles), float("inf")
        for handle in handles:
            if handle.deadline + GRACE <= now:
                self._expired(handle)
            elif handle.deadline < self.due:
                self.due = handle.deadline
