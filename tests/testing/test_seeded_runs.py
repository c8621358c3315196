"""A seed of the crash suites does the same each time: alone, and after other seeds."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import pytest

from rocketmq_sdk.testing.faulty_files import FaultyFile
from support.broker_crash import run_broker_seed
from support.crash import run_seed
from support.crash_pair import run_pair_seed
from support.pop_lives import run_seed as run_pop_seed
from support.seeded import run_alone
from support.timer_crash import run_timer_seed

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

RUNS = {
    "stores": (run_seed, 15),
    "pairs": (run_pair_seed, 15),
    "timers": (run_timer_seed, 10),
    "brokers": (run_broker_seed, 10),
    "pops": (partial(run_pop_seed, power_cut=True, merge=False), 9),
}


@pytest.mark.parametrize("kind", RUNS)
def test_a_seed_writes_the_same_bytes_in_the_same_order_whatever_ran_before(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    run: Callable[[int], Awaitable[int]]
    run, seed = RUNS[kind]
    written: list[tuple[str, int, bytes]] = []
    pwrite = FaultyFile.pwrite

    def noting(file: FaultyFile, data: bytes, offset: int) -> None:
        written.append((file.path, offset, bytes(data)))
        pwrite(file, data, offset)

    monkeypatch.setattr(FaultyFile, "pwrite", noting)
    crashes = run_alone(run, seed)
    alone = written.copy()
    assert len(alone) > 10
    run_alone(run_timer_seed, 11)
    written.clear()
    assert run_alone(run, seed) == crashes
    assert written == alone
