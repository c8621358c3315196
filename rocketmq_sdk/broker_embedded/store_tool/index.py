"""Checks every file of the key index, by itself and against the log."""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, Final

from rocketmq_sdk.broker_embedded.store.index.file import (
    ENTRY_SIZE,
    HEADER_SIZE,
    SLOT_SIZE,
    file_size,
)
from rocketmq_sdk.broker_embedded.store_tool.report import NO_FILE
from rocketmq_sdk.model.properties import KEYS, TAGS, UNIQ_KEY, property_in_text
from rocketmq_sdk.names import java_hash

if TYPE_CHECKING:
    from array import array
    from collections.abc import Callable

    from rocketmq_sdk.broker_embedded.store_tool.log import LogRecord, LogRecordReader
    from rocketmq_sdk.broker_embedded.store_tool.report import Progress, StoreReader, StoreReport

DIRECTORY: Final = "index"
_HEADER: Final = Struct(">qqqqii")
_ENTRY: Final = Struct(">iqii")
_DIGITS: Final = 17
_ENTRIES_PER_SLOT: Final = 4
_MOST_FINDINGS: Final = 100
_TELL_EACH: Final = 20_000
"""Entries between two reports of how far it is."""
_CHUNK: Final = 1 << 20
_ZEROS: Final = bytes(_CHUNK)
_MOST_SECONDS: Final = (1 << 31) - 1


def _hash(text: str) -> int:
    value = abs(java_hash(text))
    return 0 if value > _MOST_SECONDS else value


def slot_count(size: int) -> int | None:
    """How many slots a file of this size has with four entries for each.

    Apache's default; None when the size does not fit.
    """
    slots = (size - HEADER_SIZE) // (SLOT_SIZE + _ENTRIES_PER_SLOT * ENTRY_SIZE)
    return slots if slots > 0 and file_size(slots, slots * _ENTRIES_PER_SLOT) == size else None


class IndexWalk:
    """One pass over `index/`.

    The numbers of slots and entries come from the size of a file: Apache has four
    entries for each slot by default.
    """

    def __init__(
        self,
        reader: StoreReader,
        report: StoreReport,
        log: LogRecordReader,
        keyed: array[int],
        end: int | None = None,
    ) -> None:
        """`end` is where the index ends when it is unfinished."""
        self._reader = reader
        self._report = report
        self._log = log
        self._keyed = keyed
        self._end = end
        self._found: set[int] = set()

    def run(self, advance: Progress) -> None:
        """Run the pass; `advance` is told the bytes."""
        report = self._report
        found = self._reader.file_sizes(DIRECTORY)
        for name, size in found:
            if size == NO_FILE:
                report.add(f"{DIRECTORY}/{name}", 0, "name", "is no regular file; move it away")
        entries = [(name, size) for name, size in found if size > 0]
        first: int | None = None
        done, total = 0, sum([size for _name, size in entries])

        def tell(part: float) -> None:
            advance("bytes of index", done + int(size * part), total)

        for number, (name, size) in enumerate(entries):
            path = f"{DIRECTORY}/{name}"
            last = number == len(entries) - 1
            tell(0)
            if not (name.isascii() and name.isdecimal() and len(name) == _DIGITS):
                report.add(
                    path,
                    0,
                    "name",
                    (
                        f"does not belong there: the names of these files are times of {_DIGITS} "
                        "digits"
                    ),
                )
                done += size
                continue
            slots = slot_count(size)
            if slots is None or (report.running and last):
                done += size
                continue
            begin = self._check(path, size, slots, tell)
            done += size
            first = begin if first is None else first
        if entries:
            advance("bytes of index", total, total)
        if first is not None and not report.running:
            lacking = [
                position
                for position in self._keyed
                if position >= first
                and position not in self._found
                and (self._end is None or position < self._end)
            ]
            if lacking:
                problem = (
                    f"the index lacks {len(lacking)} messages of the log, the first at {lacking[0]}"
                )
                kind = "index"
                if report.unclean and lacking[0] > max(self._found, default=-1):
                    kind, problem = "index_behind", f"{problem}; the next start adds them"
                report.add(f"{DIRECTORY}/{entries[-1][0]}", 0, kind, problem)

    def _check(self, path: str, size: int, slots: int, tell: Callable[[float], None]) -> int | None:
        """Check one file; returns the position of its first record.

        `tell` takes the part that is done.
        """
        report = self._report
        header: tuple[int, ...] = _HEADER.unpack(self._reader.read(path, 0, HEADER_SIZE))
        begin_time, end_time, begin, end, used, count = header
        count = max(1, count)
        if count > slots * _ENTRIES_PER_SLOT:
            report.add(
                path,
                36,
                "index",
                (
                    f"says that it holds {count - 1} entries; there is room for "
                    f"{slots * _ENTRIES_PER_SLOT - 1}"
                ),
            )
            return None
        before = len(report.findings)
        base = HEADER_SIZE + slots * SLOT_SIZE
        used_end = base + count * ENTRY_SIZE
        data = self._reader.read(path, 0, used_end)
        report.bytes += len(data)
        heads: dict[int, int] = {}
        position = -1
        for number in range(1, count):
            if not number % _TELL_EACH:
                tell(number / count)
            at = base + number * ENTRY_SIZE
            value, position, seconds, previous = _ENTRY.unpack_from(data, at)
            problem, field = self._judge(value, position, seconds if number > 1 else -1, begin_time)
            if not problem and previous != heads.get(value % slots, 0):
                earlier = heads.get(value % slots, 0)
                problem = f"the entry before it in its slot is {earlier}, not {previous}"
                field = 16
            if problem:
                report.add(path, at + field, "index", f"entry {number}: {problem}")
            heads[value % slots] = number
            self._found.add(position)
            if number == 1 and position != begin:
                report.add(
                    path, 16, "index", f"the first entry is of {position}, the header says {begin}"
                )
            if len(report.findings) - before > _MOST_FINDINGS:
                report.add(path, 0, "index", "more in this file is wrong than is listed")
                return begin
        self._check_slots(path, data, slots, heads)
        if count > 1:
            self._check_header(path, begin_time, end_time, end, position)
        if used != len(heads):
            report.add(path, 32, "index", f"says that {used} slots are used; {len(heads)} are")
        if not report.running and self._holds_data(path, used_end, size):
            report.add(path, used_end, "index", f"holds data behind its last entry ({count - 1})")
        return begin

    def _holds_data(self, path: str, offset: int, end: int) -> bool:
        for low, high in self._reader.data_ranges(path, offset, end):
            for at in range(low, high, _CHUNK):
                if not _ZEROS.startswith(self._reader.read(path, at, min(_CHUNK, high - at))):
                    return True
        return False

    def _check_header(
        self, path: str, begin_time: int, end_time: int, end: int, position: int
    ) -> None:
        if position != end:
            self._report.add(
                path, 24, "index", f"the last entry is of {position}, the header says {end}"
            )
        if begin_time > end_time:
            self._report.add(
                path, 0, "index", f"begins at the time {begin_time} and ends before, at {end_time}"
            )
        record = self._log.record(position)
        if record is not None and record.store_timestamp != end_time:
            self._report.add(
                path,
                8,
                "index",
                (
                    f"the last message was stored at {record.store_timestamp}, the header says "
                    f"{end_time}"
                ),
            )

    def _check_slots(self, path: str, data: bytes, slots: int, heads: dict[int, int]) -> None:
        table = data[HEADER_SIZE : HEADER_SIZE + slots * SLOT_SIZE]
        wanted = bytearray(len(table))
        for slot, number in heads.items():
            wanted[slot * SLOT_SIZE : slot * SLOT_SIZE + SLOT_SIZE] = number.to_bytes(SLOT_SIZE)
        if table == wanted:
            return
        for slot in range(slots):
            place = slot * SLOT_SIZE
            if table[place : place + SLOT_SIZE] != wanted[place : place + SLOT_SIZE]:
                found = int.from_bytes(table[place : place + SLOT_SIZE], signed=True)
                self._report.add(
                    path,
                    HEADER_SIZE + place,
                    "index",
                    f"slot {slot} says entry {found}, its last one is {heads.get(slot, 0)}",
                )

    def _judge(self, value: int, position: int, seconds: int, begin_time: int) -> tuple[str, int]:
        """What is wrong with an entry, and at which of its bytes.

        The text is empty when nothing is wrong. `seconds` below 0 are not compared.
        """
        if value < 0 or position < 0:
            return f"hash {value} and position {position} cannot be", 0
        if position < self._report.log_start or (
            self._report.running and position >= self._report.log_end
        ):
            return "", 0
        record = self._log.record(position)
        if record is None:
            return f"no record begins at {position}", 4
        if value not in self._hashes(record):
            return f"the hash {value} is of no key of the record at {position}", 0
        wanted = min(max(0, (record.store_timestamp - begin_time) // 1000), _MOST_SECONDS)
        if seconds not in (-1, wanted):
            return f"says {seconds} seconds, the record at {position} was stored after {wanted}", 12
        return "", 0

    @staticmethod
    def _hashes(record: LogRecord) -> set[int]:
        unique = property_in_text(record.properties, UNIQ_KEY)
        keys = (property_in_text(record.properties, KEYS) or "").split(" ")
        tags = property_in_text(record.properties, TAGS)
        found = {_hash(f"{record.topic}#{key}") for key in (unique, *keys) if key}
        if tags:
            found.add(_hash(f"{record.topic}#T#{tags}"))
        return found
