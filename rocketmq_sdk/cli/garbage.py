"""Garbage collections of a broker process that take no longer the more it serves.

A full collection of CPython goes through everything that lives: with 10,000 connections
a third of a second of a whole core, in which nobody is served. `rocketmq broker` owns
its process and may do better; an `EmbeddedBroker` leaves that to the program it is in.

What a full collection has left is frozen: the next one looks only at what came since.
What is freed by its last reference, as nearly everything of a broker is, leaves the
frozen part by itself. Circles that become garbage there stay, so everything is looked
at again once the frozen part is twice as large as after the last such look, and
`ROOM` more.
"""

from __future__ import annotations

import gc
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

import trio

from rocketmq_sdk.lifecycle import raise_unwrapped

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

ROOM: Final = 1_000_000
"""Objects, about 100 MB of them."""
LOOK_EVERY: Final = 600.0
"""Seconds from one count of the frozen objects to the next; it goes through all."""
THRESHOLDS: Final = (700, 5, 3)
"""When to collect. As each full collection looks at new objects only, many that are
short cost no more than few that are long.
"""
_FULL: Final = 2


def _freeze(phase: str, info: dict[str, int]) -> None:
    if phase == "stop" and info["generation"] == _FULL:
        gc.freeze()


def look_at_all() -> int:
    """Collect what is garbage of the frozen objects too; how many are left."""
    gc.unfreeze()
    gc.collect()
    gc.freeze()
    return gc.get_freeze_count()


async def _look_now_and_then(left: int, room: int) -> None:
    while True:
        await trio.sleep(LOOK_EVERY)
        if gc.get_freeze_count() > 2 * left + room:
            left = look_at_all()


@asynccontextmanager
async def short_collections(room: int = ROOM) -> AsyncIterator[None]:
    """Freeze what lives now, and what later full collections leave, for a block.

    Changes the garbage collection of the whole process; at the end nothing is frozen.
    """
    before = gc.get_threshold()
    left = look_at_all()
    gc.set_threshold(*THRESHOLDS)
    gc.callbacks.append(_freeze)
    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_look_now_and_then, left, room)
            yield
            nursery.cancel_scope.cancel()
    except BaseExceptionGroup as group:
        raise_unwrapped(group)
    finally:
        gc.callbacks.remove(_freeze)
        gc.set_threshold(*before)
        gc.unfreeze()
