"""What holds for all tests."""

from __future__ import annotations

import os

import pytest
from hypothesis import HealthCheck, settings

# How long one example takes says how busy the machine is, nothing about what is tested.
# Where CI is set the examples are always the same, as with the profile that hypothesis
# itself chooses there: a run that decides about a change should not decide by chance.
settings.register_profile(
    "rocketmq",
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    derandomize="CI" in os.environ,
)
settings.load_profile("rocketmq")

TOGETHER = ("interop", "spark")
"""Directories whose tests share what takes long to start, Apache's servers or a Spark
session: each keeps to one process, and begins first.
"""


@pytest.hookimpl(tryfirst=True)  # before xdist reads the marks
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Say which tests stay in one process where several pass them
    (`-n 2 --dist loadgroup`): these directories, and each file.
    """
    places = {}
    for item in items:
        shared = [name for name in TOGETHER if name in item.path.parts]
        places[item] = TOGETHER.index(shared[0]) if shared else len(TOGETHER)
        item.add_marker(pytest.mark.xdist_group(shared[0] if shared else str(item.path)))
    items.sort(key=places.__getitem__)
