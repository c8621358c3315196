"""The crash suite of whole brokers: plain, delayed and timed messages, transactions and
pops at once. `python -m tools.crash_points --of brokers` runs more of it.
"""

from __future__ import annotations

import pytest

from support.broker_crash import run_broker_seed
from support.seeded import run_seeds

SLICE = 4


@pytest.mark.parametrize(
    "first", [0, *(pytest.param(first, marks=pytest.mark.slow) for first in (SLICE, 2 * SLICE))]
)
def test_deaths_lose_nothing_and_double_little(first: int) -> None:
    assert run_seeds(run_broker_seed, range(first, first + SLICE)) >= SLICE
