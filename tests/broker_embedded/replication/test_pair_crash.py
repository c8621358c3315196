"""The crash suite of replication: masters and slaves that are cut off at seeded points.
`python -m tools.crash_points --of pairs` runs more of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from support.crash_pair import run_pair_seed

if TYPE_CHECKING:
    import trio.testing

POINTS = 200
SLICE = 50


@pytest.mark.parametrize("first", range(0, POINTS, SLICE))
async def test_crash_points_of_pairs(first: int, autojump_clock: trio.testing.MockClock) -> None:
    """Nothing acknowledged by both is lost at either side, nothing else appears, both
    logs end up equal.
    """
    crashes = 0
    for seed in range(first, first + SLICE):
        try:
            crashes += await run_pair_seed(seed)
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}") from error
    assert crashes > SLICE
