"""The life of a member of a consumer group.

Learn the routes, send heartbeats, consume, and leave in time. What members do with
messages is up to the subclasses.
"""

from __future__ import annotations

import logging
from abc import abstractmethod
from contextlib import asynccontextmanager, nullcontext
from typing import TYPE_CHECKING, ClassVar, Final

import trio

from rocketmq_sdk.client.api.groups import group_config
from rocketmq_sdk.client.api.members import check_client_config
from rocketmq_sdk.client.callbacks import ConsumerCallbacks
from rocketmq_sdk.client.side_by_side import first_answer
from rocketmq_sdk.consumer.group.lag import group_lag
from rocketmq_sdk.consumer.group.missing_topics import MissingTopics
from rocketmq_sdk.consumer.trace import ConsumeTrace
from rocketmq_sdk.errors import (
    ConnectError,
    RequestTimeoutError,
    RocketMQError,
    RouteError,
    WrongRunError,
)
from rocketmq_sdk.lifecycle import open_quiet_nursery
from rocketmq_sdk.log_fields import about
from rocketmq_sdk.protocol.subscription import build_subscription

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from rocketmq_sdk.client.runtime import Client
    from rocketmq_sdk.consumer.group.rebalance import Rebalancer
    from rocketmq_sdk.model.queue import MessageQueue
    from rocketmq_sdk.model.route import TopicRoute
    from rocketmq_sdk.protocol.bodies.groups import GroupRetryPolicy, SubscriptionGroupConfig
    from rocketmq_sdk.protocol.subscription import SubscriptionData

logger = logging.getLogger("rocketmq_sdk.consumer")

DRAIN_GRACE: Final = 8.0
CLOSE_NORMAL: Final = 10.0
CLOSE_HURRIED: Final = 2.0
ABANDON: Final = 1.0
INTRODUCTION_PAUSE: Final = 1.0
GROUP_INTERVAL: Final = 120.0
"""Seconds between two reads of the group's settings."""
FIRST_ROUND: Final = 3.0
"""The most seconds that entering the block waits for the first queues."""


class Membership(ConsumerCallbacks):
    """One member of one group between its start and its end.

    Use it once: `async with member.started(nursery)`.
    """

    kind: ClassVar[str]
    """How the member is named in error messages."""

    def __init__(
        self,
        client: Client,
        group: str,
        subscriptions: dict[str, SubscriptionData],
        *,
        own_client: bool,
    ) -> None:
        self._client = client
        self._group = group
        self._subscriptions = subscriptions
        self._own_client = own_client
        self._scope = trio.CancelScope()
        self._closing = trio.Event()
        self._ended = trio.Event()
        self._grace = 0.0
        self._introduced = float("-inf")
        self._retries_of_group: int | None = None
        self._policy_of_group: GroupRetryPolicy | None = None
        self._missing = MissingTopics(client, group, subscriptions)
        self._trace = ConsumeTrace(client, group) if client.config.enable_trace else None

    @abstractmethod
    async def _begin(self, nursery: trio.Nursery) -> None:
        """Start consuming; tasks and periodic jobs live in `nursery`.

        Runs before the shield, so it may be cancelled.
        """

    @abstractmethod
    async def _finish(self, grace: float) -> None:
        """Stop consuming and commit; running work may take `grace` seconds.

        Runs behind the shield; the caller limits the time.
        """

    # -- life

    @asynccontextmanager
    async def started(self, nursery: trio.Nursery) -> AsyncIterator[None]:
        """Consume while the block runs."""
        graceful = False
        await nursery.start(self._live)
        try:
            yield
            # A block whose scope was cancelled may end before it notices.
            graceful = trio.current_effective_deadline() > float("-inf")
        finally:
            self._grace = DRAIN_GRACE if graceful else 0.0
            with trio.move_on_after(CLOSE_NORMAL if graceful else CLOSE_HURRIED, shield=True):
                self._closing.set()
                await self._ended.wait()
            self._scope.cancel()

    async def _live(self, task_status: trio.TaskStatus[None]) -> None:
        """The whole life, including that of a client of its own.

        Once consuming, it is shielded, so that a cancelled block still commits and
        unregisters.
        """
        try:
            with self._scope:
                async with self._client if self._own_client else nullcontext():
                    self._client.register_consumer(self._group, self)
                    try:
                        await self._introduce()
                        await self._consume(task_status)
                        await self._client.unregister_consumer(self._group)
                    finally:
                        await self._forget()
        except RocketMQError:
            raise
        except Exception as error:
            first = _first_of(error)
            if isinstance(first, RocketMQError):  # of several listeners
                raise first from error
            raise RocketMQError(
                f"the {self.kind} of group {self._group!r} failed in the background: {first!r}"
            ) from error
        finally:
            self._ended.set()

    async def _forget(self) -> None:
        for topic in self._subscriptions:
            self._client.routes.release(topic)
        # Does nothing after a regular end; otherwise there is no time to wait.
        with trio.move_on_after(0.0, shield=True):
            await self._client.unregister_consumer(self._group)

    async def _consume(self, task_status: trio.TaskStatus[None]) -> None:
        async with open_quiet_nursery() as nursery:
            try:
                await self._consume_in(nursery, task_status)
            finally:
                self._missing.run_in(None)
                self._client.jobs.leave(nursery)
            nursery.cancel_scope.cancel()

    async def _consume_in(self, nursery: trio.Nursery, task_status: trio.TaskStatus[None]) -> None:
        if self._trace is not None:
            nursery.start_soon(self._trace.dispatcher.run)
        self._missing.run_in(nursery)
        await self._begin(nursery)
        # Behind the shield an earlier cancellation would go unnoticed, and the
        # member would never end.
        await trio.lowlevel.checkpoint_if_cancelled()
        self._scope.shield = True
        task_status.started()
        try:
            await self._closing.wait()
            await self._finish(self._grace)
            if self._trace is not None:
                await self._trace.dispatcher.aclose()
        except BaseException:
            # A background task has failed, or Ctrl-C has interrupted a listener:
            # what is done is still committed.
            with trio.move_on_after(ABANDON, shield=True):
                try:
                    await self._abandon()
                except Exception:
                    logger.exception(
                        "group %s: what was done could not be committed",
                        self._group,
                        extra=about(group=self._group),
                    )
            raise

    async def _abandon(self) -> None:
        """Commit what is done when the consumer ends by a failure.

        Its tasks have ended. The caller limits the time.
        """

    async def _introduce(self) -> None:
        """Learn the routes, check the subscriptions at a broker, send a heartbeat."""
        for topic in self._subscriptions:
            self._client.routes.use(topic)
        for topic, subscription in self._subscriptions.items():
            try:
                route = await self._client.route(topic)
            except RouteError as error:
                self._missing.add(topic, error)
                continue
            except WrongRunError:
                raise
            except RocketMQError as error:
                logger.warning(
                    "group %s: no route can be asked for yet: %s",
                    self._group,
                    error,
                    extra=about(group=self._group),
                )
                for each in self._subscriptions:
                    self._missing.expect(each)
                return
            await self._check_subscription(subscription, route)
        await self._client.heartbeat_now()

    async def _check_subscription(self, subscription: SubscriptionData, route: TopicRoute) -> None:
        """Ask a broker whether it can serve a subscription that is not a list of tags.

        Raises the broker's error when it cannot.
        """
        if subscription.is_tag_type:
            return
        found = [self._client.broker_address(data.broker_name) for data in route.broker_datas]
        problem: RocketMQError | None = None

        async def check(address: str) -> bool | None:
            nonlocal problem
            try:
                await check_client_config(self._client, address, self._group, subscription)
            except (ConnectError, RequestTimeoutError) as error:
                problem = error
                return None
            return True

        checked = await first_answer([address for address in found if address], check)
        if checked is None and problem is not None:
            raise problem

    async def _introduce_again(self) -> None:
        if trio.current_time() - self._introduced >= INTRODUCTION_PAUSE:
            self._introduced = trio.current_time()
            await self._client.heartbeat_now()

    async def _read_group(self) -> float:
        """A periodic job: read the group's number of retries and its retry policy.

        An administrator may change them at any time.
        """
        addresses = self._client.brokers.all(masters_only=True)
        if not addresses:
            return INTRODUCTION_PAUSE

        async def ask(address: str) -> SubscriptionGroupConfig | None:
            try:
                return await group_config(self._client, address, self._group)
            except RocketMQError as error:
                logger.debug(
                    "group %s: its settings cannot be read at %s: %s",
                    self._group,
                    address,
                    error,
                    extra=about(group=self._group),
                )
                return None

        config = await first_answer(addresses, ask)
        if config is not None:
            self._retries_of_group = config.retry_max_times
            self._policy_of_group = config.group_retry_policy
        return GROUP_INTERVAL

    async def group_lag(self) -> dict[MessageQueue, int]:
        """What the whole group has not committed yet of the subscribed topics."""
        return await group_lag(self._client, self._group, tuple(self._subscriptions))

    # -- subscriptions

    async def subscribe(self, topic: str, expression: tuple[str | None, str]) -> None:
        """Add a topic, or change its expression; returns when brokers know.

        Raises a broker's error for an expression that it cannot serve.
        """
        known = self._subscriptions.get(topic)
        # Brokers keep the newest version, so two changes in a millisecond must differ.
        version = max(self._client.clock.now_ms(), 0 if known is None else known.sub_version + 1)
        subscription = build_subscription(topic, *expression, sub_version=version)
        if known is None:
            self._client.routes.use(topic)
        try:
            await self._check_subscription(subscription, await self._client.route(topic))
        except RouteError as error:
            self._missing.add(topic, error)
        except BaseException:
            if known is None:
                self._client.routes.release(topic)
            raise
        self._subscriptions[topic] = subscription
        await self._client.heartbeat_now()
        self._subscription_changed(topic)

    async def unsubscribe(self, topic: str) -> None:
        """Remove a topic; returns when brokers know.

        What was handed out is finished and committed.
        """
        if self._subscriptions.pop(topic, None) is None:
            return
        self._missing.forget(topic)
        self._client.routes.release(topic)
        self._subscription_changed(topic)
        await self._client.heartbeat_now()

    def _subscription_changed(self, topic: str) -> None:
        """Called when a topic was added or removed, or has another expression."""

    def on_route_changed(self, topic: str) -> None:
        """A topic has other queues, or has come."""
        self._missing.route_changed(topic)


def _first_of(error: Exception) -> Exception:
    """The first failure of those that came together."""
    while isinstance(error, ExceptionGroup):
        error = error.exceptions[0]
    return error


class QueueMembership(Membership):
    """A member that owns queues.

    `_rebalancer` decides which, and is told of changes of members, routes and offsets.
    """

    _rebalancer: Rebalancer
    _commit_interval: float | None
    """Seconds between two commits of what is consumed.

    None: only the user commits.
    """
    _balancing: trio.CancelScope
    _balanced: trio.Event

    async def _begin(self, nursery: trio.Nursery) -> None:
        self._balancing, self._balanced = trio.CancelScope(), trio.Event()
        nursery.start_soon(self._balance, nursery)
        if self._commit_interval is not None:
            self._client.jobs.add(
                nursery, self._commit, self._commit_interval, self._nothing_to_commit
            )
            self._rebalancer.standstill.expect(self._commit_interval)
        with trio.move_on_after(FIRST_ROUND):
            await self._rebalancer.first_round.wait()

    async def _finish(self, grace: float) -> None:
        self._balancing.cancel()
        # An answer that has already arrived may still make the task take one more
        # queue.
        await self._balanced.wait()
        await self._rebalancer.close(grace)

    async def _balance(self, nursery: trio.Nursery) -> None:
        with self._balancing:
            await self._rebalancer.run(nursery)
        self._balanced.set()

    async def _abandon(self) -> None:
        if self._commit_interval is not None:
            await self._rebalancer.commit_all()

    def _nothing_to_commit(self) -> float | None:
        if self._rebalancer.has_to_commit():
            return None
        assert self._commit_interval is not None
        self._rebalancer.standstill.expect(self._commit_interval)
        return self._commit_interval

    async def _commit(self) -> float:
        """A periodic job: commit what is consumed."""
        assert self._commit_interval is not None
        await self._rebalancer.commit_all()
        self._rebalancer.standstill.expect(self._commit_interval)
        return self._commit_interval

    def _subscription_changed(self, topic: str) -> None:
        subscription = self._subscriptions.get(topic)
        if subscription is not None:
            for queue, owned in self._rebalancer.owned.items():
                if queue.topic == topic:
                    owned.puller.resubscribe(subscription)
        self._rebalancer.wake()

    # -- what the client and brokers ask

    def on_ids_changed(self) -> None:
        """Members have come or gone: rebalance now."""
        self._rebalancer.members_changed()

    def on_route_changed(self, topic: str) -> None:
        """A topic has other queues: rebalance now."""
        super().on_route_changed(topic)
        if topic in self._subscriptions:
            self._rebalancer.wake()

    def on_broker_disconnected(self, broker_name: str) -> None:
        """A broker is away, and may give our queues to other members."""
        self._rebalancer.members.broker_away(broker_name)
        self._rebalancer.doubt(broker_name)

    def on_broker_connected(self, address: str) -> None:
        """A broker is connected, perhaps again: rebalance now."""
        if (broker_name := self._client.brokers.name_of(address)) is not None:
            self._rebalancer.members.broker_connected(broker_name)
        self._rebalancer.wake()

    def on_reset_offsets(self, topic: str, offsets: dict[MessageQueue, int]) -> None:
        """An administrator resets the group's offsets in a topic."""
        self._rebalancer.reset(
            {queue: offset for queue, offset in offsets.items() if queue.topic == topic}
        )

    def consumer_status(self, topic: str) -> dict[MessageQueue, int]:
        """The offsets up to which the owned queues of a topic are consumed."""
        return {
            queue: owned.process_queue.commit_offset
            for queue, owned in self._rebalancer.owned.items()
            if queue.topic == topic
        }
