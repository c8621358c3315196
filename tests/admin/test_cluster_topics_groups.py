"""Brokers, topics and groups, through `Admin` on an embedded broker."""

from __future__ import annotations

from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest
import trio

from rocketmq_sdk.admin.client import Admin
from rocketmq_sdk.broker_embedded.broker import EmbeddedBroker
from rocketmq_sdk.consumer.push.consumer import PushConsumer
from rocketmq_sdk.errors import (
    BrokerError,
    ConfigurationError,
    GroupNotFoundError,
    RouteError,
    TopicNotFoundError,
)
from rocketmq_sdk.model.enums import ConsumeFrom
from rocketmq_sdk.model.message import Message
from rocketmq_sdk.model.queue import MessageQueue
from rocketmq_sdk.producer.producer import Producer
from rocketmq_sdk.protocol.bodies.groups import SubscriptionGroupConfig

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from rocketmq_sdk.model.received import ReceivedMessage


@asynccontextmanager
async def administrated() -> AsyncIterator[tuple[EmbeddedBroker, Admin]]:
    with trio.fail_after(600):
        async with EmbeddedBroker() as broker, Admin(namesrv=broker) as admin:
            yield broker, admin


async def send(broker: EmbeddedBroker, topic: str, count: int) -> None:
    async with Producer("p", namesrv=broker) as producer:
        for number in range(count):
            await producer.send(
                Message(topic, str(number).encode()),
                queue=MessageQueue(topic, "broker-a", number % 2),
            )


async def test_brokers_and_their_settings(autojump_clock: object) -> None:
    async with administrated() as (broker, admin):
        (found,) = await admin.cluster.brokers()
        assert (found.cluster, found.name, found.is_master) == ("DefaultCluster", "broker-a", True)
        assert await admin.cluster.brokers(cluster="elsewhere") == []
        with pytest.raises(RouteError, match="elsewhere"):
            await admin.cluster.masters(cluster="elsewhere")
        await admin.cluster.change_settings(found.address, {"fileReservedTime": "24"})
        assert (await admin.cluster.settings(found.address))["fileReservedTime"] == "24"
        assert broker.config.store.file_reserved_time == 24
        assert (await admin.cluster.runtime_info(found.address))["brokerActive"] == "true"
        with pytest.raises(ConfigurationError):
            await admin.cluster.change_settings(found.address, {"a\nb": "1"})
        await admin.cluster.change_settings(
            found.address, {"file_reserved_time": "23", "check_crc_on_recover": "true"}
        )
        assert (await admin.cluster.settings(found.address))["fileReservedTime"] == "23"
        for wrong in ("fileReservdTime", "file_reservd_time", "FileReservedTime"):
            changes = {"fileReservedTime": "9", wrong: "1"}
            with pytest.raises(ConfigurationError, match=r"did you mean fileReservedTime"):
                await admin.cluster.change_settings(found.address, changes)
        shown = await admin.cluster.settings(found.address)
        assert (shown["fileReservedTime"], "fileReservdTime" in shown) == ("23", False)
        for asked in ({}, {"unknown": True}):  # as `mqadmin` sends it, with `unknown`
            with pytest.raises(
                (ConfigurationError, BrokerError), match="the broker has no setting"
            ):
                await admin.cluster.change_settings(found.address, {"fooBar": "1"}, **asked)
        assert "fooBar" not in await admin.cluster.settings(found.address)


async def test_a_topic_is_made_measured_and_deleted(autojump_clock: object) -> None:
    async with administrated() as (broker, admin):
        await admin.topics.create("orders", queues=2, attributes={"message.type": "NORMAL"})
        assert await admin.topics.exists("orders")
        assert await admin.topics.names() == ["orders"]
        everything = await admin.topics.names(system=True)
        assert {
            "orders",
            "TBW102",
            "broker-a",
            "DefaultCluster",
            "DefaultCluster_REPLY_TOPIC",
            "rmq_sys_wheel_timer",
        } < set(everything)
        assert everything == sorted(everything)
        await send(broker, "orders", 3)
        offsets = await admin.topics.offsets("orders")
        assert [(queue.queue_id, ends.max_offset) for queue, ends in offsets.items()] == [
            (0, 2),
            (1, 1),
        ]
        await admin.topics.create("orders", queues=1, read_queues=2)
        (data,) = (await admin.topics.route("orders")).queue_datas
        assert (data.read_queue_nums, data.write_queue_nums) == (2, 1)
        await admin.topics.delete("orders")
        assert not await admin.topics.exists("orders")
        with pytest.raises(TopicNotFoundError):
            await admin.topics.offsets("orders")


async def test_a_topic_loses_and_gets_queues_while_clients_run(autojump_clock: object) -> None:
    """Written queues go first, read ones when they are empty: no send fails, and what
    was sent is consumed, each message once.
    """
    seen: list[bytes] = []

    async def listener(message: ReceivedMessage) -> None:
        seen.append(message.body)

    async with administrated() as (broker, admin):
        await admin.topics.create("orders", queues=4)
        sent: dict[bytes, int] = {}
        async with (
            Producer("p", namesrv=broker) as producer,
            PushConsumer(
                "cg",
                namesrv=broker,
                subscriptions={"orders": "*"},
                listener=listener,
                consume_from=ConsumeFrom.FIRST_OFFSET,
            ),
        ):

            async def send_some(step: str) -> set[int]:
                for number in range(8):
                    body = f"{step} {number}".encode()
                    sent[body] = (await producer.send(Message("orders", body))).queue.queue_id
                await trio.sleep(40)
                return {
                    queue_id for body, queue_id in sent.items() if body.startswith(step.encode())
                }

            assert await send_some("four") == {0, 1, 2, 3}
            await admin.topics.create("orders", queues=1, read_queues=4)
            await send_some("while clients learn of it")
            assert await send_some("one") == {0}
            await admin.topics.create("orders", queues=1)
            assert await send_some("one to read") == {0}
            await admin.topics.create("orders", queues=6)
            await send_some("while clients learn of more")
            assert await send_some("six") == {0, 1, 2, 3, 4, 5}
        assert sorted(seen) == sorted(sent)


@pytest.mark.parametrize("name", ["", "no such!", "t" * 200])
async def test_names_are_checked_before_they_are_sent(autojump_clock: object, name: str) -> None:
    async with administrated() as (_broker, admin):
        with pytest.raises(ConfigurationError):
            await admin.topics.create(name)
        with pytest.raises(ConfigurationError):
            await admin.groups.create(name)


async def test_groups_are_listed_and_none_is_invented(autojump_clock: object) -> None:
    async with administrated() as (broker, admin):
        assert await admin.groups.names() == []
        await admin.topics.create("orders", queues=2)
        await send(broker, "orders", 4)
        for ask in (
            admin.groups.config("nope"),
            admin.groups.progress("nope"),
            admin.groups.progress("nope", "orders"),
        ):
            with pytest.raises(GroupNotFoundError, match="no master keeps a group 'nope'"):
                await ask
        assert await admin.groups.names() == []
        await admin.groups.create("billing")
        assert await admin.groups.names() == ["billing"]
        assert "TOOLS_CONSUMER" in await admin.groups.names(system=True)
        assert (await admin.groups.progress("billing")).lag == 0
        with pytest.raises(TopicNotFoundError, match="ordes"):
            await admin.groups.progress("billing", "ordes")


async def test_a_group_falls_behind_and_is_set_to_other_offsets(autojump_clock: object) -> None:
    async with administrated() as (broker, admin):
        await admin.topics.create("orders", queues=2)
        await admin.groups.create(SubscriptionGroupConfig("billing", retry_max_times=3))
        assert (await admin.groups.config("billing")).retry_max_times == 3
        await send(broker, "orders", 4)
        seen: list[bytes] = []

        async def listener(message: ReceivedMessage) -> None:
            seen.append(message.body)

        async with PushConsumer(
            "billing",
            namesrv=broker,
            subscriptions={"orders": "*"},
            consume_from=ConsumeFrom.FIRST_OFFSET,
            listener=listener,
        ):
            while len(seen) < 4:
                await trio.sleep(0.1)
            assert [member.client_id for member in await admin.groups.members("billing")] != []
        assert await admin.groups.members("billing") == []
        await send(broker, "orders", 6)
        assert (await admin.groups.progress("billing", "orders")).lag == 6
        skipped = await admin.groups.reset_offsets("billing", "orders")
        assert [offset for _queue, offset in skipped.items()] == [5, 5]
        assert (await admin.groups.progress("billing")).lag == 0
        one = MessageQueue("orders", "broker-a", 1)
        assert await admin.groups.reset_offsets("billing", "orders", queue=one, offset=2) == {
            one: 2
        }
        assert (await admin.groups.progress("billing", "orders")).lag == 3
        assert set(
            (
                await admin.groups.reset_offsets(
                    "billing", "orders", to=datetime(2000, 1, 1, tzinfo=UTC)
                )
            ).values()
        ) == {0}
        await admin.groups.create("copy")
        await admin.groups.clone_offsets("billing", "copy", "orders", offline=True)
        assert (await admin.groups.progress("copy", "orders")).lag == 10
        await admin.groups.delete("copy")
        with pytest.raises(GroupNotFoundError):
            await admin.groups.progress("copy")


async def test_resets_that_make_no_sense(autojump_clock: object) -> None:
    async with administrated() as (_broker, admin):
        await admin.topics.create("orders", queues=2)
        queue = MessageQueue("orders", "broker-a", 0)
        with pytest.raises(ConfigurationError, match="together"):
            await admin.groups.reset_offsets("g", "orders", queue=queue)
        with pytest.raises(ConfigurationError, match="zone"):
            await admin.groups.reset_offsets("g", "orders", to=datetime(2000, 1, 1))
        with pytest.raises(TopicNotFoundError):
            await admin.groups.reset_offsets("g", "nope")
        with pytest.raises(RouteError, match="broker-z"):
            await admin.groups.reset_offsets(
                "g", "orders", queue=MessageQueue("orders", "broker-z", 0), offset=1
            )
        await admin.groups.create("g")
        with pytest.raises(BrokerError):
            await admin.groups.reset_offsets("g", "orders", queue=queue, offset=99)
