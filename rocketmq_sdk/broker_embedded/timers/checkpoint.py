"""The file `config/timercheck`: up to where timers were served.

`TimerCheckpoint` of Apache RocketMQ 5.4.0.
"""

from __future__ import annotations

import logging
from struct import Struct
from struct import error as StructError  # noqa: N812 - an exception, named like one
from typing import TYPE_CHECKING, Final

import attrs

from rocketmq_sdk.broker_embedded.store.files.checkpoint import latest_believable
from rocketmq_sdk.broker_embedded.store.files.reserve import write_small
from rocketmq_sdk.errors import RemoteProtocolError

if TYPE_CHECKING:
    from rocketmq_sdk.broker_embedded.store.files.file_system import FileSystem

_log = logging.getLogger(__name__)
PATH: Final = "config/timercheck"
NEW_PATH: Final = "config/timercheck.new"
SIZE: Final = 4096
FIELDS: Final = Struct(">qqqqqqq")
_WITHOUT_VERSION: Final = 32


@attrs.define
class TimerCheckpoint:
    """Times are epoch milliseconds.

    All slots below `last_read_time` were delivered; the timer log is durable up to
    `log_flushed`; all messages of the timer topic below `queue_offset` are in the log
    or were delivered. `master_queue_offset` is the same of the master. The rest is a
    data version.
    """

    last_read_time: int = 0
    log_flushed: int = 0
    queue_offset: int = 0
    master_queue_offset: int = 0
    state_version: int = 0
    version_timestamp: int = 0
    version_counter: int = 0

    def encode(self) -> bytes:
        """56 bytes, as in the file and in the answer to GET_TIMER_CHECK_POINT."""
        return FIELDS.pack(*attrs.astuple(self))

    @classmethod
    def decode(cls, data: bytes) -> TimerCheckpoint:
        """The reverse; old brokers leave the data version out.

        Raises `RemoteProtocolError` when bytes are missing.
        """
        try:
            return cls(
                *FIELDS.unpack_from(
                    data.ljust(FIELDS.size, b"\0") if len(data) == _WITHOUT_VERSION else data
                )
            )
        except StructError:
            raise RemoteProtocolError(f"a timer checkpoint has 56 bytes, not {len(data)}") from None


def read_checkpoint(files: FileSystem, now_ms: int = 0, stored_ms: int = 0) -> TimerCheckpoint:
    """Read the file; zeros when it is missing or too short, and for negative numbers.

    From a time far ahead of `now_ms` all timers until then would seem to be delivered.
    It is replaced by `stored_ms`, the store time of the last message: what was
    delivered is in the log, stored no earlier than its slot. Raises `StoreError`.
    """
    try:
        found = TimerCheckpoint.decode(files.read(PATH) or b"")
    except RemoteProtocolError:
        return TimerCheckpoint()
    if min(found.last_read_time, found.log_flushed, found.queue_offset) < 0:
        _log.error("%s holds negative numbers; the timer log is read instead", PATH)
        found.last_read_time = max(0, found.last_read_time)
        found.log_flushed = found.queue_offset = 0
    if found.last_read_time > latest_believable(now_ms):
        _log.error(
            "%s says that timers were served until %d, which is far ahead; such times are not "
            "believed",
            PATH,
            found.last_read_time,
        )
        found.last_read_time = stored_ms
    return found


def write_checkpoint(files: FileSystem, checkpoint: TimerCheckpoint) -> None:
    """Write the file durably. Raises `StoreError`.

    A new file takes the name, so that it is old or new and never half of each.
    """
    write_small(files, NEW_PATH, checkpoint.encode().ljust(SIZE, b"\0"))
    files.rename(NEW_PATH, PATH)
    files.sync_directory("config")
    files.sync_directory(".")
