"""Gives memory back that the C library keeps after much was freed.

glibc keeps freed blocks below the newest one for later use, and a process that once
held many large buffers stays as large as it was. `malloc_trim` returns whole pages of
them.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


def return_memory() -> None:
    """Return freed pages to the system, where the C library can: Linux with glibc.

    Takes some milliseconds for each 100 MB that are free.
    """
    trim = _trim()
    if trim is not None:
        trim(0)


@cache
def _trim() -> Callable[[int], int] | None:
    try:
        import ctypes

        trim: Callable[[int], int] = ctypes.CDLL(None).malloc_trim
    except (ImportError, OSError, AttributeError, TypeError):
        return None
    return trim
