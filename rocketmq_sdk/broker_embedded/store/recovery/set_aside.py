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
from itertools import count
from typing import TYPE_CHECKING, Final

from rocketmq_sdk.broker_embedded.store.log.place import SET_ASIDE

if TYPE_CHECKING:
    from rocketmq_sdk.broker_embedded.store.files.chained_file import ChainedFile
    from rocketmq_sdk.broker_embedded.store.files.file_chain import FileChain
    from rocketmq_sdk.broker_embedded.store.files.file_system import FileSystem
    from rocketmq_sdk.broker_embedded.store.recovery.behind import Behind

_log = logging.getLogger(__name__)
_STEP: Final = 1024 * 1024


def set_aside(chain: FileChain, end: int, behind: Behind, vouched: int) -> None:
    """Keep what follows the end; call it before the log is cut.

    That is a copy of the rest of its file, and the later files themselves. What an
    earlier damage left at the same position stays. `vouched` is the time up to which
    everything was durable, by the checkpoint. Raises `StoreError` when the bytes cannot
    be kept; the log is then unchanged.
    """
    files = chain.store_files
    holder = chain.find(end)
    directory = _free_directory(files, f"{SET_ASIDE}/{end:020d}")
    if holder is not None and behind.first < holder.end:
        low, high = behind.first, min(behind.end, holder.end)
        _copy(files, holder, low, high, f"{directory}/{low:020d}-{high:020d}")
    else:
        files.write(f"{directory}/note", b"The files here were behind the end of the log.\n")
    while chain.files and chain.files[-1].start > end:
        chain.move_last(directory)
    for path in (directory, SET_ASIDE, chain.directory, "."):
        files.sync_directory(path)
    chain.sync_directories()
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


def _free_directory(files: FileSystem, wanted: str) -> str:
    """A directory that does not exist yet: the wanted name, or it with a number."""
    names = (wanted if number == 1 else f"{wanted}-{number}" for number in count(1))
    return next(name for name in names if not files.exists(name))


def _copy(files: FileSystem, source: ChainedFile, low: int, high: int, path: str) -> None:
    """Copy a part of a log file durably, in steps. Raises `StoreError`."""
    copy = files.open(path)
    copy.truncate(high - low)
    for begin, end in list(source.file.data_ranges(low - source.start, high - source.start)):
        for at in range(begin, end, _STEP):
            data = source.file.pread(min(_STEP, end - at), at)
            copy.pwrite(data, at + source.start - low)
    copy.sync()
    copy.close()
