"""Converts property texts to numbers and truth values as Java does.

`Integer.valueOf`, `Long.valueOf`, `Double.valueOf` and `Boolean.valueOf`.
"""

from __future__ import annotations

import re
from typing import Final

_INT_MIN, _INT_MAX = -0x80000000, 0x7FFFFFFF
_LONG_MIN, _LONG_MAX = -0x8000000000000000, 0x7FFFFFFFFFFFFFFF
_MOST_DIGITS: Final = 4000
_BMP_MAX: Final = 0xFFFF
# Java's `String.trim`, which `Double.valueOf` begins with.
_TRIMMED: Final = "".join(map(chr, range(0x21)))
_DECIMAL: Final = re.compile(r"([+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)[fFdD]?")
_HEXADECIMAL: Final = re.compile(
    r"([+-]?0[xX](?:[0-9a-fA-F]+\.?|[0-9a-fA-F]*\.[0-9a-fA-F]+)[pP][+-]?[0-9]+)[fFdD]?"
)
_NAMED: Final = {"NaN": "nan", "Infinity": "inf"}


class EvaluationError(ValueError):
    """Values cannot be compared; a message that raises this never matches."""


def _whole(text: str, low: int, high: int) -> int:
    digits = text[1:] if text[:1] in ("+", "-") else text
    # Java looks at units of UTF-16, so digits outside of the basic plane are none.
    if not digits.isdecimal() or (not digits.isascii() and max(map(ord, digits)) > _BMP_MAX):
        raise EvaluationError(f"{text[:40]!r} is no whole number")
    digits = digits if len(digits) <= _MOST_DIGITS else digits.lstrip("0")
    value = int(digits or "0") if len(digits) <= _MOST_DIGITS else _LONG_MAX + 1
    value = -value if text[0] == "-" else value
    if not low <= value <= high:
        raise EvaluationError(f"{text[:40]!r} is out of range")
    return value


def to_integer(text: str) -> int:
    """A whole number of 32 bits. Raises `EvaluationError`."""
    return _whole(text, _INT_MIN, _INT_MAX)


def to_long(text: str) -> int:
    """A whole number of 64 bits. Raises `EvaluationError`."""
    return _whole(text, _LONG_MIN, _LONG_MAX)


def to_double(text: str) -> float:
    """The text as floating-point number. Raises `EvaluationError`.

    Spaces around it, hexadecimal forms, NaN and Infinity are legal, as in Java.
    """
    trimmed = text.strip(_TRIMMED)
    found = _DECIMAL.fullmatch(trimmed)
    if found is not None:
        return float(found[1])
    sign = trimmed[:1] if trimmed[:1] in ("+", "-") else ""
    named = _NAMED.get(trimmed[len(sign) :])
    if named is not None:
        return float(sign + named)
    found = _HEXADECIMAL.fullmatch(trimmed)
    if found is None:
        raise EvaluationError(f"{text[:40]!r} is no number")
    try:
        return float.fromhex(found[1])
    except OverflowError:
        return float(f"{sign}inf")


def to_boolean(text: str) -> bool:
    """True for "true" in any case, else False."""
    return text.lower() == "true"


def order_doubles(left: float, right: float) -> int:
    """`Double.compareTo`: NaN equals itself and is above all; -0.0 is below 0.0."""
    if left < right:
        return -1
    if left > right:
        return 1
    return (_rank(left) > _rank(right)) - (_rank(left) < _rank(right))


def _rank(value: float) -> int:
    if value != value:
        return 2
    return 0 if value == 0 and str(value)[0] == "-" else 1
