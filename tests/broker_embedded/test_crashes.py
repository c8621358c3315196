"""The crash suite of whole brokers: plain, delayed and timed messages, transactions and
pops at once. `python -m tools.crash_points --of brokers` runs more of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from support.broker_crash import run_broker_seed

if TYPE_CHECKING:
    from trio.testing import MockClock

SLICE = 4


@pytest.mark.parametrize("first", range(0, 12, SLICE))
async def test_deaths_lose_nothing_and_double_little(first: int, autojump_clock: MockClock) -> None:
    deaths = 0
    for seed in range(first, first + SLICE):
        try:
            deaths += await run_broker_seed(seed)
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}") from error
    assert deaths >= SLICE
