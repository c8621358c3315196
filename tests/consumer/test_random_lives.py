"""Random lives of consumer groups: whatever happens in whatever order, nothing is lost,
nothing is handed out twice within its time.

A step is one event: messages are sent, polled, received, acknowledged, extended or
forgotten, members come, go, are cut off and killed. All of a life runs in virtual time
inside one `trio.run`, as a list of steps that hypothesis draws and shrinks.
"""

from __future__ import annotations

from collections import Counter
from typing import Any, ClassVar

import attrs
import trio
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from trio.testing import MockClock

from rocketmq_sdk.broker_embedded.broker import EmbeddedBroker
from rocketmq_sdk.client.runtime import Client
from rocketmq_sdk.consumer.lite_pull.consumer import LitePullConsumer
from rocketmq_sdk.consumer.pop.receipt import PoppedMessage
from rocketmq_sdk.consumer.simple.consumer import SimpleConsumer
from rocketmq_sdk.errors import RocketMQError
from rocketmq_sdk.model.enums import ConsumeFrom
from support.consuming import Switch, open_sender

INVISIBLE = 15.0
MEMBERS = 3
FIRST = ConsumeFrom.FIRST_OFFSET
_member = st.integers(0, MEMBERS - 1)
_steps = st.lists(
    st.one_of(
        st.tuples(st.just("send"), st.integers(1, 12)),
        st.tuples(st.just("take"), _member),
        st.tuples(st.just("ack"), _member),
        st.tuples(st.just("forget"), _member),
        st.tuples(st.just("extend"), _member),
        st.tuples(st.just("wait"), st.sampled_from([0.5, 4.0, 16.0, 40.0])),
        st.tuples(st.just("leave"), _member),
        st.tuples(st.just("kill"), _member),
        st.tuples(st.just("cut"), _member),
    ),
    min_size=1,
    max_size=40,
)
_life = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def live(life: Any, steps: list[tuple[str, Any]]) -> None:
    """Run one life in virtual time."""
    trio.run(life, steps, clock=MockClock(autojump_threshold=0))


class KilledError(Exception):
    """How the block of a killed member ends."""


class Member:
    """One consumer in a task of its own, with a client and connections of its own."""

    def __init__(self, broker: EmbeddedBroker, kind: type[Any], **options: Any) -> None:
        self.switch = Switch(broker)
        self.consumer: Any = None
        self._kind = kind
        self._options = options
        self._end = trio.Event()
        self._ended = trio.Event()
        self._killed = False

    async def run(self, task_status: trio.TaskStatus[None]) -> None:
        try:
            async with (
                Client(self.switch) as client,
                self._kind(
                    "g", client=client, subscriptions={"T": "*"}, **self._options
                ) as self.consumer,
            ):
                task_status.started()
                await self._end.wait()
                if self._killed:
                    raise KilledError
        except KilledError:
            pass
        self._ended.set()

    async def end(self, *, killed: bool = False) -> None:
        """Leave the block, in order or by an error."""
        self._killed = killed
        self._end.set()
        await self._ended.wait()


class Group:
    """Members that are there when they are needed."""

    kind: ClassVar[type[Any]]
    options: ClassVar[dict[str, Any]]

    def __init__(self, broker: EmbeddedBroker, nursery: trio.Nursery) -> None:
        self.broker = broker
        self._nursery = nursery
        self.members: dict[int, Member] = {}

    async def member(self, number: int) -> Any:
        if number not in self.members:
            self.members[number] = member = Member(self.broker, self.kind, **self.options)
            await self._nursery.start(member.run)
        return self.members[number].consumer

    async def leave(self, number: int) -> None:
        if number in self.members:
            await self.members.pop(number).end()

    async def kill(self, number: int) -> None:
        """The member ends by an error, and nobody hears of it."""
        if number in self.members:
            member = self.members.pop(number)
            member.switch.cut()
            await member.end(killed=True)

    async def cut(self, number: int) -> None:
        """The member is cut off for a while."""
        if number in self.members:
            self.members[number].switch.cut()
            await trio.sleep(2)
            self.members[number].switch.connect(self.broker)
            await trio.sleep(5)


@attrs.define
class Held:
    """One delivery that a member works on."""

    message: PoppedMessage
    number: int


class Popping(Group):
    """A group of simple consumers, and what must hold of it."""

    kind: ClassVar[type[Any]] = SimpleConsumer
    options: ClassVar[dict[str, Any]] = {"consume_from": FIRST, "max_reconsume_times": 100_000}

    def __init__(self, broker: EmbeddedBroker, nursery: trio.Nursery) -> None:
        super().__init__(broker, nursery)
        self.held: dict[int, list[Held]] = {number: [] for number in range(MEMBERS)}
        self.hidden_until: dict[int, float] = {}
        self.attempts: Counter[int] = Counter()
        self.acknowledged: set[int] = set()
        self.unsure: set[int] = set()

    async def forget(self, number: int) -> None:
        self.held[number].clear()

    async def leave(self, number: int) -> None:
        self.held[number].clear()
        await super().leave(number)

    async def kill(self, number: int) -> None:
        self.held[number].clear()
        await super().kill(number)

    async def take(self, number: int) -> int:
        try:
            messages = await (await self.member(number)).receive(4, INVISIBLE, 0.5)
        except RocketMQError:
            return 0
        now = trio.current_time()
        for message in messages:
            which = int(message.body)
            assert which not in self.acknowledged, f"{which} was acknowledged and came again"
            assert which in self.unsure or now >= self.hidden_until.get(which, 0.0), (
                f"{which} came again before its time was over"
            )
            self.attempts[which] += 1
            assert which in self.unsure or message.delivery_attempt == self.attempts[which]
            self.hidden_until[which] = now + INVISIBLE
            self.held[number].append(Held(message, which))
        return len(messages)

    async def ack(self, number: int) -> None:
        """Acknowledge the oldest that the member holds, by itself or with the next
        one.
        """
        due = self.held[number][:2]
        del self.held[number][:2]
        good = [held for held in due if held.message.receipt.is_good]
        try:
            await (await self.member(number)).batch_ack([held.message for held in good])
        except RocketMQError:
            self.unsure.update(held.number for held in good)
        else:
            self.acknowledged.update(held.number for held in good)

    async def extend(self, number: int) -> None:
        for held in self.held[number][:1]:
            if held.message.receipt.is_good:
                try:
                    await (await self.member(number)).change_invisible_duration(
                        held.message, 2 * INVISIBLE
                    )
                except RocketMQError:
                    self.unsure.add(held.number)
                else:
                    self.hidden_until[held.number] = trio.current_time() + 2 * INVISIBLE


async def pop_life(steps: list[tuple[str, Any]]) -> None:
    sent = 0
    async with (
        EmbeddedBroker() as broker,
        open_sender(broker) as sender,
        trio.open_nursery() as nursery,
    ):
        await sender.create_topic("T", 2)
        group = Popping(broker, nursery)
        for what, value in steps:
            if what == "send":
                await sender.send("T", *map(str, range(sent, sent + value)), queues=2)
                sent += value
            elif what == "wait":
                await trio.sleep(value)
            else:
                await getattr(group, what)(value)
        for number in range(MEMBERS):
            await group.leave(number)
        with trio.fail_after(600):
            while len(group.acknowledged | group.unsure) < sent:
                await group.take(0)
                while group.held[0]:
                    await group.ack(0)
        await group.leave(0)
    assert group.acknowledged | group.unsure == set(range(sent))


@_life
@given(_steps)
def test_popped_messages_are_neither_lost_nor_handed_out_twice_in_their_time(
    steps: list[tuple[str, Any]],
) -> None:
    live(pop_life, steps)


class Polling(Group):
    """A group of lite pull consumers, and what must hold of it."""

    kind: ClassVar[type[Any]] = LitePullConsumer
    options: ClassVar[dict[str, Any]] = {
        "consume_from": FIRST,
        "pull_batch_size": 3,
        "polled_is_done": True,
    }

    def __init__(self, broker: EmbeddedBroker, nursery: trio.Nursery) -> None:
        super().__init__(broker, nursery)
        self.seen: Counter[int] = Counter()

    async def take(self, number: int) -> int:
        messages = await (await self.member(number)).poll(0.5)
        self.seen.update(int(message.body) for message in messages)
        return len(messages)


async def poll_life(steps: list[tuple[str, Any]]) -> None:
    sent = 0
    async with (
        EmbeddedBroker() as broker,
        open_sender(broker) as sender,
        trio.open_nursery() as nursery,
    ):
        await sender.create_topic("T", 4)
        group = Polling(broker, nursery)
        for what, value in steps:
            if what == "send":
                await sender.send("T", *map(str, range(sent, sent + value)))
                sent += value
            elif what == "wait":
                await trio.sleep(value)
            elif what in ("take", "leave", "kill", "cut"):
                await getattr(group, what)(value)
        for number in range(MEMBERS):
            await group.leave(number)
        with trio.fail_after(600):
            while len(group.seen) < sent:
                await group.take(0)
        await group.leave(0)
    assert set(group.seen) == set(range(sent))
    alone = {value for what, value in steps if what == "take"} <= {0}
    if alone and not any(what in ("kill", "cut") for what, _value in steps):
        assert set(group.seen.values()) <= {1}, (
            "a single member that leaves in order sees each message once"
        )


@_life
@given(_steps)
def test_polled_messages_are_not_lost(steps: list[tuple[str, Any]]) -> None:
    live(poll_life, steps)
