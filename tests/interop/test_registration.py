"""Brokers and name servers of both kinds: who registers where, and what happens when
one of them is gone.
"""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import trio

from rocketmq_sdk import Admin, Client, EmbeddedBroker, Message, Producer
from rocketmq_sdk.client.api.topics import create_topic
from rocketmq_sdk.errors import TopicNotFoundError
from rocketmq_sdk.protocol.bodies.topics import TopicConfig
from support import java
from support.ports import free_port
from support.waiting import unique, until

if TYPE_CHECKING:
    from pathlib import Path


async def _brokers(namesrv: str, topic: str) -> dict[str, dict[int, str]]:
    """Broker names and addresses that a name server gives for a topic; empty when it
    knows no such topic.
    """
    async with Client(namesrv) as client:
        try:
            route = await client.route(topic)
        except TopicNotFoundError:
            return {}
    return {data.broker_name: dict(data.broker_addrs) for data in route.broker_datas}


async def _known(namesrv: str, topic: str) -> None:
    with trio.fail_after(60):
        while not await _brokers(namesrv, topic):
            await trio.sleep(0.1)


async def _gone(namesrv: str, topic: str) -> None:
    with trio.fail_after(60):
        while await _brokers(namesrv, topic):
            await trio.sleep(0.1)


async def test_our_broker_lives_at_apaches_name_server_and_one_that_is_away_delays_nobody(
    apache: java.ApacheCluster,
) -> None:
    topic, name = unique("orders"), unique("broker")
    addresses = f"127.0.0.1:{free_port()};{apache.namesrv}"
    async with EmbeddedBroker(listen=0, namesrv_addr=addresses, broker_name=name) as broker:
        await until(lambda: broker.parts.registration.service.registered_at)
        async with Producer(unique("writers"), namesrv=broker) as producer:
            await Admin(client=producer.client).topics.create(topic, queues=2)
            await producer.send(Message(topic, b"one"))
        assert await _brokers(apache.namesrv, topic) == {name: {0: broker.address}}, (
            "a new topic is there before its first message is answered"
        )
        async with Producer(unique("others"), namesrv=apache.namesrv) as producer:
            result = await producer.send(Message(topic, b"two"))
            assert result.queue.broker_name == name
    await _gone(apache.namesrv, topic)


async def test_apaches_broker_lives_at_two_name_servers_of_ours_until_it_is_killed(
    tmp_path: Path,
) -> None:
    topic = unique("orders")
    async with (
        EmbeddedBroker(namesrv_listen=0, broker_name="first") as first,
        EmbeddedBroker(namesrv_listen=0, broker_name="second") as second,
    ):
        assert first.namesrv_address is not None
        assert second.namesrv_address is not None
        cluster = java.ApacheCluster(
            tmp_path, first.namesrv_address, f"127.0.0.1:{free_port(-2, 1)}", {}
        )
        both = f"{first.namesrv_address};{second.namesrv_address}"
        try:
            await trio.to_thread.run_sync(lambda: java.start_broker(cluster, namesrvAddr=both))
            async with Client(both) as client:
                await create_topic(client, cluster.broker, TopicConfig(topic, 2, 2))
            # Apache's broker answers before the name servers have learned of it.
            await _known(first.namesrv_address, topic)
            await _known(second.namesrv_address, topic)
            async with Producer(unique("writers"), namesrv=both) as producer:
                result = await producer.send(Message(topic, b"one"))
                assert result.queue.broker_name == "broker-a"
            for namesrv in (first.namesrv_address, second.namesrv_address):
                assert await _brokers(namesrv, topic) == {"broker-a": {0: cluster.broker}}
            await trio.to_thread.run_sync(lambda: cluster.stop("broker", signal.SIGKILL))
            await _gone(first.namesrv_address, topic)
            await _gone(second.namesrv_address, topic)
        finally:
            cluster.close()
