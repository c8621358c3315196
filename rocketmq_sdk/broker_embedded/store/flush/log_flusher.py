"""Bringing the log to the disk.

`FlushRealTimeService` and `GroupCommitService` of Apache RocketMQ 5.4.0. Syncs run in a
thread and one at a time: a round covers everything written before it began, so with
SYNC_FLUSH all messages that arrive during a round share the next one. On a disk these
rounds have a thread of their own, which begins the next round as soon as one has ended.
A write that fails, on a full disk mostly, is tried again until it succeeds; until then
messages are refused. After a failed sync nothing is known about the pages it covered
(the system may have dropped them), so the store stops writing for good.

Nothing ticks: the service sleeps until something is appended, and then for its
interval.
"""

from __future__ import annotations

import logging
import math
from typing import TYPE_CHECKING

import trio

from rocketmq_sdk.broker_embedded.store.config import PAGE_SIZE, FlushDiskType
from rocketmq_sdk.broker_embedded.store.flush.durable_waiters import DurableWaiters
from rocketmq_sdk.broker_embedded.store.flush.sync_thread import SyncRound, SyncThread
from rocketmq_sdk.broker_embedded.store.flush.unsynced_note import note_unsynced
from rocketmq_sdk.broker_embedded.store.services import OnCall
from rocketmq_sdk.clock import timed
from rocketmq_sdk.errors import StoreError
from rocketmq_sdk.sleeper import sleep
from rocketmq_sdk.watermark import Watermark

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from rocketmq_sdk.broker_embedded.store.config import StoreConfig
    from rocketmq_sdk.broker_embedded.store.files.file_system import FileSystem, StoreFile
    from rocketmq_sdk.broker_embedded.store.log.commit_log import CommitLog
    from rocketmq_sdk.broker_embedded.store.state import StoreState
    from rocketmq_sdk.clock import Clock

_log = logging.getLogger(__name__)
_NOTE_SECONDS = 10
SLOW_SYNC_SECONDS = 5
"""How long a sync may go on before it is worth telling."""
WRITE_AGAIN_SECONDS = 0.2
"""How long after a failed write of the log it is tried again."""


class LogFlusher:
    """Syncs the log: by interval, or with SYNC_FLUSH after each append."""

    def __init__(
        self,
        files: FileSystem,
        log: CommitLog,
        config: StoreConfig,
        clock: Clock,
        state: StoreState,
        on_flushed: Callable[[], None],
    ) -> None:
        self._files = files
        self._log = log
        self._clock = clock
        self._state = state
        self._on_flushed = on_flushed
        self._group_commit = config.flush_disk_type is FlushDiskType.SYNC_FLUSH
        self._interval = config.flush_interval_commit_log / 1000
        self._least_bytes = config.flush_commit_log_least_pages * PAGE_SIZE
        self._thorough_interval = config.flush_commit_log_thorough_interval / 1000
        self._thorough_at = 0.0
        self._appended = trio.Event()
        self._unwritten = trio.Event()
        self._busy = trio.Lock()
        self._has_thread = self._group_commit and files.blocking
        self._thread: SyncThread | None = None
        self._requested = 0
        self._note_due = False
        self._crash: BaseException | None = None
        self._closed = False
        self.idle = False
        """Whether `wake` has to be called for the next append to be noticed."""
        self._on_call = OnCall()
        self.rewriting = OnCall()
        """For `write_again`."""
        self.flushed = Watermark()
        self._syncing_since = math.inf
        self.waiters = DurableWaiters(clock, config.sync_flush_timeout / 1000)
        """Callbacks for durable appends; they run after `on_flushed`."""
        self.observe_sync: Callable[[float], None] | None = None
        """Told how many seconds each sync took, one at a time, mostly in a thread."""
        self.physic_timestamp = 0
        """Store time of the last message known to be durable."""

    def begin(self) -> OnCall:
        """What `run` is called by from now on; the log is loaded."""
        self._thorough_at = self._clock.monotonic() + self._thorough_interval
        if self._has_thread or self.flushed.value < self._log.position:
            self._on_call.call()
        self.idle = True
        return self._on_call

    def wake(self) -> None:
        """Tell the flusher that something was appended."""
        if self._has_thread:
            if self._log.write_through:  # else `turn_ended` follows
                self._appended.set()
            return
        self.idle = False
        self._on_call.call()
        self._appended.set()

    def write_out(self) -> StoreError | None:
        """Hand what was appended to the operating system; returns why it failed.

        The appends then stay in memory, no more are accepted, and `write_again` goes on
        trying.
        """
        log, state = self._log, self._state
        if log.written < log.position or log.write_problem is not None:
            try:
                log.write_out()
            except StoreError as error:
                self.write_failed(error)
                return error
        if state.log_problem is not None and state.failure is None:
            _log.warning("the log can be written again")
            state.log_problem = None
        return None

    def write_failed(self, error: StoreError) -> None:
        """Let no more be appended until the log can be written."""
        state = self._state
        if state.log_problem is None:
            _log.error("the store takes no messages until the log can be written: %s", error)
        state.log_problem = error
        state.found(error)
        self._unwritten.set()
        self.rewriting.call()

    @trio.lowlevel.enable_ki_protection
    async def write_again(self) -> None:
        """Write what could not be written as soon as it can be, until cancelled."""
        while True:
            await self._unwritten.wait()
            while self._state.log_problem is not None and self._state.failure is None:
                await trio.sleep(WRITE_AGAIN_SECONDS)
                if self.write_out() is None:
                    self._appended.set()
                    self.turn_ended()
            self._unwritten = trio.Event()

    def troubles(self) -> Iterator[str]:
        """That a sync does not end, for people to read."""
        seconds = self._clock.monotonic() - self._syncing_since
        if seconds >= SLOW_SYNC_SECONDS:
            unsynced = self._log.position - self.flushed.value
            yield (
                f"a sync of the log goes on for {seconds:.0f} s; a power cut now would lose "
                f"{unsynced} bytes of it"
            )

    def turn_ended(self) -> None:
        """Tell the flusher that the appends since `MessageStore.begin` are written."""
        if self._has_thread and self._state.failure is None:
            self._request()

    @trio.lowlevel.enable_ki_protection
    async def run(self) -> None:
        """Serve until cancelled, or until a sync fails."""
        if self._has_thread:
            await self._run_beside_thread()
            return
        while self._state.failure is None:
            if self.flushed.value >= self._log.position:
                self._appended = trio.Event()
                self.idle = True
                await self._appended.wait()
            if self._state.log_problem is not None:
                await trio.sleep(WRITE_AGAIN_SECONDS)
            elif not self._group_commit:
                await sleep(self._interval)
            await self._round()

    async def _run_beside_thread(self) -> None:
        """Request the rounds of appends outside `begin` and `end`.

        Also does what a failed round leaves to do.
        """
        self.idle = True
        while self._state.failure is None and self._crash is None:
            self._appended = trio.Event()
            if self.write_out() is None:
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
        """Make everything appended so far durable; does not raise on failure.

        A failure is kept in the store's state. Cancellation never interrupts a sync
        that has begun.
        """
        if self._has_thread:
            await self._flush_by_thread()
            return
        if self.flushed.value >= self._log.position and self._state.log_problem is None:
            return
        async with self._busy:
            if self._state.failure is not None:
                return
            self.write_out()
            target = self._log.written
            timestamp = self._written_timestamp()
            if target <= self.flushed.value:
                return
            self._syncing_since = self._clock.monotonic()
            try:
                await self._files.run(self._sync_of(target))
            except StoreError as error:
                self._sync_failed(error)
                await self._leave_note_if_due()
                return
            self._flushed_to(target, timestamp)

    async def _flush_by_thread(self) -> None:
        if self._state.failure is None:
            try:
                self.write_out()
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
        """Let the thread sync what the file system has.

        Two syncs never run at the same time: the system would report a failure to only
        one of them.
        """
        target = self._log.written
        if target <= max(self._requested, self.flushed.value) or self._closed:
            return
        if self._thread is None:
            self._thread = SyncThread(self._files, self._thread_synced)
        if self._syncing_since == math.inf:
            self._syncing_since = self._clock.monotonic()
        self._requested = target
        self._thread.submit(SyncRound(target, self._written_timestamp(), self._sync_of(target)))

    def _written_timestamp(self) -> int:
        """Store time of the last message that the operating system has."""
        state = self._state
        return self.physic_timestamp if state.log_problem is not None else state.stored_timestamp

    def _thread_synced(self, sync_round: SyncRound, error: BaseException | None) -> None:
        """End of a round; called by the loop itself, so it must not raise."""
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
            self.fail(StoreError(f"{self._log.chain.directory}: flushing broke off ({crash!r})"))
            self._appended.set()

    def _flushed_to(self, target: int, timestamp: int) -> None:
        # Beside a thread the next sync, if one is asked for, begins now.
        more = self._has_thread and target < self._requested
        self._syncing_since = self._clock.monotonic() if more else math.inf
        self.flushed.advance(target)
        self._log.synced(target)
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
        """Stop syncing; returns when no sync runs."""
        if self._thread is not None:
            await self._thread.aclose()
        self._closed = True
        self.waiters.fail()

    def _sync_of(self, target: int) -> Callable[[], None]:
        chain = self._log.chain
        synced = self.flushed.value
        # A slave without data begins where its master's log does, without a file.
        chosen = (
            chain.files[-1:]
            if chain.files and chain.files[-1].start <= synced
            else chain.overlapping(synced, target)
        )
        files: list[StoreFile] = [file.file for file in chosen]
        sync_directories = chain.directory_sync()

        def sync() -> None:
            for file in files:
                file.sync()
            if sync_directories is not None:
                sync_directories()

        observe = self.observe_sync
        return sync if observe is None else timed(sync, observe)

    def fail(self, error: StoreError) -> None:
        """Note that the log could not be made durable; stops acknowledging."""
        if self._state.failure is None:
            self._state.failure = self._state.log_problem = error
            _log.critical("the store takes no more messages: %s", error)
            self.flushed.fail(error)
            self.waiters.fail()
