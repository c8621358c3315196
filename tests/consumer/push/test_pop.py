"""A push consumer whose broker decides: queues assigned, popped or pulled, failures by
the group's policy, dead letters, and back to pulling.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import trio

from rocketmq_sdk.broker_embedded.broker import EmbeddedBroker
from rocketmq_sdk.client.api.groups import update_group
from rocketmq_sdk.client.api.members import set_message_request_mode
from rocketmq_sdk.codes import RequestCode
from rocketmq_sdk.consumer.assign.consistent_hash import ConsistentHash
from rocketmq_sdk.consumer.outcome import ConsumeLater
from rocketmq_sdk.consumer.pop.receipt import PoppedMessage
from rocketmq_sdk.consumer.push.consumer import PushConsumer
from rocketmq_sdk.consumer.retry_delays import delay_ms
from rocketmq_sdk.model.enums import ConsumeFrom
from rocketmq_sdk.model.queue import MessageQueue
from rocketmq_sdk.names import dead_letter_topic
from rocketmq_sdk.protocol.bodies.connections import ConsumerRunningInfo
from rocketmq_sdk.protocol.bodies.groups import (
    CustomizedRetryPolicy,
    ExponentialRetryPolicy,
    GroupRetryPolicy,
    SubscriptionGroupConfig,
)
from rocketmq_sdk.protocol.bodies.members import MessageRequestMode
from rocketmq_sdk.protocol.command import Command
from rocketmq_sdk.protocol.headers.connections import GetConsumerRunningInfoRequestHeader
from rocketmq_sdk.protocol.headers.offsets import ResetOffsetRequestHeader
from rocketmq_sdk.testing.interception import intercept, refused
from support.consuming import Collector, Sender, open_sender
from support.waiting import until

if TYPE_CHECKING:
    from trio.testing import MockClock

    from rocketmq_sdk.model.received import ReceivedMessage


def billing(broker: EmbeddedBroker, listener: object, **options: object) -> PushConsumer:
    return PushConsumer(
        "billing",
        namesrv=broker,
        subscriptions={"orders": "*"},
        listener=listener,  # type: ignore[arg-type]  # any callable
        client_rebalance=False,
        consume_from=ConsumeFrom.FIRST_OFFSET,
        **options,  # type: ignore[arg-type]  # settings of the tests
    )


async def mode(sender: Sender, wanted: MessageRequestMode) -> None:
    await set_message_request_mode(
        sender.client, await sender._broker(), "orders", "billing", wanted
    )


async def prepare(
    sender: Sender, policy: GroupRetryPolicy | None = None, retries: int = 16
) -> None:
    await sender.create_topic("orders", 4)
    config = SubscriptionGroupConfig(
        "billing", retry_max_times=retries, group_retry_policy=policy or GroupRetryPolicy()
    )
    await update_group(sender.client, await sender._broker(), config)


async def test_by_default_the_broker_assigns_queues_to_pull(autojump_clock: MockClock) -> None:
    first, second = Collector(), Collector()
    async with EmbeddedBroker() as broker, open_sender(broker) as sender:
        await prepare(sender)
        async with billing(broker, first) as one, billing(broker, second) as two:
            await until(
                lambda: all(
                    len([q for q in each.statistics().queues if q.topic == "orders"]) == 2
                    for each in (one, two)
                ),
                30,
            )
            await sender.send("orders", *map(str, range(40)))
            await until(lambda: len(first.messages) + len(second.messages) == 40)


async def test_popped_messages_are_consumed_once_by_all_members(autojump_clock: MockClock) -> None:
    first, second = Collector(), Collector()
    async with EmbeddedBroker() as broker, open_sender(broker) as sender:
        await prepare(sender)
        await mode(sender, MessageRequestMode.POP)
        async with billing(broker, first) as one, billing(broker, second):
            await trio.sleep(2)
            assert not [queue for queue in one.statistics().queues if queue.topic == "orders"]
            for start in range(0, 200, 10):
                await sender.send("orders", *map(str, range(start, start + 10)))
                await trio.sleep(0.2)
            await until(lambda: len(first.messages) + len(second.messages) >= 200)
            await trio.sleep(200)
        assert sorted(map(int, first.bodies + second.bodies)) == list(range(200))


async def test_failures_wait_as_the_groups_policy_says_and_end_as_dead_letters(
    autojump_clock: MockClock,
) -> None:
    seen: list[tuple[float, int]] = []

    async def listener(message: ReceivedMessage) -> None:
        seen.append((trio.current_time(), message.reconsume_times))
        raise ValueError("as the test wants it")

    dead = Collector()
    policy = GroupRetryPolicy(
        "EXPONENTIAL", exponential_retry_policy=ExponentialRetryPolicy(20_000, 60_000, 2)
    )
    async with EmbeddedBroker() as broker, open_sender(broker) as sender:
        await prepare(sender, policy, retries=3)
        await mode(sender, MessageRequestMode.POP)
        async with billing(broker, listener):
            await trio.sleep(2)
            await sender.send("orders", "poison", queue=0)
            await until(lambda: len(seen) == 4, 600)
            await trio.sleep(600)
        async with PushConsumer(
            "undertaker",
            namesrv=broker,
            subscriptions={dead_letter_topic("billing"): "*"},
            listener=dead,
        ):
            await until(lambda: dead.messages)
    assert [times for _at, times in seen] == [0, 1, 2, 3]
    waits = [seen[index + 1][0] - seen[index][0] for index in range(3)]
    for waited, expected in zip(waits, (20, 40, 60), strict=True):
        assert expected <= waited < expected + 10
    assert dead.bodies == ["poison"]


async def test_a_listener_that_outlasts_the_invisible_time_is_cancelled_then(
    autojump_clock: MockClock,
) -> None:
    began: list[float] = []

    async def listener(_message: ReceivedMessage) -> None:
        began.append(trio.current_time())
        if len(began) == 1:
            await trio.sleep(3600)

    async with EmbeddedBroker() as broker, open_sender(broker) as sender:
        await prepare(sender)
        await mode(sender, MessageRequestMode.POP)
        async with billing(broker, listener, pop_invisible_time=10) as consumer:
            await trio.sleep(2)
            await sender.send("orders", "slow", queue=0)
            await until(lambda: len(began) == 2, 120)
            assert consumer.statistics().timed_out == 1
    assert began[1] - began[0] >= 10


async def test_what_waited_beyond_its_invisible_time_is_left_to_others(
    autojump_clock: MockClock,
) -> None:
    good: list[bool] = []

    async def listener(message: ReceivedMessage) -> None:
        assert isinstance(message, PoppedMessage)
        good.append(message.receipt.is_good)
        await trio.sleep(9)

    async with EmbeddedBroker() as broker, open_sender(broker) as sender:
        await prepare(sender)
        await mode(sender, MessageRequestMode.POP)
        async with billing(broker, listener, pop_invisible_time=20, concurrency=1) as consumer:
            await trio.sleep(2)
            await sender.send("orders", *map(str, range(10)), queue=0)
            await trio.sleep(200)
            assert consumer.health().consuming
    assert len(good) > 10
    assert all(good)


async def test_a_failure_that_cannot_be_told_while_its_place_goes_is_no_acknowledgement(
    autojump_clock: MockClock,
) -> None:
    seen: list[bytes] = []

    async def listener(message: ReceivedMessage) -> None:
        seen.append(message.body)
        if len(seen) == 1:
            await trio.sleep(5)
            raise ValueError("as the test wants it")

    async with EmbeddedBroker() as broker, open_sender(broker) as sender:
        await prepare(sender)
        await mode(sender, MessageRequestMode.POP)
        async with billing(broker, listener):
            await trio.sleep(2)
            await sender.send("orders", "x", queue=0)
            await until(lambda: seen)
            changes = intercept(
                broker, RequestCode.CHANGE_MESSAGE_INVISIBLETIME, by=refused(1, "not now")
            )
        changes.restore()
        async with billing(broker, listener):
            await until(lambda: len(seen) == 2, 300)


async def test_another_expression_holds_for_pops_too(autojump_clock: MockClock) -> None:
    collector = Collector()
    async with EmbeddedBroker() as broker, open_sender(broker) as sender:
        await prepare(sender)
        await mode(sender, MessageRequestMode.POP)
        async with billing(broker, collector) as consumer:
            await trio.sleep(2)
            await sender.send("orders", "red", queue=0, tags="red")
            await until(lambda: collector.bodies == ["red"])
            await consumer.subscribe("orders", "blue")
            await sender.send(
                "orders", "late", queue=0, tags="red"
            )  # comes by the pop that was held
            await trio.sleep(1)
            await sender.send("orders", "later", queue=0, tags="red")
            await sender.send("orders", "blue", queue=0, tags="blue")
            await until(lambda: len(collector.bodies) == 2)
            await trio.sleep(200)
    assert collector.bodies == ["red", "blue"]


@pytest.mark.parametrize("expression", ["blue", ("colour = 'blue'", "SQL92")])
async def test_nothing_sent_after_a_change_of_the_expression_is_passed_over(
    autojump_clock: MockClock, expression: object
) -> None:
    collector = Collector()
    async with EmbeddedBroker(enable_property_filter=True) as broker, open_sender(broker) as sender:
        await prepare(sender)
        await mode(sender, MessageRequestMode.POP)
        async with billing(broker, collector) as consumer:
            await trio.sleep(2)
            await consumer.subscribe("orders", "red")
            await sender.send("orders", "red", queue=0, tags="red")
            await until(lambda: collector.bodies == ["red"])
            await trio.sleep(5)  # a pop by the old expression is held
            await consumer.subscribe("orders", expression)  # type: ignore[arg-type]  # either kind
            began = trio.current_time()
            await sender.send("orders", "blue", queue=0, tags="blue", properties={"colour": "blue"})
            await sender.send("orders", "red again", queue=0, tags="red")
            await until(lambda: len(collector.bodies) == 2)
            assert trio.current_time() - began < 1  # not at the end of the pop that was held
            await trio.sleep(200)
    assert collector.bodies == ["red", "blue"]


async def test_what_is_popped_shows_in_statistics_and_health_and_to_administrators(
    autojump_clock: MockClock,
) -> None:
    place = MessageQueue("orders", "broker-a", -1)

    async def listener(_message: ReceivedMessage) -> None:
        await trio.sleep(30)

    async with EmbeddedBroker() as broker, open_sender(broker) as sender:
        await prepare(sender)
        await mode(sender, MessageRequestMode.POP)
        async with billing(
            broker, listener, concurrency=2, pop_batch_nums=8, pop_threshold_for_queue=9
        ) as consumer:
            assert consumer.health().reasons == ()
            assert consumer.statistics().popped[place].cached_messages == 0
            await trio.sleep(11)  # a sample for the rates
            await sender.send("orders", *["12345"] * 40, queue=0)
            await trio.sleep(10)
            numbers = consumer.statistics()
            held = numbers.cached_messages
            assert 9 < held <= 17  # above the threshold, by less than a pop
            assert (numbers.cached_bytes, numbers.in_flight) == (5 * held, 2)
            popped = numbers.popped[place]
            assert (popped.cached_messages, popped.cached_bytes, popped.in_flight) == (
                held,
                5 * held,
                2,
            )
            assert popped.last_pop is not None
            assert popped.since_pop == trio.current_time() - popped.last_pop
            assert numbers.pulled_per_second > 0
            health = str(consumer.health())
            assert health == (
                f"consuming: orders at broker-a has given {held} messages that the listener "
                "has not done, so it is not popped"
            )
            header = GetConsumerRunningInfoRequestHeader(
                consumer_group="billing",
                client_id=broker.parts.members.consumers.client_ids("billing")[0],
            )
            answer = await sender.client.call_broker(
                "broker-a", Command.request(RequestCode.GET_CONSUMER_RUNNING_INFO, header)
            )
            info = ConsumerRunningInfo.decode(answer.body)
            assert info.mq_pop_table[place].wait_ack_count == held
            assert info.mq_pop_table[place].last_pop_timestamp > 0
            assert info.status_table["orders"].pull_tps > 0


async def test_the_lag_of_what_is_popped_is_what_the_broker_had_left(
    autojump_clock: MockClock,
) -> None:
    async def listener(_message: ReceivedMessage) -> None:
        await trio.sleep(30)

    async with EmbeddedBroker() as broker, open_sender(broker) as sender:
        await prepare(sender)
        await mode(sender, MessageRequestMode.POP)
        await sender.send("orders", *map(str, range(40)), queue=0)
        async with billing(
            broker, listener, pop_batch_nums=8, pop_threshold_for_queue=9
        ) as consumer:
            await until(lambda: consumer.statistics().cached_messages == 16)
            await trio.sleep(1)
            assert consumer.statistics().lag == 24


async def test_a_place_that_cannot_be_popped_is_the_reason(autojump_clock: MockClock) -> None:
    async with EmbeddedBroker() as broker, open_sender(broker) as sender:
        await prepare(sender)
        await mode(sender, MessageRequestMode.POP)
        pops = intercept(broker, RequestCode.POP_MESSAGE, by=refused())
        async with billing(broker, Collector()) as consumer:
            await trio.sleep(2)
            health = consumer.health()
            assert not health  # although its retry topic is pulled
            assert any(
                reason.startswith("orders at broker-a cannot be popped: ")
                for reason in health.reasons
            )
            assert "as the test wants it" in str(health)
            pops.restore()
            await until(consumer.health, 20)
            assert consumer.health().reasons == ()


async def test_a_strategy_that_brokers_do_not_have_is_the_reason(autojump_clock: MockClock) -> None:
    async with EmbeddedBroker() as broker, open_sender(broker) as sender:
        await prepare(sender)
        async with billing(broker, Collector(), strategy=ConsistentHash()) as consumer:
            await trio.sleep(2)
            assert not consumer.health()
            assert "not the strategy CONSISTENT_HASH" in str(consumer.health())


async def test_a_reset_of_the_group_holds_for_pops(autojump_clock: MockClock) -> None:
    collector = Collector()
    async with EmbeddedBroker() as broker, open_sender(broker) as sender:
        await prepare(sender)
        await mode(sender, MessageRequestMode.POP)
        async with billing(broker, collector):
            await trio.sleep(2)
            await sender.send("orders", *map(str, range(20)))
            await until(lambda: len(collector.bodies) == 20)
            header = ResetOffsetRequestHeader(
                group="billing", topic="orders", timestamp=0, is_force=True
            )
            answer = await sender.client.call_broker(
                "broker-a", Command.request(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, header)
            )
            assert answer.code == 0, answer.remark
            await until(lambda: len(collector.bodies) == 40, 60)
            await trio.sleep(100)
    assert sorted(map(int, collector.bodies)) == sorted([*range(20)] * 2)


async def test_nothing_is_popped_while_suspended(autojump_clock: MockClock) -> None:
    collector = Collector()
    async with EmbeddedBroker() as broker, open_sender(broker) as sender:
        await prepare(sender)
        await mode(sender, MessageRequestMode.POP)
        async with billing(broker, collector) as consumer:
            await trio.sleep(2)
            consumer.suspend()
            consumer.suspend()
            await trio.sleep(40)
            await sender.send("orders", "x", queue=0)
            await trio.sleep(40)
            assert not collector.bodies
            consumer.resume()
            await until(lambda: collector.bodies == ["x"])


async def test_a_clock_that_is_behind_does_not_turn_waiting_into_asking_all_the_time(
    autojump_clock: MockClock,
) -> None:
    async with EmbeddedBroker() as broker, open_sender(broker) as sender:
        await prepare(sender)
        await mode(sender, MessageRequestMode.POP)
        pops = intercept(broker, RequestCode.POP_MESSAGE)
        await trio.sleep(
            600
        )  # a client's clock is read when it begins, so that this one is ten minutes behind
        async with billing(broker, Collector()):
            await trio.sleep(60)
    assert 0 < len(pops.requests) < 30


async def test_a_change_to_popping_and_back_loses_nothing(autojump_clock: MockClock) -> None:
    collector = Collector()
    async with EmbeddedBroker() as broker, open_sender(broker) as sender:
        await prepare(sender)
        async with billing(broker, collector, rebalance_interval=2):
            await trio.sleep(3)
            for start, wanted in (
                (0, MessageRequestMode.POP),
                (20, MessageRequestMode.PULL),
                (40, MessageRequestMode.POP),
            ):
                await sender.send("orders", *map(str, range(start, start + 20)))
                # Awaited in the same turn.
                await until(lambda: len(set(collector.bodies)) == start + 20, 200)  # noqa: B023
                await trio.sleep(10)
                await mode(sender, wanted)
                await trio.sleep(10)
    assert set(map(int, collector.bodies)) == set(range(60))


async def test_what_a_pop_under_way_brings_after_a_switch_to_pulling_is_consumed(
    autojump_clock: MockClock,
) -> None:
    seen: list[tuple[float, int]] = []

    async def listener(message: ReceivedMessage) -> None:
        seen.append((trio.current_time(), message.reconsume_times))
        if message.reconsume_times == 0:
            raise ConsumeLater(delay_level=1)

    async with EmbeddedBroker() as broker, open_sender(broker) as sender:
        await prepare(sender)
        await mode(sender, MessageRequestMode.POP)
        async with billing(broker, listener, rebalance_interval=0.5) as consumer:
            await trio.sleep(2)
            await sender.send("orders", "a", queue=0)
            await until(lambda: len(seen) == 1, 30)
            await mode(sender, MessageRequestMode.PULL)
            await until(
                lambda: len(seen) == 2,
                5,
                # by the pop that the broker held; given up, it would be a minute later
                # and count once more
            )
            await trio.sleep(300)
            assert not consumer.statistics().popped
    assert [times for _at, times in seen] == [0, 1]


@pytest.mark.parametrize("v2", [False, True], ids=["v1", "v2"])
async def test_what_failed_while_it_was_popped_comes_again_when_the_group_pulls(
    autojump_clock: MockClock, v2: bool
) -> None:
    seen: list[tuple[str, str, int]] = []

    async def listener(message: ReceivedMessage) -> None:
        seen.append((message.body.decode(), message.topic, message.reconsume_times))
        if message.reconsume_times < 3:
            raise ValueError("as the test wants it")

    async with EmbeddedBroker(enable_retry_topic_v2=v2) as broker, open_sender(broker) as sender:
        await prepare(sender)
        await mode(sender, MessageRequestMode.POP)
        async with billing(broker, listener, rebalance_interval=2) as consumer:
            await trio.sleep(3)
            await sender.send("orders", "a", queue=0)
            await until(lambda: len(seen) == 2, 30)
            await mode(sender, MessageRequestMode.PULL)
            await until(
                lambda: len(seen) == 4, 300
            )  # again from the topic for what was popped, then from that of the group
            assert consumer.health().reasons == ()
            await trio.sleep(60)
            # Back to popping nobody pulls beside the pops.
            await mode(sender, MessageRequestMode.POP)
            await trio.sleep(10)
            assert {queue.topic for queue in consumer.statistics().queues} == {"%RETRY%billing"}
            await sender.send("orders", "b", queue=0)
            await until(lambda: len(seen) == 8, 300)
            await trio.sleep(300)
    assert seen == [(body, "orders", times) for body in "ab" for times in range(4)]


@pytest.mark.parametrize(
    ("policy", "delays"),
    [
        (None, [10_000, 30_000, 60_000]),
        (GroupRetryPolicy(), [10_000, 30_000, 60_000]),
        (
            GroupRetryPolicy(
                "CUSTOMIZED", customized_retry_policy=CustomizedRetryPolicy((1, 2, 3, 4))
            ),
            [3, 4, 4],
        ),
        (
            GroupRetryPolicy("EXPONENTIAL", exponential_retry_policy=ExponentialRetryPolicy()),
            [5000, 10_000, 20_000],
        ),
    ],
)
def test_the_delays_of_policies(policy: GroupRetryPolicy | None, delays: list[int]) -> None:
    assert [delay_ms(policy, times) for times in range(3)] == delays
    assert delay_ms(policy, 1000) <= 7_200_000
    assert delay_ms(policy, -5) == delays[0]


async def test_a_listener_of_popped_messages_may_choose_the_delay(
    autojump_clock: MockClock,
) -> None:
    seen: list[float] = []
    levels = [1, 2, 4, 18]

    async def listener(message: ReceivedMessage) -> None:
        seen.append(trio.current_time())
        if message.reconsume_times < len(levels):
            raise ConsumeLater(delay_level=levels[message.reconsume_times])

    async with EmbeddedBroker() as broker, open_sender(broker) as sender:
        await prepare(
            sender,
            GroupRetryPolicy(
                "EXPONENTIAL", exponential_retry_policy=ExponentialRetryPolicy(20_000, 60_000, 2)
            ),
        )
        await mode(sender, MessageRequestMode.POP)
        async with billing(broker, listener):
            await trio.sleep(2)
            await sender.send("orders", "a", queue=0)
            await until(lambda: len(seen) == 5, 8000, step=1)
    for waited, expected in zip(
        [seen[index + 1] - seen[index] for index in range(4)], (1, 5, 30, 7200), strict=True
    ):
        assert expected <= waited < expected + 5
