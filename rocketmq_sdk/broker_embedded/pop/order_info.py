"""Ordered pops: the messages of a queue that a group holds.

`QueueLevelConsumerManager` of Apache. Nobody gets the messages behind them: a queue is
blocked until all messages of its last pop are acknowledged or visible again. The table
is written every few seconds. After a crash a queue may be free too early, and its
messages come again; none is lost, because the group's offset never passes one that is
not acknowledged.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rocketmq_sdk.protocol.bodies.pop import ConsumerOrderInfoSerializeWrapper, OrderInfo
from rocketmq_sdk.protocol.receipt_handle import order_offset_key

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rocketmq_sdk.broker_embedded.store.files.config_file import ConfigFile
    from rocketmq_sdk.clock import Clock

FILE_NAME: Final = "consumerOrderInfo.json"
ILLEGAL: Final = -1
IGNORED: Final = -2
IDLE_MS: Final = 24 * 3600 * 1000
"""How long a queue without pops is remembered."""
_SIGN: Final = 1 << 63
_LONG: Final = 1 << 64


class OrderInfoManager:
    """Order infos by topic, group and queue."""

    __slots__ = ("_clock", "_file", "_table", "dirty")

    def __init__(self, config_file: ConfigFile, clock: Clock) -> None:
        self._file = config_file
        self._clock = clock
        self._table: dict[str, dict[int, OrderInfo]] = {}
        self.dirty = False

    def load(self) -> None:
        """Read the file. Raises `StoreError` when it holds no table of order infos."""
        wrapper = self._file.load_body(ConsumerOrderInfoSerializeWrapper)
        if wrapper is not None:
            self._table = {key: dict(queues) for key, queues in wrapper.table.items()}

    async def persist(self) -> None:
        """Write the file when something changed since the last time."""
        if self.dirty:
            self.dirty = False
            self._expire()
            try:
                await self._file.save(self.wrapper().to_json())
            except BaseException:
                self.dirty = True
                raise

    def wrapper(self) -> ConsumerOrderInfoSerializeWrapper:
        """All order infos, as the file holds them."""
        return ConsumerOrderInfoSerializeWrapper(
            {key: dict(queues) for key, queues in self._table.items()}
        )

    def find(self, topic: str, group: str, queue_id: int) -> OrderInfo | None:
        """What is remembered of a queue."""
        return self._table.get(f"{topic}@{group}", _EMPTY).get(queue_id)

    def blocked_until(
        self, topic: str, group: str, queue_id: int, attempt_id: str | None, committed: int
    ) -> int:
        """When a queue may be popped, in epoch milliseconds; 0 means now.

        Otherwise it is the moment at which its messages are visible again, unless they
        are acknowledged before. The same attempt may pop again what it popped. What
        lies before the group's offset blocks nothing.
        """
        info = self.find(topic, group, queue_id)
        if (
            info is None
            or not info.offset_list
            or (attempt_id and attempt_id == info.attempt_id)
            or info.offsets()[-1] < committed
        ):
            return 0
        free_at = info.free_at()
        return free_at if free_at > self._clock.now_ms() else 0

    def update(
        self,
        topic: str,
        group: str,
        queue_id: int,
        offsets: Sequence[int],
        *,
        attempt_id: str | None,
        pop_time: int,
        invisible_time: int,
        kind: str,
    ) -> list[str]:
        """Remember a pop; returns the parts of `orderCountInfo`.

        They are the earlier deliveries of each message that had some, and the least of
        all.
        """
        before = self.find(topic, group, queue_id)
        counts = _counts_after(before, attempt_id, offsets)
        self._table.setdefault(f"{topic}@{group}", {})[queue_id] = OrderInfo(
            attempt_id=attempt_id,
            invisible_time=invisible_time,
            last_consume=self._clock.now_ms(),
            offset_list=(offsets[0], *(offset - offsets[0] for offset in offsets[1:])),
            counts=counts,
            pop_time=pop_time,
        )
        self.dirty = True
        parts = [
            f"{kind} {order_offset_key(queue_id, offset)} {count}"
            for offset, count in (counts or {}).items()
        ]
        least = min(counts.values()) if counts and len(counts) == len(offsets) else 0
        return [*parts, f"{kind} {queue_id} {least}"]

    def commit_and_next(
        self, topic: str, group: str, queue_id: int, offset: int, pop_time: int
    ) -> int:
        """Note that a message is done; gives where the group goes on.

        `ILLEGAL` for an offset that was not popped, `IGNORED` for an ack of another pop
        than the last one. (Apache takes an ack of a queue of which it remembers nothing
        for the next offset, which after a crash would pass messages that nobody
        acknowledged; here it is ignored.)
        """
        info = self.find(topic, group, queue_id)
        if info is None or info.pop_time != pop_time:
            return IGNORED
        try:
            index = info.offsets().index(offset)
        except ValueError:
            return ILLEGAL
        bits = info.commit_bits & (_LONG - 1) | 1 << index
        info.commit_bits = bits - _LONG if bits & _SIGN else bits
        info.last_consume = self._clock.now_ms()
        self.dirty = True
        return info.next_offset()

    def change_visible(
        self, topic: str, group: str, queue_id: int, offset: int, pop_time: int, visible_at: int
    ) -> None:
        """Change when a message of the last pop is visible; ignores other messages."""
        info = self.find(topic, group, queue_id)
        if info is not None and info.pop_time == pop_time and offset in info.offsets():
            info.next_visible = {**(info.next_visible or {}), offset: visible_at}
            self.dirty = True

    def is_free(self, topic: str, group: str, queue_id: int) -> bool:
        """Whether nothing of a queue is in anybody's hand."""
        info = self.find(topic, group, queue_id)
        return info is None or info.free_at() <= self._clock.now_ms()

    def clear(self, topic: str, group: str, queue_id: int) -> None:
        """Forget what a group holds of a queue."""
        if self._table.get(f"{topic}@{group}", {}).pop(queue_id, None) is not None:
            self.dirty = True

    def remove_topic(self, topic: str) -> None:
        """Forget a topic."""
        self._remove([key for key in self._table if key.partition("@")[0] == topic])

    def remove_group(self, group: str) -> None:
        """Forget a group."""
        self._remove([key for key in self._table if key.partition("@")[2] == group])

    def _remove(self, keys: list[str]) -> None:
        for key in keys:
            del self._table[key]
            self.dirty = True

    def _expire(self) -> None:
        oldest = self._clock.now_ms() - IDLE_MS
        for key, queues in list(self._table.items()):
            for queue_id in [
                queue_id for queue_id, info in queues.items() if info.last_consume < oldest
            ]:
                del queues[queue_id]
            if not queues:
                del self._table[key]


_EMPTY: Final[dict[int, OrderInfo]] = {}


def _counts_after(
    before: OrderInfo | None, attempt_id: str | None, offsets: Sequence[int]
) -> dict[int, int] | None:
    """Earlier deliveries of the messages of a pop.

    One more for each that the pop before held too, unless it was the same attempt.
    """
    if before is None:
        return None
    known = before.counts or {}
    if attempt_id is not None and attempt_id == before.attempt_id:
        return dict(known)
    held = set(before.offsets())
    return {offset: known.get(offset, 0) + 1 for offset in offsets if offset in held}
