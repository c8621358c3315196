"""The queues of a member whose broker says which ones it reads, and whether it pulls or pops (`RebalanceImpl.getRebalanceResultFromBroker`)."""

import logging
import random
from typing import TYPE_CHECKING

from rocketmq_sdk.client.api.assignment import query_assignment
from rocketmq_sdk.consumer.assign.difference import difference
from rocketmq_sdk.consumer.rebalance import Rebalancer
from rocketmq_sdk.errors import RocketMQError
from rocketmq_sdk.protocol.bodies.assignment import MessageQueueAssignment, MessageRequestMode

if TYPE_CHECKING:
    import trio

    from rocketmq_sdk.consumer.pop import PopPlaces

logger = logging.getLogger("rocketmq_sdk.consumer")


class AssignedQueues(Rebalancer):
    """Owns the queues that a broker assigns; hands those to pop to `places`, which is to be set before the first round."""

    places: "PopPlaces"

    def suspend(self) -> None:
        """Stop pulling, popping and taking queues."""
        super().suspend()
        self.places.suspend()

    def resume(self) -> None:
        """The counterpart of `suspend`."""
        super().resume()
        self.places.resume()

    async def _rebalance(self, nursery: "trio.Nursery", unreachable: set[str]) -> bool:
        complete = True
        for owned in [owned for queue, owned in self.owned.items() if queue.topic not in self._subscriptions]:
            self._revoke(owned)
        for topic in {queue.topic for queue in self.places.places} - set(self._subscriptions):
            self.places.leave_topic(topic)
        for topic in list(self._subscriptions):
            if not self._context.client.routes.subscribe_queues(topic):
                continue
            assignments = await self._ask(topic)
            if assignments is None:
                # Keep what there is: the broker has not seen the heartbeat, or does not answer.
                await self._context.introduce()
                complete = False
                continue
            queues = [(each.message_queue, each.mode) for each in assignments if each.message_queue is not None]
            popped = {queue for queue, mode in queues if mode is MessageRequestMode.POP}
            self.places.assign(topic, popped, nursery)
            change = difference([queue for queue in self.owned if queue.topic == topic], sorted({queue for queue, _mode in queues} - popped))
            for queue in change.revoked:
                self._revoke(self.owned[queue])
            for queue in change.added:
                complete &= await self._acquire(queue, nursery, unreachable)
        return complete

    async def _ask(self, topic: str) -> tuple[MessageQueueAssignment, ...] | None:
        client = self._context.client
        route = client.routes.get(topic)
        names = [] if route is None else [data.broker_name for data in route.broker_datas]
        random.shuffle(names)
        for name in names:
            found = client.brokers.subscribe_address(name)
            if found is None:
                continue
            try:
                answer = await query_assignment(
                    client, found.address, topic, self._context.group, strategy_name=self._context.config.strategy.name
                )
            except RocketMQError as error:
                self.complaint = str(error)
                logger.info("group %s: broker %s does not assign queues of topic %s: %s", self._context.group, name, topic, error)
            else:
                self.complaint = ""
                return answer
        return None
