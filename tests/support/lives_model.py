"""A producer and groups of push, lite pull and simple consumers at two brokers, against
a model of what their callers may see.

The rules: each message ends once, in time, and as it was told; a transaction's message
appears if its local work was done, and never otherwise; nothing that is stored is lost
for any group; no committed offset passes a message that nobody has finished, and none
goes back, but where the last one to take the queue began, who undoes what the one
before it committed meanwhile; a former owner takes nothing back; what is acknowledged
does not come again; in the end nothing is in flight.
"""

from __future__ import annotations

import logging
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import attrs
import pytest
import trio
from trio.testing import MockClock

from rocketmq_sdk import clock as clock_module
from rocketmq_sdk.admin.client import Admin
from rocketmq_sdk.client.runtime import Client
from rocketmq_sdk.consumer.group import rebalance
from rocketmq_sdk.consumer.lite_pull.consumer import LitePullConsumer
from rocketmq_sdk.consumer.push.consumer import PushConsumer
from rocketmq_sdk.consumer.simple.consumer import SimpleConsumer
from rocketmq_sdk.errors import RocketMQError, TooManyRequestsError
from rocketmq_sdk.model.enums import ConsumeFrom, TransactionState
from rocketmq_sdk.model.message import Message
from rocketmq_sdk.model.queue import MessageQueue
from rocketmq_sdk.model.results import SendResult
from rocketmq_sdk.producer.transaction import TransactionProducer
from rocketmq_sdk.testing.simulation.seeded import seeded
from support.failing_hooks import HookError, Hooks
from support.two_brokers import TwoBrokers, open_two_brokers

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable

    from rocketmq_sdk.consumer.pop.receipt import PoppedMessage
    from rocketmq_sdk.model.received import ReceivedMessage
    from support.consuming import Switch
    from support.two_brokers import Place

TOPIC: Final = "orders"
QUEUES: Final = 2
KINDS: Final = ("push", "lite", "simple")
WORK: Final = 0.05
LONG_WORK: Final = 6.0
"""On every fifth message: longer than the time between two commits."""
INVISIBLE: Final = 15.0
TIMEOUT: Final = 3.0
LATE: Final = 0.5
WORK_OF_TRANSACTIONS: Final = 0.2
CHECKED: Final = 1200.0
"""Seconds in which brokers must have asked about all transactions that are open."""
SETTLED: Final = 1800.0
"""Seconds that the last members have for everything that is left."""
FOLLOWED: Final = 60.0
"""Seconds after which a reset of offsets is done, also where a broker was away."""
MOST_MEMBERS: Final = 3
"""Of one group."""

Step = Callable[["World"], Awaitable[None]]


@attrs.define
class Sent:
    """What the caller of a send was told of it."""

    bodies: tuple[str, ...]
    ends: int = 0
    result: SendResult | None = None
    excluded: bool = False
    """It was told that nothing was stored."""


class Seen:
    """What all callers saw, and what was against the rules."""

    def __init__(self) -> None:
        self.problems: list[str] = []
        self.sends: list[Sent] = []
        self.local_work: dict[str, bool] = {}
        """Of each transaction that has a half message, whether its local work is done.
        """
        self.failures_left: Counter[str] = Counter()
        self.finished: defaultdict[str, set[tuple[str, int, int]]] = defaultdict(set)
        """Of each group, broker, queue and offset of what a caller has finished."""
        self.done: defaultdict[str, set[str]] = defaultdict(set)
        """Of each group, the bodies that were consumed with success."""
        self.acknowledged: dict[str, list[int]] = {}
        """The deaths of all brokers when a body was acknowledged."""
        self.came_again: set[str] = set()
        self.held: set[str] = set()
        """What simple consumers have and have not acknowledged."""
        self.unsure: set[str] = set()
        """What they held when an answer may have been lost: a change of the invisible
        time that is repeated makes two copies of a message.
        """

    def check(self, holds: bool, problem: str) -> None:
        if not holds:
            self.problems.append(problem)

    def finish(self, group: str, messages: Iterable[ReceivedMessage]) -> None:
        for message in messages:
            if message.topic == TOPIC and message.reconsume_times == 0:
                self.finished[group].add(
                    (message.broker_name or "", message.queue_id, message.offset)
                )
            self.done[group].add(message.body.decode())


class _LostAnswerError(Exception):
    """The local work is done, and nobody has told."""


def _no_queue(*_arguments: Any) -> Any:
    raise KeyError("a selector that fails")


def _work_on(message: ReceivedMessage) -> float:
    return LONG_WORK if int(message.body[1:-1]) % 5 == 0 else WORK


class Member:
    """One consumer in a task of its own, with a client and a way of its own."""

    def __init__(self, world: World, kind: str, variant: bool) -> None:
        self.world = world
        self.kind = kind
        self.variant = variant
        self.switch, self.host = world.cluster.way()
        self.scope = trio.CancelScope()
        self.call = trio.CancelScope()
        """Around what its worker waits for at the moment."""
        self.client: Client
        self.consumer: Any = None
        self._left = trio.Event()
        self.ended = trio.Event()

    async def run(self) -> None:
        try:
            with self.scope:
                async with (
                    Client(self.switch) as self.client,
                    self._open(self.client) as self.consumer,
                    trio.open_nursery() as nursery,
                ):
                    if self.kind != "push":
                        nursery.start_soon(self._work)
                    await self._left.wait()
                    nursery.cancel_scope.cancel()
        finally:
            self.ended.set()

    async def leave(self) -> None:
        self._left.set()
        with trio.fail_after(60):
            await self.ended.wait()

    async def kill(self, *, cut: bool) -> None:
        """It ends by a cancellation; cut off, nobody hears of it."""
        if cut:
            self.switch.cut()
        self.scope.cancel()
        with trio.fail_after(60):
            await self.ended.wait()

    def _open(self, client: Client) -> Any:
        world = self.world
        shared: dict[str, Any] = {"subscriptions": {TOPIC: "*"}, "client": client}
        first = ConsumeFrom.FIRST_OFFSET
        if self.kind == "push":
            return PushConsumer(
                "push",
                listener=world.listen,
                orderly=world.ordered,
                concurrency=4,
                consume_from=first,
                suspend_current_queue_time=0.5,
                consume_hooks=[world.hooks],
                filter_hooks=[world.hooks],
                **shared,
            )
        if self.kind == "lite":
            return LitePullConsumer(
                "lite",
                consume_from=first,
                pull_batch_size=3,
                polled_is_done=self.variant,
                filter_hooks=[world.hooks],
                **shared,
            )
        return SimpleConsumer("simple", consume_from=first, max_reconsume_times=100_000, **shared)

    async def _work(self) -> None:
        if self.kind == "lite":
            await self._poll()
        while True:
            await self._receive()

    async def _poll(self) -> None:
        consumer, seen = self.consumer, self.world.seen
        polled: list[ReceivedMessage] = []
        try:
            while True:
                if self.variant:  # to poll again says that these are done
                    seen.finish("lite", polled)
                polled = []
                with trio.CancelScope() as self.call:
                    polled = await consumer.poll(1.0)
                await trio.sleep(sum(map(_work_on, polled)))
                if not self.variant:
                    seen.finish("lite", polled)
                    consumer.done(*polled)
        finally:
            if self.variant:  # so does the end of the block
                seen.finish("lite", polled)

    async def _receive(self) -> None:
        messages: list[PoppedMessage] = []
        with trio.CancelScope() as self.call:
            try:
                messages = await self.consumer.receive(4, INVISIBLE, 1.0)
            except RocketMQError:
                await trio.sleep(0.5)
        for message in messages:
            self.world.take(message)
            with trio.CancelScope() as self.call, suppress(RocketMQError, HookError):
                if self.variant:
                    async with self.consumer.processing(message):
                        await self._process(message)
                else:
                    await self._process(message)
                    await self.consumer.ack(message)
                self.world.acknowledged(message)

    async def _process(self, message: PoppedMessage) -> None:
        await trio.sleep(_work_on(message))
        if self.world.fails(message, "simple"):
            raise HookError("as the model wants it")
        # Its acknowledgement may count from here on, whatever becomes of the answer.
        self.world.seen.done["simple"].add(message.body.decode())


class World:
    """The cluster, the producer and the three groups of one life."""

    def __init__(
        self,
        cluster: TwoBrokers,
        nursery: trio.Nursery,
        clock: MockClock,
        *,
        ordered: bool,
        producer: dict[str, Any],
    ) -> None:
        self.cluster = cluster
        self.nursery = nursery
        self.clock = clock
        self.ordered = ordered
        self.seen = Seen()
        self.hooks = Hooks()
        self.members: list[Member] = []
        self._all: list[Member] = []
        self.producer: TransactionProducer
        self._producer_settings = producer
        self._producing: Switch
        self._sending: set[trio.CancelScope] = set()
        self._pending = 0
        self._blocked = 0.0
        self.slept = 0.0
        """For how long the machine was suspended."""
        self._began: dict[tuple[int, Place], tuple[str, int]] = {}
        """Who has taken a queue last, by its host, and at what offset."""
        self._writer: dict[tuple[int, Place], str] = {}
        self._watched: dict[tuple[int, Place], int] = {}
        self._troubled: set[int] = set()
        """The brokers that are in trouble."""
        self._reset: dict[str, float] = {}
        """When an administrator has reset the offsets of a group last."""
        cluster.on_commit = self._committed
        cluster.on_read = self._read

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[None]:
        self._producing, _host = self.cluster.way()
        async with (
            Client(self._producing) as client,
            TransactionProducer(
                "producers",
                self._checker,
                client=client,
                send_hooks=[self.hooks],
                forbidden_hooks=[self.hooks],
                **self._producer_settings,
            ) as self.producer,
        ):
            yield

    # -- offsets

    def _read(self, broker: int, place: Place, host: str, offset: int) -> None:
        if not self._hands_over(broker, place, host):
            self._began[broker, place] = host, max(offset, 0)

    def _hands_over(self, broker: int, place: Place, host: str) -> bool:
        """Whether who asks for an offset gives the queue up: it looks whether the next
        owner is further already.
        """
        _group, topic, queue_id = place
        queue = MessageQueue(topic, self.cluster.brokers[broker].name, queue_id)
        return any(
            queue in member.consumer._member._rebalancer.leaving
            for member in self._all
            if member.host == host and member.kind != "simple" and member.consumer is not None
        )

    def _committed(self, broker: int, place: Place, host: str, before: int, now: int) -> None:
        self._check_passed(broker, place, now)
        where = f"{place} of broker {broker}"
        if now < before and not self._may_go_back(place[0]):
            owner, began = self._began.get((broker, place), (host, 0))
            undone = now >= began and host == owner and self._writer.get((broker, place)) != host
            self.seen.check(
                undone,
                f"{where} went back from {before} to {now} by {host}; {owner} has taken it at "
                f"{began}",
            )
        self._writer[broker, place] = host

    def _may_go_back(self, group: str) -> bool:
        """Whether members may still follow a reset of the group's offsets."""
        return trio.current_time() < self._reset.get(group, -FOLLOWED) + FOLLOWED

    def _check_passed(self, broker: int, place: Place, committed: int) -> None:
        group, topic, queue_id = place
        if topic != TOPIC or group not in ("push", "lite"):
            return
        name = self.cluster.brokers[broker].name
        checked = self._watched.get((broker, place), 0)
        for offset in range(checked, committed):
            self.seen.check(
                (name, queue_id, offset) in self.seen.finished[group],
                f"{place} of {name} is committed up to {committed}, but {offset} is not finished",
            )
        self._watched[broker, place] = max(checked, committed)

    # -- what consumers do

    def fails(self, message: ReceivedMessage, group: str) -> bool:
        key = f"{group} {message.body.decode()}"
        if self.seen.failures_left[key]:
            self.seen.failures_left[key] -= 1
            return True
        return False

    async def listen(self, message: ReceivedMessage) -> None:
        await trio.sleep(_work_on(message))
        done = set(self.seen.done["push"])
        self.seen.finish("push", [message])
        if self.fails(message, "push"):
            self.seen.done["push"] = done
            raise ValueError("as the model wants it")

    def take(self, message: PoppedMessage) -> None:
        """A simple consumer has a message in its hands."""
        body = message.body.decode()
        if self.seen.acknowledged.get(body) == self._deaths():
            self.seen.came_again.add(body)
        self.seen.held.add(body)
        if self._troubled:
            self.seen.unsure.add(body)

    def acknowledged(self, message: PoppedMessage) -> None:
        self.seen.acknowledged[message.body.decode()] = self._deaths()
        self.seen.held.discard(message.body.decode())

    def _answers_are_lost(self) -> None:
        self.seen.unsure |= self.seen.held

    def _deaths(self) -> list[int]:
        return [life.deaths for life in self.cluster.brokers]

    # -- steps: sends

    def _new(self, count: int, failures: int) -> Sent:
        first = sum(len(sent.bodies) for sent in self.seen.sends)
        sent = Sent(tuple(f"m{number}." for number in range(first, first + count)))
        self.seen.sends.append(sent)
        for body in sent.bodies:
            for group in ("push", "simple"):
                self.seen.failures_left[f"{group} {body}"] = failures
        return sent

    async def send(self, how: str, count: int, failures: int) -> None:
        producer = self.producer
        for _ in range(count):
            sent = self._new(3 if how == "batch" else 1, failures)
            messages = [Message(TOPIC, body.encode()) for body in sent.bodies]
            if how == "submit":
                try:
                    act = producer.submit(messages[0]).wait
                except (HookError, TooManyRequestsError):
                    sent.ends, sent.excluded = 1, True
                    continue
                self._start(sent, act)
            elif how == "batch":
                self._start(sent, partial(producer.send_batch, messages))
            elif how in ("commit", "rollback", "unknown", "raise"):
                self._start(sent, partial(self._transact, how, messages[0]), limit=2 * TIMEOUT + 1)
            elif how == "keyed":
                self._start(sent, partial(producer.send, messages[0], key="k"))
            elif how == "bad selector":
                self._start(sent, partial(producer.send, messages[0], selector=_no_queue))
            else:
                self._start(sent, partial(producer.send, messages[0]))

    async def _transact(self, how: str, message: Message) -> SendResult | None:
        body = message.body.decode()
        with suppress(_LostAnswerError):
            async with self.producer.transaction(message) as transaction:
                self.seen.local_work[body] = False
                await trio.sleep(WORK_OF_TRANSACTIONS)
                if how == "rollback":
                    transaction.rollback()
                    return None
                self.seen.local_work[body] = True
                if how == "unknown":
                    transaction.unknown()
                if how == "raise":
                    raise _LostAnswerError
            return transaction.half
        return None

    async def _checker(self, message: ReceivedMessage) -> TransactionState:
        if self.hooks.failing:
            raise HookError("a checker that fails")
        done = self.seen.local_work.get(message.body.decode())
        return TransactionState.COMMIT if done else TransactionState.ROLLBACK

    def _start(
        self,
        sent: Sent,
        act: Callable[[], Awaitable[SendResult | None]],
        *,
        limit: float = TIMEOUT,
    ) -> None:
        self._pending += 1
        self.nursery.start_soon(self._follow, sent, act, limit)

    async def _follow(
        self, sent: Sent, act: Callable[[], Awaitable[SendResult | None]], limit: float
    ) -> None:
        began, blocked = trio.current_time(), self._blocked
        with trio.CancelScope() as scope:
            self._sending.add(scope)
            try:
                sent.result = await act()
            except RocketMQError as error:
                in_block = sent.bodies[0] in self.seen.local_work
                sent.excluded = not error.outcome_unknown and not in_block
            except (HookError, KeyError):
                sent.excluded = True
        self._sending.discard(scope)
        self._pending -= 1
        sent.ends += 1
        took = trio.current_time() - began - (self._blocked - blocked)
        self.seen.check(took <= limit + LATE, f"{sent.bodies} took {took:.2f} s")

    async def cancel_sends(self) -> None:
        for scope in list(self._sending)[::2]:
            scope.cancel()

    # -- steps: consumers

    async def join(self, kind: str, variant: bool) -> None:
        if sum(member.kind == kind for member in self.members) < MOST_MEMBERS:
            member = Member(self, kind, variant)
            self.members.append(member)
            self._all.append(member)
            self.nursery.start_soon(member.run)

    def _pick(self, which: int) -> Member | None:
        return self.members[which % len(self.members)] if self.members else None

    async def leave(self, which: int) -> None:
        if (member := self._pick(which)) is not None:
            self.members.remove(member)
            await member.leave()

    async def kill(self, which: int, cut: bool) -> None:
        if (member := self._pick(which)) is not None:
            self.members.remove(member)
            await member.kill(cut=cut)

    async def cut(self, which: int, seconds: float) -> None:
        """A member's connections are gone for a while."""
        if (member := self._pick(which)) is not None:
            self._answers_are_lost()
            member.switch.cut()
            await trio.sleep(seconds)
            member.switch.connect(self.cluster.source(member.host))

    async def cancel_call(self, which: int) -> None:
        if (member := self._pick(which)) is not None:
            member.call.cancel()

    async def suspend(self, which: int, resume: bool) -> None:
        member = self._pick(which)
        if member is not None and member.kind == "push" and member.consumer is not None:
            with suppress(RocketMQError):  # it is still beginning
                if resume:
                    member.consumer.resume()
                else:
                    member.consumer.suspend()

    async def set_concurrency(self, which: int, concurrency: int) -> None:
        member = self._pick(which)
        if member is not None and member.kind == "push" and member.consumer is not None:
            with suppress(RocketMQError):
                member.consumer.set_concurrency(concurrency)

    # -- steps: the world

    async def wait(self, seconds: float) -> None:
        await trio.sleep(seconds)

    async def block(self, seconds: float) -> None:
        """Nothing runs for a while: something blocks the event loop."""
        self._blocked += seconds
        self.clock.jump(seconds)
        await trio.lowlevel.checkpoint()

    async def sleep_machine(self, seconds: float) -> None:
        """The machine is suspended: the clock of the loop stands still meanwhile."""
        self.slept += seconds
        await trio.lowlevel.checkpoint()

    async def reset_offsets(self, group: str, number: int, queue_id: int) -> None:
        """An administrator has a group begin a queue again, while it works."""
        queue = MessageQueue(TOPIC, self.cluster.brokers[number].name, queue_id)
        self._reset[group] = trio.current_time()
        with suppress(RocketMQError):
            await Admin(client=self.producer.client).groups.reset_offsets(
                group, TOPIC, queue=queue, offset=0, timeout=1.0
            )
        self._reset[group] = trio.current_time()

    async def set_hooks(self, failing: bool, refusing: bool) -> None:
        self.hooks.failing, self.hooks.refusing = failing, refusing

    async def trouble(self, what: str, number: int) -> None:
        life = self.cluster.brokers[number]
        self._answers_are_lost()
        (self._troubled.discard if what == "return" else self._troubled.add)(number)
        if what == "kill":
            await life.stop(killed=True)
            self._forget_commits(number)
        elif what == "stop":
            await life.stop(killed=False)
        elif what == "return":
            await life.come_back()
        else:
            getattr(life, what)()

    def _forget_commits(self, number: int) -> None:
        """A killed broker has lost the last commits, and with them who made them."""
        for key in [key for key in self._writer if key[0] == number]:
            del self._writer[key]

    # -- the end

    async def finish(self) -> None:
        """Trouble ends, new members come, and all that is stored must arrive."""
        await self.set_hooks(False, False)
        for number in range(len(self.cluster.brokers)):
            await self.trouble("return", number)
        with trio.fail_after(60):
            while self._pending or self.producer.in_flight:
                await trio.sleep(0.5)
        while self.members:
            await self.leave(0)
        await self._check_transactions()
        stored = self._stored()
        self._check_sends(stored)
        for kind in KINDS:
            await self.join(kind, True)
        missing: dict[str, set[str]] = {}
        deadline = trio.current_time() + SETTLED
        while trio.current_time() < deadline:
            await trio.sleep(5)
            missing = {kind: set(stored) - self.seen.done[kind] for kind in KINDS}
            if not any(missing.values()) and not self._uncommitted():
                break
        for kind in KINDS:
            self.seen.check(not missing[kind], f"lost for {kind}: {sorted(missing[kind])}")
        await trio.sleep(20)
        self._check_rest()
        await self._check_calls()
        while self.members:
            await self.leave(0)
        self._check_ends(stored)

    async def _check_transactions(self) -> None:
        """The brokers have asked about all that nobody has told them."""
        work = self.seen.local_work
        with trio.move_on_after(CHECKED):
            while any(done and not self._stored()[body] for body, done in work.items()):
                await trio.sleep(5)
        if work:
            await trio.sleep(300)  # what must not appear would appear by now
        stored = self._stored()
        for body, done in work.items():
            self.seen.check(
                (stored[body] > 0) == done,
                f"the local work of {body} is {'' if done else 'not '}done, and it was stored "
                f"{stored[body]} times",
            )

    def _stored(self) -> Counter[str]:
        return Counter(
            message.body.decode()
            for life in self.cluster.brokers
            for queue_id in range(QUEUES)
            for message in life.stored(TOPIC, queue_id)
        )

    def _check_sends(self, stored: Counter[str]) -> None:
        check, hooks, producer = self.seen.check, self.hooks, self.producer
        for sent in self.seen.sends:
            check(sent.ends == 1, f"{sent.bodies} ended {sent.ends} times")
            times = [stored[body] for body in sent.bodies]
            check(len(set(times)) == 1, f"{sent.bodies} were stored {times} times")
            if sent.result is not None:
                check(times[0] > 0, f"{sent.bodies} were acknowledged and are not stored")
            if sent.excluded:
                check(times[0] == 0, f"{sent.bodies} failed for certain and are stored")
        check(producer.in_flight == 0, f"{producer.in_flight} sends are in flight")
        check(producer._under_way.bytes == 0, f"{producer._under_way.bytes} bytes are in flight")
        check(not producer._under_way.handles, "handles were forgotten")
        check(hooks.begun == hooks.ended, f"hooks: {hooks.begun - hooks.ended} did not end")

    def _check_rest(self) -> None:
        """Nobody works any more, and all is committed."""
        for member in self.members:
            if member.kind != "simple":
                statistics = member.consumer.statistics()
                rest = statistics.in_flight, statistics.cached_messages
                self.seen.check(rest == (0, 0), f"{member.kind} still holds {rest}")

    async def _check_calls(self) -> None:
        """Connections wait for nothing but the next messages."""
        expected = {"the producer": 0}
        clients = {"the producer": self.producer.client}
        for member in self.members:
            statistics = member.consumer.statistics()
            waits = statistics.places + 1 if member.kind == "simple" else len(statistics.queues)
            expected[member.kind], clients[member.kind] = waits, member.client
        least: dict[str, int] = {}
        for _ in range(20):  # a heartbeat or a commit may be under way
            for name, client in clients.items():
                channels = client.remoting.channels().values()
                calls = sum(channel.statistics().in_flight for channel in channels)
                least[name] = min(calls, least.get(name, calls))
            await trio.sleep(0.3)
        for name, calls in least.items():
            self.seen.check(calls <= expected[name], f"{name} has {calls} calls in flight")

    def _uncommitted(self) -> list[str]:
        """What is not committed to its end; a killed member's locks expire first."""
        return [
            f"{group} has committed {offset} of {end} in queue {queue_id} of {life.name}"
            for group in ("push", "lite")
            for life in self.cluster.brokers
            for queue_id in range(QUEUES)
            if (offset := max(life.offset((group, TOPIC, queue_id)), 0))
            != (end := len(life.stored(TOPIC, queue_id)))
        ]

    def _check_ends(self, stored: Counter[str]) -> None:
        self.seen.problems += self._uncommitted()
        again = {body for body in self.seen.came_again if stored[body] == 1} - self.seen.unsure
        self.seen.check(not again, f"{sorted(again)} were acknowledged and came again")


def run_life(
    steps: Sequence[Step], *, ordered: bool, producer: dict[str, Any], seed: int = 0
) -> list[str]:
    """Run a script in virtual time on fresh brokers; gives what was against the rules.
    The same seed gives the same life. Nothing is logged: a life holds thousands of
    failures.
    """
    clock = MockClock(autojump_threshold=0)

    async def main(patches: pytest.MonkeyPatch) -> list[str]:
        patches.setattr(clock_module, "LOOK", 0.0)  # brokers see at once that it has slept
        async with open_two_brokers(TOPIC, QUEUES) as cluster, trio.open_nursery() as nursery:
            world = World(cluster, nursery, clock, ordered=ordered, producer=producer)
            for module in (clock_module, rebalance):
                patches.setattr(module, "suspended", lambda: world.slept)
            with trio.fail_after(24 * 3600):
                async with world.opened():
                    for step in steps:
                        await step(world)
                    await world.finish()
            nursery.cancel_scope.cancel()
        return world.seen.problems

    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with seeded(seed), pytest.MonkeyPatch.context() as patches:
            return trio.run(main, patches, clock=clock)
    finally:
        logging.disable(before)
