"""Simulations: the same plan gives the same trace, and what goes wrong is found."""

from __future__ import annotations

import math
import os
import random
import subprocess
import sys
from contextlib import suppress
from typing import TYPE_CHECKING

import hypothesis
import pytest
import trio

from rocketmq_sdk import Message, Producer, RocketMQError, WrongRunError
from rocketmq_sdk.testing import WaitTimeoutError
from rocketmq_sdk.testing.simulation import (
    BadDisk,
    Cut,
    Disconnect,
    FullDisk,
    Kill,
    Plan,
    PowerCut,
    SlowDisk,
    SlowNetwork,
    Stop,
    plans,
    simulate,
)
from support.cluster_life import PARTIES, cluster_life, quiet, run_life
from support.paths import ROOT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from rocketmq_sdk.testing.simulation import Simulation

SHORT = 40.0
PROGRAM = """
import sys
sys.path.insert(0, "tests")
from support.cluster_life import run_life
print(run_life(3, duration=300).trace.digest)
"""


@pytest.fixture(autouse=True)
def silence() -> Iterator[None]:
    with quiet():
        yield


async def sends(simulation: Simulation) -> int:
    """Sends while something is wrong; gives how many sends failed."""
    failed = 0
    await simulation.cluster.seed(topics={"orders": 1})
    async with Producer("shop", namesrv=simulation.party("shop"), send_timeout=1) as producer:
        while simulation.troubled:
            try:
                await producer.send(Message("orders", b"%f" % simulation.now))
            except RocketMQError:
                failed += 1
            await trio.sleep(simulation.random.random())
    return failed


def test_a_plan_gives_the_same_trace_whatever_ran_before() -> None:
    first = run_life(3, duration=SHORT)
    run_life(4, duration=60)
    random.random()
    again = run_life(3, duration=SHORT)
    assert first.trace == again.trace
    assert first.trace.digest == again.trace.digest
    assert first.seconds == again.seconds
    assert len(first.trace) > 100
    assert first.trace != run_life(5, duration=SHORT).trace


@pytest.mark.real_time
@pytest.mark.slow
def test_a_plan_gives_the_same_trace_in_processes_that_hash_differently() -> None:
    digests = {
        subprocess.run(
            [sys.executable, "-c", PROGRAM],
            cwd=ROOT,
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(digests) == 1


@pytest.mark.parametrize("seed", range(2))
def test_what_a_cluster_promises_holds_in_a_life_of_troubles(seed: int) -> None:
    life = run_life(seed, duration=300)
    assert life.value == []
    assert life.seconds >= 300


def test_slaves_copy_while_things_go_wrong() -> None:
    async def scenario(simulation: Simulation) -> None:
        await sends(simulation)
        await simulation.cluster.wait.copied(within=600)

    for seed in (1, 2):
        simulate(Plan.drawn(seed, masters=1, slaves=2, duration=SHORT), scenario)


def test_a_power_cut_takes_nothing_that_was_synced() -> None:
    async def scenario(simulation: Simulation) -> int:
        stored: list[bytes] = []
        async with Producer("shop", namesrv=simulation.party("shop"), send_timeout=1) as producer:
            while simulation.troubled:
                body = b"%d" % len(stored)
                with suppress(RocketMQError):
                    await producer.send(Message("orders", body))
                    stored.append(body)
                await trio.sleep(0.2)
        kept = {message.body for message in simulation.cluster.sent("orders")}
        assert kept >= set(stored)
        return len(stored)

    cuts = [
        PowerCut(at=5 + 6 * number, lasts=1, broker="broker-a", seed=number) for number in range(2)
    ]
    plan = Plan(masters=1, duration=20, power_cuts=True, troubles=cuts)
    assert simulate(plan, scenario, flush_disk_type="SYNC_FLUSH").value > 20


def test_troubles_that_overlap_end_with_the_last() -> None:
    plan = Plan(
        masters=2,
        parties=("shop",),
        duration=60,
        troubles=[
            Kill(at=5, lasts=20, broker="broker-a"),
            Stop(at=10, lasts=5, broker="broker-a"),
            Cut(at=5, lasts=20, one="broker-b"),
            Cut(at=10, lasts=5, one="shop", other="broker-b"),
            SlowNetwork(at=30, lasts=10, broker="broker-a", seconds=0.5),
            SlowDisk(at=30, lasts=10, broker="broker-b", seconds=0.1),
            Disconnect(at=45, broker="broker-a"),
        ],
    )
    seen: list[tuple[float, bool]] = []

    async def scenario(simulation: Simulation) -> None:
        broker = simulation.cluster.brokers["broker-a"]
        while simulation.troubled:
            seen.append((simulation.now, broker.running))
            await trio.sleep(1)
        async with Producer("shop", namesrv=simulation.party("shop")) as producer:
            for _ in range(4):
                await producer.send(Message("orders", b"1"))

    trace = simulate(plan, scenario).trace
    assert all(running == (now < 5 or now > 25) for now, running in seen if abs(now - 25) > 1)
    assert [line.split()[2] for line in trace.notes].count("Kill(at=5,") == 2


def test_a_broker_that_a_disk_has_hurt_is_restarted() -> None:
    plan = Plan(
        masters=1,
        duration=60,
        troubles=[
            BadDisk(at=5, lasts=5, broker="broker-a", operation="sync", times=20),
            FullDisk(at=20, lasts=5, broker="broker-a"),
        ],
    )

    async def scenario(simulation: Simulation) -> None:
        assert await sends(simulation) > 2
        async with Producer("shop", namesrv=simulation.party("shop")) as producer:
            await producer.send(Message("orders", b"in the end"))

    trace = simulate(plan, scenario, flush_disk_type="SYNC_FLUSH").trace
    assert any("broker-a is restarted: not taking messages" in line for line in trace.notes)


def test_what_fails_names_the_plan_and_the_end_of_the_trace() -> None:
    async def scenario(simulation: Simulation) -> None:
        simulation.note("about to fail")
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError) as caught:
        simulate(7, scenario)
    (note,) = caught.value.__notes__
    assert "Plan(seed=7, masters=3" in note
    assert "* about to fail" in note


def test_a_scenario_that_does_not_end_is_ended() -> None:
    async def scenario(_simulation: Simulation) -> None:
        await trio.sleep_forever()

    with pytest.raises(WaitTimeoutError, match="has not ended within 100 s") as caught:
        simulate(Plan(masters=1, duration=10), scenario, within=100)
    assert "taking messages" in str(caught.value)  # the brokers had not stopped yet


async def test_in_a_loop_it_is_refused() -> None:
    async def scenario(_simulation: Simulation) -> None:
        await trio.lowlevel.checkpoint()

    with pytest.raises(WrongRunError, match="from a plain function"):
        simulate(1, scenario)
    await trio.lowlevel.checkpoint()


@pytest.mark.slow
def test_hypothesis_makes_a_failing_plan_small() -> None:
    async def scenario(simulation: Simulation) -> int:
        broker = simulation.cluster.brokers["broker-a"]
        stopped = 0
        while simulation.troubled:
            stopped += not broker.running
            await trio.sleep(1)
        return stopped

    def away_for_long(plan: Plan) -> bool:
        return simulate(plan, scenario).value >= 3

    smallest = hypothesis.find(
        plans(masters=1, duration=20),
        away_for_long,
        settings=hypothesis.settings(max_examples=50, deadline=None, database=None),
        random=random.Random(1),
    )
    (trouble,) = smallest.troubles
    assert isinstance(trouble, Kill | Stop)
    assert trouble.lasts <= 4
    assert smallest.seed == 0


def test_a_plan_is_source_and_its_draws_are_acceptable() -> None:
    names = {kind.__name__: kind for kind in _kinds()} | {"Plan": Plan}
    for seed in range(200):
        plan = Plan.drawn(
            seed, slaves=seed % 2, parties=PARTIES, duration=20 + seed, power_cuts=seed % 3 == 0
        )
        assert eval(repr(plan), names) == plan
        assert plan == Plan.drawn(
            seed, slaves=seed % 2, parties=PARTIES, duration=20 + seed, power_cuts=seed % 3 == 0
        )
        for trouble in plan.troubles:
            assert trouble not in plan.without(trouble).troubles


def _kinds() -> tuple[type, ...]:
    return (
        BadDisk,
        Cut,
        Disconnect,
        FullDisk,
        Kill,
        PowerCut,
        SlowDisk,
        SlowNetwork,
        Stop,
    )


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda: Plan(troubles=[Kill(at=1, broker="broker-z")]), "there are .*broker-c"),
        (lambda: Plan(troubles=[Cut(at=1, one="shop")]), "is about 'shop'"),
        (lambda: Plan(duration=10, troubles=[Kill(at=5, lasts=6, broker="broker-a")]), "within"),
        (lambda: Plan(troubles=[PowerCut(at=1, broker="broker-a")]), "power_cuts=True"),
        (lambda: Plan(parties="shop"), r"give several names, \('shop',\)"),
        (lambda: Plan.drawn(1, parties="shop"), r"give several names, \('shop',\)"),
        (lambda: Plan.drawn(1, masters=0), "a cluster of 0 masters"),
        (lambda: Plan(slaves=-1), "with -1 slaves each"),
        (lambda: Plan.drawn(1, duration=-1), "duration is -1; give seconds"),
        (lambda: Plan(duration=math.inf), "duration is inf; give seconds"),
    ],
)
def test_plans_that_cannot_be_are_refused(make: Callable[[], Plan], why: str) -> None:
    with pytest.raises(RocketMQError, match=why):
        make()


def test_random_is_as_before_afterwards() -> None:
    random.seed(5)
    wanted = random.random()
    random.seed(5)
    simulate(Plan(masters=1, duration=1), lambda simulation: simulation.calm())
    assert random.random() == wanted


def test_the_scenario_may_be_used_with_any_size() -> None:
    assert simulate(Plan(masters=1, parties=PARTIES, duration=60), cluster_life).value == []
