"""Transactional messages: stored out of sight, then shown or dropped.

Follows `TransactionMQProducer` of Apache RocketMQ 5.4.0.

The half message is sent like any other. What becomes of it is told by END_TRANSACTION
to the broker that has it; when that word is lost, or never spoken, the broker asks any
live producer of the group, whose checker looks the outcome up. Checks are run by a few
tasks of the producer, made once.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final, Unpack

import attrs
import trio

from rocketmq_sdk.client.api.transactions import answer_check
from rocketmq_sdk.client.arguments import checked
from rocketmq_sdk.client.words import Words
from rocketmq_sdk.codes import ResponseCode
from rocketmq_sdk.errors import (
    ProtocolError,
    RocketMQError,
    WrongTypeError,
    broker_error,
)
from rocketmq_sdk.lifecycle import bounded_cleanup
from rocketmq_sdk.log_fields import about
from rocketmq_sdk.model.enums import SendStatus, TransactionState
from rocketmq_sdk.model.properties import MSG_REGION, TRACE_ON
from rocketmq_sdk.model.received import ReceivedMessage
from rocketmq_sdk.model.results import SendResult
from rocketmq_sdk.producer.handle import SendHandle
from rocketmq_sdk.producer.message_type import TRANSACTION
from rocketmq_sdk.producer.outgoing import check_size, leaving_body, tail_of
from rocketmq_sdk.producer.producer import SEND_V2, Producer
from rocketmq_sdk.producer.trace import note_transaction
from rocketmq_sdk.producer.transaction_arguments import (
    RollbackOn,
    as_state,
    check_async,
    check_rollback_on,
    checked_timeout,
    checked_topics,
    is_all,
    refuse_delay,
)
from rocketmq_sdk.protocol.command import Command
from rocketmq_sdk.protocol.flags import SysFlag
from rocketmq_sdk.protocol.headers.transactions import (
    CheckTransactionStateRequestHeader,
    EndTransactionRequestHeader,
)
from rocketmq_sdk.protocol.message_codec import decode_message
from rocketmq_sdk.protocol.message_id import position_of
from rocketmq_sdk.remoting.channel import Channel
from rocketmq_sdk.validators import check_count, to_seconds

if TYPE_CHECKING:
    from datetime import timedelta

    from rocketmq_sdk.client.config import NamesrvSource
    from rocketmq_sdk.client.runtime import Client
    from rocketmq_sdk.model.message import Message
    from rocketmq_sdk.producer.config import ProducerOptions

Checker = Callable[[ReceivedMessage], Awaitable[TransactionState]]
LocalWork = Callable[["Transaction"], Awaitable[TransactionState | None]]

logger = logging.getLogger("rocketmq_sdk.producer")
CHECK_TIMEOUT: Final = 60.0
"""Seconds that a checker may take by default.

One that hangs would end the checks of its group.
"""
ROLLBACK_TIMEOUT: Final = 2.0
"""Seconds that the word of a rollback may take when a block is left by an exception."""
_OUTCOMES: Final = {TransactionState.COMMIT: 8, TransactionState.ROLLBACK: 12}
_NOT_SAFE: Final = {
    SendStatus.FLUSH_DISK_TIMEOUT: ResponseCode.FLUSH_DISK_TIMEOUT,
    SendStatus.FLUSH_SLAVE_TIMEOUT: ResponseCode.FLUSH_SLAVE_TIMEOUT,
    SendStatus.SLAVE_NOT_AVAILABLE: ResponseCode.SLAVE_NOT_AVAILABLE,
}


class Transaction:
    """A stored half message, inside the block of `TransactionProducer.transaction`.

    `state` is what will be told to the broker at the end of the block: COMMIT unless
    `rollback` or `unknown` is called. `confirmed` is set when the broker has confirmed
    it; when it stays false although the block ended well, the check decides.
    """

    __slots__ = ("_state", "confirmed", "half", "message")

    def __init__(self, message: Message, half: SendResult) -> None:
        self.message = message
        self.half = half
        self._state = TransactionState.COMMIT
        self.confirmed = False

    @property
    def state(self) -> TransactionState:
        """What will be told; what is no state is refused with `WrongTypeError`."""
        return self._state

    @state.setter
    def state(self, state: TransactionState) -> None:
        if not isinstance(state, TransactionState):
            raise WrongTypeError(f"state is {state!r:.200}; give a TransactionState")
        self._state = state

    @property
    def message_id(self) -> str:
        """The unique id of the message; the checker is asked about the same one."""
        return self.half.message_id

    @property
    def transaction_id(self) -> str:
        """The id under which the broker knows the transaction."""
        return self.half.transaction_id or self.half.message_id

    def commit(self) -> None:
        """Show the message at the end of the block, the default."""
        self.state = TransactionState.COMMIT

    def rollback(self) -> None:
        """Drop the message at the end of the block."""
        self.state = TransactionState.ROLLBACK

    def unknown(self) -> None:
        """Tell the broker nothing at the end of the block; it will ask the checker."""
        self.state = TransactionState.UNKNOWN

    def __repr__(self) -> str:
        return (
            f"<Transaction {self.message_id} of {self.message!r}: "
            f"{self.state.name}{' confirmed' if self.confirmed else ''}>"
        )


@attrs.frozen
class TransactionResult:
    """The result of `TransactionProducer.send_in_transaction`.

    How the half message was stored, what the local work decided, and whether the broker
    has confirmed that.
    """

    half: SendResult
    state: TransactionState
    confirmed: bool


def checked_checker(checker: Checker) -> Checker:
    """A checker that surely is no plain function. Raises `ConfigurationError`."""
    check_async("checker", checker, "the half message")
    return checker


@attrs.frozen
class _Check:
    """A question of a broker, and the connection that wants the answer."""

    command: Command
    channel: Channel


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
        check_async("checker", checker, "the half message")
        check_count("check_workers", check_workers, 1)
        check_count("max_checks_waiting", max_checks_waiting, 1)
        self._check_timeout = checked_timeout(check_timeout)
        super().__init__(group, namesrv=namesrv, client=client, **options)
        self._checker = checker
        self._check_workers = check_workers
        self._max_checks = max_checks_waiting
        # The ids of messages whose local work may still begin, or runs.
        self._open: set[str] = set()
        self._checks: deque[_Check] = deque()
        self._checks_room = trio.lowlevel.ParkingLot()
        self._check_topics = checked_topics(topics)
        self._words = Words(self.client)

    # --- sending

    @asynccontextmanager
    @checked
    async def transaction(
        self,
        message: Message,
        *,
        check_immunity: float | timedelta | None = None,
        rollback_on: RollbackOn = (),
        timeout: float | timedelta | None = None,
    ) -> AsyncIterator[Transaction]:
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
        seconds = self._timeout if timeout is None else to_seconds(timeout)
        immunity = None if check_immunity is None else to_seconds(check_immunity)
        refuse_delay(message)
        check_rollback_on(rollback_on)
        handle = await self._begin_half(message, immunity, seconds)
        # The broker may ask before its answer to the half message is here.
        self._open.add(handle.message_id)
        try:
            transaction = Transaction(message, await self._stored_half(handle, seconds))
            try:
                yield transaction
            except BaseException as error:
                if transaction.state is not TransactionState.ROLLBACK:
                    transaction.state = (
                        TransactionState.ROLLBACK
                        if is_all(error, rollback_on)
                        else TransactionState.UNKNOWN
                    )
                async with bounded_cleanup(ROLLBACK_TIMEOUT):
                    await self._end_quietly(transaction, seconds)
                raise
        finally:
            self._open.discard(handle.message_id)
        if transaction.state is TransactionState.COMMIT:
            await self._tell(transaction, seconds)
        else:
            await self._end_quietly(transaction, seconds)

    @checked
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
        check_async("local_work", local_work, "the transaction")
        async with self.transaction(
            message, check_immunity=check_immunity, rollback_on=rollback_on, timeout=timeout
        ) as transaction:
            answer: object = local_work(transaction)
            if not isinstance(answer, Awaitable):
                raise WrongTypeError(
                    f"local_work is no async function: it returned {answer!r:.200} instead of "
                    "something to await"
                )
            state = await answer
            if state is not None:
                transaction.state = as_state("local_work returned", state)
        return TransactionResult(transaction.half, transaction.state, transaction.confirmed)

    async def _begin_half(
        self, message: Message, immunity: float | None, seconds: float
    ) -> SendHandle:
        self._running_loop()
        size = len(message.body)
        check_size(size, self.config.max_message_size)
        seconds = await self._hold_to_type((message,), seconds, TRANSACTION)
        if self._under_way.is_full(size):
            with await self._under_way.wait_for_room(size, seconds, self._running_loop) as room:
                return self._start_half(message, immunity, room.seconds)
        return self._start_half(message, immunity, seconds)

    async def _stored_half(self, handle: SendHandle, seconds: float) -> SendResult:
        """The result of a half message; raises when it is not stored, or not safely."""
        half = await handle.wait_or_abandon(alone=not self._has_others(1))
        if half.status is not SendStatus.SEND_OK:
            message = handle.message
            transaction = Transaction(message, half)
            transaction.rollback()
            await self._end_quietly(transaction, seconds)
            remark = (
                f"the half message is stored, but not as safely as asked ({half.status.name}); it "
                "is rolled back"
            )
            raise broker_error(_NOT_SAFE[half.status], remark, topic=message.topic)
        return half

    def _start_half(self, message: Message, immunity: float | None, seconds: float) -> SendHandle:
        topic = self._topics[message.topic]
        body, sys_flag = leaving_body(message, self.config)
        more = f"{self._more}TRAN_MSG\x01true\x02PGROUP\x01{self._group}\x02"
        if immunity is not None:
            more += f"CHECK_IMMUNITY_TIME_IN_SECONDS\x01{max(1, round(immunity))}\x02"
        tail = tail_of(message, self._id_digits, more)
        now = trio.current_time()
        handle = SendHandle(
            topic,
            SEND_V2,
            message,
            tail,
            body,
            sys_flag | SysFlag.TRANSACTION_PREPARED,
            now,
            now + seconds,
            self._attempts,
            self._under_way,
        )
        return self._go(handle)

    def _has_others(self, own: int) -> bool:
        """Whether other transactions are on their way beside `own` open ones."""
        return len(self._open) > own or self._words.waiting > 0 or self._under_way.count > own

    # --- the end

    def _turned(self) -> None:
        self._words.leave()
        super()._turned()

    def _end(self) -> None:
        super()._end()
        self._words.leave()

    async def _tell(self, transaction: Transaction, seconds: float) -> None:
        """Tell the broker the outcome.

        Raises `BrokerError` when it refuses; when nothing comes back that is logged.
        """
        self._trace_end(transaction)
        outcome = _OUTCOMES.get(transaction.state)
        if outcome is None:
            return
        half = transaction.half
        message, broker = transaction.message, half.queue.broker_name
        try:
            header = self._end_header(transaction, outcome)
            if self._hooks.observers:
                address = self.client.broker_address(broker)
                message_id = transaction.message_id
                with self._hooks.ending(message, message_id, outcome, address) as ending:
                    response = await self._say(broker, header, seconds)
                    if response.code:
                        ending.error = broker_error(response.code, response.remark)
            else:
                response = await self._say(broker, header, seconds)
        except RocketMQError as error:
            name = transaction.state.name
            logger.warning(
                "%s: %s said nothing to the %s (%s); the check decides",
                transaction.message_id,
                broker,
                name,
                error,
                extra=about(message_id=transaction.message_id),
            )
            return
        if response.code == ResponseCode.GO_AWAY:
            logger.warning(
                "%s: %s is leaving and has not heard the outcome; the check decides",
                transaction.message_id,
                broker,
                extra=about(message_id=transaction.message_id),
            )
        elif response.code:
            raise broker_error(
                response.code, response.remark, topic=transaction.message.topic, group=self._group
            )
        else:
            transaction.confirmed = True

    async def _say(
        self, broker: str, header: EndTransactionRequestHeader, seconds: float
    ) -> Command:
        """Tell a broker an outcome, with those of this turn if there are others."""
        loop = self._loop
        stir = loop.stir if loop is not None and self._has_others(0) else None
        return await self._words.tell(broker, header, seconds, stir)

    def _trace_end(self, transaction: Transaction) -> None:
        half = transaction.half
        if self._trace is not None and half.trace_on:
            note_transaction(
                self._trace,
                self._group,
                transaction.message,
                transaction.state,
                message_id=half.message_id,
                transaction_id=transaction.transaction_id,
                store_host=self.client.broker_address(half.queue.broker_name),
                region=half.region_id,
                now_ms=self.client.clock.now_ms(),
            )

    async def _end_quietly(self, transaction: Transaction, seconds: float) -> None:
        try:
            await self._tell(transaction, seconds)
        except RocketMQError as error:
            logger.warning(
                "%s: the %s was refused: %s",
                transaction.message_id,
                transaction.state.name,
                error,
                extra=about(message_id=transaction.message_id),
            )

    def _end_header(self, transaction: Transaction, outcome: int) -> EndTransactionRequestHeader:
        half = transaction.half
        return EndTransactionRequestHeader(
            topic=self.client.namespace.wrap(transaction.message.topic),
            producer_group=self._group,
            bname=half.queue.broker_name,
            tran_state_table_offset=half.queue_offset,
            commit_log_offset=position_of(half.offset_message_id),
            commit_or_rollback=outcome,
            msg_id=half.message_id,
            transaction_id=transaction.transaction_id,
        )

    # --- checks

    async def _start_services(self, nursery: trio.Nursery) -> None:
        await super()._start_services(nursery)
        for _ in range(self._check_workers):
            nursery.start_soon(self._check_worker)
        if self._check_topics:
            for topic in self._check_topics:
                self._topics[topic]  # in use from here on
                await self._running_loop().find_route(topic)
            await self.client.heartbeat_now()

    def on_check_transaction(self, command: Command, channel: Channel) -> None:
        """A broker asks for the outcome of a transaction of the group (39)."""
        if len(self._checks) >= self._max_checks:
            logger.warning(
                "a check of a transaction of group %r is dropped: %d wait already",
                self._group,
                len(self._checks),
                extra=about(group=self._group),
            )
            return
        self._checks.append(_Check(command, channel))
        self._checks_room.unpark()

    async def _check_worker(self) -> None:
        """Answer checks until cancelled."""
        while True:
            if not self._checks:
                await self._checks_room.park()
            else:
                await self._answer(self._checks.popleft())

    async def _answer(self, check: _Check) -> None:
        await trio.lowlevel.checkpoint()
        try:
            header = CheckTransactionStateRequestHeader.from_ext(check.command.ext_fields)
            message = decode_message(check.command.body, broker_name=header.bname or "")
            message.topic = self.client.namespace.unwrap(message.topic)
        except (ProtocolError, RocketMQError) as error:
            logger.warning(
                "a check of a transaction of group %r cannot be read: %s",
                self._group,
                error,
                extra=about(group=self._group),
            )
            return
        if message.message_id in self._open:
            return  # its local work is being done: the broker asks again
        state = await self._ask_checker(message)
        if state is None:
            return
        if self._trace is not None and message.properties.get(TRACE_ON) != "false":
            note_transaction(
                self._trace,
                self._group,
                message,
                state,
                message_id=message.message_id,
                transaction_id=header.transaction_id,
                store_host=check.channel.remote_address,
                region=message.properties.get(MSG_REGION),
                now_ms=self.client.clock.now_ms(),
                from_check=True,
            )
        outcome = _OUTCOMES.get(state)
        if outcome is None:
            return
        end = EndTransactionRequestHeader(
            topic=header.topic,
            producer_group=self._group,
            bname=header.bname,
            tran_state_table_offset=header.tran_state_table_offset,
            commit_log_offset=header.commit_log_offset,
            commit_or_rollback=outcome,
            from_transaction_check=True,
            msg_id=header.msg_id or message.message_id,
            transaction_id=header.transaction_id,
        )
        client = self.client
        try:
            answer_check(client.remoting, check.channel, end, client.config.header_encoding)
        except RocketMQError as error:
            logger.warning(
                "the outcome of %s could not be told: %s; the broker will ask again",
                message.message_id,
                error,
                extra=about(message_id=message.message_id),
            )

    async def _ask_checker(self, message: ReceivedMessage) -> TransactionState | None:
        """What the caller's checker says of a half message.

        None (logged) when it fails; the broker asks again then.
        """
        try:
            address = self.client.broker_address(message.broker_name)
            with self._hooks.checking(message, address), trio.fail_after(self._check_timeout):
                answer: object = self._checker(message)
                if not isinstance(answer, Awaitable):
                    raise TypeError(
                        f"the checker is not an async function: it returned {answer!r} instead of "
                        "something to await"
                    )
                return as_state("the checker returned", await answer)
        except Exception:  # the checker is the caller's code; the broker asks again
            logger.exception(
                "the checker of group %r failed over %s; the broker will ask again",
                self._group,
                message.message_id,
                extra=about(group=self._group, message_id=message.message_id),
            )
            return None
