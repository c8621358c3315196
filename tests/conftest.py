"""What holds for all tests."""

from __future__ import annotations

import gc
import signal
import threading
from functools import cache
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# Every run draws the same examples, so that a test never fails by luck; how long one
# takes says only how busy the machine is. `python -m tools.explore`, run in `tests`,
# draws new ones with the profile `explore`.
settings.register_profile(
    "rocketmq",
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    derandomize=True,
)
settings.register_profile(
    "explore", settings.get_profile("rocketmq"), derandomize=False, database=None
)
settings.load_profile("rocketmq")

# A shell that runs tests in the background lets them ignore Ctrl-C, and so would all
# programs that they start: those that are tested with it would run for ever.
if (
    signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    and threading.current_thread() is threading.main_thread()
):
    signal.signal(signal.SIGINT, signal.default_int_handler)

ROOT = Path(__file__).parents[1]
APART = ("interop", "spark", "kill")
"""Directories whose tests carry the mark of the same name, which keeps them out of the
quick run (`test.sh`).
"""
FIRST = (
    "tests/interop/test_group_changes.py",
    "tests/spark",
    "tests/interop/test_spark.py",
    "tests/interop/test_store_exchange.py",
    "tests/interop",
)
"""What begins first, in this order, so that no process is left alone with it at the
end: one test of four minutes, mostly waiting; then what keeps a process busy.
"""

ABOUT_SOURCE = ("test_layers", "test_sizes", "test_log_fields")
"""They read the whole package, which one process does once for all."""
WRITTEN = ("slow", "both_releases")
"""Marks that stand in the file of the test, as `mark.slow`."""


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out the files of which a run by marks (`-m "spark or slow"`) wants nothing:
    each process would import them all.
    """
    wanted = _wanted(config.option.markexpr)
    if not wanted or collection_path.suffix != ".py" or wanted & {*_room(collection_path)[0]}:
        return None
    text = collection_path.read_text("utf-8")
    return True if not any(f"mark.{name}" in text for name in wanted) else None


@cache
def _wanted(expression: str) -> set[str]:
    """The marks of which a run wants all tests; none where it wants something else."""
    words = expression.split()
    marks = set(words[::2])
    return marks if marks <= {*APART, *WRITTEN} and set(words[1::2]) <= {"or"} else set()


@pytest.hookimpl(tryfirst=True)  # before pytest selects by mark and xdist reads the groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests of the directories apart, and say which tests stay in one process
    where several pass them (`-n 3 --dist loadgroup`): those of one file, as they share
    brokers, unless they carry a group of their own, as those of long files do; and all
    that run Spark (the fixture `spark`, or the group of that name), as two of it at a
    time are too much for a small machine. Apache's servers start once in each process
    that needs them.
    """
    places = {}
    for item in items:
        marks, group, places[item] = _room(item.path)
        for name in marks:
            item.add_marker(name)
        for name in WRITTEN:
            if item.get_closest_marker(name) and f"mark.{name}" not in _text(item.path):
                raise pytest.UsageError(f"{item.path} has to say mark.{name} itself")
        if "spark" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.xdist_group("spark"))
        elif item.get_closest_marker("xdist_group") is None:
            item.add_marker(pytest.mark.xdist_group(group))
    items.sort(key=places.__getitem__)


def pytest_collection_finish() -> None:
    """Leave the thousands of collected tests out of each full collection of garbage: a
    twentieth of the processor time.
    """
    gc.collect()
    gc.freeze()


@cache
def _text(file: Path) -> str:
    return file.read_text("utf-8")


@cache
def _room(file: Path) -> tuple[tuple[str, ...], str, int]:
    """The marks, the group and the place in the order of a file's tests."""
    lineage = (file, *file.parents)
    marks = tuple(name for name in APART if name in file.relative_to(ROOT).parts)
    begins = (place for place, path in enumerate(FIRST) if ROOT / path in lineage)
    group = "about the source" if file.stem in ABOUT_SOURCE else str(file)
    return marks, group, next(begins, len(FIRST))
