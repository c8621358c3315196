"""Adaptive spinning: a loop that expects something at once does not sleep for it.

To put a process to sleep and to wake it takes some 50 µs and more, as long as a broker
next to it needs for its answer, and as a client needs for its next request. So the loop
may go on turning for as long as that, and what comes is found earlier, at about the
same cost: what does not sleep stays in the caches. Where it takes longer, because the
other side is far away or the cores have other work, spinning would be in vain: then it
is tried ever more seldom.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

MOST: Final = 48
"""Turns of the loop without an answer after which it may sleep: some 250 µs."""
LONGEST: Final = 0.0005
"""Seconds after which it may sleep: others have the core, or a turn takes long."""
QUICK: Final = 28
"""Turns that cost no more than to sleep and to wake."""
_RAREST: Final = 127
_HEAVY: Final = 12 * 1024
_HEAVIEST: Final = 3.0


class Spinning:
    """Says which waits are worth spinning, by how the last ones went.

    For one wait at a time. `now` is trio's clock.
    """

    __slots__ = ("_ends", "_left", "_now", "_pause", "_turns", "_weight")

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._left = self._pause = 0
        self._turns = self._ends = 0.0
        self._weight = 1.0

    def begin(self, size: int = 0) -> bool:
        """Whether to spin this time; then `goes_on` has to follow until it says no.

        A wait beside a request of many bytes, such as a batch, may take up to three
        times as long: its maker and the broker take longer for it, and it costs more.
        """
        if self._left:
            self._left -= 1
            return False
        self._weight = weight = min(1.0 + size / _HEAVY, _HEAVIEST)
        self._turns, self._ends = 0.0, self._now() + LONGEST * weight
        return True

    def goes_on(self, *, found: bool, turns: float = 1.0) -> bool:
        """Whether to look once more; `found` tells whether it has come.

        `turns` have gone by since the last look.
        """
        self._turns += turns
        late = self._now() > self._ends
        if not (found or late) and self._turns < MOST * self._weight:
            return True
        self._learn(quick=found and not late and self._turns <= QUICK * self._weight)
        return False

    def _learn(self, *, quick: bool) -> None:
        """A wait that was not quick makes the pauses twice as long, one that was makes
        them shorter by a quarter: spinning ends where one of four is in vain.
        """
        pause = self._pause
        if not quick:
            pause = min(2 * pause + 1, _RAREST)
        elif pause:
            pause -= 1 + pause // 4
        self._left = self._pause = pause
