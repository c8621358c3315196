"""A topic is followed: what comes, in the order of its queues, new ones too."""

from __future__ import annotations

from contextlib import asynccontextmanager, nullcontext
from typing import TYPE_CHECKING

import pytest
import trio
import trio.testing

from rocketmq_sdk.admin.client import Admin
from rocketmq_sdk.broker_embedded.broker import EmbeddedBroker
from rocketmq_sdk.errors import ConfigurationError, TopicNotFoundError
from rocketmq_sdk.model.message import Message
from rocketmq_sdk.model.queue import MessageQueue
from rocketmq_sdk.model.received import ReceivedMessage
from rocketmq_sdk.producer.producer import Producer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from trio.testing import MockClock

Messages = trio.MemoryReceiveChannel[ReceivedMessage]


@asynccontextmanager
async def shop() -> AsyncIterator[tuple[EmbeddedBroker, Producer, Admin]]:
    with trio.fail_after(3600):
        async with (
            EmbeddedBroker() as broker,
            Producer("shop", namesrv=broker) as producer,
            Admin(namesrv=broker) as admin,
        ):
            await admin.topics.create("orders", queues=2)
            yield broker, producer, admin


async def bodies(messages: Messages, count: int) -> list[bytes]:
    return [(await messages.receive()).body for _ in range(count)]


async def test_only_what_comes_from_now_on(autojump_clock: MockClock) -> None:
    async with shop() as (broker, producer, admin):
        await producer.send(Message("orders", b"before"))
        async with admin.messages.follow("orders") as messages:
            for number in range(5):
                await producer.send(Message("orders", b"%d" % number))
            assert sorted(await bodies(messages, 5)) == [b"0", b"1", b"2", b"3", b"4"]
            with trio.move_on_after(60) as nothing:
                await messages.receive()
            assert nothing.cancelled_caught
        assert await admin.groups.names() == []
        assert broker.core.offsets.topics_of("TOOLS_CONSUMER") == set()


async def test_from_a_store_time_and_from_the_first_message(autojump_clock: MockClock) -> None:
    async with shop() as (_broker, producer, admin):
        await producer.send(Message("orders", b"old"))
        await trio.sleep(10)
        sent = await producer.send(Message("orders", b"new"))
        since = (await admin.messages.by_offset_id(sent.offset_message_id)).store_timestamp
        async with admin.messages.follow("orders", begin=since) as messages:
            assert await bodies(messages, 1) == [b"new"]
        async with admin.messages.follow("orders", begin=0) as messages:
            assert sorted(await bodies(messages, 2)) == [b"new", b"old"]


async def test_tags_and_sql_select(autojump_clock: MockClock) -> None:
    async with shop() as (_broker, producer, admin):
        for number, tag in enumerate(["paid", "open", "refunded"]):
            await producer.send(
                Message("orders", tag.encode(), tags=tag, properties={"n": str(number)})
            )
        async with admin.messages.follow("orders", begin=0, tags="paid||refunded") as messages:
            assert sorted(await bodies(messages, 2)) == [b"paid", b"refunded"]
        async with admin.messages.follow("orders", begin=0, sql="n > 1") as messages:
            assert await bodies(messages, 1) == [b"refunded"]


async def test_new_queues_are_followed_from_their_first_message(
    autojump_clock: MockClock,
) -> None:
    async with (
        shop() as (_broker, producer, admin),
        admin.messages.follow("orders") as messages,
    ):
        await admin.topics.create("orders", queues=4)
        await producer.send(Message("orders", b"x"), queue=MessageQueue("orders", "broker-a", 3))
        found = await messages.receive()
        assert (found.body, found.queue_id) == (b"x", 3)


async def test_a_reader_that_stops_reading_holds_up_nothing_but_itself(
    autojump_clock: MockClock,
) -> None:
    async with (
        shop() as (_broker, producer, admin),
        admin.messages.follow("orders") as messages,
    ):
        for number in range(500):
            await producer.send(Message("orders", b"%d" % number))
        await trio.sleep(100)
        assert len(await bodies(messages, 500)) == 500


@pytest.mark.parametrize("way", ["the block ends", "an error", "the reader closes"])
async def test_messages_that_nobody_takes_any_more_are_no_error(
    way: str, autojump_clock: MockClock
) -> None:
    async with shop() as (_broker, producer, admin):
        for number in range(50):
            await producer.send(Message("orders", b"%d" % number))
        with pytest.raises(BrokenPipeError) if way == "an error" else nullcontext():
            async with admin.messages.follow("orders", begin=0) as messages:
                await messages.receive()
                await trio.testing.wait_all_tasks_blocked()  # the next ones are offered
                if way == "an error":
                    raise BrokenPipeError
                if way == "the reader closes":
                    await messages.aclose()
                    await trio.sleep(100)


async def test_what_is_wrong_is_told_at_once(autojump_clock: MockClock) -> None:
    async with shop() as (_broker, _producer, admin):
        with pytest.raises(TopicNotFoundError):
            async with admin.messages.follow("nope"):
                raise AssertionError("a topic that nobody knows was followed")
        with pytest.raises(ConfigurationError, match="SQL"):
            async with admin.messages.follow("orders", sql="n >"):
                raise AssertionError("an expression that is none was accepted")


async def test_names_are_those_of_the_namespace(autojump_clock: MockClock) -> None:
    async with (
        EmbeddedBroker() as broker,
        Producer("shop", namesrv=broker, namespace="tenant") as producer,
        Admin(namesrv=broker, namespace="tenant") as admin,
    ):
        await producer.send(Message("orders", b"x"))
        async with admin.messages.follow("orders", begin=0) as messages:
            assert (await messages.receive()).topic == "orders"
