"""Push consumers as a hypothesis state machine: random lives of a group, held against a model (`support.group_model`)."""

from typing import ClassVar

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test

from support.group_model import MOST_RETRIES, QUEUES, Step, World, run_script

WHICH = st.integers(0, 3)


class PushGroup(RuleBasedStateMachine):
    """Its rules write a script, which is run when it is whole: trio's virtual time needs one run for all steps."""

    ordered: ClassVar[bool]

    def __init__(self) -> None:
        super().__init__()
        self.steps: list[Step] = []
        self.faults = 0

    @initialize(members=st.integers(1, 3))
    def begin(self, members: int) -> None:
        self.steps += [World.join] * members

    @rule(queue=st.integers(0, QUEUES - 1), count=st.integers(1, 6), failures=st.sampled_from([0, 0, 0, 1, 2, MOST_RETRIES + 1]))
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

    @rule(seconds=st.sampled_from([1.0, 20.0]))
    def refuse_send_backs(self, seconds: float) -> None:
        self.steps.append(lambda world: world.refuse_send_backs(seconds))

    @rule(killed=st.booleans())
    def restart(self, killed: bool) -> None:
        self.steps.append(lambda world: world.restart(killed=killed))

    def teardown(self) -> None:
        assert run_script(self.steps, ordered=self.ordered) == []


class ConcurrentGroup(PushGroup):
    """Messages in any order."""

    ordered = False


class OrderlyGroup(PushGroup):
    """Queues in order."""

    ordered = True


LIVES = settings(
    max_examples=25, stateful_step_count=14, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck), report_multiple_bugs=False
)


def test_concurrent_groups_keep_the_rules() -> None:
    run_state_machine_as_test(ConcurrentGroup, settings=LIVES)  # type: ignore[no-untyped-call]  # hypothesis has no type for it


def test_orderly_groups_keep_the_rules() -> None:
    run_state_machine_as_test(OrderlyGroup, settings=LIVES)  # type: ignore[no-untyped-call]  # hypothesis has no type for it
