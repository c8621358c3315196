"""Asks producers for the outcome of their transactions.

`TransactionalMessageServiceImpl.check` of Apache RocketMQ 5.4.0. Each round goes
through the open half messages, oldest first. One that is old enough is appended again
at the end of the half queue with the number of its checks, so that the queue can move
on, and any producer of its group is asked. After `transactionCheckMax` checks it goes
to TRANS_CHECK_MAX_TIME_TOPIC instead, in one write with its op record. An answer comes
as an ordinary END_TRANSACTION.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

import trio

from rocketmq_sdk.broker_embedded.store.messages import PutResult, PutStatus
from rocketmq_sdk.broker_embedded.store.services import OnCall
from rocketmq_sdk.broker_embedded.supervision import Complaints, JoinedTroubles, error_text
from rocketmq_sdk.broker_embedded.transactions.half_messages import (
    check_body,
    destination,
    given_up,
    renewed,
)
from rocketmq_sdk.broker_embedded.transactions.table import op_message, place_of
from rocketmq_sdk.codes import RequestCode
from rocketmq_sdk.errors import ProtocolError, RocketMQError, StoreError
from rocketmq_sdk.log_fields import about
from rocketmq_sdk.model.properties import (
    CHECK_IMMUNITY_TIME_IN_SECONDS,
    PGROUP,
    TRANSACTION_CHECK_TIMES,
)
from rocketmq_sdk.names import TRANSACTION_CHECK_MAX_TOPIC, TRANSACTION_HALF_TOPIC
from rocketmq_sdk.protocol.command import Command
from rocketmq_sdk.protocol.headers.transactions import CheckTransactionStateRequestHeader
from rocketmq_sdk.protocol.message_codec import decode_message
from rocketmq_sdk.sleeper import sleep

if TYPE_CHECKING:
    from rocketmq_sdk.broker_embedded.members.producers import ProducerManager
    from rocketmq_sdk.broker_embedded.settings.config import BrokerConfig, LiveConfig
    from rocketmq_sdk.broker_embedded.store.message_store import MessageStore
    from rocketmq_sdk.broker_embedded.store.messages import MessageToStore
    from rocketmq_sdk.broker_embedded.tables.topics import TopicManager
    from rocketmq_sdk.broker_embedded.transactions.table import Half, TransactionTable
    from rocketmq_sdk.clock import Clock
    from rocketmq_sdk.model.received import ReceivedMessage

    _Question = tuple[Half, ReceivedMessage, str]

logger = logging.getLogger(__name__)

_SLICE: Final = 32
"""Half messages looked at before others have their turn."""
_MS_PER_HOUR: Final = 3_600_000
_FOREVER: Final = frozenset({PutStatus.MESSAGE_ILLEGAL, PutStatus.PROPERTIES_SIZE_EXCEEDED})
"""What a put that is tried again would say again."""
_STORED: Final = frozenset(
    {PutStatus.PUT_OK, PutStatus.FLUSH_SLAVE_TIMEOUT, PutStatus.SLAVE_NOT_AVAILABLE}
)


def immunity_ms(text: str | None, timeout_ms: int) -> int | None:
    """How long after its birth a half message is not checked, by its property
    CHECK_IMMUNITY_TIME_IN_SECONDS.

    None when it has no such property. A property that is no number, or -1, means the
    broker's `transactionTimeOut`.
    """
    if text is None:
        return None
    try:
        seconds = int(text)
    except ValueError:
        seconds = -1
    return timeout_ms if seconds == -1 else seconds * 1000


def checks_of(half: ReceivedMessage) -> int:
    """How often a half message was checked, as its copy says."""
    text = half.properties.get(TRANSACTION_CHECK_TIMES, "")
    return int(text) if text.isdecimal() and len(text) < 10 else 0


class TransactionCheckService:
    """Checks what is open, each `transactionCheckInterval`."""

    __slots__ = (
        "_clock",
        "_config",
        "_follower",
        "_host",
        "_next_at",
        "_on_call",
        "_producers",
        "_store",
        "_table",
        "_topics",
        "_unended",
        "trouble",
        "troubles",
    )

    def __init__(
        self,
        store: MessageStore,
        table: TransactionTable,
        config: LiveConfig,
        producers: ProducerManager,
        topics: TopicManager,
        clock: Clock,
        host: bytes,
    ) -> None:
        self._store = store
        self._table = table
        self._config = config
        self._producers = producers
        self._topics = topics
        self._clock = clock
        self._host = host
        self._unended = table.unended
        self._next_at = 0.0
        self._on_call = OnCall()
        self.trouble = Complaints()
        """Half messages that could not be given up or appended again."""
        self._follower = store.follow("the check of transactions")
        self.troubles = JoinedTroubles(self.trouble, self._follower)
        """All half messages that wait for something."""

    def begin(self) -> OnCall:
        """What `run` is called by from now on; the table is loaded."""
        interval = self._config.current.transaction_check_interval / 1000
        self._next_at, self._on_call.after = trio.current_time() + interval, interval
        if self._table.unread or self._unended:
            self._on_call.call()
        return self._on_call

    async def run(self) -> None:
        """Work until cancelled."""
        for place, error in self._table.unread:
            self._follower.give_up(place, error)
        self._table.unread.clear()
        self._write_missing_ops()
        while True:
            await sleep(max(0.0, self._next_at - trio.current_time()))
            try:
                self._write_missing_ops()
                await self.round()
            finally:
                interval = self._config.current.transaction_check_interval / 1000
                self._next_at = trio.current_time() + interval

    def _write_missing_ops(self) -> None:
        """Write the missing op records of ended half messages.

        What fails comes again in the next round.
        """
        while self._unended:
            half = self._unended[0]
            result = self._store.put(
                op_message(half.offset, now_ms=self._clock.now_ms(), host=self._host)
            )
            if not result.ok:
                logger.error(
                    "the op record of the half message %d could not be written (%s); "
                    "it is tried again",
                    half.offset,
                    result.status.name,
                )
                return
            self._table.finished(half, result, is_committed=None)
            del self._unended[0]
            logger.info(
                "the half message %d was ended and had no op record; it has one now", half.offset
            )

    async def round(self) -> None:
        """Look at each open half message once, oldest first, until one is too young."""
        end = self._store.max_physical_offset
        config = self._config.current
        asked: list[_Question] = []
        failed: set[str] = set()
        offsets = self._table.open_offsets()
        for first in range(0, len(offsets), _SLICE):
            halves = [
                half
                for offset in offsets[first : first + _SLICE]
                if (half := self._table.get(offset)) is not None
            ]
            old_enough = await self._look_at(halves, end, config, asked, failed)
            await self._ask_all(asked)
            if not old_enough:
                break
            await trio.lowlevel.checkpoint()
        self.trouble.keep(failed)
        self._table.note_progress()

    async def _look_at(
        self,
        halves: list[Half],
        end: int,
        config: BrokerConfig,
        asked: list[_Question],
        failed: set[str],
    ) -> bool:
        """Handle some half messages; False when one and all behind it are too young."""
        records = await self._follower.records(
            [(half.physical_offset, half.size) for half in halves]
        )
        for half, record in zip(halves, records, strict=True):
            if self._table.get(half.offset) is not half:
                continue  # it was ended meanwhile
            if isinstance(record, StoreError):
                await self._unread(half, record)
            elif not self._try_half(half, record, end, config, asked, failed):
                return False
        return True

    async def _unread(self, half: Half, error: StoreError) -> None:
        """A half message cannot be read; after some rounds it is set aside."""
        place = place_of(half)
        if not self._follower.left(place) and await self._follower.failed(place, error) is None:
            self._table.forget(half)

    def _try_half(
        self,
        half: Half,
        record: bytes | None,
        end: int,
        config: BrokerConfig,
        asked: list[_Question],
        failed: set[str],
    ) -> bool:
        """`_look`; after an error the half message waits for the next round, and those
        behind it have their turn.
        """
        what = f"half message {half.offset}"
        try:
            return self._look(half, record, end, config, asked)
        except Exception as error:  # noqa: BLE001 - other half messages go on
            failed.add(what)
            if self.trouble.add(what, error):
                logger.error(
                    "%s could not be looked at; the next round tries it: %s",
                    what,
                    error_text(error),
                )
            return True

    def _look(
        self,
        half: Half,
        record: bytes | None,
        end: int,
        config: BrokerConfig,
        asked: list[_Question],
    ) -> bool:
        """Handle one half message; False when it and all behind it are too young.

        `end` is where the log ended when the round began: what lies behind came since.
        Store times would say it too, but for a clock set back.
        """
        message = self._decoded(half, record)
        if message is None:
            self._table.forget(half)
            return True
        age = self._clock.now_ms() - message.born_timestamp
        checks = max(checks_of(message), half.unwritten_checks)
        if (
            checks >= config.transaction_check_max
            or age > config.store.file_reserved_time * _MS_PER_HOUR
        ):
            self._give_up(
                half, message, f"it was checked {checks} times and is {age // 1000} s old"
            )
            return True
        if half.physical_offset >= end:
            return False
        asked_for = message.properties.get(CHECK_IMMUNITY_TIME_IN_SECONDS)
        immunity = immunity_ms(asked_for, config.transaction_time_out)
        if immunity is None:
            if 0 <= age < config.transaction_time_out:
                return False
        elif age < immunity:
            self._renew(half, renewed(message, None), 0)
            return True
        try:
            destination(message)
        except ValueError as error:
            self._give_up(half, message, str(error))
            return True
        copy = renewed(message, checks + 1)
        current = self._renew(half, copy, checks + 1)
        if current is not None:
            properties = (
                message.properties_bytes.decode("utf-8", "replace")
                if current is half
                else copy.properties
            )
            asked.append((current, message, properties))
        return True

    def _decoded(self, half: Half, record: bytes | None) -> ReceivedMessage | None:
        """The message of a record; None when it is none, which is named."""
        place = place_of(half)
        self._follower.went_well(place)
        if record is None:
            self._follower.give_up(place, "the log does not have it any more")
            return None
        try:
            return decode_message(record, inflate=False)
        except ProtocolError as error:
            self._follower.give_up(place, str(error))
            return None

    def _renew(self, half: Half, copy: MessageToStore, checks: int) -> Half | None:
        """Append a half message again; returns its new state.

        None when that failed and the next round has to do it. One whose properties
        leave no room for the number of checks stays where it is, and is checked all the
        same.
        """
        result = self._store.put(copy)
        if result.ok:
            return self._table.add(
                half.key, result.queue_offset, result.physical_offset, result.size
            )
        if result.status in _FOREVER:
            half.unwritten_checks = checks
            return half
        logger.warning(
            "the half message %d could not be appended again (%s); the next round tries it",
            half.offset,
            result.status.name,
        )
        return None

    def _give_up(self, half: Half, message: ReceivedMessage, reason: str) -> None:
        """Put a half message aside; it and its op record are one write."""
        self._topics.create_retry(TRANSACTION_CHECK_MAX_TOPIC)
        op = op_message(half.offset, now_ms=self._clock.now_ms(), host=self._host)
        results = self._store.put_together([given_up(message), op])
        if not results[-1].ok:
            if results[-1].status in _FOREVER:
                logger.error(
                    "the half message %d cannot be put into %s; it is dropped",
                    half.offset,
                    TRANSACTION_CHECK_MAX_TOPIC,
                )
                self._table.forget(half)
            else:
                logger.warning(
                    "the half message %d could not be given up (%s); the next round tries it",
                    half.offset,
                    results[-1].status.name,
                )
            return
        self._table.finished(half, results[-1], is_committed=False)
        logger.warning(
            "the half message %s goes to %s: %s",
            message.message_id,
            TRANSACTION_CHECK_MAX_TOPIC,
            reason,
            extra=about(message_id=message.message_id),
        )

    async def _ask_all(self, asked: list[_Question]) -> None:
        """Ask for the outcome of half messages whose copies are stored.

        An answer must find them there even after a power cut.
        """
        if not asked:
            return
        batch = list(asked)
        asked.clear()
        if self._store.needs_wait:
            last = batch[-1][0]
            if (
                await self._store.wait_durable(
                    PutResult(PutStatus.PUT_OK, last.physical_offset, last.size)
                )
                not in _STORED
            ):
                return
        for half, message, properties in batch:
            self._ask(half, message, properties)

    def _ask(self, half: Half, message: ReceivedMessage, properties: str) -> None:
        group = message.properties.get(PGROUP, "")
        channel = self._producers.available_channel(group)
        if channel is None:
            logger.debug(
                "nobody of the producer group %r is here to be asked about %s",
                group,
                message.message_id,
                extra=about(group=group, message_id=message.message_id),
            )
            return
        try:
            body = check_body(message, properties, half.offset, half.physical_offset)
            header = CheckTransactionStateRequestHeader(
                bname=self._config.current.broker_name,
                topic=TRANSACTION_HALF_TOPIC,
                tran_state_table_offset=half.offset,
                commit_log_offset=half.physical_offset,
                msg_id=message.message_id,
                transaction_id=message.message_id,
                offset_msg_id=(message.store_host + half.physical_offset.to_bytes(8, "big"))
                .hex()
                .upper(),
            )
            channel.send_oneway(
                Command.request(RequestCode.CHECK_TRANSACTION_STATE, header, body=body, oneway=True)
            )
        except (RocketMQError, ValueError) as error:
            logger.warning(
                "the producer group %r could not be asked about %s: %s",
                group,
                message.message_id,
                error,
                extra=about(group=group, message_id=message.message_id),
            )
