"""An order service: orders in SQLite, everything that follows from them by messages.

Placing an order is a transaction of RocketMQ around an insert: the message exists if
and only if the order does. Billing takes the message and charges the customer, once for
each order however often the message comes. An order that is not paid half an hour later
is cancelled by a message that was sent when it was placed. `app.py` serves it all
over HTTP.

The classes of all doors have the same names, so the same service runs on asyncio (under
uvicorn) and on trio (in its suite, in virtual time).
"""

from __future__ import annotations

import json
import sqlite3
import uuid
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any, Protocol, Self

import rocketmq_sdk.aio
from rocketmq_sdk import ConsumeFrom, Message, ReceivedMessage, RejectMessage, TransactionState

if TYPE_CHECKING:
    from types import TracebackType

PLACED, DUE = "orders-placed", "orders-due"
TIME_TO_PAY = 1800
"""Seconds after which an order that is not paid is cancelled."""
_TABLES = """
CREATE TABLE IF NOT EXISTS orders (
    number TEXT PRIMARY KEY, cents INTEGER, state TEXT, ticket TEXT
);
"""


class Bank(Protocol):
    """Charges customers."""

    async def charge(self, number: str, cents: int) -> None:
        """Charge for one order. Raises when the bank cannot be reached or refuses."""


class OrderService:
    """Use it as `async with OrderService(database, namesrv, bank) as service`."""

    def __init__(
        self, database: str, namesrv: Any, bank: Bank, door: Any = rocketmq_sdk.aio
    ) -> None:
        """`namesrv` is what producers and consumers take, as in `10.0.0.1:9876`.

        `door` is `rocketmq_sdk.aio` on asyncio, `rocketmq_sdk` on trio.
        """
        self._database = sqlite3.connect(database, isolation_level=None)
        self._database.executescript(_TABLES)
        self._bank = bank
        self._producer = door.TransactionProducer("shop", self._outcome, namesrv=namesrv)
        self._consumers = [
            door.PushConsumer(
                group,
                namesrv=namesrv,
                subscriptions={topic: "*"},
                listener=listener,
                consume_from=ConsumeFrom.FIRST_OFFSET,
            )
            for group, topic, listener in (
                ("billing", PLACED, self._bill),
                ("cancelling", DUE, self._cancel),
            )
        ]
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        await self._stack.enter_async_context(self._producer)
        for consumer in self._consumers:
            await self._stack.enter_async_context(consumer)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool | None:
        try:
            return await self._stack.__aexit__(kind, error, traceback)
        finally:
            self._database.close()

    # What customers do

    async def place(self, number: str, cents: int) -> None:
        """Place an order. Raises `ValueError` when there is one of this number."""
        order = json.dumps({"number": number, "cents": cents}).encode()
        ticket = uuid.uuid4().hex  # tells this try from others with the same number
        message = Message(PLACED, order, keys=[number], properties={"ticket": ticket})
        async with self._producer.transaction(message):
            try:
                self._database.execute(
                    "INSERT INTO orders VALUES (?, ?, 'placed', ?)", (number, cents, ticket)
                )
            except sqlite3.IntegrityError:
                raise ValueError(f"there is an order {number}") from None
        await self._producer.send(Message(DUE, order, keys=[number], delay=TIME_TO_PAY))

    def state(self, number: str) -> str | None:
        """The state of an order: placed, paid, cancelled; None when there is none."""
        row = self._database.execute(
            "SELECT state FROM orders WHERE number = ?", (number,)
        ).fetchone()
        return None if row is None else str(row[0])

    # What messages do

    async def _outcome(self, message: ReceivedMessage) -> TransactionState:
        """Whether an order was placed, when the broker has not heard of it."""
        placed = self._database.execute(
            "SELECT 1 FROM orders WHERE ticket = ?", (message.properties["ticket"],)
        ).fetchone()
        return TransactionState.COMMIT if placed else TransactionState.ROLLBACK

    async def _bill(self, message: ReceivedMessage) -> None:
        order = json.loads(message.body)
        if order["cents"] <= 0:
            raise RejectMessage  # a person has to look at it
        if self.state(order["number"]) != "placed":
            return  # the message has come before
        await self._bank.charge(order["number"], order["cents"])
        self._move(order["number"], "paid")

    async def _cancel(self, message: ReceivedMessage) -> None:
        self._move(message.keys[0], "cancelled")

    def _move(self, number: str, state: str) -> None:
        self._database.execute(
            "UPDATE orders SET state = ? WHERE number = ? AND state = 'placed'", (state, number)
        )
