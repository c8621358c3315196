"""A note of where the log may not be on the disk after a failed sync.

A system that fails to write a page may drop it from the list of pages to be written and
still show its content, so later syncs succeed without having written it. A broker that
is started again would read such bytes, serve them and append after them; a power cut
would then tear a hole in the log before acknowledged messages. With the note, the next
recovery writes these bytes again. Apache keeps no such note and ignores the file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rocketmq_sdk.broker_embedded.store.files.reserve import write_small

if TYPE_CHECKING:
    from rocketmq_sdk.broker_embedded.store.files.file_chain import FileChain
    from rocketmq_sdk.broker_embedded.store.files.file_system import FileSystem

PATH = "unsynced"
_STEP = 1024 * 1024


def note_unsynced(files: FileSystem, position: int) -> None:
    """Write the note. Runs in a thread. Raises `StoreError`."""
    write_small(files, PATH, b"%d" % position)
    files.sync_directory(".")


def unsynced_from(files: FileSystem) -> int | None:
    """The position in the note; 0 when it cannot be read, None without one."""
    if not files.exists(PATH):
        return None
    text = files.read(PATH) or b""
    return int(text) if text.isdigit() else 0


def write_again(queue: FileChain, position: int, end: int) -> None:
    """Write the bytes of a range over themselves and sync them."""
    for file in queue.overlapping(position, end):
        high = min(end, file.end)
        for low in range(max(position, file.start), high, _STEP):
            file.write(low, file.read(low, min(_STEP, high - low)))
        file.file.sync()


def forget_note(files: FileSystem) -> None:
    """Remove the note."""
    files.remove(PATH)
    files.sync_directory(".")
