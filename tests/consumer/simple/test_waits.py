"""How simple consumers wait: for long, at brokers that fall silent, while their
subscriptions change.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import trio

from rocketmq_sdk.broker_embedded.broker import EmbeddedBroker
from rocketmq_sdk.codes import RequestCode
from rocketmq_sdk.consumer.simple.consumer import SimpleConsumer
from rocketmq_sdk.errors import RequestTimeoutError
from rocketmq_sdk.model.enums import ConsumeFrom
from rocketmq_sdk.testing.interception import intercept, unanswered
from support.consuming import open_sender

if TYPE_CHECKING:
    from trio.testing import MockClock

    from rocketmq_sdk.protocol.command import Command
    from rocketmq_sdk.remoting.channel import Channel, Handler


def consumer_of(broker: EmbeddedBroker, *topics: str) -> SimpleConsumer:
    return SimpleConsumer(
        "billing",
        namesrv=broker,
        subscriptions=dict.fromkeys(topics, "*"),
        consume_from=ConsumeFrom.FIRST_OFFSET,
    )


@pytest.mark.parametrize("topics", [("orders",), ("orders", "returns")], ids=["a place", "places"])
async def test_a_long_wait_asks_periodically_and_gets_what_comes_at_once(
    autojump_clock: MockClock, topics: tuple[str, ...]
) -> None:
    async with (
        EmbeddedBroker() as broker,
        open_sender(broker) as sender,
        trio.open_nursery() as nursery,
    ):
        for topic in topics:
            await sender.create_topic(topic)
        polls = intercept(broker, RequestCode.POP_MESSAGE, RequestCode.NOTIFICATION)
        async with consumer_of(broker, *topics) as consumer:

            async def send_later() -> None:
                await trio.sleep(1000)
                await sender.send("orders", "a")

            nursery.start_soon(send_later)
            began = trio.current_time()
            [message] = await consumer.receive(await_duration=3600)
            assert message.body == b"a"
            assert 1000 <= trio.current_time() - began < 1002
            await consumer.ack(message)
            held = [int(request.ext_fields["pollTime"]) / 1000 for request in polls.requests]
            assert max(held) <= 30
            assert len(held) < 100
            began = trio.current_time()
            assert await consumer.receive(await_duration=100) == []
            assert trio.current_time() - began == pytest.approx(100, abs=1)


async def test_a_long_wait_at_a_broker_that_falls_silent_ends(autojump_clock: MockClock) -> None:
    async with EmbeddedBroker() as broker, open_sender(broker) as sender:
        await sender.create_topic("orders")
        intercept(broker, RequestCode.POP_MESSAGE, by=unanswered)
        async with consumer_of(broker, "orders") as consumer:
            began = trio.current_time()
            with pytest.raises(RequestTimeoutError):
                await consumer.receive(await_duration=3600)
            assert trio.current_time() - began < 60
            assert not consumer.health()


async def test_a_topic_may_be_given_up_while_a_receive_is_under_way(
    autojump_clock: MockClock,
) -> None:
    async with (
        EmbeddedBroker() as broker,
        open_sender(broker) as sender,
        trio.open_nursery() as nursery,
    ):
        for topic in ("orders", "returns"):
            await sender.create_topic(topic)

        def slow(channel: Channel, request: Command, serve: Handler) -> Any:
            async def later() -> Any:
                await trio.sleep(2)
                return serve(channel, request)

            return later

        async with consumer_of(broker, "orders", "returns") as consumer:
            pops = intercept(broker, RequestCode.POP_MESSAGE, by=slow)

            async def give_up() -> None:
                await trio.sleep(1)
                await consumer.unsubscribe("returns")
                await consumer.unsubscribe("orders")
                pops.restore()
                await trio.sleep(1)
                await consumer.subscribe("orders")
                await sender.send("orders", "a")

            nursery.start_soon(give_up)
            [message] = await consumer.receive(await_duration=60)
            assert message.body == b"a"


async def test_the_lag_is_what_brokers_had_left(autojump_clock: MockClock) -> None:
    async with EmbeddedBroker() as broker, open_sender(broker) as sender:
        for topic in ("orders", "returns"):
            await sender.create_topic(topic, 1)
            await sender.send(topic, *map(str, range(50)), queue=0)
        async with consumer_of(broker, "orders", "returns") as consumer:
            assert consumer.statistics().lag == 0
            for left in (40, 80, 70):
                assert len(await consumer.receive(10)) == 10
                assert consumer.statistics().lag == left
            await consumer.unsubscribe("returns")
            assert consumer.statistics().lag in (30, 40)
