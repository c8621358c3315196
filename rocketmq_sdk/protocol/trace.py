"""The texts of message traces, as `TraceDataEncoder` of Apache RocketMQ 5.4.0 writes and reads them.

A trace message holds records; each is a line of fields with 0x01 between them and 0x02 behind. What is null in Java appears as the text `null`.
"""

from collections.abc import Callable, Iterable, Sequence
from enum import IntEnum
from typing import Final

import attrs

_FIELD: Final = "\x01"
_RECORD: Final = "\x02"
_NULL: Final = "null"


class MessageType(IntEnum):
    """What kind of message was sent (`MessageType`, by its place)."""

    NORMAL = 0
    TRANSACTION_HALF = 1
    TRANSACTION_COMMIT = 2
    DELAY = 3
    ORDER = 4


class ConsumeResult(IntEnum):
    """How a listener ended (`ConsumeReturnType`, by its place)."""

    SUCCESS = 0
    TIME_OUT = 1
    EXCEPTION = 2
    RETURNED_NULL = 3
    FAILED = 4


@attrs.frozen(kw_only=True)
class Published:
    """`Pub`: a producer sent a message. `time` is epoch milliseconds, `cost` milliseconds; of a batch `message_id` holds all ids with commas."""

    time: int
    region: str | None = None
    group: str
    topic: str
    message_id: str
    tags: str | None = None
    keys: str | None = None
    store_host: str | None = None
    body_length: int = 0
    cost: int = 0
    message_type: MessageType = MessageType.NORMAL
    offset_message_id: str | None = None
    success: bool = True
    client_host: str | None = None


@attrs.frozen(kw_only=True)
class ConsumeStarted:
    """`SubBefore`: a listener was given a message; `request_id` joins it with the record of the end."""

    time: int
    region: str | None = None
    group: str
    request_id: str
    message_id: str
    retries: int = 0
    keys: str | None = None
    client_host: str | None = None


@attrs.frozen(kw_only=True)
class ConsumeEnded:
    """`SubAfter`: a listener ended. `cost` is milliseconds for each message of its call; `time` and `group` are missing in traces for the cloud."""

    request_id: str
    message_id: str
    cost: int = 0
    success: bool = True
    keys: str | None = None
    result: ConsumeResult = ConsumeResult.SUCCESS
    time: int | None = None
    group: str | None = None


@attrs.frozen(kw_only=True)
class TransactionEnded:
    """`EndTransaction`: a producer told what became of a transaction; `state` is COMMIT_MESSAGE, ROLLBACK_MESSAGE or UNKNOW."""

    time: int
    region: str | None = None
    group: str
    topic: str
    message_id: str
    tags: str | None = None
    keys: str | None = None
    store_host: str | None = None
    message_type: MessageType = MessageType.TRANSACTION_COMMIT
    transaction_id: str | None = None
    state: str
    from_check: bool = False


@attrs.frozen(kw_only=True)
class Recalled:
    """`Recall`: a producer took a timer message back."""

    time: int
    region: str | None = None
    group: str
    topic: str
    message_id: str
    success: bool = True


TraceRecord = Published | ConsumeStarted | ConsumeEnded | TransactionEnded | Recalled


def encode_traces(records: Iterable[TraceRecord]) -> str:
    """The body of a trace message."""
    return "".join(_FIELD.join(_fields(record)) + _RECORD for record in records)


def _fields(record: TraceRecord) -> list[str]:
    if isinstance(record, Published):
        head = ["Pub", record.time, record.region, record.group, record.topic, record.message_id, record.tags, record.keys, record.store_host]
        values = [*head, record.body_length, record.cost, int(record.message_type), record.offset_message_id, record.success]
    elif isinstance(record, ConsumeStarted):
        values = ["SubBefore", record.time, record.region, record.group, record.request_id, record.message_id, record.retries, record.keys]
    elif isinstance(record, ConsumeEnded):
        values = ["SubAfter", record.request_id, record.message_id, record.cost, record.success, record.keys, int(record.result)]
        values += [] if record.time is None else [record.time, record.group]
    elif isinstance(record, TransactionEnded):
        head = ["EndTransaction", record.time, record.region, record.group, record.topic, record.message_id, record.tags, record.keys]
        values = [*head, record.store_host, int(record.message_type), record.transaction_id, record.state, record.from_check]
    else:
        values = ["Recall", record.time, record.region, record.group, record.topic, record.message_id, record.success]
    return [_text(value) for value in values]


def _text(value: object) -> str:
    if value is None:
        return _NULL
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value).replace(_FIELD, " ").replace(_RECORD, " ")


def decode_traces(text: str) -> list[TraceRecord]:
    """The records of a trace message. Those of unknown kinds, and those that are torn, are left out, as Apache's reader leaves them out."""
    found: list[TraceRecord] = []
    for line in text.split(_RECORD):
        fields = line.split(_FIELD)
        reader = _READERS.get(fields[0])
        if reader is not None:
            try:
                found.append(reader(fields))
            except (ValueError, IndexError):
                continue
    return found


def _optional(fields: Sequence[str], place: int) -> str | None:
    return fields[place] if place < len(fields) and fields[place] != _NULL else None


def _published(fields: Sequence[str]) -> Published:
    # 13 fields come from clients before 4.4 (no offset id), 15 have the client's host.
    short = len(fields) == 13
    return Published(
        time=int(fields[1]),
        region=_optional(fields, 2),
        group=fields[3],
        topic=fields[4],
        message_id=fields[5],
        tags=_optional(fields, 6),
        keys=_optional(fields, 7),
        store_host=_optional(fields, 8),
        body_length=int(fields[9]),
        cost=int(fields[10]),
        message_type=MessageType(int(fields[11])),
        offset_message_id=None if short else _optional(fields, 12),
        success=fields[12 if short else 13] == "true",
        client_host=_optional(fields, 14),
    )


def _started(fields: Sequence[str]) -> ConsumeStarted:
    return ConsumeStarted(
        time=int(fields[1]),
        region=_optional(fields, 2),
        group=fields[3],
        request_id=fields[4],
        message_id=fields[5],
        retries=int(fields[6]),
        keys=_optional(fields, 7),
        client_host=_optional(fields, 8),
    )


def _ended(fields: Sequence[str]) -> ConsumeEnded:
    return ConsumeEnded(
        request_id=fields[1],
        message_id=fields[2],
        cost=int(fields[3]),
        success=fields[4] == "true",
        keys=_optional(fields, 5),
        result=ConsumeResult(int(fields[6])) if len(fields) > 6 else ConsumeResult.SUCCESS,
        time=int(fields[7]) if _optional(fields, 7) else None,
        group=_optional(fields, 8),
    )


def _transaction(fields: Sequence[str]) -> TransactionEnded:
    return TransactionEnded(
        time=int(fields[1]),
        region=_optional(fields, 2),
        group=fields[3],
        topic=fields[4],
        message_id=fields[5],
        tags=_optional(fields, 6),
        keys=_optional(fields, 7),
        store_host=_optional(fields, 8),
        message_type=MessageType(int(fields[9])),
        transaction_id=_optional(fields, 10),
        state=fields[11],
        from_check=fields[12] == "true",
    )


def _recalled(fields: Sequence[str]) -> Recalled:
    return Recalled(
        time=int(fields[1]), region=_optional(fields, 2), group=fields[3], topic=fields[4], message_id=fields[5], success=fields[6] == "true"
    )


_READERS: Final[dict[str, Callable[[Sequence[str]], TraceRecord]]] = {
    "Pub": _published,
    "SubBefore": _started,
    "SubAfter": _ended,
    "EndTransaction": _transaction,
    "Recall": _recalled,
}


def keys_of(records: Iterable[TraceRecord]) -> list[str]:
    """What a trace message is to be found by: the ids and keys of the messages that it tells of, each once."""
    found: dict[str, None] = {}
    for record in records:
        for message_id in record.message_id.split(","):
            found[message_id] = None
        keys = None if isinstance(record, Recalled) else record.keys
        found.update(dict.fromkeys(key for key in (keys or "").split(" ") if key))
    return list(found)
