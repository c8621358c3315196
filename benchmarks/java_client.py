"""Apache's Java client on this broker and on Apache's, by turns.

Each side has a client and a broker with a store on disk, both processes of their own,
which are stopped while the other side is measured. Needs Java and Maven.
"""

from __future__ import annotations

import os
import signal
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.apache import INDEX, SIZES, WARM, send
from benchmarks.workers import broker_process
from support import java

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from benchmarks.harness import Report

HERE, THERE = "this broker", "apache's broker"
WORK: dict[str, tuple[int, dict[str, Any]]] = {
    "256 in flight": (100_000, {"mode": "async", "in_flight": 256}),
    "256 in flight, 1 KiB": (100_000, {"mode": "async", "in_flight": 256, "size": 1024}),
    "64 threads": (60_000, {"mode": "threads", "threads": 64}),
    "batches of 100": (300_000, {"mode": "batch", "batch": 100}),
}
TURNS = 3
"""Turns of each work in a round. Each is a value of its own for the median."""


def figure(work: str, where: str) -> str:
    """The name of what Java's client reaches on that broker."""
    return f"java's client, {work}, {where}"


class _Side:
    """A broker, and a client in Java that has sent to it before."""

    def __init__(self, namesrv: str, processes: Sequence[int]) -> None:
        self._driver = java.Driver(memory="512m")
        self._processes = [*processes, self._driver.process.pid]
        self._driver.perform({"do": "producer", "id": "p", "group": "bench", "namesrv": namesrv})
        for mode, count in WARM.items():
            send(self._driver, "java_warm", mode, count)
        self.pause()

    def pause(self) -> None:
        for process in self._processes:
            os.kill(process, signal.SIGSTOP)

    def rate(self, count: int, work: dict[str, Any]) -> float:
        """Messages per second, both processes awake for it alone."""
        for process in self._processes:
            os.kill(process, signal.SIGCONT)
        try:
            answer = send(self._driver, "java_client", count=count, **work)
        finally:
            self.pause()
        return float(answer["rate"])

    def close(self) -> None:
        for process in self._processes:
            os.kill(process, signal.SIGCONT)
        self._driver.kill()
        self._driver.close()


@contextmanager
def _here() -> Iterator[_Side]:
    with broker_process() as broker:
        side = _Side(broker, [broker.process])
        try:
            yield side
        finally:
            side.close()


@contextmanager
def _there() -> Iterator[_Side]:
    with (
        tempfile.TemporaryDirectory(prefix="rocketmq-bench-", ignore_cleanup_errors=True) as home,
        java.apache_cluster(Path(home), "1g", **SIZES, **INDEX) as cluster,
    ):
        side = _Side(cluster.namesrv, [process.pid for process in cluster.processes.values()])
        try:
            yield side
        finally:
            side.close()


def run(report: Report, scale: float) -> None:
    """One round."""
    with _here() as here, _there() as there:
        for work, (count, how) in WORK.items():
            for turn in range(TURNS):
                sides = [(THERE, there), (HERE, here)]
                for where, side in sides if turn % 2 else reversed(sides):
                    rate = side.rate(int(count * scale), how)
                    base = figure(work, THERE) if where == HERE else None
                    report.add(figure(work, where), "/s", rate, base)
