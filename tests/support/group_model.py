"""A consumer group against a model of it: a script of sends, failures, joins, leaves,
kills and restarts, run in virtual time under rules.

Members reach the broker by channels inside the process, or over a memory network whose
connections can be cut.

The rules: no message is lost; ordered queues are never with two calls at once and never
reordered; what is committed never passes a message that no call has finished; a
delivery never claims more failures than there were.
"""

from __future__ import annotations

import logging
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TYPE_CHECKING

import trio
import trio.lowlevel
from trio.testing import MockClock

from rocketmq_sdk.client.runtime import Client
from rocketmq_sdk.clock import TrioClock
from rocketmq_sdk.consumer.push.consumer import PushConsumer
from rocketmq_sdk.errors import RocketMQError
from rocketmq_sdk.model.enums import ConsumeFrom
from rocketmq_sdk.names import dead_letter_topic
from rocketmq_sdk.remoting.source import MemoryChannelSource
from rocketmq_sdk.testing.faulty_files import FaultyFileSystem
from rocketmq_sdk.testing.interception import intercept, refused
from rocketmq_sdk.transport.memory import MemoryNetwork
from support.broker import OWN, BrokerOnFiles
from support.consuming import Sender, Switch

if TYPE_CHECKING:
    from rocketmq_sdk.broker_embedded.broker import EmbeddedBroker
    from rocketmq_sdk.model.received import ReceivedMessage
    from rocketmq_sdk.remoting.source import ChannelSource

TOPIC = "orders"
GROUP = "billing"
QUEUES = 3
NAME_SERVER = "127.0.0.1:9876"
MOST_RETRIES = 2
LISTENER_SECONDS = 0.2
SETTLED = 4 * 3600.0
"""Seconds that the last member has for everything that is left: locks expire, retries
come, dead letters are stored.
"""

Step = Callable[["World"], Awaitable[None]]


class Seen:
    """What the listeners of all members saw."""

    def __init__(self, *, ordered: bool) -> None:
        self.ordered = ordered
        self.sent: dict[int, list[str]] = {queue: [] for queue in range(QUEUES)}
        self.failures_left: Counter[str] = Counter()
        self.failed: Counter[str] = Counter()
        self.done: Counter[str] = Counter()
        self.finished: set[str] = set()
        self.first_done: defaultdict[int, list[str]] = defaultdict(list)
        self.running: Counter[int] = Counter()
        self.problems: list[str] = []

    def check(self, holds: bool, problem: str) -> None:
        if not holds:
            self.problems.append(problem)

    async def listen(self, message: ReceivedMessage) -> None:
        body = message.body.decode()
        queue = int(body.partition("-")[0])
        self.check(
            message.reconsume_times <= self.failed[body],
            f"{body} claims {message.reconsume_times} failures, it had {self.failed[body]}",
        )
        if self.ordered:
            self.check(not self.running[queue], f"queue {queue} is with two calls at once")
        self.running[queue] += 1
        try:
            await trio.sleep(LISTENER_SECONDS)
        finally:
            self.running[queue] -= 1
        self.finished.add(body)
        if self.failures_left[body]:
            self.failures_left[body] -= 1
            self.failed[body] += 1
            raise ValueError("as the model wants it")
        if not self.done[body]:
            self.first_done[queue].append(body)
        self.done[body] += 1


class World:
    """One broker, one group and its members."""

    def __init__(self, nursery: trio.Nursery, seen: Seen, *, network: bool) -> None:
        self.seen = seen
        self._nursery = nursery
        self._network = MemoryNetwork() if network else None
        self._files = FaultyFileSystem()
        self._clock = TrioClock()  # the wall goes on while brokers come and go
        self._killed = False
        self._members: list[tuple[Switch, trio.CancelScope, trio.Event, trio.Event]] = []
        self._switch = Switch(None)
        self.broker: EmbeddedBroker | None = None
        self._broker_scope = trio.CancelScope()
        self._broker_ended = trio.Event()
        self.sender: Sender | None = None

    async def open_broker(self) -> None:
        opened = trio.Event()
        self._broker_scope, self._broker_ended = trio.CancelScope(), trio.Event()

        async def serve(scope: trio.CancelScope, ended: trio.Event) -> None:
            try:
                async with (
                    BrokerOnFiles(self._files, clock=self._clock) as self.broker,
                    self._served(self.broker),
                ):
                    opened.set()
                    with scope:
                        await trio.sleep_forever()
            except RocketMQError:
                if not self._killed:
                    raise
            finally:
                ended.set()

        self._nursery.start_soon(serve, self._broker_scope, self._broker_ended)
        await opened.wait()
        for switch in (self._switch, *[member[0] for member in self._members]):
            switch.connect(self.way())

    @asynccontextmanager
    async def _served(self, broker: EmbeddedBroker) -> AsyncIterator[None]:
        """Serve broker and name server on the network, if there is one."""
        async with trio.open_nursery() as nursery:
            if self._network is not None:
                await nursery.start(broker.server.serve, [self._network.listen(OWN)])
                await nursery.start(
                    broker.namesrv_server.serve, [self._network.listen(NAME_SERVER)]
                )
            try:
                yield
            finally:
                nursery.cancel_scope.cancel()

    def way(self) -> ChannelSource:
        """How the broker is reached now."""
        if self._network is not None:
            return MemoryChannelSource(self._network, name_server=NAME_SERVER)
        assert self.broker is not None
        return self.broker

    async def start(self) -> None:
        await self.open_broker()
        client = Client(self._switch)
        ready = trio.Event()

        async def run_client() -> None:
            async with client:
                client.routes.use("TBW102")
                self.sender = Sender(client)
                ready.set()
                await trio.sleep_forever()

        self._nursery.start_soon(run_client)
        await ready.wait()
        assert self.sender is not None
        await self.sender.create_topic(TOPIC, QUEUES)

    def check_commits(self) -> None:
        """The committed offset of each queue lies at or in front of the first message
        that no call has finished.
        """
        assert self.broker is not None
        for queue, bodies in self.seen.sent.items():
            first = next(
                (offset for offset, body in enumerate(bodies) if body not in self.seen.finished),
                len(bodies),
            )
            committed = self.broker.core.offsets.query(GROUP, TOPIC, queue)
            self.seen.check(
                committed <= first,
                (
                    f"queue {queue} is committed up to {committed}, but message {first} was not "
                    "finished"
                ),
            )

    # -- steps

    async def send(self, queue: int, count: int, failures: int) -> None:
        assert self.sender is not None
        for _ in range(count):
            body = f"{queue}-{len(self.seen.sent[queue])}"
            self.seen.failures_left[body] = failures
            self.seen.sent[queue].append(body)
            await self.sender.send(TOPIC, body, queue=queue)

    async def join(self) -> None:
        if len(self._members) >= 4:
            return
        await self._join(self.consumer)

    def consumer(self, switch: Switch) -> AbstractAsyncContextManager[object]:
        """A new member."""
        return PushConsumer(
            GROUP,
            namesrv=switch,
            subscriptions={TOPIC: "*"},
            listener=self.seen.listen,
            orderly=self.seen.ordered,
            concurrency=4,
            consume_from=ConsumeFrom.FIRST_OFFSET,
            max_reconsume_times=MOST_RETRIES,
            suspend_current_queue_time=0.5,
        )

    async def _join(
        self, consumer: Callable[[Switch], AbstractAsyncContextManager[object]]
    ) -> None:
        switch, scope, left, ended = (
            Switch(self.way()),
            trio.CancelScope(),
            trio.Event(),
            trio.Event(),
        )
        self._members.append((switch, scope, left, ended))

        async def consume() -> None:
            try:
                with scope:
                    async with consumer(switch):
                        await left.wait()
            finally:
                ended.set()

        self._nursery.start_soon(consume)
        await trio.lowlevel.checkpoint()

    async def leave(self, which: int) -> None:
        if self._members:
            _switch, _scope, left, ended = self._members.pop(which % len(self._members))
            left.set()
            with trio.fail_after(60):
                await ended.wait()

    async def kill(self, which: int) -> None:
        """The member's connections are cut and its tasks end: it can commit, unlock and
        unregister nothing.
        """
        if self._members:
            switch, scope, _left, ended = self._members.pop(which % len(self._members))
            switch.cut()
            scope.cancel()
            with trio.fail_after(60):
                await ended.wait()

    async def wait(self, seconds: float) -> None:
        await trio.sleep(seconds)
        self.check_commits()

    async def cut_for(self, which: int, seconds: float) -> None:
        """A member's connections are gone for a while."""
        if self._members:
            switch = self._members[which % len(self._members)][0]
            switch.cut()
            await trio.sleep(seconds)
            switch.connect(self.way())

    async def break_connections(self) -> None:
        """All connections to the broker break at once; new ones can be made."""
        assert self._network is not None
        self._network.cut(OWN)
        await trio.sleep(0.1)

    async def refuse_for(self, seconds: float, *codes: int) -> None:
        """The broker refuses some requests for a while."""
        assert self.broker is not None
        with intercept(self.broker, *codes, by=refused()):
            await trio.sleep(seconds)

    async def restart(self, *, killed: bool) -> None:
        """The broker goes away for a second; killed, it leaves behind what the system
        had taken from it.
        """
        for switch in (self._switch, *[member[0] for member in self._members]):
            switch.cut()
        self._killed = killed
        if killed:
            self._files.halt()
        self._broker_scope.cancel()
        await self._broker_ended.wait()
        self._files.kill()
        self._killed = False
        await trio.sleep(1)
        await self.open_broker()
        assert self.sender is not None
        await self.sender.client.route("TBW102", refresh=True)

    # -- the end

    async def finish(self) -> None:
        """Faults end, one more member comes, and everything must arrive."""
        self._members_to_four()
        await self.join()
        wanted = {body for bodies in self.seen.sent.values() for body in bodies}
        deadline = trio.current_time() + SETTLED
        while trio.current_time() < deadline and not wanted <= set(self.seen.done) | self._dead():
            await trio.sleep(5)
        await self.settle()
        self.check_commits()
        lost = wanted - set(self.seen.done) - self._dead()
        self.seen.check(not lost, f"lost: {sorted(lost)}")
        if self.seen.ordered:
            for queue, bodies in self.seen.sent.items():
                kept = [body for body in bodies if body in self.seen.done]
                self.seen.check(
                    self.seen.first_done[queue] == kept,
                    f"queue {queue} was reordered: {self.seen.first_done[queue]}",
                )
        while self._members:
            await self.leave(0)

    async def settle(self) -> None:
        """Wait for what may still come though everything has arrived."""

    def _members_to_four(self) -> None:
        # Room for one more, which is there whatever happened to the others.
        while len(self._members) >= 4:
            self._members.pop()[2].set()

    def _dead(self) -> set[str]:
        assert self.broker is not None
        store = self.broker.core.store
        topic = dead_letter_topic(GROUP)
        dead: set[str] = set()
        for offset in range(store.max_offset(topic, 0)):
            unit = store.queue_unit(topic, 0, offset)
            assert unit is not None
            record = store.record_at(unit[0])
            assert record is not None
            dead.update(
                body
                for bodies in self.seen.sent.values()
                for body in bodies
                if _holds(bytes(record), body)
            )
        return dead


def _holds(record: bytes, body: str) -> bool:
    length = len(body).to_bytes(4, "big")
    return length + body.encode() in record


def run_script(steps: Sequence[Step], make: Callable[[trio.Nursery], World]) -> list[str]:
    """Run a script in virtual time on a fresh broker; gives what was against the rules.
    Nothing is logged: a life holds thousands of failures.
    """

    async def main() -> list[str]:
        async with trio.open_nursery() as nursery:
            world = make(nursery)
            with trio.fail_after(24 * 3600):
                await world.start()
                for step in steps:
                    await step(world)
                await world.finish()
            nursery.cancel_scope.cancel()
        return world.seen.problems

    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        return trio.run(main, clock=MockClock(autojump_threshold=0))
    finally:
        logging.disable(before)
