"""One queue: an index of 20-byte units into the commit log.

`ConsumeQueue` of Apache RocketMQ 5.4.0. Unit k of a queue is at byte 20 k of its chain
of files: position of the record, its size, and the hash of its tag. A queue that does
not begin at 0 has meaningless units before its first one (position 0, size 0x7FFFFFFF).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Final

from rocketmq_sdk.broker_embedded.store.config import QUEUE_UNIT_SIZE
from rocketmq_sdk.broker_embedded.store.queues.consume_queue_ext import ConsumeQueueExt, is_address
from rocketmq_sdk.broker_embedded.store.queues.unit_chain import UNIT, Below, UnitChain

if TYPE_CHECKING:
    from collections.abc import Callable

    from rocketmq_sdk.broker_embedded.store.files.chained_file import ChainedFile
    from rocketmq_sdk.broker_embedded.store.files.file_system import Bytes, FileSystem

DIRECTORY: Final = "consumequeue"
MAX_QUEUE_OFFSET: Final = (1 << 58) - 1
_pack = UNIT.pack


class ConsumeQueue(UnitChain):
    """A consume queue; queue offsets count units, `max_offset` is exclusive."""

    __slots__ = ("ext",)

    unit_size: ClassVar[int] = QUEUE_UNIT_SIZE
    parent: ClassVar[str] = DIRECTORY
    size_setting: ClassVar[str] = "mappedFileSizeConsumeQueue"

    def __init__(
        self,
        store_files: FileSystem,
        topic: str,
        queue_id: int,
        file_size: int,
        ext: ConsumeQueueExt | None = None,
    ) -> None:
        super().__init__(store_files, topic, queue_id, file_size)
        self.ext = ext
        """The extension with the bit maps, for a queue that has one."""

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

    def append_all(self, units: Bytes, physical_end: int) -> None:
        """Add units as they are stored; the last one's record ends at a position."""
        tail = self._tail[1]
        tail += units
        self.end += len(units) // self.unit_size
        self.max_physical = physical_end
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
        if not data:
            return None
        position, size, code = UNIT.unpack(data)
        if self.ext is not None and is_address(code):
            found = self.ext.get(code)
            code = code if found is None else found.tags_code
        return position, size, code

    # --- the extension follows the units

    def load(self, *, mend: bool = False) -> None:
        """Find the files; changes nothing unless `mend`.

        Raises `StoreCorruptError`.
        """
        super().load(mend=mend)
        if self.ext is not None:
            self.ext.load(mend=mend)

    def _address(self, offsets: range) -> int | None:
        """The first address among units."""
        for offset in offsets:
            code = self._read_unit(offset)[2]
            if is_address(code):
                return code
        return None

    @property
    def lacks_extension(self) -> bool:
        """Whether units point into files of the extension that are not there."""
        if self.ext is None:
            return False
        last = self._address(range(self.end - 1, self.first - 1, -1))
        first = None if last is None else self._address(range(self.first, self.end))
        return first is not None and last is not None and not self.ext.reaches(first, last)

    def settle_ext(self) -> None:
        """Cut the extension after the last unit that points to it.

        Raises `StoreError`.
        """
        if self.ext is not None:
            self.ext.settle_end(self._address(range(self.end - 1, self.first_held - 1, -1)))

    def prepare_sync(self) -> Callable[[], None]:
        """What makes the written units durable, after the records they point to."""
        units = super().prepare_sync()
        if self.ext is None:
            return units
        extension = self.ext.prepare_sync()

        def run() -> None:
            extension()
            units()

        return run

    def doubt_contents(self) -> bool:
        """Take nothing in the files for durable, nor in those of the extension."""
        in_doubt = super().doubt_contents()
        return (self.ext is not None and self.ext.doubt_contents()) or in_doubt

    def look_below(self, min_physical: int) -> Below:
        """What of the queue points to records below a position."""
        below = super().look_below(min_physical)
        if not below.files or self.ext is None:
            return below
        held = self.first_held + below.files * self.units_per_file
        return below._replace(address=self._address(range(held, self.end)))

    def drop_below(self, below: Below) -> list[ChainedFile]:
        """Take out what `look_below` found; the caller removes the files."""
        taken = super().drop_below(below)
        if self.ext is not None and below.address is not None:
            taken += self.ext.take_before(below.address)
        return taken

    def clear(self) -> None:
        """Drop all units and files; the queue begins again at 0."""
        super().clear()
        if self.ext is not None:
            self.ext.clear()

    def leave_files(self) -> None:
        """Have no units and no files any more; the files stay where they are."""
        super().leave_files()
        if self.ext is not None:
            self.ext.leave_files()

    def close(self) -> None:
        """Close all descriptors."""
        super().close()
        if self.ext is not None:
            self.ext.close()
