"""Waiting for a position, for flush, replicas and dispatch."""

from __future__ import annotations

import heapq
from itertools import count

import trio


class Watermark:
    """A number that only grows, and tasks that wait for it to reach theirs.

    Advancing costs nothing while nobody waits, and wakes exactly the waiters whose
    position is reached.
    """

    __slots__ = ("_failure", "_gone", "_order", "_value", "_waiters")

    def __init__(self, value: int = 0) -> None:
        self._value = value
        self._waiters: list[tuple[int, int, trio.Event]] = []
        self._order = count()
        self._failure: BaseException | None = None
        self._gone: set[int] = set()

    @property
    def value(self) -> int:
        """The position reached so far."""
        return self._value

    def advance(self, value: int) -> None:
        """Raise the position; a smaller one is ignored."""
        if value <= self._value:
            return
        self._value = value
        waiters = self._waiters
        while waiters and waiters[0][0] <= value:
            _position, order, event = heapq.heappop(waiters)
            self._gone.discard(order)
            event.set()

    def fail(self, error: BaseException) -> None:
        """Raise `error` for present and future waiters of an unreached position."""
        self._failure = error
        for _position, _order, event in self._waiters:
            event.set()
        self._waiters.clear()
        self._gone.clear()

    def _forget(self, order: int) -> None:
        """Take a waiter out that waits no longer; mostly later, with many others."""
        self._gone.add(order)
        if 2 * len(self._gone) >= len(self._waiters):
            self._waiters = [entry for entry in self._waiters if entry[1] not in self._gone]
            heapq.heapify(self._waiters)
            self._gone.clear()

    async def wait_reached(self, position: int, timeout: float | None = None) -> bool:
        """Wait until `position` is reached; False when `timeout` seconds passed first.

        Raises the error given to `fail`. Cancellation leaves the watermark as it was.
        """
        if self._value >= position:
            await trio.lowlevel.checkpoint()
            return True
        if self._failure is not None:
            raise self._failure
        event = trio.Event()
        entry = (position, next(self._order), event)
        heapq.heappush(self._waiters, entry)
        with trio.move_on_after(max(0.0, timeout) if timeout is not None else float("inf")):
            try:
                await event.wait()
            finally:
                if not event.is_set():
                    self._forget(entry[1])
        if self._value >= position:
            return True
        if self._failure is not None:
            raise self._failure
        return False
