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

    __slots__ = ("_first_rest", "_left", "_most", "_next_rest", "resting")

    def __init__(self, most: int, rest: int) -> None:
        self._most = self._left = most
        self._first_rest = self._next_rest = rest
        self.resting = 0
        """Chances that are let go by from now on; whoever lets one go by counts."""

    def failed(self) -> None:
        """One try was for nothing. Not counted while it rests: it began before."""
        if self.resting:
            return
        self._left -= 1
        if self._left <= 0:
            self.resting = self._next_rest
            self._next_rest = min(2 * self._next_rest, LONGEST_REST)

    def worked(self) -> None:
        """One was not."""
        self._left, self._next_rest = self._most, self._first_rest
