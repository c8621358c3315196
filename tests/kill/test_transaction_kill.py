"""A broker killed with -9 under transactions: what was committed is there exactly once,
what was rolled back never.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import trio

from rocketmq_sdk import (
    Admin,
    ConsumeFrom,
    Message,
    Producer,
    PushConsumer,
    ReceivedMessage,
    RocketMQError,
    TransactionProducer,
    TransactionState,
)
from support.processes import broker_process

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.real_time


class Ledger:
    """What each message is to become; the checker looks it up here, as it would in a
    database.
    """

    def __init__(self) -> None:
        self.outcomes: dict[bytes, TransactionState] = {}
        self.confirmed: set[bytes] = set()
        self.checked = 0

    async def __call__(self, message: ReceivedMessage) -> TransactionState:
        self.checked += 1
        return self.outcomes.get(message.body, TransactionState.ROLLBACK)

    async def work(self, producer: TransactionProducer, seed: int) -> None:
        for number in range(100_000):
            body = b"%d/%d" % (seed, number)
            try:
                async with producer.transaction(Message("ledger", body)) as transaction:
                    if number % 5 == 4:
                        transaction.rollback()
                    self.outcomes[body] = transaction.state
                if transaction.confirmed:
                    self.confirmed.add(body)
                else:
                    return  # the broker is dead; the check decides
            except RocketMQError:
                return


async def test_a_killed_broker_shows_each_committed_message_once(tmp_path: Path) -> None:
    ledger = Ledger()
    settings = {
        "transactionTimeOut": 1000,
        "transactionCheckInterval": 1000,
        "mappedFileSizeCommitLog": 1024 * 1024,
    }
    with broker_process(tmp_path / "store", **settings) as broker:
        for round_number in range(3):
            async with Producer("maker", namesrv=broker.namesrv) as maker:
                await Admin(client=maker.client).topics.create("ledger", queues=1)
            before = len(ledger.confirmed)
            async with (
                TransactionProducer(
                    "PG", ledger, namesrv=broker.namesrv, send_timeout=3, retry_times=0
                ) as producer,
                trio.open_nursery() as nursery,
            ):
                for seed in range(8):
                    nursery.start_soon(ledger.work, producer, round_number * 8 + seed)
                with trio.fail_after(60):
                    while len(ledger.confirmed) < before + 300:
                        await trio.sleep(0.01)
                broker.kill()
            broker.start()
        committed = {
            body for body, outcome in ledger.outcomes.items() if outcome is TransactionState.COMMIT
        }
        found: list[bytes] = []

        async def listener(messages: list[ReceivedMessage]) -> None:
            found.extend(message.body for message in messages)

        reading = PushConsumer(
            "readers",
            namesrv=broker.namesrv,
            subscriptions={"ledger": "*"},
            listener=listener,
            batch=32,
            consume_from=ConsumeFrom.FIRST_OFFSET,
        )
        async with (
            TransactionProducer("PG", ledger, topics=["ledger"], namesrv=broker.namesrv),
            reading,
        ):
            with trio.fail_after(120):
                while not committed <= set(found):
                    await trio.sleep(0.1)
            await trio.sleep(3)  # a second copy would come with the next round of checks
    assert set(found) <= committed
    assert len(found) == len(set(found))
    assert len(ledger.confirmed & committed) >= 600
