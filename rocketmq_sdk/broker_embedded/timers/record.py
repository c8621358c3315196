"""The record of the timer log: one waiting message.

`TimerLog` of Apache RocketMQ 5.4.0. 52 bytes: their number, the position of the record
before it in the chain of its slot (-1 for none), magic, when it was written (epoch
milliseconds, a multiple of the precision), how much later its slot is, position and
size of the message in the commit log, hash of its real topic, and 8 bytes that are 0.
"""

from __future__ import annotations

from struct import Struct
from typing import Final, NamedTuple

RECORD: Final = Struct(">iqiqiqiiq")
RECORD_SIZE: Final = 52
FILLER: Final = Struct(">iqi")
FILLER_SIZE: Final = 16
"""The bytes left after each record, for the filler that ends a file."""
FILLER_MAGIC: Final = -875286124
MAGIC_DEFAULT: Final = 1
MAGIC_ROLL: Final = 2
"""The message goes through the wheel again when its slot is due.

It is too far ahead for one turn.
"""
MAGIC_DELETE: Final = 4
"""The message recalls another one of its slot."""
NO_POSITION: Final = -1


class TimerRecord(NamedTuple):
    """One record, in the order of its bytes."""

    size: int
    previous: int
    magic: int
    write_time: int
    delay: int
    physical_offset: int
    message_size: int
    topic_hash: int
    reserved: int

    @property
    def slot_time(self) -> int:
        """The time of its slot (epoch milliseconds)."""
        return self.write_time + self.delay

    @property
    def rolls(self) -> bool:
        """Whether it returns for another turn."""
        return bool(self.magic & MAGIC_ROLL)

    @property
    def deletes(self) -> bool:
        """Whether it recalls another message now."""
        return self.magic & (MAGIC_DELETE | MAGIC_ROLL) == MAGIC_DELETE

    def is_sound(self, position: int) -> bool:
        """Whether it can be a record at a position."""
        return (
            self.size == RECORD_SIZE
            and self.magic & ~0xF == 0
            and NO_POSITION <= self.previous < position
            and self.physical_offset >= 0
            and self.message_size > 0
            and self.write_time >= 0
            and self.delay >= 0
        )


def encode_timer_record(
    previous: int,
    magic: int,
    write_time: int,
    delay: int,
    physical_offset: int,
    message_size: int,
    topic_hash: int,
) -> bytes:
    """The bytes of a record."""
    return RECORD.pack(
        RECORD_SIZE,
        previous,
        magic,
        write_time,
        delay,
        physical_offset,
        message_size,
        topic_hash,
        0,
    )


def unread_record(physical_offset: int, message_size: int) -> TimerRecord:
    """What is known of a message that could not be read."""
    return TimerRecord(
        RECORD_SIZE, NO_POSITION, MAGIC_DEFAULT, 0, 0, physical_offset, message_size, 0, 0
    )


def encode_filler(rest: int) -> bytes:
    """What follows the last record of a file that has `rest` bytes left."""
    return FILLER.pack(rest, 0, FILLER_MAGIC)
