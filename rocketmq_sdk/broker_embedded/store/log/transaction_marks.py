"""Records that end a transaction, by commit or rollback.

Each names its half message by position.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, Final

from rocketmq_sdk.broker_embedded.store.log.record import (
    BLANK_SIZE,
    is_message_magic,
    size_and_magic,
)
from rocketmq_sdk.protocol.flags import SysFlag
from rocketmq_sdk.protocol.message_codec import HOST_BITS, MAGIC_BLANK, RECORD_OVERHEAD_V1

if TYPE_CHECKING:
    from rocketmq_sdk.broker_embedded.store.files.chained_file import ChainedFile
    from rocketmq_sdk.broker_embedded.store.log.commit_log import CommitLog

_CHUNK: Final = 4 * 1024 * 1024
_CRC: Final = Struct(">I")
_CRC_AT: Final = 8
_SYS_FLAG: Final = Struct(">i")
_SYS_FLAG_AT: Final = 36
_PREPARED: Final = Struct(">q")
_PREPARED_AT: Final = 76
"""Offset of the prepared offset in a record with two IPv4 hosts.

12 bytes more for each host that is not IPv4.
"""


def ended_halves(log: CommitLog, start: int) -> set[tuple[int, int]]:
    """The half messages that were ended by records from a position on.

    `start` is the position of a record. Returns position and body CRC of each. Raises
    `StoreError`.
    """
    found: set[tuple[int, int]] = set()
    position = max(start, log.min_position)
    while position < log.position:
        file = log.chain.find(position)
        if file is None:
            break
        position = _scan_file(file, position, log.position, found)
    return found


def _scan_file(file: ChainedFile, position: int, end: int, found: set[tuple[int, int]]) -> int:
    """Collect the ended half messages of one file.

    Returns where the next file starts, or the end of the log when nothing whole
    follows.
    """
    base, data = position, b""
    while position < end:
        at = position - base
        if len(data) - at < RECORD_OVERHEAD_V1 + 24:
            data = file.read(position, _CHUNK)
            base, at = position, 0
            if len(data) < BLANK_SIZE:
                return end
        size, magic = size_and_magic(data, at)
        if magic == MAGIC_BLANK:
            return file.end
        if not is_message_magic(magic) or size < RECORD_OVERHEAD_V1 or size > file.end - position:
            return end
        sys_flag = _SYS_FLAG.unpack_from(data, at + _SYS_FLAG_AT)[0]
        prepared = _PREPARED.unpack_from(
            data, at + _PREPARED_AT + 12 * (sys_flag & HOST_BITS).bit_count()
        )[0]
        if prepared or sys_flag & SysFlag.TRANSACTION_ROLLBACK == SysFlag.TRANSACTION_COMMIT:
            found.add((prepared, _CRC.unpack_from(data, at + _CRC_AT)[0]))
        position += size
    return file.end if position >= file.end else end
