"""Store directories as lists of files, so that they can be kept and put back."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

FileContent = tuple[str, int, list[tuple[int, bytes]]]
"""Path below the directory, length, and the pieces that were written."""
_LOCK: Final = "lock"


def read_tree(root: Path) -> Iterator[FileContent]:
    """All files of a directory but its lock; holes are no pieces."""
    for folder, _names, files in os.walk(root):
        for name in files:
            path = Path(folder) / name
            if path != root / _LOCK:
                yield path.relative_to(root).as_posix(), path.stat().st_size, _pieces(path)


def write_tree(root: Path, contents: Iterable[FileContent]) -> None:
    """Let a directory hold these files and no others; its lock stays."""
    for folder, names, files in os.walk(root, topdown=False):
        for name in files:
            if Path(folder) / name != root / _LOCK:
                (Path(folder) / name).unlink()
        for name in names:
            (Path(folder) / name).rmdir()
    for path, size, pieces in contents:
        target = root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        with target.open("wb") as file:
            file.truncate(size)
            for offset, data in pieces:
                os.pwrite(file.fileno(), data, offset)


def _pieces(path: Path) -> list[tuple[int, bytes]]:
    found: list[tuple[int, bytes]] = []
    with path.open("rb") as file:
        position, size = 0, os.fstat(file.fileno()).st_size
        while position < size:
            try:
                position = os.lseek(file.fileno(), position, os.SEEK_DATA)
                end = os.lseek(file.fileno(), position, os.SEEK_HOLE)
            except OSError:  # only a hole is left
                break
            found.append((position, os.pread(file.fileno(), end - position, position)))
            position = end
    return found
