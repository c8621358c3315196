"""A note of where everything ended at a clean stop.

With it the next start need not read the last file of the log (up to 1 GiB) to find that
out. Apache keeps no such note, ignores the file, and reads. The note is trusted only if
nothing contradicts it: the queues end where it says, the last record that a queue knows
is whole, and no record follows the end. If Apache's broker ran in between, a queue was
deleted or files came back from a backup, something does not fit, and the log is read as
after any other clean stop.
"""

from __future__ import annotations

import logging
import os
import zlib
from typing import TYPE_CHECKING, Final

from rocketmq_sdk.broker_embedded.store.files.reserve import write_small
from rocketmq_sdk.errors import RemoteProtocolError, StoreError
from rocketmq_sdk.protocol.json.dialect import decode_json, encode_pretty

if TYPE_CHECKING:
    from rocketmq_sdk.broker_embedded.store.files.file_system import FileSystem
    from rocketmq_sdk.broker_embedded.store.queues.consume_queue_table import ConsumeQueueTable

_log = logging.getLogger(__name__)
PATH: Final = "cleanStop.json"
ABORT_PATH: Final = "abort"


def mark_open(files: FileSystem) -> None:
    """Note durably that the store was not closed. Raises `StoreError`.

    Before anything is changed: an interrupted recovery must not look like a clean stop.
    """
    write_small(files, ABORT_PATH, str(os.getpid()).encode())
    files.sync_directory(".")


def _digest(table: ConsumeQueueTable) -> int:
    """A number that changes with every queue and every end of one."""
    ends = sorted(
        (queue.topic, queue.queue_id, queue.max_offset, queue.max_physical) for queue in table
    )
    return zlib.crc32(repr(ends).encode())


def write_note(
    files: FileSystem, log_end: int, table: ConsumeQueueTable, index_end: int | None = None
) -> None:
    """Write the note durably. Raises `StoreError`.

    `index_end` is up to where the log is in the index, if that is not its end.
    """
    content = {"logEnd": log_end, "queues": _digest(table)}
    if index_end is not None:
        content["indexEnd"] = index_end
    write_small(files, PATH, encode_pretty(content).encode())
    files.sync_directory(".")


def noted_log_end(files: FileSystem) -> int:
    """The end of the log in the note, whether or not it fits; 0 without one."""
    return _integer(_content(files), "logEnd") or 0


def noted_index_end(files: FileSystem) -> int | None:
    """Up to where the log is in the index, if it was not complete at the clean stop."""
    return _integer(_content(files), "indexEnd")


def _content(files: FileSystem) -> dict[str, object]:
    try:
        data = files.read(PATH)
        value = decode_json(data) if data else None
    except StoreError as error:
        _log.error("%s; the log is read instead", error)
        return {}
    except RemoteProtocolError:
        return {}
    return value if isinstance(value, dict) else {}


def _integer(content: dict[str, object], name: str) -> int | None:
    value = content.get(name)
    return value if isinstance(value, int) else None


def noted_end(files: FileSystem, table: ConsumeQueueTable) -> int | None:
    """The end of the log by a note that fits the queues and can be read."""
    content = _content(files)
    if not content or content.get("queues") != _digest(table):
        return None
    return _integer(content, "logEnd")
