"""A push consumer between its start and its end.

Its parts, wired together, and the answers to users and brokers.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, ClassVar, Final

from rocketmq_sdk.client.observers import installed, tell
from rocketmq_sdk.consumer.failures import tell_watchers
from rocketmq_sdk.consumer.group.assigned_queues import AssignedQueues
from rocketmq_sdk.consumer.group.consumer_report import ConsumerReport
from rocketmq_sdk.consumer.group.membership import QueueMembership
from rocketmq_sdk.consumer.group.queue_locks import QueueLocks
from rocketmq_sdk.consumer.group.rebalance import Rebalancer
from rocketmq_sdk.consumer.group.start_offset import DEFAULT_LOOK_BACK_MS, StartOffsets
from rocketmq_sdk.consumer.group.unshared_queues import AllQueues
from rocketmq_sdk.consumer.hooks import hooked
from rocketmq_sdk.consumer.offsets.local import LocalOffsets
from rocketmq_sdk.consumer.offsets.remote import RemoteOffsets
from rocketmq_sdk.consumer.outcome import ConsumeOrderlyStatus, ListenerAnswer
from rocketmq_sdk.consumer.pop.places import PopPlaces
from rocketmq_sdk.consumer.pop.receipt import PoppedMessage
from rocketmq_sdk.consumer.pull.puller import PullContext
from rocketmq_sdk.consumer.push.concurrent import ConcurrentService
from rocketmq_sdk.consumer.push.orderly import OrderlyService
from rocketmq_sdk.consumer.send_back import SendBack
from rocketmq_sdk.consumer.statistics import ConsumerStatistics, Rates
from rocketmq_sdk.log_fields import about
from rocketmq_sdk.model.enums import ConsumeType
from rocketmq_sdk.model.properties import RETRY_TOPIC
from rocketmq_sdk.names import origin_of_pop_retry, retry_topic
from rocketmq_sdk.protocol.bodies.connections import ConsumeMessageDirectlyResult, ConsumeResult
from rocketmq_sdk.protocol.bodies.members import ConsumerData
from rocketmq_sdk.protocol.subscription import SubscriptionData, build_subscription

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import trio

    from rocketmq_sdk.client.callbacks import DirectConsumption
    from rocketmq_sdk.client.runtime import Client
    from rocketmq_sdk.consumer.config import PushConfig
    from rocketmq_sdk.consumer.health import ConsumerHealth
    from rocketmq_sdk.consumer.listener import Listener
    from rocketmq_sdk.consumer.push.listener_service import GiveBack, ListenerService
    from rocketmq_sdk.model.received import ReceivedMessage
    from rocketmq_sdk.protocol.bodies.connections import ConsumerRunningInfo

logger = logging.getLogger("rocketmq_sdk.consumer")


class PushMember(QueueMembership):
    """One push consumer; use it once: `async with member.started(nursery)`."""

    kind: ClassVar[str] = "push consumer"

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
        super().__init__(
            client, group, _subscriptions(group, config, wanted, now), own_client=own_client
        )
        self._config = config
        self._places: PopPlaces | None = None
        self._commit_interval = config.persist_consumer_offset_interval
        self._send_back = SendBack(client, group, most_retries=self._most_retries)
        give_back = self._forget_failure if config.broadcasting else self._give_back
        self._service, orderly = _make_service(
            listener, group, config, give_back, self._most_retries
        )
        self._service.broadcasting = config.broadcasting
        self._observers = installed()
        if hooks := (*config.consume_hooks, *self._observers):
            self._service.wrap_listener(partial(hooked, group=group, hooks=hooks, client=client))
        if self._trace is not None:
            self._service.wrap_listener(self._trace.around)
        self._local = (
            LocalOffsets(config.local_offset_store_dir, client.client_id, group)
            if config.broadcasting
            else None
        )
        offsets = self._local or RemoteOffsets(client, group)
        context = PullContext(
            client,
            group,
            config,
            self._service,
            offsets,
            self._introduce_again,
            local_offsets=config.broadcasting,
        )
        self._rebalancer = self._make_rebalancer(context, orderly, now)
        self._rates = Rates()
        self._report = ConsumerReport(
            client,
            group,
            config,
            self._subscriptions,
            self._rebalancer,
            self._service,
            self._rates,
            now,
            orderly=config.orderly,
            concurrency=lambda: self._service.concurrency,
            pops=dict if self._places is None else self._places.held,
            taker=f"that the listener has not {'done' if config.auto_commit else 'committed'}",
        )

    def _make_rebalancer(
        self, context: PullContext, orderly: OrderlyService | None, now_ms: int
    ) -> Rebalancer:
        """What decides which queues are owned.

        Sets `_places` when a broker assigns the queues.
        """
        config, subscriptions = self._config, self._subscriptions
        timestamp = (
            now_ms - DEFAULT_LOOK_BACK_MS
            if config.consume_timestamp is None
            else config.consume_timestamp
        )
        start_offsets = StartOffsets(self._client, context.offsets, config.consume_from, timestamp)
        if config.broadcasting:
            return AllQueues(context, subscriptions, start_offsets, orderly=orderly)
        if not config.asks_broker:
            locks = QueueLocks(self._client, self._group) if orderly is not None else None
            return Rebalancer(context, subscriptions, start_offsets, locks=locks, orderly=orderly)
        assert isinstance(self._service, ConcurrentService)
        self._places = PopPlaces(
            self._client,
            self._group,
            config,
            self._service,
            self._most_retries,
            lambda: self._policy_of_group,
        )
        self._places.subscriptions = subscriptions
        assigned = AssignedQueues(context, subscriptions, start_offsets)
        assigned.places = self._places
        return assigned

    # -- life

    async def _begin(self, nursery: trio.Nursery) -> None:
        if self._local is not None:
            self._local.load()
        self._service.start(nursery)
        self._client.jobs.add_quick(nursery, self._rates.sampling(self._service.counters))
        if self._config.broadcasting:
            interval = self._config.persist_consumer_offset_interval
            self._client.jobs.add(nursery, self._flush, interval)
        else:
            self._client.jobs.add(nursery, self._read_group)
        if self._places is not None:
            nursery.start_soon(self._places.acks.run)
        if self._rebalancer.locks is not None:
            nursery.start_soon(self._rebalancer.keep_locks)
        await super()._begin(nursery)

    async def _finish(self, grace: float) -> None:
        if self._places is not None:
            self._balancing.cancel()
            await self._balanced.wait()
            await self._places.close(grace)
        await super()._finish(grace)

    async def _abandon(self) -> None:
        if self._places is not None:
            await self._places.acks.flush()
        await super()._abandon()

    async def _forget(self) -> None:
        if self._local is not None:
            self._local.flush()
            self._local.release()
        await super()._forget()

    async def _flush(self) -> float:
        """A periodic job: write the offsets of a broadcasting member."""
        assert self._local is not None
        self._local.flush()
        return self._config.persist_consumer_offset_interval

    def _most_retries(self) -> int:
        return self._config.most_retries(self._retries_of_group)

    async def _give_back(self, message: ReceivedMessage, delay_level: int) -> bool:
        if self._places is not None and isinstance(message, PoppedMessage):
            return await self._places.give_back(message, delay_level)
        return await self._send_back.give_back(message, delay_level)

    async def _forget_failure(self, message: ReceivedMessage, _delay_level: int) -> bool:
        """Broadcasting: a failed message is not delivered again, here or elsewhere.

        The service has said so in the log, with the reason.
        """
        logger.debug(
            "group %s: message %s failed and is left out: broadcasting has no retries",
            self._group,
            message.message_id,
            extra=about(group=self._group, message_id=message.message_id),
        )
        return True

    # -- what users ask

    def opened(self) -> None:
        """Tell the observers of all clients that it is there."""
        tell(
            [observer.consumer_opened for observer in self._observers],
            self._group,
            self._client.client_id,
            self._report,
        )

    def closed(self) -> None:
        """Tell them that it is gone."""
        tell(
            [observer.consumer_closed for observer in self._observers],
            self._group,
            self._client.client_id,
        )

    def statistics(self) -> ConsumerStatistics:
        """The numbers of this moment."""
        return self._report.statistics()

    def health(self) -> ConsumerHealth:
        """Whether the consumer is consuming and, if not, why."""
        return self._report.health()

    def set_concurrency(self, concurrency: int) -> None:
        """Change how many calls of the listener may run at the same time."""
        self._service.resize(concurrency)

    def suspend(self) -> None:
        """Stop pulling and taking queues."""
        self._rebalancer.suspend()

    def resume(self) -> None:
        """Undo `suspend`."""
        self._rebalancer.resume()

    # -- what brokers ask

    def heartbeat_data(self) -> ConsumerData:
        """The consumer's entry in the heartbeat."""
        return ConsumerData(
            self._group,
            ConsumeType.CONSUME_PASSIVELY,
            self._config.message_model,
            self._config.consume_from,
            tuple(self._subscriptions.values()),
            self._client.config.unit_mode,
        )

    def on_broker_connected(self, address: str) -> None:
        """A broker is connected, perhaps again: renew the locks and rebalance.

        It may know neither the locks nor the member.
        """
        self._rebalancer.renew_locks()
        super().on_broker_connected(address)

    def on_broker_disconnected(self, broker_name: str) -> None:
        """A broker is away: it may give our queues and locks to others meanwhile."""
        super().on_broker_disconnected(broker_name)
        self._rebalancer.distrust_locks(broker_name)

    def running_info(self, *, stacks: bool) -> ConsumerRunningInfo:
        """The state of the consumer (307)."""
        return self._report.running_info(stacks=stacks)

    def consume_directly(
        self, message: ReceivedMessage, broker_name: str | None
    ) -> DirectConsumption:
        """Have the listener take one message now (309)."""
        return _consume_directly(
            self._service,
            self._client,
            self._group,
            message,
            broker_name,
            orderly=self._config.orderly,
        )


_DIRECT: Final = {
    ConsumeOrderlyStatus.COMMIT: ConsumeResult.COMMIT,
    ConsumeOrderlyStatus.ROLLBACK: ConsumeResult.ROLLBACK,
}


def _subscriptions(
    group: str, config: PushConfig, wanted: Mapping[str, tuple[str | None, str]], now_ms: int
) -> dict[str, SubscriptionData]:
    """The user's subscriptions and the group's retry topic."""
    found = {
        topic: build_subscription(topic, *expression, sub_version=now_ms)
        for topic, expression in wanted.items()
    }
    if not config.broadcasting:
        found[retry_topic(group)] = SubscriptionData(retry_topic(group), sub_version=now_ms)
    return found


def _make_service(
    listener: Listener,
    group: str,
    config: PushConfig,
    give_back: GiveBack,
    most_retries: Callable[[], int],
) -> tuple[ListenerService, OrderlyService | None]:
    """What runs the listener, twice if it keeps the order of queues."""
    if config.orderly:
        orderly = OrderlyService(
            listener,
            group=group,
            batch=config.batch,
            concurrency=config.concurrency,
            suspension=config.suspend_current_queue_time,
            give_back=give_back,
            most_retries=most_retries,
            auto_commit=config.auto_commit,
        )
        return orderly, orderly
    service = ConcurrentService(
        listener,
        group=group,
        batch=config.batch,
        concurrency=config.concurrency,
        consume_timeout=config.consume_timeout,
        give_back=give_back,
        most_retries=most_retries,
    )
    return service, None


def _consume_directly(
    service: ListenerService,
    client: Client,
    group: str,
    message: ReceivedMessage,
    broker_name: str | None,
    *,
    orderly: bool,
) -> DirectConsumption:
    """A function that hands the message to the listener and reports the result.

    The message is as a pull would return it. No offset moves and nothing is sent back.
    Follows `ConsumeMessageConcurrentlyService.consumeMessageDirectly` of Apache
    RocketMQ 5.4.0.
    """
    clock = client.clock

    async def run() -> ConsumeMessageDirectlyResult:
        if message.topic == retry_topic(group):
            message.topic = message.properties.get(RETRY_TOPIC) or message.topic
        message.topic = client.namespace.unwrap(origin_of_pop_retry(message.topic, group))
        message.broker_name = broker_name or message.broker_name
        began = clock.now_ms()
        result, remark = ConsumeResult.SUCCESS, None
        try:
            answer = await service.consume_directly(message)
            if answer is not None:
                result = _DIRECT[answer]
        except ListenerAnswer as answer:
            result, remark = ConsumeResult.LATER, repr(answer)
        except Exception as error:
            tell_watchers(f"group {group}: the listener failed with {error!r}", error)
            logger.warning(
                "the listener failed on message %s, which it was handed directly",
                message.message_id,
                exc_info=True,
                extra=about(message_id=message.message_id),
            )
            result, remark = ConsumeResult.THROW_EXCEPTION, repr(error)
        return ConsumeMessageDirectlyResult(orderly, True, result, remark, clock.now_ms() - began)

    return run
