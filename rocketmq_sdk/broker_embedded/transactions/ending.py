"""END_TRANSACTION (37) and RESUME_CHECK_HALF_MESSAGE (323).

Commit or roll back, and check again what was given up (`EndTransactionProcessor` of
Apache). Most ends are plain, see `PlainEnds`; here are the others. A commit appends the
message that consumers see and the op record of its half message in one write, so that
no crash can part them for long: when the log ends between them, the start writes the op
record. Ending what is ended stores nothing, where Apache's broker would store the
message a second time: it answers SUCCESS, or ILLEGAL_OPERATION if it was ended the
other way, which is known of the last 10,000.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from rocketmq_sdk.broker_embedded.needs import is_of
from rocketmq_sdk.broker_embedded.slices import with_record
from rocketmq_sdk.broker_embedded.timers.intake import STORED
from rocketmq_sdk.broker_embedded.transactions.half_messages import committed, renewed, resumed
from rocketmq_sdk.broker_embedded.transactions.plain_ends import is_too_late
from rocketmq_sdk.broker_embedded.transactions.table import op_message
from rocketmq_sdk.codes import ResponseCode
from rocketmq_sdk.errors import ConfigurationError, FieldError, ProtocolError
from rocketmq_sdk.model.properties import CHECK_IMMUNITY_TIME_IN_SECONDS, PGROUP, REAL_TOPIC
from rocketmq_sdk.names import TRANSACTION_CHECK_MAX_TOPIC, TRANSACTION_HALF_TOPIC
from rocketmq_sdk.protocol.command import Command
from rocketmq_sdk.protocol.flags import SysFlag
from rocketmq_sdk.protocol.headers.transactions import EndTransactionRequestHeader
from rocketmq_sdk.protocol.message_codec import decode_message
from rocketmq_sdk.protocol.message_id import parse_offset_id

if TYPE_CHECKING:
    from rocketmq_sdk.broker_embedded.core import Core
    from rocketmq_sdk.broker_embedded.store.messages import MessageToStore, PutResult
    from rocketmq_sdk.broker_embedded.timers.intake import Intake
    from rocketmq_sdk.broker_embedded.transactions.plain_ends import PlainEnds
    from rocketmq_sdk.broker_embedded.transactions.table import Half, TransactionTable
    from rocketmq_sdk.model.received import ReceivedMessage
    from rocketmq_sdk.protocol.headers.transactions import ResumeCheckHalfMessageRequestHeader
    from rocketmq_sdk.remoting.channel import Channel, Continuation

_NOT_FOUND: Final = "Find prepared transaction message failed"
_ROLLED_BACK: Final = "the transaction was rolled back or given up before"
_COMMITTED: Final = "the transaction was committed before"
_NOT_RESUMED: Final = "Put message back to RMQ_SYS_TRANS_HALF_TOPIC failed."


class TransactionProcessor:
    """Ends transactions, those that are plain by `PlainEnds`."""

    def __init__(
        self, core: Core, intake: Intake, table: TransactionTable, plain: PlainEnds
    ) -> None:
        self._core = core
        self._intake = intake
        self._table = table
        self._plain = plain

    def end(self, channel: Channel, request: Command) -> Command | Continuation | None:
        """Commit or roll back a half message.

        One that is left open (0) is only acknowledged, to a producer that waits for an
        answer.
        """
        ended, answer = self._plain.end(channel, request)
        if ended:
            return answer
        header = EndTransactionRequestHeader.from_ext(request.ext_fields)
        outcome = header.commit_or_rollback
        if not outcome:
            return Command.response()
        return with_record(self._core.store, header.commit_log_offset, partial(self._end, header))

    def _end(
        self, header: EndTransactionRequestHeader, record: bytes | None
    ) -> Command | Continuation | None:
        outcome = header.commit_or_rollback
        message = _half_of(record)
        problem = _problem(message, header)
        named = header.topic if self._core.config.current.authorization_enabled else None
        if named and message is not None and not is_of(named, message):
            problem = _NOT_FOUND  # The permission was asked for another topic.
        if message is None or problem is not None:
            return Command.response(ResponseCode.SYSTEM_ERROR, remark=problem)
        if self._too_late(message, header):
            return Command.response(ResponseCode.ILLEGAL_OPERATION)
        commits = outcome == SysFlag.TRANSACTION_COMMIT
        half = self._table.open_half(message)
        if half is None:
            if self._table.was_committed(message) is (not commits):
                remark = _ROLLED_BACK if commits else _COMMITTED
                return Command.response(ResponseCode.ILLEGAL_OPERATION, remark=remark)
            return Command.response()
        if commits:
            return self._commit(message, half)
        return self._roll_back(message, half)

    def _too_late(self, message: ReceivedMessage, header: EndTransactionRequestHeader) -> bool:
        """Whether the producer is too late and must wait for the check.

        `rejectCommitOrRollback` of Apache; only for ends that the producer sends on its
        own.
        """
        if header.from_transaction_check:
            return False
        timeout = self._core.config.current.transaction_time_out
        age = self._core.clock.now_ms() - message.born_timestamp
        return is_too_late(message.properties.get(CHECK_IMMUNITY_TIME_IN_SECONDS), age, timeout)

    def _commit(self, message: ReceivedMessage, half: Half) -> Command | Continuation:
        core = self._core
        try:
            final = committed(message, half.physical_offset)
            refused = self._intake.prepare(final)
        except ValueError as error:
            return Command.response(ResponseCode.SYSTEM_ERROR, remark=str(error))
        except FieldError as error:
            return Command.response(ResponseCode.MESSAGE_ILLEGAL, remark=str(error))
        if refused is not None:
            return self._failure(refused)
        results = core.store.put_together([final, self._op(half)])
        if results[-1].ok:
            core.stats.put(final.topic, final.queue_id, 1, results[0].size)
            if core.stats.figures is not None:
                age = core.clock.now_ms() - message.born_timestamp
                core.stats.figures.transaction_committed(_topic_of(message), age // 1000)
        return self._finish(half, results[-1], is_committed=True)

    def _roll_back(self, message: ReceivedMessage, half: Half) -> Command | Continuation:
        result, figures = self._core.store.put(self._op(half)), self._core.stats.figures
        if result.ok and figures is not None:
            figures.rolled_back.add((_topic_of(message),))
        return self._finish(half, result, is_committed=False)

    def _op(self, half: Half) -> MessageToStore:
        return op_message(half.offset, now_ms=self._core.clock.now_ms(), host=self._core.store_host)

    def _finish(
        self, half: Half, result: PutResult, *, is_committed: bool
    ) -> Command | Continuation:
        """Finish a half message after the append of its end.

        The answer waits until that is as durable as any message.
        """
        if not result.ok:
            return self._failure(result)
        self._table.finished(half, result, is_committed=is_committed)
        store = self._core.store
        if not store.needs_wait:
            return Command.response()

        async def answer() -> Command:
            status = await store.wait_durable(result)
            if status in STORED:
                return Command.response()
            code, remark = self._intake.failure(status)
            return Command.response(code, remark=remark)

        return answer

    def _failure(self, result: PutResult) -> Command:
        self._core.stats.put_failed += 1
        code, remark = self._intake.failure(result.status)
        return Command.response(code, remark=remark)

    def resume(self, header: ResumeCheckHalfMessageRequestHeader) -> Command | Continuation | None:
        """Begin the checks of a half message anew.

        One that was given up becomes a half message again; one that is open stays so.
        One that is finished is refused, where Apache's broker would open it again.
        """
        try:
            _host, _port, physical_offset = parse_offset_id(header.msg_id or "")
        except (ProtocolError, ConfigurationError):
            return Command.response(ResponseCode.SYSTEM_ERROR, remark=_NOT_RESUMED)
        return with_record(self._core.store, physical_offset, self._resume)

    def _resume(self, record: bytes | None) -> Command:
        try:
            message = None if record is None else decode_message(record, inflate=False)
        except ProtocolError:
            message = None
        current = None if message is None else self._table.open_half(message)
        if message is not None and message.topic == TRANSACTION_CHECK_MAX_TOPIC:
            if current is not None:
                return Command.response()
            half = resumed(message)
        elif message is not None and current is not None:
            half = renewed(message, 0)
        else:
            return Command.response(ResponseCode.SYSTEM_ERROR, remark=_NOT_RESUMED)
        result = self._core.store.put(half)
        if not result.ok:
            return Command.response(ResponseCode.SYSTEM_ERROR, remark=_NOT_RESUMED)
        if current is None:
            self._table.added(half, result)
        else:
            self._table.add(current.key, result.queue_offset, result.physical_offset, result.size)
        return Command.response()


def _topic_of(message: ReceivedMessage) -> str:
    """The topic that a half message is for."""
    return message.properties.get(REAL_TOPIC, "")


def _half_of(record: bytes | None) -> ReceivedMessage | None:
    """The half message that a record is; None for anything else."""
    try:
        message = None if record is None else decode_message(record, inflate=False)
    except ProtocolError:
        return None
    return message if message is not None and message.topic == TRANSACTION_HALF_TOPIC else None


def _problem(message: ReceivedMessage | None, header: EndTransactionRequestHeader) -> str | None:
    """Why a request does not fit its half message, or None.

    In Apache's words and order.
    """
    if message is None:
        return _NOT_FOUND
    if message.properties.get(PGROUP) != header.producer_group:
        return "The producer group wrong"
    if message.offset != header.tran_state_table_offset:
        return "The transaction state table offset wrong"
    if message.commit_log_offset != header.commit_log_offset:
        return "The commit log offset wrong"
    return None
