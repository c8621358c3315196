"""Deaths of a broker in the middle of pops: nothing is lost, nothing comes early (`support/pop_lives.py`)."""

import pytest
from trio.testing import MockClock

from support.pop_lives import run_seed

KINDS = {"kill": (False, False), "power-cut": (True, False), "kill-merged": (False, True), "power-cut-merged": (True, True)}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("part", range(4))
async def test_a_death_loses_nothing_and_hands_out_nothing_early(kind: str, part: int, autojump_clock: MockClock) -> None:
    power_cut, merge = KINDS[kind]
    deaths = 0
    for seed in range(1000 * part, 1000 * part + 2):
        try:
            deaths += await run_seed(seed, power_cut=power_cut, merge=merge)
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}") from error
    assert deaths >= 1
