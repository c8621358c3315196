"""A push consumer between its start and its end: its parts, wired together."""

import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, ClassVar, Final

import trio

from rocketmq_sdk.client.api.groups import group_config
from rocketmq_sdk.consumer.concurrent import ConcurrentService
from rocketmq_sdk.consumer.membership import INTRODUCTION_PAUSE, QueueMembership
from rocketmq_sdk.consumer.offsets.remote import RemoteOffsets
from rocketmq_sdk.consumer.orderly import OrderlyService
from rocketmq_sdk.consumer.pull import PullContext
from rocketmq_sdk.consumer.queue_locks import QueueLocks
from rocketmq_sdk.consumer.rebalance import Rebalancer
from rocketmq_sdk.consumer.retry import SendBack
from rocketmq_sdk.consumer.start_offset import DEFAULT_LOOK_BACK_MS, StartOffsets
from rocketmq_sdk.consumer.statistics import ConsumerStatistics
from rocketmq_sdk.consumer.workers import GiveBack, Listener, ListenerService
from rocketmq_sdk.errors import RocketMQError
from rocketmq_sdk.model.enums import ConsumeType, MessageModel
from rocketmq_sdk.names import retry_topic
from rocketmq_sdk.protocol.bodies.heartbeat import ConsumerData
from rocketmq_sdk.protocol.subscription import SubscriptionData, build_subscription

if TYPE_CHECKING:
    from rocketmq_sdk.client.runtime import Client
    from rocketmq_sdk.consumer.config import PushConfig

logger = logging.getLogger("rocketmq_sdk.consumer")

GROUP_INTERVAL: Final = 120.0
"""Seconds between two looks at the group's settings."""


class Member(QueueMembership):
    """Use it once: `async with member.started(nursery)`."""

    kind: ClassVar[str] = "push consumer"

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
        subscriptions = {topic: build_subscription(topic, *expression, sub_version=now) for topic, expression in wanted.items()}
        subscriptions[retry_topic(group)] = SubscriptionData(retry_topic(group), sub_version=now)
        super().__init__(client, group, subscriptions, own_client=own_client)
        self._config = config
        self._retries_of_group: int | None = None
        self._commit_interval = config.persist_consumer_offset_interval
        send_back = SendBack(client, group, most_retries=self._most_retries)
        self._service, orderly = _make_service(listener, group, config, send_back.give_back, self._most_retries)
        offsets = RemoteOffsets(client, group)
        timestamp = now - DEFAULT_LOOK_BACK_MS if config.consume_timestamp is None else config.consume_timestamp
        context = PullContext(client, group, config, self._service, offsets, self._introduce_again)
        start_offsets = StartOffsets(client, offsets, config.consume_from, timestamp)
        locks = QueueLocks(client, group) if orderly is not None else None
        self._rebalancer = Rebalancer(context, self._subscriptions, start_offsets, locks=locks, orderly=orderly)

    async def _begin(self, nursery: trio.Nursery) -> None:
        self._service.start(nursery)
        nursery.start_soon(self._read_group_forever)
        if self._config.orderly:
            nursery.start_soon(self._rebalancer.keep_locks)
        await super()._begin(nursery)

    def _most_retries(self) -> int:
        return self._config.most_retries(self._retries_of_group)

    async def _read_group_forever(self) -> None:
        """Keep up with how often the group may be delivered a message again, which an administrator may change."""
        while True:
            address = next(iter(self._client.brokers.all(masters_only=True)), None)
            if address is not None:
                try:
                    config = await group_config(self._client, address, self._group)
                except RocketMQError as error:
                    logger.debug("group %s: its settings can not be read at %s: %s", self._group, address, error)
                else:
                    self._retries_of_group = config.retry_max_times
            await trio.sleep(GROUP_INTERVAL if address is not None else INTRODUCTION_PAUSE)

    def on_broker_connected(self, address: str) -> None:
        """A broker is there, perhaps again: it may know neither the locks nor the member."""
        self._rebalancer.renew_locks()
        super().on_broker_connected(address)

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


def _make_service(
    listener: Listener, group: str, config: "PushConfig", give_back: GiveBack, most_retries: Callable[[], int]
) -> tuple[ListenerService, OrderlyService | None]:
    """Who runs the listener; a second time where that keeps the order of queues."""
    if config.orderly:
        orderly = OrderlyService(
            listener,
            group=group,
            batch=config.batch,
            concurrency=config.concurrency,
            suspension=config.suspend_current_queue_time,
            give_back=give_back,
            most_retries=most_retries,
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
