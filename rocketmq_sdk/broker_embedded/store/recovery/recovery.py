"""Finding the end of the log and making the queues agree with it.

`CommitLog.recoverNormally` and `recoverAbnormally` of Apache RocketMQ 5.4.0. Both read
records from the start of some file to the first one that is not whole, give each to its
queue (which ignores what it has), and drop what queues and log hold after that end.
They differ in the file. After a clean stop it is the last one whose first record the
queues know; after a kill the last one whose first record was certainly flushed and
dispatched, by the checkpoint.

Apache looks back at most 10 files and does not notice a single lost queue. Here the
search goes back as long as a record has a number that its queue has not reached, and
what follows the end is overwritten with zeros: otherwise a later recovery could take
old bytes for new records.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING

from rocketmq_sdk.broker_embedded.store.files.checkpoint import Checkpoint, latest_believable
from rocketmq_sdk.broker_embedded.store.flush.unsynced_note import (
    forget_note,
    unsynced_from,
    write_again,
)
from rocketmq_sdk.broker_embedded.store.log.record import (
    check_record,
)
from rocketmq_sdk.broker_embedded.store.recovery.behind import look_behind
from rocketmq_sdk.broker_embedded.store.recovery.clean_stop import CleanStopNote
from rocketmq_sdk.broker_embedded.store.recovery.log_scanner import LogScanner
from rocketmq_sdk.broker_embedded.store.recovery.lost_units import LostUnits
from rocketmq_sdk.broker_embedded.store.recovery.set_aside import set_aside
from rocketmq_sdk.errors import StoreFullError

if TYPE_CHECKING:
    from rocketmq_sdk.broker_embedded.store.index.service import IndexService
    from rocketmq_sdk.broker_embedded.store.log.commit_log import CommitLog
    from rocketmq_sdk.broker_embedded.store.queues.queue_dispatcher import QueueDispatcher

_log = logging.getLogger(__name__)
_PROGRESS_STEP = 16 * 1024 * 1024
MAX_TIME = (1 << 63) - 1
RecoveryProgress = Callable[[int, int], None]


class Recovery:
    """One recovery of a log that is not open for writing yet."""

    def __init__(
        self,
        log: CommitLog,
        dispatcher: QueueDispatcher,
        checkpoint: Checkpoint,
        index: IndexService | None = None,
        *,
        check_crc: bool,
        force_property_crc: bool = False,
        now_ms: int = MAX_TIME,
        progress: RecoveryProgress | None = None,
        note: CleanStopNote | None = None,
        known_topics: Callable[[], Collection[str] | None] = lambda: None,
    ) -> None:
        """`now_ms` limits the store times that are believed.

        `note` is that of the last clean stop; `known_topics` has the names of all
        topics, if that can be told.

        `progress` is called with `(done, total)` in bytes from the thread that
        recovers.
        """
        self._log = log
        self._index = index
        self._dispatcher = dispatcher
        self._table = dispatcher.table
        self._checkpoint = checkpoint
        self._scanner = LogScanner(
            log.chain, check_crc=check_crc, force_property_crc=force_property_crc
        )
        self._latest_time = latest_believable(now_ms)
        self._progress = progress
        self._future_told = False
        self._note = note or CleanStopNote()
        self._known_topics = known_topics
        # A flipped bit may be the reason: a checkpoint from the future proves nothing.
        vouched = checkpoint.recovery_timestamp
        self._vouched = vouched if vouched <= self._latest_time else 0
        self.last_store_timestamp = 0
        self.scanned_from = 0
        self.records = 0
        self.lost_end = False
        """Whether the log ends earlier than at the last clean stop."""

    def run(self, *, clean: bool) -> int:
        """Recover; returns the end of the log.

        Raises `StoreError` when files cannot be read or written.
        """
        log = self._log
        if not log.chain.files:
            self._table.clear()
            if self._index is not None:
                self._index.end_at(0, 0)
            log.start_at(0)
            return 0
        self._dispatcher.log_start = log.min_position
        lost = LostUnits(
            log.chain, self._table, self._note, self._dispatcher.deleted_topics, self._known_topics
        ).read_from()
        end = self._trusted_end() if clean and lost is None else None
        first = self._first_file(clean) if end is None else -1
        if lost is not None:
            first = min(first, log.chain.index_of(lost))
        start = log.chain.files[first].start if end is None else end
        if not clean:
            self._table.forget_from(start)
        self._table.settle_extensions()
        if end is None:
            end = self._scan(first)
        else:
            self.scanned_from = end
        self._tell_lost_log(end, clean=clean)
        self._table.truncate(end)
        if not clean:
            self._table.trim()
        if self._index is not None:
            # The records that were read may be new to it (Apache's broker ran).
            self._index.end_at(end, self.scanned_from)
        behind = look_behind(log.chain, end) if self.records or not clean else None
        if behind is not None:
            set_aside(log.chain, end, behind, self._vouched)
        log.start_at(end)
        self._table.settle_extensions()
        self._write_queues()
        if self.records or not clean:
            self._table.correct_min_offsets(log.min_position)
        if not clean:
            self._table.pass_empty()
        for queue in self._table:
            queue.next_offset = queue.max_offset
        if not clean and start == log.min_position > 0 and not self._vouches_for(0):
            # Queues may hold units of records that retention removed before any sync.
            self._table.doubt_contents()
        self._make_durable(end)
        stop = "a clean" if clean else "an unclean"
        _log.info(
            "recovered the log to %d after %s stop: %d records read from %d on",
            end,
            stop,
            self.records,
            self.scanned_from,
        )
        return end

    def _tell_lost_log(self, end: int, *, clean: bool) -> None:
        """Say what of the log is missing at either end."""
        note, start = self._note, self._log.min_position
        # A power cut may leave units of records that it lost, a clean stop may not.
        reached = max(note.log_end, self._table.max_physical() if clean else 0)
        if reached > end:
            self.lost_end = True
            text = (
                "the log ended at %d when the store was closed; what follows %d is lost, and "
                "new messages take those queue offsets again"
            )
            _log.error(text, reached, end)
        if clean and note.log_end == end and note.log_start < start:
            text = (
                "the log began at %d when the store was closed, and begins at %d now; what was "
                "in between is lost, unless it was removed on purpose"
            )
            _log.error(text, note.log_start, start)

    def _write_queues(self) -> None:
        """Write the units that were rebuilt; on a full disk they stay in memory."""
        dirty = self._table.dirty
        try:
            while dirty:
                self._table.write_out(dirty[-1])
                dirty.pop()
        except StoreFullError as error:
            _log.error("queue units stay in memory until there is space: %s", error)

    def _make_durable(self, end: int) -> None:
        """Make durable what will be shown from now on.

        Otherwise a power cut could leave a hole before something newly acknowledged.
        """
        queue = self._log.chain
        noted = unsynced_from(queue.store_files)
        if noted is not None:
            write_again(queue, noted, end)
        # Also the file that the next record goes to, if it has none yet: a process that
        # was killed may have made it, and its size is not durable.
        for file in queue.overlapping(self.scanned_from, end + 1):
            file.file.sync()
        queue.doubt_names()
        queue.sync_directories()
        self._table.settle()
        if noted is not None:
            forget_note(queue.store_files)

    def _trusted_end(self) -> int | None:
        """The end of the log by the last stop's note.

        None unless everything agrees that can be seen without reading the log.
        """
        files = self._log.chain.files
        end = self._note.log_end
        if not self._note.agrees(self._table) or not files[0].start <= end <= files[-1].end:
            return None
        for _record in self._scanner.records(end):
            return None
        if self._scanner.end != end:
            return None
        queue = max(self._table, key=lambda queue: queue.max_physical, default=None)
        last = None if queue is None else queue.last_record()
        if queue is None or last is None or queue.max_physical > end:
            return None
        position, size, offset = last
        file = self._log.chain.find(position)
        data = b"" if file is None else file.read(position, size)
        head = check_record(data, 0, position, {}, check_crc=True)
        wanted = (size, queue.topic, queue.queue_id, offset)
        if head is None or (head.size, head.topic, head.queue_id, head.queue_offset) != wanted:
            return None
        if head.store_timestamp <= self._latest_time:
            # A full disk may have kept the checkpoint from being written.
            self.last_store_timestamp = head.store_timestamp
        return end

    def _first_file(self, clean: bool) -> int:
        files = self._log.chain.files
        dispatched = self._table.max_physical()
        for index in range(len(files) - 1, 0, -1):
            if not clean:
                if self._vouches_for(index):
                    return index
                continue
            head = self._scanner.first_of(files[index])
            if head is not None and head.store_timestamp and head.physical_offset <= dispatched:
                return index
        return 0

    def _vouches_for(self, index: int) -> bool:
        """Whether the checkpoint covers the first record of a file and all before."""
        head = self._scanner.first_of(self._log.chain.files[index])
        return head is not None and 0 < head.store_timestamp <= self._vouched

    def _scan(self, index: int) -> int:
        """Read from a file on, and from older files while a queue lacks records."""
        files = self._log.chain.files
        step = 1
        while not self._scan_from(files[index].start, from_start=index == 0):
            index = max(0, index - step)
            step *= 2
        return self._scanner.end

    def _scan_from(self, start: int, *, from_start: bool) -> bool:
        rebuild = self._dispatcher.rebuild
        self.scanned_from = start
        self.records = 0
        last = self.last_store_timestamp
        latest = self._latest_time
        tell_at = start
        queues = self._table.queues
        records = 0
        for head in self._scanner.records(start):
            records += 1
            position, size, queue_id, _, _, _, store_timestamp, topic, _ = head
            if position >= tell_at:
                tell_at = position + _PROGRESS_STEP
                self._tell(position)
            if store_timestamp > last:
                if store_timestamp <= latest:
                    last = store_timestamp
                elif not self._future_told:
                    self._future_told = True
                    text = (
                        "the record at %d says that it was stored at %d, which is in the future; "
                        "such times are not believed"
                    )
                    _log.error(text, position, store_timestamp)
            known = queues[topic].get(queue_id) if topic in queues else None
            if (known is None or position + size > known.max_physical) and not rebuild(
                head, from_start=from_start
            ):
                return False
        self.records = records
        self.last_store_timestamp = last
        self._tell(self._scanner.end)
        return True

    def _tell(self, position: int) -> None:
        """Report progress in bytes, counted from where the reading began."""
        if self._progress is not None:
            low, high = self.scanned_from, self._log.chain.files[-1].end
            self._progress(position - low, high - low)
