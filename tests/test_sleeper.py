"""`Sleeper`: one task's sleep, by cancel scopes and by the alarms of a clock."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import pytest
import trio
from trio.testing import MockClock

from rocketmq_sdk.sleeper import Sleeper, sleep
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


def test_what_needs_no_task_is_passed_over_without_a_turn() -> None:
    """By the function that a sleeper is given; its errors are the task's."""
    turns, asked, woke = 0, [], []
    needed = 50.0

    class Count(trio.abc.Instrument):
        def after_io_wait(self, timeout: float) -> None:
            nonlocal turns
            turns += 1

    def pass_over(now: float) -> float:
        asked.append(now)
        if now > 100:
            raise ValueError("what is due has failed")
        return now if now >= needed else now + 1

    async def main() -> None:
        sleeper = Sleeper(pass_over)
        before = turns
        for _ in range(2):
            await sleeper.sleep_until(trio.current_time() + 1)
            woke.append(trio.current_time())
        assert turns - before < 5
        await sleeper.sleep_until(101)
        woke.append(trio.current_time())

    trio.run(main, clock=JumpingClock(), instruments=[Count()])
    assert woke == [50, 51, 101]
    assert asked == [*range(1, 52), 101]


@pytest.mark.parametrize("clock", CLOCKS)
def test_a_light_sleep_takes_its_time_and_can_be_cancelled(
    clock: Callable[[], trio.abc.Clock],
) -> None:
    async def main() -> None:
        began = trio.current_time()
        await sleep(3)
        with trio.move_on_after(5) as scope:
            await sleep(100)
        assert scope.cancelled_caught
        assert round(trio.current_time() - began, 3) == 8

    trio.run(main, clock=clock())
