"""JSON headers that are as one before but for a few values.

The shape of such a header is a pattern: what is always the same stands in it as it is,
what differs may be any text of certain characters. What matches it has the same JSON
structure, so the values that it cuts out are what decoding would give.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from rocketmq_sdk.errors import RemoteProtocolError
from rocketmq_sdk.protocol.command import Command
from rocketmq_sdk.protocol.flags import HeaderEncoding
from rocketmq_sdk.protocol.header_json import decode_json_header
from rocketmq_sdk.protocol.json import backend as json_backend

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

PLAIN: Final = rb"([ !#-\[\]-~]*+)"
"""What orjson, Java and the standard library write without an escape."""
MARKED: Final = rb"([ !#-\[\]-~]*+(?:\\u000[12][ !#-\[\]-~]*+)*+)"
"""The same, with the two marks between properties, which are escaped in one way."""
_NUMBER: Final = rb"(0|[1-9]\d{0,8}+)"
"""Any such number fits 32 bits; a larger one is decoded."""
LONGEST: Final = 2048
"""Bytes of a header that may be a shape."""


def without_escapes(text: bytes) -> bytes:
    """What a text means that matches `MARKED`."""
    return text.replace(b"\\u0001", b"\x01").replace(b"\\u0002", b"\x02")


class Shape:
    """What headers that match one pattern have in common.

    `names` are those of their ext fields: first of those that may differ, in the order
    in which they stand, then of the others, whose values are `constants`. The empty
    name stands for the opaque, which may always differ.
    """

    __slots__ = ("_pieces", "constants", "match", "names", "opaque_at")

    def __init__(
        self,
        pattern: re.Pattern[bytes],
        names: tuple[str, ...],
        constants: tuple[bytes, ...],
        opaque_at: int,
        pieces: tuple[bytes, ...],
    ) -> None:
        self._pieces = pieces
        self.match = pattern.fullmatch
        self.names = names
        self.constants = constants
        self.opaque_at = opaque_at

    def header(self, texts: Sequence[bytes]) -> bytes:
        """The header that has these texts where it may differ."""
        first, *others = self._pieces
        return first + b"".join(map(b"".join, zip(texts, others, strict=True)))


class CutCommand(Command):
    """A command whose values were cut out of its header.

    As a `Command` it is whole: what is not cut is decoded when it is asked for.
    """

    __slots__ = ("shape", "texts")

    shape: Shape
    texts: tuple[bytes, ...]
    """The values that may differ, and the opaque among them, as the header has them."""

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> object:
            if name not in Command.__slots__:
                raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
            if name == "encoding":  # asked for each answer that waits for the disk
                return HeaderEncoding.JSON
            whole = decode_json_header(self.shape.header(self.texts), b"")
            value = getattr(whole, name)
            setattr(self, name, value)
            return value


def shape_of(text: bytes, command: Command, differing: Mapping[str, bytes]) -> Shape | None:
    """The shape of headers that differ from one in some ext fields and the opaque.

    `differing` has the pattern of each such field. None when those cannot be told apart
    in the header, or when cutting them gives other values than decoding does.
    """
    fields = command.ext_fields
    if not "".join([*fields.keys(), *fields.values()]).isascii():
        return None
    parts = {"": (b'"opaque":', b"%d" % command.opaque, b"", _NUMBER)}
    for name, form in differing.items():
        parts[name] = (b'"%s":"' % name.encode(), _with_escapes(fields[name]), b'"', form)
    places = {name: text.find(b"".join(part[:3])) for name, part in parts.items()}
    if any(text.count(b"".join(part[:3])) != 1 for part in parts.values()):
        return None
    names = sorted(places, key=lambda name: places[name])
    pieces, pattern, position = list[bytes](), b"", 0
    for name in names:
        front, value, _behind, form = parts[name]
        begin = places[name] + len(front)
        pieces.append(text[position:begin])
        pattern += re.escape(pieces[-1]) + form
        position = begin + len(value)
    pieces.append(text[position:])
    others = [name for name in fields if name not in differing]
    shape = Shape(
        re.compile(pattern + re.escape(pieces[-1])),
        (*names, *others),
        tuple(fields[name].encode() for name in others),
        names.index(""),
        tuple(pieces),
    )
    return shape if shape.match(text) and _is_true(shape, command, differing) else None


def _with_escapes(text: str) -> bytes:
    return text.encode().replace(b"\x01", b"\\u0001").replace(b"\x02", b"\\u0002")


def _is_true(shape: Shape, command: Command, differing: Mapping[str, bytes]) -> bool:
    """Whether the values that a shape cuts are those that decoding gives.

    They are not where a name is written twice: the last one counts, or one in another
    object. So the shape is tried with values of its own.
    """
    texts: list[bytes] = []
    for at, name in enumerate(shape.names[: len(shape.names) - len(shape.constants)]):
        if not name:
            texts.append(b"%d" % (10**8 + command.opaque % 10**8))
        elif differing[name] is MARKED:
            texts.append(b"tried\\u0001%d\\u0002" % at)
        else:
            texts.append(b"tried %d" % at)
    header = shape.header(texts)
    try:
        json_backend.loads(header)  # what is not strict JSON is read up to a length only
        tried = decode_json_header(header, b"")
    except (RemoteProtocolError, ValueError):
        return False
    values = dict(zip(shape.names, (*texts, *shape.constants), strict=True))
    opaque = int(values.pop(""))
    return (
        shape.match(header) is not None
        and (tried.code, tried.flag, tried.opaque) == (command.code, command.flag, opaque)
        and tried.ext_fields
        == {name: without_escapes(value).decode() for name, value in values.items()}
    )
