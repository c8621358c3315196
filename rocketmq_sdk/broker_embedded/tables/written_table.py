"""Base of the tables of topics and groups: a change is written or undone.

Apache (`ConfigManager`) changes its table, fails to write, logs that and goes on with
what a restart forgets. Here a change whose write fails is undone, so that nothing is
acknowledged that depends on it; the caller tries again.

While `run` runs, changes are written by it, beside the loop and all of them together
that came meanwhile. A request that made such a change, or that looked up a value which
is not in the file yet, is answered only after the write, or with its error
(`Unwritten`). Otherwise a change is written at once, and `StoreError` is raised.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import trio

from rocketmq_sdk.broker_embedded.store.services import OnCall
from rocketmq_sdk.broker_embedded.tables.table_file import DiskFile
from rocketmq_sdk.errors import StoreError
from rocketmq_sdk.protocol.bodies.topics import DataVersion

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from rocketmq_sdk.broker_embedded.tables.table_file import TableFile
    from rocketmq_sdk.broker_embedded.tables.unwritten import Unwritten
    from rocketmq_sdk.clock import Clock
    from rocketmq_sdk.protocol.json.dialect import Written

Value = TypeVar("Value")
Undo = tuple[dict[str, Any], str, Any]
logger = logging.getLogger(__name__)


class _Write:
    """Changes that are written together: how to undo them, and whether they are."""

    __slots__ = ("done", "error", "undo", "version")

    def __init__(self, version: DataVersion) -> None:
        self.version = version
        """The version of the table before the changes."""
        self.undo: list[Undo] = []
        self.done = trio.Event()
        self.error: StoreError | None = None

    async def wait(self) -> None:
        """Wait for the end of the write. Raises `StoreError` when it failed."""
        await self.done.wait()
        if self.error is not None:
            raise StoreError(str(self.error)) from self.error


class WrittenTable(ABC, Generic[Value]):
    """Values by name, the version that others compare, and the file of both.

    Not safe for use from several threads.
    """

    def __init__(
        self,
        config_file: TableFile | None,
        clock: Clock,
        table: dict[str, Value],
        unwritten: Unwritten | None = None,
    ) -> None:
        self._file = config_file
        self._clock = clock
        self._table = table
        self._unwritten = unwritten
        self.data_version = DataVersion(0, clock.now_ms(), 0)
        # What the file holds of each value, so that one more among thousands costs
        # little.
        self._texts: dict[str, Written] = {}
        self._written: dict[str, Value] = {}
        self._together = self._changed = False
        self._undo: list[Undo] = []
        self._running = False
        self._next: _Write | None = None
        self._under_way: _Write | None = None
        self._wake = trio.Event()
        self._on_call = OnCall()
        self._lock = trio.Lock()
        self._pending: set[str] = set()
        """Names whose values are not in the file yet."""

    @abstractmethod
    def _text(self, name: str, value: Value) -> Written:
        """What the file holds of a value."""

    @abstractmethod
    def _content(self, texts: Mapping[str, Written]) -> dict[str, object]:
        """What the file holds in all."""

    def _after_write(self) -> None:
        """Called when changes are in the file."""

    @contextmanager
    def together(self) -> Iterator[None]:
        """Write all changes of the block once, at its end or soon after it.

        For synchronous blocks; an inner block counts as part of the outer one. When the
        block raises, all its changes are undone, and so they are when the file cannot
        be written; that raises `StoreError`, here or where `Unwritten` is waited for.
        """
        if self._together:
            yield
            return
        self._together, version = True, self.data_version
        try:
            yield
            if self._changed:
                self._write(version)
        except BaseException:
            self._take_back(version, self._undo)
            raise
        finally:
            self._together, changed, self._changed = False, self._changed, False
            self._undo = []
        if changed and not self._running:
            self._after_write()

    def _write(self, version: DataVersion) -> None:
        """Write the changes of a block, now or by the task of `run`."""
        if not self._running:
            self.persist()
            return
        write = self._next
        if write is None:
            write = self._next = _Write(version)
            self._wake.set()
            self._on_call.call()
        write.undo += self._undo
        self._pending.update(name for _table, name, _before in self._undo)
        self._touch()

    def _touch(self) -> None:
        """What is done now depends on changes that are not in the file yet."""
        if self._unwritten is not None:
            self._unwritten.touched = True

    def _take_back(self, version: DataVersion, undo: list[Undo]) -> None:
        self.data_version = version
        for table, name, before in reversed(undo):
            self._written.pop(name, None)
            if before is None:
                table.pop(name, None)
            else:
                table[name] = before

    def _swap(self, table: dict[str, Any], name: str, value: object | None) -> None:
        """Set or remove (None) a value in one of the tables; within `together`."""
        self._undo.append((table, name, table.get(name)))
        if value is None:
            table.pop(name, None)
        else:
            table[name] = value

    def _count_change(self) -> None:
        """The values that were swapped are one more change; within `together`."""
        self.data_version = self.data_version.next(self._clock.now_ms())
        self._changed = True

    def _replace_all(self, table: Mapping[str, Value], version: DataVersion) -> None:
        """Make the table that of a master, with its version; within `together`."""
        for name in self._table.keys() - table.keys():
            self._swap(self._table, name, None)
        for name, value in table.items():
            if self._table.get(name) != value:
                self._swap(self._table, name, value)
        self.data_version = version
        self._changed = True

    def _change(self, name: str, value: Value | None) -> None:
        """Set or remove (None) one value and write; on `StoreError` nothing changes."""
        with self.together():
            self._swap(self._table, name, value)
            self._count_change()

    def _snapshot(self) -> dict[str, object]:
        """What the file has to hold now; nothing of it changes later."""
        texts, before = self._texts, self._written
        for name, value in self._table.items():
            if before.get(name) is not value:
                texts[name] = self._text(name, value)
        for name in texts.keys() - self._table.keys():
            del texts[name]
        self._written = dict(self._table)
        return self._content(dict(texts))

    def persist(self) -> None:
        """Write the file. Raises `StoreError`."""
        if self._file is not None:
            self._file.store(self._snapshot())

    # Beside the loop

    def unwritten_change(self) -> _Write | None:
        """The write that brings all changes up to now into the file; None when they
        are there.
        """
        return self._next or self._under_way

    def begin(self) -> OnCall:
        """What `run` is called by, which writes changes from now on."""
        self._running = True
        return self._on_call

    async def run(self) -> None:
        """Write changes as they come, until cancelled."""
        self._running = True
        try:
            while True:
                await self._wake.wait()
                self._wake = trio.Event()
                await self.save()
        finally:
            self._running = False

    def has_to_save(self) -> bool:
        """Whether `save` has to write, or to wait for what is being written."""
        return self._next is not None or self._lock.locked()

    async def save(self) -> None:
        """Write what is not written yet; what cannot be written is undone."""
        file = self._file
        if not isinstance(file, DiskFile):
            return
        async with self._lock:
            write = self._next
            if write is None:
                return
            self._next, self._under_way = None, write
            told = self._begin_write()
            try:
                await file.save_briefly(self._snapshot())
            except StoreError as error:
                self._undo_writes(write, error)
            except Exception as error:
                reason = StoreError(f"{type(error).__name__}: {error}")
                self._undo_writes(write, reason)
                raise
            except BaseException:
                # Cancelled before it was begun or after: written again or undone by
                # whoever comes next.
                self._next, self._under_way = self._joined(write), None
                raise
            else:
                self._under_way = None
                self._pending = (
                    set() if self._next is None else {name for _, name, _ in self._next.undo}
                )
                try:
                    self._wrote(told)
                finally:
                    write.done.set()

    def _begin_write(self) -> list[Value]:
        """Take what `_wrote` is given when the changes up to now are in the file."""
        return []

    def _wrote(self, _told: list[Value]) -> None:
        """Changes are in the file, by the task of `run`."""

    def _joined(self, write: _Write) -> _Write:
        later = self._next
        if later is not None:
            write.undo += later.undo
            later.undo = write.undo
            later.version = write.version
            return later
        return write

    def _undo_writes(self, write: _Write, error: StoreError) -> None:
        """A write failed: its changes never were, nor those that were made since."""
        logger.error("changes could not be written and are undone: %s", error)
        writes = [write] if self._next is None else [write, self._next]
        self._next = self._under_way = None
        self._take_back(write.version, [change for one in writes for change in one.undo])
        self._pending = set()
        for one in writes:
            one.error = error
            one.done.set()
