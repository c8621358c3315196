"""Rounds, medians, ratios, tables."""

from __future__ import annotations

import json
import platform
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

import attrs

from rocketmq_sdk.model import message


@attrs.define
class Figure:
    """One measured quantity over all rounds."""

    name: str
    unit: str
    rounds: list[float] = attrs.field(factory=list)
    baseline: str | None = None
    """Name of the figure that this one is divided by in the ratio column."""

    @property
    def median(self) -> float:
        return statistics.median(self.rounds)


@attrs.frozen
class Aim:
    """What a figure should reach: so many times its baseline of the same run.

    At least, or with `at_most` at most.
    """

    figure: str
    baseline: str
    factor: float
    at_most: bool = False


AIMS = (
    Aim("tcp send, 256 in flight", "java, 256 in flight", 1.4),
    Aim("tcp send, 256 in flight, 1 KiB", "java, 256 in flight, 1 KiB", 1.2),
    Aim("tcp send, one at a time, p50", "java, one at a time, p50", 0.6, at_most=True),
    Aim("tcp send, batches of 100", "java, batches of 100", 1.0),
    Aim(
        "consume a backlog, one message at a time",
        "java, consume a backlog, one message at a time",
        1.2,
    ),
    Aim(
        "consume a backlog, batch listener of 32",
        "java, consume a backlog, batch listener of 32",
        1.2,
    ),
    Aim(
        "end to end at 1,000/s from its moment, p50",
        "java, end to end at 1,000/s, p50",
        0.45,
        at_most=True,
    ),
    Aim(
        "end to end at 1,000/s from its moment, p99",
        "java, end to end at 1,000/s, p99",
        0.4,
        at_most=True,
    ),
    Aim("in-process send, 64 in flight", "bare in-process call", 0.6),
    Aim(
        "simple consumer, single acks, not merged",
        "java, pop consumer, single acks, not merged",
        0.5,
    ),
    Aim("simple consumer, single acks, not merged", "java, pop(32), single acks, not merged", 0.5),
    *(
        Aim(f"java's client, {work}, this broker", f"java's client, {work}, apache's broker", aim)
        for work, aim in (
            ("256 in flight", 1.5),
            ("256 in flight, 1 KiB", 1.3),
            ("64 threads", 1.2),
            ("batches of 100", 1.2),
        )
    ),
    Aim("accumulated sends", "java, accumulated sends", 1.2),
    Aim("lite pull consumer, backlog", "java, lite pull consumer, backlog", 0.7),
    Aim("sync flush, 8 at a time", "java, sync flush, 8 in flight", 1.5),
    Aim("sync flush, 8 at a time", "apache, sync flush, 8 at a time", 1.5),
    Aim(
        "spark read, 5 KB compressed, inflated bytes",
        "spark read, 5 KB plain, inflated bytes",
        0.6,
    ),
    Aim("spark write, beside Kafka's", "spark write, Kafka's connector", 0.9),
    Aim("spark read, beside Kafka's", "spark read, Kafka's connector", 0.9),
    Aim("spark read, large pulls, beside Kafka's", "spark read, Kafka's connector", 0.9),
    Aim(
        "spark read, processor time, beside Kafka's",
        "spark read, processor time, Kafka's connector",
        0.8,
    ),
    Aim("import rocketmq_sdk", "import trio", 2.0, at_most=True),
)


class Report:
    """Collects figures; prints them with their ratios, and which aims are met.

    `suffix` is appended to each name.
    """

    def __init__(self) -> None:
        self.figures: dict[str, Figure] = {}
        self.suffix = ""

    def add(self, name: str, unit: str, value: float, baseline: str | None = None) -> None:
        """Add one round's value of a figure."""
        name += self.suffix
        baseline = baseline and baseline + self.suffix
        figure = self.figures.get(name)
        if figure is None:
            figure = self.figures[name] = Figure(name, unit, baseline=baseline)
        figure.rounds.append(value)
        print(f"  {name}: {_number(value)} {unit}", file=sys.stderr, flush=True)

    def ratio(self, figure: Figure) -> float | None:
        """Median over the baseline's median, or None without one."""
        base = self.figures.get(figure.baseline or "")
        return figure.median / base.median if base is not None and base.median else None

    def table(self) -> str:
        lines = [
            f"{'figure':<52} {'median':>12} {'min':>12} {'max':>12} {'unit':<8} ratio to baseline"
        ]
        for figure in self.figures.values():
            ratio = self.ratio(figure)
            versus = "" if ratio is None else f"{ratio:.2f} x {figure.baseline}"
            numbers = " ".join(
                f"{_number(value):>12}"
                for value in (figure.median, min(figure.rounds), max(figure.rounds))
            )
            lines.append(f"{figure.name:<52} {numbers} {figure.unit:<8} {versus}")
        return "\n".join(lines)

    def aims(self) -> str:
        """Each aim whose figures were both measured, and whether it is met."""
        lines = []
        for aim in AIMS:
            figure, base = self.figures.get(aim.figure), self.figures.get(aim.baseline)
            if figure is not None and base is not None:
                ratio = figure.median / base.median
                met = ratio <= aim.factor if aim.at_most else ratio >= aim.factor
                sign = "<=" if aim.at_most else ">="
                lines.append(
                    f"{'met   ' if met else 'MISSED'} {ratio:6.2f} x {aim.baseline} (aim {sign} "
                    f"{aim.factor}): {aim.figure}"
                )
        return "\n".join(lines)

    def as_json(self) -> str:
        return json.dumps(
            [
                {**attrs.asdict(figure), "median": figure.median, "ratio": self.ratio(figure)}
                for figure in self.figures.values()
            ],
            indent=2,
        )


Benchmark = Callable[[Report], None]


def micros(
    report: Report,
    name: str,
    action: Callable[[], object],
    count: int,
    items: int = 1,
    *,
    baseline: str | None = None,
) -> None:
    """Processor time of a stage for each of the items that an action has.

    Another stage may be its baseline.
    """
    action()
    begin = time.process_time()
    for _ in range(count):
        action()
    spent = (time.process_time() - begin) / count / items * 1e6
    report.add(f"stage: {name}", "us", spent, baseline and f"stage: {baseline}")


def in_use() -> str:
    """The interpreter, and whether modules of the package are compiled."""
    kind = "pure" if Path(message.__file__).suffix == ".py" else "compiled"
    return f"{platform.python_implementation()} {platform.python_version()}, {kind} modules"


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:,.2f}"


def percentile(values: list[float], fraction: float) -> float:
    """The value below which `fraction` of the values lie."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * fraction))]
