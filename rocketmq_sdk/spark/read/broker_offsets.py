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
from rocketmq_sdk.errors import (
    BrokerError,
    ConfigurationError,
    GroupNotFoundError,
    RouteError,
    TopicNotFoundError,
)
from rocketmq_sdk.protocol.bodies.groups import SubscriptionGroupConfig
from rocketmq_sdk.spark.cluster import bridge
from rocketmq_sdk.spark.cluster.access import ClusterAccess
from rocketmq_sdk.spark.cluster.retry import UnreachableError, persistently

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rocketmq_sdk.client.runtime import Client
    from rocketmq_sdk.spark.options.parsing import SparkOptions
    from rocketmq_sdk.spark.plan.offsets import QueueKey

logger = logging.getLogger("rocketmq_sdk.spark")
_NO_MEMBERS = 206
AWAY_TIMEOUT = 5.0
"""Seconds for which a broker that is away holds a query up that goes on without it."""
AWAY_PAUSE = 30.0
"""Seconds for which such a broker is not asked again."""


class BrokerOffsets:
    """Writes offsets that advanced, for a group that nobody consumes with.

    Offsets never go backwards.
    """

    def __init__(self, settings: SparkOptions) -> None:
        self._connection = ClusterAccess.of(settings)
        self._group: str = settings.consumer_group
        self._fails: bool = settings.fail_on_data_loss
        self._timeout: float = (
            settings.retry_timeout if self._fails else min(settings.retry_timeout, AWAY_TIMEOUT)
        )
        self._written: dict[QueueKey, int] = {}
        self._checked: set[str] = set()
        self._away_until: dict[str, float] = {}

    async def write(self, offsets: Mapping[QueueKey, int]) -> None:
        """Write offsets to the brokers.

        Raises `ConfigurationError` when the group has consumers, `UnreachableError`
        after `retryTimeout`.
        """
        changed = {
            queue: offset
            for queue, offset in offsets.items()
            if offset > self._written.get(queue, -1)
        }
        if not changed:
            return
        async with bridge.client(self._connection) as client:
            for queue, offset in changed.items():
                if trio.current_time() < self._away_until.get(queue.broker, float("-inf")):
                    continue
                try:
                    await persistently(
                        f"writing the offset of queue {queue} for group {self._group!r}",
                        self._timeout,
                        lambda queue=queue, offset=offset: self._write_one(client, queue, offset),  # type: ignore[misc]
                        refresh=lambda queue=queue: client.route(
                            client.namespace.wrap(queue.topic), refresh=True
                        ),  # type: ignore[misc]
                        final=(TopicNotFoundError,),
                    )
                except (
                    TopicNotFoundError
                ) as error:  # whether that ends the query is failOnDataLoss' to say, not this one's
                    logger.warning(
                        "the offset of queue %s is not written for group %r: %s",
                        queue,
                        self._group,
                        error,
                    )
                    self._written[queue] = offset
                except UnreachableError as error:
                    if self._fails:
                        raise
                    logger.warning("%s; it is written later, as failOnDataLoss is false", error)
                    self._away_until[queue.broker] = trio.current_time() + AWAY_PAUSE

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
