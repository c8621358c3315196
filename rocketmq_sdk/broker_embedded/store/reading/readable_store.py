"""A store as its readers see it.

`DefaultMessageStore.getMessage`, `queryMessage` and similar methods of Apache RocketMQ
5.4.0. Reads are synchronous and change nothing; what may have to wait for a disk has an
asynchronous form that runs in a thread.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rocketmq_sdk.broker_embedded.store.files.checkpoint import Checkpoint
from rocketmq_sdk.broker_embedded.store.following.follower import Follower
from rocketmq_sdk.broker_embedded.store.following.records import RecordReader
from rocketmq_sdk.broker_embedded.store.following.unreadable import UnreadableRecords
from rocketmq_sdk.broker_embedded.store.index.keys import query_text
from rocketmq_sdk.broker_embedded.store.index.service import IndexService
from rocketmq_sdk.broker_embedded.store.log.commit_log import CommitLog
from rocketmq_sdk.broker_embedded.store.log.record import (
    BLANK_SIZE,
    STORE_TIME_SPAN,
    size_and_magic,
    store_time,
)
from rocketmq_sdk.broker_embedded.store.log.transaction_marks import ended_halves
from rocketmq_sdk.broker_embedded.store.messages import (
    MAX_BYTES,
    GetResult,
    GetStatus,
    MessageFilter,
    QueryResult,
    QueueRead,
    ReadRun,
)
from rocketmq_sdk.broker_embedded.store.queues.consume_queue_table import ConsumeQueueTable
from rocketmq_sdk.broker_embedded.store.reading.log_readers import LogReaders
from rocketmq_sdk.broker_embedded.store.reading.queue_reader import QueueReader
from rocketmq_sdk.broker_embedded.store.state import StoreState
from rocketmq_sdk.errors import StoreError
from rocketmq_sdk.model.enums import BoundaryType

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from contextlib import AbstractContextManager

    from rocketmq_sdk.broker_embedded.store.config import StoreConfig
    from rocketmq_sdk.broker_embedded.store.files.file_system import FileSystem
    from rocketmq_sdk.clock import Clock

MAX_TIME = (1 << 63) - 1


class _Cold(Exception):  # noqa: N818 - not an error
    """Bytes would have to come from the disk, or are gone."""


class ReadableStore:
    """Log, queues and index of one store, and all the ways to read them."""

    def __init__(self, config: StoreConfig, files: FileSystem, clock: Clock) -> None:
        self.config = config
        self.files = files
        self._clock = clock
        self._state = StoreState()
        self._log = CommitLog(files, config)
        self._table = ConsumeQueueTable(files, config)
        self._reader = QueueReader(self._log, self._state, config)
        self._checkpoint = Checkpoint(files)
        self._index = IndexService(files, config, clock, self._checkpoint)
        self._readers = LogReaders()
        self._records = RecordReader(self._log, self._table, files, self._readers.reading)
        self.unreadable = UnreadableRecords(files)
        """The records that were set aside because they could not be read."""
        self._earliest: tuple[int, int] | None = None

    @property
    def max_physical_offset(self) -> int:
        """The end of the log."""
        return self._log.position

    @property
    def min_physical_offset(self) -> int:
        """The position where the oldest log file starts."""
        return self._log.min_position

    @property
    def stored_timestamp(self) -> int:
        """The store time of the last message, epoch milliseconds; 0 without any."""
        return self._state.stored_timestamp

    @property
    def writable(self) -> bool:
        """Whether puts are accepted, as far as is known."""
        return self._state.writable and self._state.full is None

    @property
    def short_of_space(self) -> bool:
        """Whether puts are refused until there is space again."""
        return self._state.short_of_space

    @property
    def failure(self) -> str | None:
        """Why puts are refused, for people to read.

        None while they are accepted, and when the store is closed.
        """
        error = self._state.problem or self._state.full
        if error is None and self._state.disk_full:
            problem = "the disk is nearly full; free space or lower fileReservedTime"
            return f"{self.files.description}: {problem}"
        return None if error is None else str(error)

    @property
    def needs_restart(self) -> bool:
        """Whether nothing more can be appended until the store is opened again."""
        return self._state.failure is not None

    def ask_for_batch_topics(self, is_batch_topic: Callable[[str], bool]) -> None:
        """Set who is asked whether a topic has batch consume queues.

        Asked before the first queue of a topic is made.
        """
        self._table.is_batch_topic = is_batch_topic

    def ended_halves(self, start: int) -> set[tuple[int, int]]:
        """The half messages that were ended by records from a position on.

        `start` is the position of a record. Returns position and body CRC of each.
        Reads the log to its end. Raises `StoreError` when it cannot be read.
        """
        return ended_halves(self._log, start)

    def get(
        self,
        topic: str,
        queue_id: int,
        offset: int,
        max_count: int,
        max_bytes: int = MAX_BYTES,
        message_filter: MessageFilter | None = None,
    ) -> GetResult:
        """Messages of a queue from an offset on.

        At most what the settings allow for one answer; `message_filter` None takes all.
        Old messages may make it wait for the disk. Raises `StoreError` when a file
        cannot be read.
        """
        return self.read(QueueRead(topic, queue_id, offset, max_count, message_filter, max_bytes))

    def read(self, wanted: QueueRead) -> GetResult:
        """`get`, by what is wanted."""
        queue = self._table.find(wanted.topic, wanted.queue_id)
        if queue is None:
            return GetResult(GetStatus.NO_MESSAGE_IN_QUEUE)
        return self._reader.get(queue, wanted, self._log.read)

    def read_nowait(self, wanted: QueueRead) -> GetResult | None:
        """`read`, but None where it would have to wait for the disk.

        Await `read_cold` then, which also tells what is wrong.
        """
        if not self.files.blocking:
            return self.read(wanted)
        queue, offset = self._table.find(wanted.topic, wanted.queue_id), wanted.offset
        if queue is None:
            return GetResult(GetStatus.NO_MESSAGE_IN_QUEUE)
        if (
            queue.min_offset <= offset < queue.max_offset
            and self._records.unit_nowait(queue, offset) is None
        ):
            return None
        try:
            return self._reader.get(queue, wanted, self._read_nowait)
        except (_Cold, StoreError):
            return None

    def get_several_nowait(
        self, topic: str, queue_id: int, offset: int, counts: Sequence[int], max_bytes: int
    ) -> ReadRun | None:
        """Several reads without a filter, which follow each other.

        Those of the first of them that bring all the messages that they ask for and no
        more than `max_bytes` together. None where that is not several, or would have to
        wait for the disk: `read_nowait` is for one by one.
        """
        queue = self._table.find(topic, queue_id)
        if queue is None:
            return None
        if not self.files.blocking:
            return self._reader.get_several(queue, offset, counts, max_bytes, self._log.read)
        try:
            if self._records.unit_nowait(queue, offset) is None:
                return None
            return self._reader.get_several(queue, offset, counts, max_bytes, self._read_nowait)
        except (_Cold, StoreError):
            return None

    def _read_nowait(self, position: int, size: int) -> bytes | bytearray:
        data = self._log.read_nowait(position, size)
        if data is None:
            raise _Cold
        return data

    def is_cold(self, topic: str, queue_id: int, offset: int) -> bool:
        """Whether `get` would have to wait for the disk; await `read_cold` then."""
        if not self.files.blocking:
            return False
        queue = self._table.find(topic, queue_id)
        if queue is None or not queue.min_offset <= offset < queue.max_offset:
            return False
        try:
            unit = self._records.unit_nowait(queue, offset)
            if unit is not None and self._log.is_hot(unit[0]):
                return False
            return unit is None or self._log.read_nowait(unit[0], unit[1]) is None
        except StoreError:
            return True

    def in_memory(self, topic: str, queue_id: int, offset: int) -> bool:
        """Whether there is a message that can be read without waiting for the disk."""
        low, high = self._records.bounds(topic, queue_id)
        return low <= offset < high and not self.is_cold(topic, queue_id, offset)

    async def queue_units(
        self, topic: str, queue_id: int, offset: int, count: int
    ) -> list[tuple[int, int, int]]:
        """`queue_unit` for several offsets, read in a thread where needed.

        Ends before one that is not there. Raises `StoreError`.
        """
        found: list[tuple[int, int, int]] = []
        while len(found) < count:
            units = await self._records.units(
                topic, queue_id, offset + len(found), count - len(found)
            )
            if isinstance(units, StoreError):
                raise units
            if not units:
                break
            found += units
        return found

    async def read_cold(self, wanted: QueueRead) -> GetResult:
        """`read` in a thread. Cancellation does not interrupt it."""
        queue = self._table.find(wanted.topic, wanted.queue_id)
        unit = None if queue is None else self._records.unit_nowait(queue, wanted.offset)
        with self.reading(self._log.min_position if unit is None else unit[0]):
            return await self.files.run(lambda: self.read(wanted))

    def follow(self, name: str) -> Follower:
        """Reads for a service that follows the log; logs call it by its name."""
        return Follower(name, self._records, self.unreadable, self._clock)

    def reading(self, physical_offset: int) -> AbstractContextManager[None]:
        """Keep the log files from a position on while the block runs.

        For at most two minutes after they are due for deletion.
        """
        return self._readers.reading(physical_offset)

    def max_offset(self, topic: str, queue_id: int) -> int:
        """The offset that the next readable message will have.

        0 for an unknown queue.
        """
        queue = self._table.find(topic, queue_id)
        return 0 if queue is None else self._reader.end(queue)

    def min_offset(self, topic: str, queue_id: int) -> int:
        """The offset of the oldest readable message; 0 for an unknown queue."""
        queue = self._table.find(topic, queue_id)
        return 0 if queue is None else queue.min_offset

    def offset_by_time(
        self, topic: str, queue_id: int, timestamp: int, boundary: BoundaryType = BoundaryType.LOWER
    ) -> int:
        """The first offset stored at or after a time (LOWER).

        With UPPER, the last one stored at or before it. 0 for an unknown queue.
        """
        queue = self._table.find(topic, queue_id)
        return 0 if queue is None else self._reader.offset_by_time(queue, timestamp, boundary)

    def store_time_at(self, topic: str, queue_id: int, offset: int) -> int:
        """When a message was stored (epoch milliseconds); -1 when there is none."""
        queue = self._table.find(topic, queue_id)
        return -1 if queue is None else self._reader.store_time(queue, offset)

    async def store_times(self, places: Sequence[tuple[str, int, int]]) -> list[int]:
        """`store_time_at` for many messages by topic, queue and offset.

        What is not in memory is read in a thread; -1 as well for what cannot be read.
        """
        found = [self._time_nowait(*place) for place in places]
        cold = [index for index, time in enumerate(found) if time is None]
        if cold:
            with self.reading(self._log.min_position):
                read = await self.files.run(lambda: [self._time(*places[at]) for at in cold])
            for index, time in zip(cold, read, strict=True):
                found[index] = time
        return [-1 if time is None else time for time in found]

    async def oldest_store_time(self, places: Iterable[tuple[str, int, int]]) -> int:
        """When the oldest of some messages was stored, by topic, queue and offset.

        Of those whose place in the log is in memory only the first one is looked at.
        -1 when there is none, or when it cannot be read.
        """
        first: tuple[int, tuple[str, int, int]] | None = None
        looked: list[tuple[str, int, int]] = []
        for place in places:
            topic, queue_id, offset = place
            queue = self._table.find(topic, queue_id)
            if queue is None or not queue.min_offset <= offset < queue.max_offset:
                continue
            unit = self._records.unit_nowait(queue, offset)
            if unit is None:
                looked.append(place)
            elif first is None or unit[0] < first[0]:
                first = unit[0], place
        if first is not None:
            looked.append(first[1])
        return min((time for time in await self.store_times(looked) if time > 0), default=-1)

    def _time(self, topic: str, queue_id: int, offset: int) -> int:
        try:
            return self.store_time_at(topic, queue_id, offset)
        except StoreError:
            return -1

    def _time_nowait(self, topic: str, queue_id: int, offset: int) -> int | None:
        """`store_time_at`; None when it may have to come from the disk."""
        queue = self._table.find(topic, queue_id)
        if queue is None or not queue.min_offset <= offset < queue.max_offset:
            return -1
        unit = self._records.unit_nowait(queue, offset)
        try:
            data = None if unit is None else self._log.read_nowait(unit[0], STORE_TIME_SPAN)
        except StoreError:
            return None
        return None if data is None or len(data) < STORE_TIME_SPAN else store_time(bytes(data))

    async def offset_at_time(
        self, topic: str, queue_id: int, timestamp: int, boundary: BoundaryType = BoundaryType.LOWER
    ) -> int:
        """`offset_by_time`, in a thread when the disk may have to be asked.

        Raises `StoreError`.
        """
        if not self.files.blocking:
            return self.offset_by_time(topic, queue_id, timestamp, boundary)
        with self.reading(self._log.min_position):
            return await self.files.run(
                lambda: self.offset_by_time(topic, queue_id, timestamp, boundary)
            )

    def earliest_store_time(self) -> int:
        """When the oldest record of the log was stored; -1 for an empty log.

        Also -1 where that has to be read from the disk; `find_earliest` does that.
        """
        start = self._log.min_position
        if start >= self._log.position:
            return -1
        if self._earliest is None or self._earliest[0] != start:
            try:
                data = self._log.read_nowait(start, STORE_TIME_SPAN)
            except StoreError:
                data = None
            if data is None or len(data) < STORE_TIME_SPAN:
                return -1
            self._earliest = (start, store_time(bytes(data)))
        return self._earliest[1]

    async def find_earliest(self) -> int:
        """`earliest_store_time`, read in a thread where needed. Raises `StoreError`."""
        start = self._log.min_position
        known = self.earliest_store_time()
        if known >= 0 or start >= self._log.position:
            return known
        found = await self.files.run(lambda: self._log.store_time_at(start))
        if found >= 0:
            self._earliest = (start, found)
        return found

    def queue_unit(self, topic: str, queue_id: int, offset: int) -> tuple[int, int, int] | None:
        """Position, size and tags code of a message; None when there is none."""
        queue = self._table.find(topic, queue_id)
        return None if queue is None else queue.unit(offset)

    def record_at(self, physical_offset: int, size: int | None = None) -> bytes | None:
        """The bytes of one record; without `size`, the record tells its size.

        None when no record of that size can start there.
        """
        log = self._log
        if not log.first_position <= physical_offset < log.position:
            return None
        if size is None:
            head = log.read(physical_offset, BLANK_SIZE)
            if head is None:
                return None
            size = size_and_magic(bytes(head), 0)[0]
        if size <= 0 or physical_offset + size > log.position:
            return None
        data = log.read(physical_offset, size)
        return None if data is None else bytes(data)

    def record_nowait(self, physical_offset: int) -> bytes | None:
        """The record at a position; None when it may have to come from the disk."""
        log = self._log
        if not log.first_position <= physical_offset <= log.position - BLANK_SIZE:
            return None
        try:
            head = log.read_nowait(physical_offset, BLANK_SIZE)
        except StoreError:
            return None
        if head is None or len(head) < BLANK_SIZE:
            return None
        return self._records.warm(physical_offset, size_and_magic(bytes(head), 0)[0])

    async def record_cold(self, physical_offset: int) -> bytes | None:
        """`record_at` in a thread. Raises `StoreError`."""
        with self.reading(physical_offset):
            return await self.files.run(lambda: self.record_at(physical_offset))

    async def query(
        self,
        topic: str,
        key: str,
        max_count: int,
        begin: int = 0,
        end: int = MAX_TIME,
        index_type: str | None = None,
    ) -> QueryResult:
        """The newest messages with a key or unique key, oldest first.

        `index_type` T looks for tags instead. Finds messages stored from `begin` to
        `end` (epoch milliseconds), at most `max_msgs_num_batch`. The index compares
        only hashes: the caller has to check that the key is there. Raises `StoreError`
        when a file cannot be read.
        """
        limit = min(max_count, self.config.max_msgs_num_batch)
        positions = sorted(
            await self._index.positions(query_text(topic, key, index_type), limit, begin, end)
        )
        answers = (
            zip(positions, await self._records_at(positions), strict=True) if positions else ()
        )
        found = {position: record for position, record in answers if record is not None}
        return QueryResult(list(found.values()), list(found), *self._index.last_update)

    async def _records_at(self, positions: list[int]) -> list[bytes | None]:
        with self.reading(positions[0]):
            return await self.files.run(
                lambda: [self.record_at(position) for position in positions]
            )

    def has_batch_queues(self, topic: str) -> bool:
        """Whether the queues of a topic are, or will be, batch consume queues."""
        return topic in self._table.batch_topics or (
            topic not in self._table.queues and self._table.is_batch_topic(topic)
        )

    def topics(self) -> set[str]:
        """Topics that have queues."""
        return set(self._table.queues)

    def queue_ids(self, topic: str) -> list[int]:
        """The queues of a topic that hold or held messages."""
        return sorted(self._table.queues.get(topic, ()))

    async def wait_indexed(self) -> None:
        """Wait until the index, which a start may have to build, lacks nothing."""
        await self._index.wait_complete()

    @property
    def description(self) -> str:
        """The directory, or what stands for it."""
        return self.files.description

    def used_ratio(self) -> float:
        """How full the disk of the store is, 0 to 1. Raises `StoreError`."""
        return self.files.used_ratio()

    async def log_bytes_before(self, end: int, position: int, limit: int) -> bytes | bytearray:
        """Bytes of the log from a position on, before `end`, within one file.

        At most `limit`, none when there are none. Raises `StoreError` when the file
        cannot be read.
        """
        size = self._log.data_span(position, limit, end)
        data = self._log.read_nowait(position, size) if size else b""
        if data is None:
            # What precedes the part kept in memory is read from the files, which may
            # not have the newest bytes yet.
            size = max(0, min(size, self._log.written - position))
            with self.reading(position):
                data = await self.files.run(lambda: self._log.read(position, size))
        return data or b""

    def read_log_ahead(self, *, wanted: bool) -> None:
        """Whether the system should read the log ahead.

        Off where messages are read here and there.
        """
        self.files.read_ahead(self._log.chain.directory, wanted=wanted)
