"""Who waits for the sync of an append without a task of its own, with one timer for
all.
"""

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
    """Callbacks in the order of asking, which is that of the appends; one that asks for
    an earlier position is called with those before it.

    All wait for the same time at most, so the first is the first that is late.
    Callbacks run in the loop's thread and must not raise.
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
        """Call `tell` once when the log is durable up to a position, when it never will
        be, or when it took too long.
        """
        self._waiting.append((position, self._clock.monotonic() + self._timeout, tell))
        if self._asked is not None:
            self._asked.set()
            self._asked = None

    def reached(self, position: int) -> None:
        """The log is durable up to here."""
        waiting = self._waiting
        while waiting and waiting[0][0] <= position:
            waiting.popleft()[2](PutStatus.PUT_OK)

    def fail(self) -> None:
        """What waits will never be durable."""
        waiting = self._waiting
        while waiting:
            waiting.popleft()[2](PutStatus.SERVICE_NOT_AVAILABLE)

    @trio.lowlevel.enable_ki_protection
    async def run(self) -> None:
        """Watch the deadlines, until cancelled; sleeps while nobody waits."""
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
                # Whoever is first then: it may be another one, whose time comes later.
                await trio.sleep(waiting[0][1] - now)
