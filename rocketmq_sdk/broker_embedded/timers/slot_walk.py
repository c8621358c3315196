"""Goes through the chain of one slot of the wheel without holding up the event loop.

The records of a slot lie scattered over the timer log, each naming the one before it.
What is in memory is taken at once; the rest is read in a thread, in blocks that are
small where the chain jumps and large where its records are neighbours.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rocketmq_sdk.broker_embedded.timers.record import (
    NO_POSITION,
    RECORD,
    RECORD_SIZE,
    TimerRecord,
)
from rocketmq_sdk.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Callable

    from rocketmq_sdk.broker_embedded.store.files.file_system import FileSystem
    from rocketmq_sdk.broker_embedded.timers.log import TimerLog

SMALL_BLOCK: Final = 4096
LARGE_BLOCK: Final = 64 * 1024
_PER_TURN: Final = 256
"""Records taken before others have their turn."""


class SlotWalk:
    """Follows one chain from its last record back to its first.

    `position` is that of the next record, -1 at the end. `belongs` tells whether a
    record is one of the slot.
    """

    __slots__ = ("_belongs", "_block", "_block_size", "_block_start", "_files", "_log", "position")

    def __init__(
        self,
        log: TimerLog,
        files: FileSystem,
        last: int,
        belongs: Callable[[TimerRecord], bool],
    ) -> None:
        self._log = log
        self._files = files
        self._belongs = belongs
        self._block = b""
        self._block_start = 0
        self._block_size = SMALL_BLOCK
        self.position = last

    async def some(self) -> list[TimerRecord] | None:
        """Some more records, last one first; none at the end, None where it is broken.

        Raises `StoreError` for a block that cannot be read; a later call goes on there.
        """
        found: list[TimerRecord] = []
        while self.position != NO_POSITION and len(found) < _PER_TURN:
            record = self._in_memory(self.position)
            if record is None:
                if not self._fetch(nowait=True):
                    if found:
                        break
                    await self._files.run(self._fetch)
                record = self._in_memory(self.position)
            if record is None or not record.is_sound(self.position) or not self._belongs(record):
                return found or None
            found.append(record)
            self.position = record.previous
        return found

    def _in_memory(self, position: int) -> TimerRecord | None:
        at = position - self._block_start
        if 0 <= at <= len(self._block) - RECORD_SIZE:
            return TimerRecord._make(RECORD.unpack_from(self._block, at))
        return self._log.record_in_memory(position)

    def _fetch(self, *, nowait: bool = False) -> bool:
        """Read a block around the next record; whether it was read.

        Raises `StoreError`, unless it must not wait.
        """
        position, size = self.position, self._block_size
        near = self._block_start - LARGE_BLOCK <= position < self._block_start
        size = min(size * 2, LARGE_BLOCK) if near else max(size // 2, SMALL_BLOCK)
        try:
            found = self._log.block_around(position, size, nowait=nowait)
        except StoreError:
            if nowait:
                return False
            # A part of the block may be what cannot be read.
            found = self._log.block_around(position, RECORD_SIZE)
        if found is None:
            return False
        start, data = found
        if start + len(data) < position + RECORD_SIZE:
            if nowait:
                return False
            raise StoreError(f"timerlog: {RECORD_SIZE} bytes at {position} cannot be read")
        self._block_size, self._block_start, self._block = size, start, data
        return True
