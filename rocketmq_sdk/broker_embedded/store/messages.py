"""What goes into the message store and what comes out of it."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, runtime_checkable

from rocketmq_sdk.model.properties import decode_properties

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping, Sequence


class PutStatus(Enum):
    """How an append ended (`PutMessageStatus` of Apache RocketMQ 5.4.0).

    With the first four the message is stored.
    """

    PUT_OK = "PUT_OK"
    FLUSH_DISK_TIMEOUT = "FLUSH_DISK_TIMEOUT"
    FLUSH_SLAVE_TIMEOUT = "FLUSH_SLAVE_TIMEOUT"
    SLAVE_NOT_AVAILABLE = "SLAVE_NOT_AVAILABLE"
    SERVICE_NOT_AVAILABLE = "SERVICE_NOT_AVAILABLE"
    CREATE_MAPPED_FILE_FAILED = "CREATE_MAPPED_FILE_FAILED"
    MESSAGE_ILLEGAL = "MESSAGE_ILLEGAL"
    PROPERTIES_SIZE_EXCEEDED = "PROPERTIES_SIZE_EXCEEDED"
    OS_PAGE_CACHE_BUSY = "OS_PAGE_CACHE_BUSY"
    UNKNOWN_ERROR = "UNKNOWN_ERROR"
    IN_SYNC_REPLICAS_NOT_ENOUGH = "IN_SYNC_REPLICAS_NOT_ENOUGH"
    PUT_TO_REMOTE_BROKER_FAIL = "PUT_TO_REMOTE_BROKER_FAIL"
    LMQ_CONSUME_QUEUE_NUM_EXCEEDED = "LMQ_CONSUME_QUEUE_NUM_EXCEEDED"
    WHEEL_TIMER_FLOW_CONTROL = "WHEEL_TIMER_FLOW_CONTROL"
    WHEEL_TIMER_MSG_ILLEGAL = "WHEEL_TIMER_MSG_ILLEGAL"
    WHEEL_TIMER_NOT_ENABLE = "WHEEL_TIMER_NOT_ENABLE"


class GetStatus(Enum):
    """How a read of a queue ended (`GetMessageStatus`)."""

    FOUND = "FOUND"
    NO_MATCHED_MESSAGE = "NO_MATCHED_MESSAGE"
    MESSAGE_WAS_REMOVING = "MESSAGE_WAS_REMOVING"
    OFFSET_FOUND_NULL = "OFFSET_FOUND_NULL"
    OFFSET_OVERFLOW_BADLY = "OFFSET_OVERFLOW_BADLY"
    OFFSET_OVERFLOW_ONE = "OFFSET_OVERFLOW_ONE"
    OFFSET_TOO_SMALL = "OFFSET_TOO_SMALL"
    NO_MATCHED_LOGIC_QUEUE = "NO_MATCHED_LOGIC_QUEUE"
    NO_MESSAGE_IN_QUEUE = "NO_MESSAGE_IN_QUEUE"
    OFFSET_RESET = "OFFSET_RESET"


class MessageToStore:
    """One message to append, or one client batch when given to `put_batch`.

    `properties` is the encoded text. `born_host` and `store_host` are packed IP and
    port (8 or 20 bytes); without a store host the store's own is used. `tags_code` goes
    into the queue unit as it is, except in the delay topic, where the store computes
    the delivery time from its own store time.
    """

    __slots__ = (
        "body",
        "born_host",
        "born_timestamp",
        "flag",
        "prepared_offset",
        "properties",
        "queue_id",
        "reconsume_times",
        "store_host",
        "sys_flag",
        "tags_code",
        "topic",
    )

    def __init__(
        self,
        topic: str,
        queue_id: int,
        body: bytes,
        properties: str = "",
        *,
        flag: int = 0,
        sys_flag: int = 0,
        born_timestamp: int = 0,
        born_host: bytes = b"\x7f\x00\x00\x01\x00\x00\x00\x00",
        reconsume_times: int = 0,
        prepared_offset: int = 0,
        tags_code: int = 0,
        store_host: bytes | None = None,
    ) -> None:
        self.topic = topic
        self.queue_id = queue_id
        self.body = body
        self.properties = properties
        self.flag = flag
        self.sys_flag = sys_flag
        self.born_timestamp = born_timestamp
        self.born_host = born_host
        self.reconsume_times = reconsume_times
        self.prepared_offset = prepared_offset
        self.tags_code = tags_code
        self.store_host = store_host


class PutResult:
    """How an append ended, and where the record is.

    Positions are those of the first record; a batch lists all of them in
    `physical_offsets`.
    """

    __slots__ = (
        "count",
        "physical_offset",
        "physical_offsets",
        "queue_offset",
        "size",
        "status",
        "store_timestamp",
    )

    def __init__(
        self,
        status: PutStatus,
        physical_offset: int = -1,
        size: int = 0,
        queue_offset: int = -1,
        store_timestamp: int = 0,
        count: int = 1,
        physical_offsets: Sequence[int] | None = None,
    ) -> None:
        self.status = status
        self.physical_offset = physical_offset
        self.size = size
        self.queue_offset = queue_offset
        self.store_timestamp = store_timestamp
        self.count = count
        self.physical_offsets = physical_offsets

    @property
    def ok(self) -> bool:
        """Whether the message was appended."""
        return self.status is PutStatus.PUT_OK

    def __repr__(self) -> str:
        return (
            f"<PutResult {self.status.name} physical={self.physical_offset} "
            f"queue_offset={self.queue_offset} size={self.size} count={self.count}>"
        )


MAX_BYTES: Final = 128 * 1024 * 1024
"""Bytes of records that one read returns at most, but for the first one."""


class QueueRead(NamedTuple):
    """What is to be read of a queue: messages from an offset on."""

    topic: str
    queue_id: int
    offset: int
    max_count: int
    message_filter: MessageFilter | None = None
    """Which of them; None takes all."""
    max_bytes: int = MAX_BYTES


class GetResult:
    """What a read of a queue found.

    `body` joins whole records as stored, `size` is its length in bytes.
    """

    __slots__ = (
        "body",
        "count",
        "max_offset",
        "min_offset",
        "next_begin_offset",
        "size",
        "status",
        "suggest_slave",
    )

    def __init__(
        self,
        status: GetStatus,
        next_begin_offset: int = 0,
        min_offset: int = 0,
        max_offset: int = 0,
        body: bytes = b"",
        count: int = 0,
        suggest_slave: bool = False,
    ) -> None:
        self.status = status
        self.next_begin_offset = next_begin_offset
        self.min_offset = min_offset
        self.max_offset = max_offset
        self.body = body
        self.count = count
        self.size = len(body)
        self.suggest_slave = suggest_slave

    def __repr__(self) -> str:
        bounds = f"[{self.min_offset}, {self.max_offset})"
        return (
            f"<GetResult {self.status.name} count={self.count} size={self.size} "
            f"next={self.next_begin_offset} range={bounds}>"
        )


class ReadRun(NamedTuple):
    """What reads that follow each other have found, each all that it asked for.

    `body` joins their records; `ends` tells where in it each read ends.
    """

    body: bytes | bytearray
    ends: list[int]
    min_offset: int
    max_offset: int


class QueryResult:
    """What a lookup by key found, and how far the index reaches.

    Records are whole, as stored, in the order of their positions.
    """

    __slots__ = (
        "index_last_update_physical_offset",
        "index_last_update_timestamp",
        "physical_offsets",
        "records",
    )

    def __init__(
        self,
        records: list[bytes],
        physical_offsets: list[int],
        last_update_timestamp: int,
        last_update_physical_offset: int,
    ) -> None:
        self.records = records
        self.physical_offsets = physical_offsets
        self.index_last_update_timestamp = last_update_timestamp
        self.index_last_update_physical_offset = last_update_physical_offset

    def __repr__(self) -> str:
        return f"<QueryResult {self.physical_offsets}>"


class Arrival:
    """A message that consumers can read from now on."""

    __slots__ = (
        "_decoded",
        "physical_offset",
        "properties",
        "queue_id",
        "queue_offset",
        "size",
        "store_timestamp",
        "tags_code",
        "topic",
    )

    def __init__(
        self,
        topic: str,
        queue_id: int,
        queue_offset: int,
        tags_code: int,
        store_timestamp: int,
        physical_offset: int,
        size: int,
        properties: str,
    ) -> None:
        self.topic = topic
        self.queue_id = queue_id
        self.queue_offset = queue_offset
        self.tags_code = tags_code
        self.store_timestamp = store_timestamp
        self.physical_offset = physical_offset
        self.size = size
        self.properties = properties
        self._decoded: dict[str, str] | None = None

    @property
    def decoded_properties(self) -> Mapping[str, str]:
        """The properties by name; decoded once, when first used."""
        found = self._decoded
        if found is None:
            found = self._decoded = decode_properties(self.properties)
        return found


@runtime_checkable
class BitMapFilter(Protocol):
    """A filter that can rule a message out by the bit map of its queue unit."""

    def may_match(self, bit_map: bytes, store_timestamp: int) -> bool:
        """Whether the message may match according to its bit map.

        An empty bit map says nothing.
        """
        ...


class MessageFilter(Protocol):
    """Which messages of a queue a read returns."""

    @property
    def needs_properties(self) -> bool:
        """Whether `matches_record` has to be asked after the tags code has passed."""
        ...

    @property
    def what(self) -> Hashable:
        """What it lets through: equal for filters whose verdicts are the same."""
        ...

    def matches_tags_code(self, tags_code: int | None) -> bool:
        """First stage, on the queue unit alone."""
        ...

    def work(self, length: int) -> int:
        """The cost of decoding and judging properties of so many characters.

        About the number of characters that are looked at.
        """
        ...

    def matches_record(self, properties: Mapping[str, str]) -> bool:
        """Second stage, on the record's properties."""
        ...
