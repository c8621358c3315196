"""Reading the records of a log in order."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rocketmq_sdk.broker_embedded.store.log.record import (
    BLANK_SIZE,
    SIZE_AND_MAGIC,
    RecordHead,
    check_record,
    is_message_magic,
    plain_records,
    size_and_magic,
)
from rocketmq_sdk.errors import StoreError
from rocketmq_sdk.protocol.message_codec import MAGIC_BLANK, MAGIC_V1, MAGIC_V2
from rocketmq_sdk.protocol.property_crc import verify_property_crc

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rocketmq_sdk.broker_embedded.store.files.chained_file import ChainedFile
    from rocketmq_sdk.broker_embedded.store.files.file_chain import FileChain

_MESSAGES = frozenset({MAGIC_V1, MAGIC_V2})
_CHUNK = 1024 * 1024


def _whole(file: ChainedFile, position: int, size: int) -> bytes:
    """Bytes of a file, which has its full length from the start; fewer at its end.

    Raises `StoreError` for a shorter read: it does not say that the log ends there.
    """
    data = file.read(position, size)
    if len(data) < min(size, file.end - position):
        raise StoreError(f"{file.file.path}: cannot read (the file ends in the middle)")
    return data


class LogScanner:
    """Reads records in order.

    Once all are read, `end` is the position after the last whole one.
    """

    __slots__ = ("_check_crc", "_chunk", "_property_crc", "_queue", "_topics", "end")

    def __init__(
        self,
        queue: FileChain,
        *,
        check_crc: bool,
        force_property_crc: bool = False,
        one_by_one: bool = False,
    ) -> None:
        """`one_by_one` reads each record for itself: what cannot be read behind it does
        not matter.
        """
        self._chunk = BLANK_SIZE if one_by_one else _CHUNK
        self._queue = queue
        self._check_crc = check_crc and not force_property_crc
        self._property_crc = force_property_crc
        self._topics: dict[bytes, str | None] = {}
        self.end = 0

    def records(self, start: int) -> Iterator[RecordHead]:
        """Whole records from a position on, until one is broken or the log ends."""
        self.end = start
        file = self._queue.find(start)
        while file is not None:
            yield from self._records_of(file)
            if self.end < file.end:
                return
            file = self._queue.find(self.end)

    def _records_of(self, file: ChainedFile) -> Iterator[RecordHead]:
        base = position = self.end
        data = b""
        topics, check_crc, property_crc = self._topics, self._check_crc, self._property_crc
        end, unpack = file.end, SIZE_AND_MAGIC.unpack_from
        while True:
            at = position - base
            if len(data) - at < BLANK_SIZE:
                data = _whole(file, position, self._chunk)
                base, at = position, 0
                if len(data) < BLANK_SIZE:
                    return
            if not property_crc and (
                heads := plain_records(data, at, position, topics, check_crc=check_crc)
            ):
                yield from heads
                position = self.end = heads[-1].position + heads[-1].size
                continue
            size, magic = unpack(data, at)
            if magic not in _MESSAGES:
                if magic == MAGIC_BLANK:
                    self.end = end
                return
            if not 0 < size <= end - position:
                return
            if size > len(data) - at:
                data = file.read(position, max(self._chunk, size))
                base, at = position, 0
            head = check_record(data, at, position, topics, check_crc=check_crc)
            if head is None or (property_crc and not verify_property_crc(data[at : at + size])):
                return
            position += size
            self.end = position
            yield head

    def first_of(self, file: ChainedFile) -> RecordHead | None:
        """The first record of a file; None when it is not whole."""
        data = _whole(file, file.start, BLANK_SIZE)
        size, magic = size_and_magic(data, 0)
        if not is_message_magic(magic) or not 0 < size <= file.size:
            return None
        return check_record(
            file.read(file.start, size), 0, file.start, self._topics, check_crc=self._check_crc
        )
