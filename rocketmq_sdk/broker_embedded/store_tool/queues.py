"""Checks every unit of every queue against the log."""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, Final

from rocketmq_sdk.broker_embedded.store.config import QUEUE_UNIT_SIZE
from rocketmq_sdk.broker_embedded.store.queues.batch_consume_queue import BATCH_DIRECTORY
from rocketmq_sdk.broker_embedded.store.queues.consume_queue import DIRECTORY
from rocketmq_sdk.broker_embedded.store.queues.consume_queue_table import MULTI_DISPATCH_PREFIX
from rocketmq_sdk.broker_embedded.store.queues.removed_queues import (
    queue_directories,
    topic_directories,
)
from rocketmq_sdk.broker_embedded.store.queues.unit_chain import PRE_BLANK_SIZE
from rocketmq_sdk.broker_embedded.store_tool.log import LogRecordReader, QueueUnits
from rocketmq_sdk.broker_embedded.store_tool.report import (
    Progress,
    StoreReader,
    StoreReport,
    chain_of,
    usual_size,
)
from rocketmq_sdk.names import SCHEDULE_TOPIC

if TYPE_CHECKING:
    from collections.abc import Callable

_UNIT: Final = Struct(">qiq")
_EMPTY: Final = bytes(QUEUE_UNIT_SIZE)
_EXTENSION_ADDRESS: Final = -2147483649
_MOST_FINDINGS: Final = 100
EXTENSION_DIRECTORY: Final = "consumequeue_ext"


class QueueWalk:
    """One pass over `consumequeue/`, after the log's."""

    def __init__(
        self,
        reader: StoreReader,
        report: StoreReport,
        log: LogRecordReader,
        wanted: dict[tuple[str, int], QueueUnits],
        known_topics: set[str] | None,
    ) -> None:
        self._reader = reader
        self._log = log
        self._report = report
        self._wanted = wanted
        self._known_topics = known_topics

    def run(self, advance: Progress) -> None:
        """Run the pass; `advance` is told the units, of those that the log has."""
        reader, report = self._reader, self._report
        batch_topics = set(topic_directories(reader.directory_names(BATCH_DIRECTORY)))
        queues: dict[tuple[str, int], str] = {}
        for topic in topic_directories(reader.directory_names(DIRECTORY)):
            names = reader.directory_names(f"{DIRECTORY}/{topic}")
            for queue_id in queue_directories(names):
                queues[topic, queue_id] = f"{DIRECTORY}/{topic}/{queue_id}"
        sizes = {
            path: [size for _name, size in reader.file_sizes(path)] for path in queues.values()
        }
        report.queue_file_size = usual_size([size for found in sizes.values() for size in found])
        total = sum(len(wanted.units) for wanted in self._wanted.values()) // QUEUE_UNIT_SIZE

        def tell() -> None:
            advance("queue units", min(report.units, total), total)

        for key, path in queues.items():
            if key[0] not in batch_topics and sizes[path]:
                report.queues += 1
                self._check(key, path, tell)
        if total:
            advance("queue units", total, total)
        for (topic, queue_id), wanted in self._wanted.items():
            known = self._known_topics is None or topic in self._known_topics
            if (
                not sizes.get(queues.get((topic, queue_id), ""))
                and topic not in batch_topics
                and known
                and not report.running
            ):
                count = len(wanted.units) // QUEUE_UNIT_SIZE
                report.add_lack(
                    f"{DIRECTORY}/{topic}/{queue_id}",
                    0,
                    "missing",
                    f"there is no such queue; the log has {count} messages for it",
                    self._place_of(wanted, wanted.first),
                )

        self._check_extensions()

    def _check_extensions(self) -> None:
        """Names and lengths of the extension files that units may point to.

        Their content only speeds things up and may be missing.
        """
        reader = self._reader
        parents = [
            f"{EXTENSION_DIRECTORY}/{topic}"
            for topic in topic_directories(reader.directory_names(EXTENSION_DIRECTORY))
        ]
        paths = [
            f"{parent}/{name}" for parent in parents for name in reader.directory_names(parent)
        ]
        size = self._report.extension_file_size = usual_size(
            [size for path in paths for _name, size in reader.file_sizes(path)]
        )
        for path in paths:
            chain_of(reader, path, size, self._report)

    def _check(self, key: tuple[str, int], directory: str, tell: Callable[[], None]) -> None:
        report = self._report
        size = report.queue_file_size
        if size % QUEUE_UNIT_SIZE:
            report.add(
                directory,
                0,
                "size",
                f"files of {size} bytes do not hold whole units of {QUEUE_UNIT_SIZE}",
            )
            return
        chain = chain_of(self._reader, directory, size, report)
        ended: tuple[str, int] | None = None
        wanted = self._wanted.get(key, QueueUnits(0))
        before = len(report.findings)
        next_offset = 0
        for start, path in chain:
            data = self._reader.read(path, 0, size)
            report.bytes += len(data)
            end = self._end_of(data)
            if ended is not None and end:
                report.add(
                    ended[0], ended[1], "unit", f"no unit stands here, but {path} holds some"
                )
                ended = None
            if end < size and ended is None:
                ended = (path, end)
            if end:
                self._compare(key, path, start // QUEUE_UNIT_SIZE, data[:end], wanted)
                next_offset = (start + end) // QUEUE_UNIT_SIZE
                report.units += end // QUEUE_UNIT_SIZE
                tell()
            if len(report.findings) - before > _MOST_FINDINGS:
                report.add(directory, 0, "unit", "more in this queue is wrong than is listed")
                return
        missing = wanted.next - max(next_offset, wanted.first)
        if (
            chain
            and missing > 0
            and not report.running
            and not key[0].startswith(MULTI_DISPATCH_PREFIX)
        ):
            at = next_offset * QUEUE_UNIT_SIZE - chain[-1][0]
            report.add_lack(
                chain[-1][1],
                max(0, at),
                "behind",
                f"the queue ends at {next_offset}; the log has {missing} more messages for it",
                self._place_of(wanted, max(next_offset, wanted.first)),
            )

    def _place_of(self, wanted: QueueUnits, number: int) -> tuple[int, int]:
        """Position and store time of a unit's record, or of the next that is known."""
        for at in range(
            (number - wanted.first) * QUEUE_UNIT_SIZE, len(wanted.units), QUEUE_UNIT_SIZE
        ):
            position, size, _code = _UNIT.unpack_from(wanted.units, at)
            record = self._log.record(position) if size else None
            if record is not None:
                return position, record.store_timestamp
        return 0, 0

    @staticmethod
    def _end_of(data: bytes) -> int:
        """The end of the last unit that is not zero."""
        used = len(data.rstrip(b"\0"))
        return min((used + QUEUE_UNIT_SIZE - 1) // QUEUE_UNIT_SIZE * QUEUE_UNIT_SIZE, len(data))

    def _compare(
        self, key: tuple[str, int], path: str, offset: int, data: bytes, wanted: QueueUnits
    ) -> None:
        """Compare the units of one file with the log; equal stretches at once.

        The file begins at a queue offset.
        """
        low = max(offset, wanted.first)
        at, there = (low - offset) * QUEUE_UNIT_SIZE, (low - wanted.first) * QUEUE_UNIT_SIZE
        if data[at:] == wanted.units[there : there + len(data) - at] and at == 0:
            return
        for place in range(0, len(data), QUEUE_UNIT_SIZE):
            index = (offset - wanted.first) * QUEUE_UNIT_SIZE + place
            expected = bytes(wanted.units[index : index + QUEUE_UNIT_SIZE]) if index >= 0 else b""
            unit = data[place : place + QUEUE_UNIT_SIZE]
            if unit != expected:
                self._judge(key, path, place, unit, expected)
                if not expected.strip(b"\0"):
                    self._judge_record(key, offset + place // QUEUE_UNIT_SIZE, unit)

    def _judge_record(self, key: tuple[str, int], offset: int, unit: bytes) -> None:
        """Report a record that contradicts the unit that points to it."""
        position, size, _code = _UNIT.unpack(unit)
        record = self._log.record(position)
        place = self._log.place(position)
        if (
            record is None
            or place is None
            or record.size != size
            or self._report.running
            or key[0].startswith(MULTI_DISPATCH_PREFIX)
        ):
            return
        found = (record.topic, record.queue_id, record.queue_offset)
        if found != (*key, offset):
            problem = (
                f"says that it is of {found[0]} queue {found[1]} offset {found[2]}; the unit "
                f"{offset} of {key[0]} queue {key[1]} leads to it"
            )
            self._report.add(place[0], place[1] + 12, "order", problem)

    def _judge(
        self, key: tuple[str, int], path: str, place: int, unit: bytes, expected: bytes
    ) -> None:
        position, size, code = _UNIT.unpack(unit)
        report = self._report
        if size == PRE_BLANK_SIZE and not position and not code and not expected:
            return
        if position < 0 or size <= 0:
            report.add(path, place, "unit", f"position {position} and size {size} cannot be")
        elif not expected:
            if (
                key[0].startswith(MULTI_DISPATCH_PREFIX)
                or position < report.log_start
                or (report.running and position >= report.log_end)
            ):
                return
            report.add(
                path,
                place,
                "extra",
                (
                    f"the unit of {size} bytes at {position} is of no message of {key[0]} queue "
                    f"{key[1]} in the log"
                ),
            )
        elif expected != _EMPTY:
            wanted_position, wanted_size, wanted_code = _UNIT.unpack(expected)
            if (position, size) != (wanted_position, wanted_size):
                problem = (
                    f"the unit says {size} bytes at {position}, the log has {wanted_size} bytes "
                    f"at {wanted_position}"
                )
                report.add(
                    path, place if position != wanted_position else place + 8, "unit", problem
                )
            elif not self._code_fits(key[0], code, wanted_code):
                report.add(
                    path,
                    place + 12,
                    "unit",
                    f"the unit says the tags code {code}, the log {wanted_code}",
                )

    def _code_fits(self, topic: str, code: int, wanted: int) -> bool:
        """Units of delay messages have the delivery time there.

        Units with an extension have its address.
        """
        if topic == SCHEDULE_TOPIC:
            return code >= wanted
        return code <= _EXTENSION_ADDRESS and self._reader.exists(f"{EXTENSION_DIRECTORY}/{topic}")
