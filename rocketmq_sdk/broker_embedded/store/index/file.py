"""One file of the key index (`IndexFile`, `IndexHeader` of Apache RocketMQ 5.4.0).

A header of 40 bytes, then slots of 4 bytes, then entries of 20: the hash of a key, the
position of its record, the seconds since the first message of the file, and the number
of the entry before it in the same slot. A slot holds the number of its newest entry.
Numbers begin at 1.

Slots of the file that is written to are kept in memory in the machine's byte order (a
table that takes only the memory that is touched), new entries as bytes. Entries are
handed over when many have gathered, one behind the other. The slots that they change
lie all over the file: their pages and the header are written by `write_out` only, when
the file is full or everything has to become durable. Files are sparse.
"""

from __future__ import annotations

import mmap
import sys
from array import array
from bisect import bisect_left
from functools import lru_cache
from itertools import repeat
from operator import itemgetter
from struct import Struct
from typing import TYPE_CHECKING, Final

from rocketmq_sdk.errors import StoreCorruptError, StoreError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rocketmq_sdk.broker_embedded.store.config import StoreConfig
    from rocketmq_sdk.broker_embedded.store.files.file_system import FileSystem, StoreFile

HEADER: Final = Struct(">qqqqii")
ENTRY: Final = Struct(">iqii")
HEADER_SIZE: Final = HEADER.size
SLOT_SIZE: Final = 4
ENTRY_SIZE: Final = ENTRY.size
_SLOT: Final = Struct(">i")
_PAGE_SLOTS: Final = 1024
_MAX_RUN_PAGES: Final = 64
_MAX_SECONDS: Final = (1 << 31) - 1
_BLOCK_ENTRIES: Final = 200
_STEPS_PER_PAUSE: Final = 2000
_SWAPPED: Final = sys.byteorder == "little"
_pack = ENTRY.pack
_FIELDS: Final = 4
_LEAST_APART: Final = 32
"""So many entries are worth to be added together."""
_MOST_APART: Final = 512
_FORMS: Final = 16
"""How many numbers of entries are remembered; batches of a producer mostly have one."""
_MEMORY_SHARE: Final = 4096
_MEMORY_ENTRIES_SHARE: Final = 320


def sizes_in(files: FileSystem, config: StoreConfig) -> tuple[int, int]:
    """Slots and entries of a file; in memory no more than the limit allows."""
    if files.blocking:
        return config.max_hash_slot_num, config.max_index_num
    limit = config.memory_limit
    return min(config.max_hash_slot_num, max(1000, limit // _MEMORY_SHARE)), min(
        config.max_index_num, max(1000, limit // _MEMORY_ENTRIES_SHARE)
    )


@lru_cache(_FORMS)
def _entries(count: int) -> Struct:
    """So many entries as one struct."""
    return Struct(">" + "iqii" * count)


def file_size(slot_count: int, capacity: int) -> int:
    """The length of a file in bytes."""
    return HEADER_SIZE + slot_count * SLOT_SIZE + capacity * ENTRY_SIZE


def _zeros(size: int) -> mmap.mmap:
    """Zeroed memory that takes time and space only where it is written.

    A `bytearray` of the usual 20 MB stops everything for 15 ms.
    """
    if sys.platform == "win32":
        return mmap.mmap(-1, size)
    return mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)


def _in_order(
    keys: Sequence[int], others: Sequence[int], offsets: Sequence[int]
) -> tuple[list[int], list[int]]:
    """Hashes of keys with the others behind each, and the offset of each of them."""
    times = 1 + len(others)
    hashes, places = [0, *others] * len(keys), [0] * (times * len(keys))
    hashes[::times] = keys
    for place in range(times):
        places[place::times] = offsets
    return hashes, places


class IndexFile:
    """One file of the index, with the fields of its header.

    `count` is the number of the next entry; times are epoch milliseconds, positions
    those of the commit log.
    """

    __slots__ = (
        "_dirty_pages",
        "_entries_at",
        "_heads",
        "_tail",
        "_tail_start",
        "begin_offset",
        "begin_timestamp",
        "capacity",
        "changed",
        "count",
        "end_offset",
        "end_timestamp",
        "file",
        "name",
        "slot_count",
        "used_slots",
    )

    def __init__(self, file: StoreFile, name: str, slot_count: int, capacity: int) -> None:
        self.file = file
        self.name = name
        self.slot_count = slot_count
        self.capacity = capacity
        self.begin_timestamp = self.end_timestamp = self.begin_offset = self.end_offset = (
            self.used_slots
        ) = 0
        self.count = 1
        self.changed = False
        """Whether something is only in memory."""
        self._entries_at = HEADER_SIZE + slot_count * SLOT_SIZE
        self._heads: memoryview | None = None
        self._dirty_pages = bytearray()
        self._tail = bytearray()
        self._tail_start = 1

    @classmethod
    def create(
        cls, files: FileSystem, path: str, slot_count: int, capacity: int, before: IndexFile | None
    ) -> IndexFile:
        """Create a file that continues after another one. Raises `StoreError`."""
        file = cls(
            files.create(path, file_size(slot_count, capacity)),
            path.rpartition("/")[2],
            slot_count,
            capacity,
        )
        if before is not None:
            file.begin_offset = file.end_offset = before.end_offset
            file.begin_timestamp = file.end_timestamp = before.end_timestamp
        file._use_heads(memoryview(_zeros(slot_count * SLOT_SIZE)).cast("i"))
        file.changed = True
        return file

    def load(self) -> None:
        """Read the header.

        Raises `StoreError`, and `StoreCorruptError` for impossible numbers.
        """
        fields = HEADER.unpack(self._pread(HEADER_SIZE, 0))
        (
            self.begin_timestamp,
            self.end_timestamp,
            self.begin_offset,
            self.end_offset,
            self.used_slots,
            count,
        ) = fields
        self.count = self._tail_start = max(1, count)
        if count > self.capacity:
            raise StoreCorruptError(
                f"{self.file.path} says that it holds {count - 1} entries; there is room for "
                f"{self.capacity - 1}"
            )

    @property
    def full(self) -> bool:
        """Whether no entry fits any more."""
        return self.count >= self.capacity

    @property
    def room(self) -> int:
        """How many entries can be added; 0 while the slots have to be read first."""
        return 0 if self._heads is None else max(0, self.capacity - self.count)

    @property
    def unwritten_bytes(self) -> int:
        """Bytes of entries that are only in memory."""
        return len(self._tail)

    # --- writing

    def _use_heads(self, heads: memoryview) -> None:
        self._heads = heads
        self._dirty_pages = bytearray((self.slot_count + _PAGE_SLOTS - 1) // _PAGE_SLOTS)

    def prepare(self) -> None:
        """Read what adding entries needs; otherwise the first `put` does.

        Raises `StoreError`.
        """
        if self._heads is None and not self.full:
            self._load_heads()

    def _load_heads(self) -> memoryview:
        """Read the slots; holes of the file stay untouched memory."""
        heads = memoryview(_zeros(self.slot_count * SLOT_SIZE))
        for low, high in self.file.data_ranges(HEADER_SIZE, self._entries_at):
            start = (low - HEADER_SIZE) // SLOT_SIZE * SLOT_SIZE
            end = min((high - HEADER_SIZE + SLOT_SIZE - 1) // SLOT_SIZE * SLOT_SIZE, len(heads))
            slots = array("i", self.file.pread(end - start, HEADER_SIZE + start))
            if _SWAPPED:
                slots.byteswap()
            heads[start:end] = memoryview(slots).cast("B")
        found = heads.cast("i")
        self._use_heads(found)
        return found

    def put(self, hashes: Sequence[int], offset: int, store_timestamp: int) -> int:
        """Add the entries of one record; returns how many of them fit.

        Raises `StoreError` when the slots have to be read first and cannot be.
        """
        number = self.count
        fitting = min(len(hashes), self.capacity - number)
        if fitting <= 0:
            return 0
        heads = self._heads
        if heads is None:
            heads = self._load_heads()
        begin = self.begin_timestamp
        slot_count, tail, dirty_pages = self.slot_count, self._tail, self._dirty_pages
        for value in hashes if fitting == len(hashes) else hashes[:fitting]:
            slot = value % slot_count
            previous = heads[slot]
            if previous <= 0 or previous > number:
                previous = 0
                self.used_slots += 1
            seconds = (store_timestamp - begin) // 1000 if 0 < begin <= store_timestamp else 0
            tail += _pack(
                value, offset, seconds if seconds < _MAX_SECONDS else _MAX_SECONDS, previous
            )
            heads[slot] = number
            dirty_pages[slot // _PAGE_SLOTS] = 1
            if number == 1:
                self.begin_offset = offset
                self.begin_timestamp = begin = store_timestamp
            number += 1
        self.count = number
        self.end_offset = offset
        self.end_timestamp = store_timestamp
        self.changed = True
        return fitting

    def put_all(
        self,
        hashes: Sequence[int],
        offsets: Sequence[int],
        store_timestamp: int,
        others: Sequence[int] = (),
    ) -> bool:
        """Add the entries of several records, or none of them.

        The offset of its record comes with each hash. Behind the entry of each hash
        come those of `others`, for the same record. Returns False, having done nothing,
        when they may not all fit or the file is empty. Raises as `put` does.
        """
        number, count = self.count, len(hashes) * (1 + len(others))
        if number == 1 or not count or number + count > self.capacity:
            return False
        heads = self._heads
        if heads is None:
            heads = self._load_heads()
        seconds = self.seconds(store_timestamp)
        if not self._put_apart(heads, hashes, others, offsets, seconds):
            if others:
                hashes, offsets = _in_order(hashes, others, offsets)
            self._put_each(heads, hashes, offsets, seconds)
        self.count = number + count
        self.end_offset = offsets[-1]
        self.end_timestamp = store_timestamp
        self.changed = True
        return True

    def seconds(self, store_timestamp: int) -> int:
        """What the entries of a message keep of its store time.

        It is counted from that of the first message of the file, which has entries.
        """
        begin = self.begin_timestamp
        if not 0 < begin <= store_timestamp:
            return 0
        return min((store_timestamp - begin) // 1000, _MAX_SECONDS)

    def _put_apart(
        self,
        heads: memoryview,
        hashes: Sequence[int],
        others: Sequence[int],
        offsets: Sequence[int],
        seconds: int,
    ) -> bool:
        """Add entries that lie in different slots, as those of unique keys mostly do.

        False, and nothing is done, for others.
        """
        slot_count, number, count, times = self.slot_count, self.count, len(hashes), 1 + len(others)
        if count == 1 or not _LEAST_APART <= count * times <= _MOST_APART:
            return False
        if offsets[0] == offsets[1]:
            return False  # with tags that differ, for instance, which come again
        slots = [value % slot_count for value in hashes]
        if others:
            slots += [value % slot_count for value in others]
        if len(set(slots)) != len(slots):
            return False
        previous: tuple[int, ...] = itemgetter(*slots)(heads)
        new = previous.count(0)
        if new != len(slots) and (min(previous) < 0 or max(previous) > number):
            return False
        size, end = times * _FIELDS, number + count * times
        fields = [seconds] * (count * size)
        fields[::size] = hashes
        fields[1::size] = offsets
        fields[3::size] = previous[:count]
        for place, value in enumerate(others, 1):
            numbers, at = range(number + place, end, times), place * _FIELDS
            fields[at::size] = repeat(value, count)
            fields[at + 1 :: size] = offsets
            fields[at + 3 :: size] = (previous[count - 1 + place], *numbers[:-1])
        self._tail += _entries(count * times).pack(*fields)
        self.used_slots += new
        for slot in slots[:count]:
            heads[slot] = number
            number += times
        for place, slot in enumerate(slots[count:], 1 - times):
            heads[slot] = end + place
        self._mark_pages(slots)
        return True

    def _mark_pages(self, slots: list[int]) -> None:
        """Mark pages as such that are to be written; most slots lie close together."""
        slots.sort()  # they mostly are: keys are counted up
        dirty_pages, at, count = self._dirty_pages, 0, len(slots)
        while at < count:
            page = slots[at] // _PAGE_SLOTS
            dirty_pages[page] = 1
            at = bisect_left(slots, (page + 1) * _PAGE_SLOTS, at + 1)

    def _put_each(
        self, heads: memoryview, hashes: Sequence[int], offsets: Sequence[int], seconds: int
    ) -> None:
        """Add entries one by one."""
        slot_count, dirty_pages, number = self.slot_count, self._dirty_pages, self.count
        chains: list[int] = []
        note, new = chains.append, 0
        for value in hashes:
            slot = value % slot_count
            previous = heads[slot]
            if previous <= 0 or previous > number:
                previous = 0
                new += 1
            note(previous)
            heads[slot] = number
            dirty_pages[slot // _PAGE_SLOTS] = 1
            number += 1
        self.used_slots += new
        self._tail += b"".join(map(_pack, hashes, offsets, repeat(seconds), chains))

    def write_out(self) -> None:
        """Write out what is only in memory. Raises `StoreError`.

        After an error a later call tries again.
        """
        for _ in self.writing():
            pass

    def writing(self) -> Iterator[None]:
        """`write_out` in steps.

        Entries may be added between the steps; those stay in memory.
        """
        header = HEADER.pack(
            self.begin_timestamp,
            self.end_timestamp,
            self.begin_offset,
            self.end_offset,
            self.used_slots,
            self.count,
        )
        if self._tail:
            self.write_entries()
            yield
        dirty = self._dirty_pages
        page = dirty.find(1)
        while page >= 0:
            end = dirty.find(0, page, page + _MAX_RUN_PAGES)
            end = min(page + _MAX_RUN_PAGES, len(dirty)) if end < 0 else end
            self._write_slots(page * _PAGE_SLOTS, min(end * _PAGE_SLOTS, self.slot_count))
            dirty[page:end] = bytes(end - page)
            yield
            page = dirty.find(1, end)
        self.file.pwrite(header, 0)
        self.changed = bool(self._tail)

    def write_entries(self) -> None:
        """Write out the entries alone; no header tells of them yet.

        Raises `StoreError`; a later call tries again.
        """
        entries = bytes(self._tail)
        self.file.pwrite(entries, self._entries_at + self._tail_start * ENTRY_SIZE)
        self._tail = bytearray()
        self._tail_start += len(entries) // ENTRY_SIZE

    def _write_slots(self, low: int, high: int) -> None:
        assert self._heads is not None
        slots = array("i", self._heads[low:high])
        if _SWAPPED:
            slots.byteswap()
        self.file.pwrite(slots.tobytes(), HEADER_SIZE + low * SLOT_SIZE)

    def release(self) -> None:
        """Give up the slots in memory of a file that is full and written."""
        self._heads = None
        self._dirty_pages = bytearray()

    # --- reading

    def covers(self, begin: int, end: int) -> bool:
        """Whether a range of times touches that of the file."""
        first, last = self.begin_timestamp, self.end_timestamp
        return (begin < first and end > last) or first <= begin <= last or first <= end <= last

    def select(
        self, key_hash: int, limit: int, begin: int, end: int, found: list[int]
    ) -> Iterator[None]:
        """Collect positions of records by hash and time, newest first.

        Adds to `found` until it has `limit` positions. A chain can be long, as every
        tag makes one; this generator yields now and then so that others can run. Raises
        `StoreError`.
        """
        number = self._head(key_hash % self.slot_count)
        if not 0 < number <= self.count or self.count <= 1:
            return
        first = self.begin_timestamp
        steps = 0
        block = b""
        block_start = 0
        while len(found) < limit:
            at = (number - block_start) * ENTRY_SIZE
            if not 0 <= at < len(block):
                block_start, block = self._block(number)
                at = (number - block_start) * ENTRY_SIZE
                if at >= len(block):
                    return
            entry_hash, offset, seconds, previous = ENTRY.unpack_from(block, at)
            time = first + seconds * 1000
            if seconds < 0:
                return
            if entry_hash == key_hash and begin <= time <= end:
                found.append(offset)
            # Forward there is nothing but damage: such a chain may be a circle.
            if not 0 < previous < number or time < begin:
                return
            number = previous
            steps += 1
            if steps % _STEPS_PER_PAUSE == 0:
                yield

    def _head(self, slot: int) -> int:
        if self._heads is not None:
            return int(self._heads[slot])
        value: int = _SLOT.unpack(self._pread(SLOT_SIZE, HEADER_SIZE + slot * SLOT_SIZE))[0]
        return value

    def _block(self, number: int) -> tuple[int, bytes]:
        """Entries up to and including one, with the number of the first of them."""
        low = max(0, number + 1 - _BLOCK_ENTRIES)
        start = self._tail_start
        if number >= start:
            low = max(low, start)
            return low, bytes(
                self._tail[(low - start) * ENTRY_SIZE : (number + 1 - start) * ENTRY_SIZE]
            )
        return low, self._pread(
            (number + 1 - low) * ENTRY_SIZE, self._entries_at + low * ENTRY_SIZE
        )

    def _pread(self, size: int, offset: int) -> bytes:
        """Bytes of the file, which has its full length from the start."""
        data = self.file.pread(size, offset)
        if len(data) < size:
            raise StoreError(f"{self.file.path}: cannot read (the file ends in the middle)")
        return data

    def entries_at_end(self) -> int:
        """How many of the last entries belong to the last record."""
        found = 0
        number = self.count - 1
        while number >= 1:
            low, block = self._block(number)
            while number >= max(low, 1):
                if ENTRY.unpack_from(block, (number - low) * ENTRY_SIZE)[1] != self.end_offset:
                    return found
                found += 1
                number -= 1
        return found

    def remove(self) -> None:
        """Remove the file. Raises `StoreError`."""
        self.release()
        self.file.remove()

    def close(self) -> None:
        """Let the descriptor go."""
        self.file.close()

    def __repr__(self) -> str:
        return (
            f"<IndexFile {self.name} {self.count - 1} entries [{self.begin_offset}, "
            f"{self.end_offset}]>"
        )


def require_size(path: str, size: int, slot_count: int, capacity: int) -> None:
    """Raise `StoreCorruptError` for a file of another length than the settings say."""
    if size != file_size(slot_count, capacity):
        raise StoreCorruptError(
            f"{path} has {size} bytes, but {slot_count} slots (maxHashSlotNum) and {capacity} "
            "entries (maxIndexNum) take "
            f"{file_size(slot_count, capacity)}; open the store with the numbers that it was "
            "written with"
        )
