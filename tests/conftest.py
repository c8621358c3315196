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
TOGETHER = ("interop", "spark")
"""Directories whose tests share what takes long to start, Apache's servers or a Spark
session: each keeps to one process, and begins first.
"""


@pytest.hookimpl(tryfirst=True)  # before pytest selects by mark and xdist reads the groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests of the directories apart, and say which tests stay in one process
    where several pass them (`-n 2 --dist loadgroup`): the directories of `TOGETHER`,
    and each file.
    """
    places = {}
    for item in items:
        folders = item.path.relative_to(ROOT).parts
        for name in APART:
            if name in folders:
                item.add_marker(name)
        shared = [name for name in TOGETHER if name in folders]
        places[item] = TOGETHER.index(shared[0]) if shared else len(TOGETHER)
        item.add_marker(pytest.mark.xdist_group(shared[0] if shared else str(item.path)))
    items.sort(key=places.__getitem__)
