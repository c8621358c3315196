"""Records of log files that are gone: those that somebody still needs.

Only a store in memory keeps such records. They keep their positions, so whoever knows
the position of a record finds it as before.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from typing import TYPE_CHECKING, NamedTuple

from rocketmq_sdk.broker_embedded.store.files.anonymous_memory import joined

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from rocketmq_sdk.broker_embedded.store.queues.consume_queue import ConsumeQueue


class Kept(NamedTuple):
    """One record; `queue` is None when it is needed by its position alone."""

    position: int
    queue: ConsumeQueue | None
    offset: int


_BYTES_BESIDE = 8 + 8 + 8 + 8


class KeptSegment:
    """The kept records of one file of the log, in the order of their positions."""

    __slots__ = (
        "_data",
        "_ends",
        "_offsets",
        "_owners",
        "_positions",
        "_queues",
        "anonymous",
        "spans",
    )

    def __init__(self, places: Sequence[Kept], records: Sequence[bytes]) -> None:
        self._positions = array("q", [place.position for place in places])
        self._offsets = array("q", [place.offset for place in places])
        queues: dict[ConsumeQueue | None, int] = {}
        self._owners = array("q", [queues.setdefault(place.queue, len(queues)) for place in places])
        self._queues = list(queues)
        self.spans: dict[ConsumeQueue, tuple[int, int, int]] = {}
        """First and last offset of each queue, and the number of its records."""
        for place in places:
            if place.queue is not None:
                first, _last, count = self.spans.get(place.queue, (place.offset, 0, 0))
                self.spans[place.queue] = first, place.offset, count + 1
        self.anonymous = sum(1 for place in places if place.queue is None)
        """How many records are needed by their positions alone."""
        end, ends = 0, array("q")
        for record in records:
            end += len(record)
            ends.append(end)
        self._ends = ends
        self._data = joined(records, end)

    def __len__(self) -> int:
        return len(self._positions)

    @property
    def size(self) -> int:
        """Bytes in memory."""
        return len(self._data) + _BYTES_BESIDE * len(self)

    @property
    def last(self) -> int:
        """The position of the last record."""
        return self._positions[-1]

    @property
    def first(self) -> int:
        """The position of the first record."""
        return self._positions[0]

    def __iter__(self) -> Iterator[Kept]:
        queues = self._queues
        for position, owner, offset in zip(
            self._positions, self._owners, self._offsets, strict=True
        ):
            yield Kept(position, queues[owner], offset)

    def reduced(self, rule: Callable[[Kept], Kept | None]) -> KeptSegment | None:
        """The segment with what a rule makes of each record; None when it is nothing.

        Itself when all stay as they are.
        """
        before = list(self)
        after = [(number, rule(place)) for number, place in enumerate(before)]
        left = [(number, place) for number, place in after if place is not None]
        if not left:
            return None
        if [place for _number, place in left] == before:
            return self
        return KeptSegment(
            [place for _number, place in left], [self._record(number) for number, _place in left]
        )

    def _record(self, number: int) -> bytes:
        return self._data[self._ends[number - 1] if number else 0 : self._ends[number]]

    def read(self, position: int, size: int) -> bytes | None:
        """Bytes of one record, or of several that follow each other."""
        number = bisect_right(self._positions, position) - 1
        if number < 0:
            return None
        start = self._ends[number - 1] if number else 0
        low = start + position - self._positions[number]
        # Records follow each other in the log where they do here.
        last = bisect_right(self._positions, position + size - 1) - 1
        start_of_last = self._ends[last - 1] if last else 0
        if (
            low + size > self._ends[last]
            or self._positions[last] - self._positions[number] != start_of_last - start
        ):
            return None
        return self._data[low : low + size]


class KeptRecords:
    """The segments of one log, oldest first."""

    __slots__ = ("segments",)

    def __init__(self) -> None:
        self.segments: list[KeptSegment] = []

    @property
    def first(self) -> int | None:
        """The lowest position; None without records."""
        return self.segments[0].first if self.segments else None

    def read(self, position: int, size: int) -> bytes | None:
        """Bytes of one record, or of several that follow each other."""
        index = bisect_right(self.segments, position, key=_first_of) - 1
        return self.segments[index].read(position, size) if index >= 0 else None


def _first_of(segment: KeptSegment) -> int:
    return segment.first
