"""Files and directories of a disk, as the system gives them; `OSError` is its word."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from typing import TYPE_CHECKING, BinaryIO, Final

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

NOT_OFFERED: Final = frozenset({errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS, errno.ENODEV})
"""What a file system says that cannot do something."""


@contextlib.contextmanager
def open_regular(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """Open a regular file for reading.

    Raises `ValueError` for anything else, such as a pipe, which would block the reader
    forever, and `OSError` as `open` does.
    """
    descriptor = os.open(
        path, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NONBLOCK", 0)
    )
    with open(descriptor, "rb") as file:  # noqa: PTH123 - a descriptor
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise ValueError(f"{path} is no regular file")
        yield file


def read_regular(path: str | os.PathLike[str], offset: int = 0, size: int = -1) -> bytes:
    """The bytes of a file, opened by `open_regular`."""
    with open_regular(path) as file:
        file.seek(offset)
        return file.read(size)


def written_ranges(descriptor: int, offset: int, end: int) -> Iterator[tuple[int, int]]:
    """The parts of a range of a file that may have been written.

    Found with `SEEK_DATA` where system and file system have it; otherwise the whole
    range.
    """
    seek_data = getattr(os, "SEEK_DATA", None)
    if seek_data is None:
        yield offset, end
        return
    while offset < end:
        try:
            low = os.lseek(descriptor, offset, seek_data)
        except OSError as error:
            if error.errno == errno.ENXIO:
                return
            if error.errno in NOT_OFFERED:
                yield offset, end
                return
            raise
        high = min(os.lseek(descriptor, low, os.SEEK_HOLE), end)
        if low < high:
            yield low, high
        offset = high if high > low else end


def is_directory(entry: os.DirEntry[str]) -> bool:
    """Whether an entry leads to a directory; a link to itself does not."""
    try:
        return entry.is_dir()
    except OSError:
        return False


def make_directory(path: Path) -> None:
    """Make a directory and those above it, each with a durable name.

    Raises `OSError`, also where something else has the name.
    """
    missing = [path]
    while not missing[-1].parent.exists():
        missing.append(missing[-1].parent)
    if path.is_dir():
        return
    if path.exists():
        raise NotADirectoryError(errno.ENOTDIR, "it is no directory", str(path))
    path.mkdir(parents=True, exist_ok=True)
    for made in reversed(missing):
        descriptor = os.open(made.parent, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
