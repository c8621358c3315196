"""What users receive."""

from __future__ import annotations

import itertools
import zlib
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Final, TypedDict

from rocketmq_sdk.errors import WrongTypeError
from rocketmq_sdk.model import properties as names
from rocketmq_sdk.model.message_arguments import (
    as_bytes,
    as_keys,
    checked_text,
    epoch_milliseconds,
)
from rocketmq_sdk.model.properties import decode_properties, encode_properties

_MAX_FLAG: Final = 2**31 - 1
_made: Final = itertools.count(1)
"""Numbers the messages that a program makes for its tests."""


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
                found[name] = checked_text(f"the property {name!r},", value)
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
