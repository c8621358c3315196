"""A member of a consumer group between its start and its end: the parts of a push consumer, wired together, and what brokers ask of it."""

import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Final

import trio

from rocketmq_sdk.client.api.groups import check_client_config
from rocketmq_sdk.client.callbacks import ConsumerCallbacks
from rocketmq_sdk.consumer.concurrent import ConcurrentService, Listener
from rocketmq_sdk.consumer.offsets.remote import RemoteOffsets
from rocketmq_sdk.consumer.pull import PullContext
from rocketmq_sdk.consumer.rebalance import Rebalancer
from rocketmq_sdk.consumer.retry import SendBack
from rocketmq_sdk.consumer.start_offset import DEFAULT_LOOK_BACK_MS, StartOffsets
from rocketmq_sdk.consumer.statistics import ConsumerStatistics
from rocketmq_sdk.errors import RocketMQError, RouteError
from rocketmq_sdk.lifecycle import open_quiet_nursery
from rocketmq_sdk.model.enums import ConsumeType, MessageModel
from rocketmq_sdk.names import retry_topic
from rocketmq_sdk.protocol.bodies.heartbeat import ConsumerData
from rocketmq_sdk.protocol.subscription import SubscriptionData, build_subscription

if TYPE_CHECKING:
    from rocketmq_sdk.client.runtime import Client
    from rocketmq_sdk.consumer.config import PushConfig
    from rocketmq_sdk.model.queue import MessageQueue

logger = logging.getLogger("rocketmq_sdk.consumer")

DRAIN_GRACE: Final = 8.0
CLOSE_NORMAL: Final = 10.0
CLOSE_HURRIED: Final = 2.0
INTRODUCTION_PAUSE: Final = 1.0
FIRST_ROUND: Final = 3.0
"""Seconds that entering the block waits at most for the first queues."""


class Member(ConsumerCallbacks):
    """Use it once: `async with member.started(nursery)`."""

    def __init__(
        self,
        client: "Client",
        group: str,
        config: "PushConfig",
        wanted: Mapping[str, tuple[str | None, str]],
        listener: Listener,
        *,
        own_client: bool,
    ) -> None:
        now = client.clock.now_ms()
        self._own_client = own_client
        self._client = client
        self._group = group
        self._config = config
        self._subscriptions = {topic: build_subscription(topic, *expression, sub_version=now) for topic, expression in wanted.items()}
        self._subscriptions[retry_topic(group)] = SubscriptionData(retry_topic(group), sub_version=now)
        send_back = SendBack(client, group, max_reconsume_times=config.effective_max_reconsume_times)
        self._service = ConcurrentService(
            listener,
            group=group,
            batch=config.batch,
            concurrency=config.concurrency,
            consume_timeout=config.consume_timeout,
            give_back=send_back.give_back,
        )
        offsets = RemoteOffsets(client, group)
        timestamp = now - DEFAULT_LOOK_BACK_MS if config.consume_timestamp is None else config.consume_timestamp
        context = PullContext(client, group, config, self._service, offsets, self._introduce_again)
        self._rebalancer = Rebalancer(context, self._subscriptions, StartOffsets(client, offsets, config.consume_from, timestamp))
        self._scope = trio.CancelScope()
        self._closing = trio.Event()
        self._ended = trio.Event()
        self._grace = 0.0
        self._introduced = float("-inf")

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
        """The whole life. Behind a shield once it runs, its own client too, so that a cancelled block still commits and unregisters."""
        try:
            with self._scope:
                async with AsyncExitStack() as stack:
                    if self._own_client:
                        await stack.enter_async_context(self._client)
                    self._client.register_consumer(self._group, self)
                    stack.push_async_callback(self._forget)
                    await self._introduce()
                    await self._consume(task_status)
                    await self._client.unregister_consumer(self._group)
        except RocketMQError:
            raise
        except Exception as error:
            raise RocketMQError(f"the push consumer of group {self._group!r} failed in the background: {error!r}") from error
        finally:
            self._ended.set()

    async def _forget(self) -> None:
        for topic in self._subscriptions:
            self._client.routes.release(topic)
        # Does nothing behind a regular end; else there is no time to wait for brokers.
        with trio.move_on_after(0.0, shield=True):
            await self._client.unregister_consumer(self._group)

    async def _consume(self, task_status: trio.TaskStatus[None]) -> None:
        async with open_quiet_nursery() as nursery:
            self._service.start(nursery)
            balancing, balanced = trio.CancelScope(), trio.Event()
            nursery.start_soon(self._balance, balancing, balanced, nursery)
            nursery.start_soon(self._commit_forever)
            with trio.move_on_after(FIRST_ROUND):
                await self._rebalancer.first_round.wait()
            self._scope.shield = True
            task_status.started()
            await self._closing.wait()
            balancing.cancel()
            # An answer that is there already still lets the task take one queue more.
            await balanced.wait()
            await self._rebalancer.close(self._grace)
            nursery.cancel_scope.cancel()

    async def _introduce(self) -> None:
        """Learn the routes, ask whether brokers can serve the subscriptions, and tell them who is here."""
        for topic in self._subscriptions:
            self._client.routes.use(topic)
        for topic, subscription in self._subscriptions.items():
            try:
                route = await self._client.route(topic)
            except RouteError as error:
                logger.info("group %s: topic %s has no route yet: %s", self._group, topic, error)
                continue
            except RocketMQError as error:
                logger.warning("group %s: no route can be asked for yet: %s", self._group, error)
                return
            if not subscription.is_tag_type and route.broker_datas:
                address = self._client.broker_address(route.broker_datas[0].broker_name)
                if address is not None:
                    await check_client_config(self._client, address, self._group, subscription)
        await self._client.heartbeat_now()

    async def _introduce_again(self) -> None:
        if trio.current_time() - self._introduced >= INTRODUCTION_PAUSE:
            self._introduced = trio.current_time()
            await self._client.heartbeat_now()

    async def _balance(self, scope: trio.CancelScope, ended: trio.Event, nursery: trio.Nursery) -> None:
        with scope:
            await self._rebalancer.run(nursery)
        ended.set()

    async def _commit_forever(self) -> None:
        while True:
            await trio.sleep(self._config.persist_consumer_offset_interval)
            await self._rebalancer.commit_all()

    def statistics(self) -> ConsumerStatistics:
        """Numbers of this moment."""
        rebalancer, service = self._rebalancer, self._service
        caches = [cache for owned in (*rebalancer.owned.values(), *rebalancer.leaving.values()) for cache in owned.process_queues]
        return ConsumerStatistics(
            queues=tuple(sorted(rebalancer.owned)),
            cached_messages=sum(cache.message_count for cache in caches),
            cached_bytes=sum(cache.byte_count for cache in caches),
            in_flight=sum(cache.in_flight for cache in caches),
            waiting_for_retry=service.waiting_for_retry,
            consumed=service.consumed,
            failed=service.failed,
            timed_out=service.timed_out,
            last_rebalance=rebalancer.last_round,
        )

    # -- what the client and brokers ask

    def heartbeat_data(self) -> ConsumerData:
        """The consumer's entry in the heartbeat."""
        return ConsumerData(
            self._group,
            ConsumeType.CONSUME_PASSIVELY,
            MessageModel.CLUSTERING,
            self._config.consume_from,
            tuple(self._subscriptions.values()),
            self._client.config.unit_mode,
        )

    def on_ids_changed(self) -> None:
        """Members came or went: rebalance now."""
        self._rebalancer.wake()

    def on_route_changed(self, topic: str) -> None:
        """A topic has other queues: rebalance now."""
        if topic in self._subscriptions:
            self._rebalancer.wake()

    def on_broker_connected(self, address: str) -> None:  # noqa: ARG002 - part of the interface
        """A broker is there, perhaps again: rebalance now."""
        self._rebalancer.wake()

    def on_reset_offsets(self, topic: str, offsets: "dict[MessageQueue, int]") -> None:
        """An administrator moves the group in a topic."""
        self._rebalancer.reset({queue: offset for queue, offset in offsets.items() if queue.topic == topic})

    def consumer_status(self, topic: str) -> "dict[MessageQueue, int]":
        """How far the owned queues of a topic are consumed."""
        return {queue: owned.process_queue.commit_offset for queue, owned in self._rebalancer.owned.items() if queue.topic == topic}
