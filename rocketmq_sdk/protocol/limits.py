"""What a server admits of one field of a request; declared where the field is.

A field of a header or body class says more than its type by
`limited(Between(0, 15))` or `limited(Length(65536))`. Fields that say nothing have
`TEXT_MAX` and `ENTRIES_MAX`. Only servers look at the limits (`admission` of the
broker), and only at requests: answers and files may be larger.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import attrs

from rocketmq_sdk.protocol.header import INT_MAX, LONG_MAX, WIRE

LIMIT: Final = "limit"
"""Metadata: the limit of a field."""
TEXT_MAX: Final = 4096
"""Characters of a text whose declaration names no limit."""
ENTRIES_MAX: Final = 4096
"""Entries of a list or a table whose declaration names no limit."""


class Between(NamedTuple):
    """The least and the greatest value of a number."""

    least: int
    most: int

    def __str__(self) -> str:
        return f"{self.least} to {self.most}"


class Length(NamedTuple):
    """The most characters of a text, or entries of a list or a table.

    The items of a list are judged by what their own class declares.
    """

    most: int

    def __str__(self) -> str:
        return f"up to {self.most}"


QUEUES: Final = Between(0, 65536)
"""Queues of a topic; each answer about the topic lists all of them."""
QUEUE_ID: Final = Between(0, QUEUES.most - 1)
"""One queue of a topic."""
QUEUE_OR_ALL: Final = Between(-1, QUEUES.most - 1)
"""One queue of a topic, or -1 for any or for all of them."""
NOT_NEGATIVE: Final = Between(0, LONG_MAX)
"""An offset, an id, or a duration in milliseconds."""
COUNT: Final = Between(0, INT_MAX)
"""A number of things; how many of them are given out at once is the handler's."""
PERMISSION: Final = Between(0, 15)
"""Bits of `Permission`."""
EXPRESSION: Final = Length(64 * 1024)
"""A filter expression."""
PROPERTIES: Final = Length(1 << 24)
"""Properties of a message: the handlers refuse more than 32767 bytes themselves, as
Apache does (MESSAGE_ILLEGAL).
"""
LISTED: Final = Length(1 << 24)
"""Characters of a list of names in one text; names count once, and in slices."""
MANY: Final = Length(256 * 1024)
"""Entries of a whole table."""


def limited(
    limit: Between | Length, default: Any = attrs.NOTHING, *, wire: str | None = None
) -> Any:
    """An attribute with a limit; `wire` is its name where the rule does not fit."""
    metadata: dict[str, Any] = {LIMIT: limit}
    if wire is not None:
        metadata[WIRE] = wire
    return attrs.field(default=default, metadata=metadata)
