"""END_TRANSACTION (37): commit or roll back; RESUME_CHECK_HALF_MESSAGE (323): check
again what was given up (`EndTransactionProcessor`).

A commit appends the message that consumers see and the op record of its half message in
one write, so that no crash can part them for long: when the log ends between them, the
start writes the op record. Ending what is ended answers SUCCESS and stores nothing,
where Apache's broker would store the message a second time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rocketmq_sdk.broker_embedded.send.put import STORED
from rocketmq_sdk.broker_embedded.transactions.check import immunity_ms
from rocketmq_sdk.broker_embedded.transactions.half_messages import committed, resumed
from rocketmq_sdk.broker_embedded.transactions.table import op_message
from rocketmq_sdk.codes import RequestCode, ResponseCode
from rocketmq_sdk.errors import ConfigurationError, FieldError, ProtocolError
from rocketmq_sdk.model.properties import PGROUP
from rocketmq_sdk.names import TRANSACTION_CHECK_MAX_TOPIC, TRANSACTION_HALF_TOPIC
from rocketmq_sdk.protocol.command import Command
from rocketmq_sdk.protocol.flags import SysFlag
from rocketmq_sdk.protocol.headers.transactions import (
    EndTransactionRequestHeader,
    ResumeCheckHalfMessageRequestHeader,
)
from rocketmq_sdk.protocol.message_codec import decode_message
from rocketmq_sdk.protocol.message_id import parse_offset_id

if TYPE_CHECKING:
    from rocketmq_sdk.broker_embedded.core import BrokerContext
    from rocketmq_sdk.broker_embedded.store.messages import MessageToStore, PutResult
    from rocketmq_sdk.broker_embedded.transactions.table import Half
    from rocketmq_sdk.model.message import ReceivedMessage
    from rocketmq_sdk.remoting.channel import Channel, Continuation, Handler

_NOT_FOUND: Final = "Find prepared transaction message failed"
_NOT_RESUMED: Final = "Put message back to RMQ_SYS_TRANS_HALF_TOPIC failed."


def handlers(context: BrokerContext) -> dict[int, Handler]:
    """The table of this module."""
    processor = TransactionProcessor(context)
    return {
        RequestCode.END_TRANSACTION: processor.end,
        RequestCode.RESUME_CHECK_HALF_MESSAGE: processor.resume,
    }


class TransactionProcessor:
    """Ends transactions."""

    def __init__(self, context: BrokerContext) -> None:
        self._context = context
        self._table = context.transactions

    def end(self, _channel: Channel, request: Command) -> Command | Continuation | None:
        """Commit or roll back a half message. One that is left open (0) is only
        acknowledged, to those who wait for an answer.
        """
        header = EndTransactionRequestHeader.from_ext(request.ext_fields)
        outcome = header.commit_or_rollback
        if not outcome:
            return Command.response()
        message = self._look_up(header.commit_log_offset)
        problem = _problem(message, header)
        if message is None or problem is not None:
            return Command.response(ResponseCode.SYSTEM_ERROR, remark=problem)
        if self._too_late(message, header):
            return Command.response(ResponseCode.ILLEGAL_OPERATION)
        half = self._table.open_half(message)
        if half is None:
            return Command.response()
        if outcome == SysFlag.TRANSACTION_COMMIT:
            return self._commit(message, half)
        return self._roll_back(half)

    def _look_up(self, physical_offset: int) -> ReceivedMessage | None:
        record = self._context.store.record_at(physical_offset)
        if record is None:
            return None
        try:
            message = decode_message(record, inflate=False)
        except ProtocolError:
            return None
        return message if message.topic == TRANSACTION_HALF_TOPIC else None

    def _too_late(self, message: ReceivedMessage, header: EndTransactionRequestHeader) -> bool:
        """Whether the producer speaks on its own so late that it has to wait for the
        check (`rejectCommitOrRollback`).
        """
        if header.from_transaction_check:
            return False
        timeout = self._context.config.current.transaction_time_out
        immunity = immunity_ms(message, timeout)
        return immunity is not None and self._context.clock.now_ms() - message.born_timestamp > max(
            immunity, timeout
        )

    def _commit(self, message: ReceivedMessage, half: Half) -> Command | Continuation:
        context = self._context
        try:
            final = committed(message, half.physical_offset)
            refused = context.put.prepare(final)
        except ValueError as error:
            return Command.response(ResponseCode.SYSTEM_ERROR, remark=str(error))
        except FieldError as error:
            return Command.response(ResponseCode.MESSAGE_ILLEGAL, remark=str(error))
        if refused is not None:
            return self._failure(refused)
        results = context.store.put_together([final, self._op(half)])
        if results[-1].ok:
            context.stats.put(final.topic, final.queue_id, 1, results[0].size)
        return self._finish(half, results[-1])

    def _roll_back(self, half: Half) -> Command | Continuation:
        return self._finish(half, self._context.store.put(self._op(half)))

    def _op(self, half: Half) -> MessageToStore:
        return op_message(
            half.offset, now_ms=self._context.clock.now_ms(), host=self._context.store_host
        )

    def _finish(self, half: Half, result: PutResult) -> Command | Continuation:
        """The end of a half message is appended, or not; the answer waits until it is
        as durable as any message.
        """
        if not result.ok:
            return self._failure(result)
        self._table.finished(half, result)
        store = self._context.store
        if not store.needs_wait:
            return Command.response()

        async def answer() -> Command:
            status = await store.wait_durable(result)
            if status in STORED:
                return Command.response()
            code, remark = self._context.put.failure(status)
            return Command.response(code, remark=remark)

        return answer

    def _failure(self, result: PutResult) -> Command:
        self._context.stats.put_failed += 1
        code, remark = self._context.put.failure(result.status)
        return Command.response(code, remark=remark)

    def resume(self, _channel: Channel, request: Command) -> Command | Continuation:
        """Make a half message again of one that was checked too often; its checks begin
        anew.
        """
        header = ResumeCheckHalfMessageRequestHeader.from_ext(request.ext_fields)
        store = self._context.store
        try:
            _host, _port, physical_offset = parse_offset_id(header.msg_id or "")
            record = store.record_at(physical_offset)
            message = None if record is None else decode_message(record, inflate=False)
        except (ProtocolError, ConfigurationError):
            message = None
        if message is None or message.topic != TRANSACTION_CHECK_MAX_TOPIC:
            return Command.response(ResponseCode.SYSTEM_ERROR, remark=_NOT_RESUMED)
        if self._table.open_half(message) is not None:
            return Command.response()
        half = resumed(message)
        result = store.put(half)
        if not result.ok:
            return Command.response(ResponseCode.SYSTEM_ERROR, remark=_NOT_RESUMED)
        self._table.added(half.properties, half.body, result)
        return Command.response()


def _problem(message: ReceivedMessage | None, header: EndTransactionRequestHeader) -> str | None:
    """Why a request does not fit the half message that it names, in Apache's words and
    order.
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
