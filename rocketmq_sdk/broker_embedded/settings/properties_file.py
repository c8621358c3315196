"""The text form of Java's `Properties`: configuration files and requests.

Lines `key=value`, `key: value` or `key value`; `#` and `!` begin a comment; a line that
ends with an odd number of backslashes goes on in the next one; backslash escapes
`\\t \\n \\r \\f \\uXXXX` and takes the special meaning from any other character.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rocketmq_sdk.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Mapping

_BLANK: Final = " \t\f"
_ESCAPES: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def read_properties(text: str) -> dict[str, str]:
    """The settings of a text in order of their first appearance; a later line wins.

    Raises `ConfigurationError` for a `\\u` that is not followed by four hexadecimal
    digits.
    """
    found: dict[str, str] = {}
    for line in _logical_lines(text):
        key, value = _split(line)
        found[_unescape(key)] = _unescape(value)
    return found


def write_properties(settings: Mapping[str, str]) -> str:
    """Lines `key=value` in the given order, unescaped (`MixAll.properties2String`).

    Each line ends with a line feed.
    """
    return "".join(f"{name}={value}\n" for name, value in settings.items())


def _logical_lines(text: str) -> list[str]:
    lines: list[str] = []
    pending = ""
    continued = False
    for natural in text.replace("\r\n", "\n").replace("\r", "\n").split("\n"):
        part = natural.lstrip(_BLANK)
        if not continued and (not part or part[0] in "#!"):
            continue
        backslashes = len(part) - len(part.rstrip("\\"))
        continued = backslashes % 2 == 1
        pending += part[:-1] if continued else part
        if not continued:
            lines.append(pending)
            pending = ""
    if pending:
        lines.append(pending)
    return lines


def _split(line: str) -> tuple[str, str]:
    """Key and value of a line.

    The key ends at the first unescaped `=`, `:` or blank; one separator and the blanks
    around it are dropped.
    """
    end = 0
    while end < len(line) and line[end] not in "=:" + _BLANK:
        end += 2 if line[end] == "\\" else 1
    value = line[end:].lstrip(_BLANK)
    if value[:1] in ("=", ":"):
        value = value[1:].lstrip(_BLANK)
    return line[:end], value


def _unescape(text: str) -> str:
    if "\\" not in text:
        return text
    parts: list[str] = []
    at = 0
    while at < len(text):
        character = text[at]
        at += 1
        if character != "\\" or at == len(text):
            parts.append(character if character != "\\" else "")
            continue
        escaped = text[at]
        at += 1
        if escaped == "u":
            digits = text[at : at + 4]
            if len(digits) < 4 or not all(digit in "0123456789abcdefABCDEF" for digit in digits):
                raise ConfigurationError(f"{text!r} holds \\u without four hexadecimal digits")
            escaped = chr(int(digits, 16))
            at += 4
        parts.append(_ESCAPES.get(escaped, escaped) if len(escaped) == 1 else escaped)
    # Surrogate pairs written as two escapes become one character.
    return "".join(parts).encode("utf-16", "surrogatepass").decode("utf-16", "replace")
