"""Callbacks that wait for the sync of an append, with one timer for all of them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

import trio

from rocketmq_sdk.broker_embedded.store.messages import PutStatus

if TYPE_CHECKING:
    from rocketmq_sdk.clock import Clock

Tell = Callable[[PutStatus], None]


class DurableWaiters:
    """Callbacks in the order of their appends.

    One that asks for an earlier position is called with those before it. All wait for
    the same maximum time, so the first is the first to be late. Callbacks run on the
    loop's thread and must not raise.
    """

    __slots__ = ("_asked", "_clock", "_timeout", "_waiting")

    def __init__(self, clock: Clock, timeout: float) -> None:
        self._clock = clock
        self._timeout = timeout
        self._waiting: deque[tuple[int, float, Tell]] = deque()
        self._asked: trio.Event | None = None

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, position: int, tell: Tell) -> None:
        """Call `tell` once with how the wait for a position ended.

        That is when the log is durable up to the position, when it never will be, or
        when it took too long.
        """
        self._waiting.append((position, self._clock.monotonic() + self._timeout, tell))
        if self._asked is not None:
            self._asked.set()
            self._asked = None

    def reached(self, position: int) -> None:
        """Call those that wait for up to this position; the log is durable there."""
        waiting = self._waiting
        while waiting and waiting[0][0] <= position:
            waiting.popleft()[2](PutStatus.PUT_OK)

    def fail(self) -> None:
        """Call all with a failure; what they wait for will never be durable."""
        waiting = self._waiting
        while waiting:
            waiting.popleft()[2](PutStatus.SERVICE_NOT_AVAILABLE)

    @trio.lowlevel.enable_ki_protection
    async def run(self) -> None:
        """Watch the deadlines until cancelled; sleeps while nobody waits."""
        waiting = self._waiting
        while True:
            if not waiting:
                self._asked = trio.Event()
                await self._asked.wait()
                continue
            now = self._clock.monotonic()
            while waiting and waiting[0][1] <= now:
                waiting.popleft()[2](PutStatus.FLUSH_DISK_TIMEOUT)
            if waiting:
                # By then another one may be first, whose time comes later.
                await trio.sleep(waiting[0][1] - now)
