"""The key index of a store: its files, what goes into them, and lookups.

`IndexService` of Apache RocketMQ 5.4.0. A put only notes the message; the entries are
made in batches: when many have gathered and nobody waits for what came (`when_idle`),
by the flush service, or at a lookup. The files are written when much has gathered or
everything has to become durable. What is lost with a kill is rebuilt from the log.

Apache's rule after a kill is kept: files whose last message is newer than the
checkpoint's index time are dropped. Here a file that is not full is dropped too,
because nothing proves that it is durable. What is then missing is rebuilt completely,
not only from where the recovery of the log happens to begin (which Apache does only
with `messageIndexSafe`), and so is an index that was deleted. Where index files cannot
be written or synced, no more than a bounded part of the index waits in memory: what
comes later, or was not synced, is left out, and built from the log when that works.
"""

from __future__ import annotations

import logging
import math
from contextlib import suppress
from datetime import datetime
from typing import TYPE_CHECKING, Final

import trio

from rocketmq_sdk.broker_embedded.store.index.entries import EntryMaker
from rocketmq_sdk.broker_embedded.store.index.file import (
    IndexFile,
    file_size,
    require_size,
    sizes_in,
)
from rocketmq_sdk.broker_embedded.store.index.keys import key_hash
from rocketmq_sdk.broker_embedded.store.index.noted import (
    MOST_NOTED_CHARACTERS,
    NotedBatch,
    Waiting,
    work_of,
)
from rocketmq_sdk.broker_embedded.store.services import OnCall
from rocketmq_sdk.errors import StoreError
from rocketmq_sdk.protocol.flags import SysFlag

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rocketmq_sdk.broker_embedded.store.config import StoreConfig
    from rocketmq_sdk.broker_embedded.store.files.checkpoint import Checkpoint
    from rocketmq_sdk.broker_embedded.store.files.file_system import FileSystem
    from rocketmq_sdk.broker_embedded.store.index.keys import Alike
    from rocketmq_sdk.broker_embedded.store.log.record import RecordHead
    from rocketmq_sdk.clock import Clock

_log = logging.getLogger(__name__)
DIRECTORY: Final = "index"
_NAME_DIGITS: Final = 17
AFTER_ALL: Final = ":"
"""What comes after the name of every file."""
_WORK_PER_SLICE: Final = 50
_WORK_PER_CHUNK: Final = 256
_ALONE: Final = 8
"""The work for a message that came alone, beside those of a batch."""
_SOME: Final = 16
"""Messages that came alone and are worth to be indexed together."""
_LOOK_EVERY: Final = 64
"""Slices between two looks at how much waits."""
_WRITE_AT_BYTES: Final = 1024 * 1024
_LOOKUP_WAIT: Final = 3.0
"""Seconds that a lookup waits while the index is being built; clients wait longer."""
_MOST_NOTED: Final = 20_000
_MOST_UNWRITTEN_BYTES: Final = 8 * 1024 * 1024
_MOST_UNWRITTEN_FILES: Final = 3
"""How much may wait in memory for an index that cannot be written."""


def is_indexed(sys_flag: int) -> bool:
    """Whether a record gets entries; rollback marks of transactions do not."""
    return sys_flag & SysFlag.TRANSACTION_ROLLBACK != SysFlag.TRANSACTION_ROLLBACK


class IndexService:
    """The index of one store. Belongs to the store's thread.

    An append pays only for `note`; everything else happens later.
    """

    def __init__(
        self, files: FileSystem, config: StoreConfig, clock: Clock, checkpoint: Checkpoint
    ) -> None:
        self.directory = DIRECTORY
        self.enabled = config.message_index_enable
        self._store_files = files
        self._clock = clock
        self._checkpoint = checkpoint
        self._slot_count, self._capacity = sizes_in(files, config)
        self._pending = Waiting()
        self._entries = EntryMaker(self._current, self._roll)
        self._unsynced: list[IndexFile] = []
        self._directory_changed = self._removed = False
        self._building = trio.Lock()
        self._synced_timestamp = 0
        self._sync_failure: StoreError | None = None
        self.files: list[IndexFile] = []
        self.loading_at: int | None = None
        """The time while the store loads, in a thread that cannot ask the clock."""
        self.next_position = 0
        """Records below this position are in the index."""
        self.complete = False
        """Whether the index may reach as far as the log did at the last stop."""
        self.noting = False
        """Whether messages note themselves: the index is on, and lacks nothing."""
        self.lacks_from: int | None = None
        """The first position whose record may be missing; None for a complete index."""
        self._end = 0
        self._whole, self._soon = trio.Event(), False
        self.behind, self.on_behind = trio.Event(), OnCall()
        """Set and called when something is missing that was not before."""
        self.when_idle: Callable[[Callable[[], None]], bool] = lambda _call: False
        """Has something short called as soon as nobody waits for what is done now.

        False, and nothing is called, where that cannot be told.
        """
        self.on_roll: Callable[[], None] = lambda: None
        """Called when one more file was begun."""

    # --- loading and recovery

    def load(self, *, clean: bool, lacks_from: int | None = None, missing: str = AFTER_ALL) -> None:
        """Find the files.

        `lacks_from` is the position from which on records were missing at a clean stop;
        what was added behind it since is dropped, and so are files behind the one that
        is `missing` since that stop. Raises `StoreError`, `StoreCorruptError`.
        """
        entries = self._store_files.file_sizes(DIRECTORY)
        durable, sound, dropped = True, missing == AFTER_ALL, list[IndexFile]()
        if not sound:
            _log.error("%s/%s is missing; it is built again from the log", DIRECTORY, missing)
        for name, size in entries:
            path = f"{DIRECTORY}/{name}"
            if not (name.isascii() and name.isdecimal()):
                _log.warning("%s is no index file; left alone", path)
                continue
            if size == 0:
                self._store_files.remove(path)
                continue
            require_size(path, size, self._slot_count, self._capacity)
            durable = durable and name < missing
            file = IndexFile(self._store_files.open(path), name, self._slot_count, self._capacity)
            try:
                file.load()
            except StoreError as error:  # damaged, or the disk does not give it
                _log.error(
                    "%s; it is removed with those behind it, and the index is built again from "
                    "the log",
                    error,
                )
                durable = sound = False
            durable = durable and (
                clean or (file.full and file.end_timestamp <= self._checkpoint.index_timestamp)
            )
            (self.files if durable else dropped).append(file)
        # The newest first: after a death in the middle nothing is behind a gap.
        for file in reversed(dropped):
            self._remove(file)
            self.make_removals_durable()
        vouched = self._checkpoint.index_timestamp
        lost = any(file.end_timestamp <= vouched for file in dropped)
        self._resume(lost=lost or vouched > (self.files[-1].end_timestamp if self.files else 0))
        lacking = clean and lacks_from is not None
        if lacking and lacks_from is not None and not self.truncate(lacks_from):
            self.next_position = max(self.next_position, lacks_from)
        if self.enabled and self.files:
            self.files[-1].prepare()
        self.complete = (
            clean and sound and not lacking and bool(self.files) and not self.files[-1].full
        )

    def _resume(self, *, lost: bool = False) -> None:
        """Continue after the last entry, whose record may lack some.

        With `lost`, files are gone that the checkpoint may vouch for.
        """
        if lost:
            self._checkpoint.forget_index(self.files[-1].end_timestamp - 1 if self.files else 0)
        self._pending.clear()
        self.next_position = self.files[-1].end_offset if self.files else 0
        self._entries.start_behind(self.next_position)
        for file in reversed(self.files):
            if file.end_offset == self.next_position:
                count = file.entries_at_end()
                self._entries.made += count
                if count == file.count - 1:
                    continue
            break

    async def add_all(self, heads: list[RecordHead]) -> None:
        """Index records found in the log, those that are not yet. Raises `StoreError`.

        Nothing is missing in front of what was added, even if it then raises.
        """
        async with self._building:
            if self._sync_failure is not None:
                raise self._sync_failure
            work = 0
            for head in heads:
                self._add(head)
                self.lacks_from = head.position + head.size
                work += work_of(1, len(head.properties))
                if work >= _WORK_PER_SLICE:
                    work = 0
                    await trio.lowlevel.checkpoint()

    def _add(self, head: RecordHead) -> None:
        if head.position >= self.next_position:
            if is_indexed(head.sys_flag):
                self._entries.make(
                    head.topic,
                    head.properties.decode("utf-8", "replace"),
                    head.position,
                    head.store_timestamp,
                )
            elif not self.files:
                self._current()
            self.next_position = head.position + 1

    def end_at(self, end: int, known_from: int) -> None:
        """Settle what is missing, once recovery has found the end of the log.

        Files that reach behind it are dropped. A complete index may lack records from
        `known_from` on. Raises `StoreError`.
        """
        if self.truncate(end) or not self.complete:
            known_from = 0
        lacks_from = max(self.next_position, known_from)
        self._end = end
        self.lacks_from = lacks_from
        if lacks_from >= end or not self.enabled:
            self.completed()
        else:
            self._fell_behind()

    def completed(self) -> None:
        """Let messages note themselves from now on; nothing is missing."""
        if self.enabled:
            self.lacks_from = None
            self.noting = True
        self._whole.set()

    def cope(self, end: int) -> None:
        """Bound what waits in memory, after `flush` has failed.

        When there is too much, or a sync has failed, what was noted is left out, and
        what comes: the log has it. `end` is the position up to which messages were
        noted. Whoever waits for `behind` builds what is then missing.
        """
        if not self.noting or not (
            self.overdue or self.is_too_slow or self._sync_failure is not None
        ):
            return
        self.next_position = self.lacks_from = self._pending.first_position(end)
        self._pending.clear()
        self.noting = False
        self._whole = trio.Event()
        self._fell_behind()

    def _fell_behind(self) -> None:
        self.behind.set()
        self.on_behind.call()

    async def mend(self) -> None:
        """Remove what a failed sync may have damaged, and write what waits in memory.

        Comes before `add_all`. Raises `StoreError`.
        """
        async with self._building:
            if self._sync_failure is not None:
                for file in reversed(self._unsynced.copy()):
                    if file in self.files:
                        self.files.remove(file)
                    self._remove(file)
                self.make_removals_durable()
                self._resume()
                self.lacks_from = min(self.next_position, self.lacks_from or 0)
                self._sync_failure = None
        await self.flush(thorough=False)

    @property
    def sync_failure(self) -> StoreError | None:
        """Why a sync failed whose files `mend` has not removed yet."""
        return self._sync_failure

    def indexed_up_to(self, end: int) -> int:
        """Below which position messages are in the index, files and memory together.

        `end` is the position up to which messages were noted; 0 without an index.
        """
        if not self.enabled:
            return 0
        if self.lacks_from is not None:
            return self.lacks_from
        return self._pending.first_position(end)

    @property
    def overdue(self) -> bool:
        """Whether more waits in memory than may."""
        unwritten = [file for file in self._unsynced if file.changed]
        return (
            self.pending > _MOST_NOTED
            or len(unwritten) > _MOST_UNWRITTEN_FILES
            or sum(file.unwritten_bytes for file in unwritten) > _MOST_UNWRITTEN_BYTES
        )

    @property
    def is_too_slow(self) -> bool:
        """Whether messages come with more to index than the loop has time for."""
        return self._pending.characters > MOST_NOTED_CHARACTERS

    async def wait_complete(self, timeout: float = math.inf) -> bool:
        """Wait until nothing is missing; False after `timeout` seconds."""
        with trio.move_on_after(timeout):
            await self._whole.wait()
        return self._whole.is_set()

    def truncate(self, end: int) -> bool:
        """Drop the files that know records at or after a position.

        Returns whether there were any; the index is then rebuilt from `next_position`
        on. Raises `StoreError`.
        """
        dropped = False
        while self.files and self.files[-1].count > 1 and self.files[-1].end_offset >= end:
            self._remove(self.files.pop())
            dropped = True
        if dropped:
            self.make_removals_durable()
            self._resume(lost=True)
        return dropped

    def make_removals_durable(self) -> None:
        """Make removed files stay removed, before others are built in their place.

        A file dropped with the end of a log, or with one before it that is damaged,
        must not come back beside what is built then. Raises `StoreError`.
        """
        if self._removed:
            self._store_files.sync_directory(DIRECTORY)
            self._removed = False

    def take_before(self, min_position: int) -> list[IndexFile]:
        """Take out the oldest files, which know no record from a position on.

        The last file always stays. The caller removes the files.
        """
        count = 0
        while count < len(self.files) - 1 and self.files[count].end_offset < min_position:
            count += 1
        return self._take(count)

    def take_above(self, most: int) -> list[IndexFile]:
        """Take out the oldest files where all take more than so many bytes.

        As `take_before` otherwise.
        """
        left = max(1, most // file_size(self._slot_count, self._capacity))
        return self._take(len(self.files) - left)

    def _take(self, count: int) -> list[IndexFile]:
        taken = self.files[: max(0, count)]
        del self.files[: len(taken)]
        self._unsynced = [file for file in self._unsynced if file not in taken]
        return taken

    def _remove(self, file: IndexFile) -> None:
        file.remove()
        self._directory_changed = self._removed = True
        if file in self._unsynced:
            self._unsynced.remove(file)

    # --- building

    def _current(self) -> IndexFile:
        if not self.files:
            return self._create(None)
        file = self.files[-1]
        if file.full:
            return self._roll(file)
        if not file.changed and file not in self._unsynced:
            self._unsynced.append(file)
        return file

    def _roll(self, file: IndexFile) -> IndexFile:
        following = self._create(file)
        try:
            file.write_out()
            file.release()
        except StoreError as error:
            _log.warning("the index file %s stays in memory: %s", file.name, error)
        return following

    def _create(self, before: IndexFile | None) -> IndexFile:
        # In local time, as Apache does.
        moment = self._clock.now_ms() if self.loading_at is None else self.loading_at
        name = f"{datetime.fromtimestamp(moment // 1000):%Y%m%d%H%M%S}{moment % 1000:03d}"
        if before is not None:
            # A clock that is set back must not change the order of the files.
            name = max(name, f"{int(before.name) + 1:0{_NAME_DIGITS}d}")
        file = IndexFile.create(
            self._store_files, f"{DIRECTORY}/{name}", self._slot_count, self._capacity, before
        )
        self.files.append(file)
        self._unsynced.append(file)
        self._directory_changed = True
        if before is not None:
            self.on_roll()
        return file

    def note(self, message: tuple[str, str, int, int]) -> None:
        """Give a message to the index: topic, properties, position, store time.

        Messages come in the order of their positions.
        """
        pending = self._pending
        pending.append(message)
        if len(pending) >= _SOME and not self._soon:
            self._soon = self.when_idle(self._catch_up)

    def note_batch(
        self,
        topic: str,
        properties: Sequence[bytes],
        positions: Sequence[int],
        store_timestamp: int,
        same: Alike | None = None,
    ) -> None:
        """`note` for the messages of a batch, with the bytes of their properties.

        `same` is what `alike` says of these, where it has been asked.
        """
        self._pending.add_batch(topic, properties, positions, store_timestamp, same)
        if self._pending.many and not self._soon:
            self._soon = self.when_idle(self._catch_up)

    @property
    def pending(self) -> int:
        """Messages noted and not indexed yet."""
        return self._pending.messages

    def drain(self, most: int | None = None) -> None:
        """Index noted messages until that was so much work at least.

        Raises `StoreError`; the messages then stay noted.
        """
        pending = self._pending
        done = 0
        while pending and (most is None or done < most):
            noted = pending[0]
            if isinstance(noted, NotedBatch):
                self._entries.make_batch(noted)
                done += noted.work
            else:
                self._entries.make(*noted)
                done += work_of(1, len(noted[1]))
            pending.popleft()

    def _catch_up(self) -> None:
        """Index what waits, about as much as comes with one chunk.

        Only what takes a moment and cannot fail: `drain` does the rest, such as to go
        on to another file, and what waits behind that.
        """
        self._soon, done = False, 0
        pending, files = self._pending, self.files
        if not files:
            with suppress(StoreError):  # `drain` tells of it
                self._create(None)
        while pending and done < _WORK_PER_CHUNK and files and (room := files[-1].room):
            noted = pending[0]
            if isinstance(noted, NotedBatch):
                joined, count = pending.joined(noted, _WORK_PER_CHUNK, files[-1].seconds)
                if not self._entries.make_at_once(joined):
                    return
                done += joined.work
                pending.drop(count)
            elif len(noted[1]) < room:  # more than entries
                self._entries.make(*noted)
                done += _ALONE * work_of(1, len(noted[1]))
                pending.popleft()
            else:
                return

    async def drain_in_slices(self) -> None:
        """Index all noted messages; lets other tasks run in between.

        Ends early when more comes than can be indexed; `cope` is for that. Raises
        `StoreError`.
        """
        slices = 0
        async with self._building:
            while self._pending:
                self.drain(_WORK_PER_SLICE)
                if self._pending:
                    await trio.lowlevel.checkpoint()
                slices += 1
                if slices % _LOOK_EVERY == 0 and self.is_too_slow:
                    return

    # --- writing

    async def flush(self, *, thorough: bool) -> None:
        """Index what is noted and write out entries when many have gathered.

        With `thorough`, writes and syncs everything. Raises `StoreError`.
        """
        if self._pending:
            await self.drain_in_slices()
        async with self._building:
            for file in list(self._unsynced):
                if file.changed and (thorough or file.full):
                    for _ in file.writing():
                        await trio.lowlevel.checkpoint()
                    if file.full:
                        file.release()
                elif file.unwritten_bytes >= _WRITE_AT_BYTES:
                    file.write_entries()
                    await trio.lowlevel.checkpoint()
        if self._sync_failure is not None:
            raise self._sync_failure
        if thorough:
            await self._sync()
            # Files are distinguished by time, so the time of a full file counts only
            # when no other file can end with the same time.
            if self.files and self.files[-1].end_timestamp > self._synced_timestamp:
                self._checkpoint.index_timestamp = max(
                    self._checkpoint.index_timestamp, self._synced_timestamp
                )

    async def _sync(self) -> None:
        chosen = [file for file in self._unsynced if not file.changed]
        full = [file for file in chosen if file.full]
        directory_changed, self._directory_changed = self._directory_changed, False
        if not chosen and not directory_changed:
            return
        store_files = self._store_files

        def sync() -> None:
            for file in chosen:
                file.file.sync()
            if directory_changed:
                store_files.sync_directory(DIRECTORY)
                store_files.sync_directory(".")

        try:
            await store_files.run(sync)
        except StoreError as error:
            # What was written before may never reach the disk; `mend` removes it.
            self._sync_failure = error
            raise
        self._unsynced = [file for file in self._unsynced if file not in chosen or file.changed]
        for file in full:
            file.release()
            self._synced_timestamp = max(self._synced_timestamp, file.end_timestamp)

    def close(self) -> None:
        """Close all descriptors."""
        for file in self.files:
            file.close()

    # --- looking up

    async def positions(self, text: str, limit: int, begin: int, end: int) -> list[int]:
        """Positions of records by the text of an entry, newest first.

        Only hashes are compared. Raises `StoreError`.
        """
        if not self._whole.is_set() and not await self.wait_complete(_LOOKUP_WAIT):
            raise StoreError(
                f"the index is being built and has the log up to {self.lacks_from} of "
                f"{self._end}; ask again later, or for a message id"
            )
        await self.drain_in_slices()
        found: list[int] = []
        value = key_hash(text)
        for file in reversed(self.files.copy()):
            if file.covers(begin, end):
                try:
                    for _ in file.select(value, limit, begin, end, found):
                        await trio.lowlevel.checkpoint()
                except StoreError:
                    if file in self.files:
                        raise
            if file.begin_timestamp < begin or len(found) >= limit:
                break
        return found

    @property
    def last_update(self) -> tuple[int, int]:
        """Store time and position of the last message in the index."""
        return (self.files[-1].end_timestamp, self.files[-1].end_offset) if self.files else (0, 0)
