"""The texts of message traces.

Follows `TraceDataEncoder` of Apache RocketMQ 5.4.0.

A trace message holds records; each is a line of fields with 0x01 between them and 0x02
behind. What is null in Java appears as the text `null`.
"""

from __future__ import annotations

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
    """`Pub`: a producer sent a message.

    `time` is epoch milliseconds, `cost` milliseconds; of a batch `message_id` holds all
    ids with commas.
    """

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
    """`SubBefore`: a listener was given a message.

    `request_id` joins it with the record of the end.
    """

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
    """`SubAfter`: a listener ended.

    `cost` is milliseconds for each message of its call; `time` and `group` are missing
    in traces for the cloud.
    """

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
    """`EndTransaction`: a producer ended a transaction.

    `state` is COMMIT_MESSAGE, ROLLBACK_MESSAGE or UNKNOW.
    """

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


def _number(text: str) -> int:
    return int(text)


def _truth(text: str) -> bool:
    return text == "true"


def _same(text: str) -> str:
    return text


def _optional(text: str) -> str | None:
    return None if text == _NULL else text


def _optional_number(text: str) -> int | None:
    return None if text in ("", _NULL) else int(text)


def _kind(text: str) -> MessageType:
    return MessageType(int(text))


def _result(text: str) -> ConsumeResult:
    return ConsumeResult(int(text))


_Reader = Callable[[str], object]
_HEAD: Final[tuple[tuple[str, _Reader], ...]] = (
    ("time", _number),
    ("region", _optional),
    ("group", _same),
)
_MESSAGE: Final[tuple[tuple[str, _Reader], ...]] = (*_HEAD, ("topic", _same), ("message_id", _same))
_LABELLED: Final[tuple[tuple[str, _Reader], ...]] = (
    *_MESSAGE,
    ("tags", _optional),
    ("keys", _optional),
    ("store_host", _optional),
)


@attrs.frozen
class _Shape:
    """One kind of record: its class and its fields in order.

    Each field says how it is read; those from `required` on may be missing at the end.

    `written` is how many are written; the client's host behind them is read only.
    """

    record: Callable[..., TraceRecord]
    fields: tuple[tuple[str, _Reader], ...]
    required: int
    written: int

    def read(self, texts: Sequence[str]) -> TraceRecord:
        if len(texts) < self.required:
            raise ValueError("the record is torn")
        return self.record(
            **{name: reader(text) for (name, reader), text in zip(self.fields, texts, strict=False)}
        )


def _shape(
    record: Callable[..., TraceRecord],
    *fields: tuple[str, _Reader],
    required: int | None = None,
    unwritten: int = 0,
) -> _Shape:
    written = len(fields) - unwritten
    return _Shape(record, fields, written if required is None else required, written)


_SHAPES: Final[dict[str, _Shape]] = {
    "Pub": _shape(
        Published,
        *_LABELLED,
        ("body_length", _number),
        ("cost", _number),
        ("message_type", _kind),
        ("offset_message_id", _optional),
        ("success", _truth),
        ("client_host", _optional),
        unwritten=1,
    ),
    "SubBefore": _shape(
        ConsumeStarted,
        *_HEAD,
        ("request_id", _same),
        ("message_id", _same),
        ("retries", _number),
        ("keys", _optional),
        ("client_host", _optional),
        required=6,
        unwritten=1,
    ),
    "SubAfter": _shape(
        ConsumeEnded,
        ("request_id", _same),
        ("message_id", _same),
        ("cost", _number),
        ("success", _truth),
        ("keys", _optional),
        ("result", _result),
        ("time", _optional_number),
        ("group", _optional),
        required=4,
    ),
    "EndTransaction": _shape(
        TransactionEnded,
        *_LABELLED,
        ("message_type", _kind),
        ("transaction_id", _optional),
        ("state", _same),
        ("from_check", _truth),
    ),
    "Recall": _shape(Recalled, *_MESSAGE, ("success", _truth)),
}
_NAMES: Final = {
    Published: "Pub",
    ConsumeStarted: "SubBefore",
    ConsumeEnded: "SubAfter",
    TransactionEnded: "EndTransaction",
    Recalled: "Recall",
}
_OLD_PUB: Final = 12
"""Fields of what clients before 4.4 tell of a send: no offset id."""
_OFFSET_ID: Final = 11


def encode_traces(records: Iterable[TraceRecord]) -> str:
    """The body of a trace message."""
    return "".join(_FIELD.join(_fields(record)) + _RECORD for record in records)


def _fields(record: TraceRecord) -> list[str]:
    name = _NAMES[type(record)]
    shape = _SHAPES[name]
    values = [getattr(record, field) for field, _reader in shape.fields[: shape.written]]
    if isinstance(record, ConsumeEnded) and record.time is None:
        del values[-2:]
    return [name, *map(_text, values)]


def _text(value: object) -> str:
    if value is None:
        return _NULL
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(int(value))
    return str(value).replace(_FIELD, " ").replace(_RECORD, " ")


def decode_traces(text: str) -> list[TraceRecord]:
    """The records of a trace message.

    Those of unknown kinds, and those that are torn, are left out, as Apache's reader
    leaves them out.
    """
    found: list[TraceRecord] = []
    for line in text.split(_RECORD):
        name, *texts = line.split(_FIELD)
        shape = _SHAPES.get(name)
        if shape is not None:
            if name == "Pub" and len(texts) == _OLD_PUB:
                texts.insert(_OFFSET_ID, _NULL)
            try:
                found.append(shape.read(texts))
            except ValueError:
                continue
    return found


def keys_of(records: Iterable[TraceRecord]) -> list[str]:
    """The keys of a trace message: ids and keys of its messages, each once."""
    found: dict[str, None] = {}
    for record in records:
        for message_id in record.message_id.split(","):
            found[message_id] = None
        keys = None if isinstance(record, Recalled) else record.keys
        found.update(dict.fromkeys(key for key in (keys or "").split(" ") if key))
    return list(found)
