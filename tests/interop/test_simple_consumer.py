"""Our simple consumer against Apache's broker, and beside Apache's POP consumer in one
group at both brokers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import trio
import trio.testing

from rocketmq_sdk import (
    Admin,
    ConsumeFrom,
    Message,
    PoppedMessage,
    Producer,
    ReceiptHandleError,
    SimpleConsumer,
)
from rocketmq_sdk.names import DLQ_PREFIX
from support.waiting import unique

if TYPE_CHECKING:
    from support import java

pytestmark = pytest.mark.both_releases

OPTIONS = {"consume_from": ConsumeFrom.FIRST_OFFSET, "min_invisible_duration": 1.0}


async def receive_until(
    consumer: SimpleConsumer, count: int, invisible: float = 60.0
) -> list[PoppedMessage]:
    """Receive until so many messages have come."""
    found: list[PoppedMessage] = []
    with trio.fail_after(60):
        while len(found) < count:
            found += await consumer.receive(32, invisible, 2)
    return found


@pytest.mark.parametrize("encoding", ["JSON", "ROCKETMQ"])
async def test_messages_are_received_once_and_acknowledged(
    apache: java.ApacheCluster, encoding: str
) -> None:
    topic, group = unique("simple"), unique("cg")
    async with Producer(unique("pg"), namesrv=apache.namesrv) as producer:
        for number in range(60):
            await producer.send(
                Message(topic, str(number).encode(), tags="even" if number % 2 == 0 else "odd")
            )
    async with SimpleConsumer(
        group,
        namesrv=apache.namesrv,
        subscriptions={topic: "even"},
        header_encoding=encoding,
        **OPTIONS,  # type: ignore[arg-type]
    ) as consumer:
        messages = await receive_until(consumer, 30)
        assert sorted(int(message.body) for message in messages) == list(range(0, 60, 2))
        assert {message.delivery_attempt for message in messages} == {1}
        await consumer.batch_ack(messages[:20])
        for message in messages[20:]:
            await consumer.ack(message)
        assert await consumer.receive(32, 10, 0) == []
        with pytest.raises(ReceiptHandleError, match="was used"):
            await consumer.ack(messages[0])


async def test_what_is_not_acknowledged_comes_again_until_it_is_a_dead_letter(
    apache: java.ApacheCluster,
) -> None:
    topic, group = unique("simple"), unique("cg")
    async with Producer(unique("pg"), namesrv=apache.namesrv) as producer:
        sent = await producer.send(Message(topic, b"poison"))
    async with SimpleConsumer(
        group,
        namesrv=apache.namesrv,
        subscriptions={topic: "*"},
        max_reconsume_times=1,
        **OPTIONS,  # type: ignore[arg-type]
    ) as consumer:
        attempts = [(await receive_until(consumer, 1, 1.0))[0].delivery_attempt for _ in range(2)]
        assert attempts == [1, 2]
        with trio.fail_after(60):
            while not consumer.statistics().dead_letters:
                assert await consumer.receive(32, 1, 2) == []
    async with SimpleConsumer(
        unique("cg"),
        namesrv=apache.namesrv,
        subscriptions={DLQ_PREFIX + group: "*"},
        **OPTIONS,  # type: ignore[arg-type]
    ) as undertaker:
        [dead] = await receive_until(undertaker, 1)
        assert dead.body == b"poison"
        assert dead.message_id == sent.message_id
        await undertaker.ack(dead)


async def test_a_changed_invisible_duration_counts(apache: java.ApacheCluster) -> None:
    topic, group = unique("simple"), unique("cg")
    async with Producer(unique("pg"), namesrv=apache.namesrv) as producer:
        await producer.send(Message(topic, b"later"))
    async with SimpleConsumer(
        group, namesrv=apache.namesrv, subscriptions={topic: "*"}, **OPTIONS
    ) as consumer:  # type: ignore[arg-type]
        [message] = await receive_until(consumer, 1)
        old = message.receipt
        await consumer.change_invisible_duration(message, 1)
        with pytest.raises(ReceiptHandleError, match="was replaced"):
            await consumer.ack(old)
        [again] = await receive_until(consumer, 1)
        assert (again.body, again.delivery_attempt, again.topic) == (b"later", 2, topic)
        with pytest.raises(ReceiptHandleError, match="is expired"):
            await consumer.ack(message)
        async with consumer.processing(again):
            await trio.lowlevel.checkpoint()
        assert await consumer.receive(32, 10, 0) == []


async def test_a_message_of_any_topic_ends_the_wait(apache: java.ApacheCluster) -> None:
    topics, group = [unique("simple"), unique("simple")], unique("cg")
    async with Producer(unique("pg"), namesrv=apache.namesrv) as producer:
        for topic in topics:
            await Admin(client=producer.client).topics.create(topic, queues=2)
        options = OPTIONS | {"subscriptions": dict.fromkeys(topics, "*")}
        async with SimpleConsumer(group, namesrv=apache.namesrv, **options) as consumer:  # type: ignore[arg-type]
            for topic in (*topics, topics[1]):
                async with trio.open_nursery() as nursery:
                    received: list[PoppedMessage] = []

                    async def wait(received: list[PoppedMessage] = received) -> None:
                        received += await consumer.receive(await_duration=60)

                    nursery.start_soon(wait)
                    await trio.testing.wait_all_tasks_blocked(0.2)
                    await producer.send(Message(topic, topic.encode()))
                assert [(message.topic, message.body) for message in received] == [
                    (topic, topic.encode())
                ]
                await consumer.batch_ack(received)
