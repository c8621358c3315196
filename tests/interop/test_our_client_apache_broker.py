"""Our producer and push consumer against Apache's name server and broker."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from rocketmq_sdk import ConsumeFrom, Message, Producer, PushConsumer, ReceivedMessage, SendStatus
from support.waiting import unique, until

if TYPE_CHECKING:
    from support import java

pytestmark = pytest.mark.both_releases


@pytest.mark.parametrize("encoding", ["JSON", "ROCKETMQ"])
async def test_sends_of_every_kind_reach_our_consumer(
    apache: java.ApacheCluster, encoding: str
) -> None:
    topic = unique("kinds")
    seen: list[ReceivedMessage] = []

    async def listener(message: ReceivedMessage) -> None:
        seen.append(message)

    big = b"compressed " * 2000
    async with Producer(unique("pg"), namesrv=apache.namesrv, header_encoding=encoding) as producer:
        first = await producer.send(
            Message(
                topic,
                "sync ü€😀".encode(),
                tags="a",
                keys=["k1", "k2"],
                properties={"color": "rød"},
                flag=7,
            )
        )
        assert first.status is SendStatus.SEND_OK
        for number in range(0, 24, 6):  # the shape of Apache's answers is known after some
            handles = [
                producer.submit(Message(topic, b"pipelined%d" % (number + n))) for n in range(6)
            ]
            for handle in handles:
                result = await handle
                place = (result.status, result.transaction_id, result.queue.broker_name)
                assert place == (SendStatus.SEND_OK, handle.message_id, first.queue.broker_name)
                assert len(result.offset_message_id) == len(first.offset_message_id)
        await producer.send_oneway(Message(topic, b"oneway"))
        keyed = [
            await producer.send(Message(topic, b"key%d" % n), key="customer 9") for n in range(3)
        ]
        assert len({result.queue for result in keyed}) == 1
        batch = await producer.send_batch(
            [Message(topic, b"batch%d" % n, tags="b") for n in range(5)]
        )
        assert len(batch.message_id.split(",")) == 5
        await producer.send(Message(topic, big))
        await producer.send(Message(topic, b"delayed", delay_level=2))
        expected = {
            "sync ü€😀".encode(),
            *(b"pipelined%d" % n for n in range(24)),
            b"oneway",
            b"key0",
            b"key1",
            b"key2",
            big,
            b"delayed",
            *(b"batch%d" % n for n in range(5)),
        }
        async with PushConsumer(
            unique("cg"),
            namesrv=apache.namesrv,
            subscriptions={topic: "*"},
            listener=listener,
            consume_from=ConsumeFrom.FIRST_OFFSET,
            header_encoding=encoding,
        ):
            await until(lambda: {message.body for message in seen} >= expected)
    assert sorted(message.body for message in seen) == sorted(expected)
    found = next(message for message in seen if message.message_id == first.message_id)
    assert found.body == "sync ü€😀".encode()
    assert found.tags == "a"
    assert found.keys == ("k1", "k2")
    assert found.flag == 7
    assert found.properties["color"] == "rød"
    assert found.offset == first.queue_offset
    assert found.offset_message_id == first.offset_message_id


async def test_tags_are_filtered(apache: java.ApacheCluster) -> None:
    topic = unique("tags")
    seen: list[bytes] = []

    async def listener(message: ReceivedMessage) -> None:
        seen.append(message.body)

    async with (
        Producer(unique("pg"), namesrv=apache.namesrv) as producer,
        PushConsumer(
            unique("cg"),
            namesrv=apache.namesrv,
            subscriptions={topic: "red || blue"},
            listener=listener,
            consume_from=ConsumeFrom.FIRST_OFFSET,
        ),
    ):
        for tag in ("red", "green", "blue", "red", "last red"):
            await producer.send(Message(topic, tag.encode(), tags=tag.removeprefix("last ")))
        await until(lambda: b"last red" in seen and len(seen) >= 4)
    assert sorted(seen) == [b"blue", b"last red", b"red", b"red"]


async def test_failed_messages_are_retried_and_end_in_the_dead_letter_topic(
    apache: java.ApacheCluster,
) -> None:
    topic, group = unique("retry"), unique("cg")
    deliveries: list[tuple[bytes, int, str]] = []
    letters: list[ReceivedMessage] = []

    async def listener(message: ReceivedMessage) -> None:
        deliveries.append((message.body, message.reconsume_times, message.topic))
        if message.body.startswith(b"bad"):
            raise RuntimeError("as the test wants it")

    async def on_letter(message: ReceivedMessage) -> None:
        letters.append(message)

    async with Producer(unique("pg"), namesrv=apache.namesrv) as producer:
        await producer.send(Message(topic, b"bad"))
        await producer.send(Message(topic, b"good"))
        async with PushConsumer(
            group,
            namesrv=apache.namesrv,
            subscriptions={topic: "*"},
            listener=listener,
            consume_from=ConsumeFrom.FIRST_OFFSET,
            max_reconsume_times=2,
        ):
            await until(lambda: sum(body == b"bad" for body, _, _ in deliveries) >= 3)
            async with PushConsumer(
                unique("dlq"),
                namesrv=apache.namesrv,
                subscriptions={f"%DLQ%{group}": "*"},
                listener=on_letter,
                consume_from=ConsumeFrom.FIRST_OFFSET,
            ):
                await until(lambda: bool(letters))
    assert sorted(times for body, times, _ in deliveries if body == b"bad") == [0, 1, 2]
    assert {name for _, _, name in deliveries} == {topic}
    assert [letter.body for letter in letters] == [b"bad"]
