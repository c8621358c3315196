"""Does a process take more and more memory? What is measured now and then, judged."""

from __future__ import annotations

import itertools
import statistics
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

_MOST_PAIRS = 400


class Sample(NamedTuple):
    """One look at a process."""

    seconds: float
    resident: float
    """MiB that the system has given to it."""
    blocks: int
    """Blocks that Python's objects take (`sys.getallocatedblocks`)."""


class Trend(NamedTuple):
    """How something grew while it was looked at."""

    level: float
    growth: float
    """Over the whole time, by the median slope of all pairs of looks (Theil and Sen):
    single peaks do not matter.
    """

    def __str__(self) -> str:
        return f"{self.level:,.1f} {self.growth:+,.1f}"


def trend_of(points: Sequence[tuple[float, float]]) -> Trend:
    """The trend of values by time; it needs at least three."""
    step = -(-len(points) // _MOST_PAIRS)
    slopes = [
        (high - low) / (later - earlier)
        for (earlier, low), (later, high) in itertools.combinations(points[::step], 2)
    ]
    level = statistics.median(value for _time, value in points)
    return Trend(level, statistics.median(slopes) * (points[-1][0] - points[0][0]))


def judge(samples: Sequence[Sample], tolerance: float) -> tuple[bool, str]:
    """Whether what a process holds stays the same, and the reason.

    `samples` are of a process that has warmed up. What it resides in may grow by
    `tolerance` MiB over their time: allocators keep pieces. Its objects may grow by 3%.
    """
    resident = trend_of([(sample.seconds, sample.resident) for sample in samples])
    blocks = trend_of([(sample.seconds, float(sample.blocks)) for sample in samples])
    minutes = (samples[-1].seconds - samples[0].seconds) / 60
    flat = resident.growth <= tolerance and blocks.growth <= 0.03 * blocks.level
    return flat, (
        f"{'flat' if flat else 'GROWING'}: in {minutes:.1f} minutes after warm-up, process "
        f"{resident} MiB (at most +{tolerance:.1f}), objects {blocks} blocks "
        f"(at most +{0.03 * blocks.level:,.0f})"
    )
