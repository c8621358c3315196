"""Answers that wait until the topics and groups behind them are in their files.

A handler changes or looks up tables synchronously (`WrittenTable`); what of it is not
in a file yet marks `touched`. Whoever called the handler then holds the answer back
with `hold`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from rocketmq_sdk.protocol.command import Command

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    Later = Callable[[], Awaitable[Command | None]]


class _Waiting(Protocol):
    async def wait(self) -> None: ...


class _Table(Protocol):
    def unwritten_change(self) -> _Waiting | None: ...


class Unwritten:
    """What of the tables of a broker is not in their files yet."""

    __slots__ = ("_tables", "after", "touched")

    def __init__(self) -> None:
        self.touched = False
        """Whether something unwritten was changed or looked up since `hold`."""
        self._tables: list[_Table] = []
        self.after: list[Callable[[], Callable[[], Awaitable[None]] | None]] = []
        """What an answer waits for after the write: each gives a function that waits,
        or None.
        """

    def watch(self, table: _Table) -> None:
        """A table that takes part."""
        self._tables.append(table)

    def hold(self, answer: Command | Later | None) -> Command | Later | None:
        """The answer, after all that is unwritten now has been written.

        The function raises `StoreError` when that failed.
        """
        self.touched = False
        writes = [write for table in self._tables if (write := table.unwritten_change())]
        if answer is None or not writes:
            return answer

        async def finish() -> Command | None:
            for write in writes:
                await write.wait()
            for wait in self.after:
                waiting = wait()
                if waiting is not None:
                    await waiting()
            return answer if isinstance(answer, Command) else await answer()

        return finish
