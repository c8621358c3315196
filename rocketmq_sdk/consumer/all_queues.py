"""The queues of a member that consumes everything by itself, whoever else is in the
group (broadcasting).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rocketmq_sdk.consumer.assign.difference import difference
from rocketmq_sdk.consumer.rebalance import Rebalancer

if TYPE_CHECKING:
    import trio


class AllQueues(Rebalancer):
    """Owns every readable queue of the subscribed topics."""

    async def _rebalance(self, nursery: trio.Nursery, unreachable: set[str]) -> bool:
        complete = True
        self.member_count = 1
        routes = self._context.client.routes
        known = {topic: routes.subscribe_queues(topic) for topic in self._subscriptions}
        wanted = sorted(queue for queues in known.values() for queue in queues)
        # A topic whose route is not known at the moment keeps its queues.
        kept = [queue for queue in self.owned if queue.topic in known and not known[queue.topic]]
        change = difference(self.owned, [*wanted, *kept])
        for queue in change.revoked:
            self._revoke(self.owned[queue])
        for queue in change.added:
            complete &= await self._acquire(queue, nursery, unreachable)
        return complete
