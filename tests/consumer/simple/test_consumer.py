"""What a simple consumer receives, keeps, changes and gives up, against the embedded
broker in virtual time.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pytest
import trio

from rocketmq_sdk.broker_embedded.broker import EmbeddedBroker
from rocketmq_sdk.client.runtime import Client
from rocketmq_sdk.codes import RequestCode, ResponseCode
from rocketmq_sdk.consumer.simple.consumer import SimpleConsumer
from rocketmq_sdk.errors import (
    BrokerError,
    ClosedError,
    ConfigurationError,
    ConnectError,
    ReceiptHandleError,
)
from rocketmq_sdk.names import java_hash
from rocketmq_sdk.testing.interception import intercept, refused
from support.consuming import Switch, open_sender, texts
from support.simple_consumers import consumer_of, receive, send_all
from support.waiting import until

if TYPE_CHECKING:
    from trio.testing import MockClock

    from rocketmq_sdk.consumer.pop.receipt import PoppedMessage


async def test_everything_is_received_once_and_acknowledged(autojump_clock: MockClock) -> None:
    async with EmbeddedBroker() as broker, open_sender(broker) as sender:
        await send_all(sender, 100)
        async with consumer_of(broker) as consumer:
            messages = await receive(consumer, 100)
            assert sorted(map(int, texts(messages))) == list(range(100))
            assert {(message.topic, message.delivery_attempt) for message in messages} == {
                ("orders", 1)
            }
            await consumer.batch_ack(messages[:50])
            for message in messages[50:]:
                await consumer.ack(message)
            await trio.sleep(100)
            assert await consumer.receive() == []
            assert consumer.statistics().since_receive == 0
            await trio.sleep(7)
            assert consumer.statistics().since_receive == 7


async def test_a_receive_waits_for_messages_and_no_longer_than_told(
    autojump_clock: MockClock,
) -> None:
    async with EmbeddedBroker() as broker, open_sender(broker) as sender:
        await sender.create_topic("orders")
        async with consumer_of(broker) as consumer, trio.open_nursery() as nursery:
            for wait, waited in ((None, 20), (3, 3), (0, 0)):
                began = trio.current_time()
                assert await consumer.receive(await_duration=wait) == []
                assert trio.current_time() - began == pytest.approx(waited, abs=0.6)

            async def send_later() -> None:
                await trio.sleep(3)
                await sender.send("orders", "late")

            nursery.start_soon(send_later)
            began = trio.current_time()
            assert texts(await consumer.receive()) == ["late"]
            assert trio.current_time() - began == pytest.approx(3, abs=0.2)


async def test_nothing_is_visible_before_its_invisible_duration_is_over(
    autojump_clock: MockClock,
) -> None:
    async with EmbeddedBroker() as broker, open_sender(broker) as sender:
        await send_all(sender, 10)
        async with consumer_of(broker) as consumer, consumer_of(broker) as other:
            first = await receive(consumer, 10, 60)
            began = trio.current_time()
            again: list[PoppedMessage] = []
            while len(again) < 10:
                again += await other.receive(32, 60, 5)
                if again:
                    assert trio.current_time() - began >= 60
                assert trio.current_time() - began < 120
            assert sorted(texts(again)) == sorted(texts(first))
            assert {message.delivery_attempt for message in again} == {2}
            assert {message.topic for message in again} == {"orders"}
            with pytest.raises(ReceiptHandleError, match="is expired"):
                await consumer.ack(first[0])
            await other.batch_ack(again)


async def test_used_and_expired_receipts_are_refused_before_anything_is_sent(
    autojump_clock: MockClock,
) -> None:
    async with EmbeddedBroker() as broker, open_sender(broker) as sender:
        await send_all(sender, 3)
        async with consumer_of(broker) as consumer:
            used, expired, replaced = await receive(consumer, 3)
            await consumer.ack(used)
            old = replaced.receipt
            new = await consumer.change_invisible_duration(replaced, 3600)
            assert replaced.receipt is new
            await trio.sleep(31)
            changes = intercept(
                broker,
                RequestCode.ACK_MESSAGE,
                RequestCode.BATCH_ACK_MESSAGE,
                RequestCode.CHANGE_MESSAGE_INVISIBLETIME,
                by=refused(),
            )
            for target, text in (
                (used, "was used"),
                (expired, "is expired"),
                (old, "was replaced"),
            ):
                with pytest.raises(ReceiptHandleError, match=text):
                    await consumer.ack(target)
                with pytest.raises(ReceiptHandleError, match=text):
                    await consumer.batch_ack([target])
                with pytest.raises(ReceiptHandleError, match=text):
                    await consumer.change_invisible_duration(target, 30)
            assert not changes.requests
            with pytest.raises(BrokerError):
                await consumer.ack(replaced)
            assert replaced.receipt.is_good


async def test_another_groups_consumer_cannot_acknowledge(autojump_clock: MockClock) -> None:
    async with EmbeddedBroker() as broker, open_sender(broker) as sender:
        await send_all(sender, 2)
        async with consumer_of(broker) as billing, consumer_of(broker, "shipping") as shipping:
            first, second = await receive(billing, 2)
            changes = intercept(
                broker,
                RequestCode.ACK_MESSAGE,
                RequestCode.BATCH_ACK_MESSAGE,
                RequestCode.CHANGE_MESSAGE_INVISIBLETIME,
                by=refused(),
            )
            for target in (first, first.receipt):
                with pytest.raises(
                    ReceiptHandleError, match="was given to group 'billing', not to 'shipping'"
                ):
                    await shipping.ack(target)
                with pytest.raises(ReceiptHandleError, match="was given to group 'billing'"):
                    await shipping.batch_ack([target])
                with pytest.raises(ReceiptHandleError, match="was given to group 'billing'"):
                    await shipping.change_invisible_duration(target, 60)
            with pytest.raises(ReceiptHandleError, match="was given to group 'billing'"):
                async with shipping.processing(first):
                    raise AssertionError("the block must not run")
            assert not changes.requests
            assert first.receipt.is_good
        async with consumer_of(broker) as same_group:
            with pytest.raises(BrokerError, match="as the test wants it"):
                await same_group.ack(second)  # another member of the group may


async def test_a_batch_acknowledges_what_is_good_and_names_what_is_not(
    autojump_clock: MockClock,
) -> None:
    async with EmbeddedBroker() as broker, open_sender(broker) as sender:
        await send_all(sender, 5)
        async with consumer_of(broker) as consumer:
            messages = await receive(consumer, 5)
            await consumer.ack(messages[2])
            with pytest.raises(ReceiptHandleError, match="was used"):
                await consumer.batch_ack(messages)
            await consumer.batch_ack([])
            await trio.sleep(60)
            assert await consumer.receive() == []


async def test_a_changed_duration_counts_from_the_change(autojump_clock: MockClock) -> None:
    async with EmbeddedBroker() as broker, open_sender(broker) as sender:
        await send_all(sender, 2)
        async with consumer_of(broker) as consumer:
            longer, sooner = await receive(consumer, 2, 30)
            began = trio.current_time()
            await consumer.change_invisible_duration(longer, 300)
            await consumer.change_invisible_duration(sooner, 1)
            [again] = await receive(consumer, 1)
            assert again.body == sooner.body
            assert trio.current_time() - began < 15
            await consumer.ack(again)
            [again] = await receive(consumer, 1, seconds=400)
            assert again.body == longer.body
            assert 300 <= trio.current_time() - began < 320
            await consumer.ack(again)


async def test_tags_are_checked_by_text_and_the_others_do_not_come_again(
    autojump_clock: MockClock,
) -> None:
    assert java_hash("Aa") == java_hash("BB")
    async with EmbeddedBroker() as broker, open_sender(broker) as sender:
        await sender.create_topic("orders")
        for tag in ("Aa", "BB", "paid", "BB"):
            await sender.send("orders", tag, tags=tag, queue=0)
        async with consumer_of(broker, subscriptions={"orders": "Aa"}) as consumer:
            messages = await receive(consumer, 1, 10)
            assert texts(messages) == ["Aa"]
            await consumer.batch_ack(messages)
            assert await consumer.receive(await_duration=60) == []
        assert broker.store.max_offset("%RETRY%billing_orders", 0) == 0


async def test_topics_take_turns(autojump_clock: MockClock) -> None:
    async with EmbeddedBroker() as broker, open_sender(broker) as sender:
        for topic in ("orders", "returns", "refunds"):
            await send_all(sender, 64, topic)
        subscriptions = {"orders": "*", "returns": "*", "refunds": "*"}
        async with consumer_of(broker, subscriptions=subscriptions) as consumer:
            order = []
            for _ in range(6):
                messages = await consumer.receive(4)
                await consumer.batch_ack(messages)
                [topic] = {message.topic for message in messages}
                order.append(topic)
            assert Counter(order) == {"orders": 2, "returns": 2, "refunds": 2}
            assert order[:3] == order[3:]


async def test_a_message_of_any_topic_ends_the_wait(autojump_clock: MockClock) -> None:
    async with EmbeddedBroker() as broker, open_sender(broker) as sender:
        for topic in ("orders", "returns"):
            await sender.create_topic(topic)
        async with (
            consumer_of(broker, subscriptions={"orders": "*", "returns": "*"}) as consumer,
            trio.open_nursery() as nursery,
        ):
            for topic in ("orders", "returns", "returns"):

                async def send_later(topic: str = topic) -> None:
                    await trio.sleep(5)
                    await sender.send(topic, topic)

                nursery.start_soon(send_later)
                began = trio.current_time()
                messages = await consumer.receive(await_duration=60)
                assert texts(messages) == [topic]
                assert trio.current_time() - began < 7
                await consumer.batch_ack(messages)
            began = trio.current_time()
            assert await consumer.receive(await_duration=7) == []
            assert trio.current_time() - began == pytest.approx(7, abs=1)


async def test_iterating_takes_no_message_that_it_does_not_hand_out(
    autojump_clock: MockClock,
) -> None:
    async with EmbeddedBroker() as broker, open_sender(broker) as sender:
        await send_all(sender, 8, queues=1)
        async with consumer_of(broker, invisible_duration=10) as consumer:
            seen: list[int] = []
            with trio.fail_after(600):
                async for message in consumer:
                    seen.append(message.delivery_attempt)
                    if len(seen) == 3:
                        await trio.sleep(11)  # only this one is visible again
                        continue
                    await consumer.ack(message)
                    if len(seen) == 9:
                        break
            assert sorted(seen) == [1, 1, 1, 1, 1, 1, 1, 1, 2]


async def test_many_members_share_a_queue(autojump_clock: MockClock) -> None:
    counts: Counter[str] = Counter()

    async def work(broker: EmbeddedBroker) -> None:
        async with consumer_of(broker) as consumer:
            while counts.total() < 300:
                messages = await consumer.receive(4, 60, 1)
                await trio.sleep(0.01)
                await consumer.batch_ack(messages)
                counts.update(texts(messages))

    async with EmbeddedBroker() as broker, open_sender(broker) as sender:
        await send_all(sender, 300, queues=1)
        with trio.fail_after(600):
            async with trio.open_nursery() as nursery:
                for _ in range(5):
                    nursery.start_soon(work, broker)
    assert len(counts) == 300
    assert set(counts.values()) == {1}


async def test_a_broken_connection_raises_and_iterating_goes_on(autojump_clock: MockClock) -> None:
    async with EmbeddedBroker() as broker, open_sender(broker) as sender:
        await send_all(sender, 2, queues=1)
        switch = Switch(broker)
        async with (
            Client(switch) as client,
            consumer_of(broker, namesrv=None, client=client) as consumer,
            trio.open_nursery() as nursery,
        ):
            messages = await receive(consumer, 2)
            switch.cut()
            with pytest.raises(ConnectError):
                await consumer.receive()
            with pytest.raises(ConnectError):
                await consumer.ack(messages[0])

            async def connect_later() -> None:
                await trio.sleep(10)
                switch.connect(broker)

            nursery.start_soon(connect_later)
            seen: list[str] = []
            with trio.fail_after(300):
                async for message in consumer:
                    await consumer.ack(message)
                    seen.append(message.body.decode())
                    if len(seen) == 2:
                        break
            assert sorted(seen) == ["0", "1"]


async def test_a_cancelled_receive_loses_nothing(autojump_clock: MockClock) -> None:
    async with EmbeddedBroker() as broker, open_sender(broker) as sender:
        await send_all(sender, 20)
        async with consumer_of(broker) as consumer:
            seen: set[str] = set()
            with trio.fail_after(3600):
                for moment in range(40):
                    with trio.move_on_after(moment / 4000):
                        messages = await consumer.receive(1, 10, 0.005)
                        seen.update(texts(messages))
                        await consumer.batch_ack(messages)
                while len(seen) < 20:
                    messages = await consumer.receive(32, 10)
                    seen.update(texts(messages))
                    await consumer.batch_ack(messages)


async def test_leaving_ends_receives_that_wait(autojump_clock: MockClock) -> None:
    ended: list[str] = []
    async with (
        EmbeddedBroker() as broker,
        open_sender(broker) as sender,
        trio.open_nursery() as nursery,
    ):
        await sender.create_topic("orders")

        async def wait() -> None:
            with pytest.raises(ClosedError):
                await consumer.receive(await_duration=1000)
            ended.append("receive")

        async def iterate() -> None:
            assert [message async for message in consumer] == []
            ended.append("iteration")

        async with consumer_of(broker) as consumer:
            nursery.start_soon(wait)
            nursery.start_soon(iterate)
            await trio.sleep(5)
            assert broker.parts.members.consumers.client_ids("billing")
            began = trio.current_time()
        assert trio.current_time() - began < 1
        assert not broker.parts.members.consumers.client_ids("billing")
        await until(lambda: sorted(ended) == ["iteration", "receive"], 5)
        with pytest.raises(ClosedError):
            await consumer.receive()


async def test_an_unknown_topic_is_received_once_it_exists(autojump_clock: MockClock) -> None:
    async with (
        EmbeddedBroker() as broker,
        open_sender(broker) as sender,
        consumer_of(broker) as consumer,
        trio.open_nursery() as nursery,
    ):

        async def create() -> None:
            await trio.sleep(3)
            await send_all(sender, 1)

        nursery.start_soon(create)
        assert texts(await receive(consumer, 1)) == ["0"]


async def test_a_broker_without_pop_is_told(autojump_clock: MockClock) -> None:
    async with EmbeddedBroker() as broker, open_sender(broker) as sender:
        await sender.create_topic("orders")
        unknown = refused(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, "not here")
        intercept(broker, RequestCode.POP_MESSAGE, by=unknown)
        async with consumer_of(broker) as consumer:
            with pytest.raises(BrokerError, match="REQUEST_CODE_NOT_SUPPORTED"):
                await consumer.receive()
            with pytest.raises(BrokerError, match="REQUEST_CODE_NOT_SUPPORTED"):
                async for _ in consumer:
                    pass


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"subscriptions": {}}, "at least one topic"),
        ({"invisible_duration": 5}, "out of bounds"),
        ({"invisible_duration": 13 * 3600}, "out of bounds"),
        ({"min_invisible_duration": 50, "max_invisible_duration": 20}, "must not be below"),
        ({"await_duration": -1}, "await_duration"),
        ({"max_reconsume_times": -2}, "max_reconsume_times"),
        ({"batch": 5}, "no setting batch"),
    ],
)
def test_unacceptable_settings_are_refused(options: dict[str, object], text: str) -> None:
    values = {"namesrv": "127.0.0.1:9876", "subscriptions": {"orders": "*"}} | options
    with pytest.raises(ConfigurationError, match=text):
        SimpleConsumer("billing", **values)  # type: ignore[arg-type]


async def test_bounds_of_calls(autojump_clock: MockClock) -> None:
    async with EmbeddedBroker() as broker, open_sender(broker) as sender:
        await send_all(sender, 1)
        async with consumer_of(broker) as consumer:
            for arguments, text in (
                ({"max_messages": 0}, "from 1 to 32"),
                ({"max_messages": 33}, "from 1 to 32"),
                ({"invisible_duration": 9.9}, "bounds"),
            ):
                with pytest.raises(ConfigurationError, match=text):
                    await consumer.receive(**arguments)
            [message] = await receive(consumer, 1)
            with pytest.raises(ConfigurationError, match="bounds"):
                await consumer.change_invisible_duration(message, 13 * 3600)
            with pytest.raises(ConfigurationError, match="bounds"):
                async with consumer.processing(message, invisible_duration=1):
                    pass


async def test_a_change_within_the_millisecond_of_the_pop_is_not_taken_for_it(
    autojump_clock: MockClock,
) -> None:
    async with EmbeddedBroker() as broker, open_sender(broker) as sender:
        await send_all(sender, 2, queues=1)
        async with consumer_of(broker) as consumer:
            messages = await receive(consumer, 2)
            pop_time = messages[0].receipt.handle.pop_time
            for expected in (1, 2, 3):
                receipt = await consumer.change_invisible_duration(messages[0], 30)
                assert receipt.handle.pop_time == pop_time + expected
            await consumer.batch_ack(messages)
            await trio.sleep(120)
            assert await consumer.receive() == []


async def test_an_iteration_gives_nothing_up_that_nobody_has_seen(
    autojump_clock: MockClock,
) -> None:
    """Work on each message takes longer than its invisible duration."""
    async with EmbeddedBroker() as broker, open_sender(broker) as sender:
        await send_all(sender, 30)
        seen: set[bytes] = set()
        async with consumer_of(broker, invisible_duration=10, max_reconsume_times=3) as consumer:
            with trio.fail_after(3000):
                async for message in consumer:
                    async with consumer.processing(message):
                        await trio.sleep(20)
                    seen.add(message.body)
                    assert message.reconsume_times == 0
                    if len(seen) == 30:
                        break
            assert consumer.statistics().dead_letters == 0
