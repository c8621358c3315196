"""The crash suite of replication: masters and slaves that are cut off at seeded points.
`python -m tools.crash_points --of pairs` runs more of them.
"""

from __future__ import annotations

import pytest

from support.crash_pair import run_pair_seed
from support.seeded import run_seeds

POINTS = 200
SLICE = 25


@pytest.mark.parametrize(
    "first",
    [0, *(pytest.param(first, marks=pytest.mark.slow) for first in range(SLICE, POINTS, SLICE))],
)
def test_crash_points_of_pairs(first: int) -> None:
    """Nothing acknowledged by both is lost at either side, nothing else appears, both
    logs end up equal.
    """
    assert run_seeds(run_pair_seed, range(first, first + SLICE)) > SLICE
