"""What the fixture `rocketmq_broker` costs a test, for each door.

Sessions of pytest with empty tests that take the fixture, and with tests that take
none; each test has a broker of its own. What a session costs once, as imports, is told
apart: by sessions with few tests.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from benchmarks.harness import Report

TESTS: Final = 400
"""Tests of a session."""
FEW: Final = 20
"""Tests of a session that tells what is paid once."""
_KINDS: Final = {
    "trio": ("async def", "trio_mode = true", ("no:asyncio",)),
    "asyncio": ("async def", "asyncio_mode = auto", ("no:trio",)),
    "plain": ("def", "", ("no:asyncio", "no:trio")),
}
"""How a test begins, the line of its settings, and plugins that are not for it."""


def _session(kind: str, fixture: str, tests: int) -> float:
    """Seconds that a session takes in all."""
    begins, line, without = _KINDS[kind]
    plugins = [word for name in ("no:cacheprovider", "no:xdist", *without) for word in ("-p", name)]
    with tempfile.TemporaryDirectory(prefix="rocketmq-fixture-bench-") as home:
        Path(home, "pytest.ini").write_text(f"[pytest]\n{line}\n")
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
    return took


def _each(kind: str, fixture: str, tests: int) -> tuple[float, float]:
    """Seconds of each test after the first ones, and of what is paid once."""
    few, many = _session(kind, fixture, FEW), _session(kind, fixture, tests)
    each = (many - few) / (tests - FEW)
    return each, few - FEW * each


def run(report: Report, scale: float) -> None:
    """One round."""
    tests = max(5 * FEW, int(TESTS * scale))
    for kind in _KINDS:
        empty, begin = _each(kind, "", tests)
        each, begin_with_broker = _each(kind, "rocketmq_broker", tests)
        report.add(f"fixture rocketmq_broker, {kind} test", "ms", (each - empty) * 1e3)
        report.add(f"empty {kind} test", "ms", empty * 1e3)
        report.add(
            f"fixture rocketmq_broker, {kind} test, once for a session",
            "ms",
            (begin_with_broker - begin) * 1e3,
        )
