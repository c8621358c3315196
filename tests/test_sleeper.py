"""`Sleeper`: one task's sleep, by cancel scopes and by the alarms of a clock."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import pytest
import trio
from trio.testing import MockClock

from rocketmq_sdk.sleeper import Sleeper
from rocketmq_sdk.testing.simulation.seeded import JumpingClock

if TYPE_CHECKING:
    from collections.abc import Callable

CLOCKS = [pytest.param(lambda: MockClock(autojump_threshold=0), id="scopes"), JumpingClock]


@pytest.mark.parametrize("clock", CLOCKS)
def test_it_wakes_at_the_earliest_moment_that_it_was_told(
    clock: Callable[[], trio.abc.Clock],
) -> None:
    woke: list[float] = []

    async def sleep(sleeper: Sleeper) -> None:
        for until in (10.0, 50.0, -1.0, math.inf):
            await sleeper.sleep_until(until)
            woke.append(round(trio.current_time() - began, 3))
            assert sleeper.until == -math.inf
        await sleeper.sleep_until(math.inf)

    async def main() -> None:
        nonlocal began
        began = trio.current_time()
        sleeper = Sleeper()
        sleeper.wake_at(-math.inf)  # nobody sleeps
        async with trio.open_nursery() as nursery:
            nursery.start_soon(sleep, sleeper)
            await trio.sleep(1)
            sleeper.wake_at(began + 20)  # later than it wakes anyway
            sleeper.wake_at(began + 3)
            sleeper.wake_at(began + 2)
            await trio.sleep(5)
            sleeper.wake_at(began + 7)
            await trio.sleep(10)
            sleeper.wake_at(-math.inf)
            await trio.sleep(1)
            nursery.cancel_scope.cancel()
        assert sleeper.until == -math.inf

    began = 0.0
    trio.run(main, clock=clock())
    assert woke == [2, 7, 7, 16]


def test_an_alarm_that_wakes_nobody_takes_no_turn() -> None:
    turns = 0

    class Count(trio.abc.Instrument):
        def after_io_wait(self, timeout: float) -> None:
            nonlocal turns
            turns += 1

    async def main() -> None:
        clock = trio.lowlevel.current_clock()
        assert isinstance(clock, JumpingClock)
        for number in range(1000):
            clock.call_at(number / 10, lambda: False)
        before = turns
        await trio.sleep(50)
        assert turns - before < 5
        assert trio.current_time() == 50

    trio.run(main, clock=JumpingClock(), instruments=[Count()])
