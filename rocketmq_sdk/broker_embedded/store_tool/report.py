"""What a check of a store's directory found, and how the check reads the files."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

from rocketmq_sdk.broker_embedded.store.files.chained_file import is_position
from rocketmq_sdk.broker_embedded.store.files.regular_files import (
    is_directory,
    open_regular,
    read_regular,
    written_ranges,
)
from rocketmq_sdk.broker_embedded.store.log.place import elsewhere

if TYPE_CHECKING:
    from rocketmq_sdk.broker_embedded.store.files.file_system import FileSystem

Progress = Callable[[str, int, int], None]
"""Takes what is looked at, how much of it is done, and how much there is."""


def in_silence(_what: str, _done: int, _total: int) -> None:
    """Nobody wants to know how far it is."""


NO_FILE = -1
"""The size of what is neither a file nor a directory."""


_MENDED_BY_A_START: Final = ("abort", "index_behind", "queue_behind")


class Finding:
    """Something that is wrong: the file, the byte, the kind, and words.

    Kinds: `name` and `size` of files; `record`, `crc`, `place`, `order`, `blank` and
    `properties` in the log; `tail` for what follows the last whole record; `unit`,
    `behind`, `missing`, `extra` and `gap` for queues; `index`; `timer`; `config`;
    `queue_behind` and `index_behind` for what an unclean stop left out of them;
    `checkpoint` for a position behind the log;
    `abort` for a directory that was not closed; `read` for bytes that the disk does not
    give, `set_aside` for a message that a broker did not deliver for that.
    """

    __slots__ = ("kind", "offset", "path", "problem")

    def __init__(self, path: str, offset: int, kind: str, problem: str) -> None:
        self.path = path
        self.offset = offset
        self.kind = kind
        self.problem = problem

    def as_json(self) -> dict[str, str | int]:
        """Members for a JSON object."""
        return {
            "file": self.path,
            "offset": self.offset,
            "kind": self.kind,
            "problem": self.problem,
        }

    def __str__(self) -> str:
        return f"{self.path} at {self.offset}: {self.problem}"

    def __repr__(self) -> str:
        return f"<Finding {self.kind} {self}>"


class StoreReport:
    """All findings, and what was counted."""

    __slots__ = (
        "batch_file_size",
        "bytes",
        "extension_file_size",
        "findings",
        "log_end",
        "log_file_size",
        "log_start",
        "queue_file_size",
        "queues",
        "records",
        "running",
        "unclean",
        "units",
        "vouched",
        "vouched_time",
    )

    def __init__(self) -> None:
        self.findings: list[Finding] = []
        self.running = False
        """Whether a broker had the directory open."""
        self.unclean = False
        """Whether it was not closed, so that the next start recovers it."""
        self.vouched = self.vouched_time = 0
        """Position and store time up to which the checkpoint says that queues are
        complete.
        """
        self.log_file_size = 0
        self.queue_file_size = 0
        self.batch_file_size = 0
        self.extension_file_size = 0
        """Sizes derived from the files; 0 without any."""
        self.log_start = self.log_end = 0
        self.bytes = self.records = self.queues = self.units = 0

    @property
    def wrong(self) -> int:
        """How many findings do not mend themselves at the next start."""
        return sum(finding.kind not in _MENDED_BY_A_START for finding in self.findings)

    def add_lack(
        self, path: str, offset: int, kind: str, problem: str, first: tuple[int, int]
    ) -> None:
        """Add that a queue lacks messages.

        `first` has position and store time of the first of them. After an unclean stop
        that is as it has to be, unless the checkpoint says that the queue had it.
        """
        position, store_time = first
        if self.unclean and position >= self.vouched and store_time > self.vouched_time:
            kind, problem = "queue_behind", f"{problem}; the next start adds them"
        self.add(path, offset, kind, problem)

    def add(self, path: str, offset: int, kind: str, problem: str) -> None:
        """Add a finding."""
        self.findings.append(Finding(path, offset, kind, problem))

    def as_json(self) -> dict[str, object]:
        """Members for a JSON object."""
        counted = (
            "running",
            "log_file_size",
            "queue_file_size",
            "batch_file_size",
            "log_start",
            "log_end",
            "bytes",
            "records",
            "queues",
            "units",
        )
        return {
            "findings": [finding.as_json() for finding in self.findings],
            **{name: getattr(self, name) for name in counted},
        }


class StoreReader(Protocol):
    """Read access to a store's directory.

    Methods raise `OSError` or `StoreError` for what cannot be read.
    """

    def file_sizes(self, directory: str) -> list[tuple[str, int]]:
        """Names and sizes of files, sorted; empty for a directory that is missing."""
        ...

    def directory_names(self, directory: str) -> list[str]:
        """Names of directories, sorted."""
        ...

    def read(self, path: str, offset: int, size: int) -> bytes:
        """Bytes of a file; fewer at its end, none of a missing one."""
        ...

    def data_ranges(self, path: str, offset: int, end: int) -> list[tuple[int, int]]:
        """The parts of a range that may have been written; the rest holds zeros."""
        ...

    def exists(self, path: str) -> bool:
        """Whether there is such a file or directory."""
        ...


class DirectoryReader:
    """Reads a directory of the operating system.

    Writes nothing and does not take its lock. The log may be elsewhere.
    """

    def __init__(
        self, root: str | os.PathLike[str], commit_log: str | os.PathLike[str] | None = None
    ) -> None:
        self._root = Path(root)
        self._elsewhere = elsewhere(root, commit_log)

    def _path(self, path: str) -> Path:
        name, slash, rest = path.partition("/")
        place = self._elsewhere.get(name)
        return self._root / path if place is None else Path(place + slash + rest)

    def _entries(self, directory: str) -> list[os.DirEntry[str]]:
        try:
            with os.scandir(self._path(directory)) as entries:
                return sorted(entries, key=lambda entry: entry.name)
        except FileNotFoundError:
            return []

    def file_sizes(self, directory: str) -> list[tuple[str, int]]:
        """Names and sizes; `NO_FILE` for pipes and the like.

        Files that disappear meanwhile are left out.
        """
        found: list[tuple[str, int]] = []
        for entry in self._entries(directory):
            try:
                if entry.is_file():
                    found.append((entry.name, entry.stat().st_size))
                elif not entry.is_dir():
                    found.append((entry.name, NO_FILE))
            except FileNotFoundError:
                continue
            except OSError:  # a link to itself
                found.append((entry.name, NO_FILE))
        return found

    def directory_names(self, directory: str) -> list[str]:
        """Names."""
        return [entry.name for entry in self._entries(directory) if is_directory(entry)]

    def read(self, path: str, offset: int, size: int) -> bytes:
        """Bytes of a file."""
        try:
            return read_regular(self._path(path), offset, size)
        except (FileNotFoundError, ValueError):
            return b""

    def data_ranges(self, path: str, offset: int, end: int) -> list[tuple[int, int]]:
        """Found with `SEEK_DATA` where the system has it; otherwise the whole range."""
        try:
            with open_regular(self._path(path)) as file:
                return list(written_ranges(file.fileno(), offset, end))
        except (FileNotFoundError, ValueError):
            return []

    def exists(self, path: str) -> bool:
        """Whether there is such a file or directory."""
        return os.path.lexists(self._path(path))


class FileSystemReader:
    """Reads through the file system of a store, such as one in memory."""

    def __init__(self, files: FileSystem) -> None:
        self._files = files

    def file_sizes(self, directory: str) -> list[tuple[str, int]]:
        """Names and sizes."""
        return self._files.file_sizes(directory)

    def directory_names(self, directory: str) -> list[str]:
        """Names."""
        return self._files.directory_names(directory)

    def read(self, path: str, offset: int, size: int) -> bytes:
        """Bytes of a file."""
        return self._files.open(path).pread(size, offset) if self._files.exists(path) else b""

    def data_ranges(self, path: str, offset: int, end: int) -> list[tuple[int, int]]:
        """What the file system knows about it."""
        return (
            list(self._files.open(path).data_ranges(offset, end))
            if self._files.exists(path)
            else []
        )

    def exists(self, path: str) -> bool:
        """Whether there is such a file or directory."""
        return self._files.exists(path)


def read_written(reader: StoreReader, path: str, size: int) -> bytes:
    """The bytes of a file up to the last that may have been written.

    The rest of its `size` holds zeros.
    """
    ranges = reader.data_ranges(path, 0, size)
    return reader.read(path, 0, ranges[-1][1]) if ranges else b""


def usual_size(sizes: list[int]) -> int:
    """The size that most files have; 0 without files that hold anything."""
    sizes = [size for size in sizes if size > 0]
    return max(set(sizes), key=lambda size: (sizes.count(size), size)) if sizes else 0


def chain_of(
    reader: StoreReader, directory: str, size: int, report: StoreReport
) -> list[tuple[int, str]]:
    """Starts and paths of the readable files of a chain.

    Wrong names, wrong sizes and gaps are reported.
    """
    found: list[tuple[int, str]] = []
    entries = reader.file_sizes(directory)
    for index, (name, length) in enumerate(entries):
        path = f"{directory}/{name}"
        if not is_position(name):
            report.add(
                path, 0, "name", "does not belong there: the names of these files are positions"
            )
        elif length == NO_FILE:
            report.add(path, 0, "name", "is no regular file; move it away")
        elif not length and report.running and index == len(entries) - 1:
            pass  # it is being made
        elif length != size:
            last = (
                " (Apache's broker removes an empty last file)"
                if not length and index == len(entries) - 1
                else ""
            )
            report.add(
                path,
                min(length, size),
                "size",
                f"has {length} bytes, the other files have {size}{last}",
            )
        elif int(name) % size:
            report.add(path, 0, "name", f"is no multiple of the file size {size}")
        else:
            if found and int(name) != found[-1][0] + size:
                report.add(
                    path,
                    0,
                    "gap",
                    (
                        f"the file before is {found[-1][1]}: {int(name) - found[-1][0] - size} "
                        "bytes "
                        "are missing in between"
                    ),
                )
            found.append((int(name), path))
    return found
