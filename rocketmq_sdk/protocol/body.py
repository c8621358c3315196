"""How bodies are declared: frozen attrs classes that travel as JSON objects.

Follows `RemotingSerializable`.

As with headers the annotations say how each member is written and read, and the wire
name follows from the attribute's name unless the metadata `wire` names it. Members are
written in alphabetical order, None members are left out. Reading is as lenient as
Apache's: unknown members are ignored, numbers and booleans may be texts, a missing or
null member takes its default (an empty text, 0, false or an empty container when the
declaration has none).
"""

from __future__ import annotations

from enum import Enum
from types import UnionType
from typing import (
    TYPE_CHECKING,
    Any,
    Final,
    NamedTuple,
    Self,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

import attrs

from rocketmq_sdk.errors import FieldError
from rocketmq_sdk.protocol.body_values import (
    Converter,
    container_converter,
    leaf_converter,
    nothing,
)
from rocketmq_sdk.protocol.header import WIRE, wire_name
from rocketmq_sdk.protocol.json.dialect import decode_json, encode_json

if TYPE_CHECKING:
    from collections.abc import Callable

TOLERATED_BODY: Final = 1024 * 1024
"""Most bytes of a body that is not strict JSON.

Apache writes object keys and unquoted integer keys, in tables of some thousand queues
at most.
"""

EXTRA: Final = "extra"
"""Metadata: the member that keeps what is unknown."""
CONVERTER: Final = "converter"
"""Metadata: the converter of a member whose annotation does not tell it."""


class BodyMember(NamedTuple):
    """What the codec knows of one member."""

    attribute: str
    name: str
    converter: Converter
    missing: Callable[[], object]
    has_default: bool


class BodyTable(NamedTuple):
    """The codec table of a body class, members in order of their wire names."""

    members: tuple[BodyMember, ...]
    names: frozenset[str]
    extra: str | None
    dialect: bool


class Body:
    """The JSON body of one kind of request or response, or a part of one."""

    __slots__ = ()

    def to_json(self) -> dict[str, object]:
        """The members under their wire names, for `encode_json` and `encode_pretty`."""
        table = body_table(type(self))
        members: dict[str, object] = {}
        for member in table.members:
            value = getattr(self, member.attribute)
            if value is not None:
                members[member.name] = member.converter.write(value)
        if table.extra is not None:
            members.update(getattr(self, table.extra))
        return members

    @classmethod
    def from_json(cls, value: object) -> Self:
        """The body that a decoded JSON object describes.

        Raises `FieldError` naming body and member when a value is not of its type.
        """
        if not isinstance(value, dict):
            raise FieldError(f"{cls.__name__} is not a JSON object")
        table = body_table(cls)
        values: dict[str, object] = {}
        for member in table.members:
            item = value.get(member.name)
            if item is None:
                if not member.has_default:
                    values[member.attribute] = member.missing()
                continue
            try:
                values[member.attribute] = member.converter.read(item)
            except ValueError as error:
                raise FieldError(
                    f"{cls.__name__}: the member {member.name} is {str(item)[:60]!r}, {error}"
                ) from None
        if table.extra is not None:
            values[table.extra] = {
                name: item for name, item in value.items() if name not in table.names
            }
        return cls(**values)

    def encode(self) -> bytes:
        """The body as bytes.

        Compact UTF-8, in Apache's dialect where it has integer or object keys.
        """
        return encode_json(self.to_json(), object_keys=body_table(type(self)).dialect)

    @classmethod
    def decode(cls, data: bytes, *, tolerated: int = TOLERATED_BODY) -> Self:
        """The body out of bytes; `tolerated` of them when they are not strict JSON.

        Raises `RemoteProtocolError` when they are no JSON, its subclass `FieldError`
        when a member has the wrong type.
        """
        return cls.from_json(decode_json(data, tolerated=tolerated))


_TABLES: Final[dict[type[Body], BodyTable]] = {}


def body_table(cls: type[Body]) -> BodyTable:
    """The codec table of a body class, made at first use."""
    table = _TABLES.get(cls)
    if table is None:
        table = _TABLES[cls] = _make_table(cls)
    return table


def _make_table(cls: type[Body]) -> BodyTable:
    hints = get_type_hints(cls, include_extras=True)
    members: list[BodyMember] = []
    extra: str | None = None
    for attribute in attrs.fields(cls):  # type: ignore[arg-type]
        if attribute.metadata.get(EXTRA):
            extra = attribute.name
            continue
        hint, optional = _without_none(hints[attribute.name])
        converter = attribute.metadata.get(CONVERTER) or converter_of(hint)
        name = attribute.metadata.get(WIRE) or wire_name(attribute.name)
        missing = nothing if optional else converter.missing
        members.append(
            BodyMember(
                attribute.name, name, converter, missing, attribute.default is not attrs.NOTHING
            )
        )
    members.sort(key=lambda member: member.name)
    dialect = extra is not None or any(member.converter.dialect for member in members)
    return BodyTable(tuple(members), frozenset(member.name for member in members), extra, dialect)


def _without_none(hint: Any) -> tuple[Any, bool]:
    if get_origin(hint) in (Union, UnionType):
        parts = [part for part in get_args(hint) if part is not type(None)]
        if len(parts) == 1:
            return parts[0], True
    return hint, False


def converter_of(hint: Any) -> Converter:
    """How values of an annotated type are written and read."""
    leaf = leaf_converter(hint)
    if leaf is not None:
        return leaf
    origin = get_origin(hint)
    if origin in (tuple, list, dict):
        return container_converter(
            origin,
            [converter_of(part) if part is not Ellipsis else None for part in get_args(hint)],
        )
    if isinstance(hint, type) and issubclass(hint, Enum):
        return enum_converter(hint)
    if isinstance(hint, type) and issubclass(hint, Body):
        return Converter(hint.to_json, hint.from_json, nothing, body_table(hint).dialect)
    raise TypeError(f"bodies cannot hold {hint!r}")


def enum_converter(vocabulary: type[Enum]) -> Converter:
    """A member of a vocabulary by its text in any letter case.

    An unknown text reads as None, as with Apache.
    """
    by_text = {str(member.value).upper(): member for member in vocabulary}

    def read(value: object) -> object:
        if not isinstance(value, str):
            raise ValueError("not a name")
        return by_text.get(value.upper())

    def write(value: Any) -> Any:
        return value.value

    return Converter(write, read, nothing, False)
