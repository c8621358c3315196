"""Space that is kept for small files while the disk is full.

A broker without space for messages still has to write its tables: the offsets that
consumers commit, new groups, topics, checkpoints and notes. So a store on a disk holds
a file `reserve` of zeros. `write_small` gives parts of it back when a small file finds
no space, and `SpaceReserve.fill` takes them again when there is space. Apache's broker
ignores the file.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from rocketmq_sdk.errors import StoreError, StoreFullError

if TYPE_CHECKING:
    from rocketmq_sdk.broker_embedded.store.files.file_system import FileSystem, StoreFile

_log = logging.getLogger(__name__)
PATH: Final = "reserve"
_DISK_SHARE: Final = 32
_STEP: Final = 16 * 1024
_LEAST: Final = 2 * _STEP


def write_small(files: FileSystem, path: str, data: bytes, *, private: bool = False) -> None:
    """`FileSystem.write`, with space from the reserve when there is no other.

    Raises `StoreFullError` when the reserve is used up too, and `StoreError`.
    """
    while True:
        try:
            files.write(path, data, private=private)
            return
        except StoreFullError:
            if not _give_back(files, len(data)):
                raise


def _give_back(files: FileSystem, wanted: int) -> bool:
    """Shorten the reserve; False when nothing is left of it."""
    if not files.exists(PATH):
        return False
    file = files.open(PATH)
    try:
        size = file.size()
        if size <= 0:
            return False
        file.truncate(max(0, size - _STEP - wanted) // _STEP * _STEP)
    finally:
        file.close()
    return True


def _extend(file: StoreFile, size: int, wanted: int) -> None:
    """Take space up to a size at once, or by halves what there is of it.

    Raises `StoreFullError` when that is less, and `StoreError`.
    """
    length = wanted - size
    while size < wanted:
        try:
            file.allocate(size, length)
        except StoreFullError:
            file.truncate(size)  # a part may have been allocated
            length = length // 2 // _STEP * _STEP
            if not length:
                raise
        else:
            size += length
            file.truncate(size)
            length = min(length, wanted - size)


class SpaceReserve:
    """The reserve of one store."""

    __slots__ = ("_files", "_limit")

    def __init__(self, files: FileSystem, limit: int) -> None:
        """`limit` bytes, or a 32nd of a small disk; nothing in memory."""
        self._files = files
        self._limit = limit

    @property
    def wanted(self) -> int:
        """How many bytes are kept. Raises `StoreError`."""
        size = min(self._limit, self._files.capacity_bytes() // _DISK_SHARE) // _STEP * _STEP
        return size if size >= _LEAST else 0

    @property
    def held(self) -> int:
        """How many bytes are held now. Raises `StoreError`."""
        return self._files.open(PATH).size() if self._files.exists(PATH) else 0

    @property
    def is_kept(self) -> bool:
        """Whether there is one; in memory there is none."""
        try:
            return self.wanted > 0
        except StoreError:
            return True  # the disk does not tell at the moment

    async def keep(self) -> None:
        """Take space again that is kept for small files, as far as there is some."""
        await self._files.run(self.fill)

    def fill(self) -> None:
        """Take the space that is missing, as far as there is some; never raises.

        Runs in a thread.
        """
        try:
            wanted = self.wanted
            if not wanted:
                return
            exists = self._files.exists(PATH)
            file = self._files.open(PATH) if exists else self._files.create(PATH, 0)
            try:
                _extend(file, file.size() if exists else 0, wanted)
            finally:
                file.close()
        except StoreFullError as error:
            _log.debug("the reserve waits for space: %s", error)
        except StoreError as error:
            _log.warning("there is no space in reserve for tables: %s", error)
