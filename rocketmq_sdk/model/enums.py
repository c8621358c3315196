"""Enumerations that users see."""

from __future__ import annotations

from enum import Enum, IntEnum, IntFlag


class SendStatus(Enum):
    """How far an accepted message got; in each case it is stored at the broker."""

    SEND_OK = "SEND_OK"
    FLUSH_DISK_TIMEOUT = "FLUSH_DISK_TIMEOUT"
    FLUSH_SLAVE_TIMEOUT = "FLUSH_SLAVE_TIMEOUT"
    SLAVE_NOT_AVAILABLE = "SLAVE_NOT_AVAILABLE"


class TransactionState(Enum):
    """What became of the local work of a transactional message.

    Follows `LocalTransactionState`.
    """

    COMMIT = "COMMIT_MESSAGE"
    ROLLBACK = "ROLLBACK_MESSAGE"
    UNKNOWN = "UNKNOW"


class MessageModel(Enum):
    """Whether the members of a group share the queues or each reads all of them."""

    CLUSTERING = "CLUSTERING"
    BROADCASTING = "BROADCASTING"


class ConsumeType(Enum):
    """Who drives consumption; part of the heartbeat."""

    CONSUME_ACTIVELY = "CONSUME_ACTIVELY"
    CONSUME_PASSIVELY = "CONSUME_PASSIVELY"
    CONSUME_POP = "CONSUME_POP"


class ConsumeFrom(Enum):
    """Where a group without a committed offset begins (`ConsumeFromWhere`)."""

    LAST_OFFSET = "CONSUME_FROM_LAST_OFFSET"
    FIRST_OFFSET = "CONSUME_FROM_FIRST_OFFSET"
    TIMESTAMP = "CONSUME_FROM_TIMESTAMP"


class ExpressionType(Enum):
    """The language of a subscription expression."""

    TAG = "TAG"
    SQL92 = "SQL92"


class PullStatus(Enum):
    """How a pull ended."""

    FOUND = "FOUND"
    NO_NEW_MESSAGE = "NO_NEW_MSG"
    NO_MATCHED_MESSAGE = "NO_MATCHED_MSG"
    OFFSET_ILLEGAL = "OFFSET_ILLEGAL"


class PopStatus(Enum):
    """How a pop ended.

    With messages, with none in time, or refused because too many wait.
    """

    FOUND = "FOUND"
    NO_NEW_MESSAGE = "NO_NEW_MSG"
    POLLING_FULL = "POLLING_FULL"
    POLLING_NOT_FOUND = "POLLING_NOT_FOUND"


class BoundaryType(Enum):
    """Which end of a run of equal store times an offset search takes."""

    LOWER = "LOWER"
    UPPER = "UPPER"


class RequestSource(IntEnum):
    """Who sends a pull.

    A client itself, or a proxy for one that consumes in order, by broadcasting, or as a
    stream.
    """

    SDK = -1
    PROXY_FOR_ORDER = 0
    PROXY_FOR_BROADCAST = 1
    PROXY_FOR_STREAM = 2


class Permission(IntFlag):
    """Permissions of a topic or a broker (`PermName`)."""

    INHERIT = 1
    WRITE = 2
    READ = 4
    PRIORITY = 8
