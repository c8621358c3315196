"""The records that were set aside because they could not be read.

Each is named once in the log and kept in `config/unreadableRecords.json`, where
`rocketmq store verify` finds it. The newest are kept; the file is removed by hand once
somebody has looked at it. Apache has no such file and leaves it alone.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

import attrs

from rocketmq_sdk.broker_embedded.store.files.config_file import ConfigFile
from rocketmq_sdk.errors import StoreCorruptError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rocketmq_sdk.broker_embedded.store.files.file_system import FileSystem

_log = logging.getLogger(__name__)
FILE_NAME: Final = "unreadableRecords.json"
RECORDS: Final = "records"
MOST_KEPT: Final = 1000
UNKNOWN: Final = -1


@attrs.frozen
class Place:
    """Where a message is: its queue and offset, and its record in the log.

    What is not known is -1, a topic that is not known is empty.
    """

    topic: str = ""
    queue_id: int = UNKNOWN
    offset: int = UNKNOWN
    position: int = UNKNOWN
    size: int = UNKNOWN

    def __str__(self) -> str:
        if not self.topic and self.offset == UNKNOWN:
            return f"what the log has at {self.position}"
        message = (
            f"message {self.offset} of queue {self.queue_id} of {self.topic}"
            if self.offset != UNKNOWN
            else f"a message of {self.topic}"
        )
        return message if self.position == UNKNOWN else f"{message} at {self.position}"


@attrs.frozen
class SetAside:
    """One record that was set aside: by whom, where it is, why, and when."""

    follower: str
    place: Place
    error: str
    time_ms: int

    def __str__(self) -> str:
        return f"{self.follower}: {self.place} is set aside: {self.error}"

    def as_json(self) -> dict[str, object]:
        """The members of its entry in the file."""
        place = self.place
        return {
            "follower": self.follower,
            "topic": place.topic,
            "queueId": place.queue_id,
            "queueOffset": place.offset,
            "physicalOffset": place.position,
            "size": place.size,
            "error": self.error,
            "time": self.time_ms,
        }


class UnreadableRecords:
    """What was set aside since the start, and the file with that of all starts."""

    __slots__ = ("_file", "_files", "_kept", "_told", "count", "dirty", "last")

    def __init__(self, files: FileSystem) -> None:
        self._files = files
        self._file = ConfigFile(files, FILE_NAME)
        self._kept: list[object] | None = None
        self._told: list[SetAside] = []
        self.count = 0
        """How many were set aside since the start."""
        self.last: SetAside | None = None
        """The one that was set aside last."""
        self.dirty = False

    def add(self, entry: SetAside) -> None:
        """Note a record, and name it in the log."""
        self.count += 1
        self.last = entry
        self._told.append(entry)
        del self._told[:-MOST_KEPT]
        self.dirty = True
        _log.error("%s", entry)

    async def save(self) -> None:
        """Write the file when something was added. Raises `StoreError`."""
        if not self.dirty:
            return
        if self._kept is None:
            self._kept = await self._files.run(self._load)
        told, self._told, self.dirty = self._told, [], False
        try:
            kept = [*self._kept, *(entry.as_json() for entry in told)][-MOST_KEPT:]
            await self._file.save({RECORDS: kept})
        except BaseException:
            self._told, self.dirty = [*told, *self._told], True
            raise
        self._kept = kept

    def _load(self) -> list[object]:
        """What earlier starts have set aside; nothing when that cannot be read."""
        try:
            found = self._file.load()
        except StoreCorruptError as error:
            _log.warning("%s", error)
            return []
        records = found.get(RECORDS) if isinstance(found, dict) else None
        return records if isinstance(records, list) else []

    def __iter__(self) -> Iterator[str]:
        """What an operator has to know, in words."""
        if self.last is not None:
            yield (
                f"{self.count} records could not be read and are set aside; the last one: "
                f"{self.last}"
            )
