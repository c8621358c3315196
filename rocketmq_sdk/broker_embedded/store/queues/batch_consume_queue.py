"""A queue of a topic with `queue.type=BatchCQ` (`BatchConsumeQueue`).

A unit has 46 bytes and stands for one message or a whole batch: position of the record
(8), its size (4), tags code (8), store time (8), queue offset of the first message in
the record (8), number of messages (2), -1 (4), 0 (4). Queue offsets count messages, so
the unit of an offset is found by bisection; the files are filled from their start
whatever the first offset is.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, ClassVar, Final, NamedTuple

from rocketmq_sdk.broker_embedded.store.config import BATCH_UNIT_SIZE
from rocketmq_sdk.broker_embedded.store.queues.unit_chain import Below, UnitChain, valid_units
from rocketmq_sdk.errors import RemoteProtocolError
from rocketmq_sdk.model.enums import BoundaryType
from rocketmq_sdk.protocol.json.dialect import decode_json

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from rocketmq_sdk.broker_embedded.store.files.chained_file import ChainedFile
    from rocketmq_sdk.broker_embedded.store.files.file_system import FileSystem

BATCH_DIRECTORY: Final = "batchconsumequeue"
BATCH_UNIT: Final = Struct(">qiqqqhii")
TOPICS_PATH: Final = "config/topics.json"
QUEUE_TYPE: Final = "queue.type"
BATCH: Final = "BatchCQ"
_NO_COMPACTED: Final = -1
_SIZE_BYTES: Final = (8, 9, 10, 11)
_COUNT_BYTES: Final = (36, 37)
_SIGNS: Final = (0, 8, 28, 36)


class BatchUnit(NamedTuple):
    """One unit."""

    position: int
    size: int
    code: int
    store_timestamp: int
    base: int
    """Queue offset of the first message."""
    messages: int


class BatchConsumeQueue(UnitChain):
    """A batch consume queue; `max_offset` is exclusive."""

    __slots__ = ("max_offset", "min_offset")

    is_batch: ClassVar[bool] = True
    unit_size: ClassVar[int] = BATCH_UNIT_SIZE
    parent: ClassVar[str] = BATCH_DIRECTORY
    size_setting: ClassVar[str] = "mapperFileSizeBatchConsumeQueue"

    def __init__(self, store_files: FileSystem, topic: str, queue_id: int, file_size: int) -> None:
        super().__init__(store_files, topic, queue_id, file_size)
        self.max_offset = 0
        """The offset that the next readable message will have."""
        self.min_offset = 0
        """The offset of the oldest readable message."""

    def append_unit(self, unit: BatchUnit) -> None:
        """Add a unit."""
        tail = self._tail[1]
        tail += BATCH_UNIT.pack(*unit, _NO_COMPACTED, 0)
        if self.end == self.first:
            self.min_offset = unit.base
        self.end += 1
        self.max_offset = unit.base + unit.messages
        self.max_physical = unit.position + unit.size
        if len(tail) >= self._spill_at:
            self._spill()

    def batch_unit(self, number: int) -> BatchUnit | None:
        """The unit of a number; None outside the chain."""
        data = self.units(number, 1) if self.first_held <= number < self.end else b""
        return BatchUnit._make(BATCH_UNIT.unpack(data)[:6]) if data else None

    def number_of(self, offset: int) -> int:
        """The number of the unit that holds a queue offset of this queue."""
        low, high = self.first, self.end
        while high - low > 1:
            middle = (low + high) // 2
            unit = self.batch_unit(middle)
            if unit is not None and unit.base <= offset:
                low = middle
            else:
                high = middle
        return low

    def units_from(self, offset: int, limit: int) -> Iterator[BatchUnit]:
        """Units from the one that holds an offset on, at most `limit` of them.

        Ends at the end of its file.
        """
        data = self.units(self.number_of(offset), limit)
        for fields in BATCH_UNIT.iter_unpack(data):
            yield BatchUnit._make(fields[:6])

    def unit(self, offset: int) -> tuple[int, int, int] | None:
        """Position, size and tags code of the record that holds a message.

        None outside the queue.
        """
        if not self.min_offset <= offset < self.max_offset:
            return None
        unit = self.batch_unit(self.number_of(offset))
        return None if unit is None else (unit.position, unit.size, unit.code)

    def last_record(self) -> tuple[int, int, int] | None:
        """Position, size and queue offset of the last record; None without any."""
        unit = self.batch_unit(self.end - 1)
        return None if unit is None else (unit.position, unit.size, unit.base)

    def offset_by_time(self, timestamp: int, boundary: BoundaryType) -> int:
        """The result of Apache's search by time, by first messages of batches.

        LOWER: the first batch stored at or after the time, or the last one when there
        is none. UPPER is exact only for times at which a batch was stored; between two
        of them the result is the later batch or the lowest offset, depending on how the
        halving falls.
        """
        if self.end <= self.first:
            return self.min_offset
        low, high = self._file_for(timestamp)
        last = self._store_time(high)
        if timestamp >= last:
            return self._base(high)
        while low < high:
            middle = (low + high) // 2
            time = self._store_time(middle)
            if boundary is BoundaryType.LOWER:
                low, high = (middle + 1, high) if time < timestamp else (low, middle)
            elif middle == low:
                if time >= timestamp:
                    return self._base(middle)
                low = middle + 1
            elif time <= timestamp:
                low = middle
            else:
                high = middle - 1
        return (
            self._base(low)
            if low == high and self._store_time(low) >= timestamp
            else self.min_offset
        )

    def _file_for(self, timestamp: int) -> tuple[int, int]:
        """First and last unit of the file to search.

        That is the last file that begins at or before the time, or the next one when it
        ends before the time.
        """
        per_file = self.units_per_file
        starts = list(range(self.first - self.first % per_file, self.end, per_file))
        chosen = max(
            (
                index
                for index, start in enumerate(starts)
                if self._store_time(max(start, self.first)) <= timestamp
            ),
            default=0,
        )

        def bounds(index: int) -> tuple[int, int]:
            return max(starts[index], self.first), min(starts[index] + per_file, self.end) - 1

        if chosen + 1 < len(starts) and self._store_time(bounds(chosen)[1]) < timestamp:
            chosen += 1
        return bounds(chosen)

    def _store_time(self, number: int) -> int:
        unit = self.batch_unit(number)
        return -1 if unit is None else unit.store_timestamp

    def _base(self, number: int) -> int:
        unit = self.batch_unit(number)
        return self.min_offset if unit is None else unit.base

    # --- bounds in queue offsets follow those in units

    def _set_bounds(self) -> None:
        last = self.batch_unit(self.end - 1)
        self.max_offset = 0 if last is None else last.base + last.messages
        first = self.batch_unit(self.first)
        self.min_offset = self.max_offset if first is None else first.base
        self.next_offset = self.max_offset

    def _valid(self, data: bytes) -> int:
        return valid_units(
            data, self.unit_size, filled=(_SIZE_BYTES, _COUNT_BYTES), positive=_SIGNS
        )

    def find_end(self, *, clean: bool) -> None:
        """Find the last unit and drop what follows it."""
        super().find_end(clean=clean)
        self._set_bounds()

    def forget(self, physical_end: int) -> None:
        """Forget the units whose records lie at or after a position."""
        super().forget(physical_end)
        self._set_bounds()

    def correct_min_offset(self, min_physical: int) -> None:
        """Raise the lowest offset to the first unit whose record is in the log."""
        super().correct_min_offset(min_physical)
        following = self.next_offset
        self._set_bounds()
        self.next_offset = max(following, self.max_offset)

    def look_below(self, min_physical: int) -> Below:
        """What of the queue points to records below a position."""
        below = super().look_below(min_physical)
        unit = self.batch_unit(below.first)
        return below._replace(base=None if unit is None else unit.base)

    def drop_below(self, below: Below) -> list[ChainedFile]:
        """Take out what `look_below` found; the caller removes the files."""
        taken = super().drop_below(below)
        self.min_offset = self.max_offset if below.base is None else below.base
        return taken

    def clear(self) -> None:
        """Drop all units and files."""
        super().clear()
        self._set_bounds()

    def leave_files(self) -> None:
        """Have no units and no files any more; the files stay where they are."""
        super().leave_files()
        self._set_bounds()


def batch_topics(read: Callable[[str], bytes | None]) -> set[str]:
    """The topics with `queue.type=BatchCQ`, from the file of the topics.

    Empty when the file and its `.bak` are missing or cannot be read. `read` returns the
    bytes of a file. The store needs to know before the broker's managers have read that
    file: lost queues are rebuilt from the log while it opens.
    """
    return {name for name, topic in (_topic_table(read) or {}).items() if _is_batch(topic)}


def known_topics(read: Callable[[str], bytes | None]) -> set[str] | None:
    """The names of all topics, by the same file; None when that cannot be told."""
    table = _topic_table(read)
    return None if table is None else set(table)


def _topic_table(read: Callable[[str], bytes | None]) -> dict[str, object] | None:
    for path in (TOPICS_PATH, f"{TOPICS_PATH}.bak"):
        data = read(path)
        try:
            content = decode_json(data) if data else None
        except RemoteProtocolError:
            continue
        table = content.get("topicConfigTable") if isinstance(content, dict) else None
        if isinstance(table, dict):
            return table
    return None


def _is_batch(topic: object) -> bool:
    attributes = topic.get("attributes") if isinstance(topic, dict) else None
    return isinstance(attributes, dict) and attributes.get(QUEUE_TYPE) == BATCH
