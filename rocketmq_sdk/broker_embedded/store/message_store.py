"""The message store: appends messages to the log and reads them by queue.

`DefaultMessageStore` of Apache RocketMQ 5.4.0. Appends, dispatch and reads are
synchronous and belong to the thread of the event loop, so nothing interrupts them. Only
syncs and reads that have to wait for a disk run in threads. When `put` returns PUT_OK
the operating system has the record (between `begin` and `end`: when `end` returns), so
nothing acknowledged is lost when the process dies; with SYNC_FLUSH `wait_durable` says
when it also survives a power cut.
"""

from __future__ import annotations

import logging
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING

import trio

from rocketmq_sdk.broker_embedded.store.append.appender import Appender
from rocketmq_sdk.broker_embedded.store.append.replica_log import ReplicaLog
from rocketmq_sdk.broker_embedded.store.config import FlushDiskType
from rocketmq_sdk.broker_embedded.store.files.lock_watch import has_lock, watch_lock
from rocketmq_sdk.broker_embedded.store.files.reserve import SpaceReserve
from rocketmq_sdk.broker_embedded.store.flush.log_flusher import LogFlusher
from rocketmq_sdk.broker_embedded.store.flush.queue_flusher import QueueFlusher
from rocketmq_sdk.broker_embedded.store.log.next_file import NextFileMaker, remove_leftover
from rocketmq_sdk.broker_embedded.store.memory_retention import Needs, retention_in
from rocketmq_sdk.broker_embedded.store.messages import (
    Arrival,
    MessageToStore,
    PutResult,
    PutStatus,
)
from rocketmq_sdk.broker_embedded.store.queues.batch_consume_queue import batch_topics, known_topics
from rocketmq_sdk.broker_embedded.store.queues.deleted_topics import DeletedTopics
from rocketmq_sdk.broker_embedded.store.queues.deletion import delete_queues
from rocketmq_sdk.broker_embedded.store.queues.queue_dispatcher import QueueDispatcher
from rocketmq_sdk.broker_embedded.store.reading.readable_store import ReadableStore
from rocketmq_sdk.broker_embedded.store.recovery.clean_stop import (
    ABORT_PATH,
    mark_open,
    read_note,
    write_note,
)
from rocketmq_sdk.broker_embedded.store.recovery.index_builder import IndexBuilder
from rocketmq_sdk.broker_embedded.store.recovery.missing_log import refuse_gap, refuse_without_log
from rocketmq_sdk.broker_embedded.store.recovery.recovery import Recovery, RecoveryProgress
from rocketmq_sdk.broker_embedded.store.retention import RetentionService
from rocketmq_sdk.broker_embedded.store.services import (
    StartService,
    StoreService,
    start_at_once,
)
from rocketmq_sdk.errors import StoreError
from rocketmq_sdk.lifecycle import RunsOnce, open_quiet_nursery

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Collection, Iterator, Mapping, Sequence

    from rocketmq_sdk.broker_embedded.store.append.replicas import Replicas
    from rocketmq_sdk.broker_embedded.store.append.run import Run
    from rocketmq_sdk.broker_embedded.store.config import StoreConfig
    from rocketmq_sdk.broker_embedded.store.files.file_system import FileSystem
    from rocketmq_sdk.clock import Clock
    from rocketmq_sdk.watermark import Watermark

_log = logging.getLogger(__name__)
_BUILD_AT_CLOSE = 1.0
"""Seconds that a stop goes on building an index; what is left is left to a start."""


class MessageStore(ReadableStore, RunsOnce):
    """One store directory, used as `async with MessageStore(...) as store`.

    Entering loads and recovers, leaving makes everything durable. Entering raises
    `StoreLockedError`, `StoreCorruptError` or `StoreError`.
    """

    _second_time = "a store object is opened once; make another one"

    def __init__(
        self, config: StoreConfig, files: FileSystem, clock: Clock, store_host: bytes
    ) -> None:
        super().__init__(config, files, clock)
        self._dispatcher = QueueDispatcher(self._table, config.message_delay_level)
        self._deleted = DeletedTopics(files)
        self._dispatcher.deleted_topics = self._deleted.positions
        state = self._state
        self._flusher = LogFlusher(files, self._log, config, clock, state, self._after_flush)
        self._queue_flusher = QueueFlusher(
            files,
            self._dispatcher,
            self._index,
            self._flusher,
            self._checkpoint,
            config,
            clock,
            state,
        )
        log, table, index = self._log, self._table, self._index
        self.retention = RetentionService(
            files, log, table, index, config, clock, state, self._readers, self._flusher.flushed
        )
        """Deletes what is older than the settings say, and can be told to do so now."""
        self._memory = self.retention.memory = retention_in(files, log, table, index, config, clock)
        self.needs: Needs | None = None if self._memory is None else self._memory.needs
        """What retention in memory has to keep; None on a disk."""
        flushers = (self._flusher, self._queue_flusher)
        self._appender = Appender(
            self._log, self._dispatcher, self._index, flushers, config, clock, state, store_host
        )
        follower = self.follow("the building of the index")
        self._index_builder = IndexBuilder(files, log, index, self._dispatcher, follower)
        self._next_file = NextFileMaker(files, self._log, config)
        self.reserve = SpaceReserve(files, config.reserve_bytes)
        """Space that is kept for small files."""
        self._sync_flush = config.flush_disk_type is FlushDiskType.SYNC_FLUSH
        self._replica_log = ReplicaLog(
            self._log, self._dispatcher, self._index, flushers, state, sync_flush=self._sync_flush
        )
        self._replicas: Replicas | None = None
        self._is_slave = False
        self._loading_at = 0
        self.on_recovery: RecoveryProgress | None = None
        """Progress callback `(done, total)` in log bytes, for a long start.

        Called from a worker thread; set it before entering the store.
        """
        self.start_service: StartService = start_at_once
        """Runs each service, decides what becomes of errors; set it before entering."""
        self.started_clean = True
        """Whether the last stop was clean."""
        self.arrivals: list[Callable[[Arrival], None]] = self._dispatcher.arrivals
        """Callbacks for each message that consumers can read from now on.

        Called in the append with ASYNC_FLUSH, after its sync with SYNC_FLUSH.
        """
        self.dispatched: Watermark = self._dispatcher.dispatched
        """The position up to which the log is in the queues."""

    # --- opening and closing

    @asynccontextmanager
    async def _run(self) -> AsyncIterator[None]:
        self.files.lock()
        try:
            self._index.loading_at = self._loading_at = self._clock.now_ms()
            await self.files.run(self._load)
            self._index.loading_at = None
            self._state.open = True
            try:
                async with open_quiet_nursery() as nursery:
                    for service in self._services():
                        self.start_service(nursery, service)
                    if self.reserve.is_kept:
                        nursery.start_soon(self.reserve.keep)
                    try:
                        yield
                    finally:
                        nursery.cancel_scope.cancel()
            finally:
                self._state.open = False
                with trio.CancelScope(shield=True):
                    await self._close()
        finally:
            self._log.on_enter = None
            if self._log.chain.next_file is not None:
                self._log.chain.next_file = None
                remove_leftover(self.files)
            self._log.close()
            self._table.close()
            self._index.close()
            self.files.unlock()

    def _services(self) -> Iterator[StoreService]:
        """Its tasks."""
        flusher, queue_flusher, retention = self._flusher, self._queue_flusher, self.retention
        removed, builder = self._table.removed, self._index_builder
        yield StoreService("flush of the log", flusher.run, flusher.begin(), of_log=True)
        yield StoreService(
            "writing of the log again", flusher.write_again, flusher.rewriting, of_log=True
        )
        if self._sync_flush:
            yield StoreService("waiters for syncs", flusher.waiters.run, of_log=True)
        yield StoreService("flush of queues and index", queue_flusher.run, queue_flusher.begin())
        yield StoreService("retention", retention.run, retention.begin())
        yield StoreService("removal of deleted queues", removed.run, removed.on_call)
        if has_lock(self.files):
            yield StoreService("watch of the lock", partial(watch_lock, self.files, flusher.fail))
        if self._index.enabled:
            yield StoreService("building of the index", builder.serve, self._index.on_behind)
        if self.files.makes_ahead:
            yield StoreService("next file of the log", self._next_file.run)

    def _load(self) -> None:
        """Load and recover; `load` and `recover` of Apache."""
        refuse_without_log(self.files)
        clean = not self.files.exists(ABORT_PATH)
        remove_leftover(self.files)
        note = read_note(self.files)
        self._log.chain.load(mend=not clean)
        if clean:
            refuse_gap(self._log.chain)
        self._table.batch_topics.update(batch_topics(self.files.read))
        self._table.load(mend=not clean)
        self._checkpoint.load()
        self._deleted.load()
        mark_open(self.files)
        self._checkpoint.forget_position()
        self._table.find_ends(self._log.min_position, clean=clean)
        self._table.finish_deletions(self._deleted.positions)
        start = self._log.min_position
        missing = note.missing_index_file(self.files, start, clean=clean)
        self._index.load(clean=clean, lacks_from=note.index_end, missing=missing)
        now = self._loading_at
        recovery = Recovery(
            self._log,
            self._dispatcher,
            self._checkpoint,
            self._index,
            check_crc=self.config.check_crc_on_recover,
            force_property_crc=self.config.force_verify_prop_crc,
            now_ms=now,
            progress=self.on_recovery,
            note=note,
            known_topics=lambda: known_topics(self.files.read),
        )
        end = recovery.run(clean=clean)
        self._deleted.clamp(end)
        last = max(recovery.last_store_timestamp, self._checkpoint.last_believable(now))
        self.started_clean = clean and not recovery.lost_end
        self._queue_flusher.recovered = not clean
        self._state.stored_timestamp = self._state.dispatched_timestamp = (
            self._flusher.physic_timestamp
        ) = last
        self._flusher.flushed.advance(end)
        self.dispatched.advance(end)

    @trio.lowlevel.enable_ki_protection
    async def _close(self) -> None:
        """Make everything durable; the stop is clean only if all of it worked."""
        try:
            if self._index.enabled and self._index.lacks_from is not None:
                with trio.move_on_after(_BUILD_AT_CLOSE):
                    await self._index_builder.run()
            await self._flusher.flush()
            await self._queue_flusher.flush(thorough=True)
        finally:
            await self._flusher.aclose()
        problem = self._state.problem or self._state.index_problem
        if problem is not None:
            _log.error("the store is closed without a clean stop: %s", problem)
            return
        try:
            await self.files.run(self._remove_abort)
        except StoreError as error:
            _log.error("the store is closed without a clean stop: %s", error)

    def _remove_abort(self) -> None:
        if self._is_slave:
            self._replica_log.cut_partial_record()
        write_note(self.files, self._log, self._table, self._index)
        self.files.remove(ABORT_PATH)
        self.files.sync_directory(".")

    def listen(
        self,
        listener: Callable[[Arrival], None],
        *,
        topic: str | None = None,
        waiting: Collection[object] | None = None,
    ) -> None:
        """Add a listener for some arrivals; `arrivals` is for all of them.

        It is called for messages of `topic` only, or only while `waiting` is not empty.
        """
        self._dispatcher.listen(listener, topic=topic, waiting=waiting)

    def put_off(
        self,
        answered: Callable[[Callable[[], None]], bool],
        idle: Callable[[Callable[[], None]], bool],
    ) -> None:
        """Have what nobody waits for done later.

        Both call something short, or say False. A client's batch goes into its queue
        when its answer has left, before anything else runs (`answered`), else at once.
        What came together is indexed when nobody waits (`idle`), else with the flush.
        """
        self._appender.when_answered = answered
        self._index.when_idle = idle

    # --- state

    def troubles(self) -> Iterator[str]:
        """What is wrong without keeping messages out, for people to read."""
        problem = self._state.index_problem or self._index_builder.problem
        if problem is not None:
            begin = self._index.indexed_up_to(self.dispatched.value)
            yield f"messages from {begin} on are not indexed: {problem}"
        yield from self._flusher.troubles()
        yield from self.unreadable

    @property
    def needs_wait(self) -> bool:
        """Whether `wait_durable` may have something to wait for."""
        return self._sync_flush or self._replicas is not None

    @property
    def tells_durable(self) -> bool:
        """Whether `when_durable` can be used.

        It can when there is a sync to wait for and no replica.
        """
        return self._sync_flush and self._replicas is None

    @property
    def flushed(self) -> Watermark:
        """The position up to which the log is durable.

        Waiting for it raises the `StoreError` of a failed sync.
        """
        return self._flusher.flushed

    def observe_syncs(self, observe: Callable[[float], None]) -> None:
        """Have the seconds of each sync of the log told from now on.

        Syncs run one at a time; `observe` is called where they run, in a thread mostly.
        """
        self._flusher.observe_sync = observe

    def statistics(self) -> dict[str, int]:
        """Figures for people to read."""
        return {
            "puts": self._appender.puts,
            "min_physical_offset": self._log.min_position,
            "max_physical_offset": self._log.position,
            "flushed_offset": self.flushed.value,
            "dispatched_offset": self.dispatched.value,
            "indexed_offset": self._index.indexed_up_to(self.dispatched.value),
            "log_files": len(self._log.chain.files),
            "queues": sum(1 for _queue in self._table),
        }

    def __repr__(self) -> str:
        state = "open" if self._state.open else "closed"
        return (
            f"<MessageStore {self.files.description} {state} [{self._log.min_position}, "
            f"{self._log.position})>"
        )

    # --- appending

    @trio.lowlevel.enable_ki_protection
    def put(self, message: MessageToStore) -> PutResult:
        """Append one message and put it into its queue.

        Never raises because of a message or a disk: the status says what happened.
        """
        return self._appender.put(message)

    @trio.lowlevel.enable_ki_protection
    def put_batch(self, message: MessageToStore) -> PutResult:
        """Append the messages of a client's batch in one file, all or none.

        They become consecutive records with consecutive offsets. `message.body` is the
        encoded batch; flag, body, properties and tags code come from its elements.
        Never raises.
        """
        return self._appender.put_batch(message)

    @trio.lowlevel.enable_ki_protection
    def put_together(self, messages: Sequence[MessageToStore]) -> list[PutResult]:
        """Append several messages in one write, all or none; a result for each.

        They become consecutive records of one file. Whether there are enough replicas
        is asked for the first of them. After a crash the log may end between them, but
        never has a later one without an earlier one. Never raises.
        """
        return self._appender.put_together(messages)

    def begin_run(self) -> Run | None:
        """A run for plain messages, to be filled and put before anything else happens.

        None while every message has to be put by itself: with replicas to wait for,
        without space, and with the CRC of properties. With SYNC_FLUSH, `when_durable`
        tells of the end of the run.
        """
        return None if self._replicas is not None else self._appender.begin_run()

    @trio.lowlevel.enable_ki_protection
    def put_run(self, run: Run, born_host: bytes) -> int:
        """Append the messages of a run that came from one host, each for itself.

        Returns how many were, from the first on; the next one is for `put`, which says
        what keeps it out. Never raises.
        """
        return self._appender.put_run(run, born_host)

    def _after_flush(self) -> None:
        self.retention.note_activity()
        if self._is_slave:
            self._replica_log.dispatch_flushed()
        elif self._sync_flush:
            self._appender.dispatch_up_to(self.flushed.value)

    def begin(self) -> None:
        """Let the appends of requests that arrived together wait for one write.

        Only synchronous code may run until `end`: nothing that tells of these appends
        may leave the process before.
        """
        self._log.write_through = False

    @trio.lowlevel.enable_ki_protection
    def end(self) -> None:
        """Hand the appends since `begin` to the operating system.

        Raises `StoreError` when that fails; none of them may be acknowledged then. They
        are written as soon as that works; until then no more messages are accepted.
        """
        self._log.write_through = self.files.write_through
        if self._state.log_problem is None and (error := self._flusher.write_out()) is not None:
            raise error  # with a problem already, nothing was appended since `begin`
        self._flusher.turn_ended()

    def when_durable(self, result: PutResult, tell: Callable[[PutStatus], None]) -> None:
        """`wait_durable` without a task for each put, where `tells_durable` is true.

        `tell` is called once with the status, on the loop's thread, perhaps before this
        returns; it must not raise.
        """
        end = result.physical_offset + result.size
        if result.status is not PutStatus.PUT_OK or self.flushed.value >= end:
            tell(result.status)
        elif self._state.failure is not None or not self._state.open:
            tell(PutStatus.SERVICE_NOT_AVAILABLE)
        else:
            self._flusher.waiters.add(end, tell)

    async def wait_durable(self, result: PutResult, *, wait_store_ok: bool = True) -> PutStatus:
        """Wait until a put is as durable as the settings ask; returns its status.

        Returns PUT_OK at once when there is nothing to wait for or the sender does not
        wait. Otherwise it waits for the sync of SYNC_FLUSH and for the acknowledgements
        of as many slaves as `replicate_to` asks for. FLUSH_DISK_TIMEOUT after
        `sync_flush_timeout`, FLUSH_SLAVE_TIMEOUT after `slave_timeout` (which wins when
        both have passed), SERVICE_NOT_AVAILABLE when the sync failed. Cancelling the
        wait changes nothing.
        """
        status = result.status
        if status is not PutStatus.PUT_OK or not wait_store_ok:
            return status
        began = self._clock.monotonic()
        end = result.physical_offset + result.size
        if self._sync_flush:
            try:
                reached = await self.flushed.wait_reached(
                    end, self.config.sync_flush_timeout / 1000
                )
            except StoreError:
                return PutStatus.SERVICE_NOT_AVAILABLE
            if not reached:
                status = PutStatus.FLUSH_DISK_TIMEOUT
        if self._replicas is not None:
            left = self.config.slave_timeout / 1000 - (self._clock.monotonic() - began)
            if not await self._replicas.wait(end, left):
                status = PutStatus.FLUSH_SLAVE_TIMEOUT
        return status

    @trio.lowlevel.enable_ki_protection
    async def flush(self) -> None:
        """Make everything appended so far durable and write the checkpoint.

        Covers the log and the queues. Raises `StoreError` when the store cannot do it.
        """
        await self._flusher.flush()
        await self._queue_flusher.flush(thorough=True)
        error = self._state.problem
        if error is not None:
            raise error

    async def flush_log(self, position: int) -> None:
        """Make the log durable up to a position.

        Raises `StoreError` when the store cannot do it.
        """
        if self.flushed.value < position:
            await self._flusher.flush()
            if self._state.log_problem is not None:
                raise self._state.log_problem

    async def secure(self, position: int, *, replicated: bool = True) -> None:
        """The barrier in front of all progress that is written down.

        Returns when what rests on the log up to a position cannot be undone any more:
        the log is durable up to there, with `replicated` as many slaves have it as
        `replicate_to` asks for, and what was set aside is written down. Raises
        `StoreError` when that cannot be had now; the progress must not be written then
        and is tried again later.
        """
        await self.flush_log(position)
        replicas = self._replicas if replicated else None
        if replicas is not None and not await replicas.wait(
            position, self.config.slave_timeout / 1000
        ):
            raise StoreError(f"not enough slaves have the log up to {position} yet")
        await self.unreadable.save()

    def is_secure(self, position: int) -> bool:
        """Whether `secure` would have nothing to wait for."""
        return (
            self.flushed.value >= position
            and not self.unreadable.dirty
            and (self._replicas is None or self._replicas.have(position))
        )

    # --- replication

    def replicate_to(self, replicas: Replicas) -> None:
        """Accept puts as a SYNC_MASTER from now on.

        They need the slaves' acknowledgements that the rules of `replicas` ask for.
        """
        if replicas.rules.trivial:
            return
        self._replicas = replicas
        self._state.gate = replicas.gate(lambda: self._log.position, self._clock)

    def become_slave(self) -> None:
        """Refuse puts (SERVICE_NOT_AVAILABLE) from now on.

        The log grows by `append_bytes` alone.
        """
        self._is_slave = True
        self._state.gate = lambda _message: PutStatus.SERVICE_NOT_AVAILABLE

    @property
    def confirm_offset(self) -> int:
        """The position up to which slaves and consumers may see the log.

        Its end; with SYNC_FLUSH the end of what is synced.
        """
        end = self.dispatched.value
        return end if self._state.log_problem is None else min(end, self._log.written)

    @trio.lowlevel.enable_ki_protection
    def append_bytes(self, position: int, data: bytes) -> None:
        """Append bytes of the master's log to a slave's log.

        Raises as `ReplicaLog.append` does, and while log or queues cannot be written.
        """
        problem = self._state.problem
        if problem is not None:
            raise problem
        try:
            self._replica_log.append(position, data)
        except StoreError as error:
            self._state.found(error)
            raise

    async def log_bytes(self, position: int, limit: int) -> bytes | bytearray:
        """Bytes of the log from a position on, at most `limit`, within one file.

        Empty when there are none. A master shows bytes up to the confirm offset. Raises
        `StoreError` when the file cannot be read.
        """
        end = self._log.position if self._is_slave else self.confirm_offset
        return await self.log_bytes_before(end, position, limit)

    def calculate_bit_maps(
        self, bit_map: Callable[[str, Mapping[str, str]], bytes | None] | None
    ) -> None:
        """Set who calculates the bit map of each message, by topic and properties.

        None: nobody. With `enable_consume_queue_ext` queue units point to the bit maps.
        """
        self._dispatcher.bit_map = bit_map

    @trio.lowlevel.enable_ki_protection
    async def delete_topic(self, topic: str) -> None:
        """Drop the queues of a topic, durably. Raises `StoreError`.

        Its records stay in the log, out of reach. Nothing is put into it until this
        returns (SERVICE_NOT_AVAILABLE). Cancelling does not interrupt it.
        """
        deleting = self._state.deleting
        if topic not in self._table.queues and topic not in deleting:
            return
        deleting[topic] += 1
        try:
            with trio.CancelScope(shield=True):
                async with self._checkpoint.turn:
                    files, log, table = self.files, self._log, self._table
                    await delete_queues(topic, files, log, table, self._checkpoint, self._deleted)
        finally:
            deleting[topic] -= 1
            if not deleting[topic]:
                del deleting[topic]
