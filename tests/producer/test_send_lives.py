"""Producers of all kinds among random misfortunes: each message ends exactly once, in
time, and nothing stays behind.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

import trio
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from trio.testing import MockClock

from rocketmq_sdk.codes import RequestCode
from rocketmq_sdk.errors import RocketMQError, TooManyRequestsError
from rocketmq_sdk.model.message import Message
from rocketmq_sdk.producer.producer import Producer
from support.peers import Cluster, open_cluster

if TYPE_CHECKING:
    from collections.abc import Callable

    from rocketmq_sdk.model.results import SendResult

TIMEOUT = 3.0
OPERATIONS = st.lists(
    st.one_of(
        st.tuples(st.just("send"), st.integers(1, 400)),
        st.tuples(st.just("send keyed"), st.integers(1, 400)),
        st.tuples(st.just("cancel"), st.sampled_from([0.0, 0.004, 0.3, 2.0])),
        st.tuples(st.just("submit"), st.integers(1, 12)),
        st.tuples(st.just("batch"), st.integers(1, 3)),
        st.tuples(st.just("bad selector"), st.just(0)),
        st.tuples(st.sampled_from(["hang", "hole", "kill", "return"]), st.integers(0, 1)),
        st.tuples(st.just("block"), st.sampled_from([0.2, 4.0])),
        st.tuples(st.just("wait"), st.sampled_from([0.01, 0.7, 6.0])),
    ),
    max_size=14,
)


class Trouble:
    """Hooks of a producer that sometimes refuse, and always raise when all is done."""

    def __init__(self, every: int) -> None:
        self.every = every
        self.number = 0
        self.after = 0

    def check_forbidden(self, _context: Any) -> None:
        self.number += 1
        if self.every and self.number % self.every == 0:
            raise PermissionError("not this one")

    def before_send(self, _context: Any) -> None:
        """Nothing."""

    def after_send(self, _context: Any) -> None:
        self.after += 1
        raise ValueError("a hook that fails")


class Life:
    """One producer, and what became of its messages in the eyes of its callers."""

    def __init__(
        self, cluster: Cluster, producer: Producer, nursery: trio.Nursery, clock: MockClock
    ) -> None:
        self.cluster = cluster
        self.producer = producer
        self.nursery = nursery
        self.clock = clock
        self.begun = 0
        self.ended = 0
        self.late = 0.0
        self.blocked = 0.0

    async def follow(self, act: Callable[[], Any], cancel_after: float = float("inf")) -> None:
        """Await one message; it must have one outcome, in time."""
        self.begun += 1
        began, blocked = trio.current_time(), self.blocked
        with trio.move_on_after(cancel_after), suppress(RocketMQError, PermissionError, KeyError):
            result: SendResult = await act()
            assert result.queue.topic == "t"
        self.ended += 1
        self.late = max(self.late, trio.current_time() - began - (self.blocked - blocked) - TIMEOUT)

    def start(self, act: Callable[[], Any], cancel_after: float = float("inf")) -> None:
        self.nursery.start_soon(self.follow, act, cancel_after)

    async def do(self, what: str, value: Any) -> None:
        producer, message = self.producer, Message("t", b"x" * 50)
        if what == "send":
            self.start(lambda: producer.send(Message("t", b"x" * value)))
        elif what == "send keyed":
            self.start(lambda: producer.send(Message("t", b"x" * value), key="k"))
        elif what == "cancel":
            self.start(lambda: producer.send(message), value)
        elif what == "batch":
            self.start(lambda: producer.send_batch([message] * value))
        elif what == "bad selector":
            self.start(lambda: producer.send(message, selector=lambda *_: {}["no"]))
        elif what == "submit":
            for _ in range(value):
                with suppress(TooManyRequestsError, PermissionError):
                    handle = producer.submit(message)
                    self.start(handle.wait)
        elif what == "block":
            await trio.lowlevel.checkpoint()
            self.blocked += value
            self.clock.jump(value)
        elif what == "wait":
            await trio.sleep(value)
        else:
            await self.trouble(what, value)

    async def trouble(self, what: str, number: int) -> None:
        broker = self.cluster.brokers[number]
        serves = broker.network.serves(broker.address)
        codes = (RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE)
        if what == "hang":
            for code in codes:
                broker.dispatcher.replace(code, lambda *_: None)
        elif what == "return":
            self.cluster.holes.discard(broker.address)
            for code in codes:
                broker.dispatcher.replace(code, broker._send)
            if not serves:
                await broker.start()
        elif serves:
            await broker.stop()
            if what == "hole":
                self.cluster.holes.add(broker.address)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    operations=OPERATIONS,
    auto_batch=st.booleans(),
    persistent=st.booleans(),
    profile=st.sampled_from(["unanswered", None, "today"]),
    room=st.sampled_from([(32768, 1 << 28), (3, 1 << 28), (100, 500)]),
    refuse=st.sampled_from([0, 3]),
)
def test_every_life_ends_well(
    operations: list[tuple[str, Any]],
    auto_batch: bool,
    persistent: bool,
    profile: Any,
    room: tuple[int, int],
    refuse: int,
) -> None:
    clock = MockClock(autojump_threshold=0)

    async def main() -> None:
        hooks = Trouble(refuse)
        async with (
            open_cluster(brokers=2) as cluster,
            cluster.client() as client,
            Producer(
                "pg",
                client=client,
                auto_batch=auto_batch,
                retry_until_deadline=persistent,
                fault_profile=profile,
                max_in_flight=room[0],
                max_in_flight_bytes=room[1],
                send_hooks=[hooks],
                forbidden_hooks=[hooks],
            ) as producer,
        ):
            async with trio.open_nursery() as nursery:
                life = Life(cluster, producer, nursery, clock)
                for what, value in operations:
                    await life.do(what, value)
            assert life.begun == life.ended
            assert life.late <= 0.5
            with suppress(RocketMQError, PermissionError, KeyError):
                await producer.flush()
            assert producer.in_flight == 0
            assert producer._under_way.bytes == 0
            assert not producer._under_way.handles
            assert not producer._hooks._contexts

    trio.run(main, clock=clock)
