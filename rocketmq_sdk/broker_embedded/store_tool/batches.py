"""Every unit of every batch consume queue looked at and compared with the log."""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, Final

from rocketmq_sdk.broker_embedded.store.queues.batch_consume_queue import BATCH_DIRECTORY
from rocketmq_sdk.broker_embedded.store.queues.removed_queues import (
    queue_directories,
    topic_directories,
)
from rocketmq_sdk.broker_embedded.store_tool.report import (
    StoreReader,
    StoreReport,
    chain_of,
    usual_size,
)
from rocketmq_sdk.model.properties import INNER_NUM, property_in_text
from rocketmq_sdk.names import java_hash

if TYPE_CHECKING:
    from rocketmq_sdk.broker_embedded.store_tool.log import LogRecord

_UNIT: Final = Struct(">qiqqqhii")
_SIZE: Final = _UNIT.size
_INNER_BATCH: Final = 0x80
_MOST_FINDINGS: Final = 100
_FIELDS: Final = (
    (0, "position"),
    (8, "size"),
    (12, "tags code"),
    (20, "store time"),
    (28, "base offset"),
    (36, "count"),
    (38, "end"),
)


def batch_unit_of(record: LogRecord) -> bytes:
    """The unit that a record should have."""
    count = (
        property_in_text(record.properties, INNER_NUM) if record.sys_flag & _INNER_BATCH else None
    )
    messages = (
        int(count) if count is not None and count.isdecimal() and 0 < int(count) < 1 << 15 else 1
    )
    tags = property_in_text(record.properties, "TAGS")
    code = java_hash(tags) if tags else 0
    return _UNIT.pack(
        record.position,
        record.size,
        code,
        record.store_timestamp,
        record.queue_offset,
        messages,
        -1,
        0,
    )


def _first_of(wanted: dict[int, bytes]) -> tuple[int, int]:
    """Position and store time of the first of some records, by their units."""
    position = min(wanted)
    return position, _UNIT.unpack(wanted[position])[3]


class BatchWalk:
    """One pass over `batchconsumequeue/`, after the log's."""

    def __init__(
        self,
        reader: StoreReader,
        report: StoreReport,
        wanted: dict[tuple[str, int], dict[int, bytes]],
    ) -> None:
        self._reader = reader
        self._report = report
        self._wanted = wanted

    def run(self) -> None:
        """Walk."""
        reader, report = self._reader, self._report
        queues = {
            (topic, queue_id): f"{BATCH_DIRECTORY}/{topic}/{queue_id}"
            for topic in topic_directories(reader.directory_names(BATCH_DIRECTORY))
            for queue_id in queue_directories(reader.directory_names(f"{BATCH_DIRECTORY}/{topic}"))
        }
        sizes = [size for path in queues.values() for _name, size in reader.file_sizes(path)]
        report.batch_file_size = usual_size(sizes)
        if report.batch_file_size % _SIZE:
            report.add(
                BATCH_DIRECTORY,
                0,
                "size",
                f"files of {report.batch_file_size} bytes do not hold whole units of {_SIZE}",
            )
            return
        for key, path in queues.items():
            report.queues += 1
            self._check(key, path, dict(self._wanted.get(key, {})))
        for key, wanted in self._wanted.items():
            if key not in queues and not report.running:
                path = f"{BATCH_DIRECTORY}/{key[0]}/{key[1]}"
                report.add_lack(
                    path,
                    0,
                    "missing",
                    f"there is no such queue; the log has {len(wanted)} records for it",
                    _first_of(wanted),
                )

    def _check(self, key: tuple[str, int], directory: str, wanted: dict[int, bytes]) -> None:
        report = self._report
        before = len(report.findings)
        chain = (
            chain_of(self._reader, directory, report.batch_file_size, report)
            if report.batch_file_size
            else []
        )
        ended: tuple[str, int] | None = None
        end_path, end_at = directory, 0
        for _start, path in chain:
            data = self._reader.read(path, 0, report.batch_file_size)
            report.bytes += len(data)
            end = (len(data.rstrip(b"\0")) + _SIZE - 1) // _SIZE * _SIZE
            if ended is not None and end:
                report.add(
                    ended[0], ended[1], "unit", f"no unit stands here, but {path} holds some"
                )
            ended = (path, end) if end < len(data) else None
            if end:
                end_path, end_at = path, end
            for at in range(0, min(end, len(data)), _SIZE):
                report.units += 1
                self._compare(key, path, at, data[at : at + _SIZE], wanted)
            if len(report.findings) - before > _MOST_FINDINGS:
                report.add(directory, 0, "unit", "more in this queue is wrong than is listed")
                return
        if wanted and not report.running:
            report.add_lack(
                end_path,
                end_at,
                "behind",
                f"the log has {len(wanted)} records for this queue that have no unit",
                _first_of(wanted),
            )

    def _compare(
        self, key: tuple[str, int], path: str, at: int, unit: bytes, wanted: dict[int, bytes]
    ) -> None:
        report = self._report
        position, size = _UNIT.unpack(unit)[:2]
        if position < 0 or size <= 0:
            report.add(path, at, "unit", f"position {position} and size {size} cannot be")
            return
        expected = wanted.pop(position, None)
        if expected is None:
            if position >= report.log_start and not (report.running and position >= report.log_end):
                report.add(
                    path,
                    at,
                    "extra",
                    (
                        f"the unit of {size} bytes at {position} is of no record of {key[0]} queue "
                        f"{key[1]} in the log"
                    ),
                )
        elif expected != unit:
            first = next(index for index in range(_SIZE) if unit[index] != expected[index])
            start, name = max(field for field in _FIELDS if field[0] <= first)
            report.add(
                path,
                at + start,
                "unit",
                f"the {name} of the unit for the record at {position} is not what the log says",
            )
