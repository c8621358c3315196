"""Who is told of each failure of a listener in this process, whatever is logged."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

watchers: Final[list[Callable[[str, Exception], None]]] = []
"""Each is told what has failed, in words, and what was raised; in the thread where the
consumer runs.
"""


def tell_watchers(what: str, error: Exception) -> None:
    """Tell all of them of a failure."""
    for watcher in tuple(watchers):
        watcher(what, error)
