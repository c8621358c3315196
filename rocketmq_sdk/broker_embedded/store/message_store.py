"""The message store (`DefaultMessageStore` of Apache RocketMQ 5.4.0): appends messages to the log and reads them by queue.

Appends, dispatch and reads are synchronous and belong to the thread of the event loop: nothing can interrupt them half way. Only syncs and reads
that have to wait for a disk run in threads. When `put` returns PUT_OK the record is in the hands of the operating system (between `begin` and `end`:
when `end` returns), so the death of the process loses nothing that was acknowledged; under SYNC_FLUSH `wait_durable` says when a power cut can not
either.
"""

import logging
import os
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractContextManager, asynccontextmanager
from itertools import accumulate

import trio

from rocketmq_sdk.broker_embedded.store.batch import batch_records
from rocketmq_sdk.broker_embedded.store.checkpoint import Checkpoint
from rocketmq_sdk.broker_embedded.store.clean_stop import write_note
from rocketmq_sdk.broker_embedded.store.commit_log import CommitLog, NoNextFileError
from rocketmq_sdk.broker_embedded.store.config import StoreConfig
from rocketmq_sdk.broker_embedded.store.consume_queue import ConsumeQueue
from rocketmq_sdk.broker_embedded.store.consume_queue_table import ConsumeQueueTable
from rocketmq_sdk.broker_embedded.store.deleted_topics import DeletedTopics
from rocketmq_sdk.broker_embedded.store.dispatch import Dispatcher
from rocketmq_sdk.broker_embedded.store.files import FileSystem
from rocketmq_sdk.broker_embedded.store.flush import FlushState, LogFlusher, QueueFlusher
from rocketmq_sdk.broker_embedded.store.index_keys import query_text
from rocketmq_sdk.broker_embedded.store.index_service import IndexService, is_indexed
from rocketmq_sdk.broker_embedded.store.reader import QueueReader
from rocketmq_sdk.broker_embedded.store.record import BLANK_SIZE, is_dispatched, size_and_magic
from rocketmq_sdk.broker_embedded.store.recovery import Recovery
from rocketmq_sdk.broker_embedded.store.retention import RetentionService
from rocketmq_sdk.broker_embedded.store.types import (
    Arrival,
    FlushDiskType,
    GetResult,
    GetStatus,
    MessageFilter,
    MessageToStore,
    PutResult,
    PutStatus,
    QueryResult,
)
from rocketmq_sdk.clock import Clock
from rocketmq_sdk.errors import LocalProtocolError, ProtocolError, StoreError, StoreFullError
from rocketmq_sdk.lifecycle import RunsOnce, open_quiet_nursery
from rocketmq_sdk.model.enums import BoundaryType
from rocketmq_sdk.model.properties import TAGS, property_in_text
from rocketmq_sdk.protocol.batch_codec import decode_batch
from rocketmq_sdk.protocol.flags import SysFlag
from rocketmq_sdk.protocol.message_codec import MAX_PROPERTIES, encode_record, record_size
from rocketmq_sdk.protocol.subscription import tags_code
from rocketmq_sdk.watermark import Watermark

_log = logging.getLogger(__name__)
ABORT_PATH = "abort"
MAX_RECORD_EXTRA = 65_536
DEFAULT_MAX_BYTES = 134_217_728
MAX_TIME = (1 << 63) - 1
_TRANSACTION_BITS = SysFlag.TRANSACTION_ROLLBACK
_Pending = tuple[ConsumeQueue, int, int, int, int, int, str]


class MessageStore(RunsOnce):
    """One store directory. Use as `async with MessageStore(...) as store`: entering loads and recovers, leaving makes everything durable.

    Entering raises `StoreLockedError`, `StoreCorruptError` or `StoreError`.
    """

    _second_time = "a store object is opened once; make another one"

    def __init__(self, config: StoreConfig, files: FileSystem, clock: Clock, store_host: bytes) -> None:
        self.config = config
        self.files = files
        self._clock = clock
        self._store_host = store_host
        self._log = CommitLog(files, config)
        self._table = ConsumeQueueTable(files, config)
        self._dispatcher = Dispatcher(self._table, config.message_delay_level)
        self._reader = QueueReader(self._log, config)
        self._checkpoint = Checkpoint(files)
        self._index = IndexService(files, config, clock, self._checkpoint)
        self._deleted = DeletedTopics(files)
        self._dispatcher.deleted_topics = self._deleted.positions
        self._state = FlushState()
        self._flusher = LogFlusher(files, self._log, config, clock, self._state, self._after_flush)
        self._queue_flusher = QueueFlusher(files, self._table, self._index, self._flusher, self._checkpoint, config, clock, self._state)
        self._retention = RetentionService(files, self._log, self._table, self._index, config, clock, self._state)
        self._sync_flush = config.flush_disk_type is FlushDiskType.SYNC_FLUSH
        self._pending: deque[_Pending] = deque()
        self._indexing = self._index.enabled
        self._note = self._index.note
        self._open = False
        self._puts = 0
        self.arrivals: list[Callable[[Arrival], None]] = self._dispatcher.arrivals
        """Called for each message that consumers can read from now on, in the append under ASYNC_FLUSH, behind its sync under SYNC_FLUSH."""
        self.dispatched: Watermark = self._dispatcher.dispatched
        """Up to where the log is in the queues."""

    # --- opening and closing -------------------------------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def _run(self) -> AsyncIterator[None]:
        self.files.lock()
        try:
            self._index.loading_at = self._clock.now_ms()
            await self.files.run(self._load)
            self._index.loading_at = None
            self._open = True
            try:
                async with open_quiet_nursery() as nursery:
                    nursery.start_soon(self._flusher.run)
                    nursery.start_soon(self._queue_flusher.run)
                    nursery.start_soon(self._retention.run)
                    try:
                        yield
                    finally:
                        nursery.cancel_scope.cancel()
            finally:
                self._open = False
                with trio.CancelScope(shield=True):
                    await self._close()
        finally:
            self._log.close()
            self._table.close()
            self._index.close()
            self.files.unlock()

    def _load(self) -> None:
        """Load and recover; what Apache does in `load` and `recover`."""
        clean = not self.files.exists(ABORT_PATH)
        self._log.queue.load(mend=not clean)
        self._table.load(mend=not clean)
        self._checkpoint.load()
        self._deleted.load()
        # Before anything is changed: recovery that is interrupted must not pass for a clean stop.
        self.files.write(ABORT_PATH, str(os.getpid()).encode())
        self.files.sync_directory(".")
        self._table.find_ends()
        self._table.finish_deletions(self._deleted.positions)
        self._index.load(clean=clean)
        index = self._index if self._index.enabled else None
        recovery = Recovery(self._log, self._dispatcher, self._checkpoint, index, check_crc=self.config.check_crc_on_recover)
        end = recovery.run(clean=clean)
        self._deleted.clamp(end)
        last = max(recovery.last_store_timestamp, self._checkpoint.physic_timestamp)
        self._state.stored_timestamp = self._state.dispatched_timestamp = self._flusher.physic_timestamp = last
        self._flusher.flushed.advance(end)
        self.dispatched.advance(end)

    @trio.lowlevel.enable_ki_protection
    async def _close(self) -> None:
        """Make everything durable; only when all of it worked the stop counts as clean."""
        await self._flusher.flush()
        await self._queue_flusher.flush(thorough=True)
        problem = self._state.failure or self._state.queue_problem or self._state.index_problem
        if problem is not None:
            _log.error("the store is closed without a clean stop: %s", problem)
            return
        try:
            await self.files.run(self._remove_abort)
        except StoreError as error:
            _log.error("the store is closed without a clean stop: %s", error)

    def _remove_abort(self) -> None:
        write_note(self.files, self._log.position, self._table)
        self.files.remove(ABORT_PATH)
        self.files.sync_directory(".")

    # --- state -----------------------------------------------------------------------------------------------------------------------------------

    @property
    def writable(self) -> bool:
        """Whether puts are taken."""
        state = self._state
        return self._open and state.failure is None and state.queue_problem is None and not state.disk_full

    @property
    def failure(self) -> str | None:
        """Why puts are refused, for people; None while they are taken or when the store is closed."""
        error = self._state.failure or self._state.queue_problem
        if error is None and self._state.disk_full:
            return f"{self.files.description}: the disk is nearly full; free space or lower fileReservedTime"
        return None if error is None else str(error)

    @property
    def needs_wait(self) -> bool:
        """Whether `wait_durable` can have something to wait for."""
        return self._sync_flush

    @property
    def flushed(self) -> Watermark:
        """Up to where the log is durable. Its waiters get the `StoreError` of a failed sync."""
        return self._flusher.flushed

    @property
    def max_physical_offset(self) -> int:
        """The end of the log."""
        return self._log.position

    @property
    def min_physical_offset(self) -> int:
        """Where the oldest log file starts."""
        return self._log.min_position

    def statistics(self) -> dict[str, int]:
        """Numbers for people."""
        return {
            "puts": self._puts,
            "min_physical_offset": self._log.min_position,
            "max_physical_offset": self._log.position,
            "flushed_offset": self.flushed.value,
            "dispatched_offset": self.dispatched.value,
            "log_files": len(self._log.queue.files),
            "queues": sum(1 for _queue in self._table),
        }

    def __repr__(self) -> str:
        state = "open" if self._open else "closed"
        return f"<MessageStore {self.files.description} {state} [{self._log.min_position}, {self._log.position})>"

    # --- appending -------------------------------------------------------------------------------------------------------------------------------

    @trio.lowlevel.enable_ki_protection
    def put(self, message: MessageToStore) -> PutResult:
        """Append one message and put it into its queue. Never raises for a message or a disk: the status says what happened."""
        state = self._state
        if not self._open or state.failure is not None or state.queue_problem is not None or state.disk_full:
            return PutResult(PutStatus.SERVICE_NOT_AVAILABLE)
        try:
            queue = self._table.queues[message.topic][message.queue_id]
        except KeyError:
            made = self._table.obtain(message.topic, message.queue_id)
            if made is None:
                return PutResult(PutStatus.MESSAGE_ILLEGAL)
            queue = made
        if len(message.body) > self.config.max_message_size:
            return PutResult(PutStatus.MESSAGE_ILLEGAL)
        text = message.properties
        properties = text.encode("utf-8", "replace")
        if len(properties) > MAX_PROPERTIES:
            return PutResult(PutStatus.PROPERTIES_SIZE_EXCEEDED)
        now = self._clock.now_ms()
        if now < state.stored_timestamp:
            now = state.stored_timestamp
        visible = not message.sys_flag & _TRANSACTION_BITS or is_dispatched(message.sys_flag)
        offset = queue.next_offset if visible else 0
        try:
            position, size = self._append(queue, message, properties, offset, now)
        except (StoreError, ProtocolError) as error:
            return self._refuse(error)
        state.stored_timestamp = now
        self._puts += 1
        if self._flusher.idle:
            self._flusher.wake()
        if visible:
            queue.next_offset = offset + 1
            code = message.tags_code
            if queue.is_schedule:
                due = self._dispatcher.deliver_time(text, now)
                code = code if due is None else due
            if self._sync_flush:
                self._pending.append((queue, offset, code, now, position, size, text))
            else:
                queue.append(position, size, code)
                if self._indexing:
                    self._note((message.topic, text, position, now))
                if not queue.dirty:
                    self._mark_dirty(queue)
                state.dispatched_timestamp = now
                self.dispatched.advance(position + size)
                if self.arrivals:
                    self._dispatcher.tell(queue, offset, code, now, position, size, text)
        else:
            self._pass_by(message, position, size, now)
        return PutResult(PutStatus.PUT_OK, position, size, offset, now)

    def _pass_by(self, message: MessageToStore, position: int, size: int, now: int) -> None:
        """A message that is in no queue; a prepared one is found by its keys."""
        if self._indexing and is_indexed(message.sys_flag):
            self._note((message.topic, message.properties, position, now))
        if not self._pending:
            self.dispatched.advance(position + size)

    def _append(self, queue: ConsumeQueue, message: MessageToStore, properties: bytes, offset: int, now: int) -> tuple[int, int]:
        """Encode and append one record; gives its position and size. Raises without having appended."""
        log = self._log
        position = log.position
        while True:
            record = encode_record(
                queue.topic_bytes,
                message.body,
                properties,
                queue_id=message.queue_id,
                flag=message.flag,
                queue_offset=offset,
                physical_offset=position,
                sys_flag=message.sys_flag,
                born_timestamp=message.born_timestamp,
                born_host=message.born_host,
                store_timestamp=now,
                store_host=message.store_host or self._store_host,
                reconsume_times=message.reconsume_times,
                prepared_offset=message.prepared_offset,
            )
            size = len(record)
            end = position + size
            if end + BLANK_SIZE <= log.limit:
                log.append(record, end)
                return position, size
            if size + BLANK_SIZE > log.file_size:
                raise LocalProtocolError(f"a record of {size} bytes does not fit into a log file of {log.file_size} bytes")
            position = log.make_room(size)

    @trio.lowlevel.enable_ki_protection
    def put_batch(self, message: MessageToStore) -> PutResult:
        """Append the messages of an encoded batch as consecutive records with consecutive offsets in one file, all or none.

        `message.body` is the batch; flag, body and properties come from its elements, the tags code too. Never raises.
        """
        state = self._state
        if not self.writable:
            return PutResult(PutStatus.SERVICE_NOT_AVAILABLE)
        if len(message.body) > self.config.max_message_size or message.sys_flag & _TRANSACTION_BITS:
            return PutResult(PutStatus.MESSAGE_ILLEGAL)
        queue = self._table.obtain(message.topic, message.queue_id)
        try:
            items = decode_batch(message.body)
        except ProtocolError as error:
            return self._refuse(error)
        if queue is None or not items or queue.is_schedule:
            return PutResult(PutStatus.MESSAGE_ILLEGAL)
        hosts = len(message.born_host) + len(message.store_host or self._store_host)
        total = sum(record_size(len(queue.topic_bytes), len(body), len(properties), host_bytes=hosts) for _flag, body, properties in items)
        log = self._log
        if total + BLANK_SIZE > log.file_size:
            return PutResult(PutStatus.MESSAGE_ILLEGAL)
        now = max(self._clock.now_ms(), state.stored_timestamp)
        first = queue.next_offset
        try:
            start = log.make_room(total)
            records = batch_records(queue, message, items, start, now, message.store_host or self._store_host)
            log.append(b"".join(records), start + sum(map(len, records)))
        except (StoreError, ProtocolError) as error:
            return self._refuse(error)
        state.stored_timestamp = now
        self._puts += len(items)
        if self._flusher.idle:
            self._flusher.wake()
        queue.next_offset = first + len(items)
        positions = list(accumulate(map(len, records[:-1]), initial=start))
        self._dispatch_batch(queue, first, now, positions, records, [properties for _flag, _body, properties in items])
        return PutResult(PutStatus.PUT_OK, start, log.position - start, first, now, len(items), positions)

    def _dispatch_batch(
        self, queue: ConsumeQueue, first: int, now: int, positions: list[int], records: list[bytes], properties: list[bytes]
    ) -> None:
        for index, (position, record, raw) in enumerate(zip(positions, records, properties, strict=True)):
            text = raw.decode("utf-8", "replace")
            self._pending.append((queue, first + index, tags_code(property_in_text(text, TAGS)), now, position, len(record), text))
        if not self._sync_flush:
            self._dispatch_up_to(self._log.position)

    def _refuse(self, error: StoreError | ProtocolError) -> PutResult:
        if isinstance(error, ProtocolError):
            return PutResult(PutStatus.MESSAGE_ILLEGAL)
        _log.error("a message could not be appended: %s", error)
        if isinstance(error, StoreFullError):
            next_file = isinstance(error, NoNextFileError)
            return PutResult(PutStatus.CREATE_MAPPED_FILE_FAILED if next_file else PutStatus.SERVICE_NOT_AVAILABLE)
        return PutResult(PutStatus.UNKNOWN_ERROR)

    def _mark_dirty(self, queue: ConsumeQueue) -> None:
        self._table.mark_dirty(queue)
        if self._queue_flusher.idle:
            self._queue_flusher.wake()

    def _dispatch_up_to(self, end: int) -> None:
        """Put the waiting messages in front of a position into their queues."""
        pending = self._pending
        while pending and pending[0][4] + pending[0][5] <= end:
            queue, offset, code, now, position, size, text = pending.popleft()
            if self._indexing:
                self._note((queue.topic, text, position, now))
            if queue.removed:
                continue
            queue.append(position, size, code)
            self._mark_dirty(queue)
            self._state.dispatched_timestamp = now
            if self.arrivals:
                self._dispatcher.tell(queue, offset, code, now, position, size, text)
        self.dispatched.advance(end if not pending else pending[0][4])

    def _after_flush(self) -> None:
        self._retention.note_activity()
        if self._sync_flush:
            self._dispatch_up_to(self.flushed.value)

    def begin(self) -> None:
        """Requests that arrived together are about to be served: let their appends wait for one write.

        Synchronous code only until `end`: nothing may leave the process in between that tells of these appends.
        """
        self._log.write_through = False

    @trio.lowlevel.enable_ki_protection
    def end(self) -> None:
        """Hand the appends since `begin` to the operating system.

        Raises `StoreError` when that fails; then none of them may be acknowledged, and the store takes no more messages.
        """
        self._log.write_through = self.files.write_through
        try:
            self._log.write_out()
        except StoreError as error:
            self._flusher.fail(error)
            raise

    async def wait_durable(self, result: PutResult, *, wait_store_ok: bool = True) -> PutStatus:
        """How a put ended for the sender: PUT_OK at once under ASYNC_FLUSH and for senders that do not wait; else behind the sync.

        FLUSH_DISK_TIMEOUT after `sync_flush_timeout`; SERVICE_NOT_AVAILABLE when the sync failed. A cancelled wait changes nothing.
        """
        if result.status is not PutStatus.PUT_OK or not self._sync_flush or not wait_store_ok:
            return result.status
        try:
            reached = await self.flushed.wait_reached(result.physical_offset + result.size, self.config.sync_flush_timeout / 1000)
        except StoreError:
            return PutStatus.SERVICE_NOT_AVAILABLE
        return PutStatus.PUT_OK if reached else PutStatus.FLUSH_DISK_TIMEOUT

    @trio.lowlevel.enable_ki_protection
    async def flush(self) -> None:
        """Make everything appended so far durable, log and queues, and write the checkpoint. Raises `StoreError` when the store can not."""
        await self._flusher.flush()
        await self._queue_flusher.flush(thorough=True)
        error = self._state.failure or self._state.queue_problem
        if error is not None:
            raise error

    # --- reading ---------------------------------------------------------------------------------------------------------------------------------

    def get(
        self,
        topic: str,
        queue_id: int,
        offset: int,
        max_count: int,
        max_bytes: int = DEFAULT_MAX_BYTES,
        message_filter: MessageFilter | None = None,
    ) -> GetResult:
        """Messages of a queue from an offset on, at most what the settings allow for one answer. Old ones may make it wait for the disk.

        `message_filter` None means all. Raises `StoreError` when a file can not be read.
        """
        queue = self._table.find(topic, queue_id)
        if queue is None:
            return GetResult(GetStatus.NO_MESSAGE_IN_QUEUE)
        return self._reader.get(queue, offset, max_count, max_bytes, message_filter, self._log.read)

    def is_cold(self, topic: str, queue_id: int, offset: int) -> bool:
        """Whether `get` would have to wait for the disk, so that `get_cold` should be awaited instead."""
        if not self.files.blocking:
            return False
        queue = self._table.find(topic, queue_id)
        unit = None if queue is None else queue.unit(offset)
        if unit is None or self._log.read_hot(unit[0], unit[1]) is not None:
            return False
        return self._log.read_nowait(unit[0], unit[1]) is None

    async def get_cold(
        self,
        topic: str,
        queue_id: int,
        offset: int,
        max_count: int,
        max_bytes: int = DEFAULT_MAX_BYTES,
        message_filter: MessageFilter | None = None,
    ) -> GetResult:
        """`get` in a thread. Not interrupted by cancellation; it changes nothing."""
        unit = self.queue_unit(topic, queue_id, offset)
        with self.reading(self._log.position if unit is None else unit[0]):
            return await self.files.run(lambda: self.get(topic, queue_id, offset, max_count, max_bytes, message_filter))

    def reading(self, physical_offset: int) -> AbstractContextManager[None]:
        """Keeps the log files from a position on while the block runs (for at most two minutes after their time has come)."""
        return self._retention.readers.reading(physical_offset)

    def clean_now(self) -> None:
        """Remove what is older than `file_reserved_time` regardless of the hour, beginning at once (`executeDeleteFilesManually`)."""
        self._retention.clean_now()

    def max_offset(self, topic: str, queue_id: int) -> int:
        """The offset that the next readable message will have; 0 for an unknown queue."""
        queue = self._table.find(topic, queue_id)
        return 0 if queue is None else queue.max_offset

    def min_offset(self, topic: str, queue_id: int) -> int:
        """The offset of the oldest readable message; 0 for an unknown queue."""
        queue = self._table.find(topic, queue_id)
        return 0 if queue is None else queue.min_offset

    def offset_by_time(self, topic: str, queue_id: int, timestamp: int, boundary: BoundaryType = BoundaryType.LOWER) -> int:
        """The first offset stored at or after a time (LOWER) or the last one stored at or before it (UPPER); 0 for an unknown queue."""
        queue = self._table.find(topic, queue_id)
        return 0 if queue is None else self._reader.offset_by_time(queue, timestamp, boundary)

    def store_time_at(self, topic: str, queue_id: int, offset: int) -> int:
        """When a message was stored (epoch milliseconds); -1 when there is none."""
        queue = self._table.find(topic, queue_id)
        return -1 if queue is None else self._reader.store_time(queue, offset)

    def earliest_store_time(self) -> int:
        """When the oldest record of the log was stored; -1 for an empty log."""
        return self._log.store_time_at(self._log.min_position)

    def queue_unit(self, topic: str, queue_id: int, offset: int) -> tuple[int, int, int] | None:
        """Position, size and tags code of a message."""
        queue = self._table.find(topic, queue_id)
        return None if queue is None else queue.unit(offset)

    def record_at(self, physical_offset: int, size: int | None = None) -> bytes | None:
        """The bytes of one record; without `size` it is taken from the record. None when no record of that size can start there."""
        log = self._log
        if not log.min_position <= physical_offset < log.position:
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

    async def query(
        self, topic: str, key: str, max_count: int, begin: int = 0, end: int = MAX_TIME, index_type: str | None = None
    ) -> QueryResult:
        """Messages by one of their keys or their unique key (`index_type` T: by their tags), stored from `begin` to `end` (epoch milliseconds).

        At most `max_msgs_num_batch`, the newest ones, oldest first. The index compares hashes only: the caller has to look whether the key is there.
        Raises `StoreError` when a file can not be read.
        """
        limit = min(max_count, self.config.max_msgs_num_batch)
        positions = sorted(await self._index.positions(query_text(topic, key, index_type), limit, begin, end))
        answers = zip(positions, await self._records_at(positions), strict=True) if positions else ()
        found = {position: record for position, record in answers if record is not None}
        return QueryResult(list(found.values()), list(found), *self._index.last_update)

    async def _records_at(self, positions: list[int]) -> list[bytes | None]:
        with self.reading(positions[0]):
            return await self.files.run(lambda: [self.record_at(position) for position in positions])

    def topics(self) -> set[str]:
        """Topics that have queues."""
        return set(self._table.queues)

    def queue_ids(self, topic: str) -> list[int]:
        """The queues of a topic that hold or held messages."""
        return sorted(self._table.queues.get(topic, ()))

    def delete_topic(self, topic: str) -> None:
        """Drop the queues of a topic; its records stay in the log, out of reach. Raises `StoreError`."""
        if topic in self._table.queues:
            self._deleted.add(topic, self._log.position, self._log.min_position)
            self._table.delete_topic(topic)
