"""Runs that are the same each time, alone and after others."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

import trio
import trio.testing

from rocketmq_sdk.testing.simulation.seeded import EPOCH_MS, seeded
from support.greenlet_turns import greenlets

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

Result = TypeVar("Result")
LONGEST = 1_000_000
"""Virtual seconds that a run may take."""


class VirtualClock:
    """Time of the loop from a fixed epoch on, so that a seed gives the same bytes each
    time.
    """

    def __init__(self) -> None:
        self._start = trio.current_time()

    def now_ms(self) -> int:
        return EPOCH_MS + int((trio.current_time() - self._start) * 1000)

    def monotonic(self) -> float:
        return trio.current_time()


def run_alone(run_one: Callable[[int], Awaitable[Result]], seed: int) -> Result:
    """One run in a loop of its own, whose virtual time begins at 0: what a seed does
    does not depend on the seeds before it. What the store does in threads it does in
    greenlets, which take the same turns. A run that stands still ends with
    `trio.TooSlowError`. What is raised names the seed in a note.
    """

    async def run() -> Result:
        with trio.fail_after(LONGEST):
            return await run_one(seed)

    try:
        with seeded(seed), greenlets():
            return trio.run(run, clock=trio.testing.MockClock(autojump_threshold=0))
    except Exception as error:
        error.add_note(f"in the run of seed {seed}")
        raise


def run_seeds(run_one: Callable[[int], Awaitable[int]], seeds: Iterable[int]) -> int:
    """The sum of what the runs give."""
    return sum(run_alone(run_one, seed) for seed in seeds)
