"""Header encodings, command flags, message and pull system flags.

Apache RocketMQ 5.4.0: `SerializeType`, `RemotingCommand`, `MessageSysFlag`,
`PullSysFlag`.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final


class HeaderEncoding(IntEnum):
    """How the header of a frame is written; the top byte of the frame's second word."""

    JSON = 0
    ROCKETMQ = 1


FLAG_RESPONSE: Final = 1
FLAG_ONEWAY: Final = 2


class SysFlag:
    """Bits of a message's system flag."""

    COMPRESSED: Final = 1
    MULTI_TAGS: Final = 2
    TRANSACTION_PREPARED: Final = 4
    TRANSACTION_COMMIT: Final = 8
    TRANSACTION_ROLLBACK: Final = 12
    BORN_HOST_V6: Final = 16
    STORE_HOST_V6: Final = 32
    NEED_UNWRAP: Final = 64
    INNER_BATCH: Final = 128


class PullSysFlag:
    """Bits of a pull request's system flag."""

    COMMIT_OFFSET: Final = 1
    SUSPEND: Final = 2
    SUBSCRIPTION: Final = 4
    CLASS_FILTER: Final = 8
    LITE_PULL: Final = 16
