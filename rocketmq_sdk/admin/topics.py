"""Topics: made, changed, deleted, listed, measured."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

import trio

from rocketmq_sdk.client.api.progress import topic_stats
from rocketmq_sdk.client.api.routes import (
    cluster_info,
    delete_topic_at_name_server,
    topic_names,
    topic_route,
)
from rocketmq_sdk.client.api.topics import create_topic, delete_topic_at_broker
from rocketmq_sdk.client.arguments import checked
from rocketmq_sdk.client.side_by_side import answers_of_all
from rocketmq_sdk.errors import ConfigurationError, RouteError, TopicNotFoundError
from rocketmq_sdk.log_fields import about
from rocketmq_sdk.names import is_system_topic, reply_topic, topic_problem
from rocketmq_sdk.protocol.bodies.topics import TopicConfig

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rocketmq_sdk.admin.cluster import Cluster
    from rocketmq_sdk.client.runtime import Client
    from rocketmq_sdk.model.queue import MessageQueue
    from rocketmq_sdk.model.route import TopicRoute
    from rocketmq_sdk.protocol.bodies.progress import TopicOffset

logger = logging.getLogger("rocketmq_sdk.admin")
READ_WRITE = 6
VISIBLE_TIMEOUT: Final = 3.0
"""Seconds that `Topics.create` waits for the name server."""


class Topics:
    """Topics of a cluster.

    `timeout` is seconds for each request; None means the client's `api_timeout`.

    With `namespace` set, names are those within it, in arguments and in results; other
    tenants' topics show under their full names.
    """

    def __init__(self, client: Client, cluster: Cluster) -> None:
        self._client = client
        self._namespace = client.namespace
        self._cluster = cluster

    @checked
    async def create(
        self,
        topic: str,
        *,
        queues: int = 8,
        read_queues: int | None = None,
        perm: int = READ_WRITE,
        order: bool = False,
        attributes: Mapping[str, str] | None = None,
        cluster: str | None = None,
        timeout: float | None = None,
    ) -> None:
        """Create a topic at every master, or change it there.

        Waits up to 3 s until a name server knows it.

        `queues` are those that are written to on each broker, `read_queues` those that
        are read (unset: as many); to have fewer queues without losing messages, lower
        `queues` first and `read_queues` when the others are empty. `perm` 6 is reading
        and writing, 4 reading, 2 writing. `attributes` are those of Apache's topics,
        such as `{"message.type": "FIFO"}`. Raises `ConfigurationError` for a name that
        is not allowed, the error of a broker that refuses or does not answer; the
        others have the topic then.
        """
        topic = self._namespace.wrap(topic)
        problem = topic_problem(topic)
        if problem is not None:
            raise ConfigurationError(problem)
        config = TopicConfig(
            topic,
            queues if read_queues is None else read_queues,
            queues,
            perm,
            order=order,
            attributes=dict(attributes or {}),
        )
        await answers_of_all(
            await self._cluster.masters(cluster=cluster, timeout=timeout),
            lambda broker: create_topic(self._client, broker.address, config, timeout),
        )
        await self._wait_visible(topic)

    async def _wait_visible(self, topic: str) -> None:
        """Wait until a name server has a route for the topic."""
        with trio.move_on_after(VISIBLE_TIMEOUT):
            while True:
                try:
                    await self._client.routes.fetch(topic)
                except RouteError:
                    await trio.sleep(0.05)
                else:
                    return
        logger.warning(
            "topic %r was created, but the name server does not know it yet",
            topic,
            extra=about(topic=topic),
        )

    @checked
    async def delete(
        self, topic: str, *, cluster: str | None = None, timeout: float | None = None
    ) -> None:
        """Delete a topic with its messages and offsets.

        At every broker first, then at the name server.
        """
        topic = self._namespace.wrap(topic)
        await answers_of_all(
            await self._cluster.brokers(cluster=cluster, timeout=timeout),
            lambda broker: delete_topic_at_broker(self._client, broker.address, topic, timeout),
        )
        await delete_topic_at_name_server(self._client, topic, cluster, timeout)

    @checked
    async def names(self, *, system: bool = False, timeout: float | None = None) -> list[str]:
        """The topics that the name server knows, sorted.

        Those of the system only with `system`: what brokers make for themselves, one
        named as each broker and cluster among it. Retry and dead letter topics belong
        to groups, and are always there.
        """
        names = await topic_names(self._client, timeout)
        if not system:
            info = await cluster_info(self._client, timeout)
            own = {
                *info.broker_addr_table,
                *info.cluster_addr_table,
                *map(reply_topic, info.cluster_addr_table),
            }
            names = [name for name in names if not is_system_topic(name) and name not in own]
        return sorted(map(self._namespace.unwrap, names))

    @checked
    async def exists(self, topic: str, *, timeout: float | None = None) -> bool:
        """Whether a name server has a route for the topic."""
        try:
            await self.route(topic, timeout=timeout)
        except TopicNotFoundError:
            return False
        return True

    @checked
    async def route(self, topic: str, *, timeout: float | None = None) -> TopicRoute:
        """Where the topic's queues are. Raises `TopicNotFoundError`."""
        return await topic_route(self._client, self._namespace.wrap(topic), timeout)

    @checked
    async def offsets(
        self, topic: str, *, timeout: float | None = None
    ) -> dict[MessageQueue, TopicOffset]:
        """The ends of a topic's queues. Raises `TopicNotFoundError`.

        First offset, offset behind the last message, and time of the last one, by
        queue, of every master.
        """
        topic = self._namespace.wrap(topic)
        found: dict[MessageQueue, TopicOffset] = {}
        route = await self.route(topic, timeout=timeout)
        masters = [data.master_address for data in route.broker_datas]
        for stats in await answers_of_all(
            [address for address in masters if address is not None],
            lambda address: topic_stats(self._client, address, topic, timeout),
        ):
            found |= stats.offset_table
        return {self._namespace.unwrap_queue(queue): ends for queue, ends in sorted(found.items())}
