"""Import time, and the time to open and close an embedded broker in memory.

The first broker of a process costs more: code that runs for the first time, and what
Python's garbage collector has to look at after so many imports.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import trio

from rocketmq_sdk import EmbeddedBroker

if TYPE_CHECKING:
    from benchmarks.harness import Report

BROKERS = 300
"""Brokers that are opened one after another; the median counts."""


def _import_seconds(module: str) -> float:
    code = f"import time; t = time.perf_counter(); import {module}; print(time.perf_counter() - t)"
    return float(
        subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True
        ).stdout
    )


async def _open_and_close(count: int) -> tuple[list[float], list[float]]:
    """Milliseconds that opening took, and closing, for each of so many brokers."""
    opening, closing = list[float](), list[float]()
    for _ in range(count):
        begin = time.perf_counter()
        async with EmbeddedBroker():
            opened = time.perf_counter()
        opening.append((opened - begin) * 1e3)
        closing.append((time.perf_counter() - opened) * 1e3)
    return opening, closing


def _first_of_a_process() -> float:
    """Milliseconds for the first broker of a process, opened and closed."""
    code = (
        "import trio; from benchmarks.startup import _open_and_close; "
        "opening, closing = trio.run(_open_and_close, 1); print(opening[0] + closing[0])"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return float(run.stdout)


def run(report: Report, scale: float) -> None:
    """One round."""
    for _ in range(max(1, int(5 * scale))):
        report.add("import trio", "ms", _import_seconds("trio") * 1e3)
        report.add(
            "import rocketmq_sdk and its producer",
            "ms",
            _import_seconds("rocketmq_sdk.producer.producer") * 1e3,
            "import trio",
        )
        report.add(
            "import rocketmq_sdk", "ms", _import_seconds("rocketmq_sdk") * 1e3, "import trio"
        )
    opening, closing = trio.run(_open_and_close, max(10, int(BROKERS * scale)))
    report.add("open an embedded broker", "ms", statistics.median(opening))
    report.add("close an embedded broker", "ms", statistics.median(closing))
    report.add("open and close the first of a process", "ms", _first_of_a_process())
