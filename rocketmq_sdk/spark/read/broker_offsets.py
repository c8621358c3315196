"""Writes completed offsets to the brokers under a group, for tools to look at.

They are never read back.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import trio

from rocketmq_sdk.client.api.connections import consumer_connections
from rocketmq_sdk.client.api.groups import update_group
from rocketmq_sdk.client.api.offsets import query_consumer_offset, update_consumer_offset
from rocketmq_sdk.client.side_by_side import by_broker
from rocketmq_sdk.errors import (
    BrokerError,
    ConfigurationError,
    GroupNotFoundError,
    RocketMQError,
    RouteError,
    TopicNotFoundError,
)
from rocketmq_sdk.log_fields import about
from rocketmq_sdk.protocol.bodies.groups import SubscriptionGroupConfig
from rocketmq_sdk.spark.cluster import bridge
from rocketmq_sdk.spark.cluster.access import ClusterAccess
from rocketmq_sdk.spark.cluster.retry import persistently, side_by_side, whole_text
from rocketmq_sdk.spark.cluster.view import AT_ONCE

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rocketmq_sdk.client.runtime import Client
    from rocketmq_sdk.spark.options.settings import SparkOptions
    from rocketmq_sdk.spark.plan.offsets import QueueKey

logger = logging.getLogger("rocketmq_sdk.spark")
_NO_MEMBERS = 206
AWAY_TIMEOUT = 5.0
"""Seconds for which a broker that does not take offsets may hold a query up."""
AWAY_PAUSE = 30.0
"""Seconds for which such a broker is not asked again."""


class BrokerOffsets:
    """Writes offsets that advanced, for a group that nobody consumes with.

    Offsets never go backwards. They are there to be looked at, so a write that fails
    never ends a query: a warning says so, and they are written later.
    """

    def __init__(self, settings: SparkOptions) -> None:
        assert settings.consumer_group is not None, "the options were checked"
        self._connection = ClusterAccess.of(settings)
        self._group = settings.consumer_group
        self._timeout = min(settings.retry_timeout, AWAY_TIMEOUT)
        self._written: dict[QueueKey, int] = {}
        self._checked: set[str] = set()
        self._away_until: dict[str, float] = {}

    async def write(self, offsets: Mapping[QueueKey, int]) -> None:
        """Write offsets to the brokers side by side, in no more than five seconds.

        Raises `ConfigurationError` when the group has consumers as offsets are first
        written to a broker.
        """
        now = trio.current_time()
        changed = [
            queue
            for queue, offset in offsets.items()
            if offset > self._written.get(queue, -1)
            and self._away_until.get(queue.broker, now) <= now
        ]
        if not changed:
            return
        async with bridge.client(self._connection) as client, side_by_side() as nursery:
            for broker, queues in by_broker(changed, lambda queue: queue.broker).items():
                nursery.start_soon(self._write_at, client, broker, queues, offsets)

    async def _write_at(
        self,
        client: Client,
        broker: str,
        queues: Sequence[QueueKey],
        offsets: Mapping[QueueKey, int],
    ) -> None:
        """Write offsets to one broker, some at a time; the first failure ends it."""

        async def one(queue: QueueKey) -> None:
            async with limiter:
                await self._try_one(client, queue, offsets[queue])

        what = f"writing the offset of queue {queues[0]} for group {self._group!r}"
        limiter, failure = trio.CapacityLimiter(AT_ONCE), f"{what} took too long"
        with trio.move_on_after(self._timeout):
            try:
                await one(queues[0])  # it also finds out about the group
                async with side_by_side() as nursery:
                    for queue in queues[1:]:
                        nursery.start_soon(one, queue)
            except ConfigurationError:
                raise
            except RocketMQError as error:
                failure = f"{what} failed: {whole_text(error)}"
            else:
                return
        logger.warning("%s; the query goes on, and they are written later", failure)
        self._away_until[broker] = trio.current_time() + AWAY_PAUSE

    async def _try_one(self, client: Client, queue: QueueKey, offset: int) -> None:
        try:
            await persistently(
                f"writing the offset of queue {queue} for group {self._group!r}",
                self._timeout,
                lambda: self._write_one(client, queue, offset),
                refresh=lambda: client.route(client.namespace.wrap(queue.topic), refresh=True),
                final=(TopicNotFoundError,),
            )
        except TopicNotFoundError as error:  # that is for `failOnDataLoss`, not for this
            logger.warning(
                "the offset of queue %s is not written for group %r: %s",
                queue,
                self._group,
                error,
                extra=about(topic=queue.topic, group=self._group),
            )
            self._written[queue] = offset

    async def _write_one(self, client: Client, queue: QueueKey, offset: int) -> None:
        topic, group = client.namespace.wrap(queue.topic), client.namespace.wrap(self._group)
        if client.broker_address(queue.broker) is None:
            await client.route(topic, refresh=True)
        if queue.broker not in self._checked and await self._refuse_consumers(
            client, queue.broker, group
        ):
            self._checked.add(queue.broker)
        if queue not in self._written:
            known = await query_consumer_offset(client, queue.broker, group, topic, queue.queue_id)
            self._written[queue] = -1 if known is None else known
        if offset > self._written[queue]:
            try:
                await update_consumer_offset(
                    client, queue.broker, group, topic, queue.queue_id, offset
                )
            except (
                GroupNotFoundError
            ):  # brokers make groups known by heartbeats, which are never sent here
                await self._create_group(client, queue.broker, group)
                await update_consumer_offset(
                    client, queue.broker, group, topic, queue.queue_id, offset
                )
            self._written[queue] = offset

    async def _create_group(self, client: Client, broker: str, group: str) -> None:
        address = client.broker_address(broker)
        if address is None:
            raise RouteError(
                f"the broker {broker!r} has no master now, which could make the group {group!r} "
                "known"
            )
        await update_group(client, address, SubscriptionGroupConfig(group))

    async def _refuse_consumers(self, client: Client, broker: str, group: str) -> bool:
        """Whether the master of a broker could be asked for consumers.

        Raises `ConfigurationError` when it has some.
        """
        address = client.broker_address(broker)
        if address is None:
            return False  # only slaves are there; the write itself goes to one of them
        try:
            members = (await consumer_connections(client, address, group)).connection_set
        except GroupNotFoundError:
            return True
        except BrokerError as error:
            if error.code == _NO_MEMBERS:
                return True
            raise
        if members:
            raise ConfigurationError(
                f"the group {self._group!r} has {len(members)} live consumers at the broker "
                f"{broker!r}; commitOffsetsToBroker needs a group of its "
                "own, or it would move their offsets"
            )
        return True
