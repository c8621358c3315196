"""A limit of real time for work that virtual time cannot end: a lock that is never
released, a loop without an end.
"""

from __future__ import annotations

import os
import signal
import traceback
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

AGAIN = 0.25
"""After this part of the limit work that goes on is ended again: what cleans up may
stand still as well.
"""
_MOST = 8


class StoodStillError(BaseException):
    """Work did not end in time. No `except Exception` takes it for its own matter."""


@contextmanager
def limited(seconds: float, what: str) -> Iterator[None]:
    """Raise `StoodStillError` in the block when it takes longer, in the main thread.

    When the block goes on all the same, again and again; in the end the process exits.
    """
    times = 0

    def stand_still(_number: int, frame: FrameType | None) -> None:
        nonlocal times
        times += 1
        where = "".join(traceback.format_stack(frame, 6))
        if times > _MOST:
            os.write(2, f"{what} cannot be ended:\n{where}".encode())
            os._exit(70)
        raise StoodStillError(f"it stood still for {seconds:g} s:\n{where}")

    before = signal.signal(signal.SIGALRM, stand_still)
    signal.setitimer(signal.ITIMER_REAL, seconds, seconds * AGAIN)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def cause_of(error: BaseException) -> BaseException:
    """`StoodStillError` if it is anywhere in an error, else what that came from."""
    if isinstance(error, BaseExceptionGroup):
        found = [cause_of(each) for each in error.exceptions]
        return next((each for each in found if isinstance(each, StoodStillError)), found[0])
    if not isinstance(error, StoodStillError) and error.__cause__ is not None:
        return cause_of(error.__cause__)
    return error
