"""Dead letters are counted, read, sent again to their group alone, and deleted."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest
import trio

from rocketmq_sdk.admin.client import Admin
from rocketmq_sdk.broker_embedded.broker import EmbeddedBroker
from rocketmq_sdk.consumer.outcome import RejectMessage
from rocketmq_sdk.consumer.push.consumer import PushConsumer
from rocketmq_sdk.errors import NotFoundError, RouteError, TopicNotFoundError
from rocketmq_sdk.model.enums import ConsumeFrom
from rocketmq_sdk.model.message import Message
from rocketmq_sdk.producer.producer import Producer
from support.waiting import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from trio.testing import MockClock

    from rocketmq_sdk.model.received import ReceivedMessage


class Listener:
    """Rejects everything until it is told to take it."""

    def __init__(self) -> None:
        self.takes = False
        self.taken: list[ReceivedMessage] = []

    async def __call__(self, message: ReceivedMessage) -> None:
        if not self.takes:
            raise RejectMessage("no")
        self.taken.append(message)


@asynccontextmanager
async def given_up(
    count: int, namespace: str = ""
) -> AsyncIterator[tuple[EmbeddedBroker, Admin, Listener, Listener]]:
    """`count` orders that the group `billing` has given up and `shipping` has taken."""
    listener, other = Listener(), Listener()
    other.takes = True
    common = {"subscriptions": {"orders": "*"}, "consume_from": ConsumeFrom.FIRST_OFFSET}
    with trio.fail_after(3600):
        async with (
            EmbeddedBroker() as broker,
            Admin(namesrv=broker, namespace=namespace) as admin,
            Producer("shop", namesrv=broker, namespace=namespace) as producer,
            PushConsumer(
                "billing", namesrv=broker, namespace=namespace, listener=listener, **common
            ),
            PushConsumer("shipping", namesrv=broker, namespace=namespace, listener=other, **common),
        ):
            for number in range(count):
                await producer.send(
                    Message(
                        "orders",
                        b"%d" % number,
                        keys=[f"k{number}"],
                        tags="paid",
                        properties={"colour": "red"},
                    )
                )

            async def dead() -> int:
                return sum(each.messages for each in await admin.dead_letters.topics())

            while await dead() < count:
                await trio.sleep(1)
            await until(lambda: len(other.taken) == count)
            yield broker, admin, listener, other


@pytest.mark.parametrize("namespace", ["", "tenant"])
async def test_they_are_sent_again_to_their_group_alone(
    namespace: str, autojump_clock: MockClock
) -> None:
    async with given_up(3, namespace) as (_broker, admin, listener, other):
        [topic] = await admin.dead_letters.topics()
        assert (topic.group, topic.messages) == ("billing", 3)
        assert topic.last_store_time > 0
        found = [message async for message in admin.dead_letters.of("billing")]
        assert sorted(message.body for message in found) == [b"0", b"1", b"2"]
        listener.takes = True
        for message in found:
            if message.body != b"1":
                await admin.dead_letters.resend(message, "billing")
        await until(lambda: len(listener.taken) == 2)
        await trio.sleep(60)
        assert sorted(message.body for message in listener.taken) == [b"0", b"2"]
        assert len(other.taken) == 3
        originals = {message.body: message for message in other.taken}
        for message in listener.taken:
            original = originals[message.body]
            assert message.topic == "orders"
            assert message.keys == original.keys
            assert message.tags == "paid"
            assert message.message_id == original.message_id
            assert message.properties["colour"] == "red"
            assert message.reconsume_times == 0


async def test_one_that_fails_again_has_all_its_tries(autojump_clock: MockClock) -> None:
    async with given_up(1) as (broker, admin, listener, _other):
        [message] = [message async for message in admin.dead_letters.of("billing")]
        await admin.topics.create("invoices")
        tries = 0

        async def fail(_message: ReceivedMessage) -> None:
            nonlocal tries
            tries += 1
            raise ValueError("still wrong")

        async with PushConsumer(
            "billing-2",
            namesrv=broker,
            subscriptions={"invoices": "*"},
            listener=fail,
            max_reconsume_times=2,
        ):
            await trio.sleep(1)
            await admin.dead_letters.resend(message, "billing-2")
            await until(lambda: tries == 3)
            await trio.sleep(60)
            assert [topic.messages for topic in await admin.dead_letters.topics()] == [1, 1]
        again = [message async for message in admin.dead_letters.of("billing-2")]
        assert [one.body for one in again] == [b"0"]
        assert not listener.taken


async def test_they_are_deleted_and_come_again(autojump_clock: MockClock) -> None:
    async with given_up(2) as (broker, admin, _listener, _other):
        assert await admin.dead_letters.purge("billing") == 2
        assert await admin.dead_letters.topics() == []
        with pytest.raises(TopicNotFoundError):
            await anext(admin.dead_letters.of("billing"))
        with pytest.raises(NotFoundError, match="billing"):
            await admin.dead_letters.purge("billing")
        async with Producer("shop", namesrv=broker) as producer:
            await producer.send(Message("orders", b"later"))
        while not await admin.dead_letters.topics():
            await trio.sleep(1)
        found = [message async for message in admin.dead_letters.of("billing")]
        assert [message.body for message in found] == [b"later"]


async def test_a_group_that_nobody_knows_is_told(autojump_clock: MockClock) -> None:
    async with given_up(1) as (_broker, admin, _listener, _other):
        [message] = [message async for message in admin.dead_letters.of("billing")]
        with pytest.raises(TopicNotFoundError):
            await admin.dead_letters.resend(message, "nobody")


async def test_a_topic_that_may_not_be_read_is_told_with_the_remedy(
    autojump_clock: MockClock,
) -> None:
    async with given_up(1) as (_broker, admin, _listener, _other):
        await admin.topics.create("%DLQ%billing", queues=1, perm=2)
        with pytest.raises(RouteError, match="perm to 6"):
            await anext(admin.dead_letters.of("billing"))
