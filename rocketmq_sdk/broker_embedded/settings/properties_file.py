"""The text form of Java's `Properties`: configuration files and requests.

Lines `key=value`, `key: value` or `key value`; `#` and `!` begin a comment; a line that
ends with an odd number of backslashes goes on in the next one; backslash escapes
`\\t \\n \\r \\f \\uXXXX` and takes the special meaning from any other character.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from rocketmq_sdk.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Mapping

_BLANK: Final = " \t\f"
_ESCAPES: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_HEX: Final = "[0-9a-fA-F]{4}"
_ESCAPED: Final = re.compile(rf"\\(?:u({_HEX}(?:\\u{_HEX})*)|(.|\Z))", re.DOTALL)
_KEY: Final = re.compile(r"(?:[^\\=: \t\f]+|\\.?)*+", re.DOTALL)
_LONE: Final = re.compile("[\ud800-\udbff](?![\udc00-\udfff])|(?<![\ud800-\udbff])[\udc00-\udfff]")
_WRITTEN_AS: Final = {
    "\\": "\\\\",
    **{character: f"\\{letter}" for letter, character in _ESCAPES.items()},
}


def read_properties(text: str) -> dict[str, str]:
    """The settings of a text in order of their first appearance; a later line wins.

    Raises `ConfigurationError` for a `\\u` that is not followed by four hexadecimal
    digits.
    """
    found: dict[str, str] = {}
    for line, _natural in _logical_lines(_natural_lines(text)):
        key, value = _split(line)
        found[_unescape(key)] = _unescape(value)
    return found


def write_properties(settings: Mapping[str, str]) -> str:
    """Lines `key=value` in the given order, unescaped (`MixAll.properties2String`).

    Each line ends with a line feed.
    """
    return "".join(f"{name}={value}\n" for name, value in settings.items())


def change_properties(text: str, changed: Mapping[str, str]) -> str:
    """The text with some settings changed; all other lines stay as they are.

    The last line of each setting, the one that counts, gets the new value; a setting
    without a line gets one at the end. What is not plain ASCII is written as escapes,
    which Java reads in any encoding.
    """
    natural = _natural_lines(text)
    last = {_unescape(_split(line)[0]): span for line, span in _logical_lines(natural)}
    ending = "\r\n" if text.count("\r\n") * 2 > len(natural) else "\n"
    for name in sorted(changed.keys() & last.keys(), key=lambda name: last[name], reverse=True):
        first, end = last[name]
        natural[first:end] = [_line(name, changed[name]) + ending]
    if natural:
        end_of_text = natural[-1].rstrip("\r\n")
        natural[-1] = end_of_text + (natural[-1][len(end_of_text) :] or ending)
        if end_of_text.endswith("\\"):
            # An empty line, so that it does not go on in the first one added.
            natural.append(ending)
    added = [_line(name, changed[name]) + ending for name in changed if name not in last]
    return "".join(natural + added)


def _natural_lines(text: str) -> list[str]:
    """The lines with their ends: LF, CR LF or CR, and no others that Python knows."""
    lines = re.split(r"(?<=\n)|(?<=\r)(?!\n)", text)
    return lines if lines[-1] else lines[:-1]


def _line(name: str, value: str) -> str:
    return f"{_escape(name, of_name=True)}={_escape(value, of_name=False)}"


def _escape(text: str, *, of_name: bool) -> str:
    """A text in which nothing has a special meaning (`Properties.store` of Java)."""
    parts: list[str] = []
    for at, character in enumerate(text):
        if character in _WRITTEN_AS:
            parts.append(_WRITTEN_AS[character])
        elif character == " " and (of_name or at == 0):
            parts.append("\\ ")
        elif of_name and character in "=:#!":
            parts.append("\\" + character)
        elif " " <= character <= "~":
            parts.append(character)
        else:
            data = character.encode("utf-16-be", "surrogatepass").hex()
            parts += [f"\\u{data[at : at + 4]}" for at in range(0, len(data), 4)]
    return "".join(parts)


def _logical_lines(natural: list[str]) -> list[tuple[str, tuple[int, int]]]:
    """The lines that hold settings, and which natural lines make each of them."""
    lines: list[tuple[str, tuple[int, int]]] = []
    pending = ""
    continued = False
    first = 0
    for at, whole in enumerate(natural):
        part = whole.rstrip("\r\n").lstrip(_BLANK)
        if not continued:
            first = at
            if not part or part[0] in "#!":
                continue
        backslashes = len(part) - len(part.rstrip("\\"))
        continued = backslashes % 2 == 1
        pending += part[:-1] if continued else part
        if not continued:
            lines.append((pending, (first, at + 1)))
            pending = ""
    if pending:
        lines.append((pending, (first, len(natural))))
    return lines


def _split(line: str) -> tuple[str, str]:
    """Key and value of a line.

    The key ends at the first unescaped `=`, `:` or blank; one separator and the blanks
    around it are dropped.
    """
    key = _KEY.match(line)
    end = 0 if key is None else key.end()
    value = line[end:].lstrip(_BLANK)
    if value[:1] in ("=", ":"):
        value = value[1:].lstrip(_BLANK)
    return line[:end], value


def _unescape(text: str) -> str:
    if "\\" not in text:
        return text
    plain = _LONE.sub("\N{REPLACEMENT CHARACTER}", _ESCAPED.sub(_meaning, text))
    # Surrogate pairs written as two escapes become one character.
    return plain.encode("utf-16", "surrogatepass").decode("utf-16")


def _meaning(found: re.Match[str]) -> str:
    """What an escape stands for, or several `\\uXXXX` in a row."""
    digits, escaped = found[1], found[2]
    if digits is not None:
        return bytes.fromhex(digits.replace("\\u", "")).decode("utf-16-be", "surrogatepass")
    if escaped == "u":
        start = found.start()
        raise ConfigurationError(
            f"{found.string[start : start + 20]!r}: \\u without four hexadecimal digits"
        )
    return _ESCAPES.get(escaped, escaped)
