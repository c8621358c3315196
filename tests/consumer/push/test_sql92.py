"""A push consumer with a SQL92 subscription, from the check before the start to what
its listener gets.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import trio

from rocketmq_sdk.broker_embedded.broker import EmbeddedBroker
from rocketmq_sdk.consumer.push.consumer import PushConsumer
from rocketmq_sdk.errors import FilterSyntaxError
from rocketmq_sdk.model.enums import ConsumeFrom, ExpressionType
from rocketmq_sdk.model.message import Message
from rocketmq_sdk.producer.producer import Producer
from support.consuming import Collector, open_sender
from support.waiting import until

if TYPE_CHECKING:
    from trio.testing import MockClock


def test_an_expression_with_an_error_is_refused_before_any_broker_is_asked() -> None:
    with pytest.raises(
        FilterSyntaxError,
        match=r"'price > > 3' cannot be used, at position 9: '>' stands where a value",
    ) as caught:
        PushConsumer(
            "billing",
            namesrv="127.0.0.1:1",
            subscriptions={"orders": ("price > > 3", ExpressionType.SQL92)},
            listener=print,
        )
    assert (caught.value.expression, caught.value.position) == ("price > > 3", 9)


async def test_the_listener_gets_what_makes_the_expression_true(
    autojump_clock: MockClock, collector: Collector
) -> None:
    subscriptions = {"orders": ("region = 'eu' AND price > 3", ExpressionType.SQL92)}
    with trio.fail_after(120):
        async with EmbeddedBroker() as broker, open_sender(broker) as sender:
            await sender.create_topic("orders", queues=1)
            async with (
                Producer("shop", namesrv=broker) as producer,
                PushConsumer(
                    "billing",
                    namesrv=broker,
                    subscriptions=subscriptions,
                    listener=collector,
                    consume_from=ConsumeFrom.FIRST_OFFSET,
                ),
            ):
                for number in range(8):
                    region = "eu" if number % 2 else "us"
                    await producer.send(
                        Message(
                            "orders",
                            b"%d" % number,
                            properties={"region": region, "price": str(number)},
                        )
                    )
                await producer.send(
                    Message("orders", b"without a price", properties={"region": "eu"})
                )
                await producer.send(
                    Message("orders", b"no number", properties={"region": "eu", "price": "much"})
                )
                await producer.send(
                    Message("orders", b"last", properties={"region": "eu", "price": "100"})
                )
                await until(lambda: "last" in collector.bodies)
    assert collector.bodies == ["5", "7", "last"]


async def test_a_held_pull_is_woken_by_a_matching_message_only(
    autojump_clock: MockClock, collector: Collector
) -> None:
    subscriptions = {"orders": ("price BETWEEN 1 AND 5", ExpressionType.SQL92)}
    with trio.fail_after(120):
        async with (
            EmbeddedBroker() as broker,
            open_sender(broker) as sender,
            Producer("shop", namesrv=broker) as producer,
        ):
            await sender.create_topic("orders", queues=1)
            async with PushConsumer(
                "billing", namesrv=broker, subscriptions=subscriptions, listener=collector
            ):
                await until(lambda: broker.parts.pull.held.held == 2)
                before = broker.core.stats.pull_missed
                for _ in range(10):
                    await producer.send(Message("orders", b"too dear", properties={"price": "9"}))
                assert broker.parts.pull.held.held == 2
                assert broker.core.stats.pull_missed == before
                await producer.send(Message("orders", b"fits", properties={"price": "3"}))
                await until(lambda: collector.bodies == ["fits"])


async def test_what_was_sent_back_comes_again_without_being_filtered(
    autojump_clock: MockClock,
) -> None:
    seen: list[int] = []

    async def failing_once(message: object) -> None:
        seen.append(message.reconsume_times)  # type: ignore[attr-defined]
        if len(seen) == 1:
            raise ValueError("not now")

    subscriptions = {"orders": ("price > 3", ExpressionType.SQL92)}
    with trio.fail_after(300):
        async with (
            EmbeddedBroker() as broker,
            open_sender(broker) as sender,
            Producer("shop", namesrv=broker) as producer,
        ):
            await sender.create_topic("orders", queues=1)
            async with PushConsumer(
                "billing", namesrv=broker, subscriptions=subscriptions, listener=failing_once
            ):
                await producer.send(Message("orders", b"x", properties={"price": "4"}))
                await until(lambda: len(seen) == 2)
    assert seen == [0, 1]
