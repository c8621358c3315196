"""The log of a slave: appends the bytes that its master sends.

Each whole record then goes into its queue and the index, as Apache's
`appendToCommitLog` and its reput service do on a slave. A record may arrive in pieces;
nobody can read it until it is whole, and a clean stop cuts such pieces off, so that the
next opener of the directory finds whole records only. With SYNC_FLUSH a record goes
into its queue after its sync, as on a master.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from rocketmq_sdk.broker_embedded.store.index.service import IndexService, is_indexed
from rocketmq_sdk.broker_embedded.store.log.record import (
    BLANK_SIZE,
    RecordHead,
    check_record,
    is_message_magic,
    size_and_magic,
)
from rocketmq_sdk.broker_embedded.store.queues.consume_queue import ConsumeQueue
from rocketmq_sdk.errors import StoreCorruptError, StoreError
from rocketmq_sdk.model.properties import TAGS, property_in_text
from rocketmq_sdk.protocol.message_codec import MAGIC_BLANK
from rocketmq_sdk.protocol.subscription import tags_code

if TYPE_CHECKING:
    from rocketmq_sdk.broker_embedded.store.flush.log_flusher import LogFlusher
    from rocketmq_sdk.broker_embedded.store.flush.queue_flusher import QueueFlusher
    from rocketmq_sdk.broker_embedded.store.log.commit_log import CommitLog
    from rocketmq_sdk.broker_embedded.store.queues.queue_dispatcher import QueueDispatcher
    from rocketmq_sdk.broker_embedded.store.state import StoreState

_log = logging.getLogger(__name__)


class ReplicaLog:
    """Appends bytes of another log to this one.

    The store makes it; it is used on a slave. Synchronous, on the thread of the event
    loop.
    """

    def __init__(
        self,
        log: CommitLog,
        dispatcher: QueueDispatcher,
        index: IndexService,
        flushers: tuple[LogFlusher, QueueFlusher],
        state: StoreState,
        *,
        sync_flush: bool,
    ) -> None:
        self._log = log
        self._dispatcher = dispatcher
        self._index = index
        self._flusher, self._queue_flusher = flushers
        self._state = state
        self._sync_flush = sync_flush
        self._tail = bytearray()
        """What is in the log but in no queue yet; begins at the dispatched position."""
        self._topics: dict[bytes, str | None] = {}
        self._broken: StoreCorruptError | None = None

    def append(self, position: int, data: bytes) -> None:
        """Append the bytes that belong at a position.

        The position is the end of this log; in an empty log it may be the start of any
        file. Raises `StoreError` when the bytes cannot be appended (some of them may be
        then: go on at the end of the log, as soon as there is space), and
        `StoreCorruptError` when they cannot be served; after that it accepts no more
        bytes.
        """
        if self._broken is not None:
            raise self._broken
        log = self._log
        if not self._state.open or self._state.failure is not None:
            raise self._state.failure or StoreError("the store is closed")
        begins = log.position == 0 != position
        if begins:
            self._begin_at(position)
        if position != log.position:
            raise StoreError(
                f"bytes for position {position} came, but the log ends at {log.position}"
            )
        try:
            log.append_bytes(data)
        finally:
            taken = log.position - position
            if begins and not taken:
                log.forget_all()  # an empty log is not known to begin anywhere
            elif begins:
                self._dispatcher.dispatched.advance(position)
            self._appended(data[:taken])

    def _begin_at(self, position: int) -> None:
        """Let an empty log begin where the master begins. Raises `StoreError`."""
        log = self._log
        if position % log.file_size:
            raise StoreCorruptError(
                f"the master's log begins at {position}, which is no start of a file of "
                f"{log.file_size} bytes: mappedFileSizeCommitLog "
                "of a slave has to be that of its master"
            )
        log.chain.remove_all()  # a power cut may have left a file of zeros
        log.start_at(position)

    def _appended(self, data: bytes) -> None:
        """Go on with bytes that are in the log; a full disk takes only some."""
        if not data:
            return
        self._tail += data
        if self._flusher.idle:
            self._flusher.wake()
        if not self._sync_flush:
            self.dispatch()

    def dispatch_flushed(self) -> None:
        """Dispatch what a sync has made durable.

        Does not raise when the log is corrupt; the next `append` does.
        """
        try:
            self.dispatch()
        except StoreCorruptError as error:
            _log.error("%s", error)

    def dispatch(self) -> None:
        """Put the whole records that may be seen into their queues.

        Raises `StoreCorruptError` at bytes that are no record.
        """
        limit = self._flusher.flushed.value if self._sync_flush else self._log.position
        start = self._dispatcher.dispatched.value
        tail = self._tail
        if limit - start < BLANK_SIZE or self._broken is not None:
            return
        size, magic = size_and_magic(tail, 0)
        if is_message_magic(magic) and 0 < size <= self._log.file_size and size > limit - start:
            return
        data = bytes(tail)
        at = 0
        try:
            at = self._dispatch_records(data, start, limit)
        finally:
            if self._broken is None:
                del tail[:at]

    def _dispatch_records(self, data: bytes, start: int, limit: int) -> int:
        """Dispatch the records of `data`, which begins at the position `start`.

        Returns the index after the last whole record.
        """
        at = 0
        dispatched = self._dispatcher.dispatched
        while limit - start - at >= BLANK_SIZE:
            position = start + at
            size, magic = size_and_magic(data, at)
            rest = self._log.file_size - position % self._log.file_size
            if magic == MAGIC_BLANK and size == rest:
                # The zeros after it arrive too; the next file begins after them.
                if limit - position < rest:
                    break
                at += rest
            else:
                if not is_message_magic(magic) or not 0 < size <= rest:
                    raise self._break(position)
                if size > limit - position:
                    break
                head = check_record(data, at, position, self._topics, check_crc=True)
                if head is None:
                    raise self._break(position)
                self._dispatch_one(head)
                at += size
            dispatched.advance(start + at)
        return at

    def _break(self, position: int) -> StoreCorruptError:
        self._broken = StoreCorruptError(
            f"what the master sent for position {position} is no record of a log with files of "
            f"{self._log.file_size} bytes: its log has a gap or is "
            "damaged there, or its mappedFileSizeCommitLog is another one; nothing behind it is "
            "taken"
        )
        return self._broken

    def _dispatch_one(self, head: RecordHead) -> None:
        state, dispatcher = self._state, self._dispatcher
        state.stored_timestamp = max(state.stored_timestamp, head.store_timestamp)
        dispatcher.rebuild(head, from_start=True)
        text = head.properties.decode("utf-8", "replace")
        if self._index.noting and is_indexed(head.sys_flag):
            self._index.note((head.topic, text, head.position, head.store_timestamp))
        queue = dispatcher.table.find(head.topic, head.queue_id)
        if queue is None or queue.max_physical != head.position + head.size:
            return
        queue.next_offset = queue.max_offset
        state.dispatched_timestamp = max(state.dispatched_timestamp, head.store_timestamp)
        if self._queue_flusher.idle:
            self._queue_flusher.wake()
        if dispatcher.is_heard(head.topic):
            code = (
                dispatcher.code_of(queue, head)
                if isinstance(queue, ConsumeQueue)
                else tags_code(property_in_text(text, TAGS))
            )
            dispatcher.tell(
                queue, head.queue_offset, code, head.store_timestamp, head.position, head.size, text
            )

    def cut_partial_record(self) -> None:
        """Cut an incomplete record off the end of the log, durably.

        For the closing of a store, when nothing is appended any more. Raises
        `StoreError`.
        """
        end = self._dispatcher.dispatched.value
        if self._tail and end < self._log.position:
            self._log.start_at(end)
            self._log.chain.sync_directories()
            self._tail.clear()
