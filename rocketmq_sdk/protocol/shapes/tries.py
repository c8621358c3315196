"""When something is tried that may be for nothing.

Nothing is given up for good: a connection may live for months, and what was for nothing
in one of its minutes may pay in the next one.
"""

from __future__ import annotations

from typing import Final

LONGEST_REST: Final = 64 * 1024
"""Chances that are let go by at most, before one more try."""


class Tries:
    """After `most` tries in a row that were for nothing, it is tried ever more seldom.

    Each time `rest` chances are let go by, twice as many as the time before.
    """

    __slots__ = ("_first_rest", "_left", "_most", "_next_rest", "_resting")

    def __init__(self, most: int, rest: int) -> None:
        self._most = self._left = most
        self._first_rest = self._next_rest = rest
        self._resting = 0

    def let_go_by(self) -> bool:
        """Whether the chance there is now is let go by; it counts then."""
        if not self._resting:
            return False
        self._resting -= 1
        return True

    @property
    def resting(self) -> int:
        """How many chances will be let go by from now on."""
        return self._resting

    def use(self) -> None:
        """One try is used up, as it was for nothing, or may be.

        Not counted while it rests: that one began before.
        """
        if self._resting:
            return
        self._left -= 1
        if self._left <= 0:
            self._resting = self._next_rest
            self._next_rest = min(2 * self._next_rest, LONGEST_REST)

    def worked(self) -> None:
        """One was not for nothing."""
        self._left, self._next_rest = self._most, self._first_rest
