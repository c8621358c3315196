"""A simple consumer with `fifo`: the next messages of a queue come when the ones before
are done, and a lost answer does not block it.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any

import trio

from rocketmq_sdk.broker_embedded.broker import EmbeddedBroker
from rocketmq_sdk.codes import RequestCode
from rocketmq_sdk.consumer.simple.consumer import SimpleConsumer
from rocketmq_sdk.errors import RocketMQError
from rocketmq_sdk.model.enums import ConsumeFrom
from rocketmq_sdk.protocol.command import Command
from rocketmq_sdk.testing.interception import intercept
from support.consuming import Sender, open_sender, texts

if TYPE_CHECKING:
    from trio.testing import MockClock

    from rocketmq_sdk.consumer.pop.receipt import PoppedMessage
    from rocketmq_sdk.remoting.channel import Channel, Handler


def in_order(broker: EmbeddedBroker) -> SimpleConsumer:
    return SimpleConsumer(
        "billing",
        namesrv=broker,
        subscriptions={"orders": "*"},
        consume_from=ConsumeFrom.FIRST_OFFSET,
        fifo=True,
    )


async def prepare(sender: Sender, count: int, queues: int = 1) -> None:
    await sender.create_topic("orders", queues)
    for number in range(count):
        await sender.send("orders", str(number), queue=number % queues)


async def receive(
    consumer: SimpleConsumer, most: int, invisible: float = 30.0
) -> list[PoppedMessage]:
    with trio.fail_after(600):
        while not (messages := await consumer.receive(most, invisible, 5)):
            pass
    return messages


async def test_the_next_messages_come_when_all_before_are_acknowledged(
    autojump_clock: MockClock,
) -> None:
    async with (
        EmbeddedBroker() as broker,
        open_sender(broker) as sender,
        in_order(broker) as consumer,
    ):
        await prepare(sender, 5)
        first = await receive(consumer, 2, 600)
        assert texts(first) == ["0", "1"]
        assert await consumer.receive(2, 600, 5) == []
        await consumer.ack(first[1])
        assert await consumer.receive(2, 600, 5) == []
        await consumer.ack(first[0])
        assert texts(await receive(consumer, 2)) == ["2", "3"]


async def test_what_was_not_acknowledged_comes_again_before_what_is_behind_it(
    autojump_clock: MockClock,
) -> None:
    async with (
        EmbeddedBroker() as broker,
        open_sender(broker) as sender,
        in_order(broker) as consumer,
    ):
        await prepare(sender, 4)
        first = await receive(consumer, 2, 20)
        popped_at = trio.current_time()
        await consumer.ack(first[0])
        again = await receive(consumer, 2, 20)
        assert trio.current_time() - popped_at >= 19
        assert texts(again)[0] == "1"
        assert again[0].delivery_attempt == 2
        await consumer.batch_ack(again)
        rest = texts(again)
        while rest[-1] != "3":
            messages = await receive(consumer, 2, 20)
            await consumer.batch_ack(messages)
            rest += texts(messages)
        assert rest == ["1", "2", "3"]


async def test_a_changed_duration_holds_the_queue_for_as_long(autojump_clock: MockClock) -> None:
    async with (
        EmbeddedBroker() as broker,
        open_sender(broker) as sender,
        in_order(broker) as consumer,
    ):
        await prepare(sender, 2)
        (message,) = await receive(consumer, 1, 20)
        changed_at = trio.current_time()
        await consumer.change_invisible_duration(message, 100)
        assert texts(await receive(consumer, 1, 20)) == ["0"]
        assert trio.current_time() - changed_at >= 99


async def test_many_members_keep_the_order_of_each_queue(autojump_clock: MockClock) -> None:
    seen: defaultdict[int, list[int]] = defaultdict(list)
    working: set[int] = set()

    async def work(consumer: SimpleConsumer) -> None:
        while sum(map(len, seen.values())) < 60:
            for message in await consumer.receive(1, 60, 2):
                assert message.queue_id not in working, "two members have messages of one queue"
                working.add(message.queue_id)
                await trio.sleep(0.5)
                seen[message.queue_id].append(int(message.body))
                working.discard(message.queue_id)
                await consumer.ack(message)

    async with EmbeddedBroker() as broker, open_sender(broker) as sender:
        await prepare(sender, 60, 3)
        async with in_order(broker) as one, in_order(broker) as two:
            with trio.fail_after(3600):
                async with trio.open_nursery() as nursery:
                    for consumer in (one, one, two, two):
                        nursery.start_soon(work, consumer)
    assert dict(seen) == {queue_id: list(range(queue_id, 60, 3)) for queue_id in range(3)}


async def test_messages_of_a_lost_answer_come_at_once(autojump_clock: MockClock) -> None:
    lost: list[Any] = []
    async with EmbeddedBroker() as broker, open_sender(broker) as sender:
        await prepare(sender, 3)

        def lose_the_first(channel: Channel, request: Command, serve: Handler) -> Any:
            if lost:
                return serve(channel, request)
            lost.append(serve(channel, request))
            return None

        intercept(broker, RequestCode.POP_MESSAGE, by=lose_the_first)
        async with in_order(broker) as consumer:
            found: list[PoppedMessage] = []
            with trio.fail_after(300):  # the invisible time is longer
                while not found:
                    try:
                        found = await consumer.receive(2, 3600, 1)
                    except RocketMQError:
                        await trio.sleep(0.1)
            assert texts(found) == ["0", "1"]
            await consumer.batch_ack(found)
            assert texts(await receive(consumer, 2)) == ["2"]
        assert isinstance(lost[0], Command)
        assert lost[0].code == 0
