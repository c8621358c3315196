"""What a disk does not give, and what a broker has set aside for that."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rocketmq_sdk.broker_embedded.store.files.config_file import DIRECTORY
from rocketmq_sdk.broker_embedded.store.following.unreadable import FILE_NAME, RECORDS
from rocketmq_sdk.errors import RemoteProtocolError, StoreError
from rocketmq_sdk.protocol.json.dialect import decode_json

if TYPE_CHECKING:
    from rocketmq_sdk.broker_embedded.store_tool.report import StoreReader, StoreReport

_PAGE: Final = 4096
_MOST_PAGES: Final = 256
"""After so many unreadable pages of one file the rest of it is not tried any more."""
_WHOLE_FILE: Final = 1 << 30


class PatientReader:
    """Reads what can be read: a page that cannot be is reported, and zeros stand in."""

    def __init__(self, reader: StoreReader, report: StoreReport) -> None:
        self._reader = reader
        self._report = report
        self._bad: dict[str, set[int]] = {}
        self.file_sizes = reader.file_sizes
        self.directory_names = reader.directory_names
        self.data_ranges = reader.data_ranges
        self.exists = reader.exists

    def read(self, path: str, offset: int, size: int) -> bytes:
        """Bytes of a file."""
        try:
            return self._reader.read(path, offset, size)
        except BrokenPipeError:
            raise
        except (OSError, StoreError) as error:
            name = path.rpartition("/")[2]
            length = dict(self._reader.file_sizes(path.rpartition("/")[0] or ".")).get(name, 0)
            end = min(offset + size, length)
            parts: list[bytes] = []
            while offset < end:
                part = min(end - offset, _PAGE - offset % _PAGE)
                parts.append(self._page(path, offset, part, error))
                offset += part
            return b"".join(parts)

    def _page(self, path: str, offset: int, size: int, error: Exception) -> bytes:
        bad = self._bad.setdefault(path, set())
        page = offset - offset % _PAGE
        if page not in bad and len(bad) < _MOST_PAGES:
            try:
                return self._reader.read(path, offset, size).ljust(size, b"\0")
            except (OSError, StoreError) as page_error:
                error = page_error
        if page not in bad:
            if len(bad) < _MOST_PAGES:
                self._report.add(path, offset, "read", f"cannot be read: {error}")
            elif len(bad) == _MOST_PAGES:
                self._report.add(path, offset, "read", "the rest is not tried any more")
            bad.add(page)
        return bytes(size)


def check_set_aside(reader: StoreReader, report: StoreReport) -> None:
    """Report the messages that a broker could not read and did not deliver.

    Those that retention has removed are not told of any more.
    """
    path = f"{DIRECTORY}/{FILE_NAME}"
    data = reader.read(path, 0, _WHOLE_FILE)
    try:
        value = decode_json(data) if data else None
    except RemoteProtocolError:
        return  # the check of the configuration says it
    records = value.get(RECORDS) if isinstance(value, dict) else None
    for entry in records if isinstance(records, list) else ():
        if isinstance(entry, dict):
            position = entry.get("physicalOffset")
            if not isinstance(position, int) or position < 0:
                position = 0
            elif position < report.log_start:
                continue
            report.add(path, 0, "set_aside", _text(entry, position))


def _text(entry: dict[str, object], position: int) -> str:
    if not entry.get("topic"):
        return (
            f"{entry.get('follower')} set aside what the log has at {position}: "
            f"{entry.get('error')}"
        )
    queue = f"queue {entry.get('queueId')} of {entry.get('topic')}"
    return (
        f"{entry.get('follower')} set aside message {entry.get('queueOffset')} of {queue}, "
        f"{entry.get('size')} bytes at {position} of the log: {entry.get('error')}"
    )
