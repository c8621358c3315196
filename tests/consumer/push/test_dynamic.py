"""What changes while a push consumer runs: subscriptions, suspension, queues of a
topic, thresholds, members' numbers.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import pytest
import trio

from rocketmq_sdk.broker_embedded.broker import EmbeddedBroker
from rocketmq_sdk.client.api.groups import update_group
from rocketmq_sdk.codes import RequestCode, ResponseCode
from rocketmq_sdk.consumer.push.consumer import PushConsumer
from rocketmq_sdk.errors import BrokerError, ClosedError, ConfigurationError
from rocketmq_sdk.model.queue import MessageQueue
from rocketmq_sdk.protocol.bodies.groups import SubscriptionGroupConfig
from rocketmq_sdk.protocol.command import Command
from rocketmq_sdk.testing import TestBroker
from rocketmq_sdk.testing.interception import intercept
from support.consuming import Collector, committed, open_sender
from support.waiting import until

if TYPE_CHECKING:
    from trio.testing import MockClock

    from rocketmq_sdk.model.received import ReceivedMessage
    from rocketmq_sdk.remoting.channel import Channel, Handler


def billing(
    broker: Any, listener: object, expression: str = "*", **options: object
) -> PushConsumer:
    return PushConsumer(
        "billing",
        namesrv=broker,
        subscriptions={"orders": expression},
        listener=listener,
        **options,
    )  # type: ignore[arg-type]  # any


async def test_a_topic_that_is_subscribed_later_is_consumed_and_one_that_is_given_up_is_not(
    autojump_clock: MockClock,
) -> None:
    listener = Collector()
    async with EmbeddedBroker() as broker, open_sender(broker) as sender:
        await sender.create_topic("orders", 1)
        await sender.create_topic("refunds", 1)
        async with billing(broker, listener) as consumer:
            await consumer.subscribe("refunds", "paid")
            subscription = broker.parts.members.consumers.subscription("billing", "refunds")
            assert subscription is not None
            assert subscription.sub_string == "paid"
            await sender.send("refunds", "a", queue=0, tags="paid")
            await sender.send("refunds", "not wanted", queue=0, tags="other")
            await until(lambda: listener.bodies == ["a"], 5)
            await consumer.unsubscribe("refunds")
            assert broker.parts.members.consumers.subscription("billing", "refunds") is None
            await until(
                lambda: (
                    {queue.topic for queue in consumer.statistics().queues}
                    == {"orders", "%RETRY%billing"}
                ),
                5,
            )
            assert committed(broker, "billing", "refunds", 1)[0] >= 1
            await sender.send("refunds", "c", queue=0, tags="paid")
            await sender.send("orders", "d", queue=0)
            await until(lambda: listener.bodies == ["a", "d"])
            await trio.sleep(60)
            assert listener.bodies == ["a", "d"]
            await consumer.unsubscribe("never heard of")


async def test_another_expression_holds_at_once_also_for_a_pull_that_is_held(
    autojump_clock: MockClock,
) -> None:
    listener = Collector()
    async with EmbeddedBroker() as broker, open_sender(broker) as sender:
        await sender.create_topic("orders", 1)
        async with billing(broker, listener, "red") as consumer:
            await trio.sleep(1)
            await consumer.subscribe("orders", "blue")
            asked = trio.current_time()
            await sender.send("orders", "blue one", queue=0, tags="blue")
            await sender.send("orders", "red one", queue=0, tags="red")
            await until(lambda: listener.messages, 5)
            assert trio.current_time() - asked < 1
            await trio.sleep(60)
    assert listener.bodies == ["blue one"]


@pytest.mark.parametrize(
    "options",
    [{}, {"client_rebalance": False}, {"orderly": True}],
    ids=["shared", "assigned", "orderly"],
)
async def test_a_topic_may_be_given_up_while_its_queues_are_taken(
    autojump_clock: MockClock, options: dict[str, Any]
) -> None:
    collector = Collector()
    async with EmbeddedBroker() as broker, open_sender(broker) as sender:
        await sender.create_topic("orders", 1)
        await sender.create_topic("refunds", 2)
        async with PushConsumer(
            "billing", namesrv=broker, subscriptions={"orders": "*"}, listener=collector, **options
        ) as consumer:
            await until(lambda: consumer.statistics().queues)

            def slow(channel: Channel, command: Command, serve: Handler) -> Any:
                async def later() -> Any:
                    await trio.sleep(2)
                    return serve(channel, command)

                return later

            intercept(broker, RequestCode.QUERY_CONSUMER_OFFSET, by=slow)
            await consumer.subscribe("refunds")
            await trio.sleep(1)
            await consumer.unsubscribe("refunds")
            await trio.sleep(10)
            assert not [queue for queue in consumer.statistics().queues if queue.topic == "refunds"]
            assert (
                broker.parts.members.locks.owner("billing", MessageQueue("refunds", "broker-a", 0))
                is None
            )
            await sender.send("orders", "x", queue=0)
            await until(lambda: collector.bodies == ["x"])


async def test_what_cannot_be_subscribed_changes_nothing(autojump_clock: MockClock) -> None:
    async with (
        EmbeddedBroker(enable_property_filter=False) as broker,
        open_sender(broker) as sender,
    ):
        await sender.create_topic("orders", 1)
        await sender.create_topic("refunds", 1)
        consumer = billing(broker, Collector())
        with pytest.raises(ClosedError):
            await consumer.subscribe("refunds", "*")
        async with consumer:
            with pytest.raises(ConfigurationError):
                await consumer.subscribe("no topic name!", "*")
            with pytest.raises(BrokerError):
                await consumer.subscribe("refunds", ("a > 1", "SQL92"))
            assert "refunds" not in {queue.topic for queue in consumer.statistics().queues}
            assert broker.parts.members.consumers.subscription("billing", "refunds") is None
        with pytest.raises(ClosedError):
            consumer.suspend()


@pytest.mark.parametrize("orderly", [False, True])
async def test_nothing_is_pulled_while_suspended_and_all_of_it_later_also_after_hours(
    autojump_clock: MockClock, orderly: bool
) -> None:
    listener = Collector()
    async with EmbeddedBroker() as broker, open_sender(broker) as sender:
        await sender.create_topic("orders", 2)
        async with billing(broker, listener, orderly=orderly) as consumer:
            consumer.suspend()
            assert not consumer.health()
            assert "suspended" in str(consumer.health())
            await trio.sleep(20)  # a pull that was under way is answered
            await sender.send("orders", *map(str, range(10)), queues=2)
            await trio.sleep(2 * 3600)
            assert not listener.messages
            consumer.resume()
            await until(lambda: len(listener.messages) == 10, 5)
            assert consumer.health()


async def test_queues_that_are_added_to_a_topic_are_picked_up(autojump_clock: MockClock) -> None:
    listener = Collector()
    async with EmbeddedBroker() as broker, open_sender(broker) as sender:
        await sender.create_topic("orders", 2)
        async with billing(broker, listener) as consumer:
            await sender.create_topic("orders", 6)
            await sender.send("orders", "new", queue=5)
            await until(lambda: listener.bodies == ["new"], 40)
            assert (
                len([queue for queue in consumer.statistics().queues if queue.topic == "orders"])
                == 6
            )


async def test_the_thresholds_of_a_topic_hold_from_the_first_pulls_on(
    autojump_clock: MockClock,
) -> None:
    async with EmbeddedBroker() as broker:
        await hold_the_thresholds(broker, broker)


async def test_the_thresholds_of_a_topic_hold_while_its_queues_are_taken_one_by_one(
    autojump_clock: MockClock,
) -> None:
    # Each queue is pulled by runs while the offsets of the others are asked for.
    async with TestBroker() as outside:
        await hold_the_thresholds(outside.embedded, outside.party("consumer"))


async def hold_the_thresholds(broker: EmbeddedBroker, namesrv: Any) -> None:
    most = 0

    async def listener(_message: ReceivedMessage) -> None:
        nonlocal most
        most = max(most, consumer.statistics().cached_messages)
        await trio.sleep(0.05)

    async with open_sender(broker) as sender:
        await sender.create_topic("orders", 4)
        await sender.send("orders", *map(str, range(2000)), queues=4)
        consumer = billing(
            namesrv, listener, pull_threshold_for_topic=100, pull_batch_size=10, concurrency=4
        )
        async with consumer:
            await until(lambda: consumer.statistics().consumed > 200)
    # Five queues (one of retries) share 100 messages, and each may bring one batch
    # more.
    assert 20 < most <= 100 + 4 * 10 + 4


async def test_the_number_of_attempts_is_the_groups_unless_the_consumer_has_its_own(
    autojump_clock: MockClock,
) -> None:
    attempts: list[int] = []

    async def listener(message: ReceivedMessage) -> None:
        attempts.append(message.reconsume_times)
        raise ValueError("as the test wants it")

    async with EmbeddedBroker() as broker, open_sender(broker) as sender:
        await sender.create_topic("orders", 1)
        await update_group(
            sender.client,
            await sender._broker(),
            SubscriptionGroupConfig("billing", retry_max_times=2),
        )
        async with billing(broker, listener):
            await sender.send("orders", "a", queue=0)
            await trio.sleep(600)  # the next one would come a minute after the last
        assert attempts == [0, 1, 2]
        attempts.clear()
        async with billing(broker, listener, max_reconsume_times=0):
            await sender.send("orders", "b", queue=0)
            await trio.sleep(600)
    assert attempts == [0]


async def test_a_change_of_the_groups_attempts_is_noticed(autojump_clock: MockClock) -> None:
    attempts: list[int] = []

    async def listener(message: ReceivedMessage) -> None:
        attempts.append(message.reconsume_times)
        raise ValueError("as the test wants it")

    async with EmbeddedBroker() as broker, open_sender(broker) as sender:
        await sender.create_topic("orders", 1)
        async with billing(broker, listener):
            await update_group(
                sender.client,
                await sender._broker(),
                SubscriptionGroupConfig("billing", retry_max_times=0),
            )
            await trio.sleep(130)
            await sender.send("orders", "a", queue=0)
            await trio.sleep(600)
    assert attempts == [0]


@pytest.mark.parametrize("orderly", [False, True])
async def test_a_broker_that_asks_to_go_away_is_connected_anew_and_nothing_is_lost_or_doubled(
    autojump_clock: MockClock, orderly: bool
) -> None:
    listener = Collector()
    async with EmbeddedBroker() as broker, open_sender(broker) as sender:
        await sender.create_topic("orders", 2)
        away: set[Channel] = set()

        def go_away(channel: Channel, command: Command, serve: Handler) -> Any:
            if len(away) < 3 and channel not in away:
                away.add(channel)
                return Command.response(ResponseCode.GO_AWAY, remark="please go")
            return serve(channel, command)

        intercept(broker, RequestCode.PULL_MESSAGE, by=go_away)
        async with billing(broker, listener, orderly=orderly) as consumer:
            for start in range(0, 60, 20):
                await sender.send("orders", *map(str, range(start, start + 20)), queues=2)
                await trio.sleep(40)
            await until(lambda: len(listener.messages) == 60)
            assert consumer.health()
        assert len(away) >= 1
        assert sum(committed(broker, "billing", "orders", 2)) == 60
    assert sorted(map(int, listener.bodies)) == list(range(60))


@pytest.mark.parametrize("orderly", [False, True])
async def test_the_number_of_calls_at_a_time_changes_while_it_runs(
    autojump_clock: MockClock, orderly: bool
) -> None:
    running, most, done = 0, 0, 0

    async def listener(_message: ReceivedMessage) -> None:
        nonlocal running, most, done
        running += 1
        most = max(most, running)
        await trio.sleep(1)
        running -= 1
        done += 1

    async with EmbeddedBroker() as broker, open_sender(broker) as sender:
        await sender.create_topic("orders", 32)
        async with billing(broker, listener, orderly=orderly, concurrency=4) as consumer:
            await sender.send("orders", *map(str, range(64)), queues=32)
            await until(lambda: running == 4, 5)
            consumer.set_concurrency(16)
            await until(lambda: running == 16, 5)
            consumer.set_concurrency(1)
            assert running == 16  # they run to their end
            await until(lambda: running == 1, 5)
            most = 0
            await trio.sleep(5)
            assert most == 1
            consumer.set_concurrency(20)
            await until(lambda: done == 64, 10)
            consumer.set_concurrency(2)  # all are idle
            consumer.set_concurrency(3)
            most = 0
            await sender.send("orders", *map(str, range(64)), queues=32)
            await until(lambda: done == 128, 60)
            assert most == 3
            with pytest.raises(ConfigurationError, match="concurrency"):
                consumer.set_concurrency(0)
        with pytest.raises(ClosedError):
            consumer.set_concurrency(2)


async def test_a_worker_that_is_retired_before_it_begins_leaves_its_work_to_another(
    autojump_clock: MockClock,
) -> None:
    begun: list[str] = []

    async def listener(message: ReceivedMessage) -> None:
        begun.append(message.body.decode())
        await trio.sleep(60)

    async with EmbeddedBroker() as broker, open_sender(broker) as sender:
        await sender.create_topic("orders", 1)
        async with billing(broker, listener, concurrency=2) as consumer:
            assert consumer._member is not None
            service = consumer._member._service
            add = service.add

            def add_and_change(process_queue: Any) -> None:
                add(process_queue)  # a worker is on its way
                consumer.set_concurrency(1)
                consumer.set_concurrency(2)

            for body in "ab":
                await sender.send("orders", body, queue=0)
                await until(lambda: begun[-1:] == [body], 5)  # noqa: B023 - used at once
                service.add = add_and_change  # type: ignore[method-assign]


async def test_changing_the_number_of_calls_again_and_again_forgets_no_message(
    autojump_clock: MockClock, collector: Collector
) -> None:
    chance = random.Random(5)

    async def listener(message: ReceivedMessage) -> None:
        await trio.sleep(chance.choice([0, 0, 0.01, 0.1]))
        await collector(message)

    async with EmbeddedBroker() as broker, open_sender(broker) as sender:
        await sender.create_topic("orders", 8)
        async with billing(broker, listener, concurrency=3) as consumer:
            for start in range(0, 600, 20):
                await sender.send("orders", *map(str, range(start, start + 20)), queues=8)
                consumer.set_concurrency(chance.randint(1, 9))
                await trio.sleep(chance.choice([0, 0.05, 0.3]))
            await until(lambda: len(collector.bodies) == 600, 60)
