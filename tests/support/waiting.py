"""Names that no other test uses, and waiting for what shows itself only by looking."""

from __future__ import annotations

import time
import uuid
from typing import TYPE_CHECKING

import trio

if TYPE_CHECKING:
    from collections.abc import Callable


def unique(name: str) -> str:
    """A topic, group or client name that nobody has used."""
    return f"{name}_{uuid.uuid4().hex[:10]}"


async def until(condition: Callable[[], object], seconds: float = 60, step: float = 0.05) -> None:
    """Look every `step` seconds until a condition holds; `trio.TooSlowError` when it
    does not in time.
    """
    with trio.fail_after(seconds):
        while not condition():
            await trio.sleep(step)


def plain_until(
    condition: Callable[[], object],
    what: str = "it does not hold",
    seconds: float = 60,
    step: float = 0.005,
) -> None:
    """`until` for code without a loop; an `AssertionError` that says `what`."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(step)
