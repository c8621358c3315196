"""The file `checkpoint`: what is certainly on the disk.

`StoreCheckpoint` of Apache RocketMQ 5.5.0, whose last field older ones do not have.
"""

from __future__ import annotations

import logging
from struct import Struct, error
from typing import TYPE_CHECKING

import trio

from rocketmq_sdk.broker_embedded.store.files.reserve import write_small
from rocketmq_sdk.errors import StoreError, StoreFullError

if TYPE_CHECKING:
    from rocketmq_sdk.broker_embedded.store.files.file_system import FileSystem

_log = logging.getLogger(__name__)
PATH = "checkpoint"
NEW_PATH = "checkpoint.new"
SIZE = 4096
MARGIN_MS = 3000
_FIELDS = Struct(">qqqqqq")
_POSITION_AT = 40
_DAY_MS = 24 * 3600 * 1000
_CLOCK_IS_SET_MS = 1_577_836_800_000
_MAX_TIME = (1 << 63) - 1


def latest_believable(now_ms: int) -> int:
    """The latest store time that is not taken for damage.

    It lies a day ahead of the clock. A clock before 2020 was never set and does not
    count.
    """
    return now_ms + _DAY_MS if _CLOCK_IS_SET_MS < now_ms < _MAX_TIME - _DAY_MS else _MAX_TIME


class Checkpoint:
    """Up to which store times log, queues and index are durable.

    Times are epoch milliseconds. Two positions belong to replication. Below
    `logics_physical_offset` every unit of every queue is durable, and the log; 0 when
    nothing is known. After an unclean stop Apache 5.5 builds no queue below it.
    """

    __slots__ = (
        "_files",
        "_unread",
        "confirm_physical_offset",
        "index_timestamp",
        "logics_physical_offset",
        "logics_timestamp",
        "master_flushed_offset",
        "physic_timestamp",
        "turn",
    )

    def __init__(self, files: FileSystem) -> None:
        self._files = files
        self.turn = trio.Lock()
        """Held by whoever changes the position and writes the file.

        A lock of threads would hold up the loop for as long as a disk takes.
        """
        self.physic_timestamp = 0
        self.logics_timestamp = 0
        self.index_timestamp = 0
        self.master_flushed_offset = 0
        self.confirm_physical_offset = 0
        self.logics_physical_offset = 0
        self._unread = False

    def load(self) -> None:
        """Read the file; nothing is known when it is missing, short or unreadable."""
        try:
            data = self._files.read(PATH) or b""
            if len(data) == _POSITION_AT:  # as older releases would write it unpadded
                data += bytes(8)
            fields = _FIELDS.unpack_from(data)
        except error:
            return
        except StoreError as problem:
            _log.error("%s; more of the log is read instead", problem)
            self._unread = True
            return
        (
            self.physic_timestamp,
            self.logics_timestamp,
            self.index_timestamp,
            self.master_flushed_offset,
            self.confirm_physical_offset,
            self.logics_physical_offset,
        ) = fields

    @property
    def recovery_timestamp(self) -> int:
        """Records stored up to this time are durable and in their queues."""
        return max(0, min(self.physic_timestamp, self.logics_timestamp) - MARGIN_MS)

    def last_believable(self, now_ms: int) -> int:
        """The store time up to which the log was durable; 0 for an impossible one."""
        return self.physic_timestamp if self.physic_timestamp <= latest_believable(now_ms) else 0

    def encode(self) -> bytes:
        """The used part of the file."""
        return _FIELDS.pack(
            self.physic_timestamp,
            self.logics_timestamp,
            self.index_timestamp,
            self.master_flushed_offset,
            self.confirm_physical_offset,
            self.logics_physical_offset,
        )

    def forget_position(self) -> None:
        """Vouch for no position, durably. Raises `StoreError`.

        For the time before queues or the log lose anything, or are built again. A file
        that could not be read may vouch for all that is built anew, and is replaced.
        Runs in a thread, as `write` does.
        """
        position, self.logics_physical_offset = self.logics_physical_offset, 0
        if not (position or self._unread):
            return
        try:
            self._write_or_remove(self.encode())
        except StoreError:
            self.logics_physical_offset = position  # so says the file, perhaps
            raise
        self._unread = False

    def forget_index(self, timestamp: int) -> None:
        """Vouch for no index file that ends later, durably. Raises `StoreError`.

        Comes before files are built again for times for which lost ones were durable.
        Runs in a thread, as `write` does.
        """
        if self.index_timestamp > timestamp:
            self.index_timestamp = timestamp
            self._write_or_remove(self.encode())

    def _write_or_remove(self, data: bytes) -> None:
        try:
            self.write(data)
        except StoreFullError:
            self._files.remove(PATH)  # nothing is known then, which is as good
            self._files.sync_directory(".")

    def write(self, data: bytes) -> None:
        """Write `data`, from `encode`, to the disk. Raises `StoreError`.

        Runs in a thread, for whoever has the `turn`. A new file replaces the old one: a
        mixture of half an old time and half a new one could be later than both.
        """
        write_small(self._files, NEW_PATH, data.ljust(SIZE, b"\0"))
        self._files.rename(NEW_PATH, PATH)
        self._files.sync_directory(".")
