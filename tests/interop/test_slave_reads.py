"""Our consumers on a pair of Apache's brokers: they read from the slave when the master
is gone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import trio

from rocketmq_sdk import (
    Admin,
    Client,
    ConsumeFrom,
    Message,
    Producer,
    PushConsumer,
    ReceivedMessage,
    SendStatus,
)
from rocketmq_sdk.client.api.members import consumer_ids
from rocketmq_sdk.client.api.topics import create_topic
from rocketmq_sdk.protocol.bodies.topics import TopicConfig
from support import java
from support.ports import free_port
from support.waiting import unique, until

if TYPE_CHECKING:
    from pathlib import Path

PAIR: dict[str, Any] = {"slaveReadEnable": "true", **java.STOPS_SOON}


async def test_our_consumer_reads_from_apaches_slave_while_the_master_is_gone(
    tmp_path: Path,
) -> None:
    topic, group = unique("orders"), unique("readers")
    for name in ("master", "slave"):
        (tmp_path / name).mkdir()
    master = java.ApacheCluster(
        tmp_path / "master",
        f"127.0.0.1:{free_port()}",
        f"127.0.0.1:{free_port(-2, 1)}",
        {},
    )
    slave = java.ApacheCluster(
        tmp_path / "slave", master.namesrv, f"127.0.0.1:{free_port(-2, 1)}", {}
    )

    def start() -> None:
        java.start_namesrv(master)
        replicated = {
            "brokerRole": "SYNC_MASTER",
            "totalReplicas": 2,
            "inSyncReplicas": 2,
            "slaveTimeout": 60_000,
        }
        java.start_broker(master, **replicated, **PAIR)
        java.start_broker(slave, brokerRole="SLAVE", brokerId=1, **PAIR)

    found: list[int] = []

    async def listener(message: ReceivedMessage) -> None:
        found.append(int(message.body))

    try:
        await trio.to_thread.run_sync(start)
        async with Producer(unique("writers"), namesrv=master.namesrv, send_timeout=90) as producer:
            await Admin(client=producer.client).topics.create(topic, queues=2)
            for number in range(20):
                assert (
                    await producer.send(Message(topic, b"%d" % number))
                ).status is SendStatus.SEND_OK
        async with Client(master.namesrv) as client:
            # It would learn of the topic from its master, but only once a minute.
            await create_topic(client, slave.broker, TopicConfig(topic, 2, 2))
        await trio.to_thread.run_sync(lambda: master.stop("broker"))
        consumer = PushConsumer(
            group,
            namesrv=master.namesrv,
            subscriptions={topic: "*"},
            listener=listener,
            consume_from=ConsumeFrom.FIRST_OFFSET,
            pull_time_delay_when_exception=0.5,
        )
        async with consumer:
            await until(lambda: len(set(found)) == 20, 120)
            async with Client(master.namesrv) as client:
                assert len(await consumer_ids(client, slave.broker, group)) == 1
        assert sorted(found) == list(range(20))
    finally:
        slave.close()
        master.close()
