"""The suite of the order service: it needs no broker but the fixture, and no waiting.

`autojump_clock` of pytest-trio makes time virtual, so half an hour passes at once. That
is why the application runs on trio here; uvicorn runs it on asyncio.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest
import trio
from app import create_app
from service import DUE, PLACED, OrderService
from trio.testing import MockClock

import rocketmq_sdk
from rocketmq_sdk.testing import TestBroker, WaitTimeoutError


class FakeBank:
    """A bank that can be out of order, and remembers what it was told."""

    def __init__(self) -> None:
        self.charged: list[str] = []
        self.tries = 0
        self.broken_for = 0
        self.strangers: set[str] = set()

    async def charge(self, number: str, cents: int) -> None:
        self.tries += 1
        if self.tries <= self.broken_for or number in self.strangers:
            raise ConnectionError("the bank does not answer")
        self.charged.append(number)


class Shop:
    """A customer of the application."""

    def __init__(self, client: httpx.AsyncClient, service: OrderService) -> None:
        self._client = client
        self._service = service

    async def place(self, number: str, cents: int = 1999) -> httpx.Response:
        return await self._client.post(f"/orders/{number}", json={"cents": cents})

    async def state(self, number: str) -> str:
        answer = await self._client.get(f"/orders/{number}")
        return str(answer.json().get("state", answer.status_code))

    def is_(self, state: str, *numbers: str) -> bool:
        """Whether orders have this state."""
        return all(self._service.state(number) == state for number in numbers)


@asynccontextmanager
async def opened(
    broker: TestBroker, bank: FakeBank, database: str = ":memory:"
) -> AsyncIterator[Shop]:
    """The application, from its start to its end."""

    @asynccontextmanager
    async def its_bank() -> AsyncIterator[FakeBank]:
        yield bank

    app = create_app(database, broker, its_bank, door=rocketmq_sdk)
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://shop") as client,
    ):
        yield Shop(client, app.state.service)


@pytest.fixture
def bank() -> FakeBank:
    return FakeBank()


@pytest.fixture
async def shop(rocketmq_broker: TestBroker, bank: FakeBank) -> AsyncIterator[Shop]:
    await rocketmq_broker.seed(topics=[PLACED, DUE])
    async with opened(rocketmq_broker, bank) as shop:
        await rocketmq_broker.wait.group("billing")
        yield shop


async def test_an_order_is_paid(
    shop: Shop, rocketmq_broker: TestBroker, bank: FakeBank, autojump_clock: MockClock
) -> None:
    assert await shop.state("42") == "404"
    assert (await shop.place("42")).status_code == 201
    await rocketmq_broker.wait.until(lambda: shop.is_("paid", "42"), "the payment")
    assert await shop.state("42") == "paid"
    assert bank.charged == ["42"]
    (message,) = rocketmq_broker.sent(PLACED)
    assert message.keys == ("42",)


async def test_a_payment_is_tried_again_while_the_bank_is_away(
    shop: Shop, rocketmq_broker: TestBroker, bank: FakeBank, autojump_clock: MockClock
) -> None:
    bank.broken_for = 3
    await shop.place("42")
    await rocketmq_broker.wait.until(lambda: shop.is_("paid", "42"), "the payment", within=300)
    assert (bank.tries, bank.charged) == (4, ["42"])


async def test_an_order_that_cannot_be_billed_goes_to_the_dead_letters(
    shop: Shop, rocketmq_broker: TestBroker, bank: FakeBank, autojump_clock: MockClock
) -> None:
    await shop.place("42", cents=-1)
    (message,) = await rocketmq_broker.wait.dead_letter("billing")
    assert message.keys == ("42",)
    assert bank.tries == 0


async def test_an_order_that_is_not_paid_is_cancelled_after_half_an_hour(
    shop: Shop, rocketmq_broker: TestBroker, bank: FakeBank, autojump_clock: MockClock
) -> None:
    bank.strangers = {"42"}
    began = trio.current_time()
    await shop.place("41")
    await shop.place("42")
    await rocketmq_broker.wait.until(
        lambda: shop.is_("cancelled", "42"), "the cancellation", within=3600
    )
    assert 1800 <= trio.current_time() - began < 1830
    assert await shop.state("41") == "paid"


async def test_a_second_order_of_a_number_sends_nothing(
    shop: Shop, rocketmq_broker: TestBroker, bank: FakeBank, autojump_clock: MockClock
) -> None:
    await shop.place("42")
    refused = await shop.place("42", cents=1)
    assert (refused.status_code, refused.json()) == (409, {"detail": "there is an order 42"})
    await rocketmq_broker.wait.settled(within=3600)  # no transaction is open, no delay is left
    assert len(rocketmq_broker.sent(PLACED)) == 1
    assert bank.charged == ["42"]


async def test_an_order_whose_commit_is_lost_is_paid_all_the_same(
    shop: Shop, rocketmq_broker: TestBroker, bank: FakeBank, autojump_clock: MockClock
) -> None:
    lost = rocketmq_broker.faults.on("end_transaction", times=1).drop_request()
    await shop.place("42")
    assert rocketmq_broker.sent(PLACED) == []
    await rocketmq_broker.wait.until(lambda: shop.is_("paid", "42"), "the payment", within=300)
    assert lost.hits == 1
    assert bank.charged == ["42"]


async def test_an_order_is_paid_once_though_the_answer_to_its_commit_is_lost(
    shop: Shop, rocketmq_broker: TestBroker, bank: FakeBank, autojump_clock: MockClock
) -> None:
    lost = rocketmq_broker.faults.on("end_transaction", times=1).drop_answer()
    await shop.place("42")
    await rocketmq_broker.wait.until(lambda: shop.is_("paid", "42"), "the payment", within=300)
    await rocketmq_broker.wait.settled(within=3600)
    assert lost.hits == 1
    assert len(rocketmq_broker.sent(PLACED)) == 1
    assert bank.charged == ["42"]


async def test_orders_are_paid_after_a_crash_of_the_broker(
    shop: Shop, rocketmq_broker: TestBroker, bank: FakeBank, autojump_clock: MockClock
) -> None:
    await shop.place("41")
    await rocketmq_broker.kill()
    await rocketmq_broker.start()
    await shop.place("42")
    await rocketmq_broker.wait.until(
        lambda: shop.is_("paid", "41", "42"), "the payments", within=300
    )
    assert sorted(bank.charged) == ["41", "42"]


async def test_a_message_that_comes_twice_is_charged_once(
    rocketmq_broker: TestBroker, bank: FakeBank, autojump_clock: MockClock, tmp_path: Path
) -> None:
    await rocketmq_broker.seed(topics=[PLACED, DUE])
    database = str(tmp_path / "orders.sqlite")
    # The group's progress is not written, so after the restart all comes again.
    with rocketmq_broker.faults.on("commit", group="billing").error("SYSTEM_ERROR"):
        async with opened(rocketmq_broker, bank, database) as shop:
            await shop.place("42")
            await rocketmq_broker.wait.until(lambda: shop.is_("paid", "42"), "the payment")
        with pytest.raises(WaitTimeoutError, match="behind: 1 in"):
            await rocketmq_broker.wait.lag("billing", PLACED, within=1)
    async with opened(rocketmq_broker, bank, database):
        await rocketmq_broker.wait.lag("billing", PLACED, within=300)
    assert bank.charged == ["42"]
