"""How long puts and gets take inside the broker (`StoreStatsService` of Apache).

Requests that arrive together are served in one turn, and their answers leave when it
ends, with one write to the log. So the clock is read twice in a turn, and each put and
get in it has taken as long as the turn. With a synchronous flush or replicas a put is
over when they have it. Of puts in the same process, which come without turns, every
sixteenth is measured.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import TypeVar

    from rocketmq_sdk.broker_embedded.tables.stats import BrokerStats
    from rocketmq_sdk.clock import Clock
    from rocketmq_sdk.remoting.channel import Turn

    _Result = TypeVar("_Result")

EVERY: Final = 15
"""A put outside of a turn is measured when no bit of its number is in this mask."""
_LIMITS: Final = (1, 10, 50, 100, 200, 500, 1000, 2000, 3000, 4000, 5000, 10_000)
_NAMES: Final = (
    "[<=0ms]",
    "[0~10ms]",
    "[10~50ms]",
    "[50~100ms]",
    "[100~200ms]",
    "[200~500ms]",
    "[500ms~1s]",
    "[1~2s]",
    "[2~3s]",
    "[3~4s]",
    "[4~5s]",
    "[5~10s]",
    "[10s~]",
)
_TICKS: Final = 6
"""Steps of the statistics in a minute."""


def _fine_bounds() -> Iterator[int]:
    bound = 0
    yield bound
    for step, times in ((1, 20), (2, 15), (5, 10), (10, 10), (50, 6), (100, 5), (1000, 9)):
        for _ in range(times):
            bound += step
            yield bound


_BOUNDS: Final = tuple(_fine_bounds())
"""Upper ends in milliseconds of what percentiles are found in, as with Apache."""


class _Minute:
    """The puts of one minute by their time."""

    __slots__ = ("coarse", "fine")

    def __init__(self) -> None:
        self.coarse = [0] * len(_NAMES)
        self.fine = [0] * (len(_BOUNDS) + 1)

    def add(self, milliseconds: int, puts: int) -> None:
        self.coarse[bisect_right(_LIMITS, milliseconds)] += puts
        self.fine[bisect_left(_BOUNDS, milliseconds)] += puts

    def percentile(self, part: float) -> float:
        wanted = sum(self.fine) * part
        for count, bound in zip(self.fine, _BOUNDS, strict=False):
            wanted -= count
            if wanted <= 0:
                return float(bound)
        return float(_BOUNDS[-1])


class PutTimes:
    """Measures puts and gets; shown by GET_BROKER_RUNTIME_INFO.

    A `Turn` itself: around an inner one, or none. The longest times are since the
    start, the distribution and the percentiles are those of the last whole minute (of
    the first one, as long as it is not over).
    """

    __slots__ = (
        "_clock",
        "_gets",
        "_inner",
        "_last",
        "_now",
        "_puts",
        "_stats",
        "_tick",
        "began",
        "in_turn",
        "longest_get_ms",
        "longest_put_ms",
        "waiting",
    )

    def __init__(self, clock: Clock, stats: BrokerStats) -> None:
        self._clock = clock
        self._stats = stats
        self._inner: Turn | None = None
        self._now = _Minute()
        self._last = self._now
        self._tick = 0
        self._puts = self._gets = 0
        self.in_turn = False
        """Whether the requests that are served now are measured as a turn."""
        self.began = 0.0
        """When the turn began; monotonic seconds."""
        self.waiting = 0
        """Puts of this turn that are not over when it ends."""
        self.longest_put_ms = 0
        self.longest_get_ms = 0

    def around(self, inner: Turn | None) -> PutTimes:
        """Itself, with a turn that it brackets."""
        self._inner = inner
        return self

    def begin(self) -> None:
        """Requests are about to be served."""
        stats = self._stats
        self.in_turn = True
        self.waiting = 0
        self._puts = stats.put_times
        self._gets = stats.pull_found + stats.pull_missed
        self.began = self._clock.monotonic()
        if self._inner is not None:
            self._inner.begin()

    def end(self) -> None:
        """They are served. Raises what the inner turn raises."""
        self.in_turn = False
        if self._inner is not None:
            self._inner.end()
        stats = self._stats
        puts = stats.put_times - self._puts - self.waiting
        gets = stats.pull_found + stats.pull_missed - self._gets
        if puts > 0 or gets > 0:
            seconds = self._clock.monotonic() - self.began
            if puts > 0:
                self._add(seconds, puts)
            if gets > 0:
                self.longest_get_ms = max(self.longest_get_ms, int(seconds * 1000))

    def start(self, puts: int = 1) -> float:
        """Puts are going on that are over later; give the number to `put_over`."""
        if self.in_turn:
            self.waiting += puts
            return self.began
        return self._clock.monotonic()

    def put_over(self, began: float, puts: int = 1) -> None:
        """Puts are over for which their answers had to wait."""
        self._add(self._clock.monotonic() - began, puts)

    def get_over(self, began: float) -> None:
        """A get is over that was not served in its turn."""
        milliseconds = int((self._clock.monotonic() - began) * 1000)
        self.longest_get_ms = max(self.longest_get_ms, milliseconds)

    def measured(self, put: Callable[[], _Result]) -> _Result:
        """Do a put outside of a turn."""
        began = self._clock.monotonic()
        result = put()
        self._add(self._clock.monotonic() - began, 1)
        return result

    def _add(self, seconds: float, puts: int) -> None:
        milliseconds = int(seconds * 1000)
        figures = self._stats.figures
        if figures is not None:
            figures.appends.add(seconds, puts)
        if self._stats.tick != self._tick:
            self._turn_page()
        if not milliseconds:  # as most
            now = self._now
            now.coarse[0] += puts
            now.fine[0] += puts
            return
        self._now.add(milliseconds, puts)
        self.longest_put_ms = max(self.longest_put_ms, milliseconds)

    def _turn_page(self) -> None:
        """Begin another minute when one is over."""
        minute, known = self._stats.tick // _TICKS, self._tick // _TICKS
        if minute != known:
            self._last = self._now if minute == known + 1 else _Minute()
            self._now = _Minute()
        self._tick = self._stats.tick

    def figures(self) -> dict[str, object]:
        """Everything, by Apache's names."""
        self._turn_page()
        last = self._last
        return {
            "putMessageEntireTimeMax": self.longest_put_ms,
            "getMessageEntireTimeMax": self.longest_get_ms,
            "putMessageDistributeTime": "".join(
                f"{name}:{count} " for name, count in zip(_NAMES, last.coarse, strict=True)
            ),
            "putLatency99": f"{last.percentile(0.99):.2f}",
            "putLatency999": f"{last.percentile(0.999):.2f}",
        }
