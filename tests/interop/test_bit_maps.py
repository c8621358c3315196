"""Bit maps of filters in directories that move between Apache's broker and ours:
computed alike, and used by the other side.
"""

from __future__ import annotations

from contextlib import asynccontextmanager
from signal import SIGTERM
from typing import TYPE_CHECKING

import trio

from rocketmq_sdk.admin.client import Admin
from rocketmq_sdk.broker_embedded.broker import EmbeddedBroker
from rocketmq_sdk.broker_embedded.store.queues.consume_queue import ConsumeQueue
from rocketmq_sdk.broker_embedded.store.queues.consume_queue_ext import is_address
from rocketmq_sdk.consumer.push.consumer import PushConsumer
from rocketmq_sdk.model.enums import ConsumeFrom, ExpressionType
from rocketmq_sdk.model.message import Message
from rocketmq_sdk.producer.producer import Producer
from rocketmq_sdk.protocol.message_codec import decode_message
from support import java
from support.ports import free_port
from support.waiting import unique, until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from rocketmq_sdk.model.received import ReceivedMessage

BROKER = "bit-maps"
SETTINGS: dict[str, object] = {
    "enable_consume_queue_ext": True,
    "enable_calc_filter_bit_map": True,
    "mapped_file_size_commit_log": 16 * 1024 * 1024,
    "mapped_file_size_consume_queue": 20 * 10000,
    "max_hash_slot_num": 10000,
    "max_index_num": 40000,
}
GROUPS = {"high": "a > 7", "low": "a < 2", "mid": "a BETWEEN 3 AND 5 AND TAGS = 'paid'"}
WANTED = {"high": [b"8", b"9"], "low": [b"0", b"1"], "mid": [b"3", b"4", b"5"]}


@asynccontextmanager
async def apache_broker(apache: java.ApacheCluster, directory: Path) -> AsyncIterator[str]:
    """A broker of Apache's with bit maps on a directory; gives the name server."""
    cluster = java.ApacheCluster(directory, apache.namesrv, f"127.0.0.1:{free_port(-2, 1)}", {})

    def start() -> None:
        java.start_broker(
            cluster,
            brokerName=BROKER,
            brokerClusterName=BROKER,
            enableConsumeQueueExt="true",
            enableCalcFilterBitMap="true",
            **java.STOPS_SOON,
        )

    try:
        await trio.to_thread.run_sync(start)
        yield apache.namesrv
        await trio.to_thread.run_sync(cluster.stop, "broker", SIGTERM)
    finally:
        cluster.close()


async def send(producer: Producer, topic: str) -> None:
    """Ten messages to the queues of the broker with bit maps; the session's broker has
    the topic as well.
    """
    queues = [
        queue for queue in await producer.publish_queues(topic) if queue.broker_name == BROKER
    ]
    for value in range(10):
        message = Message(topic, b"%d" % value, tags="paid", properties={"a": str(value)})
        await producer.send(message, queue=queues[value % len(queues)])


async def consume(namesrv: str | EmbeddedBroker, topic: str, rounds: int) -> None:
    """Bring all groups on line, send ten messages, and wait until each group has what
    it wants of so many rounds of messages.
    """
    seen: dict[str, list[bytes]] = {group: [] for group in GROUPS}
    ready = {group: trio.Event() for group in GROUPS}

    async def run(group: str, expression: str) -> None:
        async def listener(message: ReceivedMessage) -> None:
            seen[group].append(message.body)

        subscriptions = {topic: (expression, ExpressionType.SQL92)}
        async with PushConsumer(
            f"{group}_{topic}",
            namesrv=namesrv,
            subscriptions=subscriptions,
            listener=listener,
            consume_from=ConsumeFrom.FIRST_OFFSET,
        ) as consumer:
            await until(
                lambda: any(
                    queue.broker_name == BROKER and queue.topic == topic
                    for queue in consumer.statistics().queues
                )
            )
            ready[group].set()
            await trio.sleep_forever()

    async with Producer(unique("pg"), namesrv=namesrv) as producer, trio.open_nursery() as nursery:
        for group, expression in GROUPS.items():
            nursery.start_soon(run, group, expression)
        for event in ready.values():
            await event.wait()
        await send(producer, topic)
        await until(
            lambda: all(sorted(seen[group]) == sorted(WANTED[group] * rounds) for group in GROUPS),
            120,
        )
        nursery.cancel_scope.cancel()


def bit_maps(broker: EmbeddedBroker, topic: str) -> list[tuple[bytes, bytes, bytes | None]]:
    """Of each message of a topic: body, the kept bit map, the one that we compute for
    it.
    """
    found = []
    for queue_id in broker.store.queue_ids(topic):
        queue = broker.store._table.find(topic, queue_id)
        assert isinstance(queue, ConsumeQueue)
        assert queue.ext is not None
        for offset in range(queue.min_offset, queue.max_offset):
            address = queue._read_unit(offset)[2]
            assert is_address(address)
            extension, unit = queue.ext.get(address), queue.unit(offset)
            assert extension is not None
            assert unit is not None
            record = broker.store.record_at(unit[0], unit[1])
            assert record is not None
            message = decode_message(record)
            found.append(
                (
                    message.body,
                    extension.bit_map,
                    broker.parts.filters.expressions.bit_map(topic, message.properties),
                )
            )
    return sorted(found)


async def test_a_directory_with_bit_maps_goes_to_apache_and_comes_back(
    apache: java.ApacheCluster, tmp_path: Path
) -> None:
    topic = unique("bits")
    async with EmbeddedBroker(tmp_path / "store", broker_name=BROKER, **SETTINGS) as broker:  # type: ignore[arg-type]
        async with Producer(unique("pg"), namesrv=broker) as producer:
            await Admin(client=producer.client).topics.create(topic, queues=2)
            await consume(broker, topic, 1)
            # The groups have left; their bits are set all the same.
            await send(producer, topic)
        assert len(bit_maps(broker, topic)) == 20
    async with apache_broker(apache, tmp_path) as namesrv:
        await consume(namesrv, topic, 2)
    async with EmbeddedBroker(tmp_path / "store", broker_name=BROKER, **SETTINGS) as broker:  # type: ignore[arg-type]
        kept = bit_maps(broker, topic)
        assert [body for body, _kept, _ours in kept] == sorted(
            b"%d" % value for value in range(10) for _ in range(3)
        )
        assert [bits for _body, bits, _ours in kept] == [bits for _body, _kept, bits in kept]
        assert len({bits for _body, bits, _ours in kept}) == 4
        await consume(broker, topic, 1)
