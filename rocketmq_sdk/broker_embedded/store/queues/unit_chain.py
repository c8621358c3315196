"""A chain of files of equal units, the newest of them in memory.

Both kinds of consume queues build on it. Each unit begins with the position of a
record, its size and its tags code. New units are kept in memory and written joined by
the flush service, or when many have gathered: what a kill loses is rebuilt from the
log.
"""

from __future__ import annotations

import logging
from struct import Struct
from typing import TYPE_CHECKING, ClassVar, Final, NamedTuple

from rocketmq_sdk.broker_embedded.store.files.file_chain import FileChain
from rocketmq_sdk.broker_embedded.store.log.record import is_schedule_topic
from rocketmq_sdk.errors import StoreError
from rocketmq_sdk.log_fields import about

if TYPE_CHECKING:
    from collections.abc import Callable

    from rocketmq_sdk.broker_embedded.store.files.chained_file import ChainedFile
    from rocketmq_sdk.broker_embedded.store.files.file_system import FileSystem

_log = logging.getLogger(__name__)
UNIT: Final = Struct(">qiq")
PRE_BLANK_SIZE: Final = 0x7FFFFFFF
ANYWHERE: Final = (1 << 63) - 1
"""A position behind every record."""
PRE_BLANK: Final = UNIT.pack(0, PRE_BLANK_SIZE, 0)
_TAIL_LIMIT: Final = 64 * 1024
_TAIL_KEPT: Final = 16 * 1024
_FILES_SCANNED_AT_LOAD: Final = 3
_STEP_UNITS: Final = 3072
_SIGN_TO_ZERO: Final = bytes(1 if byte < 0x80 else 0 for byte in range(256))
_unpack_from = UNIT.unpack_from


def valid_units(
    data: bytes,
    unit_size: int,
    *,
    filled: tuple[tuple[int, ...], ...] = ((8, 9, 10, 11),),
    positive: tuple[int, ...] = (0, 8),
) -> int:
    """How many units at the start of `data` are valid.

    One byte of each group in `filled` is not 0, and the bytes in `positive` have no
    sign. Works on columns, as a file holds 300,000 units.
    """
    count = len(data) // unit_size
    if not count:
        return 0
    data = data[: count * unit_size]
    ends = [count]
    for group in filled:
        merged = 0
        for column in group:
            merged |= int.from_bytes(data[column::unit_size])
        ends.append(merged.to_bytes(count).find(0))
    signs = 0
    for column in positive:
        signs |= int.from_bytes(data[column::unit_size])
    ends.append(signs.to_bytes(count).translate(_SIGN_TO_ZERO).find(0))
    return min(end for end in ends if end >= 0)


class Below(NamedTuple):
    """What of a chain points to records that the log has no more."""

    files: int
    """How many of the first files."""
    first: int
    """The first unit that points to a record."""
    address: int | None = None
    """Of a queue with an extension: the first address that is still needed."""
    base: int | None = None
    """Of a batch queue: the queue offset of the first unit."""


class UnitChain:
    """Units are counted from 0.

    `first` and `end` (exclusive) are numbers of units, not yet queue offsets.
    """

    __slots__ = (
        "_files",
        "_spill_at",
        "_synced",
        "_tail",
        "_written",
        "dirty",
        "end",
        "first",
        "is_schedule",
        "max_physical",
        "next_offset",
        "queue_id",
        "removed",
        "topic",
        "topic_bytes",
        "units_per_file",
    )

    is_batch: ClassVar[bool] = False
    """Whether a unit may stand for several messages."""
    unit_size: ClassVar[int]
    parent: ClassVar[str]
    """The directory that holds the chains of this kind."""
    size_setting: ClassVar[str]

    def __init__(self, store_files: FileSystem, topic: str, queue_id: int, file_size: int) -> None:
        self.topic = topic
        self.topic_bytes = topic.encode()
        self.queue_id = queue_id
        self.is_schedule = is_schedule_topic(topic)
        self.units_per_file = file_size // self.unit_size
        self._files = FileChain(
            store_files, f"{self.parent}/{topic}/{queue_id}", file_size, self.size_setting
        )
        self.next_offset = 0
        """The offset of the next message appended to this queue.

        Ahead of `max_offset` while messages wait for their sync.
        """
        self.end = 0
        self.first = 0
        self.max_physical = 0
        """The end of the last record in the queue."""
        self.dirty = False
        self.removed = False
        self._written = 0
        self._synced = 0
        self._spill_at = _TAIL_LIMIT
        # Number of the first unit in memory, and the units. A reader in another thread
        # takes the pair once.
        self._tail: tuple[int, bytearray] = (0, bytearray())

    def _spill(self) -> None:
        try:
            self.write_out()
        except StoreError as error:
            # The units stay in memory; the flush service tries again and refuses writes
            # if it fails too.
            self._spill_at *= 2
            _log.warning(
                "%s queue %d: units stay in memory: %s",
                self.topic,
                self.queue_id,
                error,
                extra=about(topic=self.topic, queue=self.queue_id),
            )

    def _reset(self, offset: int) -> None:
        self._written = self._synced = self.end = self.next_offset = offset
        self._tail = (offset, bytearray())

    def units(self, offset: int, count: int) -> bytes:
        """Up to `count` units from one on; callable from any thread.

        Fewer at the end of the chain and of a file.
        """
        start, tail = self._tail
        if offset >= start:
            at = (offset - start) * self.unit_size
            return bytes(tail[at : at + count * self.unit_size])
        count = min(count, self._written - offset)
        file = self._files.find(offset * self.unit_size)
        if file is None or count <= 0:
            return b""
        try:
            data = file.read(offset * self.unit_size, count * self.unit_size)
        except StoreError:
            if self._files.find(offset * self.unit_size) is file:
                raise
            return b""  # retention removed the file meanwhile
        return data[: len(data) // self.unit_size * self.unit_size]

    def units_nowait(self, offset: int, count: int) -> bytes | None:
        """`units`, but None when they would come from the disk."""
        start, _tail = self._tail
        if offset >= start:
            return self.units(offset, count)
        count = min(count, self._written - offset)
        file = self._files.find(offset * self.unit_size)
        if file is None or count <= 0:
            return None
        data = file.read_nowait(offset * self.unit_size, count * self.unit_size)
        return None if data is None else data[: len(data) // self.unit_size * self.unit_size]

    def write_out(self) -> None:
        """Hand the units that are only in memory to the file system.

        Raises `StoreError`; a later call tries again.
        """
        start, tail = self._tail
        files = self._files
        while self._written < self.end:
            position = self._written * self.unit_size
            fresh = not files.files
            file = files.obtain(position)
            if fresh and position > file.start:
                file.write(file.start, PRE_BLANK * ((position - file.start) // self.unit_size))
            at = position - start * self.unit_size
            data = bytes(tail[at : at + file.end - position])
            file.write(position, data)
            self._written += len(data) // self.unit_size
        if len(tail) >= _TAIL_LIMIT:
            extra = (len(tail) - _TAIL_KEPT) // self.unit_size * self.unit_size
            self._tail = (start + extra // self.unit_size, tail[extra:])
        self._spill_at = _TAIL_LIMIT

    @property
    def unsynced_bytes(self) -> int:
        """How many bytes the file system has that no sync has covered yet."""
        return (self._written - self._synced) * self.unit_size

    def prepare_sync(self) -> Callable[[], None]:
        """What makes the written units durable; runs in a thread.

        Call `synced` afterwards.
        """
        files = [
            file.file
            for file in self._files.overlapping(
                self._synced * self.unit_size, self._written * self.unit_size
            )
        ]
        sync_directories = self._files.directory_sync()

        def sync() -> None:
            for file in files:
                file.sync()
            if sync_directories is not None:
                sync_directories()

        return sync

    @property
    def written_offset(self) -> int:
        """Up to which byte the file system has the units."""
        return self._written

    def synced(self, offset: int) -> None:
        """Note that a sync is done; `offset` was `written_offset` at its start."""
        self._synced = max(self._synced, min(offset, self._written))

    def doubt_contents(self) -> bool:
        """Take nothing in the files for durable, not even their sizes.

        The next sync covers all of them. Returns whether there is anything to sync.
        """
        self._synced = self.first_held
        return self._synced < self._written

    def load(self, *, mend: bool = False) -> None:
        """Find the files; changes nothing unless `mend`.

        Raises `StoreCorruptError`.
        """
        self._files.load(mend=mend)

    def _valid(self, data: bytes) -> int:
        """How many units at the start of some bytes are valid."""
        return valid_units(data, self.unit_size)

    def drop_behind_gap(self) -> None:
        """Drop the files behind one that is missing; they are built again."""
        gap = self._files.gap
        if gap is not None:
            _log.error(
                "%s has no file at %d; what follows is built again from the log",
                self._files.directory,
                gap,
                extra=about(topic=self.topic, queue=self.queue_id),
            )
            self._files.cut(gap)

    @property
    def may_lack_earlier(self) -> int | None:
        """The position of the first record, if units in front of it may be lost.

        Retention removes whole files, and a first file that is missing looks the same.
        `ANYWHERE` without a unit, as a power cut may leave a file whose forerunners it
        lost. None when the first file tells that nothing is missing.
        """
        held = self.first_held
        if not self._files.files or not held or self.first != held:
            return None
        if held == self.end:
            return ANYWHERE
        position, size, _code = self._read_unit(held)
        return None if size == PRE_BLANK_SIZE else position

    @property
    def may_lack_later(self) -> bool:
        """Whether the last file is full, so that another may have followed it."""
        return self.end > self.first_held and self.end % self.units_per_file == 0

    def find_end(self, *, clean: bool) -> None:
        """Find the last unit and drop what follows it.

        After a clean stop nothing but the last file is looked at.
        """
        files = self._files
        if not files.files:
            return
        first = max(0, len(files.files) - (1 if clean else _FILES_SCANNED_AT_LOAD))
        end = files.files[first].start
        for file in files.files[first:]:
            if file.start != end:
                break
            valid = self._valid_in(file)
            end = file.start + valid * self.unit_size
            if valid < self.units_per_file:
                break
        files.cut(end)
        self._reset(end // self.unit_size)
        self.first = files.min_position // self.unit_size
        self._find_max_physical()

    def _valid_in(self, file: ChainedFile) -> int:
        """How many units at the start of a file are valid.

        Reads no more than was written, in steps: most of a file is a hole.
        """
        written = max((high for _low, high in file.file.data_ranges(0, file.size)), default=0)
        step = _STEP_UNITS * self.unit_size
        valid = 0
        for at in range(0, written, step):
            data = file.file.pread(min(step, written - at + self.unit_size, file.size - at), at)
            found = self._valid(data)
            valid += found
            if found < _STEP_UNITS:
                break
        return valid

    def _find_max_physical(self) -> None:
        last = self._read_unit(self.end - 1) if self.end > self.first_held else None
        self.max_physical = 0 if last is None or last[1] == PRE_BLANK_SIZE else last[0] + last[1]

    @property
    def first_held(self) -> int:
        """The lowest unit that the files have room for."""
        return self._files.min_position // self.unit_size if self._files.files else self._tail[0]

    def _read_unit(self, offset: int) -> tuple[int, int, int]:
        data = self.units(offset, 1)
        return _unpack_from(data) if data else (0, 0, 0)

    def _first_at_or_above(self, physical_offset: int) -> int:
        """The first unit whose record is not below a position.

        Positions grow within a queue; meaningless units come first. What a power cut
        left empty counts as above: only units that no checkpoint covers can be lost,
        and those are the last ones.
        """
        low, high = self.first_held, self.end
        # Mostly it is the first one, and the others need not be read.
        middle = low
        while low < high:
            position, size, _code = self._read_unit(middle)
            if size == PRE_BLANK_SIZE or (position < physical_offset and size > 0):
                low = middle + 1
            else:
                high = middle
            middle = (low + high) // 2
        return low

    def truncate(self, physical_end: int) -> None:
        """Drop the units whose records lie at or after a position.

        `truncateDirtyLogicFiles` of Apache.
        """
        if self.max_physical > physical_end:
            self.write_out()
            self.cut(physical_end)

    def cut(self, physical_end: int) -> None:
        """`truncate` for units that are all in files, whatever the last one says."""
        self.forget(physical_end)
        self.trim()

    def trim(self) -> None:
        """Drop from the files what follows the last unit."""
        self._files.cut(self.end * self.unit_size)

    def forget(self, physical_end: int) -> None:
        """`cut` for units that come again at once: the files keep them until `trim`."""
        end = self._first_at_or_above(physical_end)
        while end > self.first_held and not self._is_sound(end - 1, physical_end):
            end -= 1
        if end < self.end:
            minimum = min(self.first, end)
            self._reset(end)
            self.first = minimum
        self._find_max_physical()

    def _is_sound(self, offset: int, physical_end: int) -> bool:
        """Whether a unit is whole and lies between its neighbour and a position.

        A power cut may leave one half of a unit that spans two pages.
        """
        position, size, _code = self._read_unit(offset)
        if size == PRE_BLANK_SIZE:
            return True
        if size <= 0 or not 0 <= position < physical_end:
            return False
        if offset == self.first_held:
            return True
        before, size_before, _code = self._read_unit(offset - 1)
        return size_before == PRE_BLANK_SIZE or (
            size_before > 0 and before + size_before <= position
        )

    def unsettled(self, *, removals: bool) -> list[str]:
        """The directories to sync so that removed files stay removed.

        Without `removals` also those whose files may not have a durable name yet. The
        caller syncs them, and takes what it was told for done.
        """
        return self._files.take_unsynced_directories(removals=removals)

    def correct_min_offset(self, min_physical: int) -> None:
        """Raise the lowest offset to the first unit whose record is in the log."""
        self.first = self._first_at_or_above(min_physical)

    def pass_empty(self) -> None:
        """Begin behind units that a power cut left empty, although others follow.

        Retention had removed their records before the units were durable.
        """
        while self.first < self.end and self._read_unit(self.first)[1] <= 0:
            self.first += 1

    @property
    def directory(self) -> str:
        """The directory of the files."""
        return self._files.directory

    def look_below(self, min_physical: int) -> Below:
        """What of the chain points to records below a position.

        Only reads; callable from any thread. Raises `StoreError`.
        """
        files = 0
        for file in self._files.files[:-1]:
            if file.end > self._written * self.unit_size:
                break
            position, size, _code = self._read_unit(file.end // self.unit_size - 1)
            if position >= min_physical or size <= 0:
                break
            files += 1
        return Below(files, self._first_at_or_above(min_physical))

    def drop_below(self, below: Below) -> list[ChainedFile]:
        """Take out the files that `look_below` found, and raise the lowest unit.

        The last file always stays. The caller removes the files.
        """
        self.first = below.first
        return [self._files.take_first() for _ in range(below.files)]

    def take_below(self, number: int) -> list[ChainedFile]:
        """Take out the oldest files whose units lie below a number.

        The last file always stays. The caller removes the files.
        """
        taken: list[ChainedFile] = []
        files = self._files
        end = min(number, self._written) * self.unit_size
        while len(files.files) > 1 and files.files[0].end <= end:
            taken.append(files.take_first())
        return taken

    @property
    def has_files(self) -> bool:
        """Whether something of it is on the disk."""
        return bool(self._files.files)

    def first_from(self, physical_offset: int) -> int:
        """The number of the first unit whose record is not below a position."""
        if self.max_physical <= physical_offset:
            return self.end
        return self._first_at_or_above(physical_offset)

    def clear(self) -> None:
        """Drop all units and files; the queue begins again at 0."""
        self._files.remove_all()
        self._reset(0)
        self.first = self.max_physical = 0

    def leave_files(self) -> None:
        """Have no units and no files any more; the files stay where they are."""
        self.removed = True
        self._files.leave_all()
        self._reset(0)
        self.first = self.max_physical = 0

    def close(self) -> None:
        """Close all descriptors."""
        self._files.close()
