"""Checks every record of a commit log.

It walks over the records by rules and a CRC (crcmod) of its own: it judges what the
store has written, so it must not repeat a fault of the store.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from struct import Struct, error
from typing import TYPE_CHECKING, Final

import crcmod.predefined

from rocketmq_sdk.broker_embedded.store.log.commit_log import DIRECTORY
from rocketmq_sdk.broker_embedded.store_tool.report import (
    Progress,
    StoreReader,
    StoreReport,
    read_written,
)
from rocketmq_sdk.model.properties import KEYS, TAGS, UNIQ_KEY, property_in_text
from rocketmq_sdk.names import SCHEDULE_TOPIC, java_hash

if TYPE_CHECKING:
    from collections.abc import Callable

_CRC: Final[Callable[[bytes], int]] = crcmod.predefined.mkCrcFun("crc-32")
_MASK: Final = 0x7FFFFFFF
_V1, _V2, _BLANK = 0xDAA320A7, 0xDAA320AB, 0xCBD43194
_HEAD: Final = {
    (born, store): Struct(f">iIIiiqqiq{born}sq{store}siqi") for born in (8, 20) for store in (8, 20)
}
_TWO: Final = Struct(">iI")
_UNIT: Final = Struct(">qiq")
_CRC_NAME: Final = b"__CRC32#\x01"
_CRC_LENGTH: Final = 20
_STEP: Final = 1 << 20
_ZEROS: Final = bytes(_STEP)
_INNER_BATCH: Final = 0x80
_NO_UNIT: Final = bytes(20)
_MOST_SKIPPED: Final = 1024
"""A larger step between queue offsets counts as damage of the one record.

It does not count as missing records.
"""
_MOST_LOST: Final = 1 << 24


class LogRecord:
    """One whole record."""

    __slots__ = (
        "body_length",
        "born_timestamp",
        "flag",
        "position",
        "properties",
        "queue_id",
        "queue_offset",
        "size",
        "store_timestamp",
        "sys_flag",
        "topic",
    )

    def __init__(
        self, position: int, topic: str, properties: str, fields: tuple[int, ...], body_length: int
    ) -> None:
        self.position = position
        self.topic = topic
        self.properties = properties
        (
            self.size,
            self.queue_id,
            self.flag,
            self.queue_offset,
            self.sys_flag,
            self.born_timestamp,
            self.store_timestamp,
        ) = fields
        self.body_length = body_length

    @property
    def in_queue(self) -> bool:
        """Whether the record has a unit in a queue."""
        return self.sys_flag & 0x0C in (0, 8)

    @property
    def tags_code(self) -> int:
        """What its unit has as tags code."""
        tags = property_in_text(self.properties, TAGS)
        return java_hash(tags) if tags else 0


class BrokenError(Exception):
    """Why a record is not whole, and at which of its bytes."""

    def __init__(self, at: int, kind: str, problem: str, *, ends_log: bool = True) -> None:
        super().__init__(problem)
        self.ends_log = ends_log
        """Whether a store that starts takes this for the end of the log."""
        self.at = at
        self.kind = kind


def parse_record(data: bytes, position: int) -> LogRecord:
    """The record in `data` (its bytes and no more), which lies at `position`.

    Raises `BrokenError`.
    """
    size = len(data)
    try:
        sys_flag = int.from_bytes(data[36:40])
        head = _HEAD[20 if sys_flag & 0x10 else 8, 20 if sys_flag & 0x20 else 8]
        fields = head.unpack_from(data, 0)
        body_end = head.size + fields[14]
        if fields[14] < 0 or body_end >= size:
            raise BrokenError(
                head.size - 4, "record", f"a body of {fields[14]} bytes in a record of {size}"
            )
        wide = fields[1] == _V2
        topic_at = body_end + (2 if wide else 1)
        topic_length = int.from_bytes(data[body_end:topic_at], signed=wide)
        properties_at = topic_at + topic_length + 2
        length = int.from_bytes(data[properties_at - 2 : properties_at], signed=True)
    except error as short:
        raise BrokenError(0, "record", f"{size} bytes are too few for a record") from short
    if topic_length < 0 or length < 0 or properties_at + length != size:
        raise BrokenError(
            0,
            "record",
            (
                f"its parts (body {fields[14]}, topic {topic_length}, properties {length}) do not "
                "add "
                f"up to its {size} bytes"
            ),
        )
    if (_CRC(data[head.size : body_end]) & _MASK if fields[14] else 0) != fields[2]:
        raise BrokenError(8, "crc", f"the CRC of the body of {fields[14]} bytes does not match")
    properties = data[properties_at:]
    _check_property_crc(data, properties, size)
    if fields[6] != position:
        raise BrokenError(
            28,
            "place",
            f"says that it stands at {fields[6]}, but it stands at {position}",
            ends_log=False,
        )
    if fields[3] < 0 or fields[5] < 0:
        raise BrokenError(12, "record", f"queue {fields[3]} and queue offset {fields[5]} cannot be")
    topic = data[topic_at : properties_at - 2].decode("utf-8", "replace")
    if not topic or "/" in topic or "\0" in topic or "\ufffd" in topic:
        raise BrokenError(
            topic_at, "record", f"a topic of {topic_length} bytes that cannot be: {topic!r}"
        )
    kept = (size, fields[3], fields[4], fields[5], sys_flag, fields[8], fields[10])
    return LogRecord(position, topic, properties.decode("utf-8", "replace"), kept, fields[14])


def _check_property_crc(data: bytes, properties: bytes, size: int) -> None:
    tail = properties[-_CRC_LENGTH:]
    if tail.startswith(_CRC_NAME):
        digits = tail[len(_CRC_NAME) : -1]
        if not digits.isdigit() or int(digits[::-1]) != _CRC(data[: size - _CRC_LENGTH]) & _MASK:
            raise BrokenError(
                size - _CRC_LENGTH,
                "crc",
                "the CRC of the record in its properties does not match",
                ends_log=False,
            )


class LogRecordReader:
    """Single records of a log, read in chunks.

    The last chunk is kept, as most callers follow the order of the log.
    """

    __slots__ = ("_chain", "_chunk", "_file_size", "_reader", "_starts")

    def __init__(self, reader: StoreReader, chain: list[tuple[int, str]], file_size: int) -> None:
        self._reader = reader
        self._chain = chain
        self._starts = [start for start, _path in chain]
        self._file_size = file_size
        self._chunk: tuple[str, int, bytes] = ("", 0, b"")

    def place(self, position: int) -> tuple[str, int] | None:
        """The file that holds a position, and the offset in it."""
        index = bisect_right(self._starts, position) - 1
        if index < 0 or position - self._starts[index] >= self._file_size:
            return None
        return self._chain[index][1], position - self._starts[index]

    def record(self, position: int) -> LogRecord | None:
        """The record that begins at a position; None when none is whole there."""
        place = self.place(position)
        if place is None:
            return None
        path, at = place
        size = int.from_bytes(self._bytes(path, at, 4), signed=True)
        if not 0 < size <= self._file_size - at:
            return None
        try:
            return parse_record(self._bytes(path, at, size), position)
        except BrokenError:
            return None

    def _bytes(self, path: str, at: int, size: int) -> bytes:
        name, low, data = self._chunk
        if name != path or at < low or at + size > low + len(data):
            low, data = at, self._reader.read(path, at, max(size, _STEP))
            self._chunk = (path, low, data)
        return data[at - low : at - low + size]


class QueueUnits:
    """The units that a queue should have according to the log."""

    __slots__ = ("first", "units")

    def __init__(self, first: int) -> None:
        self.first = first
        self.units = bytearray()
        """Zeros where the log is damaged and nothing is known."""

    @property
    def next(self) -> int:
        """The queue offset after the last one."""
        return self.first + len(self.units) // 20


_TELL_EACH: Final = 1 << 20
"""Bytes after which a file of a gigabyte tells how far it was read."""


class LogWalk:
    """One pass over the log.

    Afterwards `queues` has what should be in the queues, and `keyed` which records have
    keys.
    """

    def __init__(
        self,
        reader: StoreReader,
        report: StoreReport,
        chain: list[tuple[int, str]],
        deleted: dict[str, int],
        batch_topics: set[str],
        on_record: Callable[[LogRecord], None] | None = None,
    ) -> None:
        self._reader = reader
        self._report = report
        self._chain = chain
        self._deleted = deleted
        self._batch_topics = batch_topics
        self._on_record = on_record
        self._damaged = False
        self._last_time = 0
        self.queues: dict[tuple[str, int], QueueUnits] = {}
        self.batches: dict[tuple[str, int], list[LogRecord]] = {}
        """Records of batch consume queues."""
        self.keyed: array[int] = array("q")
        self.end = 0
        self._start_ends: tuple[str, int, int] | None = None
        self._behind: list[LogRecord] = []

    def run(self, advance: Progress) -> None:
        """Run the pass; `advance` is told the bytes."""
        report = self._report
        report.log_start = self._chain[0][0] if self._chain else 0
        self.end = report.log_start
        ended: tuple[str, int] | None = None
        lengths = dict(self._reader.file_sizes(DIRECTORY))
        total = sum(max(length, 0) for length in lengths.values())

        def tell(done: int) -> None:
            advance("bytes of log", done, max(done, total))

        for start, path in self._chain:
            length = min(report.log_file_size, lengths.get(path.rpartition("/")[2], 0))
            data = read_written(self._reader, path, length)
            if ended is not None and data.strip(b"\0"):
                report.add(
                    ended[0],
                    ended[1],
                    "tail",
                    (
                        f"the log ends here, but {path} holds data: all that is behind is lost to "
                        "a "
                        "broker"
                    ),
                )
                self._note_end(*ended, self.end)
                self._damaged, ended = True, None
            stop = self._walk_file(start, path, data, length, tell)
            if stop is not None and ended is None:
                ended = (path, stop)
            report.bytes += length
            tell(report.bytes)
        report.log_end = self.end
        if self._start_ends is not None and self._behind:
            path, at, position = self._start_ends
            first, last = self._behind[0], self._behind[-1]
            problem = (
                f"a start ends the log here, at {position}, and sets aside {len(self._behind)} "
                "whole records behind it"
            )
            times = f"stored from {first.store_timestamp} to {last.store_timestamp}"
            report.add(
                path,
                at,
                "gap",
                f"{problem} (from {first.position} to {last.position + last.size}, {times})",
            )

    def _note_end(self, path: str, at: int, position: int) -> None:
        """Remember the first damage that a start would take for the end of the log."""
        if self._start_ends is None:
            self._start_ends = (path, at, position)

    def _walk_file(
        self, start: int, path: str, data: bytes, length: int, tell: Callable[[int], None]
    ) -> int | None:
        """Walk over one file, which has zeros after `data` up to `length` bytes.

        Returns where the log ends in it, None when it continues.
        """
        at, told = 0, _TELL_EACH
        while at + 8 <= length:
            if at >= told:
                tell(self._report.bytes + at)
                told = at + _TELL_EACH
            size, magic = _TWO.unpack(data[at : at + 8].ljust(8, b"\0"))
            if magic == _BLANK:
                if size != length - at:
                    self._report.add(
                        path,
                        at,
                        "blank",
                        f"the rest of the file is said to be {size} bytes; it is {length - at}",
                    )
                self.end = start + length
                return None
            if not size and not magic:
                behind = self._first_not_zero(data, at)
                if behind is None:
                    return at
            try:
                self._take(self._record_at(data, at, start, size, magic, length), path, at)
                at += size
                self.end = start + at
                continue
            except BrokenError as broken:
                following = self._next_record(data, at, start, length)
                kind = broken.kind if following is not None else "tail"
                if not (kind == "tail" and self._report.running and start == self._chain[-1][0]):
                    self._report.add(
                        path,
                        at + broken.at,
                        kind,
                        f"the record at {start + at} is broken: {broken}",
                    )
                if following is None:
                    return at
                self._damaged = True
                if broken.ends_log:
                    self._note_end(path, at, start + at)
                at = following
        return None if at == length else at

    @staticmethod
    def _first_not_zero(data: bytes, at: int) -> int | None:
        for low in range(at, len(data), _STEP):
            piece = data[low : low + _STEP]
            if piece == _ZEROS:  # twenty times as fast as looking for the first other byte
                continue
            rest = piece.lstrip(b"\0")
            if rest:
                return low + len(piece) - len(rest)
        return None

    @staticmethod
    def _record_at(
        data: bytes, at: int, start: int, size: int, magic: int, length: int
    ) -> LogRecord:
        if magic not in (_V1, _V2):
            raise BrokenError(4, "record", f"no record begins with the magic code {magic:08X}")
        if not 0 < size <= length - at:
            raise BrokenError(
                0, "record", f"a size of {size} bytes with {length - at} left in the file"
            )
        return parse_record(data[at : at + size].ljust(size, b"\0"), start + at)

    @staticmethod
    def _next_record(data: bytes, at: int, start: int, length: int) -> int | None:
        """The position of the next certain record, or of the blank end.

        A record is certain when it names its own position.
        """
        for magic in (_V1, _V2):
            code = magic.to_bytes(4)
            found = data.find(code, at + 8)
            while found >= 0:
                here = found - 4
                if int.from_bytes(data[here + 28 : here + 36]) == start + here:
                    return here
                found = data.find(code, found + 1)
        found = data.find(_BLANK.to_bytes(4), at + 8)
        while found >= 0:
            if int.from_bytes(data[found - 4 : found]) == length - found + 4:
                return found - 4
            found = data.find(_BLANK.to_bytes(4), found + 1)
        return None

    def _take(self, record: LogRecord, path: str, at: int) -> None:
        self._report.records += 1
        if self._start_ends is not None:
            self._behind.append(record)
        if self._on_record is not None:
            self._on_record(record)
        if "\0" in record.properties:
            index = (
                record.size
                - len(record.properties.encode())
                + record.properties.encode().index(b"\0")
            )
            self._report.add(
                path,
                at + index,
                "properties",
                f"the properties of the record at {record.position} hold zeros; no CRC covers them",
            )
        if record.store_timestamp < self._last_time:
            self._report.add(
                path,
                at + 56,
                "order",
                (
                    f"stored at {record.store_timestamp}, before the record in front "
                    f"({self._last_time})"
                ),
            )
        self._last_time = max(self._last_time, record.store_timestamp)
        if property_in_text(record.properties, UNIQ_KEY) or property_in_text(
            record.properties, KEYS
        ):
            self.keyed.append(record.position)
        if record.in_queue and record.position >= self._deleted.get(record.topic, 0):
            if record.sys_flag & _INNER_BATCH or record.topic in self._batch_topics:
                self.batches.setdefault((record.topic, record.queue_id), []).append(record)
            else:
                self._queue(record, path, at)

    def _queue(self, record: LogRecord, path: str, at: int) -> None:
        key = (record.topic, record.queue_id)
        offset = record.queue_offset
        queue = self.queues.get(key)
        if queue is None or (not offset and queue.units):
            queue = self.queues[key] = QueueUnits(offset)
        if offset > queue.next:
            jump = offset - queue.next
            if not self._damaged:
                problem = (
                    f"{record.topic} queue {record.queue_id}: queue offset {offset} follows "
                    f"{queue.next - 1}"
                )
                self._report.add(path, at + 20, "order", problem)
            if jump > (_MOST_LOST if self._damaged else _MOST_SKIPPED):
                queue.units += _NO_UNIT
                return
            queue.units += _NO_UNIT * jump
        elif offset < queue.next:
            problem = (
                f"{record.topic} queue {record.queue_id}: queue offset {offset} was there before"
            )
            self._report.add(path, at + 20, "order", problem)
            if offset < queue.first or queue.next - offset > _MOST_SKIPPED:
                return
            del queue.units[(offset - queue.first) * 20 :]
        code = record.tags_code if record.topic != SCHEDULE_TOPIC else record.store_timestamp
        queue.units += _UNIT.pack(record.position, record.size, code)
