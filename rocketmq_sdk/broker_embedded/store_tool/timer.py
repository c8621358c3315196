"""Checks timer log, wheel and checkpoint, by themselves and against the commit log.

A missing wheel is no finding: the next start makes it again from the log. Not covered:
the counts of slots, and for a timer more than a window ahead, which turn it takes once
that is over.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, Final

from rocketmq_sdk.broker_embedded.store_tool.report import (
    StoreReader,
    StoreReport,
    chain_of,
    usual_size,
)
from rocketmq_sdk.broker_embedded.timers.checkpoint import FIELDS, TimerCheckpoint
from rocketmq_sdk.broker_embedded.timers.checkpoint import PATH as CHECKPOINT_PATH
from rocketmq_sdk.broker_embedded.timers.log import DIRECTORY
from rocketmq_sdk.broker_embedded.timers.messages import is_deletion, out_time
from rocketmq_sdk.broker_embedded.timers.record import (
    FILLER_MAGIC,
    FILLER_SIZE,
    MAGIC_DELETE,
    NO_POSITION,
    RECORD,
    RECORD_SIZE,
    TimerRecord,
)
from rocketmq_sdk.broker_embedded.timers.wheel import PATH as WHEEL_PATH
from rocketmq_sdk.broker_embedded.timers.wheel import SLOT, SLOT_SIZE, SLOTS, WHEEL_SIZE
from rocketmq_sdk.model.properties import REAL_TOPIC, property_in_text
from rocketmq_sdk.names import TIMER_TOPIC, java_hash

if TYPE_CHECKING:
    from rocketmq_sdk.broker_embedded.store_tool.log import LogRecordReader

_CHUNK: Final = 1 << 20
_PAGE: Final = 4096
_LEAST_PRECISION: Final = 100
_MAGICS: Final = (1, 3, 5, 7)
_INT: Final = Struct(">i")


class TimerWalk:
    """One pass over `timerlog/`, `timerwheel` and `config/timercheck`.

    In a running broker only what its checkpoint covers counts.
    """

    def __init__(self, reader: StoreReader, report: StoreReport, log: LogRecordReader) -> None:
        self._reader = reader
        self._report = report
        self._log = log
        self._lasts: dict[int, int] = {}
        self._firsts: dict[int, int] = {}
        self._checkpoint = TimerCheckpoint()
        self._end = 0

    def run(self) -> None:
        """Run the pass."""
        report = self._report
        size = usual_size([length for _name, length in self._reader.file_sizes(DIRECTORY)])
        chain = chain_of(self._reader, DIRECTORY, size, report)
        known = self._read_checkpoint()
        self._start = self._end = chain[0][0] if chain else 0
        for start, path in chain:
            if start != self._end or not self._walk_file(path, start, size):
                break
        if known and not report.running and self._end < self._checkpoint.log_flushed:
            report.add(
                CHECKPOINT_PATH,
                8,
                "timer",
                (
                    f"says that the timer log reaches to {self._checkpoint.log_flushed}; it ends "
                    "at "
                    f"{self._end}"
                ),
            )
        if not report.running and self._reader.exists(WHEEL_PATH):
            self._walk_wheel()

    def _read_checkpoint(self) -> bool:
        data = self._reader.read(CHECKPOINT_PATH, 0, FIELDS.size)
        if not self._reader.exists(CHECKPOINT_PATH):
            return False
        if len(data) < FIELDS.size:
            self._report.add(
                CHECKPOINT_PATH, len(data), "size", f"has {len(data)} bytes; {FIELDS.size} are used"
            )
            return False
        self._checkpoint = TimerCheckpoint.decode(data)
        for place, value in enumerate(FIELDS.unpack(data)):
            if value < 0:
                self._report.add(
                    CHECKPOINT_PATH,
                    8 * place,
                    "timer",
                    f"holds the number {value}, which cannot be",
                )
        return True

    # --- the log

    def _walk_file(self, path: str, start: int, size: int) -> bool:
        """Check the records of one file; returns whether the next file continues."""
        data = self._reader.read(path, 0, size)
        self._report.bytes += len(data)
        for at in range(0, len(data), RECORD_SIZE):
            position = start + at
            if self._report.running and position >= self._checkpoint.log_flushed:
                return False
            if len(data) - at >= FILLER_SIZE and _INT.unpack_from(data, at + 12)[0] == FILLER_MAGIC:
                self._end = start + size
                return True
            if not any(data[at : at + RECORD_SIZE]):
                self._rest(path, data, at)
                return False
            if len(data) - at < RECORD_SIZE:
                self._report.add(
                    path, at, "timer", "there is neither a record nor the end of the file"
                )
                return False
            record = TimerRecord._make(RECORD.unpack_from(data, at))
            problem = self._judge(record)
            if problem:
                self._report.add(path, at + problem[0], "timer", problem[1])
            if not record.is_sound(position):
                self._end = position
                return False
            self._lasts[record.slot_time] = position
            if record.previous == NO_POSITION:
                self._firsts[record.slot_time] = position
            self._end = position + RECORD_SIZE
        return self._end >= start + size

    def _rest(self, path: str, data: bytes, at: int) -> None:
        """Check that what follows the last record is empty."""
        rest = data[at:].lstrip(b"\0")
        if rest and not self._report.running:
            self._report.add(
                path, len(data) - len(rest), "timer", "there is something behind the last record"
            )

    def _judge(self, record: TimerRecord) -> tuple[int, str] | None:
        """What is wrong with a record, and at which of its bytes."""
        if record.size != RECORD_SIZE:
            return 0, f"says that it has {record.size} bytes"
        if record.magic not in _MAGICS:
            return 12, f"has the magic {record.magic}"
        if record.reserved:
            return 44, "holds something in the reserved bytes"
        if record.write_time % _LEAST_PRECISION or record.write_time <= 0:
            return 16, f"was written at {record.write_time}, which is no multiple of a precision"
        if record.delay % _LEAST_PRECISION or record.delay < 0:
            return 24, f"has the delay {record.delay}"
        last = self._lasts.get(record.slot_time, NO_POSITION)
        if record.previous not in (last, NO_POSITION) and not (
            last == NO_POSITION and 0 <= record.previous < self._start
        ):
            return 4, f"names {record.previous} as the record before it in its slot; that is {last}"
        return self._judge_message(record)

    def _judge_message(self, record: TimerRecord) -> tuple[int, str] | None:
        if 0 <= record.physical_offset < self._report.log_start:
            return None
        message = self._log.record(record.physical_offset)
        if message is None or message.topic != TIMER_TOPIC:
            return (
                28,
                (
                    f"names {record.physical_offset} as the position of its message; there is "
                    "none of "
                    f"{TIMER_TOPIC}"
                ),
            )
        if message.size != record.message_size:
            return (
                36,
                f"says that its message has {record.message_size} bytes; it has {message.size}",
            )
        text = message.properties
        if record.topic_hash != java_hash(property_in_text(text, REAL_TOPIC) or ""):
            return 40, "does not have the hash of the real topic of its message"
        if bool(record.magic & MAGIC_DELETE) != is_deletion(text):
            return 12, "does not agree with its message on whether it takes another one back"
        try:
            out_ms = out_time(text)
        except ValueError as error:
            return 28, f"names the message at {record.physical_offset}: {error}"
        if (
            (record.slot_time >= out_ms)
            if record.rolls
            else not 0 <= out_ms - record.slot_time < 1000
        ):
            return 16, f"belongs to the slot {record.slot_time}, its message to {out_ms}"
        return None

    # --- the wheel

    def _walk_wheel(self) -> None:
        if not self._reader.read(WHEEL_PATH, 0, 1):
            return
        if not self._reader.read(WHEEL_PATH, WHEEL_SIZE - 1, 1) or self._reader.read(
            WHEEL_PATH, WHEEL_SIZE, 1
        ):
            self._report.add(
                WHEEL_PATH,
                WHEEL_SIZE,
                "size",
                f"does not have the {WHEEL_SIZE} bytes of a timer wheel",
            )
            return
        pending = {
            time: last
            for time, last in self._lasts.items()
            if time >= self._checkpoint.last_read_time
        }
        precision = self._precision()
        written = self._reader.data_ranges(WHEEL_PATH, 0, WHEEL_SIZE)
        for low in range(0, WHEEL_SIZE, _CHUNK):
            if not any(begin < low + _CHUNK and low < end for begin, end in written):
                continue
            data = self._reader.read(WHEEL_PATH, low, _CHUNK)
            if data.count(0) == len(data):
                continue
            for at in range(0, len(data), _PAGE):
                if any(data[at : at + _PAGE]):
                    self._walk_page(data[at : at + _PAGE], low + at, precision, pending)
        for time, last in pending.items():
            place = time // precision % SLOTS * SLOT_SIZE
            self._report.add(
                WHEEL_PATH, place, "timer", f"the slot {time} does not know the record at {last}"
            )

    def _precision(self) -> int:
        """The width of a slot, as the common divisor of times tells."""
        return next(
            (width for width in (1000, 500, 200) if all(time % width == 0 for time in self._lasts)),
            _LEAST_PRECISION,
        )

    def _walk_page(self, page: bytes, offset: int, precision: int, pending: dict[int, int]) -> None:
        for number, (units, first, last, _count, magic) in enumerate(SLOT.iter_unpack(page)):
            at = offset + number * SLOT_SIZE
            if not units and not (first or last or magic):
                continue
            time = units * precision
            known = self._lasts.get(time)
            problem: tuple[int, str] | None = None
            if units <= 0 or units % SLOTS * SLOT_SIZE != at:
                problem = 0, f"holds the time {time}, whose place is elsewhere"
            elif magic:
                problem = 28, f"has the magic {magic}"
            elif pending.get(time, last) != last:
                problem = 16, f"names {last} as its last record; that is {known}"
            elif known is None and time >= self._checkpoint.last_read_time and last >= self._start:
                problem = 0, f"holds the time {time}, for which the timer log has no record"
            elif (
                time in pending
                and not 0 <= first < self._start
                and first != self._firsts.get(time, first)
            ):
                problem = 8, f"names {first} as its first record; that is {self._firsts[time]}"
            if problem:
                self._report.add(
                    WHEEL_PATH, at + problem[0], "timer", f"the slot {at // SLOT_SIZE} {problem[1]}"
                )
            pending.pop(time, None)
