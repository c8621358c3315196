"""The routes of the topics in use, kept fresh by one task.

Follows `MQClientInstance.updateTopicRouteInfoFromNameServer` of Apache RocketMQ 5.4.0.

Known routes are asked for again every 30 s. A topic without a route, or with one made
up from the default topic, is polled after 1 s and then more and more seldom; a call
that met a stale route has it asked for at once, at most once a second. A topic that
vanishes from the name servers keeps its last route: a name server forgets a broker that
restarts, and its clients should not.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

import attrs
import trio

from rocketmq_sdk.backoff import Backoff
from rocketmq_sdk.errors import ClosedError, RocketMQError, TopicNotFoundError
from rocketmq_sdk.log_fields import about
from rocketmq_sdk.sleeper import Sleeper

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from rocketmq_sdk.client.brokers import BrokerAddresses
    from rocketmq_sdk.model.queue import MessageQueue
    from rocketmq_sdk.model.route import TopicRoute

logger = logging.getLogger("rocketmq_sdk.client")
MINIMUM_PAUSE: Final = 1.0
"""Seconds between two queries of one topic that calls have asked for."""


class PublishInfo:
    """The queues of a topic that a producer may use (`TopicPublishInfo`).

    `provisional` tells that the topic is not known yet and the queues are those of the
    default topic, at which a broker will create it.
    """

    __slots__ = ("provisional", "queues", "topic")

    def __init__(self, topic: str, queues: list[MessageQueue], *, provisional: bool) -> None:
        self.topic = topic
        self.queues = queues
        self.provisional = provisional


@attrs.frozen
class DefaultTopic:
    """The fallback for a topic that does not exist.

    The template topic's name, and the most queues to use.
    """

    name: str
    queue_nums: int


class _Flight:
    """One query under way, and all that wait for it."""

    __slots__ = ("done", "error", "route")

    def __init__(self) -> None:
        self.done = trio.Event()
        self.route: TopicRoute | None = None
        self.error: RocketMQError | None = ClosedError(
            "the client was closed before the route was known"
        )


class _Entry:
    """What is known of one topic."""

    __slots__ = (
        "asked_at",
        "due",
        "misses",
        "problem",
        "provisional",
        "publish",
        "route",
        "topic",
        "users",
    )

    def __init__(self, topic: str) -> None:
        self.topic = topic
        self.route: TopicRoute | None = None
        self.publish: PublishInfo | None = None
        self.provisional = False
        self.users = 0
        self.misses = 0
        self.problem = ""
        self.asked_at = float("-inf")
        self.due = 0.0


def _signature(route: TopicRoute) -> object:
    """What must be equal for two routes to be the same.

    The order of queues and brokers does not matter.
    """
    brokers = sorted(
        (data.broker_name, data.cluster, sorted(data.broker_addrs.items()))
        for data in route.broker_datas
    )
    return sorted(route.queue_datas), brokers, route.order_topic_conf


def clamp_default_route(route: TopicRoute, queue_nums: int) -> TopicRoute:
    """The route that a topic will have once it is created from a template.

    It has at most `queue_nums` queues at each broker.
    """
    queue_datas = tuple(
        attrs.evolve(data, read_queue_nums=number, write_queue_nums=number)
        for data in route.queue_datas
        for number in (min(queue_nums, data.read_queue_nums),)
    )
    return attrs.evolve(route, queue_datas=queue_datas)


class RouteCache:
    """Routes by topic.

    `version` grows with every change of any route, so that what is derived from routes
    can be kept until then.
    """

    def __init__(
        self,
        ask: Callable[[str], Awaitable[TopicRoute]],
        brokers: BrokerAddresses,
        *,
        interval: float = 30.0,
        on_changed: Callable[[str], None] | None = None,
    ) -> None:
        self.version = 0
        self._ask = ask
        self._brokers = brokers
        self._interval = interval
        self._backoff = Backoff(first=1.0, limit=interval, factor=2.0, jitter=0.0)
        self._on_changed = on_changed
        self._entries: dict[str, _Entry] = {}
        self._flights: dict[tuple[str, DefaultTopic | None], _Flight] = {}
        self._nursery: trio.Nursery | None = None
        self._sleeper = Sleeper()

    def _entry(self, topic: str) -> _Entry:
        entry = self._entries.get(topic)
        if entry is None:
            entry = self._entries[topic] = _Entry(topic)
        return entry

    def use(self, topic: str) -> None:
        """Keep the route of a topic fresh until `release`."""
        entry = self._entry(topic)
        entry.users += 1
        if entry.users == 1:
            entry.due = max(trio.current_time(), entry.due)
            self._sleeper.wake_at(entry.due)

    def release(self, topic: str) -> None:
        """The counterpart of `use`."""
        entry = self._entries.get(topic)
        if entry is not None and entry.users:
            entry.users -= 1
            if not entry.users:
                del self._entries[topic]
                self._forget_brokers()

    def _forget_brokers(self) -> None:
        self._brokers.keep(
            {
                data.broker_name
                for entry in self._entries.values()
                if entry.route
                for data in entry.route.broker_datas
            }
        )

    def topics(self) -> list[str]:
        """The topics in use."""
        return [topic for topic, entry in self._entries.items() if entry.users]

    def get(self, topic: str) -> TopicRoute | None:
        """The route as it was last heard of.

        None when there is none, or only a provisional one.
        """
        entry = self._entries.get(topic)
        return None if entry is None or entry.provisional else entry.route

    def publish_info(self, topic: str) -> PublishInfo | None:
        """The queues to send to, None when there is no route yet."""
        entry = self._entries.get(topic)
        return None if entry is None else entry.publish

    def subscribe_queues(self, topic: str) -> list[MessageQueue]:
        """The queues to read, none when there is no route yet."""
        route = self.get(topic)
        return [] if route is None else route.subscribe_queues(topic)

    def readable_brokers(self, topic: str) -> list[str]:
        """Names of the brokers with queues to read, none when there is no route yet."""
        route = self.get(topic)
        return [] if route is None else route.readable_brokers()

    def problem(self, topic: str) -> str:
        """Why the last query for the route was not answered; empty when it was."""
        entry = self._entries.get(topic)
        return "" if entry is None else entry.problem

    def request_refresh(self, topic: str) -> None:
        """Have a route that is suspect asked for soon."""
        entry = self._entries.get(topic)
        if entry is not None and entry.users:
            due = max(trio.current_time(), entry.asked_at + MINIMUM_PAUSE)
            if due < entry.due:
                entry.due = due
                self._sleeper.wake_at(due)

    async def fetch(self, topic: str, default: DefaultTopic | None = None) -> TopicRoute:
        """Ask for the route now.

        Concurrent callers share one query; cancelling one does not disturb the others.

        With `default`, a topic that does not exist gets the route of the default topic,
        kept as provisional. Raises `TopicNotFoundError` when there is no route,
        `ConnectError` or `RequestTimeoutError` when no name server answers.
        """
        key = (topic, default)
        flight = self._flights.get(key)
        if flight is None:
            if self._nursery is None:
                raise ClosedError("the client is not running; no route can be asked for")
            flight = self._flights[key] = _Flight()
            self._nursery.start_soon(self._fly, key, flight)
        await flight.done.wait()
        if flight.error is None:
            assert flight.route is not None
            return flight.route
        try:
            raise flight.error
        finally:
            # The error's traceback has this frame: a circle that only a collection
            # would end, with all that the callers hold.
            del flight

    async def _fetch_here(self, topic: str) -> None:
        """`fetch` without a task for the query: the caller's ends with the client."""
        key = (topic, None)
        if key in self._flights:
            await self.fetch(topic)
            return
        flight = self._flights[key] = _Flight()
        try:
            await self._fly(key, flight)
            if flight.error is not None:
                raise flight.error
        finally:
            del flight  # as in `fetch`

    async def _fly(self, key: tuple[str, DefaultTopic | None], flight: _Flight) -> None:
        topic, default = key
        entry = self._entry(topic)
        entry.asked_at = trio.current_time()
        try:
            flight.route = await self._query(entry, default)
            flight.error = None
            entry.problem = ""
        except RocketMQError as error:
            flight.error = error
            entry.problem = "" if isinstance(error, TopicNotFoundError) else str(error)
            entry.misses += 1
            entry.due = trio.current_time() + self._backoff.delay(entry.misses - 1)
        finally:
            del self._flights[key]
            flight.done.set()
            if entry.users:
                self._sleeper.wake_at(entry.due)
            del flight  # as in `fetch`

    async def _query(self, entry: _Entry, default: DefaultTopic | None) -> TopicRoute:
        try:
            route = await self._ask(entry.topic)
        except TopicNotFoundError as error:
            if default is None or (entry.route is not None and not entry.provisional):
                raise
            try:
                template = await self._ask(default.name)
            except TopicNotFoundError:
                raise error from None  # who asks knows nothing of the default topic
            route = clamp_default_route(template, default.queue_nums)
            self._store(entry, route, provisional=True)
            entry.misses += 1
            entry.due = trio.current_time() + self._backoff.delay(entry.misses - 1)
        else:
            self._store(entry, route, provisional=False)
            entry.misses = 0
            entry.due = trio.current_time() + self._interval
        return route

    def _store(self, entry: _Entry, route: TopicRoute, *, provisional: bool) -> None:
        self._brokers.update(route)
        if (
            entry.route is not None
            and entry.provisional == provisional
            and (entry.route is route or _signature(entry.route) == _signature(route))
        ):
            return
        entry.route = route
        entry.provisional = provisional
        entry.publish = PublishInfo(
            entry.topic, route.publish_queues(entry.topic), provisional=provisional
        )
        self.version += 1
        self._forget_brokers()
        if self._on_changed is not None:
            self._on_changed(entry.topic)

    async def run(
        self,
        nursery: trio.Nursery,
        task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        """Keep the routes in use fresh until cancelled; queries live in `nursery`."""
        self._nursery = nursery
        try:
            task_status.started()
            await self._keep_fresh()
        finally:
            self._nursery = None

    async def _keep_fresh(self) -> None:
        while True:
            now = trio.current_time()
            due_now = [
                entry for entry in self._entries.values() if entry.users and entry.due <= now
            ]
            for entry in due_now:
                if not await self._refresh(entry):
                    for other in due_now:
                        other.due = max(other.due, entry.due)
                    break
            due = min(
                (entry.due for entry in self._entries.values() if entry.users), default=float("inf")
            )
            await self._sleeper.sleep_until(due)

    async def _refresh(self, entry: _Entry) -> bool:
        """Ask for one route that is due.

        False when no name server answers, so that the others wait as well.
        """
        try:
            await self._fetch_here(entry.topic)
        except TopicNotFoundError as error:
            logger.debug(
                "no route for topic %r: %s", entry.topic, error, extra=about(topic=entry.topic)
            )
        except RocketMQError as error:
            logger.warning(
                "the route of topic %r could not be asked for: %s",
                entry.topic,
                error,
                extra=about(topic=entry.topic),
            )
            return False
        return True
