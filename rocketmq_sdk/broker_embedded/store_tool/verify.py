"""Checks a whole store directory: log, queues, index and configuration.

Each by itself and against the others. Nothing is written and no lock is taken, so a
broker may have the directory open; what that broker has not handed to its files yet is
no finding.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from rocketmq_sdk.broker_embedded.store.files.checkpoint import MARGIN_MS
from rocketmq_sdk.broker_embedded.store.files.checkpoint import PATH as CHECKPOINT_PATH
from rocketmq_sdk.broker_embedded.store.files.config_file import DIRECTORY as CONFIG_DIRECTORY
from rocketmq_sdk.broker_embedded.store.files.directory_lock import is_locked
from rocketmq_sdk.broker_embedded.store.log.commit_log import DIRECTORY as LOG_DIRECTORY
from rocketmq_sdk.broker_embedded.store.queues.batch_consume_queue import (
    BATCH_DIRECTORY,
    batch_topics,
)
from rocketmq_sdk.broker_embedded.store.queues.removed_queues import topic_directories
from rocketmq_sdk.broker_embedded.store.recovery.clean_stop import PATH as CLEAN_STOP_PATH
from rocketmq_sdk.broker_embedded.store_tool.batches import BatchWalk, batch_unit_of
from rocketmq_sdk.broker_embedded.store_tool.config import check_config
from rocketmq_sdk.broker_embedded.store_tool.index import IndexWalk
from rocketmq_sdk.broker_embedded.store_tool.log import LogRecord, LogRecordReader, LogWalk
from rocketmq_sdk.broker_embedded.store_tool.queues import QueueWalk
from rocketmq_sdk.broker_embedded.store_tool.report import (
    DirectoryReader,
    Progress,
    StoreReader,
    StoreReport,
    chain_of,
    in_silence,
    usual_size,
)
from rocketmq_sdk.broker_embedded.store_tool.timer import TimerWalk
from rocketmq_sdk.broker_embedded.store_tool.unreadable import PatientReader, check_set_aside
from rocketmq_sdk.errors import RemoteProtocolError, StoreError
from rocketmq_sdk.protocol.json.dialect import decode_json

if TYPE_CHECKING:
    from collections.abc import Callable

_WHOLE_FILE = 1 << 30
_POSITION_AT = 40


def verify_directory(
    root: str | os.PathLike[str],
    advance: Progress = in_silence,
    on_record: Callable[[LogRecord], None] | None = None,
    *,
    commit_log: str | os.PathLike[str] | None = None,
    running: bool | None = None,
) -> StoreReport:
    """Check a directory of the operating system.

    `commit_log` is where the log is when it is elsewhere. `running` None means to find
    out whether a broker has it open. Raises `StoreError` for a directory that is
    missing, is no store or cannot be read.
    """
    check_is_store(root)
    try:
        return verify(
            DirectoryReader(root, commit_log),
            running=is_locked(root) if running is None else running,
            advance=advance,
            on_record=on_record,
        )
    except BrokenPipeError:
        raise
    except OSError as error:
        raise StoreError(
            f"{error.filename or os.fspath(root)} cannot be read: {error.strerror}"
        ) from error


def check_is_store(root: str | os.PathLike[str]) -> None:
    """Check that a directory exists and holds something of a store.

    Raises `StoreError` if not.
    """
    if not os.path.isdir(root):  # noqa: PTH112 - a path of any kind
        raise StoreError(f"{os.fspath(root)} is no directory")
    reader = DirectoryReader(root)
    if not any(
        reader.exists(name)
        for name in (LOG_DIRECTORY, "consumequeue", CONFIG_DIRECTORY, "checkpoint")
    ):
        raise StoreError(
            f"{os.fspath(root)} holds no message store: neither {LOG_DIRECTORY}, consumequeue, "
            f"{CONFIG_DIRECTORY} nor checkpoint"
        )


def verify(
    reader: StoreReader,
    *,
    running: bool = False,
    advance: Progress = in_silence,
    on_record: Callable[[LogRecord], None] | None = None,
) -> StoreReport:
    """Check everything.

    Bytes that cannot be read are a finding. Raises `OSError` or `StoreError` for names
    that cannot.
    """
    report = StoreReport()
    report.running = running
    reader = PatientReader(reader, report)
    if reader.exists("abort") and not running:
        report.unclean = True
        report.add("abort", 0, "abort", "the store was not closed; the next start recovers it")
    check_config(reader, report)
    report.log_file_size = usual_size([size for _name, size in reader.file_sizes(LOG_DIRECTORY)])
    chain = chain_of(reader, LOG_DIRECTORY, report.log_file_size, report)
    known_batches = batch_topics(lambda path: reader.read(path, 0, _WHOLE_FILE)) | set(
        topic_directories(reader.directory_names(BATCH_DIRECTORY))
    )
    walk = LogWalk(reader, report, chain, _deleted_topics(reader), known_batches, on_record)
    walk.run(advance)
    _check_checkpoint(reader, report)
    log = LogRecordReader(reader, chain, report.log_file_size)
    QueueWalk(reader, report, log, walk.queues, _known_topics(reader)).run(advance)
    wanted = {
        key: {record.position: batch_unit_of(record) for record in records}
        for key, records in walk.batches.items()
    }
    BatchWalk(reader, report, wanted).run()
    IndexWalk(reader, report, log, walk.keyed, _index_end(reader)).run(advance)
    TimerWalk(reader, report, log).run()
    check_set_aside(reader, report)
    return report


def _check_checkpoint(reader: StoreReader, report: StoreReport) -> None:
    """Compare the position below which queues are complete (5.5) with the log."""
    data = reader.read(CHECKPOINT_PATH, 0, _POSITION_AT + 8).ljust(_POSITION_AT + 8, b"\0")
    physic, logics = (int.from_bytes(data[at : at + 8], signed=True) for at in (0, 8))
    report.vouched_time = max(0, min(physic, logics) - MARGIN_MS)
    report.vouched = position = int.from_bytes(data[_POSITION_AT:], signed=True)
    if not report.running and not 0 <= position <= report.log_end:
        problem = f"says that the queues are complete up to {position}; the log ends at"
        report.add(CHECKPOINT_PATH, _POSITION_AT, "checkpoint", f"{problem} {report.log_end}")


def _json(reader: StoreReader, path: str) -> object | None:
    data = reader.read(path, 0, _WHOLE_FILE)
    try:
        return decode_json(data) if data else None
    except RemoteProtocolError:
        return None


def _index_end(reader: StoreReader) -> int | None:
    """Up to where the log is in the index, if a clean stop left it unfinished."""
    note = None if reader.exists("abort") else _json(reader, CLEAN_STOP_PATH)
    end = note.get("indexEnd") if isinstance(note, dict) else None
    return end if isinstance(end, int) else None


def _table(reader: StoreReader, name: str, member: str) -> dict[str, object] | None:
    path = f"{CONFIG_DIRECTORY}/{name}"
    value = _json(reader, path) or _json(reader, f"{path}.bak")
    table = value.get(member) if isinstance(value, dict) else None
    return table if isinstance(table, dict) else None


def _deleted_topics(reader: StoreReader) -> dict[str, int]:
    table = _table(reader, "deletedTopics.json", "positions") or {}
    return {topic: position for topic, position in table.items() if isinstance(position, int)}


def _known_topics(reader: StoreReader) -> set[str] | None:
    table = _table(reader, "topics.json", "topicConfigTable")
    return None if table is None else set(table)
