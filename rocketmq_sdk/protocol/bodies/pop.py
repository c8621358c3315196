"""Batch acks, and what a broker remembers of ordered pops.

Apache RocketMQ 5.4.0: `BatchAck`, `OrderInfo`, `QueueLevelConsumerManager`.
"""

from __future__ import annotations

import base64
import binascii
import re
from typing import TYPE_CHECKING, Any, Final, Self

import attrs

from rocketmq_sdk.errors import FieldError
from rocketmq_sdk.protocol.body import Body
from rocketmq_sdk.protocol.header import INT_MAX, LONG_MAX, WIRE, Long

if TYPE_CHECKING:
    from collections.abc import Iterable


@attrs.define(kw_only=True, slots=True)
class OrderInfo(Body):
    """The last ordered pop of a queue.

    Bit n of `commit_bits` says that message n is done.

    `offset_list` holds the first queue offset and the distances of the others from it.
    Times are milliseconds; `next_visible` and `counts` (earlier deliveries) are by
    queue offset.
    """

    attempt_id: str | None = attrs.field(default=None, metadata={WIRE: "a"})
    commit_bits: Long = attrs.field(default=0, metadata={WIRE: "cm"})
    invisible_time: Long = attrs.field(default=0, metadata={WIRE: "i"})
    last_consume: Long = attrs.field(default=0, metadata={WIRE: "l"})
    offset_list: tuple[Long, ...] = attrs.field(default=(), metadata={WIRE: "o"})
    counts: dict[Long, int] | None = attrs.field(default=None, metadata={WIRE: "oc"})
    next_visible: dict[Long, Long] | None = attrs.field(default=None, metadata={WIRE: "ot"})
    pop_time: Long = 0

    def offsets(self) -> list[int]:
        """The queue offsets of the messages."""
        listed = self.offset_list
        return [listed[0], *(listed[0] + distance for distance in listed[1:])] if listed else []

    def is_done(self, index: int) -> bool:
        """Whether a message is acknowledged."""
        return bool(self.commit_bits >> index & 1)

    def visible_at(self, offset: int) -> int:
        """When an unacknowledged message may be popped again (epoch milliseconds)."""
        changed = (self.next_visible or {}).get(offset)
        return self.pop_time + self.invisible_time if changed is None else changed

    def free_at(self) -> int:
        """When every unacknowledged message may be popped again (epoch milliseconds).

        0 when all are done.
        """
        return max(
            (
                self.visible_at(offset)
                for index, offset in enumerate(self.offsets())
                if not self.is_done(index)
            ),
            default=0,
        )

    def next_offset(self) -> int:
        """The first message that is not done, else what follows the last one."""
        offsets = self.offsets()
        return next(
            (offset for index, offset in enumerate(offsets) if not self.is_done(index)),
            offsets[-1] + 1,
        )


@attrs.frozen
class ConsumerOrderInfoSerializeWrapper(Body):
    """The file `consumerOrderInfo.json`: order infos by `topic@group` and queue id."""

    table: dict[str, dict[int, OrderInfo]] = attrs.field(factory=dict)
    ordered_consumption_level: str = "QUEUE"


_LONG_NAMES: Final = {
    "b": "bitSet",
    "c": "consumerGroup",
    "it": "invisibleTime",
    "pt": "popTime",
    "q": "queueId",
    "r": "retry",
    "rq": "reviveQueueId",
    "so": "startOffset",
    "t": "topic",
}
_SHORT_NAMES: Final = frozenset(_LONG_NAMES)


def _wire(name: str, default: Any = attrs.NOTHING) -> Any:
    return attrs.field(default=default, metadata={WIRE: name})


@attrs.frozen(kw_only=True)
class BatchAckEntry(Body):
    """Messages of one pop of one queue that are done.

    Bit k of `bit_set` (base64, little endian) is the queue offset `start_offset` + k.

    `topic` is the one that the consumer subscribed to, `retry` the kind of topic in
    which the messages lie.
    """

    bit_set: str = _wire("b")
    consumer_group: str = _wire("c")
    invisible_time: Long = attrs.field(default=0, metadata={WIRE: "it"})
    pop_time: Long = attrs.field(default=0, metadata={WIRE: "pt"})
    queue_id: int = _wire("q", 0)
    retry: str = _wire("r", "0")
    revive_queue_id: int = _wire("rq", 0)
    start_offset: Long = attrs.field(default=0, metadata={WIRE: "so"})
    topic: str = _wire("t")

    @classmethod
    def from_json(cls, value: object) -> Self:
        """As `Body.from_json`; the long names are understood too."""
        if isinstance(value, dict):
            if value.keys() == _SHORT_NAMES:
                texts = value["b"], value["c"], value["r"], value["t"]
                small, large = (value["q"], value["rq"]), (value["it"], value["pt"], value["so"])
                if all(type(text) is str for text in texts) and all(
                    type(number) is int for number in small + large
                ):
                    bits, group, retry, topic = texts
                    if (
                        0 <= small[0] | small[1] <= INT_MAX
                        and 0 <= large[0] | large[1] | large[2] <= LONG_MAX
                    ):
                        return cls(
                            bit_set=bits,
                            consumer_group=group,
                            invisible_time=large[0],
                            pop_time=large[1],
                            queue_id=small[0],
                            retry=retry,
                            revive_queue_id=small[1],
                            start_offset=large[2],
                            topic=topic,
                        )
            value = {
                **{short: value[long] for short, long in _LONG_NAMES.items() if long in value},
                **value,
            }
        return super().from_json(value)


@attrs.frozen
class BatchAckMessageRequestBody(Body):
    """Body of BATCH_ACK_MESSAGE (200151)."""

    broker_name: str | None = None
    acks: tuple[BatchAckEntry, ...] = ()


def encode_bit_set(distances: Iterable[int]) -> str:
    """The text of a set of small numbers from 0 on."""
    bits = 0
    for distance in distances:
        bits |= 1 << distance
    return base64.b64encode(bits.to_bytes((bits.bit_length() + 7) // 8, "little")).decode()


MOST_IN_SET: Final = 4096
"""Numbers in one bit set: many more than the messages of one pop of one queue."""
_NOT_EMPTY: Final = re.compile(rb"[^\0]")


def decode_bit_set(text: str, limit: int) -> list[int]:
    """The numbers below `limit` in the text of a set.

    Raises `FieldError` when it is no base64, or holds more than `MOST_IN_SET`.
    """
    try:
        raw = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise FieldError(f"the bit set {text[:60]!r} is no base64") from None
    numbers = int.from_bytes(raw).bit_count()
    if numbers > MOST_IN_SET:
        raise FieldError(f"the bit set b holds {numbers} numbers, the limit is {MOST_IN_SET}")
    found: list[int] = []
    for match in _NOT_EMPTY.finditer(raw):
        place, byte = match.start(), match[0][0]
        found += [
            number for bit in range(8) if byte >> bit & 1 and (number := place * 8 + bit) < limit
        ]
    return found
