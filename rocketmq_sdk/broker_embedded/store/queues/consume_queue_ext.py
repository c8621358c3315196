"""The extension of a queue: bit maps of the filters that each message passes.

`ConsumeQueueExt` of Apache RocketMQ 5.4.0. A record here: its size (2), tags code (8),
store time (8), size of the bit map (2), the bit map. The unit of the queue holds the
record's position plus the lowest 64-bit number in place of the tags code. Four bytes
stay free at the end of a file; -1 (2) says that the next record is in the next file.
The content only speeds things up: a unit whose record is missing is read as one without
a bit map, and a record that cannot be written leaves the unit as it is.
"""

from __future__ import annotations

import logging
from struct import Struct
from typing import TYPE_CHECKING, Final, NamedTuple

from rocketmq_sdk.broker_embedded.store.files.file_chain import FileChain
from rocketmq_sdk.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Callable

    from rocketmq_sdk.broker_embedded.store.files.chained_file import ChainedFile
    from rocketmq_sdk.broker_embedded.store.files.file_system import FileSystem

_log = logging.getLogger(__name__)
DIRECTORY: Final = "consumequeue_ext"
_HEAD: Final = Struct(">hqqh")
_LOWEST: Final = -(1 << 63)
_HIGHEST_ADDRESS: Final = -(1 << 31) - 1
_END_MARK: Final = b"\xff\xff\0\0"
_MOST: Final = 0x7FFF


class Extension(NamedTuple):
    """One record."""

    tags_code: int
    store_timestamp: int
    bit_map: bytes


def is_address(tags_code: int) -> bool:
    """Whether a unit points to a record here; no tag's hash is that small."""
    return tags_code <= _HIGHEST_ADDRESS


class ConsumeQueueExt:
    """The records of one queue, in the order of their writing."""

    __slots__ = ("_complained", "_files", "_synced", "end")

    def __init__(self, store_files: FileSystem, topic: str, queue_id: int, file_size: int) -> None:
        self._files = FileChain(
            store_files,
            f"{DIRECTORY}/{topic}/{queue_id}",
            file_size,
            "mappedFileSizeConsumeQueueExt",
        )
        self.end = 0
        """The position of the next record."""
        self._synced = 0
        self._complained = False

    @property
    def directory(self) -> str:
        """Where the files are."""
        return self._files.directory

    def reaches(self, first: int, last: int) -> bool:
        """Whether there are files for two addresses, and no gap in between."""
        places = (self._files.find(address - _LOWEST) for address in (first, last))
        return self._files.gap is None and None not in places

    def put(self, tags_code: int, store_timestamp: int, bit_map: bytes) -> int | None:
        """Append a record; returns what the unit has to hold.

        None when there is no space for it.
        """
        size = _HEAD.size + len(bit_map)
        files = self._files
        if size > min(_MOST, files.file_size - len(_END_MARK)):
            return None
        try:
            room = files.file_size - self.end % files.file_size
            if size > room - len(_END_MARK):
                files.obtain(self.end).write(self.end, _END_MARK[:room])
                self.end += room
            position = self.end
            files.obtain(position).write(
                position, _HEAD.pack(size, tags_code, store_timestamp, len(bit_map)) + bit_map
            )
        except StoreError as error:
            if not self._complained:
                _log.warning("%s: messages get no bit maps: %s", files.directory, error)
            self._complained = True
            return None
        self._complained = False
        self.end = position + size
        return position + _LOWEST

    def get(self, address: int) -> Extension | None:
        """The record of a unit; None when it is missing. May wait for the disk."""
        position = address - _LOWEST
        file = self._files.find(position)
        if file is None:
            return None
        try:
            data = file.read(position, _HEAD.size)
            if len(data) < _HEAD.size:
                return None
            size, tags_code, store_timestamp, bits = _HEAD.unpack(data)
            if bits < 0 or size != _HEAD.size + bits:
                return None
            bit_map = file.read(position + _HEAD.size, bits) if bits else b""
        except StoreError:
            return None
        return Extension(tags_code, store_timestamp, bit_map) if len(bit_map) == bits else None

    def load(self, *, mend: bool = False) -> None:
        """Find the files. Raises `StoreCorruptError`."""
        self._files.load(mend=mend)

    def settle_end(self, last_address: int | None) -> None:
        """Cut after the record of the last unit that points here.

        None: there is no such unit. Raises `StoreError`.
        """
        if last_address is None:
            self._files.remove_all()
            self.end = self._synced = 0
            return
        position = last_address - _LOWEST
        found = self.get(last_address)
        end = position + (_HEAD.size + len(found.bit_map) if found is not None else 0)
        last = self._files.files[-1].end if self._files.files else 0
        if position >= last:
            # The files are gone; new records must not stand where units still look for
            # old ones.
            self._files.remove_all()
            self.end = (position // self._files.file_size + 1) * self._files.file_size
        else:
            self._files.cut(end)
            self.end = end
        self._synced = self.end

    def prepare_sync(self) -> Callable[[], None]:
        """What makes everything written so far durable; runs in a thread."""
        end = self.end
        sync = self._files.directory_sync()
        files = [file.file for file in self._files.overlapping(self._synced, end)]
        self._synced = end

        def run() -> None:
            for file in files:
                file.sync()
            if sync is not None:
                sync()

        return run

    def doubt_contents(self) -> bool:
        """Take nothing in the files for durable; whether there is anything to sync."""
        self._synced = min(self.end, self._files.min_position)
        return self._synced < self.end

    def take_before(self, address: int) -> list[ChainedFile]:
        """Take out the files before the one that a unit points to.

        The caller removes them.
        """
        position = address - _LOWEST
        taken: list[ChainedFile] = []
        while len(self._files.files) > 1 and self._files.files[0].end <= position:
            taken.append(self._files.take_first())
        return taken

    def clear(self) -> None:
        """Drop everything."""
        self.settle_end(None)

    def leave_files(self) -> None:
        """Have no records and no files any more; the files stay where they are."""
        self._files.leave_all()
        self.end = self._synced = 0

    def close(self) -> None:
        """Close all descriptors."""
        self._files.close()
