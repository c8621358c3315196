"""The queues that a broker assigns to a member, to be pulled or popped.

Follows `RebalanceImpl.getRebalanceResultFromBroker`. What failed while a topic was
popped waits in a retry topic of its own, which pops of the topic return too. Pulls do
not, so a member that pulls the topic also subscribes to that retry topic
(`RebalanceImpl.updateMessageQueueAssignment`; here in both of its forms). Otherwise
what failed before a group was switched to pulling would stay there.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from rocketmq_sdk.client.api.members import query_assignment
from rocketmq_sdk.client.side_by_side import first_answer
from rocketmq_sdk.consumer.assign.difference import difference
from rocketmq_sdk.consumer.group.rebalance import Rebalancer
from rocketmq_sdk.errors import NotSupportedError, RocketMQError
from rocketmq_sdk.log_fields import about
from rocketmq_sdk.names import RETRY_PREFIX, java_hash, pop_retry_topic_v1, pop_retry_topic_v2
from rocketmq_sdk.protocol.bodies.members import MessageQueueAssignment, MessageRequestMode
from rocketmq_sdk.protocol.subscription import SubscriptionData

if TYPE_CHECKING:
    import trio

    from rocketmq_sdk.consumer.group.start_offset import StartOffsets
    from rocketmq_sdk.consumer.pop.places import PopPlaces
    from rocketmq_sdk.consumer.pull.puller import PullContext

logger = logging.getLogger("rocketmq_sdk.consumer")


class AssignedQueues(Rebalancer):
    """Owns the queues that a broker assigns, and gives those to pop to `places`.

    Set `places` before the first round.
    """

    places: PopPlaces

    def __init__(
        self,
        context: PullContext,
        subscriptions: dict[str, SubscriptionData],
        start_offsets: StartOffsets,
    ) -> None:
        super().__init__(context, subscriptions, start_offsets)
        self._table = subscriptions
        self._retried: dict[str, list[str]] = {}
        """Topics that are pulled, with the retry topics subscribed to for them."""
        self._computes = False
        """Whether the brokers are too old to be asked."""

    def suspend(self) -> None:
        """Stop pulling, popping and taking queues."""
        super().suspend()
        self.places.suspend()

    def resume(self) -> None:
        """Undo `suspend`."""
        super().resume()
        self.places.resume()

    async def _rebalance(self, nursery: trio.Nursery, unreachable: set[str]) -> bool:
        if self._computes:
            return await super()._rebalance(nursery, unreachable)
        complete = True
        for topic in [topic for topic in self._retried if topic not in self._subscriptions]:
            self._leave_retries(topic)
        for owned in [
            owned for queue, owned in self.owned.items() if queue.topic not in self._subscriptions
        ]:
            self._revoke(owned)
        for topic in {queue.topic for queue in self.places.places} - set(self._subscriptions):
            self.places.leave_topic(topic)
        for topic in list(self._subscriptions):
            # An earlier topic may have removed its retry topics.
            if topic not in self._subscriptions or not self._context.client.routes.subscribe_queues(
                topic
            ):
                continue
            assignments = await self._ask(topic)
            if assignments is None:
                # Keep the queues: no broker has seen the heartbeat, or none answers.
                await self._context.introduce()
                complete = False
                continue
            queues = [
                (each.message_queue, each.mode)
                for each in assignments
                if each.message_queue is not None
            ]
            popped = {queue for queue, mode in queues if mode is MessageRequestMode.POP}
            self.places.assign(topic, popped, nursery)
            if queues and not topic.startswith(RETRY_PREFIX):
                await self._follow_mode(topic, pulled=not popped)
            change = difference(
                [queue for queue in self.owned if queue.topic == topic],
                sorted({queue for queue, _mode in queues} - popped),
            )
            for queue in change.revoked:
                self._revoke(self.owned[queue], moved=True)
            complete &= await self._settle_doubts(topic)
            complete &= await self._acquire_all(change.added, nursery, unreachable)
        return complete

    async def _follow_mode(self, topic: str, *, pulled: bool) -> None:
        """Subscribe to the retry topics of a topic while it is pulled.

        They hold what failed while the topic was popped. The next rounds take the
        queues.
        """
        if not pulled:
            self._leave_retries(topic)
        elif topic not in self._retried:
            client, group = self._context.client, self._context.group
            wanted = [
                name
                for name in (pop_retry_topic_v1(topic, group), pop_retry_topic_v2(topic, group))
                if name not in self._table
            ]
            self._retried[topic] = wanted
            for name in wanted:
                self._table[name] = SubscriptionData(name, sub_version=client.clock.now_ms())
                client.routes.use(name)
            await self._context.introduce()

    def _leave_retries(self, topic: str) -> None:
        for name in self._retried.pop(topic, ()):
            if self._table.pop(name, None) is not None:
                self._context.client.routes.release(name)
            for owned in [owned for queue, owned in self.owned.items() if queue.topic == name]:
                self._revoke(owned, moved=True)  # pops of the topic return its messages now

    def _judges(self, names: list[str]) -> list[str]:
        """The order in which brokers are asked.

        All members of a group begin with the same broker, and groups with different
        ones. A broker answers for the queues of all brokers, with the mode that it has
        for the group itself. Brokers may differ, when one was down while an
        administrator set the mode. Apache's client asks a random one each time, and
        then pops and pulls the topic by turns.
        """
        names = sorted(names)
        first = java_hash(self._context.group) % len(names) if names else 0
        return names[first:] + names[:first]

    async def _ask(self, topic: str) -> tuple[MessageQueueAssignment, ...] | None:
        client = self._context.client
        route = client.routes.get(topic)
        strategy = self._context.config.strategy.name
        too_old: list[str] = []

        # An answer is in a list: None is one, too.
        async def ask(name: str) -> list[tuple[MessageQueueAssignment, ...] | None] | None:
            found = client.brokers.subscribe_address(name)
            if found is None:
                return None
            try:
                answer = await query_assignment(
                    client,
                    found.address,
                    topic,
                    self._context.group,
                    strategy_name=strategy,
                )
            except RocketMQError as error:
                self.members.complaint = str(error)
                if isinstance(error, NotSupportedError):
                    too_old.append(name)
                logger.info(
                    "group %s: broker %s does not assign queues of topic %s: %s",
                    self._context.group,
                    name,
                    topic,
                    error,
                    extra=about(topic=topic, group=self._context.group),
                )
                return None
            self.members.complaint = (
                ""
                if answer is not None
                else f"broker {name} does not know this member yet, or not the strategy {strategy}"
            )
            return [answer]

        names = [] if route is None else [data.broker_name for data in route.broker_datas]
        answers = await first_answer(self._judges(names), ask)
        if answers is not None:
            return answers[0]
        if too_old:
            logger.warning(
                "group %s: broker %s is older than 5.0 and assigns no queues; the member computes "
                "its queues itself, and nothing is popped",
                self._context.group,
                ", ".join(too_old),
                extra=about(topic=topic, group=self._context.group),
            )
            self._computes = True
        return None
