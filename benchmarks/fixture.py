"""What the fixture `rocketmq_broker` costs a test, for each door.

Sessions of pytest with empty tests that take the fixture, and with tests that take
none; each test has a broker of its own. The time of a test is taken inside of a
session, after the first ones: what a session costs once, as imports, varies by more
than hundreds of tests take, and is told apart.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from benchmarks.harness import Report

TESTS: Final = 800
"""Tests of a session."""
FEW: Final = 20
"""Tests of a session before those whose time is taken."""
_KINDS: Final = {
    "trio": ("async def", "trio_mode = true", ("no:asyncio",)),
    "asyncio": ("async def", "asyncio_mode = auto", ("no:trio",)),
    "plain": ("def", "", ("no:asyncio", "no:trio")),
}
"""How a test begins, the line of its settings, and plugins that are not for it."""


_WATCH: Final = f"""
import json, time

ended = []

def pytest_runtest_logfinish():
    ended.append((time.perf_counter(), time.process_time()))

def pytest_sessionfinish():
    with open("times.json", "w") as file:
        json.dump((ended[{FEW} - 1], ended[-1]), file)
"""


class _Times(NamedTuple):
    """Seconds of each test, by the clock and of the processor, and of the rest."""

    each: float
    processor: float
    once: float


def _session(kind: str, fixture: str, tests: int) -> _Times:
    begins, line, without = _KINDS[kind]
    plugins = [word for name in ("no:cacheprovider", "no:xdist", *without) for word in ("-p", name)]
    with tempfile.TemporaryDirectory(prefix="rocketmq-fixture-bench-") as home:
        Path(home, "pytest.ini").write_text(f"[pytest]\n{line}\n")
        Path(home, "conftest.py").write_text(_WATCH)
        Path(home, "test_fixture.py").write_text(
            "".join(f"{begins} test_{number}({fixture}): pass\n" for number in range(tests))
        )
        begin = time.perf_counter()
        run = subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "--color=no", *plugins],
            cwd=home,
            capture_output=True,
            text=True,
            check=False,
        )
        took = time.perf_counter() - begin
        if run.returncode or f"{tests} passed" not in run.stdout:
            raise RuntimeError(f"the tests were to pass:\n{run.stdout}{run.stderr}")
        first, last = json.loads(Path(home, "times.json").read_text())
    each, processor = (
        (end - start) / (tests - FEW) for start, end in zip(first, last, strict=True)
    )
    return _Times(each, processor, took - each * tests)


def run(report: Report, scale: float) -> None:
    """One round."""
    tests = max(5 * FEW, int(TESTS * scale))
    for kind in _KINDS:
        empty = _session(kind, "", tests)
        full = _session(kind, "rocketmq_broker", tests)
        name = f"fixture rocketmq_broker, {kind} test"
        report.add(name, "ms", (full.each - empty.each) * 1e3)
        report.add(f"{name}, processor time", "ms", (full.processor - empty.processor) * 1e3)
        report.add(f"empty {kind} test", "ms", empty.each * 1e3)
        report.add(f"{name}, once for a session", "ms", (full.once - empty.once) * 1e3)
