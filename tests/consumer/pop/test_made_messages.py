"""Popped messages that a program makes to test its handler without any broker."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import pytest
import trio

from rocketmq_sdk import EmbeddedBroker, PoppedMessage, ReceiptHandleError, SimpleConsumer
from rocketmq_sdk.errors import WrongTypeError

if TYPE_CHECKING:
    from trio.testing import MockClock


class FakeConsumer:
    """What a handler under test acknowledges to."""

    def __init__(self) -> None:
        self.acknowledged: list[PoppedMessage] = []

    async def ack(self, message: PoppedMessage) -> None:
        self.acknowledged.append(message)


async def handle(consumer: Any, message: PoppedMessage) -> None:
    """A handler as users write them: it gives up what has failed three times."""
    if message.delivery_attempt <= 3 and message.body == b"bad":
        raise ValueError(message.message_id)
    assert message.receipt.is_good
    await consumer.ack(message)


async def test_a_handler_is_tested_with_made_messages() -> None:
    consumer = FakeConsumer()
    good = PoppedMessage("orders", b"good", tags="paid", keys="42")
    await handle(consumer, good)
    for failed in range(3):
        with pytest.raises(ValueError, match=r"[0-9A-F]{32}"):
            await handle(consumer, PoppedMessage("orders", b"bad", reconsume_times=failed))
    given_up = PoppedMessage("orders", b"bad", reconsume_times=3)
    await handle(consumer, given_up)
    assert consumer.acknowledged == [good, given_up]
    assert (good.tags, good.keys, good.failed_before, given_up.failed_before) == (
        "paid",
        ("42",),
        0,
        3,
    )


def test_outside_of_trio_too() -> None:
    message = PoppedMessage("orders", b"x", offset=7)
    assert message.receipt.is_good
    assert message.receipt.expires_at == math.inf
    assert message.properties["POP_CK"] == "7 0 0 0 0 broker-a 0 7"
    with pytest.raises(WrongTypeError, match="body"):
        PoppedMessage("orders", "text")  # type: ignore[arg-type]


async def test_its_invisible_duration_ends(autojump_clock: MockClock) -> None:
    message = PoppedMessage("orders", b"x", invisible_duration=30)
    await trio.sleep(29)
    assert message.receipt.is_good
    await trio.sleep(2)
    assert not message.receipt.is_good


async def test_no_consumer_acknowledges_it(autojump_clock: MockClock) -> None:
    message = PoppedMessage("orders", b"x")
    async with (
        EmbeddedBroker() as broker,
        SimpleConsumer("billing", namesrv=broker, subscriptions={"orders": "*"}) as consumer,
    ):
        calls: list[Any] = [
            lambda: consumer.ack(message),
            lambda: consumer.batch_ack([message]),
            lambda: consumer.change_invisible_duration(message, 5),
            lambda: consumer.processing(message).__aenter__(),
        ]
        for call in calls:
            with pytest.raises(ReceiptHandleError, match="made by a program"):
                await call()
