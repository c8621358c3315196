"""Clocks, which are passed to whatever needs the time.

Nobody else in the package reads a clock. Wall time is an epoch fixed when the clock is
made plus the monotonic time since then, so a step of the system's clock cannot make
stored time jump, and under a virtual trio clock a delay of two hours passes as fast as
the test does.
"""

from __future__ import annotations

import time
from typing import Protocol

import trio


class Clock(Protocol):
    """What the rest of the package knows of time."""

    def now_ms(self) -> int:
        """Wall time: epoch milliseconds."""
        ...

    def monotonic(self) -> float:
        """Seconds that never go back; only differences mean something."""
        ...


def monotonic_ms(clock: Clock) -> int:
    """Milliseconds that never go back; only differences mean something."""
    return int(clock.monotonic() * 1000)


class SystemClock:
    """Time of the operating system, for code that runs outside trio."""

    __slots__ = ("_epoch",)

    def __init__(self) -> None:
        self._epoch = time.time() - time.monotonic()

    def now_ms(self) -> int:
        """Epoch milliseconds."""
        return int((self._epoch + time.monotonic()) * 1000)

    def monotonic(self) -> float:
        """Seconds of `time.monotonic`."""
        return time.monotonic()


class TrioClock:
    """Time of the running trio loop, so a virtual clock moves it.

    The wall epoch is fixed at the first look inside `trio.run`. Outside of it there is
    only the wall clock.
    """

    __slots__ = ("_epoch",)

    def __init__(self) -> None:
        self._epoch: float | None = None

    def now_ms(self) -> int:
        """Epoch milliseconds."""
        try:
            now = trio.current_time()
        except RuntimeError:
            return int(time.time() * 1000)
        if self._epoch is None:
            self._epoch = time.time() - now
        return int((self._epoch + now) * 1000)

    def monotonic(self) -> float:
        """Seconds of the trio clock."""
        return trio.current_time()
