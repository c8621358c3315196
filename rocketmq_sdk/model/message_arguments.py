"""What the arguments of messages may be; each check says what is wrong with them.

They raise `ConfigurationError`, or `WrongTypeError`, naming the argument.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import Any, Final, NamedTuple, Never, Protocol, TypeAlias, TypeVar

from rocketmq_sdk.errors import ConfigurationError, WrongTypeError
from rocketmq_sdk.model import properties as names

_EARLIEST: Final = 10**11
"""Of 1973 in milliseconds; in seconds it is far away."""
_LATEST: Final = 10**14
"""Of the year 5138 in milliseconds."""
TRIMMED: Final = "".join(map(chr, range(0x21)))
"""What is cut off both ends of the tags in a subscription (`String.trim` of Java)."""
_LONGEST_DELAY: Final = 10**9
"""Seconds; more is a moment and no delay."""
_MAX_FLAG: Final = 2**31 - 1
_NO_PROPERTIES: Final[Mapping[str, str]] = MappingProxyType({})
_T = TypeVar("_T")


class Unchecked(Protocol):
    """Nothing is one, see `Given`."""

    def is_unchecked(self) -> Never: ...


Given: TypeAlias = _T | Unchecked
"""What is to be a `_T`, and is looked at before it is taken for one.

Compiled functions refuse other types without saying what to give instead, unless the
types they name are no types of C; a union with a protocol is none.
"""


def checked_text(what: str, text: object) -> str:
    """The text, a plain one: a member of a class `(str, Enum)` is written otherwise."""
    if not isinstance(text, str):
        raise WrongTypeError(f"{what} {text!r:.200} is not a text")
    if "\x01" in text or "\x02" in text:
        raise ConfigurationError(
            f"{what} {text!r} contains '\\x01' or '\\x02', which separate properties"
        )
    return str.__str__(text)


def checked_property(given_name: object, given_value: object) -> tuple[str, str]:
    name = checked_text("the property", given_name)
    value = checked_text(f"the value of the property {name!r},", given_value)
    if not name or name.isspace() or not value or value.isspace():
        raise ConfigurationError(f"the property {name!r}={value!r} has a blank name or value")
    if name in names.RESERVED_NAMES:
        raise ConfigurationError(
            f"the property {name!r} is reserved; it is set through an argument of its own or by "
            "the broker"
        )
    return name, value


def as_keys(keys: object) -> tuple[Any, ...]:
    if isinstance(keys, str):
        return (keys,)
    if not isinstance(keys, Iterable):
        raise WrongTypeError(f"keys is {keys!r:.200}; give a text or several texts")
    return tuple(keys)


def checked_key(given: object) -> str:
    key = checked_text("the key", given)
    if " " in key:
        raise ConfigurationError(
            f"the key {key!r} contains a space, which separates keys; give several keys as a "
            "sequence"
        )
    return key


def checked_keys(keys: object) -> tuple[str, ...]:
    """The keys, each of which can be looked up."""
    return tuple([checked_key(key) for key in as_keys(keys)])


def as_bytes(body: object) -> bytes:
    if isinstance(body, bytes | bytearray | memoryview):
        return bytes(body)
    raise WrongTypeError(f"the body is {type(body).__name__}, not bytes; encode it first")


def epoch_milliseconds(moment: object) -> int:
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


def deliver_at_ms(moment: object) -> int:
    """When to deliver, refusing whole numbers that are no milliseconds of our time."""
    milliseconds = epoch_milliseconds(moment)
    if isinstance(moment, int) and not _EARLIEST <= milliseconds < _LATEST:
        unit = "seconds" if milliseconds < _EARLIEST else "micro- or nanoseconds"
        raise ConfigurationError(
            f"deliver_at is {moment}, which looks like {unit}; give epoch milliseconds, an aware "
            "datetime, or delay= in seconds"
        )
    return milliseconds


def delay_ms(delay: object) -> int:
    seconds = delay.total_seconds() if isinstance(delay, timedelta) else delay
    if isinstance(seconds, bool) or not isinstance(seconds, int | float):
        raise WrongTypeError(f"delay is {delay!r:.200}; give seconds or a timedelta")
    if not 0 <= seconds < _LONGEST_DELAY:
        raise ConfigurationError(
            f"delay is {delay!r}; give seconds from now, at least 0 (deliver_at= takes a moment)"
        )
    return round(seconds * 1000)


def whole(name: str, value: object) -> int:
    if type(value) is not int:
        raise WrongTypeError(f"{name} is {value!r:.200}, which is no whole number")
    return value


def checked_tag(given: object) -> str:
    tag = checked_text("the tag", given)
    if "|" in tag or "," in tag or tag == "*" or tag != tag.strip(TRIMMED):
        raise ConfigurationError(
            f"the tag {tag!r} could not be subscribed to; a message has one tag, without '|' and "
            "',' and without spaces around it"
        )
    return tag


class Rare(NamedTuple):
    """What most messages do not have, in one slot: a message is cheap to make then."""

    properties: Mapping[str, str] = _NO_PROPERTIES
    sharding_key: str | None = None
    delay_level: int | None = None
    delay_ms: int | None = None
    deliver_at_ms: int | None = None
    priority: int | None = None
    flag: int = 0
    wait_store_ok: bool = True

    # A view of a table can be neither pickled nor deeply copied.
    def __reduce__(self) -> tuple[object, ...]:
        return _rare_again, (dict(self.properties), *self[1:])


def _rare_again(properties: dict[str, str], *others: Any) -> Rare:
    return Rare(MappingProxyType(properties) if properties else _NO_PROPERTIES, *others)


def rare_of(
    properties: object,
    sharding_key: object,
    delay_level: object,
    deliver_at: object,
    delay: object,
    priority: object,
    flag: object,
    wait_store_ok: object,
) -> Rare:
    """What is not plain about a message, checked."""
    if (delay is not None) + (deliver_at is not None) + (delay_level is not None) > 1:
        raise ConfigurationError(
            "delay, deliver_at and delay_level exclude each other; give one of them"
        )
    if wait_store_ok is not True and wait_store_ok is not False:
        raise WrongTypeError(f"wait_store_ok is {wait_store_ok!r:.200}; give True or False")
    level = None if delay_level is None else whole("delay_level", delay_level)
    if level is not None and not 0 <= level <= _MAX_FLAG:
        raise ConfigurationError(
            f"delay_level is {level}; levels begin with 1, and 0 means no delay"
        )
    queue = None if priority is None else whole("priority", priority)
    if queue is not None and not 0 <= queue <= _MAX_FLAG:
        raise ConfigurationError(f"priority is {queue}; give a whole number of at least 0")
    bits = whole("flag", flag) if flag else 0
    if not -_MAX_FLAG - 1 <= bits <= _MAX_FLAG:
        raise ConfigurationError(f"flag is {flag}, which does not fit 32 bits")
    return Rare(
        _own_properties(properties) if properties else _NO_PROPERTIES,
        None if sharding_key is None else checked_text("the sharding key", sharding_key),
        level,
        None if delay is None else delay_ms(delay),
        None if deliver_at is None else deliver_at_ms(deliver_at),
        queue,
        bits,
        wait_store_ok,
    )


def _own_properties(given: object) -> Mapping[str, str]:
    if not isinstance(given, Mapping):
        raise WrongTypeError(f"properties is {given!r:.200}; give a table of texts")
    return MappingProxyType(dict([checked_property(*entry) for entry in given.items()]))
