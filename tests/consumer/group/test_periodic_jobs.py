"""The jobs of a member that one task does."""

from __future__ import annotations

import pytest
import trio
import trio.testing

from rocketmq_sdk.consumer.group.periodic_jobs import PeriodicJobs
from rocketmq_sdk.errors import RocketMQError


async def _run_for(jobs: PeriodicJobs, seconds: float) -> None:
    with trio.move_on_after(seconds):
        await jobs.run()


async def test_each_job_is_done_when_it_is_due(autojump_clock: trio.testing.MockClock) -> None:
    jobs, begin, done = PeriodicJobs(), trio.current_time(), []

    async def often() -> float:
        done.append(("often", trio.current_time() - begin))
        return 5.0

    async def seldom() -> float:
        done.append(("seldom", trio.current_time() - begin))
        return 8.0

    jobs.add(often, 5.0)
    jobs.add(seldom)
    await _run_for(jobs, 17.0)
    assert done == [
        ("seldom", 0.0),
        ("often", 5.0),
        ("seldom", 8.0),
        ("often", 10.0),
        ("often", 15.0),
        ("seldom", 16.0),
    ]


async def test_a_job_that_waits_delays_the_others_and_leaves_none_out(
    autojump_clock: trio.testing.MockClock,
) -> None:
    jobs, begin, done = PeriodicJobs(), trio.current_time(), []

    async def slow() -> float:
        await trio.sleep(3.0)
        return 100.0

    async def quick() -> float:
        done.append(trio.current_time() - begin)
        return 2.0

    jobs.add(slow)
    jobs.add(quick, 1.0)
    await _run_for(jobs, 6.0)
    assert done == [3.0, 5.0]


async def test_the_error_of_a_job_is_raised(autojump_clock: trio.testing.MockClock) -> None:
    jobs = PeriodicJobs()

    async def broken() -> float:
        raise RocketMQError("broken")

    jobs.add(broken)
    with pytest.raises(RocketMQError, match="broken"):
        await jobs.run()


async def test_without_jobs_it_ends() -> None:
    with trio.fail_after(5):
        await PeriodicJobs().run()
