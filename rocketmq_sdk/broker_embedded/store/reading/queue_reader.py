"""Reading queues.

`DefaultMessageStore.getMessage` and `getOffsetInQueueByTime` of Apache RocketMQ 5.4.0.
A read plans first: which units, which of them pass the filter, which stretches of the
log. Then it fetches the stretches, neighbours as one, and joins them. No record is
decoded, except by a filter that looks at properties.
"""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Callable
from itertools import accumulate, takewhile
from operator import add
from typing import TYPE_CHECKING, Final

from rocketmq_sdk.broker_embedded.store.config import QUEUE_UNIT_SIZE, StoreConfig
from rocketmq_sdk.broker_embedded.store.log.record import (
    HEAD_SPAN,
    body_end,
    properties_behind,
    properties_of,
)
from rocketmq_sdk.broker_embedded.store.messages import (
    MAX_BYTES,
    BitMapFilter,
    GetResult,
    GetStatus,
    MessageFilter,
    QueueRead,
    ReadRun,
)
from rocketmq_sdk.broker_embedded.store.queues.consume_queue import ConsumeQueue
from rocketmq_sdk.broker_embedded.store.queues.consume_queue_ext import Extension, is_address
from rocketmq_sdk.broker_embedded.store.queues.unit_chain import PRE_BLANK_SIZE, UNIT
from rocketmq_sdk.model.enums import BoundaryType
from rocketmq_sdk.model.properties import decode_properties

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rocketmq_sdk.broker_embedded.store.log.commit_log import CommitLog
    from rocketmq_sdk.broker_embedded.store.queues.batch_consume_queue import BatchConsumeQueue
    from rocketmq_sdk.broker_embedded.store.queues.consume_queue_table import Queue
    from rocketmq_sdk.broker_embedded.store.state import StoreState

_MIN_BYTES: Final = 100
_LOOK_MAX: Final = 524_288
"""The work on properties after which a read ends, having found nothing.

Nobody else is served meanwhile; it is some 10 ms at the worst.
"""
_RUN_UNITS: Final = 8192
"""Messages of reads that are answered together, at most."""
_GAP: Final = 8192
"""Bytes between two stretches that are read too: cheaper than to read twice."""
_SMALL: Final = 4096
"""Records up to this size are read whole; of bigger ones only what is needed."""
_Read = Callable[[int, int], bytes | bytearray | None]


def _memory_bytes() -> int:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return 4 << 30


class QueueReader:
    """Reads of one store.

    Nothing is changed, so `get` may run in another thread than the appends.
    """

    __slots__ = (
        "_disk_bytes",
        "_disk_count",
        "_log",
        "_memory_bytes",
        "_memory_count",
        "_memory_span",
        "_scan_limit",
        "_state",
    )

    def __init__(self, log: CommitLog, state: StoreState, config: StoreConfig) -> None:
        self._log = log
        self._state = state
        self._memory_bytes = config.max_transfer_bytes_on_message_in_memory
        self._memory_count = config.max_transfer_count_on_message_in_memory
        self._disk_bytes = config.max_transfer_bytes_on_message_in_disk
        self._disk_count = config.max_transfer_count_on_message_in_disk
        self._memory_span = _memory_bytes() * config.access_message_in_memory_max_ratio // 100
        self._scan_limit = config.max_filter_message_size // QUEUE_UNIT_SIZE

    def end(self, queue: Queue) -> int:
        """The offset behind the last message of a queue that may be read.

        While the log cannot be written, what its file does not have may not: a kill
        would lose it, and a later message get the offset of one that was consumed.
        """
        end, low = queue.max_offset, queue.min_offset
        if self._state.log_problem is not None:
            written = self._log.written
            while end > low:
                unit = queue.unit(end - 1)
                if unit is None or unit[0] + unit[1] <= written:
                    break
                end -= 1
        return end

    def get(self, queue: Queue, wanted: QueueRead, read: _Read) -> GetResult:
        """Read a queue that exists.

        The first message that passes is included whatever its size.
        """
        _topic, _queue_id, offset, max_count, message_filter, max_bytes = wanted
        minimum, maximum = queue.min_offset, self.end(queue)
        if maximum == 0:
            return GetResult(GetStatus.NO_MESSAGE_IN_QUEUE, 0, minimum, maximum)
        if offset < minimum:
            return GetResult(GetStatus.OFFSET_TOO_SMALL, minimum, minimum, maximum)
        if offset >= maximum:
            status = (
                GetStatus.OFFSET_OVERFLOW_ONE
                if offset == maximum
                else GetStatus.OFFSET_OVERFLOW_BADLY
            )
            return GetResult(status, maximum, minimum, maximum)
        if not isinstance(queue, ConsumeQueue):
            return self._take_batches(
                queue,
                offset,
                max_count,
                min(max(max_bytes, _MIN_BYTES), MAX_BYTES),
                message_filter,
                read,
            )
        per_file = queue.units_per_file
        count = min(
            max(self._scan_limit, max_count), maximum - offset, per_file - offset % per_file
        )
        if message_filter is None:
            count = min(count, max(1, max_count, 1), max(self._memory_count, self._disk_count))
        units = queue.units(offset, count)
        if not units:
            return GetResult(
                GetStatus.OFFSET_FOUND_NULL, offset - offset % per_file + per_file, minimum, maximum
            )
        max_bytes = min(max(max_bytes, _MIN_BYTES), MAX_BYTES)
        if message_filter is None:
            found = self._take_recent(queue, offset, units, max_count, max_bytes, read)
            if found is not None:
                return found
        return self._take(queue, offset, units, max_count, max_bytes, message_filter, read)

    def _take_recent(
        self,
        queue: ConsumeQueue,
        offset: int,
        units: bytes,
        max_count: int,
        max_bytes: int,
        read: _Read,
    ) -> GetResult | None:
        """`_take` for the usual case, without a look at each message.

        That is when all are wanted, recent, and one behind the other in the log. None
        for any other case.
        """
        positions, sizes, _codes = zip(*UNIT.iter_unpack(units), strict=True)
        first, log = positions[0], self._log
        if log.position - first > self._memory_span or first < log.first_position:
            return None
        count = min(len(positions), max(1, min(max_count, self._memory_count)))
        most = min(max_bytes, self._memory_bytes)
        total = sum(sizes[:count])
        if total > most:
            count = max(1, bisect_right(list(accumulate(sizes[:count])), most))
            total = sum(sizes[:count])
        positions, sizes = positions[:count], sizes[:count]
        ends = list(map(add, positions, sizes))
        gaps = [at for at in range(1, count) if ends[at - 1] != positions[at]]
        if any(ends[at - 1] > positions[at] for at in gaps):
            return None  # a unit that stands for nothing, or one out of order
        starts = [first, *[positions[at] for at in gaps]]
        stops = [*[ends[at - 1] for at in gaps], ends[-1]]
        body = self._stretches(starts, stops, total, read)
        if body is None or len(body) != total:
            return None
        return self._result(queue, offset + count, [body], total, count, positions[-1], False)

    def get_several(
        self, queue: Queue, offset: int, counts: Sequence[int], max_bytes: int, read: _Read
    ) -> ReadRun | None:
        """`get` for reads that follow each other, of so many messages each, without a
        filter.

        Only the first ones that bring all that they ask for, and no more than
        `max_bytes` together, where all is recent. None where that is not several.
        """
        low, high, log = queue.min_offset, self.end(queue), self._log
        if not isinstance(queue, ConsumeQueue) or not low <= offset < high:
            return None
        wanted = takewhile(lambda count: 0 < count <= self._memory_count, counts)
        left = min(high - offset, _RUN_UNITS)
        ends = list(takewhile(lambda end: end <= left, accumulate(wanted)))
        units = queue.units(offset, ends[-1]) if len(ends) > 1 else b""
        if not units:
            return None
        positions, sizes, _codes = zip(*UNIT.iter_unpack(units), strict=True)
        first = positions[0]
        if log.position - first > self._memory_span or first < log.first_position:
            return None
        places = [0, *accumulate(sizes)]
        found, count = list[int](), 0
        for end in ends:
            if end > len(sizes) or places[end] > max_bytes:
                break
            if places[end] - places[count] > self._memory_bytes:
                break
            found.append(places[end])
            count = end
        stops = list(map(add, positions[:count], sizes))
        gaps = [at for at in range(1, count) if stops[at - 1] != positions[at]]
        if len(found) < 2 or any(stops[at - 1] > positions[at] for at in gaps):
            return None
        starts = [first, *[positions[at] for at in gaps]]
        ends = [*[stops[at - 1] for at in gaps], stops[-1]]
        body = self._stretches(starts, ends, found[-1], read)
        if body is None or len(body) != found[-1]:
            return None
        return ReadRun(body, found, low, high)

    def _stretches(
        self, starts: list[int], stops: list[int], total: int, read: _Read
    ) -> bytes | bytearray | None:
        """Stretches of the log in their order, joined; None if one is not there."""
        first, extent = starts[0], stops[-1] - starts[0]
        if extent == total:
            return read(first, total)
        found = self._log.stretches_hot(starts, stops)
        if found is not None:
            return found
        parts: list[bytes | bytearray]
        file_size = self._log.file_size
        if (
            extent - total <= _GAP * (len(starts) - 1)
            and first // file_size == (stops[-1] - 1) // file_size
        ):
            # What lies between is left out.
            data = read(first, extent)
            if data is None:
                return None
            parts = [
                data[start - first : stop - first]
                for start, stop in zip(starts, stops, strict=True)
            ]
        else:
            parts = []
            for start, stop in zip(starts, stops, strict=True):
                if not self._fetch(read, start, stop, parts):
                    return None
        return b"".join(parts)

    def _take(
        self,
        queue: ConsumeQueue,
        offset: int,
        units: bytes,
        max_count: int,
        max_bytes: int,
        message_filter: MessageFilter | None,
        read: _Read,
    ) -> GetResult:
        """Walk over units from `offset` on until the answer is full."""
        log_end = self._log.position
        minimum = self._log.first_position
        parts: list[bytes | bytearray] = []
        total = count = 0
        span_start = span_end = last = -1
        limit_count = max_count
        next_offset = offset
        removing = False
        look = (
            None
            if message_filter is None or not message_filter.needs_properties
            else _Look(message_filter, read)
        )
        for physical, size, code in UNIT.iter_unpack(units):
            if count:
                in_memory = log_end - physical <= self._memory_span
                limit_count = min(max_count, self._memory_count if in_memory else self._disk_count)
                if count >= limit_count or total + size > min(
                    max_bytes, self._memory_bytes if in_memory else self._disk_bytes
                ):
                    break
            if look is not None and look.work >= _LOOK_MAX:
                break
            next_offset += 1
            if physical < minimum or size == PRE_BLANK_SIZE:
                removing = True
                continue
            if message_filter is not None:
                if queue.ext is not None and is_address(code):
                    if not _passes_extended(queue.ext.get(code), message_filter):
                        continue
                elif not message_filter.matches_tags_code(code):
                    continue
                if look is not None:
                    passes = look.at(physical, size)
                    if not passes:
                        removing = removing or passes is None
                        continue
            if physical != span_end:
                if span_end >= 0 and not self._fetch(read, span_start, span_end, parts):
                    removing = True
                span_start = physical
            span_end = physical + size
            last = physical
            total += size
            count += 1
        if span_end >= 0 and not self._fetch(read, span_start, span_end, parts):
            removing = True
        return self._result(queue, next_offset, parts, total, count, last, removing)

    def _take_batches(
        self,
        queue: BatchConsumeQueue,
        offset: int,
        max_count: int,
        max_bytes: int,
        message_filter: MessageFilter | None,
        read: _Read,
    ) -> GetResult:
        """Like `_take`, for units that stand for several messages.

        A batch is included whole.
        """
        log_end, end = self._log.position, self.end(queue)
        parts: list[bytes | bytearray] = []
        total = count = 0
        last, next_offset, removing = -1, offset, False
        look = (
            None
            if message_filter is None or not message_filter.needs_properties
            else _Look(message_filter, read)
        )
        for unit in queue.units_from(offset, max(self._scan_limit, max_count)):
            if count:
                in_memory = log_end - unit.position <= self._memory_span
                limit_count = min(max_count, self._memory_count if in_memory else self._disk_count)
                limit_bytes = min(max_bytes, self._memory_bytes if in_memory else self._disk_bytes)
                if count + unit.messages > limit_count or total + unit.size > limit_bytes:
                    break
            if unit.base >= end or (look is not None and look.work >= _LOOK_MAX):
                break
            next_offset = unit.base + unit.messages
            if message_filter is not None and not message_filter.matches_tags_code(unit.code):
                continue
            if unit.position < self._log.first_position:
                removing = True
                continue
            passes = True if look is None else look.at(unit.position, unit.size)
            record = read(unit.position, unit.size) if passes else None
            if record is None:
                removing = removing or passes is not False
                continue
            parts.append(record)
            last = unit.position
            total += unit.size
            count += unit.messages
        return self._result(queue, next_offset, parts, total, count, last, removing)

    def _result(
        self,
        queue: Queue,
        next_offset: int,
        parts: list[bytes | bytearray],
        total: int,
        count: int,
        last: int,
        removing: bool,
    ) -> GetResult:
        minimum, maximum = queue.min_offset, self.end(queue)
        if not parts:
            status = GetStatus.MESSAGE_WAS_REMOVING if removing else GetStatus.NO_MATCHED_MESSAGE
            return GetResult(status, next_offset, minimum, maximum)
        body = b"".join(parts)
        if len(body) != total:
            count = _count_records(body)
        return GetResult(
            GetStatus.FOUND,
            next_offset,
            minimum,
            maximum,
            body,
            count,
            self._log.position - last > self._memory_span,
        )

    @staticmethod
    def _fetch(read: _Read, start: int, end: int, parts: list[bytes | bytearray]) -> bool:
        data = read(start, end - start)
        if data is None:
            return False
        parts.append(data)
        return True

    def store_time(self, queue: Queue, offset: int) -> int:
        """The store time of a message; -1 outside the queue or the log."""
        unit = queue.unit(offset)
        return -1 if unit is None else self._log.store_time_at(unit[0])

    def offset_by_time(self, queue: Queue, timestamp: int, boundary: BoundaryType) -> int:
        """The offset of the first message at or after a time (LOWER).

        With UPPER, of the last one stored at or before it. Stays within the queue's
        bounds.
        """
        minimum, maximum = queue.min_offset, queue.max_offset
        if maximum <= minimum:
            return maximum if boundary is BoundaryType.LOWER else minimum
        found = (
            self._search(queue, timestamp, boundary)
            if isinstance(queue, ConsumeQueue)
            else queue.offset_by_time(timestamp, boundary)
        )
        return min(max(found, minimum), maximum)

    def _search(self, queue: ConsumeQueue, timestamp: int, boundary: BoundaryType) -> int:
        """The result of Apache's search file by file, found by one bisection.

        Store times never fall within a queue.
        """
        upper = boundary is BoundaryType.UPPER
        low, high = queue.min_offset, queue.max_offset
        while low < high:
            middle = (low + high) // 2
            time = self.store_time(queue, middle)
            if time < timestamp or (upper and time == timestamp):
                low = middle + 1
            else:
                high = middle
        return low - 1 if upper else low


class _Look:
    """The second stage of a filter in one read, and how much work it was."""

    __slots__ = ("_filter", "_read", "work")

    def __init__(self, message_filter: MessageFilter, read: _Read) -> None:
        self._filter = message_filter
        self._read = read
        self.work = 0

    def at(self, physical: int, size: int) -> bool | None:
        """Whether the record at a position passes.

        None when it is gone, or has no properties where its lengths say.
        """
        text = self._properties(physical, size)
        if text is None:
            self.work += HEAD_SPAN
            return None
        self.work += HEAD_SPAN + self._filter.work(len(text))
        return self._filter.matches_record(decode_properties(text))

    def _properties(self, physical: int, size: int) -> str | None:
        """Leave the body of a big record unread."""
        if size <= _SMALL:
            record = self._read(physical, size)
            return None if record is None else properties_of(bytes(record))
        head = self._read(physical, HEAD_SPAN)
        if head is None:
            return None
        start = body_end(bytes(head))
        rest = (
            self._read(physical + start, size - start)
            if HEAD_SPAN - 24 <= start < size - 2
            else None
        )
        return None if rest is None else properties_behind(bytes(rest), 0, bytes(head))


def _passes_extended(extension: Extension | None, message_filter: MessageFilter) -> bool:
    """The first stage for a unit that points to an extension.

    A message whose extension is missing passes.
    """
    if extension is None:
        return message_filter.matches_tags_code(None)
    if not message_filter.matches_tags_code(extension.tags_code):
        return False
    return not isinstance(message_filter, BitMapFilter) or message_filter.may_match(
        extension.bit_map, extension.store_timestamp
    )


def _count_records(body: bytes) -> int:
    count = at = 0
    while at < len(body):
        # No size in a damaged log may hold up the walk.
        at += max(int.from_bytes(body[at : at + 4], "big", signed=True), HEAD_SPAN)
        count += 1
    return count
