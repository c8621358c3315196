"""`TransactionProducer` for asyncio.

Written by `python -m tools.doors` from `rocketmq_sdk.producer.transaction`;
that is the place for changes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rocketmq_sdk.aio.faces.client import Client
from rocketmq_sdk.aio.faces.producer import Producer
from rocketmq_sdk.aio.life import Managed, inner_client
from rocketmq_sdk.doors.face import inner_of
from rocketmq_sdk.model.enums import TransactionState
from rocketmq_sdk.producer.transaction import CHECK_TIMEOUT, TransactionResult, checked_checker
from rocketmq_sdk.producer.transaction import TransactionProducer as InnerTransactionProducer

if TYPE_CHECKING:
    from collections.abc import Iterable
    from contextlib import AbstractAsyncContextManager
    from datetime import timedelta
    from typing import Unpack

    from rocketmq_sdk.aio.arguments import NamesrvSource
    from rocketmq_sdk.model.message import Message
    from rocketmq_sdk.producer.config import ProducerOptions
    from rocketmq_sdk.producer.transaction import Checker, LocalWork, Transaction
    from rocketmq_sdk.producer.transaction_arguments import RollbackOn


class TransactionProducer(Producer):
    """A producer whose messages appear only when local work has succeeded.

        async def checker(message):
            stored = await orders.exists(message.keys[0])
            return TransactionState.COMMIT if stored else TransactionState.ROLLBACK

        async with TransactionProducer("orders", checker, namesrv=broker) as producer:
            message = Message("orders", b"...", keys=["42"])
            async with producer.transaction(message) as transaction:
                await orders.insert("42")

    `checker` is an async function that is asked about messages whose outcome the broker
    does not know; it gets the half message and returns a `TransactionState`. UNKNOWN,
    or an exception (logged), means that the broker asks again later; so does a checker
    that takes more than `check_timeout` seconds (60), which is cancelled.
    `check_workers` checks run side by side; more than `max_checks_waiting` questions
    are dropped, and asked again by the broker. A producer that only answers checks has
    to know brokers: name `topics` whose routes are asked for at the start. All else is
    as in `Producer`. Raises `ConfigurationError` for a plain function as the checker.
    """

    _inner: InnerTransactionProducer

    def __init__(
        self,
        group: str,
        checker: Checker,
        *,
        topics: Iterable[str] = (),
        check_workers: int = 4,
        max_checks_waiting: int = 2000,
        check_timeout: float | timedelta = CHECK_TIMEOUT,
        namesrv: NamesrvSource | None = None,
        client: Client | None = None,
        **options: Unpack[ProducerOptions],
    ) -> None:
        self._inner = InnerTransactionProducer(
            group,
            self._in_loop(checked_checker(checker)),
            topics=topics,
            check_workers=check_workers,
            max_checks_waiting=max_checks_waiting,
            check_timeout=check_timeout,
            namesrv=inner_of(namesrv),
            client=inner_client(client),
            **options,
        )
        self.client = self._client_of(client, Client, self._inner.client)

    def transaction(
        self,
        message: Message,
        *,
        check_immunity: float | timedelta | None = None,
        rollback_on: RollbackOn = (),
        timeout: float | timedelta | None = None,
    ) -> AbstractAsyncContextManager[Transaction]:
        """Send a half message, run the block, and commit.

        An exception of the block goes on, and the broker is told nothing, so that it
        asks the checker, as after `transaction.unknown()`: the local work may have
        succeeded although its answer was lost. The same holds for a cancellation.
        While the block runs, this producer answers no question about it. Only
        `transaction.rollback()` before the exception, and exceptions of the classes in
        `rollback_on`, or groups of nothing else, drop the message at once. (So does
        Java's client, which takes an exception of the local work for UNKNOWN.)
        `check_immunity` seconds must pass before the broker asks (default: its
        `transactionTimeOut`, 6 s); a word that comes later than that is refused with
        604, because the checker decides then. On this SDK's broker a committed message
        appears exactly once; on Apache's at least once.

        Raises `ConfigurationError` for a message with a delay, which Apache's client
        refuses too (since 5.5.0), and what `send` raises, before the block is run; also
        when the half message is not as safe as the broker was asked for (it is rolled
        back then). When the block is done: `BrokerError` when the broker refuses the
        commit. A commit whose answer does not come raises nothing:
        `transaction.confirmed` stays false, and the checker decides.
        """
        return Managed(
            self._running(),
            lambda: self._inner.transaction(
                message, check_immunity=check_immunity, rollback_on=rollback_on, timeout=timeout
            ),
        )

    async def send_in_transaction(
        self,
        message: Message,
        local_work: LocalWork,
        *,
        check_immunity: float | timedelta | None = None,
        rollback_on: RollbackOn = (),
        timeout: float | timedelta | None = None,
    ) -> TransactionResult:
        """Send a half message, await `local_work(transaction)`, end the transaction.

        The state is what `local_work` returns; None means what the transaction's state
        says.

        The rules and errors are those of `transaction`.
        """
        # The local work runs in the task of the caller.
        async with self.transaction(
            message, check_immunity=check_immunity, rollback_on=rollback_on, timeout=timeout
        ) as transaction:
            state = await local_work(transaction)
            if state is not None:
                transaction.state = TransactionState(state)
        return TransactionResult(transaction.half, transaction.state, transaction.confirmed)
