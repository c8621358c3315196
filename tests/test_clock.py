"""Clocks: wall time near the system's, moved by trio's virtual clock, never going
back.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest
import trio

from rocketmq_sdk import clock as clock_module
from rocketmq_sdk.clock import Clock, SystemClock, TrioClock

if TYPE_CHECKING:
    from trio.testing import MockClock


@pytest.mark.real_time
def test_system_clock_is_near_the_system() -> None:
    clock: Clock = SystemClock()
    assert abs(clock.now_ms() - time.time() * 1000) < 1000
    assert abs(clock.monotonic() - time.monotonic()) < 1


async def test_trio_clock_moves_with_virtual_time(autojump_clock: MockClock) -> None:
    clock: Clock = TrioClock()
    wall, monotonic = clock.now_ms(), clock.monotonic()
    with trio.fail_after(10_000):
        await trio.sleep(7200)
    assert abs(clock.now_ms() - wall - 7_200_000) <= 1
    assert clock.monotonic() - monotonic == 7200


def test_a_step_of_the_system_clock_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = SystemClock()
    before = clock.now_ms()
    monkeypatch.setattr(time, "time", lambda: 0.0)
    assert 0 <= clock.now_ms() - before < 10_000


async def test_a_clock_of_one_run_tells_its_time_for_a_block(autojump_clock: MockClock) -> None:
    clock = TrioClock()
    with clock.of_this_run():
        first = await trio.to_thread.run_sync(clock.now_ms)
        assert abs(first - clock.now_ms()) <= 1
        wall, monotonic = clock.now_ms(), clock.monotonic()
        with trio.fail_after(10_000):
            await trio.sleep(7200)
        assert abs(clock.now_ms() - wall - 7_200_000) <= 1
        assert clock.monotonic() - monotonic == 7200
        # a thread of the run is told the same
        assert await trio.to_thread.run_sync(clock.now_ms) == clock.now_ms()
    skipped = await trio.to_thread.run_sync(clock.now_ms)  # of no run: the wall
    assert clock.now_ms() - skipped > 7_000_000


async def test_two_trio_clocks_start_from_the_wall(autojump_clock: MockClock) -> None:
    now = time.time() * 1000
    assert abs(TrioClock().now_ms() - now) < 10_000


def suspend(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    before = clock_module.suspended()
    monkeypatch.setattr(clock_module, "suspended", lambda: before + seconds)


async def test_times_are_right_after_a_suspension(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    clocks: list[Clock] = [TrioClock(), SystemClock()]
    before = [clock.now_ms() for clock in clocks]
    then = clock_module.elapsed()
    suspend(monkeypatch, 3600)
    await trio.sleep(1)
    for clock, moment in zip(clocks, before, strict=True):
        assert clock.now_ms() - moment == pytest.approx(3_600_000, abs=10_000)
    assert clock_module.elapsed() - then == pytest.approx(3601, abs=1)


async def test_clocks_of_one_run_agree_however_much_was_skipped(autojump_clock: MockClock) -> None:
    first = TrioClock()
    first.now_ms()
    await trio.sleep(7200)
    assert TrioClock().now_ms() == first.now_ms()
