"""What users send."""

from __future__ import annotations

from collections.abc import Iterable, Mapping  # noqa: TC003 (users ask for type hints)
from datetime import datetime, timedelta  # noqa: TC003
from inspect import getattr_static
from typing import Any, ClassVar, Final, Self

from rocketmq_sdk.compiling import State, mypyc_attr, state_of
from rocketmq_sdk.errors import WrongTypeError
from rocketmq_sdk.model.message_arguments import (
    Given,
    Rare,
    as_bytes,
    checked_keys,
    checked_tag,
    rare_of,
)

_PLAIN: Final = Rare()
_PLAIN_TEXT: Final = "WAIT\x01true\x02"


@mypyc_attr(allow_interpreted_subclasses=True, acyclic=True)
class Message:
    """A message to send.

    Immutable; may be sent several times, each send gives it a new unique id.
    Subclasses may add attributes, and have no properties in place of its own.

    `body` is not empty. `tags` is one tag (the broker filters by the whole text);
    `keys` are looked up by queries; `properties` are the user's own. Messages of equal
    `sharding_key` stay in order on one queue. `delay` (seconds or a timedelta, counted
    by the broker from its receipt), `deliver_at` (aware datetime or epoch milliseconds)
    or `delay_level` (1-18 by default at the broker) delays delivery; only one of them
    may be set. A message with a
    `priority` (0 or more) goes to the queue of that number, the last one at most,
    unless it is delayed, transactional or has a sharding key. `flag` is an integer that
    the SDK does not look at. With `wait_store_ok` false the broker answers before a
    synchronous flush or replication is done.

    Raises `ConfigurationError` naming the argument that is not acceptable.
    """

    # What is private here has no setter in front of it: a message is cheap to make.
    __slots__ = ("_body", "_is_plain", "_keys", "_rare", "_tags", "_text", "_topic")

    send_code: ClassVar[int] = 310
    """The request that carries it: SEND_MESSAGE_V2."""

    _topic: str
    _body: bytes
    _tags: str | None
    _keys: tuple[str, ...]
    _is_plain: bool
    _rare: Rare
    _text: str | None

    def __init__(
        self,
        topic: Given[str],
        body: Given[bytes],
        *,
        tags: Given[str | None] = None,
        keys: str | Iterable[str] = (),
        properties: Mapping[str, str] | None = None,
        sharding_key: Given[str | None] = None,
        delay_level: Given[int | None] = None,
        deliver_at: datetime | int | None = None,
        delay: float | timedelta | None = None,
        priority: Given[int | None] = None,
        flag: Given[int] = 0,
        wait_store_ok: Given[bool] = True,
    ) -> None:
        is_plain = (
            not properties
            and sharding_key is None
            and delay_level is None
            and deliver_at is None
            and delay is None
            and priority is None
            and not flag
            and wait_store_ok is True
        )
        if type(topic) is not str:
            raise WrongTypeError(f"the topic is {topic!r:.200}, which is no text")
        self._topic = topic
        self._body = body if type(body) is bytes else as_bytes(body)
        self._tags = None if tags is None else checked_tag(tags)
        self._keys = checked_keys(keys) if keys else ()
        self._text = None if tags or keys or not is_plain else _PLAIN_TEXT
        self._is_plain = is_plain
        self._rare = (
            _PLAIN
            if is_plain
            else rare_of(
                properties,
                sharding_key,
                delay_level,
                deliver_at,
                delay,
                priority,
                flag,
                wait_store_ok,
            )
        )

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        for name in ("topic", "body", "tags", "keys", "is_plain", "property_text"):
            found = getattr_static(cls, name)
            if found is not getattr_static(Message, name) and hasattr(found, "__get__"):
                raise WrongTypeError(
                    f"{cls.__name__} replaces {name!r} of Message, which producers do not look "
                    "at; give what is to be sent to Message.__init__"
                )

    def __getstate__(self) -> State:
        return state_of(self)

    def __repr__(self) -> str:
        tags = f", tags={self.tags!r}" if self.tags else ""
        keys = f", keys={self.keys!r}" if self.keys else ""
        return f"Message(topic={self.topic!r}, body={len(self.body)} bytes{tags}{keys})"

    @property
    def topic(self) -> str:
        """The topic that it is sent to."""
        return self._topic

    @property
    def body(self) -> bytes:
        """What the receiver gets."""
        return self._body

    @property
    def tags(self) -> str | None:
        """The tag, None without one."""
        return self._tags

    @property
    def keys(self) -> tuple[str, ...]:
        """What queries find it by."""
        return self._keys

    @property
    def is_plain(self) -> bool:
        """Whether it has nothing but topic, body, tag and keys."""
        return self._is_plain

    @property
    def properties(self) -> Mapping[str, str]:
        """The user's own properties."""
        return self._rare.properties

    @property
    def sharding_key(self) -> str | None:
        """What keeps messages in order on one queue."""
        return self._rare.sharding_key

    @property
    def delay_level(self) -> int | None:
        """The broker's level of delay, None without one."""
        return self._rare.delay_level

    @property
    def delay_ms(self) -> int | None:
        """Milliseconds of delay, counted by the broker; None without."""
        return self._rare.delay_ms

    @property
    def deliver_at_ms(self) -> int | None:
        """The moment of delivery in epoch milliseconds, None without one."""
        return self._rare.deliver_at_ms

    @property
    def priority(self) -> int | None:
        """The number of the queue that it prefers, None without one."""
        return self._rare.priority

    @property
    def flag(self) -> int:
        """An integer that the SDK does not look at."""
        return self._rare.flag

    @property
    def wait_store_ok(self) -> bool:
        """Whether the answer comes after a synchronous flush or replication."""
        return self._rare.wait_store_ok

    @property
    def is_delayed(self) -> bool:
        """Whether it is delivered later than it is stored."""
        if self._is_plain:
            return False
        return bool(self.delay_level or self.delay_ms) or self.deliver_at_ms is not None

    def with_more(self, properties: str) -> Self:
        """The same message with more encoded properties; for producers."""
        copy = Message.__new__(type(self))
        if type(self) is Message:
            copy._topic, copy._body = self._topic, self._body
            copy._tags, copy._keys = self._tags, self._keys
            copy._is_plain, copy._rare = self._is_plain, self._rare
        else:  # which may have attributes of its own
            for attributes in state_of(self):
                for name, value in (attributes or {}).items():
                    object.__setattr__(copy, name, value)
        copy._text = self.property_text() + properties
        return copy

    def property_text(self) -> str:
        """The encoded properties without the unique id, made once.

        A producer adds the id in front.
        """
        text = self._text
        if text is None:
            text = self._text = self._encode_properties()
        return text

    def _encode_properties(self) -> str:
        if self._is_plain and not self._keys:
            return f"{_PLAIN_TEXT}TAGS\x01{self._tags}\x02" if self._tags else _PLAIN_TEXT
        text = (
            "".join([f"{name}\x01{value}\x02" for name, value in self.properties.items()])
            if self.properties
            else ""
        )
        if self._keys:
            text += f"KEYS\x01{' '.join(self._keys)}\x02"
        text += "WAIT\x01true\x02" if self.wait_store_ok else "WAIT\x01false\x02"
        if self._tags:
            text += f"TAGS\x01{self._tags}\x02"
        if self.sharding_key:
            text += f"__SHARDINGKEY\x01{self.sharding_key}\x02"
        if self.delay_level:
            text += f"DELAY\x01{self.delay_level}\x02"
        if self.delay_ms:
            text += f"TIMER_DELAY_MS\x01{self.delay_ms}\x02"
        if self.deliver_at_ms is not None:
            text += f"TIMER_DELIVER_MS\x01{self.deliver_at_ms}\x02"
        if self.priority is not None:
            text += f"_SYS_MSG_PRIORITY_\x01{self.priority}\x02"
        return text
