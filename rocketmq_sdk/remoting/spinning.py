"""Adaptive spinning: a loop that expects an answer at once does not sleep for it.

To put a process to sleep and to wake it takes some 50 µs, which is as long as a broker
next to it needs for its answer. So the loop may go on turning for as long as that, and
answers are found earlier at the same cost. Where answers take longer, because the
broker is far away or the cores have other work, spinning would be in vain: then it is
tried ever more seldom.
"""

from __future__ import annotations

from typing import Final

MOST: Final = 48
"""Turns of the loop without an answer after which it may sleep: some 250 µs."""
LONGEST: Final = 0.0005
"""Seconds after which it may sleep: others have the core, or a turn takes long."""
QUICK: Final = 28
"""Turns that cost no more than to sleep and to wake."""
_RAREST: Final = 255


class Spinning:
    """Says which waits are worth spinning, by how the last ones went."""

    __slots__ = ("_left", "_pause")

    def __init__(self) -> None:
        self._left = 0
        self._pause = 0

    def begin(self) -> bool:
        """Whether to spin this time; then `ended` has to follow."""
        if self._left:
            self._left -= 1
            return False
        return True

    def ended(self, turns: float) -> None:
        """The answer was there after so many turns, or was not after `MOST`.

        A wait that was quick takes back much less than one that was not adds, so that
        spinning ends where one of ten is in vain.
        """
        pause = self._pause
        if turns > QUICK:
            pause = min(4 * pause + 3, _RAREST)
        elif pause:
            pause -= 1 + pause // 8
        self._left = self._pause = pause
