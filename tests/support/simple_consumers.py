"""What the tests of simple consumers share."""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio

from rocketmq_sdk.consumer.simple.consumer import SimpleConsumer
from rocketmq_sdk.model.enums import ConsumeFrom

if TYPE_CHECKING:
    from rocketmq_sdk.broker_embedded.broker import EmbeddedBroker
    from rocketmq_sdk.consumer.pop.receipt import PoppedMessage
    from support.consuming import Sender

FIRST = ConsumeFrom.FIRST_OFFSET


def consumer_of(
    broker: EmbeddedBroker, group: str = "billing", **options: object
) -> SimpleConsumer:
    values = {"namesrv": broker, "subscriptions": {"orders": "*"}, "consume_from": FIRST} | options
    return SimpleConsumer(group, **values)  # type: ignore[arg-type]


async def receive(
    consumer: SimpleConsumer, count: int, invisible: float = 30.0, seconds: float = 120.0
) -> list[PoppedMessage]:
    """Receive until so many messages have come."""
    found: list[PoppedMessage] = []
    with trio.fail_after(seconds):
        while len(found) < count:
            found += await consumer.receive(32, invisible, 5)
    return found


async def send_all(sender: Sender, count: int, topic: str = "orders", queues: int = 4) -> None:
    await sender.create_topic(topic, queues)
    await sender.send(topic, *map(str, range(count)), queues=queues)
