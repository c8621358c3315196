"""Answers that are as the one before but for a few values, cut instead of decoded.

A producer that sends plain messages gets one kind of answer, thousands of times. The
shape of two that follow each other is remembered as a pattern: what was the same in
both stands in it as it is, what differed may be any text without quotes, escapes and
controls. What matches it has the same JSON structure, so its values are what decoding
would give. What does not match is decoded, and may become the next shape.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from rocketmq_sdk.errors import RemoteProtocolError
from rocketmq_sdk.protocol.command import Command
from rocketmq_sdk.protocol.flags import FLAG_RESPONSE
from rocketmq_sdk.protocol.header_json import decode_json_header

if TYPE_CHECKING:
    from collections.abc import Sequence

_new: Final = Command.__new__
_TEXT: Final = rb"([ !#-\[\]-~]*+)"
"""What orjson, Java and the standard library write without an escape."""
_NUMBER: Final = rb"(0|[1-9]\d{0,8}+)"
"""Any such number fits 32 bits; a larger one is decoded."""
_MOST_SHAPES: Final = 16
"""Answers that change their shape more often are decoded from then on."""
_LONGEST: Final = 2048
"""Bytes of a header that may be a shape."""


class Shape:
    """What answers that match one pattern have in common.

    `names` are those of their ext fields: first of those that may differ, then of the
    others. `CutAnswer.texts` followed by `constants` are their values in this order;
    the empty name stands for the opaque.
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
        """The header that has these values, with the opaque among them."""
        first, *others = self._pieces
        return first + b"".join(map(b"".join, zip(texts, others, strict=True)))


class CutAnswer(Command):
    """An answer that says success and has no body, with values of its ext fields.

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
            whole = decode_json_header(self.shape.header(self.texts), b"")
            value = getattr(whole, name)
            setattr(self, name, value)
            return value


class AnswerShapes:
    """The shape of the last answers of one connection.

    `cut` gives the answer whose header stands between two positions, None for one that
    has to be decoded, which is for `learn` then.
    """

    __slots__ = ("_last", "_left", "_shape", "_varying")

    def __init__(self) -> None:
        self._shape: Shape | None = None
        self._last: tuple[bytes, dict[str, str]] | None = None
        self._varying: set[str] = set()
        self._left = _MOST_SHAPES

    def cut(self, data: bytes, start: int, stop: int) -> CutAnswer | None:
        shape = self._shape
        if shape is None:
            return None
        found = shape.match(data, start, stop)
        if found is None:
            return None
        answer = _new(CutAnswer)
        answer.texts = texts = found.groups()
        answer.opaque = int(texts[shape.opaque_at])
        answer.code = 0
        answer.flag = FLAG_RESPONSE
        answer.shape = shape
        return answer

    def learn(self, text: bytes) -> Command:
        """Decode a header that was not cut, and remember what it looks like.

        Raises as `decode_json_header`.
        """
        answer = decode_json_header(text, b"")
        if (
            self._left
            and not answer.code
            and answer.flag == FLAG_RESPONSE
            and answer.remark is None
            and len(text) <= _LONGEST
        ):
            self._look_at(text, answer)
        return answer

    def _look_at(self, text: bytes, answer: Command) -> None:
        fields = answer.ext_fields
        last, self._last = self._last, (text, dict(fields))
        if last is None or last[1].keys() != fields.keys():
            self._varying = set()
            return
        self._varying |= {name for name, value in fields.items() if last[1][name] != value}
        self._left -= 1
        shape = _shape_of(text, answer, self._varying)
        self._shape = shape if shape is not None and _holds(shape, last[0]) else None


def _shape_of(text: bytes, answer: Command, varying: set[str]) -> Shape | None:
    """The shape of headers that differ from one in some ext fields and the opaque.

    None when those cannot be told apart in it.
    """
    if not "".join([*answer.ext_fields.keys(), *answer.ext_fields.values()]).isascii():
        return None
    parts = {"": (b'"opaque":', b"%d" % answer.opaque, b"", _NUMBER)}
    for name in varying:
        parts[name] = (b'"%s":"' % name.encode(), answer.ext_fields[name].encode(), b'"', _TEXT)
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
    others = [name for name in answer.ext_fields if name not in varying]
    shape = Shape(
        re.compile(pattern + re.escape(pieces[-1])),
        (*names, *others),
        tuple(answer.ext_fields[name].encode() for name in others),
        names.index(""),
        tuple(pieces),
    )
    return shape if shape.match(text) else None


def _holds(shape: Shape, other: bytes) -> bool:
    """Whether a shape fits another header too, and the values that it cuts are those
    that decoding gives.

    They are not where a name is written twice: the last one counts, or one in another
    object. So the shape is tried with values of its own.
    """
    if not shape.match(other):
        return False
    varying = shape.names[: len(shape.names) - len(shape.constants)]
    opaque = b"%d" % (10**8 + len(other))
    texts = [opaque if name == "" else b"tried %d" % at for at, name in enumerate(varying)]
    try:
        tried = decode_json_header(shape.header(texts), b"")
    except RemoteProtocolError:
        return False
    values = dict(zip(shape.names, (*texts, *shape.constants), strict=True))
    del values[""]
    return tried.opaque == int(opaque) and tried.ext_fields == {
        name: value.decode() for name, value in values.items()
    }
