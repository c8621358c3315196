"""Import time, and the time to open an embedded broker."""

from __future__ import annotations

import subprocess
import sys
import time
from typing import TYPE_CHECKING

import trio

from rocketmq_sdk import EmbeddedBroker

if TYPE_CHECKING:
    from benchmarks.harness import Report


def _import_seconds(module: str) -> float:
    code = f"import time; t = time.perf_counter(); import {module}; print(time.perf_counter() - t)"
    return float(
        subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True
        ).stdout
    )


async def _open_seconds() -> float:
    begin = time.perf_counter()
    async with EmbeddedBroker():
        return time.perf_counter() - begin


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
        report.add("open an embedded broker", "ms", trio.run(_open_seconds) * 1e3)
