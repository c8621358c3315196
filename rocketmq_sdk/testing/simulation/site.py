"""A simulated cluster, to which the troubles of a plan happen."""

from __future__ import annotations

from collections import Counter, defaultdict
from random import Random
from typing import TYPE_CHECKING, Final

import trio

from rocketmq_sdk.clock import TrioClock
from rocketmq_sdk.errors import RocketMQError
from rocketmq_sdk.model.route import split_address
from rocketmq_sdk.testing.cluster import NAME_SERVER, NAME_SERVER_NAME, TestCluster
from rocketmq_sdk.testing.faulty_files import FaultyFileSystem
from rocketmq_sdk.testing.simulation.troubles import EVERYBODY

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from rocketmq_sdk.testing.faults import Fault
    from rocketmq_sdk.testing.faulty_clock import ClockFault
    from rocketmq_sdk.testing.simulation.plan import Plan
    from rocketmq_sdk.testing.simulation.trace import Trace
    from rocketmq_sdk.testing.simulation.troubles import DiskFault, Trouble

START_AGAIN: Final = 5.0
"""Seconds until a broker that could not start is started again."""


class SimulatedCluster:
    """The cluster of a plan, and what is wrong with it at the moment."""

    def __init__(self, plan: Plan, trace: Trace, settings: Mapping[str, object]) -> None:
        self._plan = plan
        self._trace = trace
        self._latencies = Random(f"latencies {plan.seed}")
        self._slower: defaultdict[str, float] = defaultdict(float)
        self._severed: Counter[tuple[str, str]] = Counter()
        self._down: Counter[str] = Counter()
        self._began = trio.current_time()
        self.cluster = TestCluster(
            plan.masters, plan.slaves, files=self._files() if plan.power_cuts else None, **settings
        )
        network = self.cluster.network
        for name, broker in self.cluster.brokers.items():
            broker.seen.on_add = trace.listener(name)
            network.name(broker.host, name)
        network.name(split_address(NAME_SERVER)[0], NAME_SERVER_NAME)
        for party in plan.parties:
            network.name(party)
        if plan.latency:
            network.memory.latency = self._latency

    def _files(self) -> Callable[[str], FaultyFileSystem]:
        plan, clock = self._plan, TrioClock()

        def make(name: str) -> FaultyFileSystem:
            seed = Random(f"disk of {name} {plan.seed}").randrange(1 << 30)
            return FaultyFileSystem(seed, now_ms=clock.now_ms)

        return make

    def _latency(self, source: str, target: str) -> float:
        slower, seconds = self._slower, self._latencies.random() * self._plan.latency
        return seconds + slower.get(source, 0.0) + slower.get(target, 0.0)

    # Troubles

    async def run(self, trouble: Trouble) -> None:
        """Let a trouble happen when it is due."""
        await trio.sleep_until(self._began + trouble.at)
        self._trace.note(f"{trouble!r} begins")
        async with trouble.happening(self):
            await trio.sleep(trouble.lasts)
        self._trace.note(f"{trouble!r} is over")

    async def take_down(self, broker: str, how: str, seed: int) -> None:
        """End the life of a broker, for as long as anything keeps it down."""
        self._down[broker] += 1
        target = self.cluster.brokers[broker]
        if how == "stop":
            await target.stop()
        elif how == "kill":
            await target.kill()
        else:
            await target.power_cut(seed)

    async def let_up(self, broker: str) -> None:
        """Take that back; the last one starts the broker."""
        self._down[broker] -= 1
        if self._down[broker] == 0:
            await self._start(broker)

    async def _start(self, broker: str) -> None:
        while self._down[broker] == 0:
            try:
                await self.cluster.brokers[broker].start()
            except RocketMQError as error:
                self._trace.note(f"{broker} does not start: {error}")
                await trio.sleep(START_AGAIN)
            else:
                return

    def _ways(self, one: str, other: str, *, one_way: bool) -> Iterator[tuple[str, str]]:
        parties = self.cluster.network.parties
        here = parties[one]
        hosts = set(parties.values()) if other == EVERYBODY else {parties[other]}
        for host in sorted(hosts - {here}):
            yield here, host
            if not one_way:
                yield host, here

    def sever(self, one: str, other: str, *, one_way: bool) -> None:
        """Let nothing arrive; counted, as several cuts may be about the same way."""
        for way in self._ways(one, other, one_way=one_way):
            self._severed[way] += 1
            if self._severed[way] == 1:
                self.cluster.network.memory.sever(*way)

    def mend(self, one: str, other: str, *, one_way: bool) -> None:
        """Take that back."""
        for way in self._ways(one, other, one_way=one_way):
            if self._severed[way] == 1:
                self.cluster.network.memory.mend(*way)
            self._severed[way] = max(0, self._severed[way] - 1)

    def slow_down(self, broker: str, seconds: float) -> None:
        """Add to what bytes from and to a broker take; negative takes it back."""
        host = self.cluster.brokers[broker].host
        self._slower[host] = max(0.0, round(self._slower[host] + seconds, 6))

    def disconnect(self, broker: str) -> None:
        """Break all connections to a broker."""
        self.cluster.network.memory.cut(self.cluster.brokers[broker].own_address)

    def break_disk(self, broker: str, fault: DiskFault) -> Fault:
        """Let operations of a broker's disk fail or be slow, until the lift."""
        disk = self.cluster.brokers[broker].faults.undeclared_disk
        if fault.delay:
            return disk.slow(fault.operation, fault.path, delay=fault.delay)
        return disk.fail(fault.operation, fault.path, code=fault.code, times=fault.times)

    def set_clock(self, broker: str, seconds: float) -> ClockFault:
        """Let a broker's wall clock be wrong, until the lift."""
        return self.cluster.brokers[broker].clock.wrong_by(seconds)

    async def check_up(self, broker: str) -> None:
        """Restart a broker that has suffered so that it takes no messages any more."""
        target = self.cluster.brokers[broker]
        if target.running and not target.health():
            self._trace.note(f"{broker} is restarted: {target.health()}")
            await target.kill()
            await self._start(broker)
