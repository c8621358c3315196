"""What an administrator asks brokers and name servers for, against the embedded
broker.
"""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest
import trio

from rocketmq_sdk.broker_embedded.broker import EmbeddedBroker
from rocketmq_sdk.client.api.admin import broker_config, broker_runtime_info, update_broker_config
from rocketmq_sdk.client.api.groups import delete_group, update_group
from rocketmq_sdk.client.api.members import lock_batches, unlock_batch
from rocketmq_sdk.client.api.offsets import (
    earliest_store_time,
    max_offset,
    min_offset,
    query_consumer_offset,
    update_consumer_offset,
)
from rocketmq_sdk.client.api.routes import delete_topic_at_name_server, topic_names
from rocketmq_sdk.client.api.topics import create_topic, delete_topic_at_broker
from rocketmq_sdk.client.runtime import Client
from rocketmq_sdk.errors import BrokerError, TopicNotFoundError
from rocketmq_sdk.model.queue import MessageQueue
from rocketmq_sdk.protocol.bodies.groups import SubscriptionGroupConfig
from rocketmq_sdk.protocol.bodies.topics import TopicConfig
from support.consuming import open_sender

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from trio.testing import MockClock

NAME = "broker-a"


@asynccontextmanager
async def administrated() -> AsyncIterator[tuple[EmbeddedBroker, Client, str]]:
    """A broker, a client that knows where it is, and its address."""
    async with EmbeddedBroker() as broker, Client(broker) as client:
        with trio.fail_after(60):
            client.routes.use("TBW102")
            address = (await client.route("TBW102")).broker_datas[0].broker_addrs[0]
            yield broker, client, address


async def test_settings_of_a_running_broker(autojump_clock: MockClock) -> None:
    async with administrated() as (broker, client, address):
        assert f"brokerName={NAME}\n" in await broker_config(client, address)
        before = broker.core.config.current
        await update_broker_config(client, address, "autoCreateTopicEnable=false\n")
        assert (
            before.auto_create_topic_enable,
            broker.core.config.current.auto_create_topic_enable,
        ) == (True, False)
        assert "autoCreateTopicEnable=false\n" in await broker_config(client, address)
        with pytest.raises(BrokerError):
            await update_broker_config(client, address, "defaultTopicQueueNums=many\n")


async def test_counters_of_a_running_broker(autojump_clock: MockClock) -> None:
    async with administrated() as (broker, client, address), open_sender(broker) as sender:
        await create_topic(
            client, address, TopicConfig("orders", read_queue_nums=1, write_queue_nums=1)
        )
        await sender.send("orders", "a", "b", queue=0)
        info = await broker_runtime_info(client, address)
    assert info["brokerActive"] == "true"
    assert info["msgPutTotalTodayNow"] == "2"


async def test_a_topic_comes_and_goes(autojump_clock: MockClock) -> None:
    async with administrated() as (broker, client, address), open_sender(broker) as sender:
        await create_topic(
            client, address, TopicConfig("orders", read_queue_nums=1, write_queue_nums=1)
        )
        await sender.send("orders", "a", "b", queue=0)
        client.routes.use("orders")
        await client.route("orders")
        assert "orders" in await topic_names(client)
        assert (
            await min_offset(client, NAME, "orders", 0),
            await max_offset(client, NAME, "orders", 0),
        ) == (0, 2)
        assert (
            abs(await earliest_store_time(client, NAME, "orders", 0) - client.clock.now_ms())
            < 60_000
        )
        await delete_topic_at_broker(client, address, "orders")
        await delete_topic_at_name_server(client, "orders")
        assert "orders" not in await topic_names(client)
        with pytest.raises(TopicNotFoundError):
            await client.routes.fetch("orders")
        assert await max_offset(client, NAME, "orders", 0) == 0


async def test_a_group_comes_and_goes(autojump_clock: MockClock) -> None:
    async with administrated() as (broker, client, address):
        await update_group(client, address, SubscriptionGroupConfig("billing", retry_max_times=3))
        group = broker.core.groups.find_existing("billing")
        assert group is not None
        assert group.retry_max_times == 3
        await create_topic(
            client, address, TopicConfig("orders", read_queue_nums=1, write_queue_nums=1)
        )
        await update_consumer_offset(client, NAME, "billing", "orders", 0, 5)
        assert await query_consumer_offset(client, NAME, "billing", "orders", 0) == 5
        await delete_group(client, address, "billing", clean_offset=True)
        assert broker.core.groups.find_existing("billing") is None
        assert await query_consumer_offset(client, NAME, "billing", "orders", 0) in (None, 0)


async def test_a_queue_is_locked_for_one_client_at_a_time(autojump_clock: MockClock) -> None:
    queues = {MessageQueue("orders", NAME, 0), MessageQueue("orders", NAME, 1)}
    async with administrated() as (broker, client, _address), Client(broker) as other:
        other.routes.use("TBW102")
        await other.route("TBW102")
        assert await lock_batches(client, "billing", {NAME: [*queues]}) == {NAME: queues}
        assert await lock_batches(client, "billing", {NAME: [*queues]}) == {NAME: queues}
        assert await lock_batches(other, "billing", {NAME: [*queues]}) == {NAME: set()}
        assert await lock_batches(other, "shipping", {NAME: [*queues]}) == {NAME: queues}
        await unlock_batch(client, NAME, "billing", [MessageQueue("orders", NAME, 0)])
        assert await lock_batches(other, "billing", {NAME: [*queues]}) == {
            NAME: {MessageQueue("orders", NAME, 0)}
        }
        await unlock_batch(client, NAME, "billing", [MessageQueue("orders", NAME, 1)], oneway=True)
        await trio.sleep(0.1)
        assert await lock_batches(other, "billing", {NAME: [*queues]}) == {NAME: queues}
