"""A file system in memory that fails as disks do, to test what survives a crash.

It can stand in for the disk of an embedded broker's message store. Run the store on it,
cut the power in the middle of one operation, open a store on what is left, and check
that everything that was acknowledged is there:

    files = FaultyFileSystem(seed=7)
    files.cut_at = 150
    kept = []
    with contextlib.suppress(StoreError):
        async with MessageStore(config, files, TrioClock(), host) as store:
            while True:
                result = store.put(message(b"%d" % len(kept)))
                if await store.wait_durable(result) is not PutStatus.PUT_OK:
                    break
                kept.append(result)
    found = files.power_cut(seed=3)
    async with MessageStore(config, found, TrioClock(), host) as store:
        assert store.max_offset("orders", 0) >= len(kept)

`cut_at` counts operations; run once without it and read `operations` to learn how many
there are. After the cut, `power_cut` gives what the machine finds when it starts again,
and `kill` what the next process finds when only the process died. The same seeds give
the same end. `faults` lets single operations fail or take their time instead, for
instance reads of a part of one file:

    files.faults.fail(Operation.READ, "commitlog/*", at=range(4096, 8192))
    files.faults.fail(Operation.WRITE, "index/*", code=errno.ENOSPC, times=1)
    files.faults.slow(Operation.READ, delay=0.005)

The model is the weakest that a file system may give. Bytes reach the device page by
page in any order and, without a sync, perhaps never; the size of a file likewise. A
name that was made, changed or removed is certain only after a sync of its directory,
and a directory only after a sync of its parent. A sync that fails forgets pages: they
can still be read, but no later sync brings them to the device.
"""

from __future__ import annotations

import itertools
from random import Random
from typing import TYPE_CHECKING, Any, Final

import trio

from rocketmq_sdk.errors import StoreError, StoreFullError, StoreLockedError
from rocketmq_sdk.testing.disk_model import DirectoryChange, Inode, parent_of
from rocketmq_sdk.testing.faults import Operation
from rocketmq_sdk.testing.faulty_device import FaultyDevice
from rocketmq_sdk.testing.stepped_threads import SteppedThread, start_stepped

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from rocketmq_sdk.broker_embedded.store.files.file_system import Bytes, Join, Mailbox, Result
    from rocketmq_sdk.testing.stepped_threads import SteppedMailbox


_AT_A_TIME: Final = 4
"""How many operations in threads wait for the device at once, as on a disk."""


class FaultyFile:
    """A handle on a file of a `FaultyFileSystem`.

    It follows the name: the first write makes the file.
    """

    __slots__ = ("_files", "_inode", "_removed", "path")

    def __init__(self, files: FaultyFileSystem, path: str) -> None:
        self.path = path
        self._files = files
        self._inode = files.names.get(path)
        self._removed = False

    def _found(self, *, create: bool = False) -> Inode:
        if self._removed:
            raise StoreError(f"{self.path}: the file was removed")
        if self._inode is None:
            self._inode = self._files.names.get(self.path)
        if self._inode is None:
            if not create:
                raise StoreError(f"{self.path} is missing")
            self._inode = self._files.make(self.path)
        return self._inode

    def size(self) -> int:
        """Length in bytes. Raises `StoreError` when the file is missing."""
        return self._found().size

    def pread(self, size: int, offset: int) -> bytes:
        """Up to `size` bytes, as written, durable or not; `StoreError` for a fault."""
        files = self._files
        inode = self._found()
        files.pause()
        size = files.meet(Operation.READ, self.path, offset, size)
        return inode.read(size, offset, files.page_size)

    def pread_nowait(self, size: int, offset: int) -> bytes | None:
        """Same as `pread`; None where a fault waits for the reader."""
        if self._files.faults.waits(self.path, offset, size):
            return None
        return self.pread(size, offset)

    def pwrite(self, data: Bytes, offset: int) -> None:
        """Write at an offset, unless this write is to fail.

        At the cut and for a fault any number of the first bytes is written; where space
        ends, whole pages. Raises `PowerCutError`, `StoreError` or `StoreFullError`.
        """
        files = self._files
        inode = self._found(create=True)
        last = files.step(self.path)
        raw = bytes(data)
        if files.on_write is not None:
            files.on_write(self.path, raw, offset)
        if last:
            files.tear(inode, raw, offset)
            files.die(self.path)
        try:
            files.meet(Operation.WRITE, self.path, offset, len(raw))
        except StoreError:
            files.tear(inode, raw, offset)
            raise
        room = files.charge(inode, offset, len(raw))
        files.overwrite(inode, raw[:room], offset)
        if room < len(raw):
            raise StoreFullError(f"{self.path}: no space to write")

    def allocate(self, offset: int, length: int) -> None:
        """Count the pages of a range as used. Raises `StoreFullError`."""
        self._files.meet(Operation.ALLOCATE, self.path, offset, length)
        if self._files.charge(self._found(create=True), offset, length) < length:
            raise StoreFullError(f"{self.path}: no space to allocate")

    def truncate(self, size: int) -> None:
        """Set the length; new bytes are zeros."""
        files = self._files
        inode = self._found(create=True)
        last = files.step(self.path)
        if not last:
            files.meet(Operation.TRUNCATE, self.path)
        if not last or files.generator.random() < 0.5:
            files.resize(inode, size)
        if last:
            files.die(self.path)

    def data_ranges(self, offset: int, end: int) -> Iterator[tuple[int, int]]:
        """The ranges that were written, page by page."""
        length = self._files.page_size
        for page in sorted(self._found().pages):
            low, high = max(offset, page * length), min(end, (page + 1) * length)
            if low < high:
                yield low, high

    def sync(self) -> None:
        """Make durable what was written before this sync, or before the `run` it is in.

        Does nothing when the file was removed. For a fault it forgets pages and raises
        `StoreError`.
        """
        if self._removed or (self._inode is None and self.path not in self._files.names):
            return
        self._files.sync_inode(self._found(), self.path)

    def hold(self) -> None:
        """Does nothing."""

    def remove(self) -> None:
        """Remove the name."""
        self._removed = True
        self._files.remove(self.path)

    def leave(self) -> None:
        """Do nothing in later syncs."""
        self._removed = True

    def close(self) -> None:
        """Does nothing."""


class FaultyFileSystem(FaultyDevice):
    """A file system in memory with faults.

    A seed and the attributes, which may be changed at any time, choose the faults; as
    they are at first, nothing fails.
    """

    description = "the faulty store"
    write_through = True
    makes_ahead = True
    allocation_limit = 1 << 20

    def __init__(
        self,
        seed: int = 0,
        *,
        page_size: int = 4096,
        limit_bytes: int = 1 << 40,
        now_ms: Callable[[], int] = lambda: 0,
        blocking: bool = False,
    ) -> None:
        super().__init__(seed, page_size=page_size, limit_bytes=limit_bytes, now_ms=now_ms)
        self.blocking = blocking
        """Whether the store is told that reads may wait for a device.

        Old messages are then read inside `run`, as on a disk.
        """
        self.told_used_ratio: float | None = None
        """What `used_ratio` says instead of the truth, 0 to 1; None for the truth."""
        self.on_write: Callable[[str, bytes, int], None] | None = None
        """Callback `(path, data, offset)`; called before each write, failing or not."""
        self.names: dict[str, Inode] = {}
        self._directories: set[str] = set()
        self._durable_names: dict[str, Inode] = {}
        self._durable_directories: set[str] = set()
        self._changes: list[DirectoryChange] = []
        self._locked = False
        self._places = trio.CapacityLimiter(_AT_A_TIME)

    def kill(self) -> FaultyFileSystem:
        """What the next process finds when this one was killed.

        That is everything that was written, durable or not. Returns this object, ready
        to be used again.
        """
        self._dead = self._locked = False
        self.cut_at = None
        return self

    def power_cut(self, seed: int) -> FaultyFileSystem:
        """What the machine finds when it starts again after its power was cut.

        That is all that was durable and a part, chosen by `seed`, of what was not. This
        object does not change; both have the same faults.
        """
        generator = Random(seed)
        left = FaultyFileSystem(
            seed, page_size=self.page_size, limit_bytes=self.limit_bytes, now_ms=self._now_ms
        )
        left.write_back_chance = self.write_back_chance
        left.blocking, left.faults = self.blocking, self.faults
        names, directories = dict(self._durable_names), set(self._durable_directories)
        chance = generator.choice([0.0, 1.0, 0.2, 0.5, 0.8])
        for change in self._changes:
            if generator.random() < chance:
                change.apply(names, directories)
        chance = generator.choice([0.0, 1.0, 0.2, 0.5, 0.9])
        made: dict[int, Inode] = {}
        left._directories = {path for path in directories if self._reachable(path, directories)}
        for path, inode in names.items():
            if self._reachable(path, directories):
                if id(inode) not in made:
                    made[id(inode)] = inode.after_power_cut(generator, chance, self.page_size)
                found = left.names[path] = made[id(inode)]
                found.charged = set(found.pages)
        left._used_pages = sum(len(inode.charged) for inode in made.values())
        left._durable_names = dict(left.names)
        left._durable_directories = set(left._directories)
        return left

    def is_durable(self, path: str, offset: int, size: int) -> bool:
        """Whether these bytes are left as they are now, whatever a power cut loses.

        A store that acknowledges something can be asked at once, without a power cut.
        """
        inode = self.names.get(path)
        return (
            inode is not None
            and self._durable_names.get(path) is inode
            and self._reachable(path, self._durable_directories)
            and not any(
                change.removed and (path == change.removed or path.startswith(change.removed + "/"))
                for change in self._changes
            )
            and inode.is_durable(offset, size, self.page_size)
        )

    @staticmethod
    def _reachable(path: str, directories: set[str]) -> bool:
        parts = path.split("/")[:-1]
        return all(
            parent in directories
            for parent in itertools.accumulate(parts, lambda low, high: f"{low}/{high}")
        )

    # --- names

    def _change(
        self, path: str, *, added: str = "", removed: str = "", inode: Inode | None = None
    ) -> None:
        last = self.step(path)
        if not last or self.generator.random() < 0.5:
            change = DirectoryChange(
                next(self._number), parent_of(path), added=added, removed=removed, inode=inode
            )
            change.apply(self.names, self._directories)
            self._changes.append(change)
        if last:
            self.die(path)

    def make(self, path: str) -> Inode:
        """Make an empty file and the directories that it needs."""
        parts = path.split("/")[:-1]
        for directory in itertools.accumulate(parts, lambda low, high: f"{low}/{high}"):
            if directory not in self._directories:
                self._change(directory, added=directory)
        self.meet(Operation.CREATE, path)
        inode = Inode()
        inode.modified_ms = self._now_ms()
        self._change(path, added=path, inode=inode)
        return inode

    def lock(self) -> None:
        """Become the only user. Raises `StoreLockedError`."""
        if self._locked:
            raise StoreLockedError(f"{self.description} is open already")
        self._locked = True

    def unlock(self) -> None:
        """Let the next user in."""
        self._locked = False

    def open(self, path: str) -> FaultyFile:
        """A handle on a file; the first write makes the file."""
        return FaultyFile(self, path)

    def create(self, path: str, size: int) -> FaultyFile:
        """Make a file of so many zeros, or make an old one that."""
        file = FaultyFile(self, path)
        file.truncate(0)
        file.truncate(size)
        return file

    def exists(self, path: str) -> bool:
        """Whether there is a file or a directory of that name."""
        return path in self.names or path in self._directories

    def file_sizes(self, directory: str) -> list[tuple[str, int]]:
        """Names and sizes of the files in a directory, sorted by name."""
        self.meet(Operation.LIST, directory)
        return sorted(
            (path.rpartition("/")[2], inode.size)
            for path, inode in self.names.items()
            if parent_of(path) == directory
        )

    def directory_names(self, directory: str) -> list[str]:
        """Names of the directories in a directory, sorted."""
        self.meet(Operation.LIST, directory)
        return sorted(
            path.rpartition("/")[2] for path in self._directories if parent_of(path) == directory
        )

    def modified_ms(self, path: str) -> int:
        """When a file was changed last, by `now_ms`; 0 without such a file."""
        inode = self.names.get(path)
        return 0 if inode is None else inode.modified_ms

    def stamp_ms(self) -> int:
        """`now_ms`."""
        return self._now_ms()

    def set_modified_ms(self, path: str, time_ms: int) -> None:
        """Pretend that the file was changed last at that time."""
        self.names[path].modified_ms = time_ms

    def read_ahead(self, directory: str, *, wanted: bool) -> None:
        """Does nothing: nothing is read from a disk."""

    def capacity_bytes(self) -> int:
        """All the space of the device."""
        return self.limit_bytes

    def used_ratio(self) -> float:
        """The part of the space in use, 0 to 1, or `told_used_ratio` when it is set."""
        return (
            self._used_pages * self.page_size / self.limit_bytes
            if self.told_used_ratio is None
            else self.told_used_ratio
        )

    def read(self, path: str) -> bytes | None:
        """The whole content of a file; None without such a file."""
        inode = self.names.get(path)
        return None if inode is None else FaultyFile(self, path).pread(inode.size, 0)

    def write(self, path: str, data: bytes, *, private: bool = False) -> None:  # noqa: ARG002
        """Empty the file, write, sync: three operations, four for a new file."""
        file = FaultyFile(self, path)
        file.truncate(0)
        file.pwrite(data, 0)
        file.sync()

    def rename(self, old: str, new: str) -> None:
        """Rename a file, also over another one, or a directory.

        Raises `StoreError` without it.
        """
        inode = self.names.get(old)
        if old in self._directories:
            self.meet(Operation.RENAME, old)
            self._change(new, added=new, removed=old)
            return
        if inode is None:
            raise StoreError(f"{old} is missing in {self.description}")
        self.meet(Operation.RENAME, old)
        replaced = self.names.get(new)
        self._change(new, added=new, removed=old, inode=inode)
        if replaced is not None and replaced is not inode:
            self.release(replaced, set(replaced.charged))

    def remove(self, path: str) -> None:
        """Remove a file, if there is one."""
        inode = self.names.get(path)
        if inode is not None:
            self.meet(Operation.REMOVE, path)
            self._change(path, removed=path)
            self.release(inode, set(inode.charged))

    def remove_tree(self, directory: str) -> None:
        """Remove a directory: file by file, then the directories."""
        for path in [path for path in self.names if path.startswith(directory + "/")]:
            self.remove(path)
        for path in sorted(
            (
                path
                for path in self._directories
                if path == directory or path.startswith(directory + "/")
            ),
            reverse=True,
        ):
            self._change(path, removed=path)

    def sync_directory(self, directory: str) -> None:
        """Make the changes of names in a directory durable.

        After a failure a later sync does.
        """
        begin = next(self._number)
        self.pause(always=True)
        last = self.step(directory)
        if not last:
            self.meet(Operation.SYNC_DIRECTORY, directory)
        for change in [
            change
            for change in self._changes
            if change.directory == directory and change.number < begin
        ]:
            if last and self.generator.random() < 0.5:
                continue
            change.apply(self._durable_names, self._durable_directories)
            self._changes.remove(change)
            if change.removed and change.is_directory:
                for older in self._changes:
                    if older.number < change.number:
                        older.follow(change)
            elif change.removed:
                self._forget_below(change)
        if last:
            self.die(directory)

    def _forget_below(self, removal: DirectoryChange) -> None:
        """Drop the older changes below a directory whose removal is durable.

        They must not touch a later directory of the same name.
        """
        path, below = removal.removed, removal.removed + "/"
        self._changes = [
            change
            for change in self._changes
            if change.number > removal.number
            or not (change.directory == path or change.directory.startswith(below))
        ]

    async def run(self, operation: Callable[[], Result]) -> Result:
        """Run an operation in a thread; other tasks run between its steps."""
        thread = SteppedThread("operation", operation)
        try:
            with trio.CancelScope(shield=True):
                await self._drive(thread, None)
        finally:
            thread.abandon()
        return thread.result()

    async def _drive(self, thread: SteppedThread[Any], mailbox: SteppedMailbox | None) -> None:
        """Let a thread and the tasks take turns until the thread ends."""
        while not thread.ended:
            if mailbox is not None and mailbox.waiting:
                await mailbox.wait_filled()
            for _ in range(self.generator.randrange(4)):
                await trio.lowlevel.checkpoint()
            delay = self.advance(thread)
            if delay:
                async with self._places:
                    await trio.sleep(delay)

    def start_thread(self, name: str, work: Callable[[Mailbox], None]) -> tuple[Mailbox, Join]:
        """Start a thread; tasks run between its steps."""
        return start_stepped(name, work, self._drive, lambda: self.pause(always=True))
