"""Trace records of a producer.

Follows `SendMessageTraceHookImpl` and `EndTransactionTraceHookImpl` of Apache RocketMQ
5.4.0.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio

from rocketmq_sdk.model.enums import SendStatus
from rocketmq_sdk.protocol.trace import MessageType, Published, TransactionEnded

if TYPE_CHECKING:
    from rocketmq_sdk.client.trace import TraceDispatcher
    from rocketmq_sdk.model.enums import TransactionState
    from rocketmq_sdk.model.message import Message
    from rocketmq_sdk.model.received import ReceivedMessage
    from rocketmq_sdk.producer.handle import SendHandle

_HALF = "TRAN_MSG\x01true"
_TIMERS = ("TIMER_DELIVER_MS\x01", "TIMER_DELAY_SEC\x01", "TIMER_DELAY_MS\x01")


def note_sent(trace: TraceDispatcher, group: str, handle: SendHandle, now_ms: int) -> None:
    """Add the record of a message that is finished.

    Nothing for one that failed, or whose broker does not want traces.
    """
    result, target, topic = handle.result, handle.target, handle.topic.topic
    if result is None or target is None or not result.trace_on or not trace.traces(topic):
        return
    message = handle.message
    cost = max(0, round((trio.current_time() - handle.started) * 1000)) if handle.started else 0
    # A batch is one record with all ids, as with Apache; its messages have tags and
    # keys of their own.
    single = "," not in handle.message_id
    record = Published(
        time=now_ms - cost,
        region=result.region_id,
        group=trace.unwrap(group),
        topic=trace.unwrap(topic),
        message_id=handle.message_id,
        tags=message.tags if single else None,
        keys=" ".join(message.keys) or None if single else None,
        store_host=target.address,
        body_length=len(handle.body),
        cost=cost,
        message_type=_type_of(handle),
        offset_message_id=result.offset_message_id,
        success=result.status is SendStatus.SEND_OK,
    )
    trace.append(topic, record)


def note_transaction(
    trace: TraceDispatcher,
    group: str,
    message: Message | ReceivedMessage,
    state: TransactionState,
    *,
    message_id: str,
    transaction_id: str | None,
    store_host: str | None,
    region: str | None,
    now_ms: int,
    from_check: bool = False,
) -> None:
    """Add the record of what a broker is told of a transaction."""
    if trace.traces(message.topic):
        record = TransactionEnded(
            time=now_ms,
            region=region,
            group=trace.unwrap(group),
            topic=trace.unwrap(message.topic),
            message_id=message_id,
            tags=message.tags,
            keys=" ".join(message.keys) or None,
            store_host=store_host,
            transaction_id=transaction_id,
            state=state.value,
            from_check=from_check,
        )
        trace.append(message.topic, record)


def _type_of(handle: SendHandle) -> MessageType:
    if _HALF in handle.properties:
        return MessageType.TRANSACTION_HALF
    message = handle.message
    if message.is_delayed or any(name in handle.properties for name in _TIMERS):
        return MessageType.DELAY
    return MessageType.NORMAL
