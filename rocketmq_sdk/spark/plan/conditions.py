"""Conditions on rows that a read keeps to by itself, instead of leaving it to Spark.

They choose queues, cut ranges of offsets, and are compared with each row that is left.
Neither Spark nor trio is needed here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import attrs

from rocketmq_sdk.spark.plan.offsets import MOST_OFFSET, QueueKey
from rocketmq_sdk.spark.plan.ranges import Range

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

Spans = tuple[tuple[int, int], ...]
"""Offsets: disjoint, in order, each from one number up to another."""
EVERYWHERE: Final[Spans] = ((0, MOST_OFFSET),)


def span(begin: int, end: int) -> Spans:
    """The offsets from one number up to another."""
    begin, end = max(begin, 0), min(end, MOST_OFFSET)
    return ((begin, end),) if begin < end else ()


def spans_of(offsets: Iterable[int]) -> Spans:
    """Some single offsets."""
    found: list[tuple[int, int]] = []
    for offset in sorted({offset for offset in offsets if 0 <= offset < MOST_OFFSET}):
        if found and found[-1][1] == offset:
            found[-1] = found[-1][0], offset + 1
        else:
            found.append((offset, offset + 1))
    return tuple(found)


def both(one: Spans, other: Spans) -> Spans:
    """The offsets that are in both."""
    found: list[tuple[int, int]] = []
    left, right = list(one[::-1]), list(other[::-1])
    while left and right:
        begin, end = max(left[-1][0], right[-1][0]), min(left[-1][1], right[-1][1])
        if begin < end:
            found.append((begin, end))
        (left if left[-1][1] <= right[-1][1] else right).pop()
    return tuple(found)


@attrs.frozen
class Times:
    """Store times in epoch milliseconds, from one up to another; None: no limit."""

    least: int | None = None
    before: int | None = None

    def __bool__(self) -> bool:
        return self.least is not None or self.before is not None

    def both(self, other: Times) -> Times:
        """The times that are in both."""
        least = [time for time in (self.least, other.least) if time is not None]
        before = [time for time in (self.before, other.before) if time is not None]
        return Times(max(least, default=None), min(before, default=None))


@attrs.frozen
class Conditions:
    """What all rows of a read have to be like; the default: anything."""

    queues: tuple[Callable[[QueueKey], bool], ...] = ()
    offsets: Spans = EVERYWHERE
    times: Times = Times()
    tags: frozenset[str] | None = None

    def both(self, other: Conditions) -> Conditions:
        """The rows that fit both."""
        tags = [tags for tags in (self.tags, other.tags) if tags is not None]
        return Conditions(
            self.queues + other.queues,
            both(self.offsets, other.offsets),
            self.times.both(other.times),
            frozenset.intersection(*tags) if tags else None,
        )

    @property
    def exclude_all(self) -> bool:
        """Whether no row can fit, whatever the queues hold."""
        times = self.times
        none_in_time = (
            times.least is not None and times.before is not None and times.least >= times.before
        )
        return not self.offsets or none_in_time or self.tags == frozenset()

    def narrowed(self, ranges: Sequence[Range]) -> list[Range]:
        """What is left of ranges, in their order."""
        if self.exclude_all:
            return []
        return [
            Range(item.queue, begin, end)
            for item in ranges
            if all(fits(item.queue) for fits in self.queues)
            for begin, end in both(((item.begin, item.end),), self.offsets)
        ]


ANYTHING: Final = Conditions()
"""No condition."""
