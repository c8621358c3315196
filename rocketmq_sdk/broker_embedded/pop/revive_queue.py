"""What revival knows of one queue, and what it adds to the messages it revives."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from rocketmq_sdk.model.properties import (
    FIRST_POP_TIME,
    ORIGIN_GROUP,
    property_in_text,
    without_property,
)
from rocketmq_sdk.protocol.message_codec import MAX_PROPERTIES

if TYPE_CHECKING:
    from rocketmq_sdk.protocol.bodies.pop_records import PopCheckPoint


class ReviveQueue:
    """What was read of one queue of the revive topic and is not finished."""

    __slots__ = (
        "by_key",
        "failures",
        "latest_ms",
        "next_offset",
        "old_end",
        "open",
        "queue_id",
        "rests_until",
    )

    def __init__(self, queue_id: int, next_offset: int) -> None:
        self.queue_id = queue_id
        self.next_offset = next_offset
        self.open: deque[PopCheckPoint] = deque()
        self.by_key: dict[str, list[PopCheckPoint]] = {}
        self.latest_ms = 0
        self.old_end = 0
        self.failures = 0
        self.rests_until = 0.0

    @property
    def finished(self) -> int:
        """The last offset in front of everything that is open."""
        return (self.open[0].revive_offset if self.open else self.next_offset) - 1

    def close_first(self) -> None:
        """The oldest checkpoint is finished."""
        key = self.open.popleft().key
        self.by_key[key].pop(0)
        if not self.by_key[key]:
            del self.by_key[key]


def properties_of_copy(raw: bytes, checkpoint: PopCheckPoint) -> bytes:
    """The properties with marks of the revival; unchanged when there is no room."""
    text = raw.decode("utf-8", "surrogateescape")
    head = without_property(text, ORIGIN_GROUP)
    if head and not head.endswith("\x02"):
        head += "\x02"
    if property_in_text(text, FIRST_POP_TIME) is None:
        head += f"{FIRST_POP_TIME}\x01{checkpoint.pop_time}\x02"
    data = f"{head}{ORIGIN_GROUP}\x01{checkpoint.group}\x02".encode("utf-8", "surrogateescape")
    return data if len(data) <= MAX_PROPERTIES else raw
