"""What a broker remembers of ordered pops (`OrderInfo`, `QueueLevelConsumerManager` of
Apache RocketMQ 5.4.0).
"""

from __future__ import annotations

import attrs

from rocketmq_sdk.protocol.body import Body
from rocketmq_sdk.protocol.header import WIRE, Long


@attrs.define(kw_only=True, slots=True)
class OrderInfo(Body):
    """The last ordered pop of a queue: bit n of `commit_bits` says that message n is
    done.

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
        """When every unacknowledged message may be popped again (epoch milliseconds); 0
        when all are done.
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
    """What `consumerOrderInfo.json` holds: order infos by `topic@group` and queue
    id.
    """

    table: dict[str, dict[int, OrderInfo]] = attrs.field(factory=dict)
    ordered_consumption_level: str = "QUEUE"
