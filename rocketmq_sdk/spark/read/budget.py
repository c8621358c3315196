"""A budget of bytes that the pieces of a task share while they are pulled."""

from __future__ import annotations

import attrs
import trio

_FIRST_GUESS = 256 << 10
"""Bytes of an answer, before there is one.

The most that Apache's broker gives by default (`maxTransferBytesOnMessageInMemory`).
"""


class Budget:
    """Bytes in flight: asked for or pulled, and not yet handed on.

    Pieces are handed on in order. So the one whose turn it is never waits for room, or
    those behind it could hold all of it.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self.used = 0
        self.guess = _FIRST_GUESS
        """How large the last answer was, and probably the next one is."""
        self.turn = 0
        self._waiting = trio.lowlevel.ParkingLot()

    async def room(self, number: int, answers: int) -> None:
        """Wait for room for some answers, or for the turn of piece `number`."""
        while self.used and self.used + answers * self.guess > self._limit and number > self.turn:
            await self._waiting.park()

    def give_back(self, size: int) -> None:
        """Bytes were handed on, or are not needed."""
        self.used -= size
        self._waiting.unpark_all()

    def next_in_turn(self) -> None:
        """A piece was handed on as a whole."""
        self.turn += 1
        self._waiting.unpark_all()


@attrs.define
class Share:
    """What one piece, which has a number, takes of a budget."""

    _budget: Budget
    _number: int
    _asked: int = 0

    @property
    def guess(self) -> int:
        """How large the next answer is, probably."""
        return self._budget.guess

    async def ask(self, answers: int = 1) -> None:
        """Wait for room for so many answers."""
        await self._budget.room(self._number, answers)
        self._asked = answers * self._budget.guess
        self._budget.used += self._asked

    def take(self, size: int, answers: int = 1) -> None:
        """Answers came; they are in flight until somebody gives them back."""
        budget = self._budget
        budget.used += size
        if size:
            budget.guess = size // answers
        budget.give_back(self._asked)
        self._asked = 0

    def drop(self, size: int) -> None:
        """Bytes that were taken are not needed."""
        self._budget.give_back(size)
