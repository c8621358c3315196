"""The file `checkpoint`: what is surely on the disk (`StoreCheckpoint` of Apache
RocketMQ 5.4.0).
"""

from __future__ import annotations

from struct import Struct, error
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rocketmq_sdk.broker_embedded.store.files.file_system import FileSystem

PATH = "checkpoint"
NEW_PATH = "checkpoint.new"
SIZE = 4096
MARGIN_MS = 3000
_FIELDS = Struct(">qqqqq")
_DAY_MS = 24 * 3600 * 1000
_CLOCK_IS_SET_MS = 1_577_836_800_000
_MAX_TIME = (1 << 63) - 1


def latest_believable(now_ms: int) -> int:
    """Store times above are taken for damage: they lie more than a day in the future of
    a clock that somebody has set (it is past 2020).
    """
    return now_ms + _DAY_MS if _CLOCK_IS_SET_MS < now_ms < _MAX_TIME - _DAY_MS else _MAX_TIME


class Checkpoint:
    """Store times (epoch milliseconds) up to which log, queues and index are durable,
    and two positions that belong to replication.
    """

    __slots__ = (
        "_files",
        "confirm_physical_offset",
        "index_timestamp",
        "logics_timestamp",
        "master_flushed_offset",
        "physic_timestamp",
    )

    def __init__(self, files: FileSystem) -> None:
        self._files = files
        self.physic_timestamp = 0
        self.logics_timestamp = 0
        self.index_timestamp = 0
        self.master_flushed_offset = 0
        self.confirm_physical_offset = 0

    def load(self) -> None:
        """Read the file; a missing or short one means that nothing is known."""
        try:
            fields = _FIELDS.unpack_from(self._files.read(PATH) or b"")
        except error:
            return
        (
            self.physic_timestamp,
            self.logics_timestamp,
            self.index_timestamp,
            self.master_flushed_offset,
            self.confirm_physical_offset,
        ) = fields

    @property
    def recovery_timestamp(self) -> int:
        """Records stored up to then are durable and in their queues."""
        return max(0, min(self.physic_timestamp, self.logics_timestamp) - MARGIN_MS)

    def last_believable(self, now_ms: int) -> int:
        """The store time up to which the log was durable; 0 for one that cannot be."""
        return self.physic_timestamp if self.physic_timestamp <= latest_believable(now_ms) else 0

    def encode(self) -> bytes:
        """The used part of the file."""
        return _FIELDS.pack(
            self.physic_timestamp,
            self.logics_timestamp,
            self.index_timestamp,
            self.master_flushed_offset,
            self.confirm_physical_offset,
        )

    def write(self, data: bytes) -> None:
        """Put `data` (from `encode`) on the disk; to be run in a thread. Raises
        `StoreError`.

        By a new file that takes the name: half of an old time and half of a new one may
        be a time later than both.
        """
        self._files.write(NEW_PATH, data.ljust(SIZE, b"\0"))
        self._files.rename(NEW_PATH, PATH)
        self._files.sync_directory(".")
