"""Consumer groups: made, deleted, how far they are, and where they are to go on."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

import attrs

from rocketmq_sdk.client.api.connections import consumer_connections
from rocketmq_sdk.client.api.groups import all_groups, delete_group, update_group
from rocketmq_sdk.client.api.offsets import TO_THE_END, clone_offsets, reset_offset
from rocketmq_sdk.client.api.progress import consume_stats
from rocketmq_sdk.client.api.routes import topic_route
from rocketmq_sdk.client.arguments import checked
from rocketmq_sdk.client.side_by_side import answers_of_all
from rocketmq_sdk.codes import ResponseCode
from rocketmq_sdk.errors import BrokerError, ConfigurationError, GroupNotFoundError, RouteError
from rocketmq_sdk.model.queue import MessageQueue
from rocketmq_sdk.names import BUILT_IN_GROUPS, group_problem, is_system_group
from rocketmq_sdk.protocol.bodies.groups import SubscriptionGroupConfig
from rocketmq_sdk.protocol.bodies.progress import OffsetWrapper

if TYPE_CHECKING:
    from rocketmq_sdk.admin.cluster import Broker, Cluster
    from rocketmq_sdk.client.runtime import Client
    from rocketmq_sdk.protocol.bodies.connections import ClientConnection


@attrs.frozen
class Progress:
    """How far a group is.

    `queues` tells the broker's end, the committed and the fetched offset, and the time
    of the last consumed message.
    """

    queues: dict[MessageQueue, OffsetWrapper]
    rate: float
    """Messages per second in the last minute."""

    @property
    def lag(self) -> int:
        """Messages that were not committed yet."""
        return sum(
            max(0, queue.broker_offset - queue.consumer_offset) for queue in self.queues.values()
        )


class Groups:
    """Consumer groups of a cluster.

    `timeout` is seconds for each request; None means the client's `api_timeout`.

    With `namespace` set, names of groups and topics are those within it, in arguments
    and in results.
    """

    def __init__(self, client: Client, cluster: Cluster) -> None:
        self._client = client
        self._namespace = client.namespace
        self._cluster = cluster

    @checked
    async def create(
        self,
        config: SubscriptionGroupConfig | str,
        *,
        cluster: str | None = None,
        timeout: float | None = None,
    ) -> None:
        """Create a group at every master, or change it there.

        A name alone means Apache's defaults.

        Raises `ConfigurationError` for a name that is not allowed, the error of a
        broker that refuses or does not answer; the others have the group then.
        """
        wanted = SubscriptionGroupConfig(config) if isinstance(config, str) else config
        wanted = attrs.evolve(wanted, group_name=self._namespace.wrap(wanted.group_name))
        problem = group_problem(wanted.group_name)
        if problem is not None:
            raise ConfigurationError(problem)
        await answers_of_all(
            await self._cluster.masters(cluster=cluster, timeout=timeout),
            lambda broker: update_group(self._client, broker.address, wanted, timeout),
        )

    @checked
    async def delete(
        self,
        group: str,
        *,
        clean_offsets: bool = True,
        cluster: str | None = None,
        timeout: float | None = None,
    ) -> None:
        """Delete a group at every master, by default with its offsets.

        Its retry and dead-letter topics stay.
        """
        group = self._namespace.wrap(group)
        await answers_of_all(
            await self._cluster.masters(cluster=cluster, timeout=timeout),
            lambda broker: delete_group(
                self._client, broker.address, group, clean_offset=clean_offsets, timeout=timeout
            ),
        )

    @checked
    async def config(self, group: str, *, timeout: float | None = None) -> SubscriptionGroupConfig:
        """The settings of a group, at the first master that keeps it.

        Raises `GroupNotFoundError` when none does; asking never makes a group.
        """
        name = self._namespace.wrap(group)
        for kept in await self._of_masters(timeout):
            config = kept.get(name)
            if config is not None:
                return attrs.evolve(config, group_name=self._namespace.unwrap(name))
        raise self._unknown(group)

    @checked
    async def names(self, *, system: bool = False, timeout: float | None = None) -> list[str]:
        """The groups that any master keeps, sorted; `system` adds those of the brokers.

        A broker makes a group when its first consumer comes, where that is allowed.
        """
        found: set[str] = set()
        for kept in await self._of_masters(timeout):
            found |= kept.keys()
        return sorted(
            self._namespace.unwrap(name) for name in found if system or not _is_brokers_own(name)
        )

    async def _of_masters(self, timeout: float | None) -> list[dict[str, SubscriptionGroupConfig]]:
        """The groups that each master keeps."""
        return await answers_of_all(
            await self._cluster.masters(timeout=timeout),
            lambda broker: all_groups(self._client, broker.address, timeout),
        )

    @staticmethod
    def _unknown(group: str) -> GroupNotFoundError:
        return GroupNotFoundError(
            ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"no master keeps a group {group!r}"
        )

    @checked
    async def progress(
        self, group: str, topic: str | None = None, *, timeout: float | None = None
    ) -> Progress:
        """How far a group is, in one topic or in all of its topics, over all masters.

        Empty for a group that never consumed. Raises `GroupNotFoundError` for one that
        no master keeps, `TopicNotFoundError` for a topic that no name server knows.
        """
        asked = group
        group, topic = (
            self._namespace.wrap(group),
            None if topic is None else self._namespace.wrap(topic),
        )
        queues: dict[MessageQueue, OffsetWrapper] = {}
        rate = 0.0
        masters = await self._cluster.masters(timeout=timeout)
        for stats in await answers_of_all(
            masters,
            lambda broker: consume_stats(self._client, broker.address, group, topic, timeout),
        ):
            queues |= stats.offset_table
            rate += stats.consume_tps
        if not any(offsets.consumer_offset > 0 for offsets in queues.values()) and not any(
            group in kept for kept in await self._of_masters(timeout)
        ):
            raise self._unknown(asked)  # brokers count all messages as its lag
        if topic is not None and not queues:
            await topic_route(self._client, topic, timeout)  # raises for an unknown one
        return Progress(
            {
                self._namespace.unwrap_queue(queue): offsets
                for queue, offsets in sorted(queues.items())
            },
            rate,
        )

    @checked
    async def members(self, group: str, *, timeout: float | None = None) -> list[ClientConnection]:
        """The connected clients of a group, each once; empty when nobody is there."""
        group = self._namespace.wrap(group)
        found: dict[str, ClientConnection] = {}

        async def ask(broker: Broker) -> None:
            try:
                told = await consumer_connections(self._client, broker.address, group, timeout)
            except BrokerError as error:
                if error.code != ResponseCode.CONSUMER_NOT_ONLINE:
                    raise
                return
            found.update({each.client_id or "": each for each in told.connection_set})

        await answers_of_all(await self._cluster.brokers(timeout=timeout), ask)
        return [found[client_id] for client_id in sorted(found)]

    @checked
    async def reset_offsets(
        self,
        group: str,
        topic: str,
        *,
        to: datetime | int | None = None,
        queue: MessageQueue | None = None,
        offset: int | None = None,
        timeout: float | None = None,
    ) -> dict[MessageQueue, int]:
        """Let a group go on elsewhere; the new offsets by queue.

        `to` is a time (aware `datetime` or epoch milliseconds), None the end of the
        queues, which skips what is waiting. Or `queue` and `offset` name one place.
        Members that run follow at their next pull, and a group without members finds it
        when it comes. Raises `TopicNotFoundError`, and the broker's error for a group
        that does not exist or an offset out of range.
        """
        if (queue is None) != (offset is None):
            raise ConfigurationError("give queue= and offset= together")
        if isinstance(to, datetime) and to.tzinfo is None:
            raise ConfigurationError(
                f"the time {to} has no zone; give an aware datetime or epoch milliseconds"
            )
        timestamp = (
            TO_THE_END
            if to is None
            else round(to.timestamp() * 1000)
            if isinstance(to, datetime)
            else to
        )
        group, topic = self._namespace.wrap(group), self._namespace.wrap(topic)
        table: dict[MessageQueue, int] = {}
        for part in await answers_of_all(
            await self._masters_of(topic, None if queue is None else queue.broker_name, timeout),
            lambda address: reset_offset(
                self._client,
                address,
                group,
                topic,
                timestamp=timestamp,
                queue_id=None if queue is None else queue.queue_id,
                offset=offset,
                timeout=timeout,
            ),
        ):
            table |= part
        return {
            self._namespace.unwrap_queue(queue): offset for queue, offset in sorted(table.items())
        }

    @checked
    async def clone_offsets(
        self,
        source: str,
        target: str,
        topic: str,
        *,
        offline: bool = False,
        timeout: float | None = None,
    ) -> None:
        """Give a group the offsets of another one in a topic.

        Raises `TopicNotFoundError`.

        Without `offline` nothing is copied while members of the source are there and do
        not subscribe to the topic.
        """
        source, target, topic = map(self._namespace.wrap, (source, target, topic))
        await answers_of_all(
            await self._masters_of(topic, None, timeout),
            lambda address: clone_offsets(
                self._client, address, source, target, topic, offline=offline, timeout=timeout
            ),
        )

    async def _masters_of(
        self, topic: str, broker_name: str | None, timeout: float | None
    ) -> list[str]:
        route = await topic_route(self._client, topic, timeout)
        wanted = [data for data in route.broker_datas if broker_name in (None, data.broker_name)]
        addresses = [data.master_address for data in wanted if data.master_address is not None]
        if not addresses:
            raise RouteError(
                f"the topic {topic} has no "
                f"master{'' if broker_name is None else f' called {broker_name}'}"
            )
        return addresses


def _is_brokers_own(group: str) -> bool:
    return is_system_group(group) or group in BUILT_IN_GROUPS
