"""A note of where everything began and ended at a clean stop.

With it the next start need not read the last file of the log (up to 1 GiB) to find that
out, and sees which files are missing. Apache keeps no such note, ignores the file, and
reads. The note is trusted only if nothing contradicts it: the queues begin and end
where it says, the last record that a queue knows is whole, and no record follows the
end. If Apache's broker ran in between, a queue was
deleted or files came back from a backup, something does not fit, and the log is read as
after any other clean stop.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

import attrs

from rocketmq_sdk.broker_embedded.store.files.reserve import write_small
from rocketmq_sdk.broker_embedded.store.index.service import AFTER_ALL, DIRECTORY
from rocketmq_sdk.errors import RemoteProtocolError, StoreError
from rocketmq_sdk.protocol.json.dialect import decode_json, encode_json

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rocketmq_sdk.broker_embedded.store.files.file_system import FileSystem
    from rocketmq_sdk.broker_embedded.store.index.service import IndexService
    from rocketmq_sdk.broker_embedded.store.log.commit_log import CommitLog
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


class NotedQueue(NamedTuple):
    """What a queue had at a clean stop."""

    first: int
    """The offset of its oldest message."""
    end: int
    """The offset that its next message would get."""
    physical: int
    """The end of its last record in the log."""


@attrs.frozen
class CleanStopNote:
    """What is known of the last clean stop, whatever has happened since."""

    log_start: int = 0
    log_end: int = 0
    """0 without a note."""
    queues: Mapping[tuple[str, int], NotedQueue] = attrs.field(factory=dict)
    """By topic and queue id."""
    index_files: Mapping[str, int] = attrs.field(factory=dict)
    """The position of the last record that each file of the index knows."""
    index_end: int | None = None
    """Up to where the log was in the index, if it was not complete."""

    def agrees(self, table: ConsumeQueueTable) -> bool:
        """Whether the queues are what they were."""
        return self.log_end > 0 and self.queues == _queues(table)

    def missing_index_file(self, files: FileSystem, log_start: int, *, clean: bool) -> str:
        """The first file of the index that is not there any more.

        Retention removes those that know no record of a log that begins at `log_start`,
        and the start after a kill the last one, which was not full.
        """
        last = "" if clean else max(self.index_files, default="")
        names = {name for name, size in files.file_sizes(DIRECTORY) if size}
        return min(
            (
                name
                for name, end in self.index_files.items()
                if end >= log_start and name not in names and name != last
            ),
            default=AFTER_ALL,
        )


def _queues(table: ConsumeQueueTable) -> dict[tuple[str, int], NotedQueue]:
    """All but those in memory only, of messages that were refused."""
    return {
        (queue.topic, queue.queue_id): NotedQueue(
            queue.min_offset, queue.max_offset, queue.max_physical
        )
        for queue in table
        if queue.max_offset or queue.has_files
    }


def write_note(
    files: FileSystem, log: CommitLog, table: ConsumeQueueTable, index: IndexService
) -> None:
    """Write the note durably. Raises `StoreError`."""
    queues: dict[str, dict[str, list[int]]] = {}
    for (topic, queue_id), noted in _queues(table).items():
        queues.setdefault(topic, {})[str(queue_id)] = list(noted)
    content: dict[str, object] = {
        "logStart": log.min_position,
        "logEnd": log.position,
        "queues": queues,
        "index": {file.name: file.end_offset for file in index.files},
    }
    if index.lacks_from is not None:
        content["indexEnd"] = index.lacks_from
    write_small(files, PATH, encode_json(content))
    files.sync_directory(".")


def read_note(files: FileSystem) -> CleanStopNote:
    """The note of the last clean stop; an empty one when there is none to be read."""
    content = _content(files)
    index_end = content.get("indexEnd")
    return CleanStopNote(
        _integer(content.get("logStart")),
        _integer(content.get("logEnd")),
        _noted_queues(content.get("queues")),
        {name: _integer(end) for name, end in _members(content.get("index"))},
        index_end if isinstance(index_end, int) else None,
    )


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


def _integer(value: object) -> int:
    return value if isinstance(value, int) else 0


def _members(value: object) -> Iterable[tuple[str, object]]:
    return value.items() if isinstance(value, dict) else ()


def _noted_queues(value: object) -> dict[tuple[str, int], NotedQueue]:
    """Empty for what an earlier release wrote, which was a number."""
    found: dict[tuple[str, int], NotedQueue] = {}
    for topic, queues in _members(value):
        for name, fields in _members(queues):
            if (
                name.isascii()
                and name.isdecimal()
                and isinstance(fields, list)
                and len(fields) == len(NotedQueue._fields)
                and all(isinstance(field, int) for field in fields)
            ):
                found[topic, int(name)] = NotedQueue._make(fields)
    return found
