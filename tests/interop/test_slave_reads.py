"""Our consumers on a pair of Apache's brokers: they read from the slave when the master is gone."""

from pathlib import Path
from typing import Any

import trio

from rocketmq_sdk import Client, ConsumeFrom, Message, Producer, PushConsumer, ReceivedMessage, SendStatus
from rocketmq_sdk.client.api.groups import consumer_ids
from support import java
from support.waiting import unique, until

PAIR: dict[str, Any] = {"slaveReadEnable": "true"}


async def test_our_consumer_reads_from_apaches_slave_while_the_master_is_gone(tmp_path: Path) -> None:
    topic, group = unique("orders"), unique("readers")
    for name in ("master", "slave"):
        (tmp_path / name).mkdir()
    master = java.ApacheCluster(tmp_path / "master", f"127.0.0.1:{java.free_port()}", f"127.0.0.1:{java.free_port(-2, 1)}", {})
    slave = java.ApacheCluster(tmp_path / "slave", master.namesrv, f"127.0.0.1:{java.free_port(-2, 1)}", {})

    def start() -> None:
        java.start_namesrv(master)
        replicated = {"brokerRole": "SYNC_MASTER", "totalReplicas": 2, "inSyncReplicas": 2, "slaveTimeout": 60_000}
        java.start_broker(master, **replicated, **PAIR)
        java.start_broker(slave, brokerRole="SLAVE", brokerId=1, **PAIR)

    found: list[int] = []

    async def listener(message: ReceivedMessage) -> None:
        found.append(int(message.body))

    try:
        await trio.to_thread.run_sync(start)
        async with Producer(unique("writers"), namesrv=master.namesrv, send_timeout=90) as producer:
            await producer.create_topic(topic, queues=2)
            for number in range(20):
                assert (await producer.send(Message(topic, b"%d" % number))).status is SendStatus.SEND_OK
        # The master's tables reach Apache's slave within a minute or at its start; a new start is quicker.
        await trio.to_thread.run_sync(lambda: slave.stop("broker"))
        await trio.to_thread.run_sync(lambda: java.start_broker(slave, brokerRole="SLAVE", brokerId=1, **PAIR))
        await _knows(slave.broker, master.namesrv, topic)
        await trio.to_thread.run_sync(lambda: master.stop("broker"))
        consumer = PushConsumer(
            group, namesrv=master.namesrv, subscriptions={topic: "*"}, listener=listener, consume_from=ConsumeFrom.FIRST_OFFSET,
            pull_time_delay_when_exception=0.5,
        )  # fmt: skip
        async with consumer:
            await until(lambda: len(set(found)) == 20, 120)
            async with Client(master.namesrv) as client:
                assert len(await consumer_ids(client, slave.broker, group)) == 1
        assert sorted(found) == list(range(20))
    finally:
        slave.close()
        master.close()


async def _knows(address: str, namesrv: str, topic: str) -> None:
    from rocketmq_sdk.client.api.topics import topic_config

    async with Client(namesrv) as client:
        with trio.fail_after(120):
            while True:
                try:
                    await topic_config(client, address, topic)
                except Exception:
                    await trio.sleep(0.5)
                else:
                    return
