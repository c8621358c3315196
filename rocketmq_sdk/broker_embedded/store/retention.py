"""Which files are deleted, and when.

`DefaultMessageStore.CleanCommitLogService` and `CleanConsumeQueueService` of Apache
RocketMQ 5.4.0. The log is a chain, so it loses its oldest files first: those that were
not written for `fileReservedTime` hours, at the hours of `deleteWhen`, and at any hour
when the disk is fuller than `diskMaxUsedSpaceRatio`. Above
`diskSpaceCleanForciblyRatio` age does not matter any more, and above
`diskSpaceWarningLevelRatio` messages are refused until there is space. The last file
always stays. Queues and index follow the log.

`RetentionPolicy` decides and touches nothing; `RetentionService` does it.
"""

from __future__ import annotations

import logging
from datetime import datetime
from itertools import pairwise
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

import trio

from rocketmq_sdk.broker_embedded.store.services import OnCall
from rocketmq_sdk.errors import StoreError, StoreFullError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rocketmq_sdk.broker_embedded.store.config import StoreConfig
    from rocketmq_sdk.broker_embedded.store.files.file_system import FileSystem
    from rocketmq_sdk.broker_embedded.store.index.service import IndexService
    from rocketmq_sdk.broker_embedded.store.log.commit_log import CommitLog
    from rocketmq_sdk.broker_embedded.store.memory_retention import MemoryRetention
    from rocketmq_sdk.broker_embedded.store.queues.consume_queue_table import (
        ConsumeQueueTable,
        Queue,
    )
    from rocketmq_sdk.broker_embedded.store.queues.unit_chain import Below
    from rocketmq_sdk.broker_embedded.store.reading.log_readers import LogReaders
    from rocketmq_sdk.broker_embedded.store.state import StoreState
    from rocketmq_sdk.clock import Clock
    from rocketmq_sdk.watermark import Watermark

_log = logging.getLogger(__name__)
FIRST_CHECK_SECONDS: Final = 60
MANUAL_ROUNDS: Final = 20
SHORT_OF_SPACE_SECONDS: Final = 1.0
"""How often the disk is looked at while it is full."""
_HOUR_MS: Final = 3_600_000
_QUARTER_MS: Final = _HOUR_MS // 4
_QUEUES_PER_SLICE: Final = 64


class Removable(Protocol):
    """A file that was taken out of its chain."""

    def remove(self) -> None:
        """Remove it from its directory. Raises `StoreError`."""
        ...


class RetentionDecision(NamedTuple):
    """The result of one check."""

    removals: int
    """How many of the oldest log files to delete."""
    full: bool
    """Whether messages are refused."""


class RetentionPolicy:
    """Decides from numbers alone.

    Ratios are the used part of the disk, times epoch milliseconds.
    """

    __slots__ = (
        "_at_any_hour",
        "_batch",
        "_forcibly",
        "_hours",
        "_may_force",
        "_reserved_ms",
        "_warning",
    )

    def __init__(self, config: StoreConfig) -> None:
        self._reserved_ms = config.file_reserved_time * _HOUR_MS
        self._batch = config.delete_file_batch_max
        self._may_force = config.clean_file_forcibly_enable
        self._hours = frozenset(int(part) for part in config.delete_when.split(";") if part.strip())
        self._at_any_hour = min(max(config.disk_max_used_space_ratio, 10), 95) / 100
        self._forcibly = min(max(config.disk_space_clean_forcibly_ratio, 30), 85) / 100
        self._warning = min(max(config.disk_space_warning_level_ratio, 35), 90) / 100

    def next_due(self, now_ms: int, written_ms: int) -> int | None:
        """When a file with this last write may be deleted for its age.

        Now or later; None if no hour is set.
        """
        moment = max(now_ms, written_ms + self._reserved_ms)
        # Hours of time zones begin at quarters of the epoch's hours.
        for _ in range(100):
            if _local_hour(moment) in self._hours:
                return moment
            moment += _QUARTER_MS - moment % _QUARTER_MS
        return None

    def decide(
        self, now_ms: int, used_ratio: float, written_ms: Sequence[int], *, manual: bool = False
    ) -> RetentionDecision:
        """Decide what to delete and whether messages are refused.

        `written_ms` has the time of the last write of each file but the last, oldest
        first.
        """
        full = used_ratio > self._warning
        at_once = self._may_force and used_ratio > self._forcibly
        count = 0
        if (
            manual
            or _local_hour(now_ms) in self._hours
            or used_ratio > min(self._at_any_hour, self._forcibly)
        ):
            for written in written_ms[: self._batch]:
                if not at_once and not self.is_old(now_ms, written):
                    break
                count += 1
        return RetentionDecision(count, full)

    def is_old(self, now_ms: int, written_ms: int) -> bool:
        """Whether a file with this last write may be deleted for its age."""
        return now_ms >= written_ms + self._reserved_ms

    def needs_space(self, used_ratio: float) -> bool:
        """Whether files are deleted whatever their age."""
        return self._may_force and used_ratio > self._forcibly


def _by_clock(written_ms: int, stamp_ms: int, now_ms: int) -> int:
    """When a file was written by the store's clock, as the file system tells it.

    A file that is written now has `stamp_ms`. That is not `now_ms` when the system's
    clock was set while the store is open, by days perhaps. Whether this file was
    written before that is not always known; then it counts as the younger one.
    """
    if written_ms > now_ms:
        return now_ms - (stamp_ms - written_ms)
    return now_ms - (min(stamp_ms, now_ms) - written_ms)


def _local_hour(moment: int) -> int:
    return datetime.fromtimestamp(moment // 1000).hour


class RetentionService:
    """Checks now and then, and deletes.

    `clean_now` starts a check at once that ignores the hour.
    """

    def __init__(
        self,
        files: FileSystem,
        log: CommitLog,
        table: ConsumeQueueTable,
        index: IndexService,
        config: StoreConfig,
        clock: Clock,
        state: StoreState,
        readers: LogReaders,
        flushed: Watermark,
    ) -> None:
        """`flushed` is up to where the log is durable."""
        self.memory: MemoryRetention | None = None
        """Removes the files of a store in memory."""
        self._files = files
        self._log = log
        self._chain = log.chain
        self._store_time_at: Callable[[int], int] = log.store_time_at
        self._table = table
        self._index = index
        self._clock = clock
        self._state = state
        self._policy = RetentionPolicy(config)
        self._interval = config.clean_resource_interval / 1000
        self._pause = config.delete_commit_log_files_interval / 1000
        self._patience = config.destroy_maped_file_interval_forcibly / 1000
        self._manual_rounds = 0
        self._not_before = 0.0
        self._active = False
        self._news = trio.Event()
        self._blocked_since: float | None = None
        self._followed = 0  # a life before may have left queue files that it could not remove
        self._stuck: dict[str, list[Removable]] = {}
        self._readers = readers
        self._flushed = flushed
        self._checked_at = self._remove_again_at = float("-inf")
        self._on_call = OnCall()
        state.on_full = self.space_needed

    def begin(self) -> OnCall:
        """What `run` is called by from now on; the store is loaded."""
        self._not_before = self._clock.monotonic() + FIRST_CHECK_SECONDS
        if self._files.write_through:
            # The disk may be full, and a life before may have left files behind.
            self._active, self._on_call.after = True, FIRST_CHECK_SECONDS
        elif self._delay() is not None:
            self._on_call.call()
        return self._on_call

    async def run(self) -> None:
        """Serve until cancelled. Sleeps while an idle store has a single log file."""
        while True:
            while (delay := self._delay()) is None or delay > 0:
                self._news = trio.Event()
                with trio.move_on_after(float("inf") if delay is None else delay):
                    await self._news.wait()
            self._active = False
            self._checked_at = self._clock.monotonic()
            self._not_before = self._checked_at + self._interval
            await self.check()
            if self._state.lacks_space:
                soon = self._checked_at + SHORT_OF_SPACE_SECONDS
                self._not_before = min(self._not_before, soon)

    def _delay(self) -> float | None:
        """Seconds until the next check; None means until something happens."""
        delay = max(0.0, self._not_before - self._clock.monotonic())
        files = self._chain.files
        if (
            self._active
            or self._manual_rounds
            or self._state.lacks_space
            or (self._files.blocking and len(files) > 1)
        ):
            return delay
        if len(files) > 1:
            now = self._clock.now_ms()
            try:
                due = self._policy.next_due(now, self._store_time_at(files[1].start))
            except StoreError:
                return delay  # the check meets the same, and tells it
            return None if due is None else max(delay, (due - now) / 1000)
        return None

    def space_needed(self) -> None:
        """Look at once, whether files can be removed: a write found no space."""
        soon = max(self._clock.monotonic(), self._checked_at + SHORT_OF_SPACE_SECONDS)
        if soon < self._not_before:
            self._not_before = soon
            self.note_activity()

    def note_activity(self) -> None:
        """Look at space and age again: something was appended."""
        self._active = True
        self._tell()

    def clean_now(self) -> None:
        """Let the next checks ignore the hour; the first one begins at once.

        `executeDeleteFilesManually` of Apache.
        """
        self._manual_rounds = MANUAL_ROUNDS
        self._not_before = self._clock.monotonic()
        self._tell()

    def _tell(self) -> None:
        self._news.set()
        self._on_call.call()

    def configure(self, config: StoreConfig) -> None:
        """Use other settings of retention from now on."""
        self._policy = RetentionPolicy(config)
        self.note_activity()

    def follow_now(self) -> None:
        """Let a check that begins at once adapt queues and index to the log.

        Also when nothing was deleted since the last one. `cleanExpiredConsumerQueue` of
        Apache.
        """
        self._followed = -1
        self._remove_again_at = float("-inf")
        self._not_before = self._clock.monotonic()
        self.note_activity()

    async def check(self) -> None:
        """One check. Failures are logged; the next check tries again."""
        began = self._clock.monotonic()
        try:
            # Threads have no clock of the loop's.
            now, stamp = self._clock.now_ms(), self._files.stamp_ms()
            written = await self._files.run(lambda: self._written(now, stamp))
            ratio = await self._files.run(self._files.used_ratio)
            manual = self._manual_rounds > 0
            decision = self._policy.decide(now, ratio, written, manual=manual)
            self._manual_rounds = max(0, self._manual_rounds - 1)
            self._active = self._active or decision.removals > 0
            self._set_full(decision.full, ratio)
            if manual or began >= self._remove_again_at:
                self._remove_again_at = began + self._interval * 0.9
                young = [time for time in written if not self._policy.is_old(now, time)]
                await self._remove_oldest(decision.removals, len(written) - len(young))
                await self._follow()
            self._look_for_space()
        except StoreError as error:
            self._active = True
            _log.error("old files cannot be removed: %s", error)

    def _written(self, now: int, stamp: int) -> list[int]:
        """The time of the last write of each file but the last.

        From the file system, or from the first record of the next file.
        """
        files = self._chain.files
        times: list[int] = []
        for file, following in pairwise(files):
            time = self._files.modified_ms(file.file.path)
            time = _by_clock(time, stamp, now) if time else self._store_time_at(following.start)
            if time <= 0:
                break
            times.append(time)
        return times

    def _set_full(self, full: bool, ratio: float) -> None:
        if full != self._state.disk_full:
            self._state.disk_full = full
            if full:
                _log.error(
                    "%d %% of the disk are used: the store takes no messages until there is space",
                    round(ratio * 100),
                )
            else:
                _log.warning(
                    "%d %% of the disk are used: the store takes messages again", round(ratio * 100)
                )

    def _look_for_space(self) -> None:
        """Try whether the log finds space again, after an append did not."""
        if self._state.full is None:
            return
        try:
            self._log.make_room(0)
        except StoreFullError:
            return
        self._state.full = None
        _log.warning("there is space for messages again")

    async def _remove_oldest(self, count: int, old: int) -> None:
        """Delete log files, each durably before the next one.

        Otherwise a crash could leave a gap. Those behind the `old` ones go only as long
        as there is no space. One stays until a part of the next one is durable:
        otherwise a power cut could leave no log at all.
        """
        for number in range(count):
            if self.memory is not None:
                self.memory.take_aged()
                await trio.lowlevel.checkpoint()
                continue
            if number:
                await trio.sleep(self._pause)
                if number >= old and not self._policy.needs_space(
                    await self._files.run(self._files.used_ratio)
                ):
                    return
            files = self._chain.files
            if len(files) < 2 or self._flushed.value <= files[1].start or self._is_read():
                return
            file = self._chain.take_first()
            path = file.file.path
            _log.info("removing %s", path)
            try:
                await self._remove([file.file], self._chain.directory)
            except StoreError:
                # A file that is still there stays readable, and the next check tries
                # again: a log without it would have a gap at the next start.
                self._stuck.pop(self._chain.directory, None)
                if self._files.exists(path):
                    self._chain.put_back(file)
                raise

    def _is_read(self) -> bool:
        """Whether somebody reads in the first file, for not too long yet."""
        first = self._readers.first()
        if first is None or first >= self._chain.files[0].end:
            self._blocked_since = None
            return False
        now = self._clock.monotonic()
        if self._blocked_since is None:
            self._blocked_since = now
        return now - self._blocked_since < self._patience

    async def _remove(self, files: Sequence[Removable], directory: str) -> None:
        """Remove files, the oldest first. Raises `StoreError`.

        Files that cannot be removed stay first in line, so that no gap arises.
        """
        store_files = self._files
        waiting = self._stuck.setdefault(directory, [])
        waiting += files

        def remove() -> None:
            while waiting:
                waiting[0].remove()
                store_files.sync_directory(directory)
                del waiting[0]

        await store_files.run(remove)
        del self._stuck[directory]

    async def _follow(self) -> None:
        """Bring queues and index in line with the oldest log file."""
        minimum = self._chain.min_position
        if minimum <= self._followed or self.memory is not None:
            return
        queues = list(self._table)
        problem: StoreError | None = None
        for start in range(0, len(queues), _QUEUES_PER_SLICE):
            some = queues[start : start + _QUEUES_PER_SLICE]
            for queue, below in zip(some, await self._look_below(some, minimum), strict=True):
                if isinstance(below, StoreError):
                    problem = below  # the next check looks again; the others are done
                elif not queue.removed:
                    files = queue.drop_below(below)
                    if files or queue.directory in self._stuck:
                        await self._remove(files, queue.directory)
            await trio.lowlevel.checkpoint()
        index_files = self._index.take_before(minimum)
        if index_files or self._index.directory in self._stuck:
            await self._remove(index_files, self._index.directory)
        if problem is not None:
            raise problem
        self._followed = minimum

    async def _look_below(self, queues: Sequence[Queue], minimum: int) -> list[Below | StoreError]:
        """What of some queues is below a position of the log, read in a thread."""

        def look() -> list[Below | StoreError]:
            found: list[Below | StoreError] = []
            for queue in queues:
                try:
                    found.append(queue.look_below(minimum))
                except StoreError as error:
                    found.append(error)
            return found

        return await self._files.run(look)
