"""What users send and what they receive."""

from __future__ import annotations

import itertools
import zlib
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from inspect import getattr_static
from types import MappingProxyType
from typing import Any, Final, NamedTuple, Self, TypedDict

from rocketmq_sdk.errors import ConfigurationError, WrongTypeError
from rocketmq_sdk.model import properties as names
from rocketmq_sdk.model.message_arguments import (
    as_bytes,
    as_keys,
    check_property,
    check_separators,
    check_tag,
    checked_keys,
    delay_ms,
    deliver_at_ms,
    epoch_milliseconds,
    whole,
)
from rocketmq_sdk.model.properties import decode_properties, encode_properties

_NO_PROPERTIES: Final[Mapping[str, str]] = MappingProxyType({})
_MAX_FLAG: Final = 2**31 - 1
_made: Final = itertools.count(1)
"""Numbers the messages that a program makes for its tests."""


class _Rare(NamedTuple):
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


def _rare_again(properties: dict[str, str], *others: Any) -> _Rare:
    return _Rare(MappingProxyType(properties) if properties else _NO_PROPERTIES, *others)


_PLAIN: Final = _Rare()
_PLAIN_TEXT: Final = "WAIT\x01true\x02"


def _rare_of(
    properties: Mapping[str, str] | None,
    sharding_key: str | None,
    delay_level: int | None,
    deliver_at: datetime | int | None,
    delay: float | timedelta | None,
    priority: int | None,
    flag: int,
    wait_store_ok: bool,
) -> _Rare:
    """What is not plain about a message, checked."""
    if properties and not isinstance(properties, Mapping):
        raise WrongTypeError(f"properties is {properties!r:.200}; give a table of texts")
    found = _Rare(
        MappingProxyType(dict(properties)) if properties else _NO_PROPERTIES,
        sharding_key,
        delay_level,
        None if delay is None else delay_ms(delay),
        None if deliver_at is None else deliver_at_ms(deliver_at),
        priority,
        flag,
        wait_store_ok,
    )
    if (delay is not None) + (deliver_at is not None) + (delay_level is not None) > 1:
        raise ConfigurationError(
            "delay, deliver_at and delay_level exclude each other; give one of them"
        )
    if sharding_key:
        check_separators("the sharding key", sharding_key)
    if delay_level is not None and not 0 <= whole("delay_level", delay_level) <= _MAX_FLAG:
        raise ConfigurationError(
            f"delay_level is {delay_level}; levels begin with 1, and 0 means no delay"
        )
    if priority is not None and not 0 <= whole("priority", priority) <= _MAX_FLAG:
        raise ConfigurationError(f"priority is {priority}; give a whole number of at least 0")
    if wait_store_ok is not True and wait_store_ok is not False:
        raise WrongTypeError(f"wait_store_ok is {wait_store_ok!r:.200}; give True or False")
    if flag and not -_MAX_FLAG - 1 <= whole("flag", flag) <= _MAX_FLAG:
        raise ConfigurationError(f"flag is {flag}, which does not fit 32 bits")
    if properties:
        for name, value in properties.items():
            check_property(name, value)
    return found


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

    send_code = 310
    """The request that carries it: SEND_MESSAGE_V2."""

    _topic: str
    _body: bytes
    _tags: str | None
    _keys: tuple[str, ...]
    _is_plain: bool
    _rare: _Rare
    _text: str | None

    def __init__(
        self,
        topic: str,
        body: bytes,
        *,
        tags: str | None = None,
        keys: str | Iterable[str] = (),
        properties: Mapping[str, str] | None = None,
        sharding_key: str | None = None,
        delay_level: int | None = None,
        deliver_at: datetime | int | None = None,
        delay: float | timedelta | None = None,
        priority: int | None = None,
        flag: int = 0,
        wait_store_ok: bool = True,
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
        key_tuple: tuple[str, ...] = ()
        rare, text = _PLAIN, None
        if type(topic) is not str:
            raise WrongTypeError(f"the topic is {topic!r:.200}, which is no text")
        if type(body) is not bytes:
            body = as_bytes(body)
        if keys:
            key_tuple = checked_keys(keys)
        elif is_plain and not tags:
            text = _PLAIN_TEXT
        if tags:
            check_tag(tags)
        if not is_plain:
            rare = _rare_of(
                properties,
                sharding_key,
                delay_level,
                deliver_at,
                delay,
                priority,
                flag,
                wait_store_ok,
            )
        self._topic, self._body = topic, body
        self._tags, self._keys = tags, key_tuple
        self._is_plain, self._rare = is_plain, rare
        self._text = text

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        for name in ("topic", "body", "tags", "keys", "is_plain", "property_text"):
            found = getattr_static(cls, name)
            if found is not Message.__dict__[name] and hasattr(found, "__get__"):
                raise WrongTypeError(
                    f"{cls.__name__} replaces {name!r} of Message, which producers do not look "
                    "at; give what is to be sent to Message.__init__"
                )

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
        copy = object.__new__(type(self))
        if type(self) is Message:
            copy._topic, copy._body = self._topic, self._body
            copy._tags, copy._keys = self._tags, self._keys
            copy._is_plain, copy._rare = self._is_plain, self._rare
        else:  # which may have attributes of its own
            state: Any = object.__getstate__(self)
            for attributes in state:
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


class MadeMessage(TypedDict, total=False):
    """What a program may say of a message that it makes for a test."""

    tags: str | None
    keys: str | Iterable[str]
    sharding_key: str | None
    properties: Mapping[str, str] | None
    message_id: str | None
    broker_name: str
    queue_id: int
    offset: int
    reconsume_times: int
    born_time: datetime | int
    store_time: datetime | int


class ReceivedMessage:
    """A message as a broker stored it.

    Properties are decoded when they are first asked for.

    `offset` is the queue offset, `commit_log_offset` the physical one, `message_id` the
    unique id that the producer gave (else the offset id), `offset_message_id` names
    broker and physical offset. `reconsume_times` counts earlier failed deliveries to
    this group. `topic` is the topic the user subscribed to, also for a message that
    comes from the group's retry topic.

    Consumers make these. Make one yourself to test a listener without any broker:
    `ReceivedMessage("orders", b"42 bananas", reconsume_times=3)`.
    """

    __slots__ = (
        "_properties",
        "_properties_raw",
        "body",
        "body_crc",
        "born_host",
        "born_timestamp",
        "broker_name",
        "commit_log_offset",
        "flag",
        "offset",
        "prepared_transaction_offset",
        "queue_id",
        "reconsume_times",
        "store_host",
        "store_size",
        "store_timestamp",
        "sys_flag",
        "topic",
    )

    topic: str
    broker_name: str
    queue_id: int
    offset: int
    commit_log_offset: int
    body: bytes
    body_crc: int
    flag: int
    sys_flag: int
    born_timestamp: int
    born_host: bytes
    store_timestamp: int
    store_host: bytes
    reconsume_times: int
    prepared_transaction_offset: int
    store_size: int
    _properties_raw: bytes
    _properties: dict[str, str] | None

    # Decoders do not pass here.
    def __init__(
        self,
        topic: str,
        body: bytes,
        *,
        tags: str | None = None,
        keys: str | Iterable[str] = (),
        sharding_key: str | None = None,
        properties: Mapping[str, str] | None = None,
        message_id: str | None = None,
        broker_name: str = "broker-a",
        queue_id: int = 0,
        offset: int = 0,
        reconsume_times: int = 0,
        born_time: datetime | int = 0,
        store_time: datetime | int = 0,
    ) -> None:
        """A message as if a broker had stored it.

        `properties` may have system properties too, such as RETRY_TOPIC. Each message
        has an id of its own unless a `message_id` is given. Times are aware datetimes
        or epoch milliseconds. Raises `ConfigurationError` for what no message can have.
        """
        if properties and not isinstance(properties, Mapping):
            raise WrongTypeError(f"properties is {properties!r:.200}; give a table of texts")
        if message_id is None and names.UNIQ_KEY not in (properties or {}):
            message_id = f"{next(_made):032X}"
        found = {}
        for name, value in (
            *(properties or {}).items(),
            (names.TAGS, tags),
            (names.KEYS, " ".join(as_keys(keys)) or None),
            (names.SHARDING_KEY, sharding_key),
            (names.UNIQ_KEY, message_id),
        ):
            if value is not None:
                check_separators(f"the property {name!r},", value)
                found[name] = value
        if type(topic) is not str:
            raise WrongTypeError(f"the topic is {topic!r:.200}, which is no text")
        self.topic, self.body = topic, as_bytes(body)
        self.broker_name, self.queue_id = broker_name, queue_id
        self.offset = self.commit_log_offset = offset
        self.body_crc = zlib.crc32(self.body) & _MAX_FLAG
        self.flag = self.sys_flag = self.prepared_transaction_offset = self.store_size = 0
        self.born_timestamp = epoch_milliseconds(born_time)
        self.store_timestamp = epoch_milliseconds(store_time)
        self.born_host = self.store_host = bytes(8)
        self.reconsume_times = reconsume_times
        self._properties = found
        self._properties_raw = encode_properties(found).encode("utf-8", "replace")

    @property
    def properties(self) -> dict[str, str]:
        """All properties, system ones included; decoded on first use.

        Bytes that are not UTF-8 become replacement characters.
        """
        found = self._properties
        if found is None:
            found = decode_properties(self._properties_raw.decode("utf-8", "replace"))
            self._properties = found
        return found

    @property
    def properties_bytes(self) -> bytes:
        """All properties as they came, undecoded."""
        return self._properties_raw

    @property
    def tags(self) -> str | None:
        """The tag, or None."""
        return self.properties.get(names.TAGS)

    @property
    def keys(self) -> tuple[str, ...]:
        """The keys, in the producer's order."""
        return tuple(key for key in self.properties.get(names.KEYS, "").split(" ") if key)

    @property
    def sharding_key(self) -> str | None:
        """The sharding key of an ordered message, or None."""
        return self.properties.get(names.SHARDING_KEY)

    @property
    def priority(self) -> int | None:
        """The priority that the producer gave, or None."""
        text = self.properties.get(names.PRIORITY, "")
        return int(text) if text.isdecimal() and len(text) < 20 else None

    @property
    def message_id(self) -> str:
        """The unique id that the producer gave, else the offset id."""
        return self.properties.get(names.UNIQ_KEY) or self.offset_message_id

    @property
    def offset_message_id(self) -> str:
        """Store host and physical offset as upper-case hex.

        Follows `MessageDecoder.createMessageId`.
        """
        return (
            (self.store_host + self.commit_log_offset.to_bytes(8, "big", signed=True)).hex().upper()
        )

    @property
    def born_time(self) -> datetime:
        """When the producer made the message, by its clock."""
        return datetime.fromtimestamp(self.born_timestamp / 1000, UTC)

    @property
    def store_time(self) -> datetime:
        """When the broker stored the message, by its clock."""
        return datetime.fromtimestamp(self.store_timestamp / 1000, UTC)

    def __repr__(self) -> str:
        return (
            f"ReceivedMessage(topic={self.topic!r}, broker_name={self.broker_name!r}, "
            f"queue_id={self.queue_id}, offset={self.offset}, "
            f"body={len(self.body)} bytes, message_id={self.message_id!r}, "
            f"reconsume_times={self.reconsume_times})"
        )
