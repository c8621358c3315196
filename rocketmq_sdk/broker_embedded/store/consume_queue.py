"""One queue: an index of 20-byte units into the commit log (`ConsumeQueue` of Apache RocketMQ 5.4.0).

Unit k of a queue stands at byte 20 k of its chain of files: position of the record, its size, and the hash of its tag. A queue that does not begin
at 0 has units in front of its first one that mean nothing (position 0, size 0x7FFFFFFF).
"""

from typing import ClassVar, Final

from rocketmq_sdk.broker_embedded.store.config import QUEUE_UNIT_SIZE
from rocketmq_sdk.broker_embedded.store.unit_chain import UNIT, UnitChain

DIRECTORY: Final = "consumequeue"
MAX_QUEUE_OFFSET: Final = (1 << 58) - 1
_pack = UNIT.pack


class ConsumeQueue(UnitChain):
    """Queue offsets count units; `max_offset` is exclusive."""

    __slots__ = ()

    unit_size: ClassVar[int] = QUEUE_UNIT_SIZE
    parent: ClassVar[str] = DIRECTORY
    size_setting: ClassVar[str] = "mappedFileSizeConsumeQueue"

    @property
    def max_offset(self) -> int:
        """The offset that the next readable message will have."""
        return self.end

    @property
    def min_offset(self) -> int:
        """The offset of the oldest readable message."""
        return self.first

    def append(self, physical_offset: int, size: int, tags_code: int) -> None:
        """Add a unit."""
        tail = self._tail[1]
        tail += _pack(physical_offset, size, tags_code)
        self.end += 1
        self.max_physical = physical_offset + size
        if len(tail) >= self._spill_at:
            self._spill()

    def start_at(self, offset: int) -> None:
        """Begin an empty queue at an offset above 0."""
        self._reset(offset)
        self.first = offset

    def last_record(self) -> tuple[int, int, int] | None:
        """Position, size and queue offset of the last record; None without any."""
        unit = self.unit(self.end - 1)
        return None if unit is None else (unit[0], unit[1], self.end - 1)

    def unit(self, offset: int) -> tuple[int, int, int] | None:
        """Position, size and tags code of one message; None outside the queue."""
        if not self.first <= offset < self.end:
            return None
        data = self.units(offset, 1)
        return UNIT.unpack(data) if data else None
