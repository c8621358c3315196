"""Bringing the queues, the index and the checkpoint to the disk.

`FlushConsumeQueueService` of Apache RocketMQ 5.4.0. Missing space for queue units only
interrupts the store's writing: the units are kept and can be rebuilt from the log. A
failed sync ends it, as one of the log does. Nothing ticks: the service sleeps until a
queue gets a unit, and then for its interval.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import trio

from rocketmq_sdk.broker_embedded.store.config import PAGE_SIZE
from rocketmq_sdk.broker_embedded.store.services import OnCall
from rocketmq_sdk.errors import StoreError, StoreFullError
from rocketmq_sdk.sleeper import sleep

if TYPE_CHECKING:
    from rocketmq_sdk.broker_embedded.store.config import StoreConfig
    from rocketmq_sdk.broker_embedded.store.files.checkpoint import Checkpoint
    from rocketmq_sdk.broker_embedded.store.files.file_system import FileSystem
    from rocketmq_sdk.broker_embedded.store.flush.log_flusher import LogFlusher
    from rocketmq_sdk.broker_embedded.store.index.service import IndexService
    from rocketmq_sdk.broker_embedded.store.queues.consume_queue_table import Queue
    from rocketmq_sdk.broker_embedded.store.queues.queue_dispatcher import QueueDispatcher
    from rocketmq_sdk.broker_embedded.store.state import StoreState
    from rocketmq_sdk.clock import Clock

_log = logging.getLogger(__name__)
_QUEUES_PER_SLICE = 64


class QueueFlusher:
    """Writes the queues out by interval and syncs those that grew.

    At the thorough interval it syncs everything, with the checkpoint.
    """

    def __init__(
        self,
        files: FileSystem,
        dispatcher: QueueDispatcher,
        index: IndexService,
        log_flusher: LogFlusher,
        checkpoint: Checkpoint,
        config: StoreConfig,
        clock: Clock,
        state: StoreState,
    ) -> None:
        self._files = files
        self._table = dispatcher.table
        self._dispatched = dispatcher.dispatched
        self._index = index
        self._log_flusher = log_flusher
        self._checkpoint = checkpoint
        self._clock = clock
        self._state = state
        self._interval = config.flush_interval_consume_queue / 1000
        self._least_bytes = config.flush_consume_queue_least_pages * PAGE_SIZE
        self._checkpoint_waits = False
        self._thorough_interval = config.flush_consume_queue_thorough_interval / 1000
        self._thorough_at = 0.0
        self._appended = trio.Event()
        self._busy = trio.Lock()
        self.idle = False
        self._on_call = OnCall()
        self.recovered = False
        """Whether this start needed a recovery.

        The checkpoint is then written soon, so that the next recovery reads less.
        """

    def begin(self) -> OnCall:
        """What `run` is called by from now on; the queues and the index are loaded."""
        self._thorough_at = self._clock.monotonic() + self._thorough_interval
        waits = self._table.dirty or self._table.unsynced
        if self.recovered or waits or self._state.index_problem is not None:
            self._on_call.call()
        self.idle = True
        return self._on_call

    def wake(self) -> None:
        """Tell the flusher that a queue got a unit."""
        self.idle = False
        self._on_call.call()
        self._appended.set()

    @trio.lowlevel.enable_ki_protection
    async def run(self) -> None:
        """Serve until cancelled, or until a sync fails."""
        if self.recovered:
            await sleep(self._interval)
            await self.flush(thorough=True)
            self._thorough_at = self._clock.monotonic() + self._thorough_interval
        while self._state.failure is None:
            if self._state.index_problem is not None:
                pass  # it is tried again, whatever comes
            elif not self._table.dirty and not self._table.unsynced:
                self._appended = trio.Event()
                self.idle = True
                await self._appended.wait()
            elif not self._table.dirty:
                await self._until_appended_or_thorough()
            await sleep(self._interval)
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
        """Write out all units and sync queues with enough of them.

        With `thorough`, syncs all queues. Failures are kept in the store's state, not
        raised.
        """
        async with self._busy:
            await self._flush(thorough)

    async def _flush(self, thorough: bool) -> None:
        timestamp, position = self._state.dispatched_timestamp, self._dispatched.value
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
                await self._settle_names()
                await self._write_checkpoint(timestamp, position)
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
                if dirty:
                    await trio.lowlevel.checkpoint()
        except StoreError as error:
            if self._state.queue_problem is None:
                _log.error(
                    "the store takes no messages until queue units can be written: %s", error
                )
            self._state.queue_problem = error
            self._state.found(error)
            return False
        if self._state.queue_problem is not None:
            _log.warning("queue units can be written again")
            self._state.queue_problem = None
        return True

    async def _settle_names(self) -> None:
        """Make names durable that a process may have made that was killed."""
        if self._table.in_doubt:
            directories = self._table.unsettled()
            await self._files.run(lambda: self._table.sync_directories(directories))
            self._table.in_doubt = False

    async def _flush_index(self, thorough: bool) -> None:
        """Bring the index up to date.

        A failure only prevents a clean stop; the next call tries again, and what waits
        meanwhile is bounded.
        """
        try:
            # What is not thorough writes too little to show that all is well again.
            await self._index.flush(thorough=thorough or self._state.index_problem is not None)
        except StoreError as error:
            if self._state.index_problem is None:
                _log.error("messages cannot be indexed until the index can be written: %s", error)
            self._state.index_problem = error
            self._state.found(error)
            self._index.cope(self._dispatched.value)
            return
        if self._index.is_too_slow:
            self._index.cope(self._dispatched.value)
        if self._state.index_problem is not None:
            if self._index.lacks_from is None:
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
                self._table.unsynced.pop(queue, None)

    async def _write_checkpoint(self, logics_timestamp: int, position: int) -> None:
        checkpoint = self._checkpoint
        if self._log_flusher.flushed.value < position:
            await self._log_flusher.flush()
        try:
            async with checkpoint.turn:
                if self._log_flusher.flushed.value >= position:
                    checkpoint.logics_physical_offset = position
                checkpoint.logics_timestamp = max(checkpoint.logics_timestamp, logics_timestamp)
                checkpoint.physic_timestamp = max(
                    checkpoint.physic_timestamp, self._log_flusher.physic_timestamp
                )
                data = checkpoint.encode()
                await self._files.run(lambda: checkpoint.write(data))
        except StoreFullError as error:
            # The old one is still true; the next round writes the new one.
            if not self._checkpoint_waits:
                _log.warning("the checkpoint is written when there is space again: %s", error)
            self._checkpoint_waits = True
            self._state.found(error)
            return
        self._checkpoint_waits = False
