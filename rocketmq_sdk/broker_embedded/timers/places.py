"""Where the messages of waiting timers are in the log, for retention in memory."""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


class WaitingPlaces:
    """Positions and sizes by slot; nothing where nobody asks, on a disk."""

    __slots__ = ("_by_slot", "_wanted")

    def __init__(self, *, wanted: bool) -> None:
        self._wanted = wanted
        self._by_slot: dict[int, array[int]] = {}

    def add(self, time: int, position: int, size: int) -> None:
        """A message waits in the slot of a time."""
        if self._wanted:
            self._by_slot.setdefault(time, array("q")).extend((position, size))

    def done(self, time: int) -> None:
        """All messages of a slot were delivered."""
        self._by_slot.pop(time, None)

    def between(self, low: int, high: int) -> Iterator[tuple[int, int]]:
        """Positions and sizes of messages that wait, between two positions."""
        for places in self._by_slot.values():
            for number in range(0, len(places), 2):
                if low <= places[number] < high:
                    yield places[number], places[number + 1]

    def least(self, otherwise: int) -> int:
        """The lowest position, at most `otherwise`."""
        return min(otherwise, *[places[0] for places in self._by_slot.values()], otherwise)
