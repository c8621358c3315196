"""The commit log: the records of all queues, one after another.

`CommitLog` of Apache RocketMQ 5.4.0. A record never crosses the end of a file: when it
and 8 more bytes do not fit, 8 bytes say that the rest is blank, and the record goes to
the next file. Files have their configured length from the start, but get their space in
steps ahead of the end, so that a full disk is noticed before a record is half written.
The end of the log is also kept in memory, in segments of whole records: reads of new
messages find them there, and appends can be handed to the file system joined. Large
records are not kept: copying them takes as long as writing them, and the page cache has
them.
"""

from __future__ import annotations

import contextlib
from bisect import bisect_right
from collections import deque
from typing import TYPE_CHECKING, Protocol

from rocketmq_sdk.broker_embedded.store.files.file_chain import FileChain
from rocketmq_sdk.broker_embedded.store.log.record import (
    BLANK_SIZE,
    STORE_TIME_SPAN,
    blank,
    store_time,
)
from rocketmq_sdk.errors import StoreError, StoreFullError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rocketmq_sdk.broker_embedded.store.config import StoreConfig
    from rocketmq_sdk.broker_embedded.store.files.chained_file import ChainedFile
    from rocketmq_sdk.broker_embedded.store.files.file_system import Bytes, FileSystem

DIRECTORY = "commitlog"
SEGMENT_BYTES = 1024 * 1024
_MEMORY_HOT_BYTES = 8 * 1024 * 1024
_WRITTEN_ALONE = 16 * 1024
"""From this many bytes on, joining appends costs more than it saves."""
_LEAST_SEGMENTS = 128


class NoNextFileError(StoreFullError):
    """No space for another file; an existing file may still have some."""


class KeptBytes(Protocol):
    """Records of files that are gone."""

    @property
    def first(self) -> int | None:
        """The lowest position; None without records."""
        ...

    def read(self, position: int, size: int) -> bytes | None:
        """Bytes of one record, or of several that follow each other."""
        ...


class _NothingKept:
    """What a log on a disk keeps of such files."""

    first = None

    def read(self, position: int, size: int) -> None:
        """Nothing."""


class CommitLog:
    """The log of one store.

    Positions are byte positions in the whole log ("physical offsets").
    """

    __slots__ = (
        "_file",
        "_hot",
        "_hot_limit",
        "_hot_size",
        "_left",
        "_most_segments",
        "_pwrite",
        "_segment",
        "_segment_limit",
        "_soiled_to",
        "_step",
        "chain",
        "kept",
        "limit",
        "on_enter",
        "position",
        "relieve",
        "write_problem",
        "write_through",
        "written",
    )

    def __init__(self, files: FileSystem, config: StoreConfig) -> None:
        self.chain = FileChain(
            files, DIRECTORY, config.mapped_file_size_commit_log, "mappedFileSizeCommitLog"
        )
        self.position = 0
        """The position of the next record."""
        self.written = 0
        """The position up to which the file system has the bytes."""
        self.limit = 0
        """How far a record and 8 bytes may reach without `make_room`."""
        self.write_through = files.write_through
        self._step = config.allocation_step
        self._hot_limit = (
            config.hot_bytes if files.blocking else min(config.hot_bytes, _MEMORY_HOT_BYTES)
        )
        self._segment_limit = min(SEGMENT_BYTES, max(4096, self._hot_limit // 4))
        self._most_segments = max(_LEAST_SEGMENTS, 2 * self._hot_limit // self._segment_limit)
        self._segment = bytearray()
        # Starts and bytes of the segments. A reader in another thread takes the pair
        # once, so it is replaced and never changed in place.
        self._hot: tuple[list[int], list[bytearray]] = ([0], [self._segment])
        self._hot_size = 0
        self._file: ChainedFile | None = None
        self._left: deque[ChainedFile] = deque()
        self._pwrite: Callable[[Bytes, int], None] | None = None
        self._soiled_to = 0
        self.write_problem: StoreError | None = None
        """Why the last write of a record failed; until what it left is overwritten."""
        self.on_enter: Callable[[], None] | None = None
        """Called when appends continue in another file."""
        self.relieve: Callable[[], None] | None = None
        """Called before the log takes more space."""
        self.kept: KeptBytes = _NothingKept()
        """Records of files that are gone."""

    @property
    def file_size(self) -> int:
        """Size of each file."""
        return self.chain.file_size

    @property
    def min_position(self) -> int:
        """The position where the oldest file starts."""
        return self.chain.min_position

    @property
    def first_position(self) -> int:
        """The lowest position of which anything can be read."""
        first = self.kept.first
        return self.chain.min_position if first is None else first

    def start_at(self, position: int) -> None:
        """Cut the log at a position. Raises `StoreError`.

        What follows is removed or set to zero.
        """
        self.chain.cut(position)
        self._left.clear()
        self.position = self.written = position
        self._forget_hot()
        file = self.chain.find(position)
        if file is not None:
            self._enter(file)

    def forget_all(self) -> None:
        """Be empty again, after an attempt to begin that wrote nothing.

        Files that it made stay in the chain; whoever begins again removes them.
        """
        self.position = self.written = self.limit = 0
        self._file = self._pwrite = self.write_problem = None
        self._forget_hot()

    def _forget_hot(self) -> None:
        self._segment = bytearray()
        self._hot = ([self.position], [self._segment])
        self._hot_size = 0

    def _enter(self, file: ChainedFile) -> None:
        if self._file is not None and self._file is not file:
            self._left.append(self._file)
        file.file.hold()
        self._file = file
        self._pwrite = file.file.pwrite
        self._soiled_to = 0
        self.write_problem = None
        self.limit = min(file.end, file.allocated)
        self._new_segment()
        if self.on_enter is not None:
            self.on_enter()

    def synced(self, position: int) -> None:
        """Close the files that are left and durable.

        Not before: the system may tell an error of a write only to a descriptor that
        was open when it happened.
        """
        while self._left and self._left[0].end <= position:
            self._left.popleft().file.close()

    def make_room(self, size: int) -> int:
        """Where a record of this size will go: here or to the start of a new file.

        The caller has checked that `size` and 8 bytes fit into one file. Raises
        `StoreError`, leaving the log as it was.
        """
        if self.relieve is not None:
            self.relieve()
        while True:
            file = self._file
            if file is None or self.position >= file.end:
                file = self._next_file(self.position, size)
                self._enter(file)
            end = self.position + size + BLANK_SIZE
            if end <= file.end:
                self._allocate(file, end)
                self.limit = min(file.end, file.allocated)
                return self.position
            self._roll(file, size)

    def _allocate(self, file: ChainedFile, end: int) -> None:
        if end <= file.allocated:
            return
        try:
            step = min(self._step, self.chain.store_files.allocation_limit)
            file.allocate_to(max(end, file.allocated + step))
        except StoreFullError:
            file.allocate_to(end)

    def _next_file(self, position: int, size: int) -> ChainedFile:
        try:
            if not self.chain.files:
                return self._first_file(position, size)
            file = self.chain.obtain(position)
            self._allocate(file, position + size + BLANK_SIZE)
        except StoreFullError as error:
            raise NoNextFileError(str(error)) from error
        return file

    def _first_file(self, position: int, size: int) -> ChainedFile:
        """Begin the log with a durable file, before a queue or note can tell of a log.

        Without it, a start takes the log for lost. Raises `StoreError`; the next append
        then begins again.
        """
        try:
            file = self.chain.obtain(position)
            self._allocate(file, position + size + BLANK_SIZE)
            file.file.sync()
            self.chain.sync_directories()
        except StoreError:
            with contextlib.suppress(StoreError):
                self.chain.remove_all()
            raise
        return file

    def _roll(self, file: ChainedFile, size: int) -> None:
        self.write_out()
        following = self._next_file(file.end, size)
        file.write(self.position, blank(file.end - self.position))
        self.position = self.written = file.end
        self._enter(following)

    def append(self, records: Bytes, end: int) -> None:
        """Append one record, or several joined, at the position from `make_room`.

        `end` is the position after it. Raises `StoreError` without appending.
        """
        if len(self._segment) >= self._segment_limit:
            self.write_out()
            self._new_segment()
        if self.write_through or len(records) >= _WRITTEN_ALONE:
            self._write_now(records, end)
            if len(records) >= _WRITTEN_ALONE:
                self.position = end
                self._new_segment()
                return
        self._segment += records
        self.position = end

    def append_run(self, records: bytes, end: int) -> None:
        """`append` for many small records joined: all of them are kept in memory."""
        if len(self._segment) >= self._segment_limit:
            self.write_out()
            self._new_segment()
        if self.write_through:
            self._write_now(records, end)
        self._segment += records
        self.position = end

    def _write_now(self, records: Bytes, end: int) -> None:
        self.write_out()
        file = self._file
        assert file is not None
        assert self._pwrite is not None
        try:
            self._pwrite(records, self.position - file.start)
        except StoreError as error:
            # Another record will stand there; how much of this one does now is not
            # known.
            self._soiled_to = max(self._soiled_to, end)
            self._pwrite = self._write_over
            self.write_problem = error
            raise
        self.written = end

    def _write_over(self, data: Bytes, offset: int) -> None:
        """Write where a write has failed; what it left goes first.

        Else a death in the middle of this write could leave a record with properties of
        another one, which no check sum covers.
        """
        file = self._file
        assert file is not None
        position = file.start + offset
        if position < self._soiled_to:
            file.write(position, bytes(self._soiled_to - position))
        if data:
            file.write(position, data)
        self._soiled_to = 0
        self._pwrite = file.file.pwrite
        self.write_problem = None

    def append_bytes(self, data: bytes) -> None:
        """Append bytes of another log whose files have the same size.

        The bytes may be parts of records, whole ones, and the blank end of a file.
        Raises `StoreError`; some of the bytes may then be in the log if they cross the
        end of a file.
        """
        at = 0
        while at < len(data):
            file = self._file
            if file is None or self.position >= file.end:
                self.write_out()
                file = self._next_file(self.position, 0)
                self._enter(file)
            piece = data[at : at + file.end - self.position]
            self._allocate(file, self.position + len(piece))
            self.append(piece, self.position + len(piece))
            at += len(piece)
        if self._file is not None:
            self.limit = min(self._file.end, self._file.allocated)

    def write_out(self) -> None:
        """Hand what was appended to the file system. Raises `StoreError`.

        After an error a later call tries again. Also overwrites what a failed write of
        a record has left.
        """
        if self.written < self.position:
            file = self._file
            assert file is not None
            assert self._pwrite is not None
            # A copy, because a view kept alive by a traceback would forbid the next
            # append to grow the segment.
            pending = bytes(memoryview(self._segment)[self.written - self.position :])
            self._pwrite(pending, self.written - file.start)
            self.written = self.position
        elif self.write_problem is not None and self._file is not None:
            self._write_over(b"", self.position - self._file.start)

    def _new_segment(self) -> None:
        starts, segments = self._hot
        self._hot_size += len(self._segment)
        last = len(segments) if self._segment else len(segments) - 1
        first = max(0, last - self._most_segments)
        self._hot_size -= sum(map(len, segments[:first]))
        while first < last and self._hot_size > self._hot_limit:
            self._hot_size -= len(segments[first])
            first += 1
        self._segment = bytearray()
        self._hot = ([*starts[first:last], self.position], [*segments[first:last], self._segment])

    def read_hot(self, position: int, size: int) -> bytearray | None:
        """Bytes from the part of the log that is kept in memory."""
        starts, segments = self._hot
        index = bisect_right(starts, position) - 1
        if index < 0:
            return None
        at = position - starts[index]
        data = segments[index][at : at + size]
        missing = size - len(data)
        while (
            missing
            and data
            and index + 1 < len(starts)
            and starts[index] + len(segments[index]) == starts[index + 1]
        ):
            index += 1
            data += segments[index][:missing]
            missing = size - len(data)
        return None if missing else data

    def stretches_hot(self, starts: Sequence[int], stops: Sequence[int]) -> bytes | None:
        """Stretches of whole records in the order of the log, joined.

        None unless each of them is kept in memory, in one piece.
        """
        begins, segments = self._hot
        index = bisect_right(begins, starts[0]) - 1
        if index < 0:
            return None
        begin, segment = begins[index], segments[index]
        end = begin + len(segment)
        parts: list[bytearray] = []
        for start, stop in zip(starts, stops, strict=True):
            while start >= end:
                index += 1
                if index == len(begins):
                    return None
                begin, segment = begins[index], segments[index]
                end = begin + len(segment)
            if start < begin or stop > end:
                return None
            parts.append(segment[start - begin : stop - begin])
        return b"".join(parts)

    def is_hot(self, position: int) -> bool:
        """Whether the record at a position is kept in memory."""
        starts, segments = self._hot
        index = bisect_right(starts, position) - 1
        return index >= 0 and position - starts[index] < len(segments[index])

    def read(self, position: int, size: int) -> bytes | bytearray | None:
        """Bytes of one file; None when they are not in the log (any more).

        May wait for the disk; can be called from any thread.
        """
        data = self.read_hot(position, size)
        if data is not None:
            return data
        file = self.chain.find(position)
        if file is None:
            return self.kept.read(position, size)
        rest = self._not_written(position, size)
        if rest is None:
            return None
        in_file = size - len(rest)
        try:
            found = file.read(position, in_file)
        except StoreError:
            if self.chain.find(position) is file:
                raise
            return None
        if len(found) != in_file:
            return None
        return found + rest if rest else found

    def _not_written(self, position: int, size: int) -> bytearray | None:
        """The end of a span that is in memory alone, while its start is in the file.

        Empty when all of it is in the file, None when it is not all in the log.
        """
        while True:
            written = self.written
            if position + size <= written:
                return bytearray()
            if position >= written:
                return None
            rest = self.read_hot(written, position + size - written)
            # Written, and forgotten, while another thread has looked for it here.
            if rest is not None or self.written == written:
                return rest

    def read_nowait(self, position: int, size: int) -> bytes | bytearray | None:
        """Like `read`, but also None when the bytes would come from the disk."""
        data = self.read_hot(position, size)
        if data is not None:
            return data
        file = self.chain.find(position)
        if file is None:
            return self.kept.read(position, size)
        rest = self._not_written(position, size)
        if rest is None:
            return None
        found = file.read_nowait(position, size - len(rest))
        return found + rest if found is not None and rest else found

    def data_span(self, position: int, limit: int, end: int) -> int:
        """How many bytes from a position on one read may take.

        The read stays within its file, before `end` and within `limit`; 0 when there is
        nothing.
        """
        file = self.chain.find(position)
        return (
            0
            if file is None
            else max(0, min(limit, file.end - position, min(end, self.position) - position))
        )

    def store_time_at(self, position: int) -> int:
        """The store time of the record at a position; -1 when there is none."""
        head = (
            self.read(position, STORE_TIME_SPAN)
            if self.first_position <= position < self.position
            else None
        )
        return -1 if head is None else store_time(bytes(head))

    def close(self) -> None:
        """Close all descriptors."""
        self.chain.close()
