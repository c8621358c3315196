"""The file system as the store sees it.

Everything that the store keeps goes through these two protocols, so that the same code
runs on a disk, in memory, and on a file system made for tests that refuses, tears or
forgets writes. Paths are relative to the store's directory with `/` between their
parts. Bytes count as handed over when `pwrite` returns (the end of this process does
not lose them) and as durable when a `sync` that began later has returned.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeAlias, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

Bytes: TypeAlias = bytes | bytearray | memoryview
Result = TypeVar("Result")


class StoreFile(Protocol):
    """One file. `pread`, `sync` and `allocate` may be called from any thread; all other
    calls belong to the store's thread.
    """

    path: str

    def size(self) -> int:
        """Length in bytes."""
        ...

    def pread(self, size: int, offset: int) -> bytes:
        """Up to `size` bytes; fewer only at the end of the file. Zeros where nothing
        was written.
        """
        ...

    def pread_nowait(self, size: int, offset: int) -> bytes | None:
        """Like `pread`, but None when the bytes are not in memory or that cannot be
        told.
        """
        ...

    def pwrite(self, data: Bytes, offset: int) -> None:
        """Write all of `data`. Raises `StoreFullError` without space, `StoreError`
        otherwise; some bytes may have been written then.
        """
        ...

    def allocate(self, offset: int, length: int) -> None:
        """Make sure that writes into this range find space. Raises `StoreFullError`."""
        ...

    def truncate(self, size: int) -> None:
        """Cut or extend (with a hole) to `size` bytes."""
        ...

    def data_ranges(self, offset: int, end: int) -> Iterator[tuple[int, int]]:
        """Where in a range something may have been written; what lies between holds
        zeros.
        """
        ...

    def sync(self) -> None:
        """Make what was written durable. Raises `StoreError`; after that nothing is
        known about the bytes written since the last success.
        """
        ...

    def hold(self) -> None:
        """Keep the file open until `close`: for the file that every message is written
        to.
        """
        ...

    def remove(self) -> None:
        """Remove the file from its directory; a `sync` under way or later does nothing
        then.
        """
        ...

    def close(self) -> None:
        """Give up what the file holds open. Later calls open it again."""
        ...


class FileSystem(Protocol):
    """The directory of one store."""

    description: str
    """What errors call it."""
    blocking: bool
    """Whether calls may wait for a device, so that syncs and big reads belong into a
    thread.
    """
    write_through: bool
    """Whether bytes handed over outlive the process, so that each append is written
    before it is answered.
    """
    makes_ahead: bool
    """Whether to make a log file takes so long that it is done before the file is
    needed.
    """
    allocation_limit: int
    """The most bytes that it makes sense to allocate ahead."""

    def lock(self) -> None:
        """Become the only opener. Raises `StoreLockedError`."""
        ...

    def unlock(self) -> None:
        """Let others open the directory."""
        ...

    def open(self, path: str) -> StoreFile:
        """A handle to a file, which is created (with its directories) by the first
        write.
        """
        ...

    def create(self, path: str, size: int) -> StoreFile:
        """A file of `size` zero bytes without space of its own."""
        ...

    def exists(self, path: str) -> bool:
        """Whether there is a file or a directory of that name."""
        ...

    def file_sizes(self, directory: str) -> list[tuple[str, int]]:
        """Names and sizes of the files in a directory, sorted by name; empty when there
        is no such directory.
        """
        ...

    def directory_names(self, directory: str) -> list[str]:
        """Names of the directories in a directory, sorted."""
        ...

    def modified_ms(self, path: str) -> int:
        """When a file was written last (epoch milliseconds); 0 when that is not
        known.
        """
        ...

    def used_ratio(self) -> float:
        """The part of the disk that is in use, from 0 to 1. Files in memory have a
        limit instead and say 0.
        """
        ...

    def read_ahead(self, directory: str, *, wanted: bool) -> None:
        """Tell the system whether reading ahead in the files of a directory pays, for
        those open now and later; advice only.
        """
        ...

    def read(self, path: str) -> bytes | None:
        """The content of a small file; None when there is none."""
        ...

    def write(self, path: str, data: bytes) -> None:
        """Write a small file anew and make its content durable."""
        ...

    def rename(self, old: str, new: str) -> None:
        """Give a file another name, replacing what has that name."""
        ...

    def remove(self, path: str) -> None:
        """Remove a file; one that is missing is no error."""
        ...

    def remove_tree(self, directory: str) -> None:
        """Remove a directory with all that it holds; one that is missing is no
        error.
        """
        ...

    def sync_directory(self, directory: str) -> None:
        """Make creations, renames and removals in a directory durable."""
        ...

    async def run(self, operation: Callable[[], Result]) -> Result:
        """Run an operation that may wait for the device, in a thread where that makes
        sense. It is not interrupted by cancellation.
        """
        ...
