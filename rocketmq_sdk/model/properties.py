"""Message properties: their names and their text form on the wire and in the store.

The text is name, 0x01, value, 0x02, repeated (`MessageDecoder.messageProperties2String`
and `string2messageProperties` of Apache RocketMQ 5.4.0). The last 0x02 may be missing;
an entry without a name, a 0x01 or a value is dropped; only the first 0x01 of an entry
splits; later duplicates win.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

KEYS: Final = "KEYS"
TAGS: Final = "TAGS"
WAIT: Final = "WAIT"
UNIQ_KEY: Final = "UNIQ_KEY"
DELAY: Final = "DELAY"
TIMER_DELAY_SEC: Final = "TIMER_DELAY_SEC"
TIMER_DELAY_MS: Final = "TIMER_DELAY_MS"
TIMER_DELIVER_MS: Final = "TIMER_DELIVER_MS"
TIMER_OUT_MS: Final = "TIMER_OUT_MS"
TIMER_DEL_UNIQKEY: Final = "TIMER_DEL_UNIQKEY"
REAL_TOPIC: Final = "REAL_TOPIC"
REAL_QID: Final = "REAL_QID"
RETRY_TOPIC: Final = "RETRY_TOPIC"
ORIGIN_MESSAGE_ID: Final = "ORIGIN_MESSAGE_ID"
RECONSUME_TIME: Final = "RECONSUME_TIME"
MAX_RECONSUME_TIMES: Final = "MAX_RECONSUME_TIMES"
CONSUME_START_TIME: Final = "CONSUME_START_TIME"
TRAN_MSG: Final = "TRAN_MSG"
PGROUP: Final = "PGROUP"
TRANSACTION_ID: Final = "__transactionId__"
SHARDING_KEY: Final = "__SHARDINGKEY"
MSG_REGION: Final = "MSG_REGION"
TRACE_ON: Final = "TRACE_ON"
CLUSTER: Final = "CLUSTER"
INSTANCE_ID: Final = "INSTANCE_ID"
POP_CK: Final = "POP_CK"
MIN_OFFSET: Final = "MIN_OFFSET"
MAX_OFFSET: Final = "MAX_OFFSET"
MSG_TYPE: Final = "MSG_TYPE"
PRIORITY: Final = "_SYS_MSG_PRIORITY_"
INNER_NUM: Final = "INNER_NUM"
INNER_BASE: Final = "INNER_BASE"
CRC32: Final = "__CRC32#"
ORIGIN_GROUP: Final = "ORIGIN_GROUP"
DLQ_ORIGIN_TOPIC: Final = "DLQ_ORIGIN_TOPIC"
DLQ_ORIGIN_MESSAGE_ID: Final = "DLQ_ORIGIN_MESSAGE_ID"
CHECK_IMMUNITY_TIME_IN_SECONDS: Final = "CHECK_IMMUNITY_TIME_IN_SECONDS"
TRANSACTION_CHECK_TIMES: Final = "TRANSACTION_CHECK_TIMES"
TRAN_PREPARED_QUEUE_OFFSET: Final = "TRAN_PREPARED_QUEUE_OFFSET"
CORRELATION_ID: Final = "CORRELATION_ID"
REPLY_TO_CLIENT: Final = "REPLY_TO_CLIENT"
TTL: Final = "TTL"
POP_CK_OFFSET: Final = "POP_CK_OFFSET"
FIRST_POP_TIME: Final = "1ST_POP_TIME"
INNER_MULTI_DISPATCH: Final = "INNER_MULTI_DISPATCH"
INNER_MULTI_QUEUE_OFFSET: Final = "INNER_MULTI_QUEUE_OFFSET"
BORN_HOST: Final = "__BORNHOST"
BORN_TIMESTAMP: Final = "BORN_TIMESTAMP"
LITE_TOPIC: Final = "__LITE_TOPIC"
TRANSIENT_PREFIX: Final = "__RMQ.TRANSIENT."

RESERVED_NAMES: Final = frozenset(
    {
        "1ST_POP_TIME",
        "ARRIVE_TIME",
        "BORN_TIMESTAMP",
        "BUYER_ID",
        "CLUSTER",
        "CONSUME_START_TIME",
        "CORRECTION_FLAG",
        "CORRELATION_ID",
        "DELAY",
        "DLQ_ORIGIN_MESSAGE_ID",
        "DLQ_ORIGIN_TOPIC",
        "DUP_INFO",
        "EXTEND_UNIQ_INFO",
        "INNER_MULTI_QUEUE_OFFSET",
        "INSTANCE_ID",
        "KEYS",
        "MAX_OFFSET",
        "MAX_RECONSUME_TIMES",
        "MIN_OFFSET",
        "MQ2_FLAG",
        "MSG_REGION",
        "MSG_TYPE",
        "ORIGIN_GROUP",
        "ORIGIN_MESSAGE_ID",
        "PGROUP",
        "POP_CK",
        "POP_CK_OFFSET",
        "PUSH_REPLY_TIME",
        "REAL_QID",
        "REAL_TOPIC",
        "RECONSUME_TIME",
        "REPLY_TO_CLIENT",
        "RETRY_TOPIC",
        "TAGS",
        "TIMER_DELAY_LEVEL",
        "TIMER_DELAY_MS",
        "TIMER_DELAY_SEC",
        "TIMER_DELIVER_MS",
        "TIMER_DEL_UNIQKEY",
        "TIMER_DEQUEUE_MS",
        "TIMER_ENQUEUE_MS",
        "TIMER_OUT_MS",
        "TIMER_ROLL_TIMES",
        "TRACE_ON",
        "TRANSFER_FLAG",
        "TRAN_MSG",
        "TRAN_PREPARED_QUEUE_OFFSET",
        "TTL",
        "UNIQ_KEY",
        "WAIT",
        "_SYS_MSG_PRIORITY_",
        "__BORNHOST",
        "__CRC32#",
        "__LITE_TOPIC",
    }
)
"""Names that users cannot set themselves.

Follows `MessageConst.STRING_HASH_SET` of Apache RocketMQ 5.5.0.
"""

_SEPARATOR: Final = "\x01"
_END: Final = "\x02"
_END_BYTE: Final = b"\x02"


def encode_properties(properties: Mapping[str, str | None]) -> str:
    """The text form in the mapping's order, with the 0x02 behind the last entry.

    Entries whose value is None are left out.
    """
    return "".join(
        [f"{name}\x01{value}\x02" for name, value in properties.items() if value is not None]
    )


def decode_properties(text: str) -> dict[str, str]:
    """The entries of a text form; broken entries are dropped as Apache drops them."""
    result: dict[str, str] = {}
    for entry in text.split(_END):
        name, separator, value = entry.partition(_SEPARATOR)
        if separator and name and value:
            result[name] = value
    return result


def without_property(text: str, name: str) -> str:
    """The text form with all entries of one name taken out.

    Follows `MessageUtils.deleteProperty`.
    """
    marker = f"{name}\x01"
    if marker not in text:
        return text
    return _END.join([entry for entry in text.split(_END) if not entry.startswith(marker)])


def property_in_text(text: str, name: str) -> str | None:
    """The value of one property, None when it is missing.

    It is what `decode_properties` would give, without decoding the others.
    """
    marker = f"{name}\x01"
    position = len(text)
    while (position := text.rfind(marker, 0, position)) >= 0:
        if position == 0 or text[position - 1] == _END:
            start = position + len(marker)
            end = text.find(_END, start)
            value = text[start:] if end < 0 else text[start:end]
            if value:
                return value
        if position == 0:
            return None
    return None


def value_in_bytes(text: bytes, mark: bytes) -> bytes:
    """`property_in_text` for a text as bytes, which begins with the separator of
    properties; empty for a property that is missing.

    `mark` is the name with the separators around it.
    """
    at = text.rfind(mark)
    while at >= 0:
        start = at + len(mark)
        end = text.find(_END_BYTE, start)
        value = text[start:] if end < 0 else text[start:end]
        if value:
            return value
        at = text.rfind(mark, 0, at + 1)
    return b""


_TRACE: Final = "\x02traceparent\x01"
_TRACE_SIZE: Final = len(_TRACE) + 55
"""With the value, as W3C's Trace Context has it."""


def without_traceparent(text: str) -> str:
    """A text of properties without a context of a trace that does not begin it.

    It differs in each message, so that what is remembered by texts of properties is
    remembered without it.
    """
    at = text.find(_TRACE)
    end = at + _TRACE_SIZE
    if at < 0 or text[end : end + 1] != "\x02":
        return text
    value = text[at + len(_TRACE) : end]
    return text[:at] + text[end:] if value.replace("-", "").isalnum() else text
