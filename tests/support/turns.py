"""How often other tasks have their turn while something is done."""

from __future__ import annotations

from contextlib import asynccontextmanager
from itertools import count
from typing import TYPE_CHECKING

import trio

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable


@asynccontextmanager
async def counted_turns() -> AsyncIterator[Callable[[], int]]:
    """Gives what tells how many turns others have had since the block began.

    After the block it tells those of the whole block.
    """
    turns = 0

    async def take_turns() -> None:
        nonlocal turns
        for turns in count(1):  # noqa: B007 - it is told
            await trio.lowlevel.checkpoint()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(take_turns)
        yield lambda: turns
        nursery.cancel_scope.cancel()
