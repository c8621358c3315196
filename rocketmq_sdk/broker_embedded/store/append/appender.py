"""Appending: gives a message its record, its place in the log and its queue.

`CommitLog.asyncPutMessage` of Apache RocketMQ 5.4.0. Everything here is synchronous and
runs on the thread of the event loop, so nothing interrupts an append.
"""

from __future__ import annotations

import logging
from collections import deque
from itertools import accumulate, count
from typing import TYPE_CHECKING

from rocketmq_sdk.broker_embedded.store.append.joined_records import (
    CheckedMessage,
    joined_records,
    tags_codes,
)
from rocketmq_sdk.broker_embedded.store.config import FlushDiskType
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
from rocketmq_sdk.protocol.batch_codec import BatchItem, decode_batch
from rocketmq_sdk.protocol.flags import SysFlag
from rocketmq_sdk.protocol.message_codec import (
    MAX_PROPERTIES,
    encode_record,
    encode_records,
    record_size,
)
from rocketmq_sdk.protocol.property_crc import fill_property_crc, reserve_property_crc

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rocketmq_sdk.broker_embedded.store.config import StoreConfig
    from rocketmq_sdk.broker_embedded.store.flush.log_flusher import LogFlusher
    from rocketmq_sdk.broker_embedded.store.flush.queue_flusher import QueueFlusher
    from rocketmq_sdk.broker_embedded.store.state import StoreState
    from rocketmq_sdk.clock import Clock

_log = logging.getLogger(__name__)
_TRANSACTION_BITS = SysFlag.TRANSACTION_ROLLBACK
_INNER_BATCH = SysFlag.INNER_BATCH
_Pending = tuple[Queue, int, int, int, int, int, str, int]


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
        self._indexing = index.enabled
        self._note = index.note
        self._note_batch = index.note_batch

    def put(self, message: MessageToStore) -> PutResult:
        """`MessageStore.put`: append one message and put it into its queue."""
        state = self._state
        if not state.open or state.failure or state.queue_problem or state.disk_full:
            return PutResult(PutStatus.SERVICE_NOT_AVAILABLE)
        if state.gate is not None and (refusal := state.gate(message)) is not None:
            return PutResult(refusal)
        queue: Queue | None
        try:
            queue = self._table.queues[message.topic][message.queue_id]
        except KeyError:
            queue = self._table.obtain(message.topic, message.queue_id)
        if queue is None or len(message.body) > self._config.max_message_size:
            return PutResult(PutStatus.MESSAGE_ILLEGAL)
        count = 1
        if message.sys_flag & _INNER_BATCH and not (count := self._name_base(queue, message)):
            return PutResult(PutStatus.MESSAGE_ILLEGAL)
        text = message.properties
        properties = text.encode("utf-8", "replace")
        if self._append_crc:
            properties = reserve_property_crc(properties)
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
        self.puts += 1
        if self._flusher.idle:
            self._flusher.wake()
        if visible:
            queue.next_offset = offset + count
            code = message.tags_code
            if queue.is_schedule:
                code = self._dispatcher.deliver_code(text, now, code)
            if self._sync_flush or not isinstance(queue, ConsumeQueue):
                self._pending.append((queue, offset, code, now, position, size, text, count))
                if not self._sync_flush:
                    self.dispatch_up_to(position + size)
            else:
                in_unit = code if queue.ext is None else self._extended(queue, code, now, text)
                queue.append(position, size, in_unit)
                if self._indexing:
                    self._note((message.topic, text, position, now))
                if not queue.dirty:
                    self._mark_dirty(queue)
                state.dispatched_timestamp = now
                self._dispatched.advance(position + size)
                if self._is_heard(queue.topic):
                    self._dispatcher.tell(queue, offset, code, now, position, size, text)
        else:
            self._pass_by(message, position, size, now)
        return PutResult(PutStatus.PUT_OK, position, size, offset, now, count)

    @staticmethod
    def _name_base(queue: Queue, message: MessageToStore) -> int:
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
        message.properties = (
            f"{without_property(text, INNER_BASE)}INNER_BASE\x01{queue.next_offset}\x02"
        )
        return count

    def _pass_by(self, message: MessageToStore, position: int, size: int, now: int) -> None:
        """Finish a message that goes into no queue.

        A prepared message of a transaction can be found by its keys all the same.
        """
        if self._indexing and is_indexed(message.sys_flag):
            self._note((message.topic, message.properties, position, now))
        if not self._pending:
            self._dispatched.advance(position + size)

    def _append(
        self, queue: Queue, message: MessageToStore, properties: bytes, offset: int, now: int
    ) -> tuple[int, int]:
        """Encode and append one record; returns its position and size.

        Raises `StoreError` or `ProtocolError` without having appended anything.
        """
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
            if self._append_crc:
                record = fill_property_crc(record)
            size = len(record)
            end = position + size
            if end + BLANK_SIZE <= log.limit:
                log.append(record, end)
                return position, size
            if size + BLANK_SIZE > log.file_size:
                raise LocalProtocolError(
                    f"a record of {size} bytes does not fit into a log file of {log.file_size} "
                    "bytes"
                )
            position = log.make_room(size)

    def put_together(self, messages: Sequence[MessageToStore]) -> list[PutResult]:
        """`MessageStore.put_together`: append messages as consecutive records."""
        checked: list[CheckedMessage] = []
        status = PutStatus.PUT_OK if self._state.writable else PutStatus.SERVICE_NOT_AVAILABLE
        for message in messages:
            if status is PutStatus.PUT_OK:
                status = self._check(message, checked)
        if status is not PutStatus.PUT_OK:
            return [PutResult(status)] * len(messages)
        hosts = [
            len(message.born_host) + len(message.store_host or self._store_host)
            for message in messages
        ]
        total = sum(
            record_size(
                len(queue.topic_bytes), len(message.body), len(properties), host_bytes=host_bytes
            )
            for (queue, message, properties), host_bytes in zip(checked, hosts, strict=True)
        )
        if total + BLANK_SIZE > self._log.file_size:
            return [PutResult(PutStatus.MESSAGE_ILLEGAL)] * len(messages)
        now = max(self._clock.now_ms(), self._state.stored_timestamp)
        try:
            results, records = joined_records(
                checked, self._log.make_room(total), now, self._store_host
            )
            self._log.append(b"".join(records), results[0].physical_offset + sum(map(len, records)))
        except (StoreError, ProtocolError) as error:
            return [self._refuse(error)] * len(messages)
        self._state.stored_timestamp = now
        self.puts += len(messages)
        if self._flusher.idle:
            self._flusher.wake()
        for (queue, message, _properties), result in zip(checked, results, strict=True):
            queue.next_offset = result.queue_offset + 1
            offset, position, size = result.queue_offset, result.physical_offset, result.size
            code, text = message.tags_code, message.properties
            if queue.is_schedule:
                code = self._dispatcher.deliver_code(text, now, code)
            self._pending.append((queue, offset, code, now, position, size, text, 1))
        if not self._sync_flush:
            self.dispatch_up_to(self._log.position)
        return results

    def _check(self, message: MessageToStore, checked: list[CheckedMessage]) -> PutStatus:
        """Check whether a message can be appended.

        Adds it with its queue and its encoded properties to `checked` if it can.
        """
        queue = self._table.obtain(message.topic, message.queue_id)
        if queue is None or len(message.body) > self._config.max_message_size:
            return PutStatus.MESSAGE_ILLEGAL
        if message.sys_flag & _INNER_BATCH or (
            message.sys_flag & _TRANSACTION_BITS and not is_dispatched(message.sys_flag)
        ):
            return PutStatus.MESSAGE_ILLEGAL
        properties = message.properties.encode("utf-8", "replace")
        if len(properties) > MAX_PROPERTIES:
            return PutStatus.PROPERTIES_SIZE_EXCEEDED
        checked.append((queue, message, properties))
        return PutStatus.PUT_OK

    def put_batch(self, message: MessageToStore) -> PutResult:
        """`MessageStore.put_batch`: append the messages of a client's batch."""
        state = self._state
        if not state.writable:
            return PutResult(PutStatus.SERVICE_NOT_AVAILABLE)
        if state.gate is not None and (refusal := state.gate(message)) is not None:
            return PutResult(refusal)
        too_big = len(message.body) > self._config.max_message_size
        if too_big or message.sys_flag & _TRANSACTION_BITS:
            return PutResult(PutStatus.MESSAGE_ILLEGAL)
        queue = self._table.obtain(message.topic, message.queue_id)
        try:
            items = decode_batch(message.body)
        except ProtocolError as error:
            return self._refuse(error)
        if queue is None or not items or queue.is_schedule:
            return PutResult(PutStatus.MESSAGE_ILLEGAL)
        if self._append_crc:
            items = [
                (flag, body, reserve_property_crc(properties, from_batch=True))
                for flag, body, properties in items
            ]
        store_host = message.store_host or self._store_host
        total = len(items) * record_size(
            len(queue.topic_bytes), 0, 0, host_bytes=len(message.born_host) + len(store_host)
        )
        total += sum([len(body) + len(properties) for _flag, body, properties in items])
        log = self._log
        if total + BLANK_SIZE > log.file_size:
            return PutResult(PutStatus.MESSAGE_ILLEGAL)
        now = max(self._clock.now_ms(), state.stored_timestamp)
        first = queue.next_offset
        try:
            start = log.make_room(total)
            records = self._encode_batch(queue, message, items, start, now)
            log.append(b"".join(records), start + total)
        except (StoreError, ProtocolError) as error:
            return self._refuse(error)
        state.stored_timestamp = now
        self.puts += len(items)
        if self._flusher.idle:
            self._flusher.wake()
        queue.next_offset = first + len(items)
        sizes = [len(record) for record in records]
        positions = list(accumulate(sizes[:-1], initial=start))
        properties_of_all = [properties for _flag, _body, properties in items]
        self._dispatch_batch(queue, first, now, positions, sizes, properties_of_all)
        return PutResult(PutStatus.PUT_OK, start, total, first, now, len(items), positions)

    def _encode_batch(
        self, queue: Queue, message: MessageToStore, items: list[BatchItem], start: int, now: int
    ) -> list[bytes]:
        """Encode the records of a batch, from a position on. Raises `ProtocolError`."""
        records = encode_records(
            queue.topic_bytes,
            items,
            queue_id=message.queue_id,
            queue_offset=queue.next_offset,
            physical_offset=start,
            sys_flag=message.sys_flag,
            born_timestamp=message.born_timestamp,
            born_host=message.born_host,
            store_timestamp=now,
            store_host=message.store_host or self._store_host,
            reconsume_times=message.reconsume_times,
        )
        return [fill_property_crc(record) for record in records] if self._append_crc else records

    def _dispatch_batch(
        self,
        queue: Queue,
        first: int,
        now: int,
        positions: list[int],
        sizes: list[int],
        properties: list[bytes],
    ) -> None:
        codes = tags_codes(properties)
        end = positions[-1] + sizes[-1]
        if (
            self._sync_flush
            or self._pending
            or not isinstance(queue, ConsumeQueue)
            or queue.ext is not None
        ):
            for offset, position, size, code, raw in zip(
                count(first), positions, sizes, codes, properties
            ):
                self._pending.append(
                    (queue, offset, code, now, position, size, raw.decode("utf-8", "replace"), 1)
                )
            if not self._sync_flush:
                self.dispatch_up_to(end)
            return
        queue.append_all(positions, sizes, codes)
        if self._indexing:
            self._note_batch(queue.topic, properties, positions, now)
        self._mark_dirty(queue)
        self._state.dispatched_timestamp = now
        self._dispatched.advance(end)
        if self._is_heard(queue.topic):
            for offset, position, size, code, raw in zip(
                count(first), positions, sizes, codes, properties
            ):
                self._dispatcher.tell(
                    queue, offset, code, now, position, size, raw.decode("utf-8", "replace")
                )

    def _refuse(self, error: StoreError | ProtocolError) -> PutResult:
        if isinstance(error, ProtocolError):
            return PutResult(PutStatus.MESSAGE_ILLEGAL)
        _log.error("a message could not be appended: %s", error)
        if isinstance(error, StoreFullError):
            next_file = isinstance(error, NoNextFileError)
            return PutResult(
                PutStatus.CREATE_MAPPED_FILE_FAILED
                if next_file
                else PutStatus.SERVICE_NOT_AVAILABLE
            )
        return PutResult(PutStatus.UNKNOWN_ERROR)

    def _mark_dirty(self, queue: Queue) -> None:
        self._table.mark_dirty(queue)
        if self._queue_flusher.idle:
            self._queue_flusher.wake()

    def dispatch_up_to(self, end: int) -> None:
        """Put the waiting messages before a position into their queues."""
        pending = self._pending
        marked: Queue | None = None
        while pending and pending[0][4] + pending[0][5] <= end:
            queue, offset, code, now, position, size, text, count = pending.popleft()
            if self._indexing:
                self._note((queue.topic, text, position, now))
            if queue.removed:
                continue
            if isinstance(queue, ConsumeQueue):
                in_unit = code if queue.ext is None else self._extended(queue, code, now, text)
                queue.append(position, size, in_unit)
            else:
                queue.append_unit(BatchUnit(position, size, code, now, offset, count))
            if queue is not marked:
                marked = queue
                self._mark_dirty(queue)
            self._state.dispatched_timestamp = now
            if self._is_heard(queue.topic):
                self._dispatcher.tell(queue, offset, code, now, position, size, text)
        self._dispatched.advance(end if not pending else pending[0][4])
