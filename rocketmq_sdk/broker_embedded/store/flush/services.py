"""The services that bring the store to the disk (`FlushRealTimeService`,
`GroupCommitService` and `FlushConsumeQueueService` of Apache RocketMQ 5.4.0).

Syncs run in a thread and one at a time: a round covers everything written before it
began, so under SYNC_FLUSH all messages that arrive while a round runs share the next
one; on a disk these rounds have a thread of their own, which begins the next as soon as
one is over. After a sync that failed nothing is known about the pages it covered (the
system may have dropped them), so it ends the store's writing; a missing place for queue
units only interrupts it, because the units are kept and can be built again from the
log.

Nothing ticks: a service sleeps until something was appended, and then until its
interval is over.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import trio

from rocketmq_sdk.broker_embedded.store.flush.failed_sync import note_unsynced
from rocketmq_sdk.broker_embedded.store.flush.sync_thread import SyncRound, SyncThread
from rocketmq_sdk.broker_embedded.store.flush.waiters import DurableWaiters
from rocketmq_sdk.broker_embedded.store.messages import FlushDiskType, MessageToStore, PutStatus
from rocketmq_sdk.errors import StoreError, StoreFullError
from rocketmq_sdk.watermark import Watermark

if TYPE_CHECKING:
    from collections.abc import Callable

    from rocketmq_sdk.broker_embedded.store.config import StoreConfig
    from rocketmq_sdk.broker_embedded.store.files.file_system import FileSystem, StoreFile
    from rocketmq_sdk.broker_embedded.store.index.service import IndexService
    from rocketmq_sdk.broker_embedded.store.log.commit_log import CommitLog
    from rocketmq_sdk.broker_embedded.store.queues.consume_queue_table import (
        ConsumeQueueTable,
        Queue,
    )
    from rocketmq_sdk.broker_embedded.store.recovery.checkpoint import Checkpoint
    from rocketmq_sdk.clock import Clock

_log = logging.getLogger(__name__)
_PAGE = 4096
_QUEUES_PER_SLICE = 64
_NOTE_SECONDS = 10


class FlushState:
    """What services and store share: the store times behind the last append and the
    last dispatch, and why writing ended.
    """

    __slots__ = (
        "disk_full",
        "dispatched_timestamp",
        "failure",
        "gate",
        "index_problem",
        "open",
        "queue_problem",
        "stored_timestamp",
    )

    def __init__(self) -> None:
        self.stored_timestamp = 0
        self.dispatched_timestamp = 0
        self.failure: StoreError | None = None
        """A failed sync: for good."""
        self.queue_problem: StoreError | None = None
        """Units that could not be written: until they can."""
        self.disk_full = False
        """Too little space is left: until there is more."""
        self.index_problem: StoreError | None = None
        """The index could not be written: messages wait in memory to be indexed."""
        self.open = False
        """Between entering and leaving the store."""
        self.gate: Callable[[MessageToStore], PutStatus | None] | None = None
        """Tells for a message with which status it is refused, where the broker's role
        or its replicas may forbid puts.
        """

    @property
    def writable(self) -> bool:
        """Whether puts are taken."""
        return (
            self.open and self.failure is None and self.queue_problem is None and not self.disk_full
        )


class LogFlusher:
    """Syncs the log: by interval, or for SYNC_FLUSH as soon as somebody appended."""

    def __init__(
        self,
        files: FileSystem,
        log: CommitLog,
        config: StoreConfig,
        clock: Clock,
        state: FlushState,
        on_flushed: Callable[[], None],
    ) -> None:
        self._files = files
        self._log = log
        self._clock = clock
        self._state = state
        self._on_flushed = on_flushed
        self._group_commit = config.flush_disk_type is FlushDiskType.SYNC_FLUSH
        self._interval = config.flush_interval_commit_log / 1000
        self._least_bytes = config.flush_commit_log_least_pages * _PAGE
        self._thorough_interval = config.flush_commit_log_thorough_interval / 1000
        self._thorough_at = 0.0
        self._appended = trio.Event()
        self._busy = trio.Lock()
        self._has_thread = self._group_commit and files.blocking
        self._thread: SyncThread | None = None
        self._requested = 0
        self._note_due = False
        self._crash: BaseException | None = None
        self._closed = False
        self.idle = False
        """Whether `wake` has to be called for the next append to be noticed."""
        self.flushed = Watermark()
        self.waiters = DurableWaiters(clock, config.sync_flush_timeout / 1000)
        """Who is told when an append is durable, behind what `on_flushed` does."""
        self.physic_timestamp = 0
        """Store time of the last message known to be durable."""

    def wake(self) -> None:
        """Something was appended."""
        if self._has_thread:
            if self._log.write_through:  # else `turn_ended` follows
                self._appended.set()
            return
        self.idle = False
        self._appended.set()

    def turn_ended(self) -> None:
        """What was appended since `MessageStore.begin` has been handed to the file
        system.
        """
        if self._has_thread and self._state.failure is None:
            self._request()

    @trio.lowlevel.enable_ki_protection
    async def run(self) -> None:
        """Serve until cancelled, or until a sync fails."""
        self._thorough_at = self._clock.monotonic() + self._thorough_interval
        if self._has_thread:
            await self._run_beside_thread()
            return
        while self._state.failure is None:
            if self.flushed.value >= self._log.position:
                self._appended = trio.Event()
                self.idle = True
                await self._appended.wait()
            if not self._group_commit:
                await trio.sleep(self._interval)
            await self._round()

    async def _run_beside_thread(self) -> None:
        """Ask for the rounds of appends outside of turns, and see to what a failed one
        leaves to do.
        """
        self.idle = True
        while self._state.failure is None and self._crash is None:
            self._appended = trio.Event()
            try:
                self._log.write_out()
            except StoreError as error:
                self._sync_failed(error)
                break
            self._request()
            await self._appended.wait()
        await self._leave_note_if_due()
        self._raise_crash()

    async def _round(self) -> None:
        thorough = self._clock.monotonic() >= self._thorough_at
        if thorough or self._group_commit:
            self._thorough_at = self._clock.monotonic() + self._thorough_interval
        elif self._log.position - self.flushed.value < self._least_bytes:
            return
        await self.flush()

    async def flush(self) -> None:
        """Make everything appended so far durable; a failure is noted, not raised.
        Cancellation never interrupts a sync that has begun.
        """
        if self._has_thread:
            await self._flush_by_thread()
            return
        async with self._busy:
            if self._state.failure is not None:
                return
            try:
                self._log.write_out()
                target = self._log.position
                timestamp = self._state.stored_timestamp
                if target <= self.flushed.value:
                    return
                await self._files.run(self._prepare(target))
            except StoreError as error:
                self._sync_failed(error)
                await self._leave_note_if_due()
                return
            self._flushed_to(target, timestamp)

    async def _flush_by_thread(self) -> None:
        if self._state.failure is None:
            try:
                self._log.write_out()
                self._request()
                await self.flushed.wait_reached(self._requested)
            except StoreError as error:
                if self._state.failure is None:
                    self._sync_failed(error)
        await self._leave_note_if_due()
        self._raise_crash()

    def _raise_crash(self) -> None:
        crash, self._crash = self._crash, None
        if crash is not None:
            raise crash

    def _request(self) -> None:
        """Let the thread sync what the file system has. No two syncs run beside each
        other: the system tells a failure to only one of them.
        """
        target = self._log.written
        if target <= max(self._requested, self.flushed.value) or self._closed:
            return
        if self._thread is None:
            self._thread = SyncThread(self._thread_synced)
        self._requested = target
        self._thread.submit(SyncRound(target, self._state.stored_timestamp, self._prepare(target)))

    def _thread_synced(self, sync_round: SyncRound, error: BaseException | None) -> None:
        """Called by the loop itself, which no exception may leave."""
        if self._closed:
            return
        try:
            if error is None:
                self._flushed_to(sync_round.target, sync_round.timestamp)
            elif isinstance(error, StoreError):
                self._sync_failed(error)
                self._appended.set()
            else:
                raise error
        except BaseException as crash:  # noqa: BLE001 - raised by the task that runs beside
            self._crash = crash
            self.fail(StoreError(f"{self._log.queue.directory}: flushing broke off ({crash!r})"))
            self._appended.set()

    def _flushed_to(self, target: int, timestamp: int) -> None:
        self.flushed.advance(target)
        self.physic_timestamp = max(self.physic_timestamp, timestamp)
        self._on_flushed()
        self.waiters.reached(target)

    def _sync_failed(self, error: StoreError) -> None:
        self._note_due = True
        self.fail(error)

    async def _leave_note_if_due(self) -> None:
        if not self._note_due:
            return
        self._note_due = False
        position = self.flushed.value
        try:
            with trio.move_on_after(_NOTE_SECONDS, shield=True):
                await self._files.run(lambda: note_unsynced(self._files, position))
        except StoreError as error:
            _log.critical(
                "restart the machine before the store is opened again: the failed sync could not "
                "be noted: %s",
                error,
            )

    async def aclose(self) -> None:
        """Nothing is synced any more; returns when no sync runs."""
        if self._thread is not None:
            await self._thread.aclose()
        self._closed = True
        self.waiters.fail()

    def _prepare(self, target: int) -> Callable[[], None]:
        queue = self._log.queue
        synced = self.flushed.value
        # A slave that has nothing yet begins where its master's log does, without a
        # file.
        chosen = (
            queue.files[-1:]
            if queue.files and queue.files[-1].start <= synced
            else queue.overlapping(synced, target)
        )
        files: list[StoreFile] = [file.file for file in chosen]
        sync_directories = queue.directory_sync()

        def sync() -> None:
            for file in files:
                file.sync()
            if sync_directories is not None:
                sync_directories()

        return sync

    def fail(self, error: StoreError) -> None:
        """Note that the log could not be made durable: nothing more is acknowledged."""
        if self._state.failure is None:
            self._state.failure = error
            _log.critical("the store takes no more messages: %s", error)
            self.flushed.fail(error)
            self.waiters.fail()


class QueueFlusher:
    """Writes the queues out by interval, syncs those that grew, and everything with the
    checkpoint at the thorough interval.
    """

    def __init__(
        self,
        files: FileSystem,
        table: ConsumeQueueTable,
        index: IndexService,
        log_flusher: LogFlusher,
        checkpoint: Checkpoint,
        config: StoreConfig,
        clock: Clock,
        state: FlushState,
    ) -> None:
        self._files = files
        self._table = table
        self._index = index
        self._log_flusher = log_flusher
        self._checkpoint = checkpoint
        self._clock = clock
        self._state = state
        self._interval = config.flush_interval_consume_queue / 1000
        self._least_bytes = config.flush_consume_queue_least_pages * _PAGE
        self._checkpoint_waits = False
        self._thorough_interval = config.flush_consume_queue_thorough_interval / 1000
        self._thorough_at = 0.0
        self._appended = trio.Event()
        self._busy = trio.Lock()
        self.idle = False
        self.recovered = False
        """Whether this life began with a recovery: then the checkpoint is written soon,
        so that the next one need not read as much again.
        """

    def wake(self) -> None:
        """A queue got a unit."""
        self.idle = False
        self._appended.set()

    @trio.lowlevel.enable_ki_protection
    async def run(self) -> None:
        """Serve until cancelled, or until a sync fails."""
        if self.recovered:
            await trio.sleep(self._interval)
            await self.flush(thorough=True)
        self._thorough_at = self._clock.monotonic() + self._thorough_interval
        while self._state.failure is None:
            if not self._table.dirty and not self._table.unsynced:
                self._appended = trio.Event()
                self.idle = True
                await self._appended.wait()
            elif not self._table.dirty:
                await self._until_appended_or_thorough()
            await trio.sleep(self._interval)
            thorough = self._clock.monotonic() >= self._thorough_at
            if thorough:
                self._thorough_at = self._clock.monotonic() + self._thorough_interval
            await self.flush(thorough=thorough)

    async def _until_appended_or_thorough(self) -> None:
        self._appended = trio.Event()
        self.idle = True
        with trio.move_on_after(max(0.0, self._thorough_at - self._clock.monotonic())):
            await self._appended.wait()
        self.idle = False

    async def flush(self, *, thorough: bool) -> None:
        """Write all units out and sync queues with enough of them, all queues when
        `thorough`; failures are noted, not raised.
        """
        async with self._busy:
            await self._flush(thorough)

    async def _flush(self, thorough: bool) -> None:
        timestamp = self._state.dispatched_timestamp
        if not await self._write_out():
            return
        chosen = [
            queue
            for queue in self._table.unsynced
            if thorough or queue.unsynced_bytes >= self._least_bytes
        ]
        try:
            for start in range(0, len(chosen), _QUEUES_PER_SLICE):
                await self._sync(chosen[start : start + _QUEUES_PER_SLICE])
            await self._flush_index(thorough)
            if thorough:
                await self._write_checkpoint(timestamp)
        except StoreError as error:
            self._log_flusher.fail(error)

    async def _write_out(self) -> bool:
        """Hand the units over, a slice of the queues at a time."""
        dirty = self._table.dirty
        try:
            while dirty:
                for _ in range(min(len(dirty), _QUEUES_PER_SLICE)):
                    self._table.write_out(dirty[-1])
                    dirty.pop()
                await trio.lowlevel.checkpoint()
        except StoreError as error:
            if self._state.queue_problem is None:
                _log.error(
                    "the store takes no messages until queue units can be written: %s", error
                )
            self._state.queue_problem = error
            return False
        if self._state.queue_problem is not None:
            _log.warning("queue units can be written again")
            self._state.queue_problem = None
        return True

    async def _flush_index(self, thorough: bool) -> None:
        """Bring the index up to date. A failure is tried again, and prevents nothing
        but a clean stop.
        """
        try:
            await self._index.flush(thorough=thorough)
        except StoreError as error:
            if self._state.index_problem is None:
                _log.error("messages cannot be indexed until the index can be written: %s", error)
            self._state.index_problem = error
            return
        if self._state.index_problem is not None:
            _log.warning("the index can be written again")
            self._state.index_problem = None

    async def _sync(self, queues: list[Queue]) -> None:
        offsets = [queue.written_offset for queue in queues]
        syncs = [queue.prepare_sync() for queue in queues]

        def sync_all() -> None:
            for sync in syncs:
                sync()

        await self._files.run(sync_all)
        for queue, offset in zip(queues, offsets, strict=True):
            queue.synced(offset)
            if not queue.unsynced_bytes:
                self._table.unsynced.discard(queue)

    async def _write_checkpoint(self, logics_timestamp: int) -> None:
        checkpoint = self._checkpoint
        checkpoint.logics_timestamp = max(checkpoint.logics_timestamp, logics_timestamp)
        checkpoint.physic_timestamp = max(
            checkpoint.physic_timestamp, self._log_flusher.physic_timestamp
        )
        data = checkpoint.encode()
        try:
            await self._files.run(lambda: checkpoint.write(data))
        except StoreFullError as error:
            # The old one still says what is surely durable; the next round writes it.
            if not self._checkpoint_waits:
                _log.warning("the checkpoint is written when there is space again: %s", error)
            self._checkpoint_waits = True
            return
        self._checkpoint_waits = False
