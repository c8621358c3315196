"""What the properties of a sent message ask for, besides to be stored."""

from __future__ import annotations

from typing import Final, Generic, NamedTuple, TypeVar

from rocketmq_sdk.broker_embedded.transactions.half_messages import HALF_FIELDS
from rocketmq_sdk.model.properties import (
    CHECK_IMMUNITY_TIME_IN_SECONDS,
    CLUSTER,
    KEYS,
    MSG_REGION,
    PGROUP,
    POP_CK,
    PRIORITY,
    SHARDING_KEY,
    TAGS,
    TRACE_ON,
    TRAN_MSG,
    UNIQ_KEY,
    property_in_text,
    without_property,
    without_traceparent,
)
from rocketmq_sdk.protocol.shapes.headers import without_escapes
from rocketmq_sdk.protocol.subscription import tags_code

_END: Final = "\x02"
_END_BYTE: Final = _END.encode()
_UNIQUE: Final = f"{UNIQ_KEY}\x01"
_UNIQUE_SIZE: Final = len(_UNIQUE)
_UNIQUE_CUT: Final = rf"{UNIQ_KEY}\u0001".encode()
_KEYS_CUT: Final = rf"{KEYS}\u0001".encode()
_END_CUT: Final = rb"\u0002"
_MARK: Final = "\x01"
_KEYS: Final = f"{KEYS}\x01"
_KEYS_SIZE: Final = len(_KEYS)
_SHARDING: Final = f"{SHARDING_KEY}\x01"
_STARTS_LATER: Final = "__STARTDELIVERTIME\x01"
_REMEMBERED: Final = 1024
_SHORT: Final = 512
"""Characters of texts that are remembered."""


def has_broker_properties(text: str) -> bool:
    """Whether a text seems to have a property that the broker sets itself."""
    return (
        "MSG_REGION\x01" in text
        or "POP_CK\x01" in text
        or "TRACE_ON\x01" in text
        or "CLUSTER\x01" in text
    )


def without_broker_properties(text: str) -> str:
    """The text without what the broker sets itself."""
    for name in (POP_CK, MSG_REGION, TRACE_ON, CLUSTER):
        text = without_property(text, name)
    return text


def is_special(text: str) -> bool:
    """Whether a text seems to ask for a delay, a transaction or a queue."""
    return "DELAY\x01" in text or "TRAN_MSG\x01" in text or "TIMER_" in text or PRIORITY in text


def _without_keys(text: str) -> str:
    """The text without a list of keys, which asks for nothing.

    It differs in each message of many programs.
    """
    at = text.find(_KEYS)
    end = text.find(_END, at)
    if at < 0 or end < 0 or (at and text[at - 1] != _END):
        return text
    return text if _MARK in text[at + _KEYS_SIZE : end] else text[:at] + text[end + 1 :]


Known = TypeVar("Known")


class _Texts(dict[str, Known | None], Generic[Known]):
    """What is known by the texts of properties without the unique key.

    None for a text that asks for more than to be stored. Texts that were not seen
    lately are looked through, without a list of keys and the context of a trace.
    """

    __slots__ = ("saw_sharding",)

    def __init__(self) -> None:
        super().__init__()
        self.saw_sharding = False

    def __missing__(self, rest: str) -> Known | None:
        rest = _without_keys(without_traceparent(rest))
        if rest in self:
            return self[rest]
        if _SHARDING in rest:
            self.saw_sharding = True
        known = None if _UNIQUE in rest or has_broker_properties(rest) else self.looked(rest)
        if len(rest) <= _SHORT:
            if len(self) >= _REMEMBERED:
                self.clear()
            self[rest] = known
        return known

    def looked(self, rest: str) -> Known | None:
        """Look through a text without what the broker sets itself."""
        raise NotImplementedError


class _Codes(_Texts[int]):
    """Tags codes of plain messages."""

    __slots__ = ()

    def looked(self, rest: str) -> int | None:
        if is_special(rest) or _STARTS_LATER in rest:  # which is stored as others, counted apart
            return None
        return tags_code(property_in_text(rest, TAGS))


class HalfTraits(NamedTuple):
    """What the store and the table of transactions need of a half message."""

    tags_code: int
    group: str | None
    immunity: str | None
    """The property CHECK_IMMUNITY_TIME_IN_SECONDS."""


class _Traits(_Texts[HalfTraits]):
    """What half messages ask for that are plain but for their transaction."""

    __slots__ = ()

    def looked(self, rest: str) -> HalfTraits | None:
        if (
            (property_in_text(rest, TRAN_MSG) or "").lower() != "true"
            or "DELAY\x01" in rest
            or "TIMER_" in rest
            or PRIORITY in rest
            or _STARTS_LATER in rest
            or any(mark in rest for mark in HALF_FIELDS)
        ):
            return None
        return HalfTraits(
            tags_code(property_in_text(rest, TAGS)),
            property_in_text(rest, PGROUP),
            property_in_text(rest, CHECK_IMMUNITY_TIME_IN_SECONDS),
        )


class _Properties(Generic[Known]):
    """Tells of property texts whether they are plain, and what the store needs then.

    Most messages of a producer differ in their unique keys only, so what surrounds the
    key is looked through once.
    """

    __slots__ = ("_known", "_rest", "_texts")

    def __init__(self, texts: _Texts[Known]) -> None:
        self._texts = texts
        self._rest = ""
        """What followed the unique key of the last message.

        Messages that left together may have the same context of a trace.
        """
        self._known: Known | None = None

    @property
    def saw_sharding(self) -> bool:
        """Whether a text had a sharding key; without one, no message has."""
        return self._texts.saw_sharding

    def look(self, text: str) -> tuple[str, Known] | None:
        """Unique key and what is known; None when the text asks for more.

        Also None without a unique key, or with one of other than letters and digits.
        """
        start = text.find(_UNIQUE)
        end = text.find(_END, start)
        if start < 0 or end < 0:
            return None
        unique = text[start + _UNIQUE_SIZE : end]
        if not (unique.isalnum() and unique.isascii()):
            return None
        if not start:
            rest = text[end:]
            if rest == self._rest:
                known = self._known
            else:
                known = self._known = self._texts[rest]
                self._rest = rest
        elif text[start - 1] == _END:
            known = self._texts[text[:start] + text[end:]]
        else:
            return None
        return None if known is None else (unique, known)


class PlainProperties(_Properties[int]):
    """Tags codes of messages that ask for nothing but to be stored."""

    __slots__ = ()

    def __init__(self) -> None:
        super().__init__(_Codes())


class HalfProperties(_Properties[HalfTraits]):
    """Traits of half messages that are plain but for their transaction."""

    __slots__ = ()

    def __init__(self) -> None:
        super().__init__(_Traits())


def _without_first_keys(head: bytes) -> bytes:
    """What was cut before a unique key, without a list of keys that begins it."""
    if head.startswith(_KEYS_CUT):
        end = head.find(_END_CUT)
        if end >= 0 and b"\\" not in head[len(_KEYS_CUT) : end]:
            return head[end + len(_END_CUT) :]
    return head


class CutProperties:
    """Properties as they are stored, of plain messages whose headers were cut.

    A message that differs from the one before in the unique key only, or in that and
    its list of keys, as most do, needs no look at the rest.
    """

    __slots__ = (
        "_code",
        "_end",
        "_head",
        "_head_without_keys",
        "_look",
        "_start",
        "_stored",
        "_suffix",
        "_tail",
    )

    def __init__(self, properties: PlainProperties, suffix: str) -> None:
        """`suffix`: what the broker adds to all."""
        self._look = properties.look
        self._suffix = suffix.encode("utf-8", "replace")
        self._start = self._end = 0
        """Where the unique key of the last message stands in what was cut."""
        self._head = self._tail = self._head_without_keys = b""
        """What was cut before and behind it."""
        self._stored: tuple[bytes, bytes] | None = None
        """The same as it is stored, once it has been asked for."""
        self._code = 0

    def of(self, cut: bytes) -> tuple[bytes, bytes, int] | None:
        """Unique key, stored properties and tags code; None as of `PlainProperties`.

        `cut` is what stands in the header: it matches `MARKED`.
        """
        start, end = self._start, self._end
        unique = cut[start:end]
        if unique.isalnum() and cut[:start] == self._head and cut[end:] == self._tail:
            head, tail = self._stored or self._store()
            return unique, head + unique + tail, self._code
        start = cut.find(_UNIQUE_CUT) + len(_UNIQUE_CUT)
        end = cut.find(_END_CUT, start)
        unique, head, tail = cut[start:end], cut[:start], cut[end:]
        without_keys = _without_first_keys(head)
        if not (
            without_keys == self._head_without_keys and tail == self._tail and unique.isalnum()
        ):
            found = self._look(without_escapes(cut).decode())
            if found is None:
                return None
            self._code = found[1]
        self._start, self._end, self._stored = start, end, None
        self._head, self._head_without_keys, self._tail = head, without_keys, tail
        return unique, self._completed(without_escapes(cut)), self._code

    def _store(self) -> tuple[bytes, bytes]:
        tail = self._completed(without_escapes(self._tail))
        self._stored = found = without_escapes(self._head), tail
        return found

    def _completed(self, text: bytes) -> bytes:
        return text + (self._suffix if text.endswith(_END_BYTE) else _END_BYTE + self._suffix)
