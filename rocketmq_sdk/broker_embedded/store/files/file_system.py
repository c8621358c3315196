"""The file system as the store sees it.

All files of the store go through these two protocols, so that the same code runs on a
disk, in memory, and on a file system for tests that refuses, tears or forgets writes.
Paths are relative to the store's directory with `/` between their parts. Bytes survive
the end of the process once `pwrite` has returned, and are durable once a `sync` that
began later has returned.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterator

Bytes: TypeAlias = bytes | bytearray | memoryview
Join: TypeAlias = Callable[[], Awaitable[None]]
Result = TypeVar("Result")


class StoreFile(Protocol):
    """One file.

    `pread`, `sync` and `allocate` may be called from any thread; all other calls belong
    to the store's thread.
    """

    path: str

    def size(self) -> int:
        """Length in bytes."""
        ...

    def pread(self, size: int, offset: int) -> bytes:
        """Up to `size` bytes; fewer only at the end of the file.

        Zeros where nothing was written.
        """
        ...

    def pread_nowait(self, size: int, offset: int) -> bytes | None:
        """Like `pread`; None when the bytes may not be in memory."""
        ...

    def pwrite(self, data: Bytes, offset: int) -> None:
        """Write all of `data`.

        Raises `StoreFullError` without space and `StoreError` otherwise; some bytes may
        have been written then.
        """
        ...

    def allocate(self, offset: int, length: int) -> None:
        """Make sure that writes to this range find space. Raises `StoreFullError`."""
        ...

    def truncate(self, size: int) -> None:
        """Cut or extend the file (with a hole) to `size` bytes."""
        ...

    def data_ranges(self, offset: int, end: int) -> Iterator[tuple[int, int]]:
        """The parts of a range that may have been written; the rest holds zeros."""
        ...

    def sync(self) -> None:
        """Make what was written durable. Raises `StoreError`.

        After an error nothing is known about the bytes written since the last success.
        """
        ...

    def hold(self) -> None:
        """Keep the file open until `close`.

        For the file that every message is written to.
        """
        ...

    def remove(self) -> None:
        """Remove the file from its directory; later syncs of it do nothing."""
        ...

    def leave(self) -> None:
        """Release the file for good: its name is going to be another file's.

        Later syncs of it do nothing.
        """
        ...

    def close(self) -> None:
        """Release what the file holds open; later calls open it again."""
        ...


class Mailbox(Protocol):
    """Hands work to a thread of `FileSystem.start_thread`."""

    def put(self, item: object) -> None:
        """Hand something over; callable from any thread, does not wait."""
        ...

    def get(self) -> Any:
        """What was handed over first; waits for it. For the thread only."""
        ...

    def get_nowait(self) -> Any:
        """Like `get`; raises `queue.Empty` instead of waiting."""
        ...


class FileSystem(Protocol):
    """The directory of one store."""

    description: str
    """How errors name it."""
    blocking: bool
    """Whether calls may wait for a device.

    Syncs and big reads then belong in a thread.
    """
    write_through: bool
    """Whether written bytes survive the process.

    Each append is then written before it is answered.
    """
    makes_ahead: bool
    """Whether creating a log file is so slow that it is done in advance."""
    allocation_limit: int
    """The maximum number of bytes that are worth allocating in advance."""

    def lock(self) -> None:
        """Become the only opener. Raises `StoreLockedError`."""
        ...

    def unlock(self) -> None:
        """Let others open the directory."""
        ...

    def open(self, path: str) -> StoreFile:
        """A handle to a file.

        The first write creates the file and its directories.
        """
        ...

    def create(self, path: str, size: int) -> StoreFile:
        """Create a file of `size` zero bytes without space of its own."""
        ...

    def exists(self, path: str) -> bool:
        """Whether there is a file or a directory of that name."""
        ...

    def file_sizes(self, directory: str) -> list[tuple[str, int]]:
        """Names and sizes of the files in a directory, sorted by name.

        Empty when there is no such directory.
        """
        ...

    def directory_names(self, directory: str) -> list[str]:
        """Names of the directories in a directory, sorted."""
        ...

    def modified_ms(self, path: str) -> int:
        """When a file was last written (epoch milliseconds); 0 when not known."""
        ...

    def stamp_ms(self) -> int:
        """What `modified_ms` would tell of a file that is written now.

        The system's clock may have been set since the store's clock began.
        """
        ...

    def used_ratio(self) -> float:
        """The part of the disk that is in use, from 0 to 1.

        Files in memory have a limit instead and return 0.
        """
        ...

    def capacity_bytes(self) -> int:
        """The size of the disk for its users; 0 for files in memory.

        Raises `StoreError`.
        """
        ...

    def read_ahead(self, directory: str, *, wanted: bool) -> None:
        """Tell the system whether reading ahead in a directory's files pays.

        Only advice; applies to files open now and later.
        """
        ...

    def read(self, path: str) -> bytes | None:
        """The content of a small file; None when it does not exist."""
        ...

    def write(self, path: str, data: bytes, *, private: bool = False) -> None:
        """Replace the content of a small file and make it durable.

        A `private` file can be read by its owner alone, before it holds anything.
        """
        ...

    def rename(self, old: str, new: str) -> None:
        """Rename a file or a directory; replaces a file that has the new name."""
        ...

    def remove(self, path: str) -> None:
        """Remove a file, if it exists."""
        ...

    def remove_tree(self, directory: str) -> None:
        """Remove a directory with all that it holds, if it exists."""
        ...

    def sync_directory(self, directory: str) -> None:
        """Make creations, renames and removals in a directory durable."""
        ...

    async def run(self, operation: Callable[[], Result]) -> Result:
        """Run an operation that may wait for the device, in a thread if that helps.

        Cancellation does not interrupt it.
        """
        ...

    def start_thread(self, name: str, work: Callable[[Mailbox], None]) -> tuple[Mailbox, Join]:
        """Start a thread that lives as long as the store and runs `work(mailbox)`.

        Returns the mailbox, and what waits until the thread has ended; cancellation
        does not interrupt that.
        """
        ...
