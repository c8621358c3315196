"""What the commit of a half message stores, kept from when the half message came.

Most transactions end a moment after they began. Then their half messages need not be
read from the log, decoded and looked through again. What is kept is bounded: of more
than `MOST_BYTES` the oldest is given up, and its half message is read when it ends.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Final

from rocketmq_sdk.model.properties import (
    CHECK_IMMUNITY_TIME_IN_SECONDS,
    DELAY,
    PGROUP,
    TIMER_DELAY_MS,
    TIMER_DELAY_SEC,
    TIMER_DELIVER_MS,
    property_in_text,
)
from rocketmq_sdk.names import return_problem
from rocketmq_sdk.protocol.flags import SysFlag

if TYPE_CHECKING:
    from rocketmq_sdk.broker_embedded.store.append.run import Numbers
    from rocketmq_sdk.broker_embedded.store.messages import MessageToStore

MOST_BYTES: Final = 16 * 1024 * 1024
_DELAYS: Final = (DELAY, TIMER_DELAY_MS, TIMER_DELAY_SEC, TIMER_DELIVER_MS)
_COST: Final = 640
"""Bytes that one takes beside body, properties and group."""


class Ready:
    """The message that consumers are to see, and what its end is judged by.

    `group` is that of the producer, `immunity` the property of this name, `properties`
    are those of the committed message.
    """

    __slots__ = (
        "body",
        "born_host",
        "born_timestamp",
        "flag",
        "group",
        "immunity",
        "properties",
        "queue_id",
        "reconsume_times",
        "size",
        "sys_flag",
        "tags_code",
        "topic",
    )

    def __init__(
        self,
        topic: str,
        queue_id: int,
        body: bytes,
        properties: bytes,
        *,
        numbers: tuple[int, int, int],
        born_timestamp: int,
        born_host: bytes,
        tags_code: int,
        group: str | None,
        immunity: str | None,
    ) -> None:
        """`numbers` are flag, system flag and reconsume times of the half message."""
        self.topic = topic
        self.queue_id = queue_id
        self.body = body
        self.properties = properties
        self.flag, self.sys_flag, self.reconsume_times = numbers
        self.born_timestamp = born_timestamp
        self.born_host = born_host
        self.tags_code = tags_code
        self.group = group
        self.immunity = immunity
        self.size = len(body) + len(properties) + _COST

    def numbers(self, half_position: int) -> Numbers:
        """The numbers of the committed message, which names its half message."""
        sys_flag = self.sys_flag & ~SysFlag.TRANSACTION_ROLLBACK | SysFlag.TRANSACTION_COMMIT
        return self.flag, sys_flag, self.reconsume_times, half_position


def ready_of(half: MessageToStore, topic: str, queue_id: int, shown: str) -> Ready | None:
    """What the commit of a half message for a queue of a topic stores.

    `shown` are its properties then. None where it has a delay, which begins with the
    commit, or is for a topic that takes no messages that waited.
    """
    may_wait = "DELAY\x01" in shown or "TIMER_" in shown
    if may_wait and any(property_in_text(shown, name) is not None for name in _DELAYS):
        return None
    if return_problem(topic):
        return None
    return Ready(
        topic,
        queue_id,
        half.body,
        shown.encode("utf-8", "replace"),
        numbers=(half.flag, half.sys_flag, half.reconsume_times),
        born_timestamp=half.born_timestamp,
        born_host=half.born_host,
        tags_code=half.tags_code,
        group=property_in_text(shown, PGROUP),
        immunity=property_in_text(shown, CHECK_IMMUNITY_TIME_IN_SECONDS),
    )


class ReadyTable:
    """What is kept, by the half messages' offsets in their queue."""

    __slots__ = ("_bytes", "_found", "_most")

    def __init__(self, most: int = MOST_BYTES) -> None:
        # Of a plain dict the first one would be found ever more slowly.
        self._found: OrderedDict[int, Ready] = OrderedDict()
        self._bytes, self._most = 0, most

    def __len__(self) -> int:
        return len(self._found)

    def keep(self, offset: int, ready: Ready) -> None:
        """A half message has come."""
        self._found[offset] = ready
        self._bytes += ready.size
        while self._bytes > self._most:
            _offset, oldest = self._found.popitem(last=False)
            self._bytes -= oldest.size

    def get(self, offset: int) -> Ready | None:
        """What is kept of the half message at an offset, if anything is."""
        return self._found.get(offset)

    def drop(self, offset: int) -> None:
        """A half message is finished, or a later copy has taken its place."""
        ready = self._found.pop(offset, None)
        if ready is not None:
            self._bytes -= ready.size
