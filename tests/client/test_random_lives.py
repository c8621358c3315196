"""Clients of all four kinds as a hypothesis state machine: random lives at two brokers
that hang, vanish, die and come back, held against a model (`support.lives_model`).
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    rule,
    run_state_machine_as_test,
)

from support.lives_model import KINDS, Step, run_life

WHICH = st.integers(0, 5)
KIND = st.sampled_from(KINDS)
BROKER = st.integers(0, 1)


class Lives(RuleBasedStateMachine):
    """Its rules write a script, which is run when it is whole: trio's virtual time
    needs one run for all steps.
    """

    def __init__(self) -> None:
        super().__init__()
        self.steps: list[Step] = []
        self.ordered = False
        self.producer: dict[str, Any] = {}

    @initialize(
        kinds=st.lists(KIND, min_size=1, max_size=4),
        ordered=st.booleans(),
        auto_batch=st.booleans(),
        persistent=st.booleans(),
        profile=st.sampled_from(["unanswered", "today", None]),
        room=st.sampled_from([(32768, 1 << 28), (3, 1 << 28), (100, 12)]),
    )
    def begin(
        self,
        kinds: list[str],
        ordered: bool,
        auto_batch: bool,
        persistent: bool,
        profile: str | None,
        room: tuple[int, int],
    ) -> None:
        self.ordered = ordered
        self.producer = {
            "auto_batch": auto_batch,
            "retry_until_deadline": persistent,
            "fault_profile": profile,
            "max_in_flight": room[0],
            "max_in_flight_bytes": room[1],
        }
        for number, kind in enumerate(kinds):
            self.join(kind, number % 2 == 0)

    @rule(
        how=st.sampled_from(
            [
                *("send", "send", "keyed", "submit", "batch", "bad selector"),
                *("commit", "rollback", "unknown", "raise"),
            ]
        ),
        count=st.integers(1, 8),
        failures=st.sampled_from([0, 0, 1, 2]),
    )
    def send(self, how: str, count: int, failures: int) -> None:
        self.steps.append(lambda world: world.send(how, count, failures))

    @rule()
    def cancel_sends(self) -> None:
        self.steps.append(lambda world: world.cancel_sends())

    @rule(seconds=st.sampled_from([0.01, 0.3, 1.0, 7.0, 40.0]))
    def wait(self, seconds: float) -> None:
        self.steps.append(lambda world: world.wait(seconds))

    @rule(seconds=st.sampled_from([0.2, 4.0, 40.0]))
    def block(self, seconds: float) -> None:
        self.steps.append(lambda world: world.block(seconds))

    @rule(seconds=st.sampled_from([3.0, 40.0, 200.0]))
    def sleep_machine(self, seconds: float) -> None:
        self.steps.append(lambda world: world.sleep_machine(seconds))

    @rule(group=st.sampled_from(["push", "lite"]), number=BROKER, queue_id=st.integers(0, 1))
    def reset_offsets(self, group: str, number: int, queue_id: int) -> None:
        self.steps.append(lambda world: world.reset_offsets(group, number, queue_id))

    @rule(kind=KIND, variant=st.booleans())
    def join(self, kind: str, variant: bool) -> None:
        self.steps.append(lambda world: world.join(kind, variant))

    @rule(which=WHICH)
    def leave(self, which: int) -> None:
        self.steps.append(lambda world: world.leave(which))

    @rule(which=WHICH, cut=st.booleans())
    def kill(self, which: int, cut: bool) -> None:
        self.steps.append(lambda world: world.kill(which, cut))

    @rule(which=WHICH, seconds=st.sampled_from([0.5, 5.0, 40.0]))
    def cut(self, which: int, seconds: float) -> None:
        self.steps.append(lambda world: world.cut(which, seconds))

    @rule(which=WHICH)
    def cancel_call(self, which: int) -> None:
        self.steps.append(lambda world: world.cancel_call(which))

    @rule(which=WHICH, resume=st.booleans())
    def suspend(self, which: int, resume: bool) -> None:
        self.steps.append(lambda world: world.suspend(which, resume))

    @rule(which=WHICH, concurrency=st.sampled_from([1, 2, 16]))
    def set_concurrency(self, which: int, concurrency: int) -> None:
        self.steps.append(lambda world: world.set_concurrency(which, concurrency))

    @rule(failing=st.booleans(), refusing=st.booleans())
    def set_hooks(self, failing: bool, refusing: bool) -> None:
        self.steps.append(lambda world: world.set_hooks(failing, refusing))

    @rule(what=st.sampled_from(["hang", "fall_silent", "vanish", "kill", "stop"]), number=BROKER)
    def trouble(self, what: str, number: int) -> None:
        self.steps.append(lambda world: world.trouble(what, number))

    @rule(number=BROKER)
    def come_back(self, number: int) -> None:
        self.steps.append(lambda world: world.trouble("return", number))

    def teardown(self) -> None:
        assert run_life(self.steps, ordered=self.ordered, producer=self.producer) == []


@pytest.mark.hypothesis  # the machine is run inside
def test_every_life_keeps_the_rules() -> None:
    # Hypothesis has no type for it.
    run_state_machine_as_test(  # type: ignore[no-untyped-call]
        Lives,
        settings=settings(
            max_examples=12,
            stateful_step_count=16,
            deadline=None,
            suppress_health_check=list(HealthCheck),
            report_multiple_bugs=False,
        ),
    )
