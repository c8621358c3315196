"""The services of a store: tasks that run as long as it is open.

Whoever owns the store decides what becomes of their errors. A broker starts them again,
like its own, and ends only when the log can no longer be trusted.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import NamedTuple, TypeAlias


class StoreService(NamedTuple):
    """One of them; logs and statistics call it `name`."""

    name: str
    run: Callable[[], Awaitable[None]]
    of_log: bool = False
    """Whether the log can no longer be trusted once it has raised."""


KeepRunning: TypeAlias = Callable[[str, Callable[[], Awaitable[None]], bool], Awaitable[None]]
"""Runs a `StoreService`, given its parts."""


async def run_once(_name: str, run: Callable[[], Awaitable[None]], _of_log: bool) -> None:
    """Let its error end the block of the store."""
    await run()
