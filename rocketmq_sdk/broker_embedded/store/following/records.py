"""Reads units of queues and records of the log for those who follow it.

What is in memory is taken at once. What may have to wait for a disk is read in a
thread, neighbours in one read, while the event loop serves others. An error concerns
the record that could not be read and no other one.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Final, TypeAlias

from rocketmq_sdk.broker_embedded.store.queues.consume_queue import ConsumeQueue
from rocketmq_sdk.broker_embedded.store.queues.consume_queue_ext import is_address
from rocketmq_sdk.broker_embedded.store.queues.unit_chain import UNIT
from rocketmq_sdk.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rocketmq_sdk.broker_embedded.store.files.file_system import FileSystem
    from rocketmq_sdk.broker_embedded.store.log.commit_log import CommitLog
    from rocketmq_sdk.broker_embedded.store.queues.consume_queue_table import (
        ConsumeQueueTable,
        Queue,
    )

Unit: TypeAlias = tuple[int, int, int]
"""Position, size and tags code."""
Span: TypeAlias = tuple[int, int]
"""Position and size of a record."""
Outcome: TypeAlias = bytes | StoreError | None
"""A record; why it cannot be read; None when the log does not have it any more."""
Reading: TypeAlias = Callable[[int], AbstractContextManager[None]]
_GAP: Final = 16 * 1024
"""Up to so many bytes between two records are read rather than left out."""
_RUN: Final = 1024 * 1024
_PAGE: Final = 4096
_PROBES: Final = 16
_MANY: Final = 4
"""The disk gives nothing when more than a fourth of the probes fail, the rest being in
memory.
"""


def joined_runs(spans: Sequence[Span], file_size: int) -> Iterator[Sequence[Span]]:
    """Sorted spans in runs that one read may fetch; each run lies in one file."""
    first = 0
    for index in range(1, len(spans) + 1):
        if index < len(spans):
            start, (before, length), (position, size) = (
                spans[first][0],
                *spans[index - 1 : index + 1],
            )
            if (
                position - (before + length) <= _GAP
                and position + size - start <= _RUN
                and position // file_size == start // file_size
            ):
                continue
        yield spans[first:index]
        first = index


class RecordReader:
    """Reads the log and the queues of one store.

    `reading` keeps the log files from a position on while something is read there.
    """

    __slots__ = ("_files", "_log", "_reading", "_table")

    def __init__(
        self, log: CommitLog, table: ConsumeQueueTable, files: FileSystem, reading: Reading
    ) -> None:
        self._log = log
        self._table = table
        self._files = files
        self._reading = reading

    # --- records

    def is_in_log(self, position: int, size: int) -> bool:
        """Whether the log has the bytes of a record."""
        log = self._log
        return 0 < size <= log.position - position and (
            position >= log.min_position or log.kept.read(position, size) is not None
        )

    def warm(self, position: int, size: int) -> bytes | None:
        """A record that can be had without waiting; None for any other."""
        try:
            data = self._log.read_nowait(position, size) if self.is_in_log(position, size) else None
        except StoreError:
            return None
        return bytes(data) if data is not None and len(data) == size else None

    def record_now(self, position: int, size: int) -> Outcome:
        """One record; waits for the disk, in any thread."""
        try:
            data = self._log.read(position, size) if self.is_in_log(position, size) else None
        except StoreError as error:
            return error
        if data is not None:
            return bytes(data)
        if not self.is_in_log(position, size):
            return None
        return StoreError(f"{self._log.chain.directory}: {size} bytes at {position} cannot be read")

    async def records(self, spans: Sequence[Span]) -> list[Outcome]:
        """The records at some positions. Does not wait when all are in memory."""
        found: list[Outcome] = [self.warm(*span) for span in spans]
        cold = sorted(
            (span, index)
            for index, span in enumerate(spans)
            if found[index] is None and self.is_in_log(*span)
        )
        if cold:
            wanted = [span for span, _index in cold]
            with self._reading(wanted[0][0]):
                read = await self._files.run(lambda: self._fetch(wanted))
            for (_span, index), outcome in zip(cold, read, strict=True):
                found[index] = outcome
        return found

    def _fetch(self, spans: Sequence[Span]) -> list[Outcome]:
        found: list[Outcome] = []
        for run in joined_runs(spans, self._log.file_size):
            found += self._fetch_run(run)
        return found

    def _fetch_run(self, run: Sequence[Span]) -> list[Outcome]:
        start, end = run[0][0], run[-1][0] + run[-1][1]
        if len(run) > 1:
            whole = self.record_now(start, end - start)
            if isinstance(whole, bytes):
                return [whole[position - start : position - start + size] for position, size in run]
        return [self.record_now(*span) for span in run]

    async def disk_answers(self, position: int, size: int) -> bool:
        """Whether other parts of the log can be read, those around a record left out.

        True as well when nothing else is there that would have to come from the disk.
        """
        return await self._files.run(lambda: self._probe(position, position + max(size, 0)))

    def _probe(self, low: int, high: int) -> bool:
        """Read pages spread over the log; those in memory prove nothing."""
        failed = probed = 0
        begin, end = self._log.min_position, self._log.written
        for position in range(begin, end, max(_PAGE, (end - begin) // _PROBES)):
            file = self._log.chain.find(position)
            if file is None or (position < high and low < position + _PAGE):
                continue
            probed += 1
            try:
                if file.read_nowait(position, _PAGE) is None:
                    file.read(position, _PAGE)
                    return True
            except StoreError:
                failed += 1
        return failed * _MANY <= probed

    # --- units

    def _queue(self, topic: str, queue_id: int) -> Queue | None:
        return self._table.find(topic, queue_id)

    def bounds(self, topic: str, queue_id: int) -> tuple[int, int]:
        """From which offset to which (exclusive) a queue has messages."""
        queue = self._queue(topic, queue_id)
        return (0, 0) if queue is None else (queue.min_offset, queue.max_offset)

    async def units(
        self, topic: str, queue_id: int, offset: int, count: int
    ) -> list[Unit] | StoreError:
        """Units of a queue from an offset on, at most `count`; none outside of it.

        Does not wait when they are in memory. An error is that of the first unit.
        """
        queue = self._queue(topic, queue_id)
        if queue is None or not queue.min_offset <= offset < queue.max_offset:
            return []
        if isinstance(queue, ConsumeQueue):
            try:
                data = queue.units_nowait(offset, count)
            except StoreError:
                data = None
            if data:
                units = list(UNIT.iter_unpack(data))
                if queue.ext is None or not any(is_address(unit[2]) for unit in units):
                    return units
        return await self._files.run(lambda: self._units_now(queue, offset, count))

    @staticmethod
    def unit_nowait(queue: Queue, offset: int) -> Unit | None:
        """A unit of a queue; None when it may have to come from the disk."""
        if not isinstance(queue, ConsumeQueue):
            return queue.unit(offset)
        try:
            data = queue.units_nowait(offset, 1)
        except StoreError:
            return None
        return UNIT.unpack(data) if data else None

    @staticmethod
    def _units_now(queue: Queue, offset: int, count: int) -> list[Unit] | StoreError:
        """`units` in any thread."""
        units: list[Unit] = []
        try:
            if type(queue) is ConsumeQueue and queue.ext is None:
                try:
                    return list(UNIT.iter_unpack(queue.units(offset, count)))
                except StoreError:
                    count = 1  # the error may be that of a later unit
            for at in range(offset, offset + count):
                unit = queue.unit(at)
                if unit is None:
                    break
                units.append(unit)
        except StoreError as error:
            return units or error
        return units
