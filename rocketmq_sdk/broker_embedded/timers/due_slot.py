"""A slot of the wheel that is being delivered."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import trio

from rocketmq_sdk.broker_embedded.store.following.unreadable import Place
from rocketmq_sdk.broker_embedded.timers.reading import Recalls
from rocketmq_sdk.broker_embedded.timers.record import RECORD, RECORD_SIZE, TimerRecord
from rocketmq_sdk.errors import StoreCorruptError, StoreError

if TYPE_CHECKING:
    from rocketmq_sdk.broker_embedded.store.files.file_system import FileSystem
    from rocketmq_sdk.broker_embedded.store.following.follower import Follower
    from rocketmq_sdk.broker_embedded.timers.slot_walk import SlotWalk
    from rocketmq_sdk.broker_embedded.timers.timer_store import TimerStore


TURN: Final = 32
"""Messages read together."""
_TURN_BYTES: Final = 1024 * 1024
_WALK_TRIES: Final = 4
"""How often a part of the timer log is read in vain before it is gone around."""
_RETRY_SECONDS: Final = 0.5


class DueSlot:
    """A slot that is being delivered.

    What is left of it survives an error: nothing is delivered twice.
    """

    __slots__ = ("deletions", "held", "moved", "recalls", "records", "time", "walk", "walk_tries")

    def __init__(self, time: int, walk: SlotWalk) -> None:
        self.time = time
        self.walk: SlotWalk | None = walk
        """None once all records are known."""
        self.walk_tries = 0
        self.records = bytearray()
        """The records, last one first; what is done with is taken off its end."""
        self.deletions: list[TimerRecord] = []
        self.recalls = Recalls()
        self.held: dict[int, int] = {}
        """By hash of the topic of an unreadable recall: when its timers come."""
        self.moved: dict[int, int | None] = {}
        """By position of an unreadable message: when it comes; None for never."""

    def add(self, record: TimerRecord) -> None:
        """Add the record before those known."""
        if record.deletes:
            self.deletions.append(record)
        else:
            self.records += RECORD.pack(*record)

    def next_records(self) -> list[TimerRecord]:
        """Some of the records that come next, in the order in which they came.

        Their messages are about a megabyte, or a single one is larger.
        """
        found: list[TimerRecord] = []
        total = 0
        end = self.records[-TURN * RECORD_SIZE :]
        for start in range(len(end) - RECORD_SIZE, -1, -RECORD_SIZE):
            record = TimerRecord._make(RECORD.unpack_from(end, start))
            total += record.message_size
            if found and total > _TURN_BYTES:
                break
            found.append(record)
        return found

    def done(self, count: int) -> None:
        """So many of the next records are done with."""
        if count:
            del self.records[-count * RECORD_SIZE :]

    # --- finding the records

    async def collect(self, timers: TimerStore, files: FileSystem, follower: Follower) -> None:
        """Find all records; goes on where an error has stopped it."""
        while (walk := self.walk) is not None:
            try:
                some = await walk.some()
            except StoreError as error:
                self.walk_tries += 1
                if self.walk_tries < _WALK_TRIES:
                    await trio.sleep(_RETRY_SECONDS)
                else:
                    await self._find_around(timers, files, follower, error)
                continue
            if some is None:
                broken = StoreCorruptError(
                    f"the chain of the timer slot {self.time} is broken at {walk.position}"
                )
                await self._find_around(timers, files, follower, broken)
                return
            for record in some:
                self.add(record)
            if not some:
                self.walk = None
            await trio.lowlevel.checkpoint()

    async def _find_around(
        self, timers: TimerStore, files: FileSystem, follower: Follower, error: StoreError
    ) -> None:
        """Find the records of a slot whose chain cannot be followed; its log has them.

        Those in the part that cannot be read are set aside.
        """
        assert self.walk is not None
        time, position = self.time, self.walk.position
        found = await files.run(
            lambda: timers.log.found_before(position, lambda record: timers.belongs(record, time))
        )
        for record in found:
            self.add(record)
        self.walk = None
        follower.give_up(
            Place("timerlog", position=position, size=RECORD_SIZE),
            f"{error}; {len(found)} timers of this moment were found in front of it, those in "
            "the unreadable part are not delivered",
        )
