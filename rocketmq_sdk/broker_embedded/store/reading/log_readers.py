"""Who is reading the log, so that retention keeps the files."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


class LogReaders:
    """Positions from which other tasks or threads read the log.

    Retention keeps the files there for a while.
    """

    __slots__ = ("_positions",)

    def __init__(self) -> None:
        self._positions: dict[object, int] = {}

    @contextmanager
    def reading(self, position: int) -> Iterator[None]:
        """Keep the files from a position on while the block runs."""
        key = object()
        self._positions[key] = position
        try:
            yield
        finally:
            del self._positions[key]

    def first(self) -> int | None:
        """The lowest position that somebody reads from."""
        return min(self._positions.values(), default=None)
