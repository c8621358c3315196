"""What holds for all tests."""

from __future__ import annotations

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


@pytest.hookimpl(tryfirst=True)  # before pytest selects by mark and xdist reads the groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests of the directories apart, and say which tests stay in one process
    where several pass them (`-n 3 --dist loadgroup`): those of one file, as they share
    brokers; and all that run Spark, as two of it at a time are too much for a small
    machine. Apache's servers start once in each process that needs them.
    """
    with_spark = ROOT / "tests/spark", ROOT / "tests/interop/test_spark.py"
    places = {}
    for item in items:
        folders = item.path.relative_to(ROOT).parts
        for name in APART:
            if name in folders:
                item.add_marker(name)
        lineage = (item.path, *item.path.parents)
        begins = (place for place, path in enumerate(FIRST) if ROOT / path in lineage)
        places[item] = next(begins, len(FIRST))
        group = "spark" if any(path in lineage for path in with_spark) else str(item.path)
        item.add_marker(pytest.mark.xdist_group(group))
    items.sort(key=places.__getitem__)
