"""What users send and what they receive."""

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Final

from rocketmq_sdk.errors import ConfigurationError
from rocketmq_sdk.model import properties as names
from rocketmq_sdk.model.properties import decode_properties

_NO_PROPERTIES: Final[Mapping[str, str]] = MappingProxyType({})
_FORBIDDEN_IN_PROPERTY: Final = ("\x01", "\x02")


def _check_property(name: str, value: str) -> None:
    if not name or name.isspace() or not value or value.isspace():
        raise ConfigurationError(f"the property {name!r}={value!r} has a blank name or value")
    if name in names.RESERVED_NAMES:
        raise ConfigurationError(f"the property {name!r} is reserved; it is set through an argument of its own or by the broker")
    for separator in _FORBIDDEN_IN_PROPERTY:
        if separator in name or separator in value:
            raise ConfigurationError(f"the property {name!r} contains {separator!r}, which separates properties")


def epoch_milliseconds(moment: datetime | int) -> int:
    """Epoch milliseconds of an aware `datetime` or of a number that already is.

    Raises `ConfigurationError` for a naive `datetime`, whose meaning would be a guess.
    """
    if isinstance(moment, datetime):
        if moment.tzinfo is None:
            raise ConfigurationError(f"{moment!r} has no time zone; give an aware datetime or epoch milliseconds")
        return round(moment.timestamp() * 1000)
    return moment


class Message:
    """A message to send. Immutable; may be sent several times, each send gives it a new unique id.

    `body` is not empty. `tags` is one tag (the broker filters by the whole text); `keys` are looked up by queries; `properties` are the user's own.
    `sharding_key` keeps messages of equal key in order on one queue when a selector by key is used. `delay_level` (1-18 by default at the broker) or
    `deliver_at` (aware datetime or epoch milliseconds) delays delivery; only one of them may be set. `flag` is an integer that the SDK does not look
    at. With `wait_store_ok` false the broker answers before a synchronous flush or replication is done.

    Raises `ConfigurationError` naming the argument that is not acceptable.
    """

    __slots__ = (
        "_text",
        "body",
        "delay_level",
        "deliver_at_ms",
        "flag",
        "keys",
        "properties",
        "sharding_key",
        "tags",
        "topic",
        "wait_store_ok",
    )

    topic: str
    body: bytes
    tags: str | None
    keys: tuple[str, ...]
    properties: Mapping[str, str]
    sharding_key: str | None
    delay_level: int | None
    deliver_at_ms: int | None
    flag: int
    wait_store_ok: bool
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
        flag: int = 0,
        wait_store_ok: bool = True,
    ) -> None:
        put = object.__setattr__
        put(self, "topic", topic)
        put(self, "body", body if type(body) is bytes else bytes(body))
        put(self, "tags", tags)
        put(self, "keys", (keys,) if isinstance(keys, str) else tuple(keys))
        put(self, "properties", MappingProxyType(dict(properties)) if properties else _NO_PROPERTIES)
        put(self, "sharding_key", sharding_key)
        put(self, "delay_level", delay_level)
        put(self, "deliver_at_ms", None if deliver_at is None else epoch_milliseconds(deliver_at))
        put(self, "flag", flag)
        put(self, "wait_store_ok", wait_store_ok)
        put(self, "_text", None)
        if delay_level is not None and deliver_at is not None:
            raise ConfigurationError("delay_level and deliver_at exclude each other; give one of them")
        if properties:
            for name, value in properties.items():
                _check_property(name, value)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"a message can not be changed: {name}")

    def __repr__(self) -> str:
        tags = f", tags={self.tags!r}" if self.tags else ""
        keys = f", keys={self.keys!r}" if self.keys else ""
        return f"Message(topic={self.topic!r}, body={len(self.body)} bytes{tags}{keys})"

    def property_text(self) -> str:
        """The encoded properties without the unique id, made once; a producer adds the id in front."""
        text = self._text
        if text is None:
            text = self._encode_properties()
            object.__setattr__(self, "_text", text)
        return text

    def _encode_properties(self) -> str:
        parts = [f"{name}\x01{value}\x02" for name, value in self.properties.items()]
        if self.keys:
            parts.append(f"KEYS\x01{' '.join(self.keys)}\x02")
        parts.append("WAIT\x01true\x02" if self.wait_store_ok else "WAIT\x01false\x02")
        if self.tags:
            parts.append(f"TAGS\x01{self.tags}\x02")
        if self.sharding_key:
            parts.append(f"__SHARDINGKEY\x01{self.sharding_key}\x02")
        if self.delay_level:
            parts.append(f"DELAY\x01{self.delay_level}\x02")
        if self.deliver_at_ms is not None:
            parts.append(f"TIMER_DELIVER_MS\x01{self.deliver_at_ms}\x02")
        return "".join(parts)


class ReceivedMessage:
    """A message as a broker stored it. Properties are decoded when they are first asked for.

    `offset` is the queue offset, `commit_log_offset` the physical one, `message_id` the unique id that the producer gave (else the offset id),
    `offset_message_id` names broker and physical offset. `reconsume_times` counts earlier failed deliveries to this group. `topic` is the topic the
    user subscribed to, also for a message that comes from the group's retry topic.
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

    @property
    def properties(self) -> dict[str, str]:
        """All properties, system ones included; decoded on first use. Bytes that are not UTF-8 become replacement characters."""
        found = self._properties
        if found is None:
            found = decode_properties(self._properties_raw.decode("utf-8", "replace"))
            self._properties = found
        return found

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
    def message_id(self) -> str:
        """The unique id that the producer gave, else the offset id."""
        return self.properties.get(names.UNIQ_KEY) or self.offset_message_id

    @property
    def offset_message_id(self) -> str:
        """Store host and physical offset as upper-case hex (`MessageDecoder.createMessageId`)."""
        return (self.store_host + self.commit_log_offset.to_bytes(8, "big", signed=True)).hex().upper()

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
            f"ReceivedMessage(topic={self.topic!r}, broker_name={self.broker_name!r}, queue_id={self.queue_id}, offset={self.offset}, "
            f"body={len(self.body)} bytes, message_id={self.message_id!r}, reconsume_times={self.reconsume_times})"
        )
