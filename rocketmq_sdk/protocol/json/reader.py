"""The tolerant reader of Apache's JSON dialect; see `dialect`."""

from __future__ import annotations

import json
import re
from typing import Final, Never

from rocketmq_sdk.errors import RemoteProtocolError
from rocketmq_sdk.protocol.text import valid_text

DEPTH_MAX: Final = 100
"""Deepest nesting that the tolerant reader and the writers follow."""

_SPACE = re.compile(r"[ \t\r\n\f]*")
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?")
_INTEGER = re.compile(r"-?[0-9]+")
_PLAIN: Final = {'"': re.compile(r'[^"\\]*'), "'": re.compile(r"[^'\\]*")}
_FLAT: Final = re.compile(r"\{[^{}\[\]\\]*\}")
_HEX = re.compile(r"[0-9A-Fa-f]{4}")
_ESCAPES: Final = {
    '"': '"',
    "'": "'",
    "\\": "\\",
    "/": "/",
    "b": "\b",
    "f": "\f",
    "n": "\n",
    "r": "\r",
    "t": "\t",
}
_WORDS: Final[dict[str, tuple[str, object]]] = {
    "t": ("true", True),
    "f": ("false", False),
    "n": ("null", None),
}
_DIGITS_MAX: Final = 4000


def read_tolerantly(data: bytes) -> object:
    """The value of a text in Apache's dialect.

    Raises `RemoteProtocolError` for a text that is broken, or nested deeper than
    `DEPTH_MAX`.
    """
    try:
        text = str(data, "utf-8")
    except UnicodeDecodeError as error:
        raise RemoteProtocolError(
            f"a JSON text is not UTF-8: {error.reason} at byte {error.start}"
        ) from None
    return _Reader(text).read()


def _no_constant(name: str) -> Never:
    raise ValueError(name)


_PLAIN_JSON: Final = json.JSONDecoder(parse_constant=_no_constant)


class _Reader:
    __slots__ = ("_at", "_text")

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0

    def read(self) -> object:
        value = self._value(DEPTH_MAX)
        if self._peek():
            self._fail("the end")
        return value

    def _fail(self, wanted: str) -> Never:
        found = self._text[self._at : self._at + 20]
        raise RemoteProtocolError(
            f"a JSON text has {found!r} at character {self._at} where {wanted} belongs"
        )

    def _peek(self) -> str:
        # The next character behind white space, or "" at the end.
        self._at = _SPACE.match(self._text, self._at).end()  # type: ignore[union-attr]
        return self._text[self._at : self._at + 1]

    def _value(self, depth: int) -> object:
        first = self._peek()
        if first == "{":
            return self._object(depth)
        if first == "[":
            return self._array(depth)
        if first in ('"', "'"):
            return self._string(first)
        if first in _WORDS:
            word, value = _WORDS[first]
            if self._text.startswith(word, self._at):
                self._at += len(word)
                return value
        return self._number()

    def _number(self) -> int | float:
        match = _NUMBER.match(self._text, self._at)
        if match is None or match.end() - match.start() > _DIGITS_MAX:
            self._fail("a value")
        self._at = match.end()
        return int(match[0]) if match[1] is None and match[2] is None else float(match[0])

    def _object(self, depth: int) -> dict[object, object]:
        if depth == 0:
            self._fail("no deeper nesting")
        flat = self._flat()
        if flat is not None:
            return flat
        self._at += 1
        members: dict[object, object] = {}
        while self._peek() != "}":
            key = self._key(depth)
            if self._peek() != ":":
                self._fail("a colon")
            self._at += 1
            members[key] = self._value(depth - 1)
            self._comma("}")
        self._at += 1
        return members

    def _flat(self) -> dict[object, object] | None:
        # The object here, when it is plain JSON and holds no other: tables of hundreds
        # of queues are mostly such objects, and C reads them.
        match = _FLAT.match(self._text, self._at)
        if match is None:
            return None
        try:
            found, end = _PLAIN_JSON.raw_decode(self._text, self._at)
        except ValueError:
            return None
        if end != match.end():
            return None
        self._at = end
        members: dict[object, object] = found
        return members

    def _key(self, depth: int) -> object:
        first = self._peek()
        if first in ('"', "'"):
            return self._string(first)
        if first == "{":
            return _frozen(self._object(depth - 1))
        match = _INTEGER.match(self._text, self._at)
        if match is None:
            self._fail("a name")
        self._at = match.end()
        return match[0]

    def _array(self, depth: int) -> list[object]:
        if depth == 0:
            self._fail("no deeper nesting")
        self._at += 1
        items: list[object] = []
        while self._peek() != "]":
            items.append(self._value(depth - 1))
            self._comma("]")
        self._at += 1
        return items

    def _comma(self, end: str) -> None:
        following = self._peek()
        if following == ",":
            self._at += 1
        elif following != end:
            self._fail(f"a comma or {end}")

    def _string(self, quote: str) -> str:
        text, plain = self._text, _PLAIN[quote]
        parts: list[str] = []
        self._at += 1
        surrogates = False
        while True:
            match = plain.match(text, self._at)
            parts.append(match[0])  # type: ignore[index]
            self._at = match.end()  # type: ignore[union-attr]
            if text.startswith(quote, self._at):
                self._at += 1
                joined = "".join(parts)
                return valid_text(joined) if surrogates else joined
            part = self._escape()
            surrogates = surrogates or "\ud800" <= part <= "\udfff"
            parts.append(part)

    def _escape(self) -> str:
        character = self._text[self._at + 1 : self._at + 2]
        if character in _ESCAPES:
            self._at += 2
            return _ESCAPES[character]
        digits = _HEX.match(self._text, self._at + 2)
        if character != "u" or digits is None:
            self._fail("the rest of a string")
        self._at += 6
        return chr(int(digits[0], 16))


def _frozen(members: dict[object, object]) -> tuple[tuple[str, object], ...]:
    for name, value in members.items():
        if not isinstance(name, str) or isinstance(value, dict | list):
            raise RemoteProtocolError("an object that is a key holds another object or an array")
    return tuple(
        sorted(
            ((str(name), value) for name, value in members.items()), key=lambda member: member[0]
        )
    )
