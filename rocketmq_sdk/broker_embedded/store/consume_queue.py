"""One queue: an index of 20-byte units into the commit log (`ConsumeQueue` of Apache RocketMQ 5.4.0).

Unit k of a queue stands at byte 20 k of its chain of files: position of the record, its size, and the hash of its tag. A queue that does not begin
at 0 has units in front of its first one that mean nothing (position 0, size 0x7FFFFFFF). New units are kept in memory and written joined by the
flush service, or when many have gathered: what a kill takes with it is built again from the log.
"""

import logging
from collections.abc import Callable
from struct import Struct
from typing import Final

from rocketmq_sdk.broker_embedded.store.config import QUEUE_UNIT_SIZE
from rocketmq_sdk.broker_embedded.store.file_system import FileSystem
from rocketmq_sdk.broker_embedded.store.mapped_file import MappedFile
from rocketmq_sdk.broker_embedded.store.mapped_file_queue import MappedFileQueue
from rocketmq_sdk.broker_embedded.store.record import is_schedule_topic
from rocketmq_sdk.errors import StoreError

_log = logging.getLogger(__name__)
DIRECTORY: Final = "consumequeue"
UNIT: Final = Struct(">qiq")
PRE_BLANK_SIZE: Final = 0x7FFFFFFF
PRE_BLANK: Final = UNIT.pack(0, PRE_BLANK_SIZE, 0)
MAX_QUEUE_OFFSET: Final = (1 << 58) - 1
_TAIL_LIMIT: Final = 64 * 1024 // QUEUE_UNIT_SIZE * QUEUE_UNIT_SIZE
_TAIL_KEPT: Final = 16 * 1024 // QUEUE_UNIT_SIZE * QUEUE_UNIT_SIZE
_FILES_SCANNED_AT_LOAD: Final = 3
_SIGN_TO_ZERO: Final = bytes(1 if byte < 0x80 else 0 for byte in range(256))
_pack = UNIT.pack


def valid_units(data: bytes) -> int:
    """How many units at the start of `data` are valid: position not negative, size above 0. Works on columns: a file holds 300,000 units."""
    count = len(data) // QUEUE_UNIT_SIZE
    if not count:
        return 0
    data = data[: count * QUEUE_UNIT_SIZE]
    columns = [int.from_bytes(data[column::QUEUE_UNIT_SIZE]) for column in (8, 9, 10, 11)]
    sizes = (columns[0] | columns[1] | columns[2] | columns[3]).to_bytes(count)
    signs = (int.from_bytes(data[0::QUEUE_UNIT_SIZE]) | columns[0]).to_bytes(count).translate(_SIGN_TO_ZERO)
    first_empty = sizes.find(0)
    first_negative = signs.find(0)
    return min(found if found >= 0 else count for found in (first_empty, first_negative))


class ConsumeQueue:
    """Queue offsets count units; `max_offset` is exclusive."""

    __slots__ = (
        "_files",
        "_spill_at",
        "_synced",
        "_tail",
        "_written",
        "dirty",
        "is_schedule",
        "max_offset",
        "max_physical",
        "min_offset",
        "next_offset",
        "queue_id",
        "removed",
        "topic",
        "topic_bytes",
        "units_per_file",
    )

    def __init__(self, store_files: FileSystem, topic: str, queue_id: int, file_size: int) -> None:
        self.topic = topic
        self.topic_bytes = topic.encode()
        self.queue_id = queue_id
        self.is_schedule = is_schedule_topic(topic)
        self.units_per_file = file_size // QUEUE_UNIT_SIZE
        self._files = MappedFileQueue(store_files, f"{DIRECTORY}/{topic}/{queue_id}", file_size, "mappedFileSizeConsumeQueue")
        self.next_offset = 0
        """The number that the next message of this queue gets; ahead of `max_offset` while messages wait for their sync."""
        self.max_offset = 0
        self.min_offset = 0
        self.max_physical = 0
        """The end of the last record in the queue."""
        self.dirty = False
        self.removed = False
        self._written = 0
        self._synced = 0
        self._spill_at = _TAIL_LIMIT
        # Queue offset of the first unit in memory, and the units. A reader in another thread takes the pair once.
        self._tail: tuple[int, bytearray] = (0, bytearray())

    def append(self, physical_offset: int, size: int, tags_code: int) -> None:
        """Add a unit."""
        tail = self._tail[1]
        tail += _pack(physical_offset, size, tags_code)
        self.max_offset += 1
        self.max_physical = physical_offset + size
        if len(tail) >= self._spill_at:
            self._spill()

    def _spill(self) -> None:
        try:
            self.write_out()
        except StoreError as error:
            # The units stay in memory; the flush service tries again and refuses writes if it fails too.
            self._spill_at *= 2
            _log.warning("%s queue %d: units stay in memory: %s", self.topic, self.queue_id, error)

    def start_at(self, offset: int) -> None:
        """Begin an empty queue at an offset above 0."""
        self._reset(offset)
        self.min_offset = offset

    def _reset(self, offset: int) -> None:
        self._written = self._synced = self.max_offset = self.next_offset = offset
        self._tail = (offset, bytearray())

    def units(self, offset: int, count: int) -> bytes:
        """Up to `count` units from an offset on; fewer at the end of the queue and of a file. Any thread may ask."""
        start, tail = self._tail
        if offset >= start:
            at = (offset - start) * QUEUE_UNIT_SIZE
            return bytes(tail[at : at + count * QUEUE_UNIT_SIZE])
        count = min(count, self._written - offset)
        file = self._files.find(offset * QUEUE_UNIT_SIZE)
        if file is None or count <= 0:
            return b""
        data = file.read(offset * QUEUE_UNIT_SIZE, count * QUEUE_UNIT_SIZE)
        return data[: len(data) // QUEUE_UNIT_SIZE * QUEUE_UNIT_SIZE]

    def unit(self, offset: int) -> tuple[int, int, int] | None:
        """Position, size and tags code of one message; None outside the queue."""
        if not self.min_offset <= offset < self.max_offset:
            return None
        data = self.units(offset, 1)
        return UNIT.unpack(data) if data else None

    def write_out(self) -> None:
        """Hand the units that are only in memory to the file system. Raises `StoreError`; a later call tries again."""
        start, tail = self._tail
        files = self._files
        while self._written < self.max_offset:
            position = self._written * QUEUE_UNIT_SIZE
            fresh = not files.files
            file = files.obtain(position)
            if fresh and position > file.start:
                file.write(file.start, PRE_BLANK * ((position - file.start) // QUEUE_UNIT_SIZE))
            at = position - start * QUEUE_UNIT_SIZE
            data = bytes(tail[at : at + file.end - position])
            file.write(position, data)
            self._written += len(data) // QUEUE_UNIT_SIZE
        if len(tail) >= _TAIL_LIMIT:
            extra = len(tail) - _TAIL_KEPT
            self._tail = (start + extra // QUEUE_UNIT_SIZE, tail[extra:])
        self._spill_at = _TAIL_LIMIT

    @property
    def unsynced_bytes(self) -> int:
        """Bytes that the file system has and that no sync covered yet."""
        return (self._written - self._synced) * QUEUE_UNIT_SIZE

    def prepare_sync(self) -> Callable[[], None]:
        """What has to run (in a thread) to make the written units durable, and then `synced` has to be told."""
        files = [file.file for file in self._files.overlapping(self._synced * QUEUE_UNIT_SIZE, self._written * QUEUE_UNIT_SIZE)]
        sync_directories = self._files.directory_sync()

        def sync() -> None:
            for file in files:
                file.sync()
            if sync_directories is not None:
                sync_directories()

        return sync

    @property
    def written_offset(self) -> int:
        """Up to which queue offset the file system has the units."""
        return self._written

    def synced(self, offset: int) -> None:
        """A sync that began when `written_offset` was `offset` is done."""
        self._synced = max(self._synced, min(offset, self._written))

    def load(self, *, mend: bool = False) -> None:
        """Find the files, changing nothing unless `mend`. Raises `StoreCorruptError`."""
        self._files.load(mend=mend)

    def find_end(self) -> None:
        """Find the last unit and drop what is behind it."""
        files = self._files
        if not files.files:
            return
        first = max(0, len(files.files) - _FILES_SCANNED_AT_LOAD)
        end = files.files[first].start
        for file in files.files[first:]:
            if file.start != end:
                break
            valid = valid_units(file.read(file.start, file.size))
            end = file.start + valid * QUEUE_UNIT_SIZE
            if valid < self.units_per_file:
                break
        files.cut(end)
        self._reset(end // QUEUE_UNIT_SIZE)
        self.min_offset = files.min_position // QUEUE_UNIT_SIZE
        self._find_max_physical()

    def _find_max_physical(self) -> None:
        last = self._read_unit(self.max_offset - 1) if self.max_offset > self.first_offset else None
        self.max_physical = 0 if last is None or last[1] == PRE_BLANK_SIZE else last[0] + last[1]

    @property
    def first_offset(self) -> int:
        """The lowest offset that the files have a place for."""
        return self._files.min_position // QUEUE_UNIT_SIZE if self._files.files else self._tail[0]

    def _read_unit(self, offset: int) -> tuple[int, int, int]:
        data = self.units(offset, 1)
        return UNIT.unpack(data) if data else (0, 0, 0)

    def _first_at_or_above(self, physical_offset: int) -> int:
        """The first unit whose record does not lie below a position; positions grow within a queue, units that mean nothing come first.

        What a power cut left empty counts as behind: only units that no checkpoint covers can be lost, and those are the last ones.
        """
        low, high = self.first_offset, self.max_offset
        while low < high:
            middle = (low + high) // 2
            position, size, _code = self._read_unit(middle)
            if size == PRE_BLANK_SIZE or (position < physical_offset and size > 0):
                low = middle + 1
            else:
                high = middle
        return low

    def truncate(self, physical_end: int) -> None:
        """Drop the units whose records lie at or behind a position (`truncateDirtyLogicFiles`)."""
        if self.max_physical > physical_end:
            self.write_out()
            self.cut(physical_end)

    def cut(self, physical_end: int) -> None:
        """`truncate` of units that are all in files, whatever the last of them says."""
        end = self._first_at_or_above(physical_end)
        while end > self.first_offset and not self._is_sound(end - 1, physical_end):
            end -= 1
        if end < self.max_offset:
            self._files.cut(end * QUEUE_UNIT_SIZE)
            minimum = min(self.min_offset, end)
            self._reset(end)
            self.min_offset = minimum
        self._find_max_physical()

    def _is_sound(self, offset: int, physical_end: int) -> bool:
        """Whether a unit is whole, lies below a position and behind the one in front: of a unit on two pages a power cut may leave one half."""
        position, size, _code = self._read_unit(offset)
        if size == PRE_BLANK_SIZE:
            return True
        if size <= 0 or not 0 <= position < physical_end:
            return False
        if offset == self.first_offset:
            return True
        before, size_before, _code = self._read_unit(offset - 1)
        return size_before == PRE_BLANK_SIZE or (size_before > 0 and before + size_before <= position)

    def settle(self) -> None:
        """Make the removal of files durable."""
        self._files.sync_directories()

    def correct_min_offset(self, min_physical: int) -> None:
        """Raise the lowest offset to the first unit whose record is still in the log."""
        self.min_offset = self._first_at_or_above(min_physical)

    @property
    def directory(self) -> str:
        """Where the files are."""
        return self._files.directory

    def take_before(self, min_physical: int) -> list[MappedFile]:
        """Take out the oldest files whose last record lies in front of a position, never the last file; the caller removes them."""
        taken: list[MappedFile] = []
        files = self._files
        while len(files.files) > 1 and files.files[0].end <= self._written * QUEUE_UNIT_SIZE:
            position, size, _code = self._read_unit(files.files[0].end // QUEUE_UNIT_SIZE - 1)
            if position >= min_physical or size <= 0:
                break
            taken.append(files.take_first())
        return taken

    def clear(self) -> None:
        """Drop all units and files; the queue begins again at 0."""
        self._files.remove_all()
        self._reset(0)
        self.min_offset = self.max_physical = 0

    def close(self) -> None:
        """Let all descriptors go."""
        self._files.close()
