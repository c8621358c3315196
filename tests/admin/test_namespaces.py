"""Administration and message queries of one tenant: its own names in arguments and
results, full names at the broker, nobody else touched.
"""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest
import trio

from rocketmq_sdk.admin.client import Admin
from rocketmq_sdk.broker_embedded.broker import EmbeddedBroker
from rocketmq_sdk.consumer.push.consumer import PushConsumer
from rocketmq_sdk.errors import NotFoundError, TopicNotFoundError
from rocketmq_sdk.model.enums import ConsumeFrom
from rocketmq_sdk.model.message import Message
from rocketmq_sdk.model.queue import MessageQueue
from rocketmq_sdk.producer.producer import Producer
from rocketmq_sdk.protocol.bodies.groups import SubscriptionGroupConfig

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from trio.testing import MockClock

    from rocketmq_sdk.model.received import ReceivedMessage
    from rocketmq_sdk.protocol.command import Command


@asynccontextmanager
async def tenant() -> AsyncIterator[tuple[EmbeddedBroker, Admin]]:
    with trio.fail_after(600):
        async with EmbeddedBroker() as broker, Admin(namesrv=broker, namespace="shop") as admin:
            yield broker, admin


async def send(broker: EmbeddedBroker, count: int) -> list[str]:
    async with Producer("pg", namesrv=broker, namespace="shop") as producer:
        sent = [
            await producer.send(Message("orders", str(number).encode(), keys=f"k{number}"))
            for number in range(count)
        ]
        return [each.message_id for each in sent]


async def consume(broker: EmbeddedBroker, admin: Admin, count: int) -> None:
    """Let the group `billing` consume `count` messages, and look at its member
    meanwhile.
    """
    seen: list[ReceivedMessage] = []

    async def listener(message: ReceivedMessage) -> None:
        seen.append(message)

    first = ConsumeFrom.FIRST_OFFSET
    async with PushConsumer(
        "billing",
        namesrv=broker,
        namespace="shop",
        subscriptions={"orders": "*"},
        listener=listener,
        consume_from=first,
    ):
        while len(seen) < count:
            await trio.sleep(0.1)
        assert len(await admin.groups.members("billing")) == 1


async def test_topics_have_the_tenants_names(autojump_clock: MockClock) -> None:
    async with tenant() as (broker, admin):
        await admin.topics.create("orders", queues=2)
        assert broker.core.topics.get("shop%orders") is not None
        assert broker.core.topics.get("orders") is None
        assert "orders" in await admin.topics.names()
        assert await admin.topics.exists("orders")
        assert (await admin.topics.route("orders")).queue_datas[0].read_queue_nums == 2
        assert list(await admin.topics.offsets("orders")) == [
            MessageQueue("orders", "broker-a", 0),
            MessageQueue("orders", "broker-a", 1),
        ]
        async with Admin(namesrv=broker) as other:
            assert not await other.topics.exists("orders")
            assert "shop%orders" in await other.topics.names()
            await other.topics.create("orders")
        await admin.topics.delete("orders")
        assert not await admin.topics.exists("orders")
        assert broker.core.topics.get("orders") is not None
        with pytest.raises(TopicNotFoundError):
            await admin.topics.offsets("orders")


async def test_groups_and_their_offsets_have_the_tenants_names(autojump_clock: MockClock) -> None:
    async with tenant() as (broker, admin):
        await admin.topics.create("orders", queues=1)
        await admin.groups.create(SubscriptionGroupConfig("billing", retry_max_times=3))
        made = broker.core.groups.find_existing("shop%billing")
        assert made is not None
        assert made.retry_max_times == 3
        config = await admin.groups.config("billing")
        assert (config.group_name, config.retry_max_times) == ("billing", 3)
        await send(broker, 4)
        await consume(broker, admin, 4)
        queue = MessageQueue("orders", "broker-a", 0)
        assert (await admin.groups.progress("billing", "orders")).queues[queue].consumer_offset == 4
        assert queue in (await admin.groups.progress("billing")).queues
        assert await admin.groups.reset_offsets("billing", "orders", to=0) == {queue: 0}
        assert await admin.groups.reset_offsets("billing", "orders", queue=queue, offset=3) == {
            queue: 3
        }
        await admin.groups.create("copy")
        await admin.groups.clone_offsets("billing", "copy", "orders", offline=True)
        assert broker.core.offsets.query("shop%copy", "shop%orders", 0) == 3
        await admin.groups.delete("billing")
        assert broker.core.groups.find_existing("shop%billing") is None
        assert broker.core.offsets.query("shop%billing", "shop%orders", 0) == -1


async def test_messages_are_found_and_named_as_the_tenant_writes_them(
    autojump_clock: MockClock,
) -> None:
    async with tenant() as (broker, admin):
        await admin.topics.create("orders", queues=1)
        ids = await send(broker, 3)
        await consume(broker, admin, 3)
        messages = admin.messages
        (found,) = await messages.by_key("orders", "k1")
        assert (found.topic, found.body, found.message_id) == ("orders", b"1", ids[1])
        assert (await messages.by_unique_id("orders", ids[2])).topic == "orders"
        (queue,) = await messages.queues("orders")
        for place in (queue, MessageQueue("orders", "broker-a", 0)):
            assert (await messages.at(place, 1)).topic == "orders"
            assert [message.body for message in await messages.from_offset(place, 1, 9)] == [
                b"1",
                b"2",
            ]
        assert [message.topic async for message in messages.in_time("orders", 0)] == ["orders"] * 3
        assert {verdict.name for verdict in (await messages.track(found)).values()} == {
            "NOT_ONLINE"
        }
        assert list(await messages.track(found)) == ["billing"]
        assert [copy.topic for copy in await messages.stored_copies("orders", ids[0])] == ["orders"]
        with pytest.raises(NotFoundError):
            await messages.at(queue, 3)


async def test_a_namespace_of_the_second_kind_is_named_in_each_request_and_names_stay(
    autojump_clock: MockClock,
) -> None:
    asked: list[tuple[str | None, str | None]] = []

    class Watcher:
        def before(self, command: Command, address: str | None) -> None:
            pass

        def after(self, command: Command, response: Command, address: str | None) -> None:
            asked.append((command.ext_fields.get("nsd"), command.ext_fields.get("ns")))

    with trio.fail_after(600):
        async with (
            EmbeddedBroker() as broker,
            Admin(namesrv=broker, namespace_v2="shop", interceptors=[Watcher()]) as admin,
        ):
            await admin.topics.create("orders", queues=1)
            await admin.groups.create("billing")
            assert await admin.topics.exists("orders")
            assert (await admin.groups.config("billing")).group_name == "billing"
            async with Producer("pg", namesrv=broker, namespace_v2="shop") as producer:
                await producer.send(Message("orders", b"x", keys="k"))
            assert [message.topic for message in await admin.messages.by_key("orders", "k")] == [
                "orders"
            ]
            assert broker.core.topics.get("orders") is not None
    assert asked
    assert set(asked) == {("true", "shop")}
