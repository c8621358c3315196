"""What becomes of messages that a simple consumer does not finish: extensions, the
group's retry policy, and the dead letter topic.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import trio

from rocketmq_sdk.broker_embedded.broker import EmbeddedBroker
from rocketmq_sdk.client.api.groups import update_group
from rocketmq_sdk.codes import RequestCode, ResponseCode
from rocketmq_sdk.errors import (
    BrokerError,
    ConfigurationError,
    ReceiptHandleError,
)
from rocketmq_sdk.names import DLQ_PREFIX
from rocketmq_sdk.protocol.bodies.groups import (
    CustomizedRetryPolicy,
    ExponentialRetryPolicy,
    GroupRetryPolicy,
    SubscriptionGroupConfig,
)
from rocketmq_sdk.testing.interception import intercept, refused, unanswered
from support.consuming import open_sender
from support.simple_consumers import consumer_of, receive, send_all

if TYPE_CHECKING:
    from trio.testing import MockClock

    from rocketmq_sdk.consumer.pop.receipt import PoppedMessage
    from rocketmq_sdk.consumer.simple.consumer import SimpleConsumer
    from rocketmq_sdk.protocol.command import Command
    from rocketmq_sdk.remoting.channel import Channel, Continuation, Handler


async def fail(
    consumer: SimpleConsumer, message: PoppedMessage, chosen: float | None = None
) -> None:
    """Fail in processing a message, in the time that was chosen for it before."""

    async def process() -> None:
        async with consumer.processing(message):
            if chosen is not None:
                await consumer.change_invisible_duration(message, chosen)
            raise ValueError("the program fails")

    with pytest.raises(ValueError, match="the program fails"):
        await process()


async def test_the_ladder_ends_in_the_dead_letter_topic(autojump_clock: MockClock) -> None:
    async with EmbeddedBroker() as broker, open_sender(broker) as sender:
        await send_all(sender, 1)
        attempts: list[int] = []
        async with consumer_of(broker) as consumer:
            with trio.fail_after(3600):
                while not consumer.statistics().dead_letters:
                    attempts += [
                        message.delivery_attempt for message in await consumer.receive(32, 10)
                    ]
        assert attempts == list(range(1, 18))
        async with consumer_of(
            broker, "undertaker", subscriptions={f"{DLQ_PREFIX}billing": "*"}
        ) as consumer:
            [dead] = await receive(consumer, 1)
            assert dead.body == b"0"
            assert dead.properties["ORIGIN_MESSAGE_ID"]


async def test_a_message_that_cannot_be_buried_is_not_lost(autojump_clock: MockClock) -> None:
    async with EmbeddedBroker() as broker, open_sender(broker) as sender:
        await send_all(sender, 1)
        burials = intercept(broker, RequestCode.CONSUMER_SEND_MSG_BACK, by=refused())
        async with consumer_of(broker, max_reconsume_times=0) as consumer:
            assert len(await receive(consumer, 1, 10)) == 1
            with trio.fail_after(600):
                while len(burials.requests) < 2:
                    assert await consumer.receive(32, 10) == []
                burials.restore()
                while not consumer.statistics().dead_letters:
                    assert await consumer.receive(32, 10) == []
        assert broker.store.max_offset(f"{DLQ_PREFIX}billing", 0) == 1


async def test_what_cannot_be_buried_holds_up_nothing_else(autojump_clock: MockClock) -> None:
    """The others of its pop are handed out while they are invisible, and a receive
    takes no longer than it was told.
    """
    async with EmbeddedBroker() as broker, open_sender(broker) as sender:
        await send_all(sender, 8, queues=1)
        async with consumer_of(broker, max_reconsume_times=0) as consumer:
            assert len(await receive(consumer, 8, 10)) == 8
            await trio.sleep(11)
            await sender.send("orders", *["new"] * 8, queue=0)
            with intercept(broker, RequestCode.CONSUMER_SEND_MSG_BACK, by=unanswered):
                began, found = trio.current_time(), 0
                while trio.current_time() - began < 60:
                    last = trio.current_time()
                    messages = await consumer.receive(32, 10, 2)
                    assert trio.current_time() - last <= 2.1
                    assert all(message.receipt.is_good for message in messages)
                    assert {message.body for message in messages} <= {b"new"}
                    await consumer.batch_ack(messages)
                    found += len(messages)
                assert found == 8
            with trio.fail_after(60):
                while consumer.statistics().dead_letters < 8:
                    assert await consumer.receive(32, 10, 2) == []


async def test_a_block_may_end_while_its_message_is_being_acknowledged(
    autojump_clock: MockClock,
) -> None:
    def late(channel: Channel, request: Command, serve: Handler) -> Continuation:
        answer = serve(channel, request)

        async def later() -> Command | None:
            await trio.sleep(1)
            return await answer() if callable(answer) else answer

        return later

    async with EmbeddedBroker() as broker, open_sender(broker) as sender:
        await send_all(sender, 1)
        async with consumer_of(broker) as consumer:
            [message] = await receive(consumer, 1)
            with intercept(broker, RequestCode.ACK_MESSAGE, by=late) as acks:
                async with trio.open_nursery() as nursery, consumer.processing(message):
                    nursery.start_soon(consumer.ack, message)
                    await trio.sleep(0.1)
            assert len(acks.requests) == 1


async def test_processing_extends_the_time_and_acknowledges(autojump_clock: MockClock) -> None:
    async with EmbeddedBroker() as broker, open_sender(broker) as sender:
        await send_all(sender, 1)
        async with consumer_of(broker) as consumer, consumer_of(broker) as other:
            [message] = await receive(consumer, 1, 30)
            async with consumer.processing(message), trio.open_nursery() as nursery:
                nursery.start_soon(trio.sleep, 1000)
                while trio.current_time() and len(nursery.child_tasks) == 1:
                    assert await other.receive(await_duration=100) == []
            assert consumer.statistics().extended >= 40
            assert await other.receive(await_duration=100) == []
            with pytest.raises(ReceiptHandleError, match="was used"):
                await consumer.ack(message)


async def test_a_block_that_fails_leaves_its_message_to_others(autojump_clock: MockClock) -> None:
    async with EmbeddedBroker() as broker, open_sender(broker) as sender:
        await send_all(sender, 1)
        async with consumer_of(broker) as consumer:

            async def process() -> None:
                [message] = await receive(consumer, 1, 30)
                async with consumer.processing(message):
                    raise ValueError("the program fails")

            with pytest.raises(ValueError, match="the program fails"):
                await process()
            [again] = await receive(consumer, 1, 30)
            assert again.delivery_attempt == 2
            with trio.move_on_after(5):
                async with consumer.processing(again):
                    await trio.sleep_forever()
            [again] = await receive(consumer, 1, 30)
            async with consumer.processing(again):
                await consumer.ack(again)
            await trio.sleep(60)
            assert await consumer.receive() == []


@pytest.mark.parametrize(
    ("policy", "delays"),
    [
        (GroupRetryPolicy(), [10, 30, 60]),
        (
            GroupRetryPolicy(
                "CUSTOMIZED",
                customized_retry_policy=CustomizedRetryPolicy((1000, 2000, 40_000, 20_000)),
            ),
            [40, 20, 20],
        ),
        (
            GroupRetryPolicy(
                "EXPONENTIAL", exponential_retry_policy=ExponentialRetryPolicy(20_000, 60_000, 2)
            ),
            [20, 40, 60],
        ),
    ],
    ids=["default", "customised", "exponential"],
)
@pytest.mark.parametrize("way", ["a block that fails", "a change without a duration"])
async def test_a_failure_waits_as_the_groups_policy_says(
    autojump_clock: MockClock, policy: GroupRetryPolicy, delays: list[int], way: str
) -> None:
    waited = []
    async with EmbeddedBroker() as broker, open_sender(broker) as sender:
        await send_all(sender, 1)
        await update_group(
            sender.client,
            await sender._broker(),
            SubscriptionGroupConfig("billing", group_retry_policy=policy),
        )
        async with consumer_of(broker, max_reconsume_times=3) as consumer:
            await trio.sleep(2)  # the group's settings are read
            [message] = await receive(consumer, 1, 600)
            for _ in delays:
                began = trio.current_time()
                if way == "a block that fails":
                    await fail(consumer, message)
                else:
                    old = message.receipt
                    new = await consumer.change_invisible_duration(message)
                    assert message.receipt is new is not old
                with pytest.raises(ConfigurationError, match="give the message"):
                    await consumer.change_invisible_duration(message.receipt)
                [message] = await receive(consumer, 1, 600)
                waited.append(trio.current_time() - began)
            await fail(consumer, message)
            assert not consumer.statistics().dead_letters
            with trio.fail_after(600):
                while not consumer.statistics().dead_letters:
                    assert await consumer.receive(32, 600, 5) == []
    for wait, expected in zip(waited, delays, strict=True):
        assert expected <= wait < expected + 8


async def test_a_block_that_fails_in_order_or_has_chosen_the_time_keeps_it(
    autojump_clock: MockClock,
) -> None:
    async with EmbeddedBroker() as broker, open_sender(broker) as sender:
        await send_all(sender, 2, queues=1)
        for fifo in (True, False):
            async with consumer_of(broker, f"billing-{fifo}", fifo=fifo) as consumer:
                [message] = (await receive(consumer, 1, 60))[:1]
                began = trio.current_time()
                await fail(consumer, message, None if fifo else 100)
                seen = message.body
                with trio.fail_after(200):
                    while seen not in [again.body for again in await consumer.receive(1, 600, 5)]:
                        pass
                least = 60 if fifo else 100
                assert least <= trio.current_time() - began < least + 10


async def test_a_failure_that_cannot_be_told_is_still_the_programs_own(
    autojump_clock: MockClock,
) -> None:
    async with EmbeddedBroker() as broker, open_sender(broker) as sender:
        await send_all(sender, 1)
        async with consumer_of(broker) as consumer:
            [message] = await receive(consumer, 1, 30)
            intercept(broker, RequestCode.CHANGE_MESSAGE_INVISIBLETIME, by=unanswered)
            began = trio.current_time()
            await fail(consumer, message)
            assert trio.current_time() - began < 3
            [again] = await receive(consumer, 1, 30)
            assert again.delivery_attempt == 2


async def test_extensions_end_at_their_limit_and_go_on_behind_errors(
    autojump_clock: MockClock,
) -> None:
    async with EmbeddedBroker() as broker, open_sender(broker) as sender:
        await send_all(sender, 1)
        async with consumer_of(broker, processing_limit=300) as consumer:
            [message] = await receive(consumer, 1, 30)
            extensions = intercept(broker, RequestCode.CHANGE_MESSAGE_INVISIBLETIME, by=refused())
            began = trio.current_time()

            async def process() -> None:
                async with consumer.processing(message):
                    await trio.sleep(25)
                    extensions.restore()
                    await trio.sleep(975)

            with pytest.raises(ReceiptHandleError, match="is expired"):
                await process()
            assert len(extensions.requests) >= 5
            assert 300 < message.receipt.expires_at - began < 340
            [again] = await receive(consumer, 1)
            assert again.body == message.body


async def test_a_processed_message_is_acknowledged_when_the_broker_takes_it_again(
    autojump_clock: MockClock,
) -> None:
    async with EmbeddedBroker() as broker, open_sender(broker) as sender:
        await send_all(sender, 1)
        async with consumer_of(broker) as consumer:
            [message] = await receive(consumer, 1, 20)
            refusals = intercept(
                broker, RequestCode.ACK_MESSAGE, by=refused(ResponseCode.SYSTEM_BUSY)
            )

            async def processed() -> None:
                async with consumer.processing(message, invisible_duration=20):
                    pass

            async with trio.open_nursery() as nursery:
                nursery.start_soon(processed)
                await trio.sleep(60)  # three times the invisible duration, which is extended
                assert len(refusals.requests) > 10
                refusals.restore()
            assert consumer.statistics().consumed == 1
            assert await consumer.receive(32, 10, await_duration=60) == []


async def test_a_message_whose_acknowledgement_is_refused_for_good_raises_at_once(
    autojump_clock: MockClock,
) -> None:
    async with EmbeddedBroker() as broker, open_sender(broker) as sender:
        await send_all(sender, 1)
        async with consumer_of(broker) as consumer:
            [message] = await receive(consumer, 1, 20)
            refusals = intercept(
                broker, RequestCode.ACK_MESSAGE, by=refused(ResponseCode.MESSAGE_ILLEGAL)
            )
            with pytest.raises(BrokerError):
                async with consumer.processing(message):
                    pass
            assert len(refusals.requests) == 1
