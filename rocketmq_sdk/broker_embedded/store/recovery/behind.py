"""Finding whole records that lie after the end of a log.

One pass, whatever the damage is like: each byte that was written is read about once,
and what a record's checks cost is bounded as well.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from rocketmq_sdk.broker_embedded.store.log.record import (
    RecordHead,
    check_record,
    plain_records,
    size_and_magic,
)
from rocketmq_sdk.errors import StoreError
from rocketmq_sdk.protocol.message_codec import MAGIC_V1, MAGIC_V2, RECORD_OVERHEAD_V1

if TYPE_CHECKING:
    from rocketmq_sdk.broker_embedded.store.files.chained_file import ChainedFile
    from rocketmq_sdk.broker_embedded.store.files.file_chain import FileChain

_STEP: Final = 1024 * 1024
_PAGE: Final = 4096
_MOST_BAD_PAGES: Final = 256
_MAGIC_START: Final = MAGIC_V1.to_bytes(4)[:3]
"""What both magic codes begin with."""
_LAST_BYTES: Final = (MAGIC_V1 & 0xFF, MAGIC_V2 & 0xFF)
_OWN_PLACE: Final = 28
_TOLD: Final = _OWN_PLACE + 8
"""How many bytes of a record tell that it may be one."""
_MOST_BYTES: Final = 64 * 1024 * 1024
"""No frame can carry a larger record."""
_VAIN_SHARE: Final = 8
_VAIN_BYTES: Final = 64 * 1024 * 1024
"""How many bytes may be looked at in vain: so many, and a multiple of those passed."""


class Behind(NamedTuple):
    """The whole records after the end of a log."""

    records: int
    first: int
    end: int
    """The position after the last one."""
    first_time: int
    last_time: int

    def joined(self, other: Behind) -> Behind:
        """Both, in the order of their positions."""
        return Behind(
            self.records + other.records,
            self.first,
            other.end,
            min(self.first_time, other.first_time),
            max(self.last_time, other.last_time),
        )


def look_behind(chain: FileChain, end: int) -> Behind | None:
    """Find whole records at their own positions after a position.

    Raises `StoreError` for files that cannot be read.
    """
    found: Behind | None = None
    for file in chain.files:
        if file.end > end:
            scan = _FileScan(file, max(end, file.start))
            scan.run()
            if scan.found is not None:
                found = scan.found if found is None else found.joined(scan.found)
    return found


def next_record(file: ChainedFile, start: int, end: int) -> int | None:
    """Where the first whole record begins at its own position between two positions.

    Pages that cannot be read are passed over; after `_MOST_BAD_PAGES` of them the rest
    is given up. None when there is none.
    """
    scan, position, step, bad = _FileScan(file, start), start, _STEP, 0
    while position < end:
        try:
            following = scan.look_at(file.read(position, min(step, file.end - position)), position)
        except StoreError:
            if step == _PAGE:
                bad += 1
                if bad > _MOST_BAD_PAGES:
                    return None
                position += _PAGE - position % _PAGE
            step = _PAGE
            continue
        if scan.found is not None:
            return scan.found.first if scan.found.first < end else None
        if following is None:
            return None
        position, step = following, min(2 * step, _STEP)
    return None


class _FileScan:
    """One pass over a file, from a position on."""

    def __init__(self, file: ChainedFile, start: int) -> None:
        self.found: Behind | None = None
        self._file = file
        self._start = start
        self._topics: dict[bytes, str | None] = {}
        self._vain = 0

    def run(self) -> None:
        """Look at all that was written."""
        file, position = self._file, self._start
        for low, high in list(file.file.data_ranges(position - file.start, file.size)):
            position = max(position, file.start + low)
            while position < file.start + high:
                data = file.read(position, _STEP)
                following = self.look_at(data, position)
                if following is None:
                    return
                position = following

    def look_at(self, data: bytes, base: int) -> int | None:
        """Find the records that begin in `data`.

        Returns the position to continue at; None when nothing more is looked at.
        """
        file, at = self._file, 0
        ends_file = base + len(data) >= file.end
        while (magic_at := data.find(_MAGIC_START, at + 4)) >= 0:
            at = magic_at - 4
            if at + _TOLD > len(data):
                break
            position = base + at
            if (
                data[magic_at + 3] not in _LAST_BYTES
                or int.from_bytes(data[at + _OWN_PLACE : at + _TOLD]) != position
            ):
                at += 1
                continue
            size, _magic = size_and_magic(data, at)
            if not RECORD_OVERHEAD_V1 <= size <= min(_MOST_BYTES, file.end - position):
                at += 1
                continue
            if size > len(data) - at:
                if at:
                    return position  # read again from there
                data = file.read(position, size)
                self._vain += size
            heads = plain_records(data, at, position, self._topics, check_crc=True)
            if not heads:
                head = check_record(data, at, position, self._topics, check_crc=True)
                if head is None:
                    self._vain += size
                    if self._vain > _VAIN_BYTES + _VAIN_SHARE * (position - self._start):
                        self._give_up(position)
                        return None
                    at += 1
                    continue
                heads = [head]
            self._take(heads)
            at = heads[-1].position + heads[-1].size - base
            if at >= len(data):
                return base + at
        if ends_file:
            return file.end
        return base + max(at, len(data) - _TOLD + 1, 1)

    def _take(self, heads: list[RecordHead]) -> None:
        times = [head.store_timestamp for head in heads]
        last = heads[-1]
        batch = Behind(
            len(heads), heads[0].position, last.position + last.size, min(times), max(times)
        )
        self.found = batch if self.found is None else self.found.joined(batch)

    def _give_up(self, position: int) -> None:
        """Take all of the rest for records: somebody made bytes that look like them."""
        first = self.found
        rest = Behind(0, position, self._file.end, 1 << 62, 0)
        self.found = rest if first is None else first.joined(rest)
