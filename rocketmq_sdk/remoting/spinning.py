"""Adaptive spinning: a loop that expects something at once does not sleep for it.

To put a process to sleep and to wake it takes some 50 µs and more, as long as a broker
next to it needs for its answer, and as a client needs for its next request. So the loop
may go on turning for as long as that, and what comes is found earlier, at about the
same cost: what does not sleep stays in the caches. Where it takes longer, because the
other side is far away or the cores have other work, spinning would be in vain: then it
is tried ever more seldom. Each turn offers the core to whoever waits for it, which may
be the other side: the kernel puts who is woken by a message where the sender runs.
"""

from __future__ import annotations

import math
import os
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

MOST: Final = 48
"""Turns of the loop without an answer after which it may sleep: some 250 µs."""
LONGEST: Final = 0.0005
"""Seconds after which it may sleep: others have the core, or a turn takes long."""
QUICK: Final = 28
"""Turns that cost no more than to sleep and to wake."""
_SHARED: Final = LONGEST / MOST
"""Seconds of a turn, on average, that tell of others: they have the core, or the lock.

That is the one of the interpreter, where a client spins in another thread.
"""
_HICCUP: Final = 5
"""Turns by which a wait may be longer than that."""
_RAREST: Final = 127
_HEAVY: Final = 8 * 1024
_HEAVIEST: Final = 4.0
_yield_core: Final[Callable[[], None]] = getattr(os, "sched_yield", lambda: None)


class Spinning:
    """Says which waits are worth spinning, by how the last ones went.

    For one wait at a time. `now` is trio's clock.
    """

    __slots__ = ("_began", "_left", "_now", "_pause", "_turns", "_weight")

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._left = self._pause = 0
        self._turns = self._began = 0.0
        self._weight = 1.0

    def begin(self, size: int = 0) -> bool:
        """Whether to spin this time; then `goes_on` has to follow until it says no.

        A wait beside a request of many bytes, such as a batch, may take up to four
        times as long: its maker and the broker take longer for it, and it costs more.
        """
        if self._left:
            self._left -= 1
            return False
        self._weight = min(1.0 + size / _HEAVY, _HEAVIEST)
        self._turns = 0.0
        return True

    def goes_on(self, *, found: bool, turns: float = 1.0) -> bool:
        """Whether to look once more; `found` tells whether it has come.

        `turns` have gone by since the last look.
        """
        now, weight = self._now(), self._weight
        if not self._turns:
            self._began = now  # in the first turn others do what the last chunk has left
        self._turns = turns = self._turns + turns
        took = now - self._began
        if not found and turns < MOST * weight and took <= LONGEST * weight:
            _yield_core()
            return True
        alone = took <= (turns + _HICCUP) * _SHARED
        self._learn(turns / weight if found and alone else math.inf)
        return False

    def _learn(self, turns: float) -> None:
        """A wait that was not quick makes the pauses twice as long, one that was makes
        them shorter by a quarter: spinning ends where one of four is in vain. What has
        come after one turn would have been there without spinning too.
        """
        pause = self._pause
        if turns > QUICK:
            pause = min(2 * pause + 1, _RAREST)
        elif pause and turns > 1.0:
            pause -= 1 + pause // 4
        self._left = self._pause = pause
