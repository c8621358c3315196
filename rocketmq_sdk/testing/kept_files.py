"""Files in memory that outlive the broker that has them open.

A broker that stops or is killed leaves them to the next one. `faults` lets single
operations fail or take their time; without faults they cost what memory costs. For
power cuts and threads that take turns there is `faulty_files`.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import trio

from rocketmq_sdk.broker_embedded.store.files.memory_files import MemoryFile, MemoryFileSystem
from rocketmq_sdk.broker_embedded.store.files.os_files import translate
from rocketmq_sdk.testing.faults import Faults, Operation
from rocketmq_sdk.testing.faulty_device import stall
from rocketmq_sdk.testing.stepped_threads import start_stepped

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from rocketmq_sdk.broker_embedded.store.files.file_system import Bytes, Join, Mailbox, Result
    from rocketmq_sdk.testing.directories import FileContent

LIMIT_BYTES = 1 << 30
"""Most bytes that the files hold; `limit_bytes` makes it less."""


class KeptFile(MemoryFile):
    """A file of `KeptFiles`."""

    __slots__ = ("_kept",)

    def __init__(self, files: KeptFiles, path: str) -> None:
        super().__init__(files, path)
        self._kept = files

    def pread(self, size: int, offset: int) -> bytes:
        """Up to `size` bytes. Raises `StoreError` for a fault."""
        if self._kept.faults:
            size = self._kept.meet(Operation.READ, self.path, offset, size)
        return super().pread(size, offset)

    def pread_nowait(self, size: int, offset: int) -> bytes | None:
        """Same as `pread`; None where a fault waits for the reader."""
        if self._kept.faults and self._kept.faults.waits(self.path, offset, size):
            return None
        return self.pread(size, offset)

    def pwrite(self, data: Bytes, offset: int) -> None:
        """Write all of `data`. Raises `StoreError` for a fault."""
        if self._kept.guarded and not self._kept.admits(
            Operation.WRITE, self.path, offset, len(data)
        ):
            return
        super().pwrite(data, offset)

    def allocate(self, offset: int, length: int) -> None:
        """Reserve bytes. Raises `StoreError` for a fault."""
        if self._kept.guarded and not self._kept.admits(
            Operation.ALLOCATE, self.path, offset, length
        ):
            return
        super().allocate(offset, length)

    def truncate(self, size: int) -> None:
        """Cut or extend. Raises `StoreError` for a fault."""
        if self._kept.guarded and not self._kept.admits(Operation.TRUNCATE, self.path):
            return
        super().truncate(size)

    def sync(self) -> None:
        """Nothing to do. Raises `StoreError` for a fault."""
        if self._kept.guarded:
            self._kept.admits(Operation.SYNC, self.path)


class KeptFiles(MemoryFileSystem):
    """Files in memory for one broker after the other."""

    description = "the memory store"

    def __init__(self, limit_bytes: int = LIMIT_BYTES) -> None:
        super().__init__(limit_bytes, write_through=True)
        self.faults = Faults()
        """What is wrong with this disk."""
        self._dead = False
        self._in_run = False
        self._owed = 0.0

    @property
    def guarded(self) -> bool:
        """Whether writes have to be looked at."""
        return self._dead or len(self.faults) > 0

    def kill(self) -> None:
        """Let nothing have an effect from now on: who has them open is dead."""
        self._dead = True

    def revive(self) -> None:
        """Let the next process in."""
        self._dead = False
        self.unlock()

    def admits(self, operation: Operation, path: str, offset: int = 0, size: int = 0) -> bool:
        """Whether an operation has an effect: not after a kill.

        Raises `StoreError` when it fails, `StoreFullError` when there is no space.
        """
        if self._dead:
            return False
        self.meet(operation, path, offset, size)
        return True

    def meet(self, operation: Operation, path: str, offset: int = 0, size: int = 0) -> int:
        """What of a range an operation gets; raises `StoreError` for a fault."""
        code, delay, room = self.faults.meet(
            operation, path, offset, size, on_loop=not self._in_run
        )
        if delay:
            if self._in_run:
                self._owed += delay
            else:
                stall(delay)
        if code:
            raise translate(OSError(code, os.strerror(code)), path, operation.value)
        return room

    def open(self, path: str) -> KeptFile:
        """The file of that name, created when it is missing."""
        file = self._files.get(path)
        if file is None:
            file = KeptFile(self, path)
            if not self.guarded or self.admits(Operation.CREATE, path):
                self._files[path] = file
        assert isinstance(file, KeptFile)
        return file

    def rename(self, old: str, new: str) -> None:
        """Rename a file. Raises `StoreError` for a fault."""
        if not self.guarded or self.admits(Operation.RENAME, old):
            super().rename(old, new)

    def remove(self, path: str) -> None:
        """Remove a file. Raises `StoreError` for a fault."""
        if not self.guarded or self.admits(Operation.REMOVE, path):
            super().remove(path)

    def sync_directory(self, directory: str) -> None:
        """Nothing to do. Raises `StoreError` for a fault."""
        if self.guarded:
            self.admits(Operation.SYNC_DIRECTORY, directory)

    async def run(self, operation: Callable[[], Result]) -> Result:
        """Run the operation, then wait as long as slow operations in it take."""
        await trio.lowlevel.checkpoint()
        self._in_run = True
        try:
            return operation()
        finally:
            self._in_run = False
            owed, self._owed = self._owed, 0.0
            if owed:
                with trio.CancelScope(shield=True):
                    await trio.sleep(owed)

    def start_thread(self, name: str, work: Callable[[Mailbox], None]) -> tuple[Mailbox, Join]:
        """Start a thread that takes turns with the loop, so in virtual time too."""
        return start_stepped(name, work)

    # Whole states

    def contents(self) -> Iterator[FileContent]:
        """All files; between the pieces there are zeros."""
        for path, file in sorted(self._files.items()):
            pieces = [
                (low, MemoryFile.pread(file, high - low, low))
                for low, high in file.data_ranges(0, file.size())
            ]
            yield path, file.size(), pieces

    def replace_all(self, contents: Iterable[FileContent]) -> None:
        """Hold these files and no others. Nobody may have them open."""
        for file in self._files.values():
            file.release()
        self._files.clear()
        for path, size, pieces in contents:
            file = KeptFile(self, path)
            MemoryFile.truncate(file, size)
            for offset, data in pieces:
                MemoryFile.pwrite(file, data, offset)
            self._files[path] = file
