"""`simulate`: an application and a cluster in virtual time, while things go wrong."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Final, Generic, TypeVar

import attrs
import trio

from rocketmq_sdk.errors import WrongRunError
from rocketmq_sdk.lifecycle import open_quiet_nursery
from rocketmq_sdk.testing.failures import WaitTimeoutError
from rocketmq_sdk.testing.simulation.plan import Plan
from rocketmq_sdk.testing.simulation.seeded import run_seeded
from rocketmq_sdk.testing.simulation.site import SimulatedCluster
from rocketmq_sdk.testing.simulation.trace import Trace

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from rocketmq_sdk.testing.cluster import TestCluster
    from rocketmq_sdk.testing.network import Party

Result = TypeVar("Result")
DAY: Final = 24 * 3600.0
_SHOWN: Final = 15
"""Lines of the trace that a failure shows."""


class Simulation:
    """What a scenario is given."""

    def __init__(self, plan: Plan, trace: Trace, cluster: TestCluster) -> None:
        self.plan = plan
        """How large the cluster is, and what goes wrong."""
        self.cluster = cluster
        """The cluster: its brokers, `wait`, `sent`, `seed`."""
        self.trace = trace
        """What has happened so far."""
        self.random = Random(f"scenario {plan.seed}")
        """Draws for the scenario, by the seed of the plan."""
        self._began = trio.current_time()
        self._calm = trio.Event()

    @property
    def now(self) -> float:
        """Virtual seconds since the begin."""
        return trio.current_time() - self._began

    @property
    def troubled(self) -> bool:
        """Whether something is wrong, or may go wrong yet."""
        return not self._calm.is_set()

    async def calm(self) -> None:
        """Wait until nothing is wrong any more: all brokers run and are connected."""
        await self._calm.wait()

    def party(self, name: str) -> Party:
        """A way to the cluster for one client: pass it as `namesrv=`."""
        return self.cluster.party(name)

    def note(self, text: str) -> None:
        """Add a line to the trace."""
        self.trace.note(text)

    async def run_troubles(self, site: SimulatedCluster) -> None:
        """Let everything happen that the plan says."""
        async with trio.open_nursery() as nursery:
            for trouble in self.plan.troubles:
                nursery.start_soon(site.run, trouble)
            await trio.sleep(self.plan.duration)
        self.note("nothing is wrong any more")
        self._calm.set()


@attrs.frozen
class Simulated(Generic[Result]):
    """What came of a simulation."""

    plan: Plan
    """What went wrong in it."""
    trace: Trace
    """What happened, the same each time."""
    value: Result
    """What the scenario returned."""
    seconds: float
    """How many virtual seconds it took."""


def simulate(
    seed: int | Plan,
    scenario: Callable[[Simulation], Awaitable[Result]],
    *,
    within: float = DAY,
    **settings: object,
) -> Simulated[Result]:
    """Run a scenario with a cluster in virtual time, while things go wrong.

    `seed` chooses a `Plan.drawn` of three masters and one hour, or is a plan.
    `scenario(simulation)` is an async function: the application and what is to hold of
    it. Its clients use `simulation.party(name)` and async listeners. Brokers have the
    `settings`. Everything happens in one thread and in no time, and the same way each
    time: the same plan gives the same trace, in any process.

    Raises what the scenario raises, with the plan and the end of the trace as a note;
    `WaitTimeoutError` when it has not ended `within` so many virtual seconds after the
    duration of the plan; `WrongRunError` inside of an event loop.
    """
    if trio.lowlevel.in_trio_run():
        raise WrongRunError(
            "simulate() runs a loop of its own; call it from a plain function, not an async one"
        )
    plan = seed if isinstance(seed, Plan) else Plan.drawn(seed)
    trace = Trace()

    async def run() -> tuple[Result, float]:
        site = SimulatedCluster(plan, trace, settings)
        simulation: Simulation | None = None
        found = ""
        with trio.move_on_after(plan.duration + within) as limit:
            async with open_quiet_nursery() as nursery, site.cluster as cluster:
                simulation = Simulation(plan, trace, cluster)
                nursery.start_soon(simulation.run_troubles, site)
                try:
                    value = await scenario(simulation)
                except trio.Cancelled:
                    found = cluster.report()  # of the brokers as they run
                    raise
                took = simulation.now
                nursery.cancel_scope.cancel()
        if limit.cancelled_caught:
            raise WaitTimeoutError(
                f"the scenario has not ended within {within:g} s after the troubles\n{found}"
            )
        return value, took

    try:
        value, seconds = run_seeded(plan.seed, run)
    except Exception as error:
        ends = "\n".join(list(trace)[-_SHOWN:])
        error.add_note(f"in the simulation of\n{plan!r}\nwhich ended with\n{ends}")
        raise
    return Simulated(plan, trace, value, seconds)
