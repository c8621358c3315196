"""Plain pulls by queue and offset, against the embedded broker in virtual time."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import trio

from rocketmq_sdk.broker_embedded.broker import EmbeddedBroker
from rocketmq_sdk.client.runtime import Client
from rocketmq_sdk.codes import RequestCode
from rocketmq_sdk.consumer.lite_pull.pull_consumer import PullConsumer
from rocketmq_sdk.errors import (
    BrokerError,
    ClosedError,
    ConfigurationError,
    ConnectError,
    TopicNotFoundError,
)
from rocketmq_sdk.model.enums import PullStatus
from rocketmq_sdk.model.queue import MessageQueue
from rocketmq_sdk.names import DLQ_PREFIX, retry_topic
from rocketmq_sdk.testing.interception import intercept, refused
from support.consuming import Switch, committed, open_sender
from support.waiting import until

if TYPE_CHECKING:
    from trio.testing import MockClock

QUEUE = MessageQueue("orders", "broker-a", 1)


async def test_queues_are_read_at_offsets(autojump_clock: MockClock) -> None:
    async with EmbeddedBroker() as broker, open_sender(broker) as sender:
        await sender.create_topic("orders", 2)
        await sender.send("orders", *map(str, range(40)), queue=1)
        async with PullConsumer("audit", namesrv=broker) as consumer:
            assert await consumer.message_queues("orders") == [
                MessageQueue("orders", "broker-a", 0),
                QUEUE,
            ]
            assert (await consumer.begin_offset(QUEUE), await consumer.end_offset(QUEUE)) == (0, 40)
            result = await consumer.pull(QUEUE, 0)
            assert (result.status, result.next_begin_offset, len(result.messages)) == (
                PullStatus.FOUND,
                32,
                32,
            )
            result = await consumer.pull(QUEUE, 32, max_messages=3)
            assert [message.body for message in result.messages] == [b"32", b"33", b"34"]
            result = await consumer.pull(QUEUE, 40)
            assert (result.status, result.messages) == (PullStatus.NO_NEW_MESSAGE, [])
            result = await consumer.pull(QUEUE, 1000)
            assert (result.status, result.next_begin_offset) == (PullStatus.OFFSET_ILLEGAL, 40)


async def test_a_pull_may_wait_at_the_broker(autojump_clock: MockClock) -> None:
    async with (
        EmbeddedBroker() as broker,
        open_sender(broker) as sender,
        PullConsumer("audit", namesrv=broker) as consumer,
    ):
        await sender.create_topic("orders", 2)
        await sender.send("orders", "first", queue=1)
        began = trio.current_time()
        assert (await consumer.pull(QUEUE, 1, wait=20)).status is PullStatus.NO_NEW_MESSAGE
        assert trio.current_time() - began == pytest.approx(20, abs=1)
        async with trio.open_nursery() as nursery:

            async def send_later() -> None:
                await trio.sleep(2)
                await sender.send("orders", "late", queue=1)

            nursery.start_soon(send_later)
            began = trio.current_time()
            assert [
                message.body for message in (await consumer.pull(QUEUE, 1, wait=20)).messages
            ] == [b"late"]
            assert trio.current_time() - began == pytest.approx(2, abs=0.1)


async def test_tags_are_checked_by_text(autojump_clock: MockClock) -> None:
    async with (
        EmbeddedBroker() as broker,
        open_sender(broker) as sender,
        PullConsumer("audit", namesrv=broker) as consumer,
    ):
        await sender.create_topic("orders", 2)
        for tag in ("Aa", "BB", "paid"):
            await sender.send("orders", tag, tags=tag, queue=1)
        assert [
            message.tags
            for message in (await consumer.pull(QUEUE, 0, expression="BB || paid")).messages
        ] == ["BB", "paid"]
        with pytest.raises(ConfigurationError, match="names no tag"):
            await consumer.pull(QUEUE, 0, expression="||")


async def test_offsets_are_committed_and_read(autojump_clock: MockClock) -> None:
    async with (
        EmbeddedBroker() as broker,
        open_sender(broker) as sender,
        PullConsumer("audit", namesrv=broker) as consumer,
    ):
        await sender.create_topic("orders", 2)
        assert await consumer.committed(QUEUE) is None
        assert await consumer.earliest_message_time(QUEUE) is None
        await sender.send("orders", "first", queue=1)
        began = await consumer.earliest_message_time(QUEUE)
        assert began is not None
        await trio.sleep(10)
        await sender.send("orders", "second", queue=1)
        assert await consumer.offset_for_timestamp(QUEUE, began + 5000) == 1
        await consumer.commit(QUEUE, 1)
        assert await consumer.committed(QUEUE) == 1
        assert committed(broker, "audit", "orders", 2) == [-1, 1]


async def test_messages_can_be_sent_back(autojump_clock: MockClock) -> None:
    async with (
        EmbeddedBroker() as broker,
        open_sender(broker) as sender,
        PullConsumer("audit", namesrv=broker) as consumer,
    ):
        await sender.create_topic("orders", 2)
        await sender.send("orders", "later", "never", queue=1)
        later, never = (await consumer.pull(QUEUE, 0)).messages
        await consumer.send_back(later)
        await consumer.send_back([never], delay_level=-1)
        await until(lambda: broker.store.max_offset(retry_topic("audit"), 0) == 1)
        assert broker.store.max_offset(f"{DLQ_PREFIX}audit", 0) == 1
        intercept(broker, RequestCode.CONSUMER_SEND_MSG_BACK, by=refused())
        with pytest.raises(BrokerError):
            await consumer.send_back(later)


async def test_errors_are_told(autojump_clock: MockClock) -> None:
    async with EmbeddedBroker() as broker, open_sender(broker) as sender:
        await sender.create_topic("orders", 2)
        switch = Switch(broker)
        async with Client(switch) as client, PullConsumer("audit", client=client) as consumer:
            with pytest.raises(TopicNotFoundError):
                await consumer.pull(MessageQueue("unknown", "broker-a", 0), 0)
            with pytest.raises(BrokerError):
                await consumer.pull(MessageQueue("orders", "broker-a", 9), 0)
            with pytest.raises(ConfigurationError, match="offset -1"):
                await consumer.pull(QUEUE, -1)
            switch.cut()
            with pytest.raises(ConnectError):
                await consumer.pull(QUEUE, 0)
            switch.connect(broker)
            await trio.sleep(5)
            assert (await consumer.pull(QUEUE, 0)).status is PullStatus.NO_NEW_MESSAGE
        with pytest.raises(ClosedError):
            await consumer.pull(QUEUE, 0)


async def test_brokers_know_the_member_while_it_runs(autojump_clock: MockClock) -> None:
    async with EmbeddedBroker() as broker, open_sender(broker) as sender:
        await sender.create_topic("orders", 2)
        async with PullConsumer("audit", namesrv=broker) as consumer:
            await consumer.pull(QUEUE, 0)
            assert len(broker.parts.members.consumers.client_ids("audit")) == 1
        assert not broker.parts.members.consumers.client_ids("audit")
