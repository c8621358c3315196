"""Admission: what stands between the dispatcher and the handlers of requests.

A request is judged by its row (`Request.body_limit`) and by the limits that its header
and body classes declare (`protocol.limits`): the size of the body, the length of texts
and lists, the range of numbers, the depth of nesting. What is over a limit is answered
with INVALID_PARAMETER and a remark that names field, value and limit; the connection
goes on. That a text is valid (no lone surrogates) is the codecs' matter: they read such
a character as `?`, as Apache writes it.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Final, NamedTuple

import attrs

from rocketmq_sdk.codes import ResponseCode, request_name
from rocketmq_sdk.errors import InvalidParameterError
from rocketmq_sdk.model.queue import MessageQueue
from rocketmq_sdk.model.route import QueueData
from rocketmq_sdk.protocol.body import Body, body_table
from rocketmq_sdk.protocol.header import Header, header_fields, wire_name
from rocketmq_sdk.protocol.limits import (
    ENTRIES_MAX,
    LIMIT,
    PERMISSION,
    QUEUE_OR_ALL,
    QUEUES,
    TEXT_MAX,
    Between,
    Length,
)

if TYPE_CHECKING:
    from rocketmq_sdk.protocol.command import Command

DEPTH_MAX: Final = 32
"""Deepest nesting of lists and objects in a body."""
_SHOWN: Final = 60
_OF_MODELS: Final[dict[type, dict[str, Between | Length]]] = {
    MessageQueue: {"queue_id": QUEUE_OR_ALL},
    QueueData: {"read_queue_nums": QUEUES, "write_queue_nums": QUEUES, "perm": PERMISSION},
}
"""Limits of classes of the model, which knows nothing of servers."""


class FieldLimit(NamedTuple):
    """What is admitted of one field; None stands for the limits of its kind."""

    attribute: str
    name: str
    limit: Between | Length | None


_TABLES: Final[dict[type, tuple[FieldLimit, ...]]] = {}


def limits_of(part: type) -> tuple[FieldLimit, ...]:
    """The limits of the fields of a header or body class, made at first use."""
    table = _TABLES.get(part)
    if table is None:
        table = _TABLES[part] = _make_table(part)
    return table


def _make_table(part: type) -> tuple[FieldLimit, ...]:
    if not attrs.has(part):
        return ()
    if issubclass(part, Header):
        names = {field.attribute: field.name for field in header_fields(part)}
    elif issubclass(part, Body):
        names = {member.attribute: member.name for member in body_table(part).members}
    else:
        names = {}
    of_model = _OF_MODELS.get(part, {})
    return tuple(
        FieldLimit(
            field.name,
            names.get(field.name) or wire_name(field.name),
            field.metadata.get(LIMIT) or of_model.get(field.name),
        )
        for field in attrs.fields(part)
    )


def check_part(part: object, depth: int = DEPTH_MAX) -> None:
    """Judge a decoded header or body.

    Raises `InvalidParameterError` that names the field, its value and the limit.
    """
    owner = type(part)
    for attribute, name, limit in limits_of(owner):
        value = getattr(part, attribute)
        kind = type(value)
        if kind is str:
            most = TEXT_MAX if limit is None else limit[-1]
            if len(value) > most:
                raise _too_long(owner, name, value, most)
        elif kind is int:
            if limit is not None and not limit[0] <= value <= limit[-1]:
                raise _refused(f"{owner.__name__}: {name} is {value}, {limit} is allowed")
        elif value is not None and kind is not bool:
            _check_value(owner, name, value, limit, depth)


def _check_value(
    owner: type, name: str, value: object, limit: Between | Length | None, depth: int
) -> None:
    if isinstance(value, str):
        most = TEXT_MAX if limit is None else limit[-1]
        if len(value) > most and not isinstance(value, Enum):
            raise _too_long(owner, name, value, most)
        return
    if value is None or isinstance(value, int | float | Enum):
        return
    if depth == 0:
        raise _refused(f"{owner.__name__}: {name} is nested deeper than {DEPTH_MAX}")
    if isinstance(value, dict | list | tuple | set | frozenset):
        most = ENTRIES_MAX if limit is None else limit[-1]
        if len(value) > most:
            raise _refused(
                f"{owner.__name__}: {name} has {len(value)} entries, the limit is {most}"
            )
        for item in value:
            _check_value(owner, name, item, None, depth - 1)
        if isinstance(value, dict):
            for item in value.values():
                _check_value(owner, name, item, None, depth - 1)
    elif attrs.has(type(value)):
        check_part(value, depth - 1)


def _too_long(owner: type, name: str, value: str, most: int) -> InvalidParameterError:
    return _refused(
        f"{owner.__name__}: {name} is {value[:_SHOWN]!r}... of {len(value)} characters, "
        f"the limit is {most}"
    )


def check_body_size(command: Command, most: int) -> None:
    """Judge the size of a body before it is looked into.

    Raises `InvalidParameterError`.
    """
    size = len(command.body)
    if size > most:
        raise _refused(f"{request_name(command.code)}: a body of {size} bytes, the limit is {most}")


def _refused(remark: str) -> InvalidParameterError:
    return InvalidParameterError(ResponseCode.INVALID_PARAMETER, remark)
