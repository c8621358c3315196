"""What happened in a simulation, line by line."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Final

import trio

from rocketmq_sdk.codes import request_name, response_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from rocketmq_sdk.testing.traffic.recording import Seen

_NOTE: Final = "*"


class Trace:
    """Every request that a broker got, every trouble, every note of the scenario.

    Two runs of the same plan and scenario have equal traces. Iterate it for its lines.
    """

    def __init__(self) -> None:
        self._entries: list[tuple[float, str, Seen | str]] = []

    def note(self, text: str) -> None:
        """Add a line at the present moment."""
        self._entries.append((trio.current_time(), _NOTE, text))

    def listener(self, broker: str) -> Callable[[Seen], None]:
        """Adds each request that a broker gets."""
        entries = self._entries

        def add(seen: Seen) -> None:
            entries.append((trio.current_time(), broker, seen))

        return add

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[str]:
        return (_line(*entry) for entry in self._entries)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Trace) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]

    @property
    def notes(self) -> list[str]:
        """The lines about troubles, and those that the scenario noted."""
        return [_line(*entry) for entry in self._entries if entry[1] is _NOTE]

    @property
    def digest(self) -> str:
        """A short text that differs when a trace differs: 8 hexadecimal digits."""
        value = 0
        for line in self:
            value = zlib.crc32(line.encode(), value)
        return f"{value:08x}"

    def text(self) -> str:
        """All lines."""
        return "\n".join(self)


def _line(time: float, where: str, what: Seen | str) -> str:
    if isinstance(what, str):
        return f"{time:12.6f} {where} {what}"
    told = "no answer" if what.answer is None else response_name(what.answer)
    content = zlib.crc32(what.body, zlib.crc32(repr(what.fields).encode()))
    return f"{time:12.6f} {where} {request_name(what.code)} of {what.host} ({content:08x}): {told}"
