"""How a push consumer starts and ends: gracefully, in a hurry, by cancellation, by a
failure of its own.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import pytest
import trio

from rocketmq_sdk.broker_embedded.broker import EmbeddedBroker
from rocketmq_sdk.codes import RequestCode, ResponseCode
from rocketmq_sdk.consumer.group.rebalance import Rebalancer
from rocketmq_sdk.consumer.group.start_offset import StartOffsets
from rocketmq_sdk.consumer.push.consumer import PushConsumer
from rocketmq_sdk.errors import BrokerError, RocketMQError
from rocketmq_sdk.protocol.command import Command
from rocketmq_sdk.protocol.headers.pull import PullMessageResponseHeader
from rocketmq_sdk.testing.interception import intercept, unanswered
from support.consuming import Collector, Switch, committed, open_sender
from support.waiting import until

if TYPE_CHECKING:
    from trio.testing import MockClock

    from rocketmq_sdk.model.queue import MessageQueue
    from rocketmq_sdk.model.received import ReceivedMessage
    from rocketmq_sdk.remoting.channel import Channel, Handler


class Slow(Collector):
    """A listener that takes its time and tells how it ended."""

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self.seconds = seconds
        self.done = 0
        self.cancelled = 0

    async def __call__(self, message: ReceivedMessage) -> None:
        await super().__call__(message)
        try:
            await trio.sleep(self.seconds)
        except trio.Cancelled:
            self.cancelled += 1
            raise
        self.done += 1


def hold(broker: EmbeddedBroker, *codes: int) -> None:
    """Let the broker never answer some requests."""
    intercept(broker, *codes, by=unanswered)


async def test_leaving_waits_for_running_listeners_and_commits_what_they_did(
    autojump_clock: MockClock,
) -> None:
    listener = Slow(3)
    async with EmbeddedBroker() as broker, open_sender(broker) as sender:
        await sender.create_topic("orders", 1)
        await sender.send("orders", *map(str, range(50)), queue=0)
        async with PushConsumer(
            "billing",
            namesrv=broker,
            subscriptions={"orders": "*"},
            listener=listener,
            concurrency=5,
        ):
            await until(lambda: len(listener.bodies) == 5)
            began = trio.current_time()
        assert 2 < trio.current_time() - began < 4
        assert (listener.done, listener.cancelled, len(listener.bodies)) == (5, 0, 5)
        assert committed(broker, "billing", "orders", 1) == [5]


async def test_leaving_is_bounded_when_listeners_do_not_end(autojump_clock: MockClock) -> None:
    listener = Slow(1000)
    async with EmbeddedBroker() as broker, open_sender(broker) as sender:
        await sender.create_topic("orders", 1)
        await sender.send("orders", "a", "b", queue=0)
        async with PushConsumer(
            "billing",
            namesrv=broker,
            subscriptions={"orders": "*"},
            listener=listener,
            revoke_grace=100,
        ):
            await until(lambda: len(listener.bodies) == 2)
            began = trio.current_time()
        assert 7 < trio.current_time() - began <= 10
        assert (listener.done, listener.cancelled) == (0, 2)
        assert committed(broker, "billing", "orders", 1) == [0]


@pytest.mark.parametrize("how", ["exception", "cancellation"])
async def test_leaving_in_a_hurry_cancels_listeners_and_still_commits(
    autojump_clock: MockClock, how: str
) -> None:
    collector = Collector()

    async def listener(message: ReceivedMessage) -> None:
        await collector(message)
        if message.body == b"c":
            await trio.sleep_forever()

    async with EmbeddedBroker() as broker, open_sender(broker) as sender:
        await sender.create_topic("orders", 1)
        expected = (
            pytest.raises(KeyError, match="of the user") if how == "exception" else nullcontext()
        )
        with trio.CancelScope() as scope, expected:
            async with PushConsumer(
                "billing", namesrv=broker, subscriptions={"orders": "*"}, listener=listener
            ):
                await sender.send("orders", "a", "b", "c", queue=0)
                await until(lambda: len(collector.bodies) == 3)
                began = trio.current_time()
                if how == "exception":
                    raise KeyError("of the user")
                scope.cancel()
                await trio.sleep_forever()
        assert scope.cancelled_caught == (how == "cancellation")
        assert trio.current_time() - began <= 2
        assert committed(broker, "billing", "orders", 1) == [2]
        second = Collector()
        async with PushConsumer(
            "billing", namesrv=broker, subscriptions={"orders": "*"}, listener=second
        ) as consumer:
            assert (
                len([queue for queue in consumer.statistics().queues if queue.topic == "orders"])
                == 1
            )
            await until(lambda: second.bodies == ["c"])


@pytest.mark.parametrize(("cancelled", "limit"), [(True, 2.1), (False, 10.1)])
async def test_leaving_is_bounded_when_the_broker_does_not_answer(
    autojump_clock: MockClock, cancelled: bool, limit: float
) -> None:
    collector = Collector()
    async with EmbeddedBroker() as broker, open_sender(broker) as sender:
        await sender.create_topic("orders", 4)
        with trio.CancelScope() as scope:
            async with PushConsumer(
                "billing", namesrv=broker, subscriptions={"orders": "*"}, listener=collector
            ):
                await sender.send("orders", "a", "b")
                await until(lambda: len(collector.bodies) == 2)
                hold(broker, RequestCode.UPDATE_CONSUMER_OFFSET, RequestCode.UNREGISTER_CLIENT)
                began = trio.current_time()
                if cancelled:
                    scope.cancel()
        assert trio.current_time() - began <= limit


@pytest.mark.parametrize("cancelled", [True, False])
async def test_leaving_is_bounded_when_the_connection_is_gone(
    autojump_clock: MockClock, cancelled: bool, collector: Collector
) -> None:
    async with EmbeddedBroker() as broker, open_sender(broker) as sender:
        await sender.create_topic("orders", 4)
        switch = Switch(broker)
        with trio.CancelScope() as scope:
            async with PushConsumer(
                "billing", namesrv=switch, subscriptions={"orders": "*"}, listener=collector
            ):
                await sender.send("orders", "a")
                await until(lambda: len(collector.bodies) == 1)
                switch.cut()
                began = trio.current_time()
                if cancelled:
                    scope.cancel()
        assert trio.current_time() - began <= (2.1 if cancelled else 10.1)


async def test_a_failure_in_the_background_cancels_the_block_and_is_one_error(
    autojump_clock: MockClock, collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(_self: Rebalancer) -> None:
        raise TypeError("a bug")

    async with EmbeddedBroker() as broker, open_sender(broker) as sender:
        await sender.create_topic("orders")
        monkeypatch.setattr(Rebalancer, "commit_all", broken)
        began = trio.current_time()
        with pytest.raises(RocketMQError, match="a bug") as caught:
            async with PushConsumer(
                "billing", namesrv=broker, subscriptions={"orders": "*"}, listener=collector
            ):
                await trio.sleep_forever()
        assert type(caught.value) is RocketMQError
        assert isinstance(caught.value.__cause__, TypeError)
        assert trio.current_time() - began < 8


async def test_a_subscription_that_the_broker_refuses_ends_the_start(
    autojump_clock: MockClock, collector: Collector
) -> None:
    async with (
        EmbeddedBroker(enable_property_filter=False) as broker,
        open_sender(broker) as sender,
    ):
        await sender.create_topic("orders")
        with pytest.raises(
            BrokerError, match="does not support consumer to filter message by SQL92"
        ):
            async with PushConsumer(
                "billing",
                namesrv=broker,
                subscriptions={"orders": ("a > 5", "SQL92")},
                listener=collector,
            ):
                raise AssertionError("the block was entered")


async def test_a_start_may_be_cancelled(autojump_clock: MockClock, collector: Collector) -> None:
    async with EmbeddedBroker() as broker, open_sender(broker) as sender:
        await sender.create_topic("orders")
        hold(broker, RequestCode.HEART_BEAT)
        with trio.move_on_after(1) as scope:
            async with PushConsumer(
                "billing", namesrv=broker, subscriptions={"orders": "*"}, listener=collector
            ):
                pass
        assert scope.cancelled_caught
        assert trio.current_time() < 4


async def test_a_start_without_any_name_server_goes_on_trying(
    autojump_clock: MockClock, collector: Collector
) -> None:
    switch = Switch(None)
    with trio.fail_after(120):
        async with PushConsumer(
            "billing", namesrv=switch, subscriptions={"orders": "*"}, listener=collector
        ) as consumer:
            assert consumer.statistics().queues == ()
            async with EmbeddedBroker() as broker, open_sender(broker) as sender:
                switch.connect(broker)
                await sender.create_topic("orders")
                await sender.send("orders", "a")
                await until(lambda: collector.bodies == ["a"])
                switch.cut()


@pytest.mark.real_time
@pytest.mark.parametrize("encoding", ["JSON", "ROCKETMQ"])
async def test_over_tcp(collector: Collector, encoding: str) -> None:
    async with EmbeddedBroker(listen=0, namesrv_listen=0) as broker, open_sender(broker) as sender:
        assert broker.namesrv_address is not None
        await sender.create_topic("orders")
        await sender.send("orders", *map(str, range(100)), tags="a")
        async with PushConsumer(
            "billing",
            namesrv=broker.namesrv_address,
            subscriptions={"orders": "a || b"},
            listener=collector,
            header_encoding=encoding,
        ):
            await until(lambda: len(collector.bodies) == 100, 20)
        assert sum(committed(broker, "billing", "orders")) == 100


async def test_leaving_in_a_hurry_shortens_the_grace_of_queues_that_are_going_already(
    autojump_clock: MockClock,
) -> None:
    started, quick = 0, trio.Event()

    async def listener(message: ReceivedMessage) -> None:
        nonlocal started
        started += 1
        if message.body == b"quick":
            await quick.wait()
        else:
            await trio.sleep_forever()

    async with (
        EmbeddedBroker() as broker,
        open_sender(broker) as sender,
        trio.open_nursery() as nursery,
    ):
        await sender.create_topic("orders", 2)
        for queue in (0, 1):
            await sender.send("orders", "quick", "slow", queue=queue)
        with trio.CancelScope() as scope:
            async with PushConsumer(
                "billing",
                namesrv=broker,
                subscriptions={"orders": "*"},
                listener=listener,
                revoke_grace=100,
            ) as one:
                await until(lambda: started == 4)

                async def other() -> None:
                    # It commits nothing: its listener never ends, and it persists
                    # offsets after the test only.
                    async with PushConsumer(
                        "billing",
                        namesrv=broker,
                        subscriptions={"orders": "*"},
                        listener=Slow(1e6),
                        persist_consumer_offset_interval=1000,
                    ):
                        await trio.sleep_forever()

                nursery.start_soon(other)
                await until(
                    lambda: (
                        len([queue for queue in one.statistics().queues if queue.topic == "orders"])
                        == 1
                    )
                )
                quick.set()
                await trio.sleep(0.1)
                began = trio.current_time()
                scope.cancel()
        assert trio.current_time() - began < 1
        # The second queue had gone to the other member, so its offset is that member's.
        assert committed(broker, "billing", "orders", 2) == [1, -1]
        nursery.cancel_scope.cancel()


async def test_a_queue_that_comes_just_when_the_block_ends_is_given_up_too(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = trio.Event()

    async def first_offset(_self: StartOffsets, _queue: MessageQueue) -> int:
        await gate.wait()
        return 7

    monkeypatch.setattr(StartOffsets, "first_offset", first_offset)
    # Which of two tasks that are ready goes first is random in trio.
    for attempt in range(12):
        gate = trio.Event()
        async with EmbeddedBroker() as broker, open_sender(broker) as sender:
            await sender.create_topic("orders", 1)
            async with PushConsumer(
                "billing", namesrv=broker, subscriptions={"orders": "*"}, listener=Collector()
            ) as consumer:
                gate.set()
            assert consumer.statistics().queues == (), attempt


async def test_leaving_waits_for_listeners_of_a_queue_whose_offset_was_corrected(
    autojump_clock: MockClock,
) -> None:
    listener = Slow(5)
    async with EmbeddedBroker() as broker, open_sender(broker) as sender:
        await sender.create_topic("orders", 1)
        pulls = 0

        async def moved() -> Command:
            await until(lambda: len(listener.bodies) == 2)
            header = PullMessageResponseHeader(
                suggest_which_broker_id=0, next_begin_offset=2, min_offset=0, max_offset=2
            )
            return Command.response(ResponseCode.PULL_OFFSET_MOVED, header)

        def move_the_second(channel: Channel, request: Command, pull: Handler) -> Any:
            nonlocal pulls
            pulls += request.ext_fields["topic"] == "orders"
            return (
                moved
                if pulls == 2 and request.ext_fields["topic"] == "orders"
                else pull(channel, request)
            )

        intercept(broker, RequestCode.PULL_MESSAGE, by=move_the_second)
        await sender.send("orders", "a", "b", queue=0)
        async with PushConsumer(
            "billing", namesrv=broker, subscriptions={"orders": "*"}, listener=listener
        ) as consumer:
            await until(lambda: pulls == 3, 2)
            assert consumer.statistics().in_flight == 2
        assert (listener.done, listener.cancelled) == (2, 0)
        assert committed(broker, "billing", "orders", 1) == [2]


async def test_a_listener_that_shields_itself_is_waited_for_and_does_not_count(
    autojump_clock: MockClock,
) -> None:
    ended: list[float] = []

    async def listener(_message: ReceivedMessage) -> None:
        with trio.CancelScope(shield=True):
            await trio.sleep(15)
        ended.append(trio.current_time())

    async with EmbeddedBroker() as broker, open_sender(broker) as sender:
        await sender.create_topic("orders", 1)
        await sender.send("orders", "a", queue=0)
        async with PushConsumer(
            "billing", namesrv=broker, subscriptions={"orders": "*"}, listener=listener
        ) as consumer:
            await until(lambda: consumer.statistics().in_flight == 1)
        assert ended == [pytest.approx(trio.current_time(), abs=1)]
        assert committed(broker, "billing", "orders", 1) == [0]
