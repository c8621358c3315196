"""Appending: gives messages their records, their place in the log and their queues.

`CommitLog.asyncPutMessage` of Apache RocketMQ 5.4.0. Everything here is synchronous and
runs on the thread of the event loop, so nothing interrupts an append. There is one way,
for one message, for several, and for a client's batch: the gate, what is stored of each
message, its record (with the CRC of the properties, if that is on), one write for the
run of records, and then the queues, at once or after the sync.
"""

from __future__ import annotations

import logging
from collections import deque
from functools import partial
from itertools import count as count_from
from typing import TYPE_CHECKING, Any

from rocketmq_sdk.broker_embedded.store.append.batch_units import queue_units, tags_codes
from rocketmq_sdk.broker_embedded.store.append.client_batch import ClientBatch
from rocketmq_sdk.broker_embedded.store.append.run import Run
from rocketmq_sdk.broker_embedded.store.config import FlushDiskType
from rocketmq_sdk.broker_embedded.store.index.keys import alike
from rocketmq_sdk.broker_embedded.store.index.service import IndexService, is_indexed
from rocketmq_sdk.broker_embedded.store.log.commit_log import CommitLog, NoNextFileError
from rocketmq_sdk.broker_embedded.store.log.record import BLANK_SIZE, is_dispatched
from rocketmq_sdk.broker_embedded.store.messages import MessageToStore, PutResult, PutStatus
from rocketmq_sdk.broker_embedded.store.queues.batch_consume_queue import (
    BatchConsumeQueue,
    BatchUnit,
)
from rocketmq_sdk.broker_embedded.store.queues.consume_queue import ConsumeQueue
from rocketmq_sdk.broker_embedded.store.queues.consume_queue_table import Queue
from rocketmq_sdk.broker_embedded.store.queues.queue_dispatcher import (
    MAX_INNER,
    QueueDispatcher,
    inner_count,
)
from rocketmq_sdk.errors import LocalProtocolError, ProtocolError, StoreError, StoreFullError
from rocketmq_sdk.model.properties import INNER_BASE, INNER_NUM, property_in_text, without_property
from rocketmq_sdk.protocol.flags import SysFlag
from rocketmq_sdk.protocol.message_codec import MAX_PROPERTIES, encode_record
from rocketmq_sdk.protocol.property_crc import fill_property_crc, reserve_property_crc

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rocketmq_sdk.broker_embedded.store.config import StoreConfig
    from rocketmq_sdk.broker_embedded.store.files.file_system import Bytes
    from rocketmq_sdk.broker_embedded.store.flush.log_flusher import LogFlusher
    from rocketmq_sdk.broker_embedded.store.flush.queue_flusher import QueueFlusher
    from rocketmq_sdk.broker_embedded.store.state import StoreState
    from rocketmq_sdk.clock import Clock

_log = logging.getLogger(__name__)
_TRANSACTION_BITS = SysFlag.TRANSACTION_ROLLBACK
_INNER_BATCH = SysFlag.INNER_BATCH
Entry = tuple[Queue, int, int, bytes]
"""Queue, queue offset, how many offsets it takes there (0: none), stored properties."""
_Pending = tuple[int, int, "Callable[..., None]", tuple[Any, ...]]
"""From where and up to where in the log, and what puts it into the queues."""


class Appender:
    """Appends messages to one store.

    With SYNC_FLUSH, messages wait here for their sync before they go into the queues.
    """

    def __init__(
        self,
        log: CommitLog,
        dispatcher: QueueDispatcher,
        index: IndexService,
        flushers: tuple[LogFlusher, QueueFlusher],
        config: StoreConfig,
        clock: Clock,
        state: StoreState,
        store_host: bytes,
    ) -> None:
        self.puts = 0
        """How many messages were appended."""
        self._config = config
        self._log = log
        self._dispatcher = dispatcher
        self._table = dispatcher.table
        self._dispatched = dispatcher.dispatched
        self._is_heard = dispatcher.is_heard
        self._extended = dispatcher.extended
        self._flusher, self._queue_flusher = flushers
        self._clock = clock
        self._state = state
        self._store_host = store_host
        self._append_crc = config.enabled_append_prop_crc
        self._sync_flush = config.flush_disk_type is FlushDiskType.SYNC_FLUSH
        self._pending: deque[_Pending] = deque()
        self.when_answered: Callable[[Callable[[], None]], bool] = lambda _call: False
        """See `MessageStore.put_off`."""
        self._told = ""
        self._index = index
        self._note = index.note
        self._note_batch = index.note_batch

    # --- the way of one message, of several, and of a client's batch

    def put(self, message: MessageToStore) -> PutResult:
        """`MessageStore.put`: append one message and put it into its queue."""
        refusal = self._refusal(message)
        if refusal is not None:
            return PutResult(refusal)
        entry = self._enter(message)
        if isinstance(entry, PutStatus):
            return PutResult(entry)
        now = self._clock.now_ms()
        if now < self._state.stored_timestamp:
            now = self._state.stored_timestamp
        log = self._log
        position = log.position
        try:
            record = self._encode(message, entry, position, now)
            size = len(record)
            if position + size + BLANK_SIZE > log.limit:
                position = self._make_room(size)
                record = self._encode(message, entry, position, now)
            log.append(record, position + size)
        except (StoreError, ProtocolError) as error:
            return PutResult(self._status_of(error))
        self._stored(1, now)
        queue, offset, count, _properties = entry
        if not count or self._sync_flush or not isinstance(queue, ConsumeQueue):
            self._wait(message, entry, position, size, now)
            if not self._sync_flush:
                self.dispatch_up_to(position + size)
        else:
            # `dispatch_up_to` for one message without the detour.
            queue.next_offset = offset + count
            code, text = message.tags_code, message.properties
            if queue.is_schedule:
                code = self._dispatcher.deliver_code(text, now, code)
            in_unit = code if queue.ext is None else self._extended(queue, code, now, text)
            queue.append(position, size, in_unit)
            if self._index.noting:
                self._note((message.topic, text, position, now))
            if not queue.dirty:
                self._mark_dirty(queue)
            self._state.dispatched_timestamp = now
            self._dispatched.advance(position + size)
            if self._is_heard(queue.topic):
                self._dispatcher.tell(queue, offset, code, now, position, size, text)
        return PutResult(PutStatus.PUT_OK, position, size, offset, now, count or 1)

    def put_together(self, messages: Sequence[MessageToStore]) -> list[PutResult]:
        """`MessageStore.put_together`: append messages as consecutive records."""
        entries: list[Entry] = []
        status = self._refusal(messages[0])
        if self._state.deleting and status is None:
            status = next(filter(None, map(self._refusal, messages)), None)
        taken: dict[Queue, int] = {}
        for message in messages:
            entry = self._enter(message, taken) if status is None else status
            if isinstance(entry, PutStatus):
                return [PutResult(entry)] * len(messages)
            entries.append(entry)
        now = max(self._clock.now_ms(), self._state.stored_timestamp)

        records: list[bytes] = []

        def encode(position: int) -> bytes:
            records.clear()
            for message, entry in zip(messages, entries, strict=True):
                records.append(self._encode(message, entry, position, now))
                position += len(records[-1])
            return b"".join(records)

        try:
            position, _size = self._append_run(encode)
        except (StoreError, ProtocolError) as error:
            return [PutResult(self._status_of(error))] * len(messages)
        self._stored(len(messages), now)
        results: list[PutResult] = []
        for message, entry, record in zip(messages, entries, records, strict=True):
            size = len(record)
            self._wait(message, entry, position, size, now)
            _queue, offset, count, _properties = entry
            results.append(PutResult(PutStatus.PUT_OK, position, size, offset, now, count or 1))
            position += size
        if not self._sync_flush:
            self.dispatch_up_to(position)
        return results

    def put_batch(self, message: MessageToStore) -> PutResult:
        """`MessageStore.put_batch`: append the messages of a client's batch."""
        refusal = self._refusal(message)
        if refusal is not None:
            return PutResult(refusal)
        too_big = len(message.body) > self._config.max_message_size
        if too_big or message.sys_flag & _TRANSACTION_BITS:
            return PutResult(PutStatus.MESSAGE_ILLEGAL)
        queue = self._table.obtain(message.topic, message.queue_id)
        now = max(self._clock.now_ms(), self._state.stored_timestamp)
        try:
            batch = ClientBatch(message.body, with_crc=self._append_crc)
            if queue is None or not len(batch) or queue.is_schedule:
                return PutResult(PutStatus.MESSAGE_ILLEGAL)
            start, size = self._append_run(partial(self._encode_batch, queue, message, batch, now))
        except (StoreError, ProtocolError) as error:
            return PutResult(self._status_of(error))
        count, positions = len(batch), batch.positions
        self._stored(count, now)
        first = queue.next_offset
        queue.next_offset = first + count
        self._dispatch_run(queue, first, now, batch)
        return PutResult(PutStatus.PUT_OK, start, size, first, now, count, positions)

    # --- runs

    def begin_run(self) -> Run | None:
        """`MessageStore.begin_run`: None while messages have to be put one by one."""
        state = self._state
        if (
            not state.writable
            or state.full is not None
            or state.gate is not None
            or state.deleting
            or (self._pending and not self._sync_flush)
            or self._append_crc
        ):
            return None
        return Run(self._table.queues, behind=self._sync_flush)

    def put_run(self, run: Run, born_host: bytes) -> int:
        """`MessageStore.put_run`: append plain messages, as many as can be."""
        log = self._log
        now = max(self._clock.now_ms(), self._state.stored_timestamp)
        records = run.encode(
            log.position,
            limit=log.limit,
            most=self._config.max_message_size,
            born_host=born_host,
            store_host=self._store_host,
            now=now,
        )
        if not records:
            return 0
        try:
            log.append_run(records, run.end)
        except StoreError:
            return 0  # nothing was appended; `put` says what is wrong
        self._stored(len(run.positions), now)
        for lane in run.lanes:
            if lane.units:
                lane.queue.next_offset = lane.offset
        if self._sync_flush:
            self._pending.append((run.positions[0], run.end, self._into_queues, (run, now)))
        else:
            self._into_queues(run, now)
            self._dispatched.advance(run.end)
        return len(run.positions)

    def _into_queues(self, run: Run, now: int) -> None:
        """Put the messages of a run into their queues."""
        for lane in run.lanes:
            queue, units = lane.queue, lane.units
            if units and not queue.removed:
                queue.append_all(b"".join(units), lane.end)
                if not queue.dirty:
                    self._mark_dirty(queue)
        if self._index.noting:
            at = 0
            for topic, messages in run.by_topic():
                end = at + len(messages)
                if end - at == 1:  # which costs less than a batch of one
                    text = messages[0][2].decode("utf-8", "replace")
                    self._note((topic, text, run.positions[at], now))
                else:
                    properties = [message[2] for message in messages]
                    self._note_batch(topic, properties, run.positions[at:end], now)
                at = end
        self._state.dispatched_timestamp = now
        if any(self._is_heard(lane.topic) for lane in run.lanes):
            self._tell_run(run, now)

    def _tell_run(self, run: Run, now: int) -> None:
        """Call the listeners for the messages of a run, in their order."""
        ends = [*run.positions[1:], run.end]
        places = zip(run.offsets, run.positions, ends, strict=True)
        for message, (offset, position, end) in zip(run.messages, places, strict=False):
            lane, _body, properties, _born, _numbers, code = message
            if self._is_heard(lane.topic) and not lane.queue.removed:
                text = properties.decode("utf-8", "replace")
                size = end - position
                self._dispatcher.tell(lane.queue, offset, code, now, position, size, text)

    # --- the gate

    def _refusal(self, message: MessageToStore) -> PutStatus | None:
        """Why nothing, or nothing like this message, is appended now."""
        if self._pending and not self._sync_flush:
            self._dispatch_waiting()
        state = self._state
        if not state.open or state.log_problem or state.queue_problem or state.disk_full:
            return PutStatus.SERVICE_NOT_AVAILABLE
        if state.deleting and message.topic in state.deleting:
            return PutStatus.SERVICE_NOT_AVAILABLE
        return None if state.gate is None else state.gate(message)

    def _enter(
        self, message: MessageToStore, taken: dict[Queue, int] | None = None
    ) -> Entry | PutStatus:
        """What is stored of a message: its queue, its place there and its properties.

        Or why it cannot be stored. `taken` has the places in queues that messages in
        front of it take; its own are added.
        """
        queue: Queue | None
        try:
            queue = self._table.queues[message.topic][message.queue_id]
        except KeyError:
            queue = self._table.obtain(message.topic, message.queue_id)
        if queue is None or len(message.body) > self._config.max_message_size:
            return PutStatus.MESSAGE_ILLEGAL
        offset, count = queue.next_offset, 1
        if taken is not None:
            offset += taken.get(queue, 0)
        flags = message.sys_flag
        if flags & _INNER_BATCH and not (count := self._name_base(queue, message, offset)):
            return PutStatus.MESSAGE_ILLEGAL
        if flags & _TRANSACTION_BITS and not is_dispatched(flags):
            offset = count = 0
        if taken is not None:
            taken[queue] = taken.get(queue, 0) + count
        properties = message.properties.encode("utf-8", "replace")
        if self._append_crc:
            properties = reserve_property_crc(properties)
        if len(properties) > MAX_PROPERTIES:
            return PutStatus.PROPERTIES_SIZE_EXCEEDED
        return queue, offset, count, properties

    @staticmethod
    def _name_base(queue: Queue, message: MessageToStore, offset: int) -> int:
        """Write the first queue offset into a batch that is stored as one record.

        Returns the number of its messages, 0 when it cannot be stored.
        """
        text = message.properties
        count = inner_count(text, _INNER_BATCH)
        if (
            not isinstance(queue, BatchConsumeQueue)
            or property_in_text(text, INNER_NUM) != str(count)
            or count > MAX_INNER
        ):
            return 0
        message.properties = f"{without_property(text, INNER_BASE)}INNER_BASE\x01{offset}\x02"
        return count

    # --- records

    def _encode(self, message: MessageToStore, entry: Entry, position: int, now: int) -> bytes:
        """The record of one message at a position. Raises `ProtocolError`."""
        queue, offset, _count, properties = entry
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
        return fill_property_crc(record) if self._append_crc else record

    def _encode_batch(
        self, queue: Queue, message: MessageToStore, batch: ClientBatch, now: int, start: int
    ) -> Bytes:
        """The records of a batch, from a position on. Raises `ProtocolError`."""
        return batch.encode(
            queue.topic_bytes,
            start,
            queue_id=message.queue_id,
            queue_offset=queue.next_offset,
            sys_flag=message.sys_flag,
            born_timestamp=message.born_timestamp,
            born_host=message.born_host,
            store_timestamp=now,
            store_host=message.store_host or self._store_host,
            reconsume_times=message.reconsume_times,
        )

    def _append_run(self, encode: Callable[[int], Bytes]) -> tuple[int, int]:
        """Append a run of records, all in one file, by one write.

        `encode` makes them for the position of the first; it is called once more when
        they begin a new file. Returns position and size. Raises `StoreError` or
        `ProtocolError` without having appended anything.
        """
        log = self._log
        begin = position = log.position
        records = encode(position)
        size = len(records)
        if position + size + BLANK_SIZE > log.limit:
            position = self._make_room(size)
            if position != begin:
                records = encode(position)
        log.append(records, position + size)
        return position, size

    def _make_room(self, size: int) -> int:
        """`CommitLog.make_room`. Also raises `ProtocolError` for what fits nowhere."""
        if size + BLANK_SIZE > self._log.file_size:
            raise LocalProtocolError(
                f"{size} bytes of records do not fit into a log file of {self._log.file_size} bytes"
            )
        position = self._log.make_room(size)
        self._told = ""
        return position

    def _stored(self, count: int, now: int) -> None:
        """Note that records are in the log."""
        self._state.stored_timestamp = now
        self.puts += count
        if self._flusher.idle:
            self._flusher.wake()

    # --- queues

    def _wait(
        self, message: MessageToStore, entry: Entry, position: int, size: int, now: int
    ) -> None:
        """Let a message that is in the log wait for `dispatch_up_to`."""
        queue, offset, count, _properties = entry
        code, text = message.tags_code, message.properties
        if count:
            queue.next_offset = offset + count
            if queue.is_schedule:
                code = self._dispatcher.deliver_code(text, now, code)
        elif not is_indexed(message.sys_flag):
            return
        # A prepared message goes into no queue, but can be found by its keys.
        unit = (queue, offset, code, now, position, size, text, count)
        self._pending.append((position, position + size, self._into_queue, unit))

    def _dispatch_run(self, queue: Queue, first: int, now: int, batch: ClientBatch) -> None:
        """Have the records of a batch put into their queue: after their sync where
        asked, else once the answer has left, or now.
        """
        start, end = batch.positions[0], batch.positions[-1] + batch.sizes[-1]
        self._pending.append((start, end, self._batch_into_queue, (queue, first, now, batch, end)))
        if not (self._sync_flush or self.when_answered(self._dispatch_waiting)):
            self.dispatch_up_to(end)

    def _dispatch_waiting(self) -> None:
        """Put what waits only for its answer to leave into the queues."""
        self.dispatch_up_to(self._log.position)

    def _batch_into_queue(
        self, queue: Queue, first: int, now: int, batch: ClientBatch, end: int
    ) -> None:
        """Put the messages of a batch into their queue."""
        positions, sizes, properties = batch.positions, batch.sizes, batch.properties
        same = alike(properties, equally_long=batch.alike)
        codes = tags_codes(properties, same)
        if not isinstance(queue, ConsumeQueue) or queue.ext is not None:
            for offset, position, size, code, raw in zip(
                count_from(first), positions, sizes, codes, properties
            ):
                text = raw.decode("utf-8", "replace")
                self._into_queue(queue, offset, code, now, position, size, text, 1)
            return
        if self._index.noting:
            self._note_batch(queue.topic, properties, positions, now, same)
        if queue.removed:
            return
        queue.append_all(queue_units(positions, sizes, codes), end)
        self._mark_dirty(queue)
        self._state.dispatched_timestamp = now
        if self._is_heard(queue.topic):
            for offset, position, size, code, raw in zip(
                count_from(first), positions, sizes, codes, properties
            ):
                text = raw.decode("utf-8", "replace")
                self._dispatcher.tell(queue, offset, code, now, position, size, text)

    def _into_queue(
        self,
        queue: Queue,
        offset: int,
        code: int,
        now: int,
        position: int,
        size: int,
        text: str,
        count: int,
    ) -> None:
        """Put one message into its queue."""
        if self._index.noting:
            self._note((queue.topic, text, position, now))
        if queue.removed or not count:
            return
        if isinstance(queue, ConsumeQueue):
            in_unit = code if queue.ext is None else self._extended(queue, code, now, text)
            queue.append(position, size, in_unit)
        else:
            queue.append_unit(BatchUnit(position, size, code, now, offset, count))
        if not queue.dirty:
            self._mark_dirty(queue)
        self._state.dispatched_timestamp = now
        if self._is_heard(queue.topic):
            self._dispatcher.tell(queue, offset, code, now, position, size, text)

    def dispatch_up_to(self, end: int) -> None:
        """Put the waiting messages before a position into their queues."""
        pending = self._pending
        while pending and pending[0][1] <= end:
            _start, _end, dispatch, arguments = pending.popleft()
            dispatch(*arguments)
        self._dispatched.advance(end if not pending else pending[0][0])

    def _mark_dirty(self, queue: Queue) -> None:
        self._table.mark_dirty(queue)
        if self._queue_flusher.idle:
            self._queue_flusher.wake()

    def _status_of(self, error: StoreError | ProtocolError) -> PutStatus:
        """How an append ended that raised."""
        if isinstance(error, ProtocolError):
            return PutStatus.MESSAGE_ILLEGAL
        if not isinstance(error, StoreFullError):
            if self._log.write_problem is not None:
                self._flusher.write_failed(self._log.write_problem)
            elif str(error) != self._told:
                _log.error("a message could not be appended: %s", error)
                self._told = str(error)
            return PutStatus.UNKNOWN_ERROR
        if self._state.full is None:
            _log.error("messages are refused until there is space: %s", error)
        self._state.full = error
        self._state.found(error)
        if isinstance(error, NoNextFileError):
            return PutStatus.CREATE_MAPPED_FILE_FAILED
        return PutStatus.SERVICE_NOT_AVAILABLE
