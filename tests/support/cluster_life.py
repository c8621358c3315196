"""Lives of a cluster under `simulate`, and what must hold of all of them.

Nothing that was acknowledged is lost; the messages of a key come from each queue in the
order in which they were sent (a route with other queues leads a key elsewhere, as
`select_by_hash` says); while queues are locked, at most one member works on a queue;
each transaction ends as its sender decided. How often clients send heartbeats and ask
for routes is drawn for each, as by applications with settings of their own.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Final

import trio

from rocketmq_sdk import (
    ConsumeFrom,
    Message,
    Producer,
    PushConsumer,
    RocketMQError,
    TransactionProducer,
    TransactionState,
)
from rocketmq_sdk.testing.simulation import Plan, simulate

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from rocketmq_sdk import ReceivedMessage
    from rocketmq_sdk.testing.simulation import Simulated, Simulation

TOPIC: Final = "orders"
WISHES: Final = (TransactionState.COMMIT, TransactionState.ROLLBACK)
PARTIES: Final = ("shop", "bank", "billing-1", "billing-2")
PAYMENT: Final = "payment"
KEYS: Final = 3
PAUSE: Final = 60.0
"""Most seconds between two sends."""
HEARTBEATS: Final = (30.0, 60.0, 90.0)
"""Seconds between heartbeats of a client; brokers give a silent one up after 120."""
ROUTES: Final = (30.0, 60.0, 120.0)
"""Seconds after which a client asks for routes again."""
SETTLED: Final = 2 * 3600.0
"""Seconds that the group has after the troubles for all that is left."""


class Life:
    """An ordered group of two members, and two producers: of keys, of transactions."""

    def __init__(self, simulation: Simulation) -> None:
        self.simulation = simulation
        self.acknowledged: defaultdict[str, list[int]] = defaultdict(list)
        """Of each key, the numbers whose send was acknowledged."""
        self.decided: dict[str, TransactionState] = {}
        self.confirmed: list[str] = []
        """Transactions whose half message was acknowledged."""
        self.got: defaultdict[str, list[int]] = defaultdict(list)
        self.committed: set[str] = set()
        self.problems: list[str] = []
        self._last: dict[tuple[str, str], int] = {}
        """The newest number of a key that came from a broker, which has one queue."""
        self._working: dict[tuple[str, int], str] = {}
        self._paces = {name: self._pace() for name in PARTIES}

    def _pace(self) -> dict[str, Any]:
        """How often a client does what it does again and again."""
        draw = self.simulation.random.choice
        return {
            "heartbeat_broker_interval": draw(HEARTBEATS),
            "poll_name_server_interval": draw(ROUTES),
        }

    def check(self, holds: object, problem: str) -> None:
        if not holds:
            self.problems.append(f"{self.simulation.now:.3f}: {problem}")

    # -- who takes part

    async def run(self) -> list[str]:
        simulation = self.simulation
        await simulation.cluster.seed(topics={TOPIC: 1})
        async with trio.open_nursery() as nursery:
            for member in ("billing-1", "billing-2"):
                nursery.start_soon(self._consume, member)
            async with trio.open_nursery() as senders:
                senders.start_soon(self._send)
                senders.start_soon(self._transact)
            await self._settle()
            nursery.cancel_scope.cancel()
        self._check_all()
        return self.problems

    async def _consume(self, name: str) -> None:
        async def listen(message: ReceivedMessage) -> None:
            queue = message.broker_name or "", message.queue_id
            self.check(
                queue not in self._working,
                f"{name} works on {queue}, and so does {self._working.get(queue)}",
            )
            self._working[queue] = name
            try:
                await trio.sleep(0.05)
            finally:
                if self._working.get(queue) == name:
                    del self._working[queue]
            self._take(message)

        async with PushConsumer(
            "billing",
            namesrv=self.simulation.party(name),
            subscriptions={TOPIC: "*"},
            listener=listen,
            orderly=True,
            pull_suspend=30,
            pull_timeout=45,
            consume_from=ConsumeFrom.FIRST_OFFSET,
            **self._paces[name],
        ):
            await trio.sleep_forever()

    def _take(self, message: ReceivedMessage) -> None:
        if message.tags == PAYMENT:
            self.committed.add(message.body.decode())
            return
        key, number = message.body.decode().split()
        if int(number) in self.got[key]:
            return
        self.got[key].append(int(number))
        before = self._last.get(place := (key, message.broker_name or ""), -1)
        self.check(before < int(number), f"{number} of key {key} came after {before} of {place[1]}")
        self._last[place] = int(number)

    async def _send(self) -> None:
        simulation = self.simulation
        shop = simulation.party("shop")
        async with Producer("shop", namesrv=shop, **self._paces["shop"]) as producer:
            number = 0
            while simulation.troubled:
                key = str(number % KEYS)
                with suppress(RocketMQError):
                    await producer.send(Message(TOPIC, f"{key} {number}".encode()), key=key)
                    self.acknowledged[key].append(number)
                number += 1
                await trio.sleep(simulation.random.random() * PAUSE)

    async def _transact(self) -> None:
        simulation = self.simulation

        async def decide(message: Any) -> TransactionState:
            return self.decided[message.body.decode()]

        async with TransactionProducer(
            "bank", namesrv=simulation.party("bank"), checker=decide, **self._paces["bank"]
        ) as producer:
            number = 0
            while simulation.troubled:
                body = f"payment {number}"
                wish = simulation.random.choice(
                    (TransactionState.COMMIT, TransactionState.ROLLBACK)
                )
                self.decided[body] = wish

                async def work(_transaction: object, body: str = body) -> TransactionState:
                    if simulation.random.random() < 0.3:
                        return TransactionState.UNKNOWN
                    return self.decided[body]

                with suppress(RocketMQError):
                    await producer.send_in_transaction(
                        Message(TOPIC, body.encode(), tags=PAYMENT), work
                    )
                    self.confirmed.append(body)
                number += 1
                await trio.sleep(simulation.random.random() * 4 * PAUSE)
            await self._resolved()

    async def _resolved(self) -> None:
        """Half messages are checked each minute, as long as the producer is there."""
        with trio.move_on_after(SETTLED):
            while self._open():
                await trio.sleep(10)

    def _open(self) -> list[str]:
        return [
            body
            for body in self.confirmed
            if self.decided[body] is TransactionState.COMMIT and body not in self.committed
        ]

    async def _settle(self) -> None:
        with trio.move_on_after(SETTLED):
            while self._missing():
                await trio.sleep(10)

    def _missing(self) -> dict[str, list[int]]:
        return {
            key: missing
            for key, numbers in self.acknowledged.items()
            if (missing := [number for number in numbers if number not in self.got[key]])
        }

    def _check_all(self) -> None:
        self.check(not self._missing(), f"lost: {self._missing()}")
        self.check(not self._open(), f"transactions that were never committed: {self._open()}")
        wrong = [
            body for body in self.committed if self.decided[body] is not TransactionState.COMMIT
        ]
        self.check(not wrong, f"transactions that were rolled back and came: {sorted(wrong)}")


async def cluster_life(simulation: Simulation) -> list[str]:
    """The scenario; gives what was against the rules."""
    return await Life(simulation).run()


@contextmanager
def quiet() -> Iterator[None]:
    """Nothing is logged: a life holds thousands of failures."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(before)


def run_life(
    seed: int, *, settings: Mapping[str, Any] | None = None, **size: Any
) -> Simulated[list[str]]:
    """The life of a seed."""
    plan = Plan.drawn(seed, parties=PARTIES, **size)
    with quiet():
        return simulate(plan, cluster_life, **(settings or {}))
