"""What lite pull and simple consumers tell message traces; push consumers are in
`tests/admin/test_trace.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import trio

from rocketmq_sdk.admin.client import Admin
from rocketmq_sdk.broker_embedded.broker import EmbeddedBroker
from rocketmq_sdk.consumer.lite_pull.consumer import LitePullConsumer
from rocketmq_sdk.consumer.simple.consumer import SimpleConsumer
from rocketmq_sdk.model.enums import ConsumeFrom
from rocketmq_sdk.protocol.trace import ConsumeResult
from support.consuming import open_sender
from support.waiting import until

if TYPE_CHECKING:
    from trio.testing import MockClock

FIRST = ConsumeFrom.FIRST_OFFSET
IDS = [f"{number:032X}" for number in (1, 2, 3)]


async def told(
    admin: Admin, message_id: str
) -> list[tuple[str, int | None, ConsumeResult | None, int | None]]:
    """Group, retries, result and cost of each consumption of a message."""
    return [
        (each.group, each.retries, each.result, each.cost)
        for each in (await admin.messages.trace(message_id, topic="orders")).consumptions
    ]


async def test_a_lite_pull_consumer_tells_of_what_it_hands_out(autojump_clock: MockClock) -> None:
    async with (
        EmbeddedBroker() as broker,
        open_sender(broker) as sender,
        Admin(namesrv=broker) as admin,
    ):
        await sender.create_topic("orders")
        await sender.send("orders", "a", "b")
        options = {"subscriptions": {"orders": "*"}, "consume_from": FIRST, "enable_trace": True}
        polled = 0
        # Of several types.
        async with LitePullConsumer("billing", namesrv=broker, **options) as consumer:  # type: ignore[arg-type]
            with trio.fail_after(60):
                while polled < 2:
                    polled += len(await consumer.poll())
        for message_id in IDS[:2]:
            assert await told(admin, message_id) == [("billing", 0, ConsumeResult.SUCCESS, 0)]


@pytest.mark.parametrize("batch", [False, True])
async def test_a_simple_consumer_tells_how_long_it_held_a_message_and_how_that_ended(
    batch: bool, autojump_clock: MockClock
) -> None:
    async with (
        EmbeddedBroker() as broker,
        open_sender(broker) as sender,
        Admin(namesrv=broker) as admin,
    ):
        await sender.create_topic("orders", 1)
        await sender.send("orders", "a", "b", "c", queue=0)
        options = {"subscriptions": {"orders": "*"}, "consume_from": FIRST, "enable_trace": True}
        # Of several types.
        async with SimpleConsumer("billing", namesrv=broker, **options) as consumer:  # type: ignore[arg-type]
            first, second, third = await consumer.receive(32, 20)
            await trio.sleep(2)
            await (consumer.batch_ack([first]) if batch else consumer.ack(first))
            await consumer.change_invisible_duration(second, 60)
            await trio.sleep(23)  # the third one's time is over
            await consumer.ack(second)
            again = []
            with trio.fail_after(60):
                while not again:
                    again = await consumer.receive(1, 20)
            assert again[0].body == third.body
            await consumer.ack(again[0])
        assert await told(admin, IDS[0]) == [("billing", 0, ConsumeResult.SUCCESS, 2000)]
        assert await told(admin, IDS[1]) == [("billing", 0, ConsumeResult.SUCCESS, 25_000)]
        assert await told(admin, IDS[2]) == [
            ("billing", 0, ConsumeResult.TIME_OUT, 20_000),
            ("billing", 1, ConsumeResult.SUCCESS, 0),
        ]


async def test_nothing_is_told_unless_it_is_asked_for(autojump_clock: MockClock) -> None:
    async with EmbeddedBroker() as broker, open_sender(broker) as sender:
        await sender.create_topic("orders")
        await sender.send("orders", "a")
        async with SimpleConsumer(
            "billing", namesrv=broker, subscriptions={"orders": "*"}, consume_from=FIRST
        ) as consumer:
            [message] = await consumer.receive()
            await consumer.ack(message)
            await until(lambda: message.receipt.state.name == "COMMIT")
        trace_topic = broker.core.topics.get("RMQ_SYS_TRACE_TOPIC")
        assert trace_topic is not None
        assert not any(
            broker.store.max_offset("RMQ_SYS_TRACE_TOPIC", queue)
            for queue in range(trace_topic.read_queue_nums)
        )
