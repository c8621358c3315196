"""Timers through power cuts, kills and failed syncs at seeded points.
`python -m tools.crash_points --of timers` runs more of them.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import pytest
import trio

from support.timer_crash import run_timer_seed

if TYPE_CHECKING:
    from trio.testing import MockClock

POINTS = 25


@pytest.mark.parametrize("first", [0, 1400, 3000, 5000])
async def test_no_acknowledged_timer_is_lost_and_none_is_early(
    first: int, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL + 1)
    crashes = 0
    for seed in range(first, first + POINTS):
        try:
            with trio.fail_after(100_000):
                crashes += await run_timer_seed(seed)
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}") from error
    assert crashes >= POINTS
