"""Small work at a disk that somebody waits for, beside the loop."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Final, TypeVar

import trio

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from typing import Any

    Run = Callable[[Callable[[], None]], Awaitable[Any]]

_TURN: Final = 0.0005
_R = TypeVar("_R")


async def run_briefly(run: Run, operation: Callable[[], _R]) -> _R:
    """Have `run` run an operation in a thread; gives or raises what that does.

    The loop has its turn each half of a millisecond, and is never idle meanwhile: a
    clock that jumps when everybody waits stands still. Cancellation does not interrupt
    the operation.
    """
    done = threading.Event()
    results: list[_R] = []
    problems: list[Exception] = []

    def work() -> None:
        try:
            results.append(operation())
        except Exception as error:  # noqa: BLE001 - raised below, where it was asked for
            problems.append(error)
        finally:
            done.set()

    async def take_turns() -> None:
        while True:
            done.wait(_TURN)
            await trio.lowlevel.checkpoint()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(take_turns)
        await run(work)
        nursery.cancel_scope.cancel()
    if problems:
        raise problems[0]
    return results[0]


class Turns:
    """One change after the other: a block waits until those before it have ended."""

    __slots__ = ("_under_way",)

    def __init__(self) -> None:
        self._under_way: trio.Event | None = None

    async def __aenter__(self) -> None:
        # Not a lock of trio's, which is a checkpoint even when nobody holds it.
        while self._under_way is not None:
            await self._under_way.wait()
        self._under_way = trio.Event()

    async def __aexit__(self, *_: object) -> None:
        ended, self._under_way = self._under_way, None
        if ended is not None:
            ended.set()
