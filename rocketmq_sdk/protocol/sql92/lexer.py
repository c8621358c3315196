"""Tokens of SQL92 expressions.

Follows the token rules of `SelectorParser` of Apache RocketMQ 5.4.0.

Words are read one at a time, as the parser asks for them: what stands behind a complete
expression is never looked at, except for the word that follows it.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple, NoReturn

from rocketmq_sdk.errors import FilterSyntaxError

KEYWORDS: Final = frozenset(
    {
        "NOT",
        "AND",
        "OR",
        "BETWEEN",
        "IN",
        "TRUE",
        "FALSE",
        "NULL",
        "IS",
        "CONTAINS",
        "STARTSWITH",
        "ENDSWITH",
    }
)
END: Final = "end of the expression"
NAME: Final = "name"
STRING: Final = "string"
INTEGER: Final = "integer"
FLOAT: Final = "float"

# A line comment needs its line end. Without one it is two minus signs; where no line
# ends any more none is looked for, as each search would go through all that is left.
_SKIPPED: Final = re.compile(r"(?:[ \t\n\r\f]+|--[^\n\r]*(?:\r\n|\n|\r)|/\*.*?\*/)*", re.DOTALL)
_SKIPPED_IN_LAST_LINE: Final = re.compile(r"(?:[ \t\f]+|/\*.*?\*/)*", re.DOTALL)
_WORD: Final = re.compile(
    r"(?P<float>(?:[0-9]+\.[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?|[0-9]+[eE][+-]?[0-9]+)"
    r"|(?P<integer>0|[1-9][0-9]*[lL]?)"
    r"|(?P<string>'(?:[^']|'')*')"
    r"|(?P<name>[A-Za-z_$][A-Za-z0-9_$]*)"
    r"|(?P<sign><>|<=|>=|[=<>(),+-])"
)
_SHOWN: Final = 30


class Token(NamedTuple):
    """One word.

    `kind` is one of the kinds above, a keyword in capitals, or a sign; `position`
    counts characters from 1.
    """

    kind: str
    text: str
    position: int

    def describe(self) -> str:
        """The word for messages."""
        return END if self.kind == END else repr(self.text[:_SHOWN])


class Lexer:
    """Reads words off a text."""

    __slots__ = ("_at", "_last_line", "_ready", "text")

    def __init__(self, text: str) -> None:
        self.text = text
        self._at = 0
        self._last_line = max(text.rfind("\n"), text.rfind("\r")) + 1
        self._ready: list[Token] = []

    def peek(self, ahead: int = 0) -> Token:
        """A word that is not taken yet.

        Raises `FilterSyntaxError` where no word begins.
        """
        while len(self._ready) <= ahead:
            self._ready.append(self._read())
        return self._ready[ahead]

    def take(self) -> Token:
        """The next word."""
        token = self.peek()
        del self._ready[0]
        return token

    def fail(self, token: Token, reason: str) -> NoReturn:
        """Raise the error for a word."""
        raise FilterSyntaxError(self.text, token.position, reason)

    def _read(self) -> Token:
        skipped = (_SKIPPED if self._at < self._last_line else _SKIPPED_IN_LAST_LINE).match(
            self.text, self._at
        )
        assert skipped is not None  # it matches nothing as well
        start = skipped.end()
        if start == len(self.text):
            self._at = start
            return Token(END, "", start + 1)
        found = _WORD.match(self.text, start)
        if found is None:
            what = (
                "a string without its end"
                if self.text[start] == "'"
                else f"{self.text[start]!r} begins no word"
            )
            raise FilterSyntaxError(self.text, start + 1, what)
        self._at = found.end()
        kind, text = str(found.lastgroup), found.group()
        if kind == "sign":
            kind = text
        elif kind == NAME and text.isascii() and text.upper() in KEYWORDS:
            kind = text.upper()
        return Token(kind, text, start + 1)
