"""Receipt handles of popped messages and the texts from which clients make them.

Follows `ExtraInfoUtil`, `ReceiptHandle` of Apache RocketMQ 5.4.0.

A broker answers a pop with the start offset of each queue's part, the offsets in it
and, for ordered pops, how often each was delivered before; the client makes one handle
for each message, and gives it back to acknowledge the message or to change when it is
seen again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import attrs

from rocketmq_sdk.errors import FieldError
from rocketmq_sdk.names import RETRY_PREFIX, pop_retry_topic_v1, pop_retry_topic_v2

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

NORMAL: Final = "0"
RETRY_V1: Final = "1"
RETRY_V2: Final = "2"
ORDERED_QUEUE: Final = 999
"""The revive queue id that says: popped in order, no checkpoint is kept."""
_ITEMS: Final = 8
_LEAST_ITEMS: Final = 7
_PART: Final = 3
_DIGITS: Final = 19


def topic_kind(topic: str) -> str:
    """`NORMAL`, or which generation of retry topic a name is."""
    if not topic.startswith(RETRY_PREFIX):
        return NORMAL
    return RETRY_V2 if "+" in topic else RETRY_V1


def topic_of_kind(kind: str, topic: str, group: str) -> str:
    """The topic that holds messages of a kind.

    `topic` is what their consumer subscribed to.
    """
    if kind == RETRY_V1:
        return pop_retry_topic_v1(topic, group)
    return pop_retry_topic_v2(topic, group) if kind == RETRY_V2 else topic


def _number(text: str, what: str) -> int:
    digits = text[1:] if text[:1] == "-" else text
    if not digits.isdecimal() or not digits.isascii() or len(digits) > _DIGITS:
        raise FieldError(f"{what} holds {text[:60]!r} where a number belongs")
    return int(text)


@attrs.define(
    unsafe_hash=True
    # nobody changes one; frozen ones cost three times as much to make, and each popped
    # message has one
)
class ReceiptHandle:
    """Which delivery of which message is meant.

    Times are milliseconds; `offset` is the message's own queue offset.

    `kind` tells whether the message lies in the topic itself or in a retry topic of the
    group; `revive_queue_id` is where the broker keeps the checkpoint of the pop,
    `ORDERED_QUEUE` for ordered pops. A handle ends when the message is acknowledged,
    when its invisible time is over or changed.
    """

    start_offset: int
    pop_time: int
    invisible_time: int
    revive_queue_id: int
    kind: str
    broker_name: str
    queue_id: int
    offset: int = -1
    commit_log_offset: int = -1

    @classmethod
    def parse(cls, text: str, *, least: int = _ITEMS) -> ReceiptHandle:
        """The handle in a text of at least eight items (brokers get by with seven).

        Raises `FieldError`.
        """
        items = text.split(" ")
        if len(items) < least:
            raise FieldError(
                f"the receipt handle {text[:100]!r} has {len(items)} items, at least {least} "
                "belong to it"
            )
        what = "a receipt handle"
        return cls(
            _number(items[0], what),
            _number(items[1], what),
            _number(items[2], what),
            _number(items[3], what),
            items[4],
            items[5],
            _number(items[6], what),
            _number(items[7], what) if len(items) >= _ITEMS else -1,
            _number(items[8], what) if len(items) > _ITEMS else -1,
        )

    @classmethod
    def parse_extra_info(cls, text: str) -> ReceiptHandle:
        """As `parse`, for a handle that may lack the message's own offset.

        Requests carry the offset beside the handle.
        """
        return cls.parse(text, least=_LEAST_ITEMS)

    def __str__(self) -> str:
        head = (
            f"{self.start_offset} {self.pop_time} {self.invisible_time} {self.revive_queue_id} "
            f"{self.kind} {self.broker_name} {self.queue_id}"
        )
        if self.offset < 0:
            return head
        return (
            f"{head} {self.offset}"
            if self.commit_log_offset < 0
            else f"{head} {self.offset} {self.commit_log_offset}"
        )

    @property
    def next_visible_ms(self) -> int:
        """When the message is visible again unless it is acknowledged.

        In epoch milliseconds of the broker's clock.
        """
        return self.pop_time + self.invisible_time

    @property
    def is_ordered(self) -> bool:
        """Whether it comes from an ordered pop."""
        return self.revive_queue_id == ORDERED_QUEUE

    def real_topic(self, topic: str, group: str) -> str:
        """The topic that holds the message; its consumer subscribed to `topic`."""
        return topic_of_kind(self.kind, topic, group)

    def renewed(self, pop_time: int, invisible_time: int, revive_queue_id: int) -> ReceiptHandle:
        """The handle after the broker has changed the invisible time."""
        return attrs.evolve(
            self,
            start_offset=self.offset,
            pop_time=pop_time,
            invisible_time=invisible_time,
            revive_queue_id=revive_queue_id,
        )


InfoKey = tuple[str, int | str]
"""Kind of the topic, and queue id or the name of one message in `orderCountInfo`."""


def _parts(text: str | None, what: str) -> Iterator[tuple[InfoKey, str]]:
    seen: set[InfoKey] = set()
    for part in (text or "").split(";"):
        if not part:
            continue
        items = part.split(" ")
        if len(items) != _PART:
            raise FieldError(f"{what} has the part {part[:60]!r}, which is not of three items")
        place = items[1]
        key = (items[0], place if place.startswith("qo") else _number(place, what))
        if key in seen:
            raise FieldError(f"{what} has two parts for {part[:60]!r}")
        seen.add(key)
        yield key, items[2]


def parse_start_offsets(text: str | None) -> dict[InfoKey, int]:
    """Start offset by kind and queue of `kind queue offset;...`.

    Raises `FieldError`.
    """
    what = "startOffsetInfo"
    return {key: _number(value, what) for key, value in _parts(text, what)}


def parse_message_offsets(text: str | None) -> dict[InfoKey, list[int]]:
    """Offsets by kind and queue of `kind queue offset,offset;...`.

    Raises `FieldError`.
    """
    what = "msgOffsetInfo"
    return {key: _numbers(value, what) for key, value in _parts(text, what)}


def _numbers(text: str, what: str) -> list[int]:
    items = text.split(",")
    if (
        "".join(items).isdecimal()
        and text.isascii()
        and all(items)
        and max(map(len, items)) <= _DIGITS
    ):
        return list(map(int, items))
    return [_number(item, what) for item in items]


def parse_order_counts(text: str | None) -> dict[InfoKey, int]:
    """Deliveries by kind and queue, or by kind and `order_offset_key`.

    Raises `FieldError`.
    """
    what = "orderCountInfo"
    return {key: _number(value, what) for key, value in _parts(text, what)}


def start_offset_part(kind: str, queue_id: int, start_offset: int) -> str:
    """One part of `startOffsetInfo`."""
    return f"{kind} {queue_id} {start_offset}"


def message_offsets_part(kind: str, queue_id: int, offsets: Iterable[int]) -> str:
    """One part of `msgOffsetInfo`."""
    return f"{kind} {queue_id} {','.join(map(str, offsets))}"


def order_offset_key(queue_id: int, offset: int) -> str:
    """How `orderCountInfo` names one message."""
    return f"qo{queue_id}%{offset}"
