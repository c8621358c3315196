"""Names that no other test uses, and waiting for what shows itself only by looking."""

import uuid
from collections.abc import Callable

import trio


def unique(name: str) -> str:
    """A topic, group or client name that nobody has used."""
    return f"{name}_{uuid.uuid4().hex[:10]}"


async def until(condition: Callable[[], bool], seconds: float = 60) -> None:
    """Look again and again until a condition holds; `trio.TooSlowError` when it does not in time."""
    with trio.fail_after(seconds):
        while not condition():
            await trio.sleep(0.05)
