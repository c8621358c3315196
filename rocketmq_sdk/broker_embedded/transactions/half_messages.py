"""Makes the messages of a transaction from one another.

`TransactionalMessageBridge` and `EndTransactionProcessor` of Apache RocketMQ 5.4.0.
Each function takes a message that is stored or about to be stored and returns the one
to be stored or sent next. When that happens is decided elsewhere.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rocketmq_sdk.broker_embedded.store.messages import MessageToStore
from rocketmq_sdk.model.properties import (
    REAL_QID,
    REAL_TOPIC,
    TAGS,
    TRAN_PREPARED_QUEUE_OFFSET,
    TRANSACTION_CHECK_TIMES,
    TRANSACTION_ID,
    UNIQ_KEY,
    WAIT,
    property_in_text,
    without_property,
)
from rocketmq_sdk.names import (
    TRANSACTION_CHECK_MAX_TOPIC,
    TRANSACTION_HALF_TOPIC,
    return_problem,
)
from rocketmq_sdk.protocol.flags import SysFlag
from rocketmq_sdk.protocol.message_codec import encode_record
from rocketmq_sdk.protocol.subscription import tags_code

if TYPE_CHECKING:
    from rocketmq_sdk.model.received import ReceivedMessage

_HALF_QUEUE: Final = 0
_MAX_QUEUE_ID: Final = (1 << 31) - 1


HALF_FIELDS: Final = (f"{TRANSACTION_ID}\x01", f"{REAL_TOPIC}\x01", f"{REAL_QID}\x01")
"""Marks of the properties that a half message gets from the broker."""


def half_properties(text: str, unique: str, topic: str, queue_id: int) -> tuple[str, str]:
    """Properties of a message once it is committed, and those of its half message.

    `text` has none of `HALF_FIELDS`; the half message remembers where it belongs.
    """
    shown = f"{text}__transactionId__\x01{unique}\x02"
    return shown, f"{shown}REAL_TOPIC\x01{topic}\x02REAL_QID\x01{queue_id}\x02"


def make_half(message: MessageToStore) -> str:
    """Send a transactional message to the half topic.

    Returns the properties that it has once it is committed.
    """
    text = message.properties
    unique = property_in_text(text, UNIQ_KEY) or ""
    for name in (TRANSACTION_ID, REAL_TOPIC, REAL_QID):
        text = without_property(text, name)
    shown, message.properties = half_properties(text, unique, message.topic, message.queue_id)
    message.sys_flag &= ~SysFlag.TRANSACTION_ROLLBACK
    message.topic, message.queue_id = TRANSACTION_HALF_TOPIC, _HALF_QUEUE
    return shown


def destination(half: ReceivedMessage) -> tuple[str, int]:
    """Topic and queue that a half message belongs to.

    Raises `ValueError` when its properties do not say it.
    """
    topic, queue_id = half.properties.get(REAL_TOPIC), half.properties.get(REAL_QID, "")
    if not topic or not queue_id.isdecimal() or len(queue_id) > 10 or int(queue_id) > _MAX_QUEUE_ID:
        raise ValueError(
            f"the half message at {half.commit_log_offset} does not name its real topic and queue"
        )
    if problem := return_problem(topic):
        raise ValueError(f"the half message at {half.commit_log_offset}: {problem}")
    return topic, int(queue_id)


def committed(half: ReceivedMessage, half_position: int) -> MessageToStore:
    """The message that consumers see.

    Raises `ValueError` when the half message does not say where it belongs.
    """
    topic, queue_id = destination(half)
    text = _text(half)
    for name in (REAL_TOPIC, REAL_QID):
        text = without_property(text, name)
    sys_flag = half.sys_flag & ~SysFlag.TRANSACTION_ROLLBACK | SysFlag.TRANSACTION_COMMIT
    return _copy(half, topic, queue_id, text, sys_flag=sys_flag, prepared_offset=half_position)


def renewed(half: ReceivedMessage, checks: int | None) -> MessageToStore:
    """The copy for the end of the half queue.

    Before a check, with the new number of checks; otherwise to wait for the end of its
    immunity.
    """
    text = f"{without_property(_text(half), WAIT)}WAIT\x01false\x02"
    if checks is not None:
        text = without_property(text, TRANSACTION_CHECK_TIMES)
        text += f"TRANSACTION_CHECK_TIMES\x01{checks}\x02"
    elif property_in_text(text, TRAN_PREPARED_QUEUE_OFFSET) is None:
        text += f"TRAN_PREPARED_QUEUE_OFFSET\x01{half.offset}\x02"
    return _copy(half, TRANSACTION_HALF_TOPIC, _HALF_QUEUE, text, sys_flag=half.sys_flag)


def given_up(half: ReceivedMessage) -> MessageToStore:
    """The copy of a half message that was checked too often.

    Like a committed one it names its half message; Apache leaves that field 0.
    """
    return _copy(
        half,
        TRANSACTION_CHECK_MAX_TOPIC,
        0,
        _text(half),
        sys_flag=half.sys_flag,
        prepared_offset=half.commit_log_offset,
    )


def resumed(given_up_message: ReceivedMessage) -> MessageToStore:
    """The half message that a message given up becomes again; its checks begin anew."""
    text = without_property(_text(given_up_message), TRANSACTION_CHECK_TIMES)
    text += "TRANSACTION_CHECK_TIMES\x010\x02"
    return _copy(
        given_up_message,
        TRANSACTION_HALF_TOPIC,
        _HALF_QUEUE,
        text,
        sys_flag=given_up_message.sys_flag,
    )


def check_body(half: ReceivedMessage, properties: str, offset: int, physical_offset: int) -> bytes:
    """The half message as CHECK_TRANSACTION_STATE carries it.

    In the store's form, with its real topic and queue, its current properties and
    position. Raises `ValueError` when the half message does not say where it belongs,
    `ProtocolError` when that does not fit a record.
    """
    topic, queue_id = destination(half)
    return encode_record(
        topic.encode(),
        half.body,
        properties.encode("utf-8", "replace"),
        queue_id=queue_id,
        flag=half.flag,
        queue_offset=offset,
        physical_offset=physical_offset,
        sys_flag=half.sys_flag,
        born_timestamp=half.born_timestamp,
        born_host=half.born_host,
        store_timestamp=half.store_timestamp,
        store_host=half.store_host,
        reconsume_times=half.reconsume_times,
        prepared_offset=half.prepared_transaction_offset,
    )


def _text(message: ReceivedMessage) -> str:
    text = message.properties_bytes.decode("utf-8", "replace")
    return text if not text or text.endswith("\x02") else f"{text}\x02"


def _copy(
    message: ReceivedMessage,
    topic: str,
    queue_id: int,
    text: str,
    *,
    sys_flag: int,
    prepared_offset: int = 0,
) -> MessageToStore:
    return MessageToStore(
        topic,
        queue_id,
        message.body,
        text,
        flag=message.flag,
        sys_flag=sys_flag,
        born_timestamp=message.born_timestamp,
        born_host=message.born_host,
        reconsume_times=message.reconsume_times,
        prepared_offset=prepared_offset,
        tags_code=tags_code(property_in_text(text, TAGS)),
        store_host=message.store_host,
    )
