"""The queues of a consumer that chooses them itself instead of sharing them with its
group (`DefaultLitePullConsumer.assign`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rocketmq_sdk.consumer.assign.difference import difference
from rocketmq_sdk.consumer.rebalance import Rebalancer

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    import trio

    from rocketmq_sdk.consumer.pull import PullContext
    from rocketmq_sdk.consumer.start_offset import StartOffsets
    from rocketmq_sdk.model.queue import MessageQueue
    from rocketmq_sdk.protocol.subscription import SubscriptionData


class ChosenQueues(Rebalancer):
    """Owns the queues that it is told to own, whatever other members do."""

    def __init__(
        self,
        context: PullContext,
        subscriptions: Mapping[str, SubscriptionData],
        start_offsets: StartOffsets,
    ) -> None:
        super().__init__(context, subscriptions, start_offsets)
        self.chosen: frozenset[MessageQueue] = frozenset()
        self._starts: dict[MessageQueue, int] = {}

    def choose(self, queues: Collection[MessageQueue]) -> None:
        """Own these queues and no others, from the next round on, which begins at
        once.
        """
        self.chosen = frozenset(queues)
        self._starts = {
            queue: offset for queue, offset in self._starts.items() if queue in self.chosen
        }
        self.wake()

    def start_at(self, queue: MessageQueue, offset: int) -> None:
        """Begin a chosen queue that is not owned yet at an offset."""
        self._starts[queue] = offset

    async def _rebalance(self, nursery: trio.Nursery, unreachable: set[str]) -> bool:
        complete = True
        change = difference(self.owned, sorted(self.chosen))
        for queue in change.revoked:
            self._revoke(self.owned[queue])
        for queue in change.added:
            complete &= await self._acquire(queue, nursery, unreachable)
        return complete

    async def _first_offset(self, queue: MessageQueue) -> int:
        stored = self._starts.get(queue)
        offset = await super()._first_offset(queue) if stored is None else stored
        return self._starts.pop(queue, offset)
