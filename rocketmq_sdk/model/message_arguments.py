"""What the arguments of messages may be; each check says what is wrong with them.

They raise `ConfigurationError`, or `WrongTypeError`, naming the argument.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final

from rocketmq_sdk.errors import ConfigurationError, WrongTypeError
from rocketmq_sdk.model import properties as names

if TYPE_CHECKING:
    from collections.abc import Iterable

_EARLIEST: Final = 10**11
"""Of 1973 in milliseconds; in seconds it is far away."""
_LATEST: Final = 10**14
"""Of the year 5138 in milliseconds."""
TRIMMED: Final = "".join(map(chr, range(0x21)))
"""What is cut off both ends of the tags in a subscription (`String.trim` of Java)."""
_LONGEST_DELAY: Final = 10**9
"""Seconds; more is a moment and no delay."""


def check_separators(what: str, text: str) -> None:
    if not isinstance(text, str):
        raise WrongTypeError(f"{what} {text!r:.200} is not a text")
    if "\x01" in text or "\x02" in text:
        raise ConfigurationError(
            f"{what} {text!r} contains '\\x01' or '\\x02', which separate properties"
        )


def check_property(name: str, value: str) -> None:
    check_separators("the property", name)
    check_separators(f"the value of the property {name!r},", value)
    if not name or name.isspace() or not value or value.isspace():
        raise ConfigurationError(f"the property {name!r}={value!r} has a blank name or value")
    if name in names.RESERVED_NAMES:
        raise ConfigurationError(
            f"the property {name!r} is reserved; it is set through an argument of its own or by "
            "the broker"
        )


def as_keys(keys: str | Iterable[str]) -> tuple[str, ...]:
    if isinstance(keys, str):
        return (keys,)
    try:
        return tuple(keys)
    except TypeError:
        raise WrongTypeError(f"keys is {keys!r:.200}; give a text or several texts") from None


def check_key(key: str) -> None:
    check_separators("the key", key)
    if " " in key:
        raise ConfigurationError(
            f"the key {key!r} contains a space, which separates keys; give several keys as a "
            "sequence"
        )


def checked_keys(keys: str | Iterable[str]) -> tuple[str, ...]:
    """The keys, each of which can be looked up."""
    found = as_keys(keys)
    for key in found:
        check_key(key)
    return found


def as_bytes(body: object) -> bytes:
    if isinstance(body, bytes | bytearray | memoryview):
        return bytes(body)
    raise WrongTypeError(f"the body is {type(body).__name__}, not bytes; encode it first")


def epoch_milliseconds(moment: datetime | int) -> int:
    """Epoch milliseconds of an aware `datetime` or of a whole number that already is.

    Raises `ConfigurationError` for a naive `datetime`, whose meaning would be a guess,
    and for anything else.
    """
    if isinstance(moment, datetime):
        if moment.tzinfo is None:
            raise ConfigurationError(
                f"{moment!r} has no time zone; give an aware datetime or epoch milliseconds"
            )
        return round(moment.timestamp() * 1000)
    if not isinstance(moment, int) or isinstance(moment, bool):
        raise WrongTypeError(
            f"{moment!r:.200} is no point in time; give an aware datetime or epoch milliseconds as "
            "a whole number"
        )
    return moment


def deliver_at_ms(moment: datetime | int) -> int:
    """When to deliver, refusing whole numbers that are no milliseconds of our time."""
    milliseconds = epoch_milliseconds(moment)
    if isinstance(moment, int) and not _EARLIEST <= milliseconds < _LATEST:
        unit = "seconds" if milliseconds < _EARLIEST else "micro- or nanoseconds"
        raise ConfigurationError(
            f"deliver_at is {moment}, which looks like {unit}; give epoch milliseconds, an aware "
            "datetime, or delay= in seconds"
        )
    return milliseconds


def delay_ms(delay: float | timedelta) -> int:
    seconds = delay.total_seconds() if isinstance(delay, timedelta) else delay
    if isinstance(seconds, bool) or not isinstance(seconds, int | float):
        raise WrongTypeError(f"delay is {delay!r:.200}; give seconds or a timedelta")
    if not 0 <= seconds < _LONGEST_DELAY:
        raise ConfigurationError(
            f"delay is {delay!r}; give seconds from now, at least 0 (deliver_at= takes a moment)"
        )
    return round(seconds * 1000)


def whole(name: str, value: int) -> int:
    if type(value) is not int:
        raise WrongTypeError(f"{name} is {value!r:.200}, which is no whole number")
    return value


def check_tag(tag: str) -> None:
    check_separators("the tag", tag)
    if "|" in tag or "," in tag or tag == "*" or tag != tag.strip(TRIMMED):
        raise ConfigurationError(
            f"the tag {tag!r} could not be subscribed to; a message has one tag, without '|' and "
            "',' and without spaces around it"
        )
