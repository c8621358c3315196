"""How headers are declared: typed classes whose fields travel in the ext fields.

Follows `CommandCustomHeader`.

A header is an attrs class with keyword-only arguments. Its annotations say how each
field is written and read, its attribute names follow from Apache's field names:
`producerGroup` is `producer_group`; where the rule does not fit, the metadata `wire`
names the field. A field without a default is required. The tables that do the work are
made from the declaration at first use. The hottest headers replace `to_ext` and
`from_ext` by straight code.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Final, NamedTuple, Self, get_args, get_type_hints

import attrs

from rocketmq_sdk.errors import FieldError
from rocketmq_sdk.model.enums import BoundaryType

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

Long = Annotated[int, "long"]
"""An integer of 64 bits on the wire; plain `int` has 32."""

WIRE: Final = "wire"
INT_MIN, INT_MAX = -0x80000000, 0x7FFFFFFF
LONG_MIN, LONG_MAX = -0x8000000000000000, 0x7FFFFFFFFFFFFFFF


class HeaderField(NamedTuple):
    """What the codec knows of one field."""

    attribute: str
    name: str
    kind: str
    parse: Callable[[str], object]
    write: Callable[[Any], str]
    required: bool


class Header:
    """The fields of one kind of request or response."""

    __slots__ = ()

    def to_ext(self) -> dict[str, str]:
        """The fields as texts; fields that are None are left out."""
        ext: dict[str, str] = {}
        for field in header_fields(type(self)):
            value = getattr(self, field.attribute)
            if value is not None:
                ext[field.name] = field.write(value)
        return ext

    @classmethod
    def from_ext(cls, ext: Mapping[str, str]) -> Self:
        """The header that the ext fields of a command hold; unknown fields are ignored.

        Raises `FieldError` naming header, field and value when a required field is
        missing or a value is not of its type.
        """
        values: dict[str, object] = {}
        for field in header_fields(cls):
            text = ext.get(field.name)
            if text is not None:
                try:
                    values[field.attribute] = field.parse(text)
                except ValueError as error:
                    raise FieldError(
                        f"{cls.__name__}: the field {field.name} is {text[:60]!r}, {error}"
                    ) from None
            elif field.required:
                raise FieldError(f"{cls.__name__}: the field {field.name} is missing")
        decoded = cls(**values)
        decoded.check()
        return decoded

    def check(self) -> None:
        """Refuse combinations of fields that Apache's `checkFields` refuses.

        Raises `FieldError`.
        """


@attrs.define(kw_only=True)
class RpcRequestHeader(Header):
    """The base fields of routed requests.

    Namespace, whether names carry it already, the broker's name, a one-way hint.
    """

    ns: str | None = None
    nsd: bool | None = None
    bname: str | None = None
    oway: bool | None = None


@attrs.define(kw_only=True)
class TopicRequestHeader(RpcRequestHeader):
    """A request about a topic.

    `lo` tells logical from physical queues of static topics.
    """

    lo: bool | None = None


@attrs.define(kw_only=True)
class TopicQueueRequestHeader(TopicRequestHeader):
    """A request about one queue of a topic."""


def _parse_number(text: str, low: int, high: int, what: str) -> int:
    # As Java's parseInt: a sign and decimal digits, nothing else.
    digits = text[1:] if text[:1] in ("+", "-") else text
    if digits.isdecimal() and len(digits) < 40:
        number = int(text)
        if low <= number <= high:
            return number
    raise ValueError(f"not a {what} number")


def parse_int(text: str) -> int:
    """A Java `int`. Raises `ValueError` for anything else."""
    return _parse_number(text, INT_MIN, INT_MAX, "32-bit")


def parse_long(text: str) -> int:
    """A Java `long`. Raises `ValueError` for anything else."""
    return _parse_number(text, LONG_MIN, LONG_MAX, "64-bit")


def parse_bool(text: str) -> bool:
    """True for `true` in any letter case, else False."""
    return text == "true" or text.lower() == "true"


def write_bool(value: bool) -> str:
    """The text of a boolean."""
    return "true" if value else "false"


def _parse_text(text: str) -> str:
    return text


def _parse_boundary(text: str) -> BoundaryType:
    return BoundaryType.UPPER if text.upper() == "UPPER" else BoundaryType.LOWER


def _write_boundary(value: BoundaryType) -> str:
    return value.value


_KINDS: Final[dict[object, tuple[str, Callable[[str], object], Callable[[Any], str]]]] = {
    str: ("text", _parse_text, str),
    int: ("int", parse_int, str),
    Long: ("long", parse_long, str),
    bool: ("bool", parse_bool, write_bool),
    BoundaryType: ("boundary", _parse_boundary, _write_boundary),
}
_TABLES: Final[dict[type[Header], tuple[HeaderField, ...]]] = {}


def wire_name(attribute: str) -> str:
    """Apache's field name of an attribute: `producer_group` is `producerGroup`."""
    first, *others = attribute.split("_")
    return first + "".join(part[:1].upper() + part[1:] for part in others)


def header_fields(cls: type[Header]) -> tuple[HeaderField, ...]:
    """The codec table of a header class, made at first use."""
    table = _TABLES.get(cls)
    if table is None:
        table = _TABLES[cls] = _make_table(cls)
    return table


def _make_table(cls: type[Header]) -> tuple[HeaderField, ...]:
    if not attrs.has(cls):
        return ()
    hints = get_type_hints(cls, include_extras=True)
    fields: list[HeaderField] = []
    for attribute in attrs.fields(cls):
        hint = hints[attribute.name]
        if hint not in _KINDS:
            hint = next(part for part in get_args(hint) if part in _KINDS)
        kind, parse, write = _KINDS[hint]
        name = attribute.metadata.get(WIRE) or wire_name(attribute.name)
        fields.append(
            HeaderField(
                attribute.name, name, kind, parse, write, attribute.default is attrs.NOTHING
            )
        )
    return tuple(fields)
