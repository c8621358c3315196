"""Files in memory, limited in bytes, for a broker without a directory."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeGuard

import trio

from rocketmq_sdk.broker_embedded.store.files.anonymous_memory import zeros
from rocketmq_sdk.broker_embedded.store.files.store_thread import start_thread
from rocketmq_sdk.errors import StoreError, StoreFullError, StoreLockedError

if TYPE_CHECKING:
    import mmap
    from collections.abc import Callable, Iterator

    from rocketmq_sdk.broker_embedded.store.files.file_system import (
        Bytes,
        FileSystem,
        Join,
        Mailbox,
        Result,
    )

CHUNK = 256 * 1024
_LOG = "commitlog/"
_OF_MESSAGES = (
    _LOG,
    "consumequeue/",
    "batchconsumequeue/",
    "consumequeue_ext/",
    "index/",
    "timerlog/",
)


class MemoryFile:
    """A sparse file of chunks.

    Those of the log are whole from the start, and memory of their own. Those of other
    files grow with what is written to them: there are thousands of small ones.
    """

    __slots__ = ("_charged", "_chunks", "_ends", "_files", "_reserved", "_size", "path")

    def __init__(self, files: MemoryFileSystem, path: str, size: int = 0) -> None:
        self.path = path
        self._files = files
        self._size = size
        self._chunks: dict[int, bytearray | mmap.mmap] = {}
        self._ends: dict[int, int] = {}
        """How far each chunk is written."""
        self._charged = 0
        self._reserved = 0

    def size(self) -> int:
        """Length in bytes."""
        return self._size

    def pread(self, size: int, offset: int) -> bytes:
        """Up to `size` bytes; zeros where nothing was written."""
        end = min(offset + size, self._size)
        if end <= offset:
            return b""
        index, inside = divmod(offset, CHUNK)
        if inside + end - offset <= CHUNK:
            return self._piece(index, inside, end - offset)
        parts: list[bytes] = []
        while offset < end:
            index, inside = divmod(offset, CHUNK)
            length = min(CHUNK - inside, end - offset)
            parts.append(self._piece(index, inside, length))
            offset += length
        return b"".join(parts)

    def pread_nowait(self, size: int, offset: int) -> bytes | None:
        """Same as `pread`: memory never waits."""
        return self.pread(size, offset)

    def _piece(self, index: int, inside: int, length: int) -> bytes:
        chunk = self._chunks.get(index)
        found = b"" if chunk is None else bytes(chunk[inside : inside + length])
        return found if len(found) == length else found.ljust(length, b"\0")

    def pwrite(self, data: Bytes, offset: int) -> None:
        """Write all of `data`.

        Raises `StoreFullError`, before anything is written, at the file system's limit.
        """
        length = len(data)
        if not length:
            return
        index, inside = divmod(offset, CHUNK)
        if inside + length > CHUNK:
            view = memoryview(data)
            first = CHUNK - inside
            for start in (0, *range(first, length, CHUNK)):
                self.pwrite(view[start : start + CHUNK] if start else view[:first], offset + start)
            return
        chunk = self._chunks.get(index)
        have = 0 if chunk is None else self._ends[index]
        end = inside + length
        if end > have:
            beyond = offset + length - max(self._reserved, index * CHUNK + have)
            if beyond > 0:
                self._charge(beyond)
            if chunk is None:
                of_log = self.path.startswith(_LOG)
                chunk = self._chunks[index] = zeros(CHUNK) if of_log else bytearray()
            if inside > len(chunk) and isinstance(chunk, bytearray):
                chunk.extend(bytes(inside - len(chunk)))
            self._ends[index] = end
        assert chunk is not None
        chunk[inside:end] = data
        if offset + length > self._size:
            self._size = offset + length

    def allocate(self, offset: int, length: int) -> None:
        """Reserve bytes of the file system's limit up to the end of this range."""
        end = offset + length
        if end > self._reserved:
            self._charge(end - max(self._reserved, offset))
            self._reserved = end

    def _charge(self, count: int) -> None:
        self._files.charge(count, self.path)
        self._charged += count

    def truncate(self, size: int) -> None:
        """Cut or extend to `size` bytes."""
        if size < self._size:
            for index in [index for index in self._chunks if (index + 1) * CHUNK > size]:
                self._cut(index, size - index * CHUNK)
            self._reserved = min(self._reserved, size)
            held = self._reserved
            for index, end in self._ends.items():
                held += max(0, index * CHUNK + end - max(self._reserved, index * CHUNK))
            self._charge(held - self._charged)
        self._size = size

    def _cut(self, index: int, inside: int) -> None:
        """Cut a chunk to its first bytes; without any it goes."""
        chunk, end = self._chunks[index], self._ends[index]
        if inside <= 0:
            del self._chunks[index], self._ends[index]
        elif inside < end:
            if isinstance(chunk, bytearray):
                del chunk[inside:]
            else:
                chunk[inside:end] = bytes(end - inside)
            self._ends[index] = inside

    def data_ranges(self, offset: int, end: int) -> Iterator[tuple[int, int]]:
        """The chunks that exist."""
        for index, written in sorted(self._ends.items()):
            low, high = max(offset, index * CHUNK), min(end, index * CHUNK + written)
            if low < high:
                yield low, high

    def release(self) -> None:
        """Give the bytes back to the file system."""
        self._files.charge(-self._charged, self.path)
        self._charged = self._reserved = 0
        self._chunks.clear()
        self._ends.clear()

    def sync(self) -> None:
        """Does nothing."""

    def hold(self) -> None:
        """Does nothing."""

    def remove(self) -> None:
        """Remove the file from the file system."""
        self._files.remove(self.path)

    def leave(self) -> None:
        """Does nothing: the bytes belong to the file system."""

    def close(self) -> None:
        """Does nothing: the bytes belong to the file system."""


class MemoryFileSystem:
    """Files that live as long as this object; a store can be opened on it again.

    With `write_through` the store hands every append over at once, as on a disk;
    without it, appends are joined, since nothing survives the process. Writes raise
    `StoreFullError` when all files together would hold more than `limit_bytes`. With
    `messages_only` only the files of messages count, and only the log is refused space;
    such files belong to one broker in memory, and no other store is opened on them.
    """

    description = "the memory store"
    blocking = False
    makes_ahead = False

    def __init__(
        self,
        limit_bytes: int = 256 * 1024 * 1024,
        *,
        write_through: bool = False,
        messages_only: bool = False,
    ) -> None:
        self.limit_bytes = limit_bytes
        self.messages_only = messages_only
        self.write_through = write_through
        self.allocation_limit = min(1024 * 1024, max(4096, limit_bytes // 16))
        self._used = 0
        self._files: dict[str, MemoryFile] = {}
        self._locked = False

    @property
    def used_bytes(self) -> int:
        """How many bytes the files hold or have reserved."""
        return self._used

    def charge(self, count: int, path: str) -> None:
        """Count bytes in or out. Raises `StoreFullError` at the limit."""
        if self.messages_only and not path.startswith(_OF_MESSAGES):
            return
        refused = not self.messages_only or path.startswith(_LOG)
        if refused and count > 0 and self._used + count > self.limit_bytes:
            raise StoreFullError(
                f"{self.description} is full: {path} needs {count} more bytes, {self._used} of "
                f"{self.limit_bytes} are used"
            )
        self._used += count

    def add(self, count: int) -> None:
        """Count bytes that are kept beside the files; negative when they are not."""
        self._used += count

    def lock(self) -> None:
        """Become the only opener."""
        if self._locked:
            raise StoreLockedError(f"{self.description} is open already")
        self._locked = True

    def unlock(self) -> None:
        """Let the files be opened again.

        A test also calls it to simulate the death of the process that had them open.
        """
        self._locked = False

    def open(self, path: str) -> MemoryFile:
        """The file of that name, created when it is missing."""
        file = self._files.get(path)
        if file is None:
            file = self._files[path] = MemoryFile(self, path)
        return file

    def create(self, path: str, size: int) -> MemoryFile:
        """A file of `size` zero bytes that take no memory."""
        file = self.open(path)
        file.truncate(0)
        file.truncate(size)
        return file

    def exists(self, path: str) -> bool:
        """Whether there is a file of that name, or one below it."""
        return path in self._files or any(name.startswith(path + "/") for name in self._files)

    def file_sizes(self, directory: str) -> list[tuple[str, int]]:
        """Names and sizes of the files in a directory, sorted."""
        prefix = directory + "/"
        start = len(prefix)
        return sorted(
            (name[start:], file.size())
            for name, file in self._files.items()
            if name.startswith(prefix) and "/" not in name[start:]
        )

    def directory_names(self, directory: str) -> list[str]:
        """Names of the directories, sorted; they exist while they hold files."""
        prefix = directory + "/"
        start = len(prefix)
        return sorted(
            {
                name[start:].split("/", 1)[0]
                for name in self._files
                if name.startswith(prefix) and "/" in name[start:]
            }
        )

    def modified_ms(self, path: str) -> int:  # noqa: ARG002 - part of the protocol
        """Always 0, not known: the store's own times count."""
        return 0

    def stamp_ms(self) -> int:
        """Always 0, as `modified_ms`."""
        return 0

    def read_ahead(self, directory: str, *, wanted: bool) -> None:
        """Does nothing: nothing is read from a disk."""

    def capacity_bytes(self) -> int:
        """Always 0: there is no disk."""
        return 0

    def used_ratio(self) -> float:
        """Always 0: there is no disk."""
        return 0.0

    def read(self, path: str) -> bytes | None:
        """The whole content of a file."""
        file = self._files.get(path)
        return None if file is None else file.pread(file.size(), 0)

    def write(self, path: str, data: bytes, *, private: bool = False) -> None:  # noqa: ARG002
        """Replace the content of a file; in memory all of them are private."""
        file = self.open(path)
        file.truncate(0)
        file.pwrite(data, 0)

    def rename(self, old: str, new: str) -> None:
        """Rename a file or a directory."""
        below = old + "/"
        names = [name for name in self._files if name == old or name.startswith(below)]
        if not names:
            raise StoreError(f"{old} is missing in {self.description}")
        for name in names:
            place = new + name[len(old) :]
            self.remove(place)
            file = self._files[place] = self._files.pop(name)
            file.path = place

    def remove(self, path: str) -> None:
        """Remove a file."""
        file = self._files.pop(path, None)
        if file is not None:
            file.release()

    def remove_tree(self, directory: str) -> None:
        """Remove all files below a directory."""
        for name in [name for name in self._files if name.startswith(directory + "/")]:
            self.remove(name)

    def sync_directory(self, directory: str) -> None:
        """Does nothing."""

    async def run(self, operation: Callable[[], Result]) -> Result:
        """Run the operation here: memory does not wait."""
        await trio.lowlevel.checkpoint()
        return operation()

    def start_thread(self, name: str, work: Callable[[Mailbox], None]) -> tuple[Mailbox, Join]:
        """A thread of the operating system."""
        return start_thread(name, work)


def ends_with_its_store(files: FileSystem) -> TypeGuard[MemoryFileSystem]:
    """Whether no other store is opened on these files, so that nobody reads them later.

    True of what a broker in memory makes for itself.
    """
    return isinstance(files, MemoryFileSystem) and files.messages_only
