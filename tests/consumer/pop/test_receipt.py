"""Receipts of popped messages: when they are good, and how a bad one is named."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from rocketmq_sdk.clock import elapsed
from rocketmq_sdk.consumer.pop.receipt import PoppedMessage, Receipt, receipt_of
from rocketmq_sdk.consumer.retry_states import State
from rocketmq_sdk.errors import ConfigurationError, ReceiptHandleError
from rocketmq_sdk.protocol.receipt_handle import ReceiptHandle

if TYPE_CHECKING:
    from trio.testing import MockClock


def handle(pop_time: int = 1000) -> ReceiptHandle:
    return ReceiptHandle(0, pop_time, 30_000, 3, "0", "broker-a", 1, 7)


async def test_a_receipt_is_good_until_its_time_is_over(mock_clock: MockClock) -> None:
    receipt = Receipt("orders", handle(), elapsed() + 30, "billing")
    receipt.check("billing")
    assert receipt.problem(elapsed(), "billing") is None
    mock_clock.jump(29.9)
    receipt.check("billing")
    mock_clock.jump(0.1)
    assert not receipt.is_good
    with pytest.raises(ReceiptHandleError, match=r"'0 1000 30000 3 0 broker-a 1 7' is expired"):
        receipt.check("billing")
    assert receipt.state is State.READY
    with pytest.raises(ReceiptHandleError, match="is expired"):
        receipt.check("billing")


async def test_an_acknowledged_receipt_is_named_as_used(mock_clock: MockClock) -> None:
    receipt = Receipt("orders", handle(), elapsed() + 30, "billing")
    receipt.acknowledged()
    assert receipt.state is State.COMMIT
    with pytest.raises(ReceiptHandleError, match="was used"):
        receipt.check("billing")


async def test_the_message_has_the_newest_receipt(mock_clock: MockClock) -> None:
    message = object.__new__(PoppedMessage)
    message.reconsume_times = 2
    message._receipt = first = Receipt("orders", handle(), elapsed() + 30, "billing")
    second = first.replace(handle(2000), elapsed() + 60)
    third = second.replace(handle(3000), elapsed() + 60)
    assert message.receipt is third
    assert receipt_of(message) is third
    assert receipt_of(first) is first
    assert first.newest is third
    assert (
        message.delivery_attempt == 1
    )  # the count is of another group: this one has got it for the first time
    second.handle.kind = third.handle.kind = "1"
    message._receipt = third
    assert message.delivery_attempt == 3
    assert "replaced" in repr(first)
    for old in (first, second):
        with pytest.raises(ReceiptHandleError, match="was replaced"):
            old.check("billing")
    third.check("billing")


async def test_a_receipt_of_another_group_is_refused_by_name(mock_clock: MockClock) -> None:
    receipt = Receipt("orders", handle(), elapsed() + 30, "billing")
    with pytest.raises(ReceiptHandleError, match="was given to group 'billing', not to 'shipping'"):
        receipt.check("shipping")
    receipt.replace(handle(2000), elapsed() + 60).check("billing")


async def test_what_has_no_receipt_is_named() -> None:
    with pytest.raises(ConfigurationError, match="'text' has no receipt"):
        receipt_of("text")
    with pytest.raises(ConfigurationError, match=r"2 messages at once; .* batch_ack"):
        receipt_of([PoppedMessage("T", b""), PoppedMessage("T", b"")])  # type: ignore[arg-type]
