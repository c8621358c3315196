"""The queues of members that do not share them with their group.

All queues (broadcasting), or those that the program chooses
(`DefaultLitePullConsumer.assign`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rocketmq_sdk.consumer.assign.difference import difference
from rocketmq_sdk.consumer.group.rebalance import Rebalancer

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    import trio

    from rocketmq_sdk.consumer.group.start_offset import StartOffsets
    from rocketmq_sdk.consumer.pull.puller import PullContext
    from rocketmq_sdk.model.queue import MessageQueue
    from rocketmq_sdk.protocol.subscription import SubscriptionData


class UnsharedQueues(Rebalancer):
    """Owns queues that no other member of the group takes meanwhile."""

    def doubt(self, broker_name: str) -> None:
        """Nobody else may have come further."""

    def members_changed(self) -> None:
        """Others have nothing to do with these queues."""
        self.wake()


class AllQueues(UnsharedQueues):
    """Owns every readable queue of the subscribed topics."""

    async def _rebalance(self, nursery: trio.Nursery, unreachable: set[str]) -> bool:
        self.members.count = 1
        routes = self._context.client.routes
        known = {topic: routes.subscribe_queues(topic) for topic in self._subscriptions}
        wanted = sorted(queue for queues in known.values() for queue in queues)
        # A topic whose route is currently unknown keeps its queues.
        kept = [queue for queue in self.owned if queue.topic in known and not known[queue.topic]]
        change = difference(self.owned, [*wanted, *kept])
        for queue in change.revoked:
            self._revoke(self.owned[queue])
        return await self._acquire_all(change.added, nursery, unreachable)


class ChosenQueues(UnsharedQueues):
    """Owns the queues that the program chooses, whatever other members do."""

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
        """Own exactly these queues from the next round on, which begins at once."""
        self.chosen = frozenset(queues)
        self._starts = {
            queue: offset for queue, offset in self._starts.items() if queue in self.chosen
        }
        self.wake()

    def start_at(self, queue: MessageQueue, offset: int) -> None:
        """Set the first offset of a chosen queue that is not owned yet."""
        self._starts[queue] = offset

    async def _rebalance(self, nursery: trio.Nursery, unreachable: set[str]) -> bool:
        change = difference(self.owned, sorted(self.chosen))
        for queue in change.revoked:
            self._revoke(self.owned[queue])
        return await self._acquire_all(change.added, nursery, unreachable)

    async def _first_offset(self, queue: MessageQueue) -> int:
        stored = self._starts.get(queue)
        offset = await super()._first_offset(queue) if stored is None else stored
        return self._starts.pop(queue, offset)
