"""What a disk knows of files and directories, durable or not.

`faulty_files` builds on it and describes the model.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from random import Random


class Inode:
    """Content of one file: as it is read, and as the device has it."""

    __slots__ = (
        "charged",
        "dirty",
        "durable",
        "durable_size",
        "modified_ms",
        "pages",
        "size",
        "sizes",
    )

    def __init__(self) -> None:
        self.size = 0
        self.pages: dict[int, bytes] = {}
        self.durable_size = 0
        self.durable: dict[int, bytes] = {}
        self.dirty: dict[int, int] = {}
        """The unsynced pages, each with the number of the last write to it."""
        self.sizes: list[int] = []
        """Sizes since the last sync."""
        self.charged: set[int] = set()
        self.modified_ms = 0

    def read(self, size: int, offset: int, page_size: int) -> bytes:
        """Up to `size` bytes as they are read; zeros where nothing was written."""
        end = min(offset + size, self.size)
        if end <= offset:
            return b""
        first, last = offset // page_size, (end - 1) // page_size
        blank = bytes(page_size)
        data = b"".join([self.pages.get(page, blank) for page in range(first, last + 1)])
        return data[offset - first * page_size : end - first * page_size]

    def put(self, page: int, content: bytes | None, number: int) -> None:
        """Change a page as it is read; None makes it a hole."""
        if content is None:
            self.pages.pop(page, None)
        else:
            self.pages[page] = content
        self.dirty[page] = number

    def persist(self, page: int, content: bytes | None) -> None:
        """Change a page on the device; None makes it a hole."""
        if content is None:
            self.durable.pop(page, None)
        else:
            self.durable[page] = content

    def is_durable(self, offset: int, size: int, page_size: int) -> bool:
        """Whether the device has a range as it is read now."""
        end = offset + size
        if end > min(self.durable_size, self.size, *self.sizes):
            return False
        blank = bytes(page_size)
        for page in range(offset // page_size, (end - 1) // page_size + 1):
            low, high = max(0, offset - page * page_size), end - page * page_size
            read, kept = self.pages.get(page, blank), self.durable.get(page, blank)
            if read[low:high] != kept[low:high]:
                return False
        return True

    def after_power_cut(self, generator: Random, chance: float, page_size: int) -> Inode:
        """What is left when each unsynced page is kept with a probability."""
        left = Inode()
        pages = dict(self.durable)
        for page in self.dirty:
            if generator.random() < chance:
                if page in self.pages:
                    pages[page] = self.pages[page]
                else:
                    pages.pop(page, None)
        left.size = left.durable_size = (
            generator.choice([self.durable_size, *self.sizes, self.size])
            if self.sizes
            else self.durable_size
        )
        for page, content in pages.items():
            inside = left.size - page * page_size
            if inside > 0:
                left.pages[page] = (
                    content if inside >= page_size else content[:inside].ljust(page_size, b"\0")
                )
        left.durable = dict(left.pages)
        left.modified_ms = self.modified_ms
        return left


class DirectoryChange:
    """One change of a directory that is not durable yet.

    A change of a name has an inode; one that adds a directory has none, and renames it
    when it removes another name as well.
    """

    __slots__ = ("added", "directory", "inode", "is_directory", "number", "removed")

    def __init__(
        self,
        number: int,
        directory: str,
        *,
        added: str = "",
        removed: str = "",
        inode: Inode | None = None,
    ) -> None:
        self.number = number
        self.directory = directory
        self.added = added
        self.removed = removed
        self.inode = inode
        self.is_directory = inode is None and bool(added)

    def apply(self, names: dict[str, Inode], directories: set[str]) -> None:
        """Apply the change to names and directories."""
        if self.is_directory and self.removed:
            self._move(names, directories)
            return
        if self.removed in directories:
            below = self.removed + "/"
            directories.difference_update(
                [path for path in directories if path == self.removed or path.startswith(below)]
            )
            for path in [path for path in names if path.startswith(below)]:
                del names[path]
        elif self.removed:
            names.pop(self.removed, None)
        if self.added and self.inode is not None:
            names[self.added] = self.inode
        elif self.added:
            directories.add(self.added)

    def _move(self, names: dict[str, Inode], directories: set[str]) -> None:
        if self.removed not in directories:
            return
        for path in [path for path in directories if self.moved(path) != path]:
            directories.remove(path)
            directories.add(self.moved(path))
        for path in [path for path in names if self.moved(path) != path]:
            names[self.moved(path)] = names.pop(path)

    def moved(self, path: str) -> str:
        """What a path is called after this directory was renamed."""
        old = self.removed
        return self.added + path[len(old) :] if f"{path}/".startswith(f"{old}/") else path

    def follow(self, move: DirectoryChange) -> None:
        """Be a change in the directory that `move` renamed."""
        self.directory = move.moved(self.directory)
        self.added = move.moved(self.added)
        self.removed = move.moved(self.removed)


def parent_of(path: str) -> str:
    """The directory that holds a path."""
    return path.rpartition("/")[0] or "."
