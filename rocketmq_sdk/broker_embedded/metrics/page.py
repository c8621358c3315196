"""A page of metrics in Prometheus' text format, written in steps.

A broker may have ten thousand queues. So whoever writes gives the loop back after
`STEP` seconds of work, and the page is sent in the parts that came together.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from enum import Enum
from typing import TYPE_CHECKING, Final, NamedTuple

import trio

from rocketmq_sdk.broker_embedded.tables.figures import Distribution

if TYPE_CHECKING:
    from collections.abc import Mapping

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
STEP: Final = 0.001
"""Seconds of work after which others have their turn."""
_LOOK_EVERY: Final = 16
"""Samples from one look at the clock to the next."""
OVERFLOW: Final = "otel_metric_overflow"
"""The label of what was counted when there were too many sets of labels."""
_ESCAPED: Final = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n"})

Value = int | float | Distribution
Labels = tuple[str, ...]
Samples = Iterable[tuple[Labels | None, Value]]
"""Values of labels, and the value; None stands for the overflow."""


class Kind(Enum):
    """What a metric is."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


class Row(NamedTuple):
    """One metric: how it is called, what it says, and where its samples come from."""

    name: str
    kind: Kind
    text: str
    labels: Labels
    samples: Callable[[], Samples]
    fixed: Labels = ()
    """Names and values of labels that all samples have, in turns."""


def escaped(value: str) -> str:
    """The value of a label as it is written."""
    return value.translate(_ESCAPED)


def number(value: float) -> str:
    """A value as it is written."""
    if isinstance(value, int):
        return str(value)
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return "NaN" if math.isnan(value) else repr(value)


class Pace:
    """Gives the loop back whenever somebody has worked for `STEP` seconds."""

    __slots__ = ("_since",)

    def __init__(self) -> None:
        self._since = trio.current_time()

    async def rest(self) -> None:
        """Let the others have their turn if it is time."""
        if trio.current_time() - self._since > STEP:
            await trio.lowlevel.checkpoint()
            self._since = trio.current_time()


class Page:
    """Collects lines; `parts` is the page once it is `finish`ed."""

    def __init__(self, base: Mapping[str, str]) -> None:
        """`base` are the labels of all samples."""
        self._base = ",".join(f'{name}="{escaped(value)}"' for name, value in base.items())
        self._lines: list[str] = []
        self._since = trio.current_time()
        self.parts: list[bytes] = []

    async def rest(self) -> None:
        """Give the loop back if this has worked for a while."""
        if trio.current_time() - self._since > STEP:
            await self.rest_now()

    async def rest_now(self) -> None:
        """Give the loop back."""
        self.finish()
        await trio.lowlevel.checkpoint()
        self._since = trio.current_time()

    def finish(self) -> None:
        """Put what was written into a part."""
        if self._lines:
            self.parts.append("".join(self._lines).encode())
            self._lines.clear()

    def bare(self, name: str, kind: Kind, text: str, value: str) -> None:
        """Write a metric with one sample that has no labels at all."""
        self._lines.append(f"# HELP {name} {text}\n# TYPE {name} {kind.value}\n{name} {value}\n")

    async def write(self, row: Row) -> None:
        """Write a metric, if it has samples."""
        fixed = "".join(
            f',{name}="{escaped(value)}"'
            for name, value in zip(row.fixed[::2], row.fixed[1::2], strict=True)
        )
        begun = False
        for count, (labels, value) in enumerate(row.samples(), 1):
            if not begun:
                begun = True
                text = row.text.replace("\\", "\\\\").replace("\n", "\\n")
                self._lines.append(
                    f"# HELP {row.name} {text}\n# TYPE {row.name} {row.kind.value}\n"
                )
            if labels is None:
                own = f'{fixed},{OVERFLOW}="true"'
            else:
                named = zip(row.labels, labels, strict=True)
                own = fixed + "".join(
                    [f',{name}="{escaped(label)}"' for name, label in named if label]
                )
            if isinstance(value, Distribution):
                self._histogram(row.name, own, value)
            else:
                self._lines.append(f"{row.name}{{{self._base}{own}}} {number(value)}\n")
            if not count % _LOOK_EVERY:
                await self.rest()
        await self.rest()

    def _histogram(self, name: str, own: str, value: Distribution) -> None:
        labels, add, total = self._base + own, self._lines.append, 0
        for bound, count in zip((*value.bounds, math.inf), value.counts, strict=True):
            total += count
            add(f'{name}_bucket{{{labels},le="{number(float(bound))}"}} {total}\n')
        add(f"{name}_sum{{{labels}}} {number(value.total)}\n{name}_count{{{labels}}} {total}\n")
