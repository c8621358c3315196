"""Keeping whole records that lie after the end that recovery found.

A log ends at its first record that is not whole, here as with Apache, which lets
whatever follows be overwritten. If that record was damaged rather than never finished,
what follows may be everything that was acknowledged since. Such records are out of a
broker's reach (queue offsets before them are missing), but they are kept in `setaside/`
and logged: `rocketmq store dump` shows where the log ends, and the files set aside hold
the bytes at their old positions.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final, NamedTuple

from rocketmq_sdk.broker_embedded.store.log.record import (
    BLANK_SIZE,
    RecordHead,
    check_record,
    size_and_magic,
)
from rocketmq_sdk.protocol.message_codec import MAGIC_V1, MAGIC_V2

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rocketmq_sdk.broker_embedded.store.files.chained_file import ChainedFile
    from rocketmq_sdk.broker_embedded.store.files.file_chain import FileChain

_log = logging.getLogger(__name__)
DIRECTORY: Final = "setaside"
_STEP: Final = 4 * 1024 * 1024
_MAGICS: Final = (MAGIC_V1.to_bytes(4), MAGIC_V2.to_bytes(4))
_OWN_PLACE: Final = 28


class Behind(NamedTuple):
    """The whole records after the end of a log."""

    records: int
    first: int
    end: int
    """The position after the last one."""
    first_time: int
    last_time: int


def look_behind(queue: FileChain, end: int) -> Behind | None:
    """Find whole records at their own positions after a position.

    Raises `StoreError` for files that cannot be read.
    """
    found: Behind | None = None
    for file in queue.files:
        if file.end <= end:
            continue
        for head in _records_of(file, max(end, file.start)):
            after, time = head.position + head.size, head.store_timestamp
            if found is None:
                found = Behind(1, head.position, after, time, time)
            else:
                found = Behind(
                    found.records + 1,
                    found.first,
                    after,
                    min(found.first_time, time),
                    max(found.last_time, time),
                )
    return found


def _records_of(file: ChainedFile, position: int) -> Iterator[RecordHead]:
    for low, high in list(file.file.data_ranges(position - file.start, file.size)):
        at = max(position, file.start + low)
        while at < file.start + high:
            data = file.read(at, _STEP)
            head = _next_record(file, data, at)
            if head is None:
                if at + len(data) >= file.end:
                    break
                at += len(data) - _OWN_PLACE
                continue
            yield head
            position = at = head.position + head.size


def _next_record(file: ChainedFile, data: bytes, base: int) -> RecordHead | None:
    """The first whole record that begins in `data`."""
    for index in _candidates(data):
        position = base + index
        if (
            index < 0
            or int.from_bytes(data[index + _OWN_PLACE : index + _OWN_PLACE + 8]) != position
        ):
            continue
        size, _magic = size_and_magic(data, index)
        if BLANK_SIZE < size <= file.end - position:
            head = check_record(file.read(position, size), 0, position, {}, check_crc=True)
            if head is not None:
                return head
    return None


def _candidates(data: bytes) -> Iterator[int]:
    """Where records may begin, in order."""
    found = [data.find(magic) for magic in _MAGICS]
    while any(place >= 0 for place in found):
        which = min((place, index) for index, place in enumerate(found) if place >= 0)[1]
        yield found[which] - 4
        found[which] = data.find(_MAGICS[which], found[which] + 1)


def set_aside(queue: FileChain, end: int, behind: Behind, vouched: int) -> None:
    """Keep what follows the end; call it before the log is cut.

    That is a copy of the rest of its file, and the later files themselves. `vouched` is
    the time up to which everything was durable, by the checkpoint. Raises `StoreError`
    when the bytes cannot be kept; the log is then unchanged.
    """
    files = queue.store_files
    directory = f"{DIRECTORY}/{end:020d}"
    holder = queue.find(end)
    if holder is not None and behind.first < holder.end:
        low, high = behind.first, min(behind.end, holder.end)
        files.write(f"{directory}/{low:020d}-{high:020d}", holder.read(low, high - low))
    else:
        files.write(f"{directory}/note", b"The files here were behind the end of the log.\n")
    while queue.files and queue.files[-1].start > end:
        queue.move_last(directory)
    for path in (directory, DIRECTORY, "."):
        files.sync_directory(path)
    queue.sync_directories()
    name = "the end of the log" if holder is None else f"{holder.file.path} at {end - holder.start}"
    text = (
        "%s: the log is damaged at position %d (%s); %d whole records behind it, from %d on, "
        "stored from %d to %d, are set aside in %s%s"
    )
    surely = behind.first_time <= vouched
    reason = (
        "; the checkpoint says that they were durable, so the disk or somebody changed the log"
        if surely
        else ""
    )
    level = logging.ERROR if surely else logging.WARNING
    times = (behind.first_time, behind.last_time)
    _log.log(
        level,
        text,
        files.description,
        end,
        name,
        behind.records,
        behind.first,
        *times,
        directory,
        reason,
    )
