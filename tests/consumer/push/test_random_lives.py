"""Push consumers as a hypothesis state machine: random lives of a group, held against a
model (`support.group_model`, `support.pop_group_model`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, ClassVar

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    precondition,
    rule,
    run_state_machine_as_test,
)

from rocketmq_sdk.codes import RequestCode
from support.group_model import MOST_RETRIES, QUEUES, Seen, Step, World, run_script
from support.pop_group_model import PoppingWorld

if TYPE_CHECKING:
    import trio

PopStep = Callable[[PoppingWorld], Awaitable[None]]
WHICH = st.integers(0, 3)
QUEUE = st.integers(0, QUEUES - 1)


class Lives(RuleBasedStateMachine):
    """Its rules write a script, which is run when it is whole: trio's virtual time
    needs one run for all steps.
    """

    network: ClassVar[bool] = False
    """Whether members reach the broker over a memory network."""

    def __init__(self) -> None:
        super().__init__()
        self.steps: list[Step] = []

    @initialize(members=st.integers(1, 3))
    def begin(self, members: int) -> None:
        self.steps += [World.join] * members

    @rule(
        queue=QUEUE,
        count=st.integers(1, 6),
        failures=st.sampled_from([0, 0, 0, 1, 2, MOST_RETRIES + 1]),
    )
    def send(self, queue: int, count: int, failures: int) -> None:
        self.steps.append(lambda world: world.send(queue, count, failures))

    @rule(seconds=st.sampled_from([0.05, 0.3, 1.0, 7.0, 70.0]))
    def wait(self, seconds: float) -> None:
        self.steps.append(lambda world: world.wait(seconds))

    @rule()
    def join(self) -> None:
        self.steps.append(World.join)

    @rule(which=WHICH)
    def leave(self, which: int) -> None:
        self.steps.append(lambda world: world.leave(which))

    @rule(which=WHICH)
    def kill(self, which: int) -> None:
        self.steps.append(lambda world: world.kill(which))

    @rule(which=WHICH, seconds=st.sampled_from([0.5, 5.0, 40.0]))
    def cut(self, which: int, seconds: float) -> None:
        self.steps.append(lambda world: world.cut_for(which, seconds))

    @precondition(lambda self: self.network)
    @rule()
    def break_connections(self) -> None:
        self.steps.append(lambda world: world.break_connections())

    @rule(seconds=st.sampled_from([1.0, 20.0]))
    def refuse_send_backs(self, seconds: float) -> None:
        self.steps.append(
            lambda world: world.refuse_for(seconds, RequestCode.CONSUMER_SEND_MSG_BACK)
        )

    @rule(killed=st.booleans())
    def restart(self, killed: bool) -> None:
        self.steps.append(lambda world: world.restart(killed=killed))

    def world(self, nursery: trio.Nursery) -> World:
        raise NotImplementedError

    def teardown(self) -> None:
        assert run_script(self.steps, self.world) == []


class ConcurrentGroup(Lives):
    """Messages in any order."""

    def world(self, nursery: trio.Nursery) -> World:
        return World(nursery, Seen(ordered=False), network=self.network)


class OrderlyGroup(Lives):
    """Queues in order."""

    def world(self, nursery: trio.Nursery) -> World:
        return World(nursery, Seen(ordered=True), network=self.network)


class PoppingGroup(Lives):
    """Push consumers that pop, and simple consumers beside them."""

    def world(self, nursery: trio.Nursery) -> PoppingWorld:
        return PoppingWorld(nursery, network=self.network)

    def add(self, step: PopStep) -> None:
        async def take(world: World) -> None:
            assert isinstance(world, PoppingWorld)
            await step(world)

        self.steps.append(take)

    @rule(queue=QUEUE)
    def send_slow(self, queue: int) -> None:
        self.add(lambda world: world.send_slow(queue))

    @rule()
    def join_simple(self) -> None:
        self.add(lambda world: world.join_simple())

    @rule(seconds=st.sampled_from([1.0, 30.0]))
    def refuse_acks(self, seconds: float) -> None:
        self.add(lambda world: world.refuse_acks(seconds))

    @rule(seconds=st.sampled_from([2.0, 20.0]))
    def refuse_changes(self, seconds: float) -> None:
        self.steps.append(
            lambda world: world.refuse_for(seconds, RequestCode.CHANGE_MESSAGE_INVISIBLETIME)
        )


def lives(count: int) -> settings:
    return settings(
        max_examples=count,
        stateful_step_count=14,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        report_multiple_bugs=False,
    )


@pytest.mark.hypothesis  # the machines are run inside
@pytest.mark.parametrize("kind", [ConcurrentGroup, OrderlyGroup, PoppingGroup])
def test_groups_keep_the_rules(kind: type[Lives]) -> None:
    # Hypothesis has no type for it.
    run_state_machine_as_test(kind, settings=lives(15))  # type: ignore[no-untyped-call]


@pytest.mark.hypothesis  # the machines are run inside
@pytest.mark.parametrize("kind", [ConcurrentGroup, OrderlyGroup, PoppingGroup])
def test_groups_keep_the_rules_over_a_network(kind: type[Lives]) -> None:
    over_network = type(f"{kind.__name__}OverNetwork", (kind,), {"network": True})
    # Hypothesis has no type for it.
    run_state_machine_as_test(over_network, settings=lives(8))  # type: ignore[no-untyped-call]
