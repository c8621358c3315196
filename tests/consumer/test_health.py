"""Is it consuming, and if not, why: the answer in plain words, and the numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st

from rocketmq_sdk.broker_embedded.broker import EmbeddedBroker
from rocketmq_sdk.client.runtime import Client
from rocketmq_sdk.client.troubles import LONGEST_REASON, one_line
from rocketmq_sdk.codes import RequestCode
from rocketmq_sdk.consumer.lite_pull.consumer import LitePullConsumer
from rocketmq_sdk.consumer.push.consumer import PushConsumer
from rocketmq_sdk.consumer.simple.consumer import SimpleConsumer
from rocketmq_sdk.errors import BrokerError, ClosedError, WrongRunError
from rocketmq_sdk.model.enums import ConsumeFrom
from rocketmq_sdk.model.queue import MessageQueue
from rocketmq_sdk.testing.interception import intercept, refused
from support.consuming import Collector, Switch, open_sender
from support.two_brokers import open_two_brokers
from support.waiting import until

if TYPE_CHECKING:
    from collections.abc import Callable

    from trio.testing import MockClock

    from rocketmq_sdk.model.received import ReceivedMessage


def billing(broker: EmbeddedBroker | Switch, listener: object, **options: object) -> PushConsumer:
    return PushConsumer(
        "billing", namesrv=broker, subscriptions={"orders": "*"}, listener=listener, **options
    )  # type: ignore[arg-type]  # any


async def test_a_consumer_that_is_not_running_says_so(autojump_clock: MockClock) -> None:
    async with EmbeddedBroker() as broker, open_sender(broker) as sender:
        await sender.create_topic("orders")
        consumer = billing(broker, Collector())
        assert not consumer.health()
        assert "enter it" in str(consumer.health())
        async with consumer:
            assert consumer.health()
            assert str(consumer.health()) == "consuming"
        assert "has ended" in str(consumer.health())


async def test_another_thread_is_told_how_to_ask() -> None:
    broker = EmbeddedBroker()
    async with broker, open_sender(broker) as sender:
        await sender.create_topic("orders")
        lite = LitePullConsumer("reading", namesrv=broker, subscriptions={"orders": "*"})
        async with billing(broker, Collector()) as push, lite:
            token = trio.lowlevel.current_trio_token()
            asks: list[Callable[[], object]] = [
                *(push.health, push.statistics, lite.health, lite.statistics, broker.health)
            ]

            def in_thread() -> None:
                for ask in asks:
                    with pytest.raises(WrongRunError, match=r"from_thread\.run\(.*token.*run_sync"):
                        ask()
                    assert trio.from_thread.run_sync(ask, trio_token=token) is not None

            await trio.to_thread.run_sync(in_thread)


async def test_a_topic_that_nobody_knows_is_named(autojump_clock: MockClock) -> None:
    async with (
        EmbeddedBroker(auto_create_topic_enable=False) as broker,
        billing(broker, Collector()) as consumer,
    ):
        assert not consumer.health()
        assert "no name server knows a readable queue of topic orders" in str(consumer.health())


@pytest.mark.parametrize("kind", [PushConsumer, SimpleConsumer, LitePullConsumer])
async def test_a_name_server_that_does_not_answer_is_not_taken_for_one_that_knows_nothing(
    autojump_clock: MockClock, kind: type[PushConsumer]
) -> None:
    more = {"listener": Collector()} if kind is PushConsumer else {}
    async with EmbeddedBroker() as broker, open_sender(broker) as sender:
        await sender.create_topic("orders", 1)
        switch = Switch(broker)
        switch.cut()
        async with kind("g", namesrv=switch, subscriptions={"orders": "*"}, **more) as consumer:
            await until(lambda: "cannot be asked for" in str(consumer.health()), 10)
            assert not consumer.health()
            assert "no name server knows" not in str(consumer.health())
            switch.connect(broker)
            await until(lambda: str(consumer.health()) == "consuming", 60)
            switch.cut()
            await until(lambda: "the last one known is used" in str(consumer.health()), 120)


async def test_a_member_without_queues_knows_who_has_them(autojump_clock: MockClock) -> None:
    async with EmbeddedBroker() as broker, open_sender(broker) as sender:
        await sender.create_topic("orders", 1)
        async with billing(broker, Collector()) as one, billing(broker, Collector()) as two:
            await until(lambda: len(one.statistics().queues) + len(two.statistics().queues) == 2)
            idle = next(
                each
                for each in (one, two)
                if not any(queue.topic == "orders" for queue in each.statistics().queues)
            )
            assert "belong to others of the 2 members" in str(idle.health())


async def test_a_broker_that_is_away_is_the_reason_and_back_it_is_not(
    autojump_clock: MockClock,
) -> None:
    async with EmbeddedBroker() as broker, open_sender(broker) as sender:
        await sender.create_topic("orders", 1)
        switch = Switch(broker)
        async with billing(switch, Collector()) as consumer:
            assert consumer.health()
            switch.cut()
            await trio.sleep(60)
            health = consumer.health()
            assert not health
            assert any(
                "cannot be pulled" in reason and "cut the connection" in reason
                for reason in health.reasons
            )
            switch.connect(broker)
            await until(consumer.health, 60)


async def test_a_listener_that_hangs_and_a_full_cache_are_told(autojump_clock: MockClock) -> None:
    async def listener(_message: ReceivedMessage) -> None:
        await trio.sleep(600)

    async with EmbeddedBroker() as broker, open_sender(broker) as sender:
        await sender.create_topic("orders", 1)
        await sender.send("orders", *map(str, range(50)), queue=0)
        async with billing(
            broker, listener, concurrency=1, pull_threshold_for_queue=10, pull_batch_size=5
        ) as consumer:
            await trio.sleep(120)
            health = consumer.health()
            assert not health
            assert any(
                "running for" in reason and "no worker is free" in reason
                for reason in health.reasons
            )
            assert any("holds" in reason for reason in health.reasons)
            numbers = consumer.statistics()
            assert numbers.in_flight == 1
            assert numbers.lag == 50


async def test_ordered_queues_tell_of_their_lock_and_of_poison(autojump_clock: MockClock) -> None:
    async def listener(_message: ReceivedMessage) -> None:
        raise ValueError("out of\nstock \x1b[31m" + "x" * 1000)

    async with EmbeddedBroker() as broker, open_sender(broker) as sender:
        await sender.create_topic("orders", 2)
        broker.parts.members.locks.lock(
            "billing", [MessageQueue("orders", "broker-a", 1)], "killed member"
        )
        await sender.send("orders", "poison", queue=0)
        async with billing(broker, listener, orderly=True) as consumer:
            await until(lambda: "rest behind" in str(consumer.health()), 10)
            text = str(consumer.health())
            assert "1 queues are locked by other members" in text
            assert "1 ordered queues rest behind a message that failed" in text
            assert "out of stock" in text.replace("\\n", " ")
            assert "\x1b" not in text
            assert len(text) < 1000


async def test_messages_that_no_broker_takes_back_are_told(autojump_clock: MockClock) -> None:
    async def listener(_message: ReceivedMessage) -> None:
        raise ValueError("as the test wants it")

    async with EmbeddedBroker() as broker, open_sender(broker) as sender:
        await sender.create_topic("orders", 1)
        await sender.send("orders", "a", queue=0)
        intercept(
            broker, RequestCode.CONSUMER_SEND_MSG_BACK, RequestCode.SEND_MESSAGE_V2, by=refused()
        )
        async with billing(broker, listener) as consumer:
            await until(lambda: consumer.statistics().waiting_for_retry)
            assert "1 messages could be sent back to no broker" in str(consumer.health())


async def test_rates_and_lag(autojump_clock: MockClock) -> None:
    async def listener(message: ReceivedMessage) -> None:
        await trio.sleep(0.1)
        if message.body == b"bad":
            raise ValueError("as the test wants it")

    async with EmbeddedBroker() as broker, open_sender(broker) as sender:
        await sender.create_topic("orders", 1)
        async with billing(broker, listener, concurrency=1, max_reconsume_times=0) as consumer:
            await trio.sleep(11)
            for number in range(600):
                await sender.send("orders", "bad" if number % 10 == 0 else "good", queue=0)
                await trio.sleep(0.2)
            numbers = consumer.statistics()
            assert numbers.consumed_per_second == pytest.approx(4.5, rel=0.2)
            assert numbers.failed_per_second == pytest.approx(0.5, rel=0.6)
            assert numbers.pulled_per_second == pytest.approx(5, rel=0.3)
            (queue,) = [queue for queue in numbers.by_queue if queue.topic == "orders"]
            assert numbers.by_queue[queue].lag in (0, 1)
            assert numbers.by_queue[queue].last_pull is not None
            assert numbers.by_queue[queue].locked is None


@settings(deadline=None, max_examples=40)
@given(st.text(max_size=3000))
def test_what_others_say_is_one_printable_line_of_bounded_length(text: str) -> None:
    line = one_line(text)
    assert line.isprintable()
    assert len(line) <= LONGEST_REASON + 3


async def test_why_the_members_are_not_known_is_what_the_broker_says(
    autojump_clock: MockClock,
) -> None:
    async with EmbeddedBroker() as broker, open_sender(broker) as sender:
        await sender.create_topic("orders", 1)
        refusals = intercept(broker, RequestCode.GET_CONSUMER_LIST_BY_GROUP, by=refused(16))
        async with billing(broker, Collector()) as consumer:  # of two topics, with that of retries
            await trio.sleep(10)
            assert "not known: answered NO_PERMISSION" in str(consumer.health())
            refusals.restore()
            await trio.sleep(10)
            assert consumer.health()


@pytest.mark.parametrize("kind", [PushConsumer, SimpleConsumer, LitePullConsumer])
async def test_a_member_tells_the_lag_of_its_whole_group(
    autojump_clock: MockClock, kind: type[PushConsumer]
) -> None:
    async def never(_message: ReceivedMessage) -> None:
        await trio.sleep_forever()

    more = {"listener": never} if kind is PushConsumer else {}
    async with EmbeddedBroker() as broker, open_sender(broker) as sender:
        await sender.create_topic("orders", 2)
        await sender.send("orders", *map(str, range(7)), queues=2)
        async with (
            kind("g", namesrv=broker, subscriptions={"orders": "*"}, **more) as consumer,
            kind("g", namesrv=broker, subscriptions={"orders": "*"}, **more),
        ):
            lag = await consumer.group_lag()
            assert {queue.queue_id for queue in lag if queue.topic == "orders"} == {0, 1}
            assert sum(lag.values()) == 7
            refusals = intercept(broker, RequestCode.GET_CONSUME_STATS, by=refused())
            with refusals, pytest.raises(BrokerError):
                await consumer.group_lag()
        with pytest.raises(ClosedError):
            await consumer.group_lag()


@pytest.mark.parametrize("orderly", [True, False])
async def test_a_listener_that_did_not_expect_lists_is_told_once(
    orderly: bool, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    async def one(message: ReceivedMessage) -> None:
        _ = message.body

    async with EmbeddedBroker() as broker, open_sender(broker) as sender:
        await sender.create_topic("orders", 1)
        await sender.send("orders", "1", "2", queue=0)
        async with billing(
            broker, one, batch=4, orderly=orderly, consume_from=ConsumeFrom.FIRST_OFFSET
        ):
            await until(lambda: caplog.text.count("the listener failed") >= 2, 60)
    assert caplog.text.count("with batch=4 the listener gets lists") == 1


async def test_an_orderly_consumer_tells_of_queues_whose_broker_gives_no_lock(
    autojump_clock: MockClock,
) -> None:
    async with (
        open_two_brokers("orders", 2) as cluster,
        Client(cluster.way()[0]) as client,
        PushConsumer(
            "billing",
            client=client,
            subscriptions={"orders": "*"},
            listener=Collector(),
            orderly=True,
        ) as consumer,
    ):
        await until(lambda: str(consumer.health()) == "consuming")
        cluster.brokers[0].hang()
        await trio.sleep(100)
        assert {queue.broker_name for queue in consumer.statistics().queues} == {"b1"}
        assert consumer.health()
        for number in range(2):
            assert f"queue {number} of orders at b0 is not taken yet: its broker gives" in str(
                consumer.health()
            )
        cluster.brokers[0].recover()
        await until(lambda: str(consumer.health()) == "consuming", 60)
        await cluster.brokers[1].stop(killed=True)
        await trio.sleep(100)
        assert "queue 0 of orders at b1 is not taken yet" in str(consumer.health())
        await cluster.brokers[1].come_back()
        await until(lambda: str(consumer.health()) == "consuming", 120)
