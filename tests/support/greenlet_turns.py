"""Stepped threads without threads: the same code, the same turns, in greenlets.

A change of threads takes two system calls and, on a busy machine, a wait for a
processor; half of a crash point's time went there. A greenlet has a stack of its own in
the thread of the loop, so what runs and when is the same: `test_stepped_threads` holds
both against each other. Where greenlets are missing, threads do the same in more time.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from rocketmq_sdk.testing.stepped_threads import SteppedThread

try:
    import greenlet
except ImportError:
    greenlet = None

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


class GreenletTurns:
    """Turns of the loop and a greenlet."""

    __slots__ = ("_greenlet",)

    def __init__(self, _name: str, work: Callable[[], None]) -> None:
        self._greenlet = greenlet.greenlet(work)

    def go(self) -> None:
        """Let the greenlet go on until its `stop` or its end."""
        self._greenlet.parent = greenlet.getcurrent()
        self._greenlet.switch()

    def stop(self) -> None:
        """Let the loop go on."""
        parent = self._greenlet.parent
        assert parent is not None
        parent.switch()


@contextmanager
def greenlets() -> Iterator[None]:
    """Stepped threads that begin in the block are greenlets."""
    before = SteppedThread.turns
    if greenlet is not None:
        SteppedThread.turns = GreenletTurns
    try:
        yield
    finally:
        SteppedThread.turns = before
