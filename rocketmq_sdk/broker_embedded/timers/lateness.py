"""That waiting messages come late, as troubles of a service."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

LATE_MS: Final = 10_000
"""Milliseconds behind which messages are late, as the alert has it."""


class Lateness:
    """Says how late messages come, while they are late enough to be told of."""

    __slots__ = ("_behind_ms",)

    def __init__(self, behind_ms: Callable[[], int]) -> None:
        self._behind_ms = behind_ms

    def __iter__(self) -> Iterator[str]:
        late = self._behind_ms()
        if late >= LATE_MS:
            yield f"messages come {late / 1000:.0f} s late"
