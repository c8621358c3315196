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
SPARK = "spark"
"""The group of all tests that run Spark."""
FIRST = (
    "tests/interop/test_group_changes.py",
    SPARK,
    "tests/interop/test_store_exchange.py",
    "tests/interop",
    "tests/kill",
    "tests/doors/test_same_behaviour.py",
    "tests/test_docs.py",
)
"""What begins first, in this order, so that no process is left alone with it at the
end: one test of four minutes, mostly waiting; then what takes minutes in one process.
What is short, or only computes, fills the end.
"""

ABOUT_SOURCE = ("test_layers", "test_sizes", "test_log_fields")
"""They read the whole package, which one process does once for all."""
PATIENCE = 300
"""Seconds that a test of the long run has, unless it says otherwise: on a busy machine
only to start a broker again may take half a minute.
"""
WRITTEN = ("slow", "both_releases")
"""Marks that stand in the file of the test, as `mark.slow`."""


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out the files of which a run by marks (`-m "spark or slow"`, or `-m "not
    (spark or slow)"`) wants nothing: each process would import them all.
    """
    marks, other = _chosen(config.option.markexpr)
    if not marks or collection_path.suffix != ".py":
        return None
    there = set(_room(collection_path)[0])
    if other:
        return True if marks & there else None
    text = collection_path.read_text("utf-8")
    wanted = marks & there or any(f"mark.{name}" in text for name in marks)
    return None if wanted else True


@cache
def _chosen(expression: str) -> tuple[set[str], bool]:
    """The marks of which a run wants all tests, or all others; none where it wants
    something else.
    """
    other = expression.startswith("not (") and expression.endswith(")")
    words = (expression[5:-1] if other else expression).split()
    marks = set(words[::2])
    plain = marks <= {*APART, *WRITTEN} and set(words[1::2]) <= {"or"}
    return (marks if plain else set()), other


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
        marks, group, place = _room(item.path)
        for name in marks:
            item.add_marker(name)
        for name in WRITTEN:
            if item.get_closest_marker(name) and f"mark.{name}" not in _text(item.path):
                raise pytest.UsageError(f"{item.path} has to say mark.{name} itself")
        long = marks or item.get_closest_marker("slow")
        if long and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(PATIENCE))
        marker = item.get_closest_marker("xdist_group")
        if SPARK in getattr(item, "fixturenames", ()):
            group = SPARK
        elif marker is not None:
            group = marker.args[0]
        if marker is None or group == SPARK:
            item.add_marker(pytest.mark.xdist_group(group))
        # Those of `interop` go on with the session of those of `spark`.
        places[item] = FIRST.index(SPARK) if group == SPARK else place, "interop" in marks
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
