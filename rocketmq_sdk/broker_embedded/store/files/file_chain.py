"""A chain of files of one size in one directory.

`MappedFileQueue` of Apache RocketMQ 5.4.0. The name of a file is the position of its
first byte, in 20 decimal digits. Missing first files are normal: they were deleted
because of their age.
"""

from __future__ import annotations

from bisect import bisect_right
from itertools import pairwise
from operator import attrgetter
from typing import TYPE_CHECKING, NamedTuple

from rocketmq_sdk.broker_embedded.store.files.chained_file import (
    ChainedFile,
    file_name,
    is_position,
)
from rocketmq_sdk.errors import StoreCorruptError, StoreError

if TYPE_CHECKING:
    from collections.abc import Callable

    from rocketmq_sdk.broker_embedded.store.files.file_system import FileSystem

_start_of = attrgetter("start")


class NextFile(NamedTuple):
    """A file of the right size that was made in advance and waits for its name."""

    path: str
    allocated: int
    """How many bytes from its start have space allocated."""


class FileChain:
    """The files of a directory in the order of their positions."""

    __slots__ = (
        "_changes",
        "_removed",
        "_starts",
        "_synced_changes",
        "directory",
        "file_size",
        "files",
        "next_file",
        "size_setting",
        "store_files",
    )

    def __init__(
        self, store_files: FileSystem, directory: str, file_size: int, size_setting: str
    ) -> None:
        self.store_files = store_files
        self.directory = directory
        self.file_size = file_size
        self.size_setting = size_setting
        self.files: list[ChainedFile] = []
        self.next_file: NextFile | None = None
        self._starts: list[int] = []
        self._changes = self._synced_changes = 0
        self._removed = False

    def load(self, *, mend: bool = False) -> None:
        """Find the files; an empty last file is deleted.

        `mend` is for the time after an unclean stop: an empty file, which is what a
        power cut leaves of a new one, gets its size back. Raises `StoreCorruptError`
        for an impossible size or name.
        """
        entries = self.store_files.file_sizes(self.directory)
        if entries and entries[-1][1] == 0:
            self.store_files.remove(f"{self.directory}/{entries[-1][0]}")
            entries.pop()
        for name, size in entries:
            path = f"{self.directory}/{name}"
            if not is_position(name):
                raise StoreCorruptError(
                    f"{path} does not belong there: the names of these files are positions; move "
                    "it away"
                )
            if not size and mend:
                self.store_files.open(path).truncate(self.file_size)
            elif size != self.file_size:
                raise StoreCorruptError(
                    f"{path} has {size} bytes, but {self.size_setting} is {self.file_size}; open "
                    "the store with the size that it was written with"
                )
            if int(name) % self.file_size:
                raise StoreCorruptError(
                    f"{path} does not belong there: its name is no multiple of {self.size_setting} "
                    f"({self.file_size}); move it away"
                )
            self._add(ChainedFile(self.store_files.open(path), int(name), self.file_size))
        # Files made by a process that was killed may not be durable yet.
        self._changes += mend

    def _add(self, file: ChainedFile) -> None:
        self.files.append(file)
        self._starts.append(file.start)

    @property
    def min_position(self) -> int:
        """Where the first file starts; 0 without files."""
        return self._starts[0] if self._starts else 0

    @property
    def gap(self) -> int | None:
        """The position where a file in the middle is missing; None without a gap."""
        for file, following in pairwise(self.files):
            if file.end != following.start:
                return file.end
        return None

    def find(self, position: int) -> ChainedFile | None:
        """The file that holds a position."""
        # Take the list once: a reader in another thread may be here while the first
        # file is taken out.
        files = self.files
        index = bisect_right(files, position, key=_start_of) - 1
        if index < 0:
            return None
        file = files[index]
        return file if position < file.end else None

    def index_of(self, position: int) -> int:
        """The number of the file that holds a position, or of the last before it."""
        return max(0, bisect_right(self.files, position, key=_start_of) - 1)

    def take_first(self) -> ChainedFile:
        """Take the oldest file out; the caller removes it."""
        first, self.files = self.files[0], self.files[1:]
        self._starts = self._starts[1:]
        self._changes += 1
        return first

    def put_back(self, file: ChainedFile) -> None:
        """Undo `take_first` for a file that could not be removed; opens it anew."""
        self.files = [
            ChainedFile(self.store_files.open(file.file.path), file.start, file.size),
            *self.files,
        ]
        self._starts = [file.start, *self._starts]

    def obtain(self, position: int) -> ChainedFile:
        """The file for a position at the end of the chain. Raises `StoreError`.

        It is created when it does not exist.
        """
        file = self.find(position)
        if file is None:
            start = position - position % self.file_size
            path = f"{self.directory}/{file_name(start)}"
            file = self._take_next(path, start) or ChainedFile(
                self.store_files.create(path, self.file_size), start, self.file_size
            )
            self._add(file)
            self._changes += 1
        return file

    def _take_next(self, path: str, start: int) -> ChainedFile | None:
        if self.next_file is None:
            return None
        (waiting, allocated), self.next_file = self.next_file, None
        if not self.files:
            return None  # the directory may be missing
        try:
            self.store_files.rename(waiting, path)
        except StoreError:
            return None
        file = ChainedFile(self.store_files.open(path), start, self.file_size)
        file.allocated = start + allocated
        return file

    def overlapping(self, low: int, high: int) -> list[ChainedFile]:
        """The files that overlap a range."""
        return [file for file in self.files if file.start < high and low < file.end]

    def cut(self, position: int) -> None:
        """Cut the chain at a position.

        Later files are removed; the rest of the file that holds the position is set to
        zero and synced. Call `sync_directories` before anything new becomes durable, or
        the removed files may come back after it.
        """
        while self.files and self.files[-1].start > position:
            self._remove(self.files.pop())
            self._starts.pop()
        if self.files and position < self.files[-1].end and self.files[-1].zero_from(position):
            self.files[-1].file.sync()

    def move_last(self, directory: str) -> None:
        """Move the last file to another, existing directory. Raises `StoreError`."""
        file = self.files[-1]
        path = file.file.path
        file.file.close()
        self.store_files.rename(path, f"{directory}/{path.rpartition('/')[2]}")
        self.files.pop()
        self._starts.pop()
        self._changes += 1

    def directory_sync(self) -> Callable[[], None] | None:
        """What makes the files created and removed so far durable; None when they are.

        Syncs the directory and all those above it. Can run in a thread.
        """
        changes = self._changes
        if changes == self._synced_changes:
            return None

        def sync() -> None:
            for path in self._directories():
                self.store_files.sync_directory(path)
            self._synced_changes = changes

        return sync

    def _directories(self) -> list[str]:
        """The directory and all those above it, in the order in which to sync them."""
        found = [self.directory]
        while "/" in found[-1]:
            found.append(found[-1].rpartition("/")[0])
        return [*found, "."]

    def take_unsynced_directories(self, *, removals: bool) -> list[str]:
        """The directories that `sync_directories` would sync, which the caller does.

        With `removals`, only when files were removed.
        """
        if self._changes == self._synced_changes or (removals and not self._removed):
            return []
        self._synced_changes = self._changes
        self._removed = False
        return self._directories()

    def doubt_names(self) -> None:
        """Take no name for durable.

        An earlier process may have created a file and died before it synced the
        directory.
        """
        self._changes += 1

    def sync_directories(self) -> None:
        """Sync the directories now, as `directory_sync` would."""
        sync = self.directory_sync()
        if sync is not None:
            sync()

    def remove_all(self) -> None:
        """Remove all files."""
        while self.files:
            self._remove(self.files.pop())
        self._starts.clear()

    def leave_all(self) -> None:
        """Have no files any more; they stay where they are."""
        for file in self.files:
            file.file.leave()
        self.files = []
        self._starts = []

    def _remove(self, file: ChainedFile) -> None:
        file.file.remove()
        self._changes += 1
        self._removed = True

    def close(self) -> None:
        """Close all descriptors."""
        for file in self.files:
            file.file.close()
