"""A watermark wakes whom it must, when it must, and nobody else."""

from __future__ import annotations

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from rocketmq_sdk import watermark
from rocketmq_sdk.errors import StoreFullError
from rocketmq_sdk.watermark import Watermark


async def test_reached_positions_do_not_wait() -> None:
    mark = Watermark(5)
    with trio.fail_after(1):
        assert await mark.wait_reached(5)
        assert await mark.wait_reached(4, 0.0)
    assert mark.value == 5


async def test_wakes_exactly_those_who_are_reached(autojump_clock: MockClock) -> None:
    mark = Watermark()
    woken: list[int] = []

    async def waiter(position: int) -> None:
        assert await mark.wait_reached(position)
        woken.append(position)

    with trio.fail_after(10):
        async with trio.open_nursery() as nursery:
            for position in (30, 10, 20, 10):
                nursery.start_soon(waiter, position)
            await wait_all_tasks_blocked()
            mark.advance(10)
            await wait_all_tasks_blocked()
            assert woken == [10, 10]
            mark.advance(5)
            assert mark.value == 10
            mark.advance(29)
            await wait_all_tasks_blocked()
            assert sorted(woken) == [10, 10, 20]
            mark.advance(30)
    assert woken[-1] == 30


@pytest.mark.parametrize("timeout", [3.0, 0.0, -1.0])
async def test_a_deadline_gives_false_and_leaves_nothing_behind(
    autojump_clock: MockClock, timeout: float
) -> None:
    mark = Watermark()
    with trio.fail_after(10):
        started = trio.current_time()
        assert not await mark.wait_reached(1, timeout)
        assert trio.current_time() - started == max(0.0, timeout)
    assert not mark._waiters


async def test_a_cancelled_waiter_leaves_the_others(autojump_clock: MockClock) -> None:
    mark = Watermark()
    with trio.fail_after(10):
        async with trio.open_nursery() as nursery:
            scope = trio.CancelScope()

            async def cancelled() -> None:
                with scope:
                    await mark.wait_reached(2)

            async def kept() -> None:
                assert await mark.wait_reached(2)

            nursery.start_soon(cancelled)
            nursery.start_soon(kept)
            await wait_all_tasks_blocked()
            scope.cancel()
            await wait_all_tasks_blocked()
            assert scope.cancelled_caught
            assert len(mark._waiters) == 1
            mark.advance(2)


async def test_failure_reaches_present_and_future_waiters(autojump_clock: MockClock) -> None:
    mark = Watermark(3)
    failed = 0

    async def waiter() -> None:
        nonlocal failed
        with pytest.raises(StoreFullError):
            await mark.wait_reached(4)
        failed += 1

    with trio.fail_after(10):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(waiter)
            nursery.start_soon(waiter)
            await wait_all_tasks_blocked()
            mark.fail(StoreFullError("no space"))
        assert failed == 2
        with pytest.raises(StoreFullError):
            await mark.wait_reached(4, 1.0)
        assert await mark.wait_reached(3)


async def test_thousands_of_waits_that_end_early_cost_little_each(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    mark = Watermark()
    rebuilt = 0
    rebuild = watermark.heapq.heapify

    def counting(entries: list[object]) -> None:
        nonlocal rebuilt
        rebuilt += 1
        rebuild(entries)  # type: ignore[type-var]

    monkeypatch.setattr(watermark.heapq, "heapify", counting)

    async def wait(number: int) -> None:
        assert not await mark.wait_reached(10 + number, 1.0)

    async with trio.open_nursery() as nursery:
        for number in range(4000):
            nursery.start_soon(wait, number)
    assert not mark._waiters
    assert not mark._gone
    assert rebuilt < 20

    woken: list[int] = []

    async def stay(number: int) -> None:
        assert await mark.wait_reached(number)
        woken.append(number)

    async with trio.open_nursery() as nursery:
        for number in (30, 10, 20):
            nursery.start_soon(stay, number)
        for number in range(50):
            nursery.start_soon(wait, 100 + number)
        await trio.sleep(2)
        mark.advance(15)
        await wait_all_tasks_blocked()
        assert woken == [10]
        mark.advance(40)
    assert sorted(woken) == [10, 20, 30]
