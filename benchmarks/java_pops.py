"""Pops of 32 by Apache's client below its push consumer, on Apache's broker.

That is what a simple consumer does.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.simple import TASKS
from support import java

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.harness import Report

_PROGRAM = str(Path(__file__).parent / "java" / "Pops.java")
_WARM = 20_000


def _measure(
    cluster: java.ApacheCluster, fill: Callable[[str, int], object], count: int, *, single: bool
) -> float:
    """Messages per second of a client that has taken others before."""
    pops = java.Driver(memory="512m", program=_PROGRAM)
    try:
        rate = 0.0
        for number in (_WARM, count):
            topic = f"java_pops_{time.time_ns()}"
            fill(topic, number)
            where = {
                "topic": topic,
                "group": topic,
                "namesrv": cluster.namesrv,
                "broker": cluster.broker,
            }
            rate = float(
                pops.perform(
                    {
                        "do": "take",
                        **where,
                        "count": number,
                        "batch": 32,
                        "tasks": TASKS,
                        "single": single,
                    }
                )
            )
        return rate
    finally:
        pops.close()


def run(
    cluster: java.ApacheCluster, fill: Callable[[str, int], object], report: Report, scale: float
) -> None:
    """One round of single acknowledgements on the given broker.

    `fill(topic, count)` fills it. Merging is off there, as Apache ships it.
    """
    count = int(25_000 * scale) // 100 * 100
    report.add(
        "java, pop(32), single acks, not merged", "/s", _measure(cluster, fill, count, single=True)
    )


def run_merged(report: Report, scale: float, sizes: dict[str, Any]) -> None:
    """One round of batch acknowledgements on a broker of its own, which merges."""
    with (
        tempfile.TemporaryDirectory(prefix="rocketmq-bench-", ignore_cleanup_errors=True) as home,
        java.apache_cluster(Path(home), "1g", **sizes, enablePopBufferMerge="true") as cluster,
    ):
        producer = java.Driver(memory="512m")
        try:
            producer.perform(
                {"do": "producer", "id": "p", "group": "bench", "namesrv": cluster.namesrv}
            )
            count = int(100_000 * scale) // 100 * 100
            sent = {"do": "send_many", "id": "p", "mode": "batch", "size": 100, "batch": 100}

            def fill(topic: str, number: int) -> None:
                producer.perform({**sent, "topic": topic, "count": number})

            report.add(
                "java, pop(32), batch ack, merged",
                "/s",
                _measure(cluster, fill, count, single=False),
            )
        finally:
            producer.close()
