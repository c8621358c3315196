"""The jobs of a client and its members that one task waits for."""

from __future__ import annotations

import pytest
import trio
import trio.testing

from rocketmq_sdk.client.periodic_jobs import PeriodicJobs
from rocketmq_sdk.errors import RocketMQError
from rocketmq_sdk.lifecycle import open_quiet_nursery
from rocketmq_sdk.testing.simulation.seeded import JumpingClock


async def test_each_job_is_done_when_it_is_due(
    autojump_clock: trio.testing.MockClock, nursery: trio.Nursery
) -> None:
    jobs, begin, done = PeriodicJobs(), trio.current_time(), []

    async def often() -> float:
        done.append(("often", trio.current_time() - begin))
        return 5.0

    async def seldom() -> float:
        done.append(("seldom", trio.current_time() - begin))
        return 8.0

    nursery.start_soon(jobs.run)
    await trio.testing.wait_all_tasks_blocked()
    jobs.add(nursery, often, 5.0)
    jobs.add(nursery, seldom)
    await trio.sleep(17.0)
    assert done == [
        ("seldom", 0.0),
        ("often", 5.0),
        ("seldom", 8.0),
        ("often", 10.0),
        ("often", 15.0),
        ("seldom", 16.0),
    ]


async def test_a_job_that_waits_delays_no_other_one(
    autojump_clock: trio.testing.MockClock, nursery: trio.Nursery
) -> None:
    jobs, begin, done = PeriodicJobs(), trio.current_time(), []

    async def slow() -> float:
        await trio.sleep(3.0)
        done.append(("slow", trio.current_time() - begin))
        return 1.0

    async def quick() -> float:
        done.append(("quick", trio.current_time() - begin))
        return 2.0

    jobs.add(nursery, slow)
    jobs.add(nursery, quick, 1.0)
    nursery.start_soon(jobs.run)
    await trio.sleep(6.5)
    assert [entry for entry in done if entry[0] == "quick"] == [
        ("quick", 1.0),
        ("quick", 3.0),
        ("quick", 5.0),
    ]
    assert ("slow", 3.0) in done


async def test_the_error_of_a_job_is_raised_by_its_owner_and_the_others_go_on(
    autojump_clock: trio.testing.MockClock, nursery: trio.Nursery
) -> None:
    jobs, done = PeriodicJobs(), []

    async def broken() -> float:
        raise RocketMQError("broken")

    async def sound() -> float:
        done.append(trio.current_time())
        return 1.0

    nursery.start_soon(jobs.run)
    jobs.add(nursery, sound)

    async def live() -> None:
        async with open_quiet_nursery() as owner:
            try:
                jobs.add(owner, broken, 0.5)
                await trio.sleep_forever()
            finally:
                jobs.leave(owner)

    with pytest.raises(RocketMQError, match="broken"):
        await live()
    await trio.sleep(2.1)
    assert len(done) == 3


async def test_an_owner_that_has_left_gets_no_job_any_more(
    autojump_clock: trio.testing.MockClock, nursery: trio.Nursery
) -> None:
    jobs, done = PeriodicJobs(), []

    async def job() -> float:
        await trio.sleep(1.0)
        done.append(trio.current_time())
        return 1.0

    nursery.start_soon(jobs.run)
    async with trio.open_nursery() as owner:
        jobs.add(owner, job)
        jobs.add(owner, job, 0.5)
        await trio.sleep(0.2)
        jobs.leave(owner)  # the first one runs, and ends; it is not repeated
    await trio.sleep(10.0)
    assert len(done) == 1


@pytest.mark.parametrize("clock", [trio.testing.MockClock(autojump_threshold=0), JumpingClock()])
def test_what_is_quick_takes_no_task_under_any_clock(clock: trio.abc.Clock) -> None:
    async def main() -> None:
        async with trio.open_nursery() as nursery, trio.open_nursery() as owner:
            jobs, begin, done = PeriodicJobs(), trio.current_time(), []

            def quick() -> float:
                done.append(round(trio.current_time() - begin, 3))
                assert not owner.child_tasks
                return 5.0

            nursery.start_soon(jobs.run)
            jobs.add_quick(owner, quick)
            await trio.sleep(12)
            assert done == [0.0, 5.0, 10.0]
            jobs.leave(owner)
            await trio.sleep(12)
            assert len(done) == 3
            nursery.cancel_scope.cancel()

    trio.run(main, clock=clock)
