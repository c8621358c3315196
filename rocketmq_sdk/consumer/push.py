"""`PushConsumer`: messages come to a listener (`DefaultMQPushConsumer`, clustering and concurrent, of Apache RocketMQ 5.4.0)."""

import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self, Unpack

import trio

from rocketmq_sdk.client.api.groups import check_client_config
from rocketmq_sdk.client.callbacks import ConsumerCallbacks
from rocketmq_sdk.client.config import CLIENT_OPTIONS, NamesrvSource, refuse_unknown
from rocketmq_sdk.client.runtime import Client
from rocketmq_sdk.consumer.concurrent import ConcurrentService, Listener
from rocketmq_sdk.consumer.config import PUSH_OPTIONS, PushConfig, PushOptions
from rocketmq_sdk.consumer.offsets.remote import RemoteOffsets
from rocketmq_sdk.consumer.pull import PullContext
from rocketmq_sdk.consumer.rebalance import Rebalancer
from rocketmq_sdk.consumer.retry import SendBack
from rocketmq_sdk.consumer.start_offset import DEFAULT_LOOK_BACK_MS, StartOffsets
from rocketmq_sdk.consumer.statistics import ConsumerStatistics
from rocketmq_sdk.errors import ClosedError, ConfigurationError, RocketMQError, RouteError
from rocketmq_sdk.lifecycle import open_quiet_nursery
from rocketmq_sdk.model.enums import ConsumeType, ExpressionType, MessageModel
from rocketmq_sdk.names import check_group, retry_topic, topic_problem
from rocketmq_sdk.protocol.bodies.heartbeat import ConsumerData
from rocketmq_sdk.protocol.subscription import SubscriptionData, build_subscription

if TYPE_CHECKING:
    from rocketmq_sdk.model.queue import MessageQueue

logger = logging.getLogger("rocketmq_sdk.consumer")

Subscription = str | tuple[str, ExpressionType | str] | None
"""A tag expression (`"a || b"`, `"*"` or None for all), or an expression with its type."""

DRAIN_GRACE: Final = 8.0
CLOSE_NORMAL: Final = 10.0
CLOSE_HURRIED: Final = 2.0
INTRODUCTION_PAUSE: Final = 1.0
FIRST_ROUND: Final = 3.0
"""Seconds that entering the block waits at most for the first queues."""


class PushConsumer:
    """A member of a consumer group that hands each message to a listener.

    ```
    async with PushConsumer("billing", namesrv=..., subscriptions={"orders": "paid || refunded"}, listener=on_order):
        ...
    ```

    `listener` takes one message (with `batch` above 1 a list) and is an async function, or a plain one that runs in a worker thread. Returning means
    done; an exception means later, after a delay that grows with each attempt and in the end in the dead letter topic. `ConsumeLater` and
    `RejectMessage` choose. A message may be delivered more than once. A listener that runs longer than `consume_timeout` is cancelled (a thread
    goes on, its result ignored) and its message is sent back. Give `namesrv`, or a `Client` to share as `client`; all else is in `PushConfig` and
    `ClientConfig`.

    Entering the block returns when brokers know the member and it has its first queues, or after three seconds. Leaving it stops pulling, lets
    running listeners finish for up to 8 seconds, commits and unregisters, in 10 seconds at most; leaving it by an exception or cancellation cancels
    the listeners and takes at most 2. What was not consumed is delivered again to whoever owns the queue. Raises `ConfigurationError` for settings
    that are not acceptable; a failure in the background cancels the block and is raised from it as one `RocketMQError`.
    """

    def __init__(
        self,
        group: str,
        *,
        subscriptions: Mapping[str, Subscription],
        listener: Listener,
        namesrv: NamesrvSource | None = None,
        client: Client | None = None,
        **options: Unpack[PushOptions],
    ) -> None:
        check_group(group)
        refuse_unknown(options, PUSH_OPTIONS | CLIENT_OPTIONS, "PushConsumer")
        if not callable(listener):
            raise ConfigurationError(f"the listener is {listener!r}, which can not be called")
        self.group = group
        self.config = PushConfig(**{name: value for name, value in options.items() if name in PUSH_OPTIONS})  # type: ignore[arg-type]
        client_options = {name: value for name, value in options.items() if name in CLIENT_OPTIONS}
        if client is not None and (namesrv is not None or client_options):
            raise ConfigurationError("give either client= or the settings of a client of its own")
        self._listener = listener
        self._own_client = client is None
        self._client = client or Client(namesrv, **client_options)  # type: ignore[arg-type]
        self._wanted = _checked_subscriptions(subscriptions)
        self._running: _Running | None = None
        self._context: AbstractAsyncContextManager[None] | None = None

    async def __aenter__(self) -> Self:
        if self._context is not None:
            raise ClosedError("a consumer runs once; make a new one")
        self._context = self._run()
        await self._context.__aenter__()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> bool | None:
        assert self._context is not None
        return await self._context.__aexit__(kind, error, traceback)

    @asynccontextmanager
    async def _run(self) -> AsyncIterator[None]:
        self._running = running = _Running(self._client, self.group, self.config, self._wanted, self._listener, own_client=self._own_client)
        async with open_quiet_nursery() as nursery, running.started(nursery):
            yield

    def statistics(self) -> ConsumerStatistics:
        """What the consumer owns, holds and has done."""
        return ConsumerStatistics() if self._running is None else self._running.statistics()


def _checked_subscriptions(subscriptions: Mapping[str, Subscription]) -> dict[str, tuple[str | None, str]]:
    if not subscriptions:
        raise ConfigurationError("subscriptions is empty; name at least one topic")
    checked: dict[str, tuple[str | None, str]] = {}
    for topic, wanted in subscriptions.items():
        if problem := topic_problem(topic):
            raise ConfigurationError(problem)
        expression, kind = wanted if isinstance(wanted, tuple) else (wanted, ExpressionType.TAG)
        checked[topic] = expression, kind.value if isinstance(kind, ExpressionType) else kind
        build_subscription(topic, *checked[topic], sub_version=0)
    return checked


class _Running(ConsumerCallbacks):
    """A consumer between start and end: its parts, wired together, and what brokers ask of it."""

    def __init__(
        self,
        client: Client,
        group: str,
        config: PushConfig,
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
            balancing = trio.CancelScope()
            nursery.start_soon(self._balance, balancing, nursery)
            nursery.start_soon(self._commit_forever)
            with trio.move_on_after(FIRST_ROUND):
                await self._rebalancer.first_round.wait()
            self._scope.shield = True
            task_status.started()
            await self._closing.wait()
            balancing.cancel()
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

    async def _balance(self, scope: trio.CancelScope, nursery: trio.Nursery) -> None:
        with scope:
            await self._rebalancer.run(nursery)

    async def _commit_forever(self) -> None:
        while True:
            await trio.sleep(self._config.persist_consumer_offset_interval)
            await self._rebalancer.commit_all()

    def statistics(self) -> ConsumerStatistics:
        """Numbers of this moment."""
        rebalancer, service = self._rebalancer, self._service
        caches = [owned.process_queue for owned in (*rebalancer.owned.values(), *rebalancer.leaving.values())]
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
