"""Timers with Apache: Java's client at our broker, ours at Apache's, and pending timers
that move with their directory, there and back.
"""

from __future__ import annotations

from signal import SIGTERM
from typing import TYPE_CHECKING, Any

import trio
import trio.lowlevel

from rocketmq_sdk import (
    ConsumeFrom,
    EmbeddedBroker,
    Message,
    Producer,
    PushConsumer,
    ReceivedMessage,
)
from rocketmq_sdk.broker_embedded.settings.config import BrokerConfig
from rocketmq_sdk.protocol.message_codec import decode_message, decode_messages
from support import java
from support.ports import free_port
from support.waiting import unique, until

if TYPE_CHECKING:
    from pathlib import Path

    from rocketmq_sdk.broker_embedded.store.messages import Arrival

SIZES: dict[str, int] = {
    "mappedFileSizeCommitLog": 1 << 20,
    "mappedFileSizeConsumeQueue": 20_000,
    "mappedFileSizeTimerLog": 5200,
}


class Came:
    """What was delivered: body to the lateness in milliseconds of each delivery."""

    def __init__(self) -> None:
        self.late: dict[bytes, list[int]] = {}

    def add(self, message: ReceivedMessage) -> None:
        self.late.setdefault(message.body, []).append(
            message.store_timestamp - int(message.body.split()[0])
        )

    def watch(self, broker: EmbeddedBroker, topic: str) -> None:
        """Take note of what arrives at our broker."""

        def note(arrival: Arrival) -> None:
            record = (
                broker.store.record_at(arrival.physical_offset) if arrival.topic == topic else None
            )
            if record is not None:
                self.add(decode_message(record))

        broker.store.arrivals.append(note)

    async def wait(self, *bodies: bytes) -> None:
        """Until all of them came; none is early, and none comes twice."""
        await until(lambda: self.late.keys() >= set(bodies), seconds=120)
        assert all(len(late) == 1 and late[0] >= 0 for late in self.late.values()), self.late


def messages_of(broker: EmbeddedBroker, topic: str) -> list[ReceivedMessage]:
    """All messages of a topic."""
    found: list[ReceivedMessage] = []
    for queue_id in broker.store.queue_ids(topic):
        for offset in range(broker.store.max_offset(topic, queue_id)):
            found += decode_messages(broker.store.get(topic, queue_id, offset, 1).body)
    return found


def our_broker(root: Path | None, **settings: Any) -> EmbeddedBroker:
    config, _warnings = BrokerConfig().with_settings(
        {name: str(size) for name, size in SIZES.items()} | {"diskMaxUsedSpaceRatio": "95"}
    )
    return EmbeddedBroker(root, config=config, **settings)


async def test_java_sends_timers_to_our_broker_and_takes_one_back(json_driver: java.Driver) -> None:
    topic, producer, came = unique("timers"), unique("producer"), Came()
    async with our_broker(None, listen=0, namesrv_listen=0) as broker:
        came.watch(broker, topic)
        await json_driver.do(
            "producer", id=producer, group=unique("pg"), namesrv=broker.namesrv_address
        )
        now = broker.core.clock.now_ms()
        bodies = [b"%d kept" % (now + wait) for wait in (3000, 4500, 6000)]
        for body in bodies:
            sent = await json_driver.do(
                "send",
                id=producer,
                topic=topic,
                body=body.decode(),
                deliver_at=int(body.split()[0]),
            )
            assert sent["recallHandle"]
        gone = await json_driver.do(
            "send", id=producer, topic=topic, body=f"{now + 5000} taken back", deliver_at=now + 5000
        )
        assert (
            await json_driver.do("recall", id=producer, topic=topic, handle=gone["recallHandle"])
            == gone["msgId"]
        )
        await came.wait(*bodies)
        await trio.lowlevel.checkpoint()
        assert came.late.keys() == set(bodies)
        await json_driver.do("stop", id=producer)


async def test_pending_timers_move_with_their_directory_there_and_back(
    apache: java.ApacheCluster, tmp_path: Path
) -> None:
    """Ours, then Apache's, then ours again; at each a message is taken back, at
    Apache's by our client.
    """
    topic = unique("timers")
    root, came = tmp_path / "store", Came()
    async with our_broker(root) as broker, Producer("pg", namesrv=broker) as producer:
        now = broker.core.clock.now_ms()
        ours = [b"%d ours" % (now + wait) for wait in (9000, 15_000)]
        for body in ours:
            await producer.send(Message(topic, body, deliver_at=int(body.split()[0])))
        await producer.recall(
            await producer.send(
                Message(topic, b"%d taken back at ours" % (now + 15_000), deliver_at=now + 15_000)
            )
        )
    cluster = java.ApacheCluster(tmp_path, apache.namesrv, f"127.0.0.1:{free_port(-2, 1)}", {})
    names = {
        "brokerName": unique("broker"),
        "brokerClusterName": unique("cluster"),
        "recallMessageEnable": "true",
    }
    try:
        java.start_broker(cluster, **SIZES, **java.STOPS_SOON, **java.FLUSHES_TIMERS, **names)

        async def listener(message: ReceivedMessage) -> None:
            came.add(message)

        group = unique("cg")
        async with (
            Producer(unique("pg"), namesrv=apache.namesrv) as producer,
            PushConsumer(
                group,
                namesrv=apache.namesrv,
                subscriptions={topic: "*"},
                listener=listener,
                consume_from=ConsumeFrom.FIRST_OFFSET,
            ),
        ):
            now = producer.client.clock.now_ms()
            theirs = b"%d theirs" % (now + 3000)
            await producer.send(Message(topic, theirs, deliver_at=now + 3000))
            gone = await producer.send(
                Message(topic, b"%d taken back at theirs" % (now + 4000), deliver_at=now + 4000)
            )
            assert await producer.recall(gone) == gone.message_id
            later = [b"%d back again" % (now + wait) for wait in (20_000, 21_000)]
            for body in later:
                await producer.send(Message(topic, body, deliver_at=int(body.split()[0])))
            await producer.recall(
                await producer.send(
                    Message(
                        topic, b"%d taken back between" % (now + 21_000), deliver_at=now + 21_000
                    )
                )
            )
            await came.wait(*ours, theirs)
        cluster.stop("broker", SIGTERM)
    finally:
        cluster.close()
    async with our_broker(root) as broker:
        await until(lambda: broker.parts.timers.service.timers.next_slot is None, seconds=120)
        stored = Came()
        for message in messages_of(broker, topic):
            stored.add(message)
        await stored.wait(*ours, theirs, *later)
        assert stored.late.keys() == {*ours, theirs, *later}
