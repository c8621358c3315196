"""The suite of the order service: it needs no broker but the fixture, and no waiting.

`autojump_clock` of pytest-trio makes time virtual, so half an hour passes at once.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import trio
from service import DUE, PLACED, OrderService
from trio.testing import MockClock

from rocketmq_sdk.testing import TestBroker


class FakeBank:
    """A bank that can be out of order, and remembers what it was told."""

    def __init__(self) -> None:
        self.charged: list[str] = []
        self.tries = 0
        self.broken_for = 0
        self.strangers: set[str] = set()

    async def charge(self, number: str, cents: int) -> None:
        self.tries += 1
        await trio.sleep(0.2)  # it takes its time
        if self.tries <= self.broken_for or number in self.strangers:
            raise ConnectionError("the bank does not answer")
        self.charged.append(number)


@pytest.fixture
def bank() -> FakeBank:
    return FakeBank()


@pytest.fixture
async def service(rocketmq_broker: TestBroker, bank: FakeBank) -> AsyncIterator[OrderService]:
    await rocketmq_broker.seed(topics=[PLACED, DUE])
    async with OrderService(":memory:", rocketmq_broker, bank) as service:
        await rocketmq_broker.wait.group("billing")
        yield service


async def test_an_order_is_paid(
    service: OrderService, rocketmq_broker: TestBroker, bank: FakeBank, autojump_clock: MockClock
) -> None:
    await service.place("42", 1999)
    await rocketmq_broker.wait.until(lambda: service.state("42") == "paid", "the payment")
    assert bank.charged == ["42"]
    (message,) = rocketmq_broker.sent(PLACED)
    assert message.keys == ("42",)


async def test_a_payment_is_tried_again_while_the_bank_is_away(
    service: OrderService, rocketmq_broker: TestBroker, bank: FakeBank, autojump_clock: MockClock
) -> None:
    bank.broken_for = 3
    await service.place("42", 1999)
    await rocketmq_broker.wait.until(
        lambda: service.state("42") == "paid", "the payment", within=300
    )
    assert (bank.tries, bank.charged) == (4, ["42"])


async def test_an_order_that_cannot_be_billed_goes_to_the_dead_letters(
    service: OrderService, rocketmq_broker: TestBroker, bank: FakeBank, autojump_clock: MockClock
) -> None:
    await service.place("42", -1)
    (message,) = await rocketmq_broker.wait.dead_letter("billing")
    assert message.keys == ("42",)
    assert bank.tries == 0


async def test_an_order_that_is_not_paid_is_cancelled_after_half_an_hour(
    service: OrderService, rocketmq_broker: TestBroker, bank: FakeBank, autojump_clock: MockClock
) -> None:
    bank.strangers = {"42"}
    began = trio.current_time()
    await service.place("41", 1999)
    await service.place("42", 1999)
    await rocketmq_broker.wait.until(
        lambda: service.state("42") == "cancelled", "the cancellation", within=3600
    )
    assert 1800 <= trio.current_time() - began < 1830
    assert service.state("41") == "paid"


async def test_a_second_order_of_a_number_sends_nothing(
    service: OrderService, rocketmq_broker: TestBroker, bank: FakeBank, autojump_clock: MockClock
) -> None:
    await service.place("42", 1999)
    with pytest.raises(ValueError, match="there is an order 42"):
        await service.place("42", 1)
    await rocketmq_broker.wait.until(
        lambda: rocketmq_broker.wait.seen.unfinished() == 0, "the end of the transactions"
    )
    await rocketmq_broker.wait.lag("billing")
    assert len(rocketmq_broker.sent(PLACED)) == 1
    assert bank.charged == ["42"]


async def test_an_order_whose_commit_is_lost_is_paid_all_the_same(
    service: OrderService, rocketmq_broker: TestBroker, bank: FakeBank, autojump_clock: MockClock
) -> None:
    lost = rocketmq_broker.faults.on("end_transaction", times=1).drop_request()
    await service.place("42", 1999)
    assert rocketmq_broker.sent(PLACED) == []
    await rocketmq_broker.wait.until(
        lambda: service.state("42") == "paid", "the payment", within=300
    )
    assert lost.hits == 1
    assert bank.charged == ["42"]


async def test_orders_are_paid_after_a_crash_of_the_broker(
    service: OrderService, rocketmq_broker: TestBroker, bank: FakeBank, autojump_clock: MockClock
) -> None:
    await service.place("41", 1999)
    await rocketmq_broker.kill()
    await rocketmq_broker.start()
    await service.place("42", 1999)
    await rocketmq_broker.wait.until(
        lambda: service.state("41") == service.state("42") == "paid", "the payments", within=300
    )
    assert sorted(bank.charged) == ["41", "42"]


async def test_a_message_that_comes_twice_is_charged_once(
    service: OrderService, rocketmq_broker: TestBroker, bank: FakeBank, autojump_clock: MockClock
) -> None:
    # The group's progress is not written, so after the restart all comes again.
    unwritten = rocketmq_broker.faults.on("commit", group="billing").error("SYSTEM_ERROR")
    await service.place("42", 1999)
    await rocketmq_broker.wait.until(lambda: service.state("42") == "paid", "the payment")
    await rocketmq_broker.wait.hit(unwritten)
    await rocketmq_broker.kill()
    unwritten.lift()
    await rocketmq_broker.start()
    async with OrderService(":memory:", rocketmq_broker, bank):
        await rocketmq_broker.wait.lag("billing", within=300)
    assert bank.charged == ["42"]
