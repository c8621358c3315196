"""The timer log: which message waits for which time, in order of arrival.

`TimerLog` of Apache RocketMQ 5.4.0. The records of one slot are chained backwards; the
wheel knows the last of them. New records stay in memory until `write_out`, which the
timer service calls about once a second: what a kill loses is found again in the queue
of the timer topic.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from rocketmq_sdk.broker_embedded.store.files.file_chain import FileChain
from rocketmq_sdk.broker_embedded.timers.record import (
    FILLER_MAGIC,
    FILLER_SIZE,
    RECORD,
    RECORD_SIZE,
    TimerRecord,
    encode_filler,
)
from rocketmq_sdk.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator

    from rocketmq_sdk.broker_embedded.store.files.chained_file import ChainedFile
    from rocketmq_sdk.broker_embedded.store.files.file_system import FileSystem, StoreFile

_log = logging.getLogger(__name__)
DIRECTORY: Final = "timerlog"
SIZE_SETTING: Final = "mappedFileSizeTimerLog"
_BLOCK: Final = 64 * 1024
_SPILL: Final = 1024 * 1024
_SALVAGED: Final = 1024 * RECORD_SIZE


class TimerLog:
    """The log; positions are byte positions in its chain of files.

    The first record that goes to a new file creates it.
    """

    __slots__ = (
        "_block",
        "_block_start",
        "_spill_at",
        "_tail",
        "_tail_start",
        "chain",
        "doubtful",
        "end",
        "synced",
    )

    def __init__(self, files: FileSystem, file_size: int) -> None:
        self.chain = FileChain(files, DIRECTORY, file_size, SIZE_SETTING)
        self.end = 0
        """The position of the next record."""
        self.synced = 0
        """Up to where it is durable."""
        self.doubtful = False
        """Whether a sync failed.

        What it covered may be lost although it can be read, and has to be written
        again.
        """
        self._tail = bytearray()
        self._tail_start = 0
        self._spill_at = _SPILL
        self._block = b""
        self._block_start = 0

    @property
    def file_size(self) -> int:
        """Size of each file."""
        return self.chain.file_size

    @property
    def min_position(self) -> int:
        """The position where the oldest file starts."""
        return self.chain.min_position if self.chain.files else self._tail_start

    @property
    def unwritten(self) -> int:
        """How many bytes only this process has."""
        return self.end - self._tail_start

    def look_until(self, position: int) -> None:
        """Take a position for the end, while the log is recovered."""
        self.end = self._tail_start = position
        self._tail = bytearray()
        self._block = b""

    def start_at(self, position: int) -> None:
        """Cut the log at a position. Raises `StoreError`.

        What follows is removed or set to zero.
        """
        self.chain.cut(position)
        self.look_until(position)

    def boundary(self, position: int) -> int:
        """A position from which records can be read.

        The one given, or the nearest one before it where a record may start.
        """
        files = self.chain.files
        if not files:
            return 0
        position = min(max(position, files[0].start), files[-1].end)
        inside = position % self.file_size
        return position if inside % RECORD_SIZE == 0 else position - inside

    def last_position(self, end: int) -> int:
        """The position of the last record before an end.

        Below `min_position` when there is none.
        """
        inside = end % self.file_size
        if inside or not end:
            return end - RECORD_SIZE
        return (
            end
            - self.file_size
            + (self.file_size - FILLER_SIZE) // RECORD_SIZE * RECORD_SIZE
            - RECORD_SIZE
        )

    def append(self, record: bytes) -> int:
        """Append one record; returns its position. Never fails.

        What cannot be written yet stays in memory.
        """
        position = self.end
        rest = self.file_size - position % self.file_size
        if rest < RECORD_SIZE + FILLER_SIZE:
            self._tail += encode_filler(rest).ljust(rest, b"\0")
            position += rest
        self._tail += record
        self.end = position + RECORD_SIZE
        if len(self._tail) >= self._spill_at:
            try:
                self.write_out()
            except StoreError as error:
                self._spill_at *= 2
                _log.warning("timer records stay in memory: %s", error)
        return position

    def write_out(self) -> None:
        """Hand what is only in memory to the file system.

        Raises `StoreError`; a later call tries again.
        """
        if self.doubtful:
            self._write_again(self.synced)
            self.doubtful = False
        while self._tail:
            position = self._tail_start
            file = self.chain.obtain(position)
            data = bytes(self._tail[: file.end - position])
            file.write(position, data)
            del self._tail[: len(data)]
            self._tail_start = position + len(data)
        self._spill_at = _SPILL

    def prepare_sync(self) -> tuple[int, Callable[[], None]]:
        """Up to where the files have the log, and what makes that durable.

        The latter runs in a thread; set `synced` afterwards.
        """
        target = self._tail_start
        files: list[StoreFile] = [file.file for file in self.chain.overlapping(self.synced, target)]
        sync_directories = self.chain.directory_sync()

        def sync() -> None:
            for file in files:
                file.sync()
            if sync_directories is not None:
                sync_directories()

        return target, sync

    def rewrite(self, start: int) -> None:
        """Write the bytes from a position on over themselves and sync them.

        A failed sync of an earlier process may have left pages that look written and
        are not on the disk.
        """
        self._write_again(start)
        for file in self.chain.overlapping(start, self._tail_start):
            file.file.sync()
        self.chain.sync_directories()
        self.synced = self._tail_start

    def _write_again(self, start: int) -> None:
        for file in self.chain.overlapping(start, self._tail_start):
            low, high = max(start, file.start), min(self._tail_start, file.end)
            for position in range(low, high, _SPILL):
                file.write(position, file.read(position, min(_SPILL, high - position)))

    # --- reading

    def record(self, position: int) -> TimerRecord | None:
        """The record at a position; None when there is none."""
        if position < self.min_position or position + RECORD_SIZE > self.end:
            return None
        if position >= self._tail_start:
            data: bytes | bytearray = self._tail
            at = position - self._tail_start
        else:
            data, at = self._cached(position)
        if len(data) - at < RECORD_SIZE:
            return None
        record = TimerRecord._make(RECORD.unpack_from(data, at))
        return record if record.is_sound(position) else None

    def record_in_memory(self, position: int) -> TimerRecord | None:
        """The record at a position that no file has yet; None for any other."""
        at = position - self._tail_start
        if at < 0 or position + RECORD_SIZE > self.end:
            return None
        return TimerRecord._make(RECORD.unpack_from(self._tail, at))

    def block_around(
        self, position: int, size: int, *, nowait: bool = False
    ) -> tuple[int, bytes] | None:
        """Bytes of a file that hold a record, most of them before it, and their start.

        None when no file has it, and with `nowait` when it would come from the disk.
        Callable from any thread. Raises `StoreError`.
        """
        file, end = self.chain.find(position), self._tail_start
        if file is None or position + RECORD_SIZE > min(file.end, end):
            return None
        high = min(file.end, end, position + max(RECORD_SIZE, size // 4))
        low = max(file.start, high - size)
        data = file.read_nowait(low, high - low) if nowait else file.read(low, high - low)
        return None if data is None else (low, data)

    def found_before(
        self, position: int, belongs: Callable[[TimerRecord], bool]
    ) -> list[TimerRecord]:
        """The records before a position that belong to something, last one first.

        For a chain with a part that cannot be read: those of that part are missing.
        Reads everything; callable from any thread.
        """
        found: list[TimerRecord] = []
        for file in self.chain.overlapping(self.min_position, position):
            low, high = file.start, min(file.end, position)
            for block in range(low, high, _SALVAGED):
                found += self._salvaged(file, block, min(block + _SALVAGED, high), belongs)
        return found[::-1]

    @staticmethod
    def _salvaged(
        file: ChainedFile, low: int, high: int, belongs: Callable[[TimerRecord], bool]
    ) -> Iterator[TimerRecord]:
        step = high - low
        try:
            file.read(low, step)
        except StoreError:
            step = RECORD_SIZE
        for start in range(low, high, step):
            try:
                data = file.read(start, min(step, high - start))
            except StoreError:
                continue
            for at in range(0, len(data) - RECORD_SIZE + 1, RECORD_SIZE):
                record = TimerRecord._make(RECORD.unpack_from(data, at))
                if record.is_sound(start + at) and belongs(record):
                    yield record

    def _cached(self, position: int) -> tuple[bytes, int]:
        """A block of bytes that holds the record at a position, and its position.

        Chains run backwards, so the block ends after the record.
        """
        at = position - self._block_start
        if at >= 0 and at + RECORD_SIZE <= len(self._block):
            return self._block, at
        file = self.chain.find(position)
        if file is None:
            return b"", 0
        high = min(file.end, self._tail_start, position + _BLOCK // 2)
        low = max(file.start, position - _BLOCK // 2)
        self._block = file.read(low, high - low)
        self._block_start = low
        return self._block, position - low

    def scan(self, start: int) -> Iterator[tuple[int, TimerRecord]]:
        """Sound records from a position on, with their positions.

        Ends at a record that is not sound or at the end of the log.
        """
        file = self.chain.find(start)
        while file is not None:
            full = yield from self._scan_file(file, start)
            if not full:
                return
            start = file.end
            file = self.chain.find(start)

    def _scan_file(
        self, file: ChainedFile, position: int
    ) -> Generator[tuple[int, TimerRecord], None, bool]:
        """The records of one file.

        Returns whether the file is full, so that the next one continues.
        """
        step = _SPILL // RECORD_SIZE * RECORD_SIZE
        while position + FILLER_SIZE <= file.end:
            data = file.read(position, min(step, file.end - position))
            for at in range(0, len(data), RECORD_SIZE):
                if (
                    len(data) - at >= FILLER_SIZE
                    and int.from_bytes(data[at + 12 : at + 16], "big", signed=True) == FILLER_MAGIC
                ):
                    return True
                if len(data) - at < RECORD_SIZE:
                    return False
                record = TimerRecord._make(RECORD.unpack_from(data, at))
                if not record.is_sound(position + at):
                    return False
                yield position + at, record
            position += len(data)
        return True

    def take_expired(self, min_physical: int) -> list[ChainedFile]:
        """Take out the oldest files of messages that the commit log has no more.

        That is, files whose last message lies below a position of the commit log; the
        last file always stays. The caller removes the files.
        """
        taken: list[ChainedFile] = []
        while len(self.chain.files) > 1 and self.chain.files[0].end <= self.synced:
            record = self.record(self.last_position(self.chain.files[0].end))
            if record is None or record.physical_offset >= min_physical:
                break
            taken.append(self.chain.take_first())
        return taken

    def close(self) -> None:
        """Close all descriptors."""
        self.chain.close()
