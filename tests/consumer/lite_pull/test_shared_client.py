"""Pull consumers on a client that outlives them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio

from rocketmq_sdk import Client, EmbeddedBroker, PullConsumer
from support.consuming import open_sender

if TYPE_CHECKING:
    from trio.testing import MockClock


async def test_first_pulls_at_once_use_a_route_once(autojump_clock: MockClock) -> None:
    async with (
        EmbeddedBroker() as broker,
        open_sender(broker) as sender,
        Client(broker) as client,
    ):
        await sender.create_topic("orders", 2)
        async with PullConsumer("audit", client=client) as consumer:
            queues = await consumer.message_queues("orders")
            async with trio.open_nursery() as nursery:
                for queue in queues * 4:
                    nursery.start_soon(consumer.pull, queue, 0)
            assert client.routes.topics() == ["orders"]
        assert client.routes.topics() == []
