"""What goes when a store in memory has used most of its limit.

The log loses its oldest file whenever three quarters of `memoryLimit` are in use. What
somebody still needs of it is kept as single records: messages that a group has not
consumed, or that no group has asked for; and what the broker itself works with, such as
delayed messages, timers, half messages and popped messages. So what is consumed goes
first, wherever it lies. Where that is not enough, `memoryFullPolicy` decides about
messages that are not consumed; what the broker works with stays in any case.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from rocketmq_sdk.broker_embedded.store.config import MemoryFullPolicy
from rocketmq_sdk.broker_embedded.store.files.memory_files import (
    MemoryFileSystem,
    ends_with_its_store,
)
from rocketmq_sdk.broker_embedded.store.kept_records import Kept, KeptRecords, KeptSegment
from rocketmq_sdk.broker_embedded.store.queues.consume_queue import ConsumeQueue
from rocketmq_sdk.broker_embedded.store.queues.unit_chain import UNIT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from rocketmq_sdk.broker_embedded.store.config import StoreConfig
    from rocketmq_sdk.broker_embedded.store.files.chained_file import ChainedFile
    from rocketmq_sdk.broker_embedded.store.files.file_system import FileSystem
    from rocketmq_sdk.broker_embedded.store.index.file import IndexFile
    from rocketmq_sdk.broker_embedded.store.index.service import IndexService
    from rocketmq_sdk.broker_embedded.store.log.commit_log import CommitLog
    from rocketmq_sdk.broker_embedded.store.queues.consume_queue_table import ConsumeQueueTable
    from rocketmq_sdk.clock import Clock

_log = logging.getLogger(__name__)
_UNITS_AT_ONCE: Final = 4096
_SWEEP_SECONDS: Final = 1.0
_WORTH_A_SWEEP: Final = 1 / 4
_WORTH_IT_WHEN_FULL: Final = 1 / 16
_PART_OF_INDEX: Final = 4
_REST_SECONDS: Final = 0.1
"""How long nothing is looked for after nothing was found."""


class Needs:
    """What is needed of a store in memory; the parts of a broker fill it in."""

    __slots__ = ("consumed", "floors", "places")

    def __init__(self) -> None:
        self.consumed: Callable[[], Callable[[str, int], int | None]] = _nothing_known
        """Makes a function of topic and queue id that gives the first offset that some
        group has not consumed; None for queues that nobody will consume.
        """
        self.floors: dict[str, Callable[[int], int]] = {}
        """For topics of the broker: the first needed offset, by queue id."""
        self.places: list[Callable[[int, int], Iterable[tuple[int, int]]]] = []
        """Give positions and sizes of more records that are needed.

        They are asked for those between two positions.
        """


def _nothing_known() -> Callable[[str, int], int | None]:
    return lambda _topic, _queue_id: None


class MemoryRetention:
    """Keeps one store in memory within its limit. Everything is synchronous."""

    def __init__(
        self,
        files: MemoryFileSystem,
        log: CommitLog,
        table: ConsumeQueueTable,
        index: IndexService,
        config: StoreConfig,
        clock: Clock,
    ) -> None:
        self.needs = Needs()
        self._files = files
        self._log = log
        self._kept = log.kept = KeptRecords()
        self._table = table
        self._index = index
        self._clock = clock
        self._may_remove = config.memory_full_policy is MemoryFullPolicy.REMOVE_OLDEST
        self._goal = files.limit_bytes * 3 // 4
        self._not_before = self._sweep_at = float("-inf")
        self._told = False
        log.relieve = self.relieve
        index.on_roll = self.index_grew
        self.lost = 0
        """Messages removed although some group had not consumed them."""

    def relieve(self) -> None:
        """Remove what is not needed, when much of the limit is in use."""
        if self._files.used_bytes <= self._goal or self._clock.monotonic() < self._not_before:
            return
        consumed = self.needs.consumed()
        if self._clock.monotonic() >= self._sweep_at:
            self._sweep_at = self._clock.monotonic() + _SWEEP_SECONDS
            self._drop_unneeded(consumed, _WORTH_A_SWEEP)
        while self._files.used_bytes > self._goal and len(self._log.chain.files) > 1:
            self._take_oldest(consumed)
        if self._files.used_bytes > self._goal:
            self._drop_unneeded(consumed, _WORTH_IT_WHEN_FULL)
        if self._files.used_bytes > self._goal and self._may_remove:
            self._drop_unconsumed()
        if self._files.used_bytes > self._goal:
            self._not_before = self._clock.monotonic() + _REST_SECONDS

    def index_grew(self) -> None:
        """The index has one more file: it keeps to its part of the limit.

        A message may have thousands of keys, each of which takes more there than in the
        message. The oldest are not found by their keys any more.
        """
        _remove_all(self._index.take_above(self._files.limit_bytes // _PART_OF_INDEX))
        self.relieve()

    def take_aged(self) -> None:
        """Remove the oldest log file for its age, with all that is in front of it."""
        if len(self._log.chain.files) < 2:
            return
        self._take_oldest(_nothing_known())
        while self._drop_first_unconsumed():
            pass

    # --- a file of the log

    def _take_oldest(self, consumed: Callable[[str, int], int | None]) -> None:
        """Remove the oldest log file; keep what is needed of it."""
        chain = self._log.chain
        low, high = chain.files[0].start, chain.files[1].start
        self._log.write_out()
        segment = self._needed(low, high, consumed)
        chain.take_first().remove()
        if segment is not None:
            self._kept.segments.append(segment)
            self._files.add(segment.size)
        self._follow(high, consumed)

    def _needed(
        self, low: int, high: int, consumed: Callable[[str, int], int | None]
    ) -> KeptSegment | None:
        found: dict[int, tuple[Kept, int]] = {}
        for places in self.needs.places:
            for position, size in places(low, high):
                found[position] = Kept(position, None, 0), size
        for queue in self._table:
            if isinstance(queue, ConsumeQueue):
                floor = self._floor(queue, consumed)
                if floor is not None:
                    start = max(floor, queue.first, queue.first_from(low))
                    for place, size in _units(queue, start, high):
                        found[place.position] = place, size
        kept: list[Kept] = []
        records: list[bytes] = []
        for position in sorted(found):
            place, size = found[position]
            record = self._log.read(position, size)
            if record is not None:
                kept.append(place)
                records.append(bytes(record))
        return KeptSegment(kept, records) if kept else None

    def _floor(self, queue: ConsumeQueue, consumed: Callable[[str, int], int | None]) -> int | None:
        """The first offset of a queue that is needed; None when none is."""
        of_broker = self.needs.floors.get(queue.topic)
        if of_broker is not None:
            return of_broker(queue.queue_id)
        return consumed(queue.topic, queue.queue_id)

    def _follow(self, minimum: int, consumed: Callable[[str, int], int | None]) -> None:
        """Bring queues and index in line with the log and what is kept."""
        for queue in self._table:
            if not isinstance(queue, ConsumeQueue):
                _remove_all(queue.drop_below(queue.look_below(minimum)))
                continue
            first = queue.first
            unit = queue.unit(first)
            if unit is None or unit[0] >= minimum:
                continue
            floor = self._floor(queue, consumed)
            queue.correct_min_offset(minimum)
            if floor is not None:
                queue.first = max(first, min(queue.first, floor))
            _remove_all(queue.take_below(queue.first))
        _remove_all(self._index.take_before(minimum))

    # --- what was kept

    def _drop_unneeded(
        self, consumed: Callable[[str, int], int | None], least_share: float
    ) -> None:
        """Forget kept records that nobody needs any more.

        Segments that would lose less than a share are left alone.
        """
        kept = self._kept
        if kept.first is None:
            return
        floors: dict[ConsumeQueue, int | None] = {}
        pinned: set[int] | None = None
        left: list[KeptSegment] = []
        for segment in kept.segments:
            unneeded = segment.anonymous
            for queue, (first, last, count) in segment.spans.items():
                if queue not in floors:
                    floors[queue] = None if queue.removed else self._floor(queue, consumed)
                floor = floors[queue]
                passed = last + 1 if floor is None else min(max(floor, first), last + 1)
                unneeded += count * (passed - first) // (last + 1 - first)
            if not unneeded or unneeded < len(segment) * least_share:
                left.append(segment)
                continue
            if pinned is None:
                pinned = self._pinned(kept.first, kept.segments[-1].last + 1)
            fewer = segment.reduced(_rule(floors, pinned))
            self._files.add((0 if fewer is None else fewer.size) - segment.size)
            if fewer is not None:
                left.append(fewer)
        kept.segments[:] = left
        for queue, floor in floors.items():
            if not queue.removed:
                self._raise_first(queue, queue.end if floor is None else floor)

    def _raise_first(self, queue: ConsumeQueue, offset: int) -> None:
        """Let a queue begin at an offset, but not behind what the log holds of it."""
        first = queue.first
        if first < offset:
            queue.correct_min_offset(self._log.min_position)
            queue.first = max(first, min(queue.first, offset))
            _remove_all(queue.take_below(queue.first))

    def _pinned(self, low: int, high: int) -> set[int]:
        return {position for places in self.needs.places for position, _size in places(low, high)}

    def _drop_unconsumed(self) -> None:
        """Remove the oldest messages that are not consumed, until there is space."""
        before = self.lost
        while self._files.used_bytes > self._goal and self._drop_first_unconsumed():
            pass
        if self.lost > before and not self._told:
            self._told = True
            _log.warning(
                "the store in memory is full: the oldest messages are removed, although they "
                "are not consumed; raise memoryLimit, or set memoryFullPolicy=REFUSE_SENDS"
            )

    def _drop_first_unconsumed(self) -> bool:
        """Drop the unconsumed messages of the oldest segment that has some."""
        for number, segment in enumerate(self._kept.segments):
            ends = {
                queue: last + 1
                for queue, (_first, last, _count) in segment.spans.items()
                if queue.topic not in self.needs.floors
            }
            if not ends:
                continue
            pinned = self._pinned(segment.first, segment.last + 1)
            fewer = segment.reduced(_rule(ends, pinned))
            for queue, end in ends.items():
                if not queue.removed:
                    self._raise_first(queue, end)
            self._files.add((0 if fewer is None else fewer.size) - segment.size)
            self.lost += len(segment) - (0 if fewer is None else len(fewer))
            self._kept.segments[number : number + 1] = [] if fewer is None else [fewer]
            return True
        return False


def retention_in(
    files: FileSystem,
    log: CommitLog,
    table: ConsumeQueueTable,
    index: IndexService,
    config: StoreConfig,
    clock: Clock,
) -> MemoryRetention | None:
    """What keeps a store in memory within its limit; None on a disk."""
    if ends_with_its_store(files):
        return MemoryRetention(files, log, table, index, config, clock)
    return None


def _rule(
    floors: Mapping[ConsumeQueue, int | None], pinned: set[int]
) -> Callable[[Kept], Kept | None]:
    """What becomes of a record: it stays for its queue, for its position, or goes.

    Records of queues without an entry stay.
    """

    def rule(place: Kept) -> Kept | None:
        queue = place.queue
        if queue is not None:
            floor = floors.get(queue, 0)
            if floor is not None and place.offset >= floor:
                return place
            if place.position in pinned:
                return Kept(place.position, None, 0)
            return None
        return place if place.position in pinned else None

    return rule


def _units(queue: ConsumeQueue, offset: int, high: int) -> Iterator[tuple[Kept, int]]:
    """The records of a queue from an offset on that lie below a position."""
    while offset < queue.end:
        units = queue.units(offset, _UNITS_AT_ONCE)
        if not units:
            return
        for position, size, _code in UNIT.iter_unpack(units):
            if position >= high:
                return
            yield Kept(position, queue, offset), size
            offset += 1


def _remove_all(files: Iterable[ChainedFile | IndexFile]) -> None:
    for file in files:
        file.remove()
