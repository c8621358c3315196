"""Timers through power cuts, kills and failed syncs at seeded points.
`python -m tools.crash_points --of timers` runs more of them.
"""

from __future__ import annotations

import logging

import pytest

from support.seeded import run_seeds
from support.timer_crash import run_timer_seed

POINTS = 25


@pytest.mark.parametrize(
    "first", [0, *(pytest.param(first, marks=pytest.mark.slow) for first in (1400, 3000, 5000))]
)
def test_no_acknowledged_timer_is_lost_and_none_is_early(
    first: int, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL + 1)
    assert run_seeds(run_timer_seed, range(first, first + POINTS)) >= POINTS
