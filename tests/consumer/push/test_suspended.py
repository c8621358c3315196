"""A machine that was suspended: the clocks of its programs stood still, and the locks
and invisible times that they hold at brokers have expired meanwhile.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import trio

from rocketmq_sdk import (
    ConsumeFrom,
    EmbeddedBroker,
    PoppedMessage,
    PushConsumer,
    ReceiptHandleError,
    ReceivedMessage,
    SimpleConsumer,
)
from rocketmq_sdk import clock as clock_module
from rocketmq_sdk.codes import RequestCode
from rocketmq_sdk.testing.interception import intercept, unanswered
from support.consuming import open_sender

if TYPE_CHECKING:
    from trio.testing import MockClock


async def test_a_lock_from_before_is_not_trusted(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    found: list[bytes] = []

    async def listener(message: ReceivedMessage) -> None:
        found.append(message.body)

    async with EmbeddedBroker() as broker, open_sender(broker) as sender:
        await sender.create_topic("orders", 1)
        async with PushConsumer(
            "billing",
            namesrv=broker,
            subscriptions={"orders": "*"},
            listener=listener,
            orderly=True,
            consume_from=ConsumeFrom.FIRST_OFFSET,
        ):
            await sender.send("orders", "before", queue=0)
            await trio.sleep(5)
            assert found == [b"before"]
            slept = clock_module.suspended()
            monkeypatch.setattr(clock_module, "suspended", lambda: slept + 100)
            locks = intercept(broker, RequestCode.LOCK_BATCH_MQ, by=unanswered)
            await sender.send("orders", "after", queue=0)
            await trio.sleep(10)
            assert found == [b"before"]  # another member may have the queue by now
            locks.restore()
            with trio.fail_after(60):
                while len(found) < 2:
                    await trio.sleep(0.1)
            assert found == [b"before", b"after"]


async def test_a_receipt_from_before_is_not_used(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with (
        EmbeddedBroker() as broker,
        open_sender(broker) as sender,
        SimpleConsumer(
            "billing",
            namesrv=broker,
            subscriptions={"orders": "*"},
            consume_from=ConsumeFrom.FIRST_OFFSET,
        ) as consumer,
    ):
        await sender.create_topic("orders", 1)
        await sender.send("orders", "one", queue=0)
        [message] = await consumer.receive(invisible_duration=30)
        began, slept = trio.current_time(), clock_module.suspended()
        assert message.receipt.expires_at == pytest.approx(began + 30, abs=0.2)
        monkeypatch.setattr(clock_module, "suspended", lambda: slept + 100)
        found: list[PoppedMessage] = []
        with trio.fail_after(120):
            while not found:
                found = await consumer.receive(invisible_duration=30)
        [again] = found
        assert (again.body, again.delivery_attempt) == (b"one", 2)
        assert not message.receipt.is_good
        acks = intercept(broker, RequestCode.ACK_MESSAGE)
        # The broker would say yes, and the message would come again all the same.
        with pytest.raises(ReceiptHandleError, match="expired"):
            await consumer.ack(message)
        assert not acks.requests
        await consumer.ack(again)
