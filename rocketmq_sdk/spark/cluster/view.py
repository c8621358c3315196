"""What a planner asks a cluster: its queues, their bounds, and offsets by time.

Every call is retried.

Ends come from one statistics call for each broker and topic (GET_TOPIC_STATS_INFO,
202), however many queues it has.
"""

from __future__ import annotations

import logging
import re
from collections import defaultdict
from typing import TYPE_CHECKING, Any, Final, TypeVar

import trio

from rocketmq_sdk.client.api.members import check_client_config
from rocketmq_sdk.client.api.offsets import search_offset
from rocketmq_sdk.client.api.progress import topic_stats
from rocketmq_sdk.client.api.routes import cluster_info, topic_names
from rocketmq_sdk.errors import BrokerError, ConfigurationError, RouteError, TopicNotFoundError
from rocketmq_sdk.model.route import MASTER_ID
from rocketmq_sdk.names import TOOLS_GROUP, is_system_topic
from rocketmq_sdk.protocol.subscription import build_subscription
from rocketmq_sdk.spark.cluster.retry import UnreachableError, persistently, side_by_side
from rocketmq_sdk.spark.plan.offsets import QueueKey
from rocketmq_sdk.spark.plan.queue_state import Bounds

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping

    from rocketmq_sdk.client.runtime import Client
    from rocketmq_sdk.spark.options.settings import SparkOptions

logger = logging.getLogger("rocketmq_sdk.spark")
_INTERNAL: Final = ("%RETRY%", "%DLQ%")
AT_ONCE: Final = 16
"""Questions that are under way at the same time."""

S = TypeVar("S")
T = TypeVar("T")


class NoSuchTopicError(ConfigurationError):
    """A topic that should be read does not exist."""


async def broker_address(client: Client, broker: str, topic: str) -> str | None:
    """The address of a broker that serves reads of a topic (its whole name).

    The master, else a slave after refreshing the route. Where the name server does not
    know the topic, which may be so for a moment, the master that it knows: whether the
    topic is there is for the broker to say. None when neither is known.
    """
    address = client.broker_address(broker)
    if address is not None:
        return address
    try:
        await client.route(topic, refresh=True)
    except TopicNotFoundError:
        known = (await cluster_info(client)).broker_addr_table.get(broker)
        return None if known is None else known.broker_addrs.get(MASTER_ID)
    replica = client.brokers.subscribe_address(broker)
    return None if replica is None else replica.address


def _is_slave(client: Client, broker: str, address: str) -> bool:
    if client.broker_address(broker) is not None:
        return False
    replica = client.brokers.subscribe_address(broker)
    return replica is not None and replica.address == address


def read_group(client: Client, group: str) -> str:
    """The whole name of the group that reads name; tools' own is in no namespace."""
    return group if group == TOOLS_GROUP else client.namespace.wrap(group)


async def bounds_at(client: Client, broker: str, topic: str) -> dict[int, Bounds]:
    """Bounds of each queue of a topic (its whole name) at one broker.

    Asked once; raises what the call raises.

    """
    address = await broker_address(client, broker, topic)
    if address is None:
        raise RouteError(f"no route names the broker {broker!r}")
    lags = _is_slave(client, broker, address)
    table = (await topic_stats(client, address, topic)).offset_table
    return {
        queue.queue_id: Bounds(max(place.min_offset, 0), max(place.max_offset, 0), lags)
        for queue, place in table.items()
    }


class ClusterView:
    """The questions, for one set of options, by a client of this trio run."""

    def __init__(self, client: Client, settings: SparkOptions) -> None:
        self._client = client
        self._settings = settings

    async def _ask(
        self, what: str, call: Callable[[], Awaitable[T]], *, topic: str | None = None
    ) -> T:
        async def refresh() -> object:
            return (
                await self._client.route(self._client.namespace.wrap(topic), refresh=True)
                if topic is not None
                else None
            )

        return await persistently(
            what, self._settings.retry_timeout, call, refresh=refresh, final=(TopicNotFoundError,)
        )

    # --- queues

    async def topics(self) -> list[str]:
        """The topics that the options name, in order.

        Those of a pattern are the ones that exist now.
        """
        settings = self._settings
        if settings.assign is not None:
            return sorted({queue.topic for queue in settings.assign})
        if settings.subscribe is not None:
            return sorted(settings.subscribe)
        wanted = re.compile(settings.subscribe_pattern or "")
        names = await self._ask(
            "asking the name server for topics", lambda: topic_names(self._client)
        )
        usable = (
            name for name in names if not is_system_topic(name) and not name.startswith(_INTERNAL)
        )
        return sorted(
            {name for name in map(self._client.namespace.unwrap, usable) if wanted.fullmatch(name)}
        )

    async def queues(self, *, must_exist: bool = True) -> list[QueueKey]:
        """All queues to be read.

        Raises `NoSuchTopicError` for a topic that was named and does not exist, unless
        `must_exist` is false.
        """
        topics = await self.topics()
        found = await self._for_each(self._queues_of, topics)
        missing = (
            [topic for topic, queues in zip(topics, found, strict=True) if not queues]
            if must_exist
            else []
        )
        if missing and self._settings.subscribe_pattern is None:
            raise NoSuchTopicError(
                f"the topic {missing[0]!r} does not exist, or has no queue that may be read"
            )
        queues = sorted(queue for each in found for queue in each)
        assigned = self._settings.assign
        if assigned is None:
            return queues
        wrong = sorted(set(assigned) - set(queues))
        if wrong and must_exist:
            raise NoSuchTopicError(
                f"the queue {wrong[0]}, which is assigned, does not exist; the topic has "
                f"{shown(queues)}"
            )
        return sorted(set(assigned) & set(queues))

    async def _queues_of(self, topic: str) -> list[QueueKey]:
        wrapped = self._client.namespace.wrap(topic)

        async def route() -> Any:
            try:
                return await self._client.route(wrapped, refresh=True)
            except TopicNotFoundError:
                # A broker that starts again is unknown for a moment, and its topics
                # with it.
                if not (await cluster_info(self._client)).broker_addr_table:
                    raise RouteError("no broker is registered at the name server") from None
                raise

        try:
            found = await self._ask(f"asking for the route of topic {topic!r}", route)
        except TopicNotFoundError:
            return []
        return [
            QueueKey(topic, queue.broker_name, queue.queue_id)
            for queue in found.subscribe_queues(wrapped)
        ]

    async def bounds(self, queues: Iterable[QueueKey]) -> dict[QueueKey, Bounds]:
        """Begin and end of queues.

        Those of a topic that its broker does not have are left out.
        """
        places: dict[tuple[str, str], list[QueueKey]] = defaultdict(list)
        for queue in queues:
            places[queue.topic, queue.broker].append(queue)
        tables = await self._for_each(self._table, places)
        found: dict[QueueKey, Bounds] = {}
        for wanted, table in zip(places.values(), tables, strict=True):
            found.update(
                (queue, table[queue.queue_id]) for queue in wanted if queue.queue_id in table
            )
        return found

    async def bounds_in_time(
        self, queues: Iterable[QueueKey], patience: Mapping[str, float]
    ) -> tuple[dict[QueueKey, Bounds], set[str]]:
        """`bounds` of the brokers that answer in time, and the brokers that do not.

        `patience` has seconds for each broker, which are asked side by side. Errors
        that asking again may mend count as no answer.
        """
        by_broker: dict[str, list[QueueKey]] = defaultdict(list)
        for queue in queues:
            by_broker[queue.broker].append(queue)
        found: dict[QueueKey, Bounds] = {}
        silent: set[str] = set()

        async def ask(broker: str, wanted: list[QueueKey]) -> None:
            with trio.move_on_after(patience[broker]):
                try:
                    found.update(await self.bounds(wanted))
                except UnreachableError as error:
                    logger.debug("the broker %r does not answer: %s", broker, error)
                else:
                    return
            silent.add(broker)

        async with side_by_side() as nursery:
            for broker, wanted in by_broker.items():
                nursery.start_soon(ask, broker, wanted)
        return found, silent

    async def _table(self, place: tuple[str, str]) -> dict[int, Bounds]:
        topic, broker = place
        wrapped = self._client.namespace.wrap(topic)

        try:
            return await self._ask(
                f"asking the broker {broker!r} for the ends of topic {topic!r}",
                lambda: bounds_at(self._client, broker, wrapped),
                topic=topic,
            )
        except TopicNotFoundError:
            return {}

    async def without_master(self, brokers: Iterable[str]) -> set[str]:
        """Which of some brokers have no master registered at the name server now."""
        table = (
            await self._ask(
                "asking the name server for brokers", lambda: cluster_info(self._client)
            )
        ).broker_addr_table
        return {
            name
            for name in brokers
            if name not in table or MASTER_ID not in table[name].broker_addrs
        }

    async def wait_for_masters(self, queues: Iterable[QueueKey]) -> None:
        """Wait until all brokers of some queues have a master.

        Raises `UnreachableError` after `retryTimeout`.
        """
        wanted = sorted(queues)
        names = sorted({queue.broker for queue in wanted})

        async def look() -> None:
            away = await self.without_master(names)
            if away:
                raise RouteError(
                    f"no master of {', '.join(sorted(away))} is registered at the name server"
                )

        await self._ask(
            f"waiting for the brokers {', '.join(names)}, whose queues are being read "
            f"({shown(wanted)}),",
            look,
        )

    # --- times

    async def at_times(self, times: Mapping[QueueKey, int]) -> dict[QueueKey, int]:
        """The offset of the first message stored at or after a time, for each queue.

        The end of the queue where there is no such message.
        """
        return dict(zip(times, await self._for_each(self._at_time, times.items()), strict=True))

    async def _at_time(self, wanted: tuple[QueueKey, int]) -> int:
        queue, time = wanted
        wrapped = self._client.namespace.wrap(queue.topic)
        return await self._ask(
            f"asking the broker {queue.broker!r} for the offset of queue {queue} at {time}",
            lambda: search_offset(self._client, queue.broker, wrapped, queue.queue_id, time),
            topic=queue.topic,
        )

    # --- expressions

    async def check_expression(self, queues: Iterable[QueueKey]) -> None:
        """Ask each broker whether it can serve a SQL92 expression.

        The request is CHECK_CLIENT_CONFIG (46). Raises `ConfigurationError` with the
        answer of a broker that cannot.
        """
        settings = self._settings
        if settings.filter_type == "TAG":
            build_subscription("", settings.sub_expression, "TAG", sub_version=0)
            return
        places = sorted({(queue.broker, queue.topic) for queue in queues})
        await self._for_each(self._check_at, places)

    async def _check_at(self, place: tuple[str, str]) -> None:
        broker, topic = place
        settings = self._settings
        subscription = build_subscription(
            self._client.namespace.wrap(topic),
            settings.sub_expression,
            settings.filter_type,
            sub_version=1,
        )

        async def check() -> None:
            address = self._client.broker_address(broker)
            if address is None:
                raise RouteError(f"no route names a master of the broker {broker!r}")
            try:
                group = read_group(self._client, settings.read_group)
                await check_client_config(self._client, address, group, subscription)
            except BrokerError as error:
                if error.code in _BUSY:
                    raise
                what = f"the {settings.filter_type} expression {settings.sub_expression!r}"
                raise ConfigurationError(
                    f"the broker {broker!r} refuses {what}: {error.remark}"
                ) from error

        await self._ask(
            f"asking the broker {broker!r} whether it can filter topic {topic!r}",
            check,
            topic=topic,
        )

    @staticmethod
    async def _for_each(function: Callable[[S], Awaitable[T]], items: Iterable[S]) -> list[T]:
        """The results for items, asked concurrently, a few at a time.

        The first error ends the others.
        """
        results: dict[int, T] = {}
        limiter = trio.CapacityLimiter(AT_ONCE)

        async def one(number: int, item: S) -> None:
            async with limiter:
                results[number] = await function(item)

        async with side_by_side() as nursery:
            for number, item in enumerate(items):
                nursery.start_soon(one, number, item)
        return [results[number] for number in range(len(results))]


_BUSY: Final = frozenset({2, 14, 204, 215})


def shown(queues: list[QueueKey]) -> str:
    """The first queues of a list, for the text of an error."""
    first = ", ".join(map(str, queues[:5]))
    return f"{first}, ..." if len(queues) > 5 else first or "none"
