"""Reports of a consumer that owns queues.

Statistics and health for its user, and running info (307) for administrators.
"""

from __future__ import annotations

import sys
import traceback
from typing import TYPE_CHECKING, Final, Protocol

import attrs
import trio

from rocketmq_sdk.clock import elapsed
from rocketmq_sdk.consumer.health import (
    ConsumerHealth,
    ConsumerView,
    PopView,
    QueueView,
    TopicView,
    health_of,
)
from rocketmq_sdk.consumer.statistics import (
    ConsumerStatistics,
    Counters,
    PopStatistics,
    QueueStatistics,
    seconds_since,
)
from rocketmq_sdk.model.enums import ConsumeType
from rocketmq_sdk.names import origin_of_pop_retry, retry_topic
from rocketmq_sdk.protocol.bodies.connections import (
    ConsumerRunningInfo,
    ConsumeStatus,
    PopProcessQueueInfo,
    ProcessQueueInfo,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from rocketmq_sdk.client.runtime import Client
    from rocketmq_sdk.consumer.config import QueueConfig
    from rocketmq_sdk.consumer.group.owned_queue import OwnedQueue
    from rocketmq_sdk.consumer.group.rebalance import Rebalancer
    from rocketmq_sdk.consumer.pop.popped_queue import PoppedQueue
    from rocketmq_sdk.consumer.pull.process_queue import ProcessQueue
    from rocketmq_sdk.consumer.statistics import Rates
    from rocketmq_sdk.model.queue import MessageQueue
    from rocketmq_sdk.protocol.subscription import SubscriptionData

_MIB: Final = 1024 * 1024


class ReportedService(Protocol):
    """What hands messages on: the workers of a push consumer, or a `PollService`."""

    @property
    def counters(self) -> dict[str, Counters]:
        """Counters of what became of messages, by topic."""
        ...

    @property
    def consumed(self) -> int:
        """How many messages are done."""
        ...

    @property
    def failed(self) -> int:
        """How many deliveries failed."""
        ...

    @property
    def timed_out(self) -> int:
        """How many deliveries took too long."""
        ...

    @property
    def waiting_for_retry(self) -> int:
        """How many messages wait here to be delivered again."""
        ...

    @property
    def running_since(self) -> float:
        """When the longest running call of a listener began; infinity for none."""
        ...

    @property
    def is_saturated(self) -> bool:
        """Whether no worker is free for more messages."""
        ...

    @property
    def last_failure(self) -> str | None:
        """The last failure, as text."""
        ...


@attrs.frozen
class ConsumerReport:
    """The parts of one consumer that its reports are made from.

    `taker` is how health reports say what is too slow.
    """

    client: "Client"
    group: str
    config: "QueueConfig"
    subscriptions: "dict[str, SubscriptionData]"
    rebalancer: "Rebalancer"
    service: ReportedService
    rates: "Rates"
    started_ms: int
    orderly: bool = False
    concurrency: "Callable[[], int]" = lambda: 1
    consume_type: ConsumeType = ConsumeType.CONSUME_PASSIVELY
    taker: str = "that the listener has not done"
    pops: "Callable[[], Mapping[MessageQueue, PoppedQueue]]" = dict
    """The places that are popped."""

    def _caches(self) -> list[ProcessQueue]:
        rebalancer = self.rebalancer
        return [
            *(
                cache
                for owned in (*rebalancer.owned.values(), *rebalancer.leaving.values())
                for cache in owned.process_queues
            ),
            *self.pops().values(),
        ]

    def cached(self) -> tuple[int, int]:
        """Messages and bytes that are kept; may be asked in any thread."""
        caches = self._caches()
        return (
            sum(cache.message_count for cache in caches),
            sum(cache.byte_count for cache in caches),
        )

    def statistics(self) -> ConsumerStatistics:
        """The numbers of this moment."""
        rebalancer, service = self.rebalancer, self.service
        pops = self.pops()
        caches = self._caches()
        now, counters = trio.current_time(), service.counters
        named = self.client.namespace.unwrap_queue
        return ConsumerStatistics(
            queues=tuple(sorted(map(named, rebalancer.owned))),
            cached_messages=sum(cache.message_count for cache in caches),
            cached_bytes=sum(cache.byte_count for cache in caches),
            in_flight=sum(cache.in_flight for cache in caches),
            waiting_for_retry=service.waiting_for_retry,
            consumed=service.consumed,
            failed=service.failed,
            timed_out=service.timed_out,
            last_rebalance=rebalancer.last_round,
            by_queue={
                named(queue): self._queue(owned) for queue, owned in rebalancer.owned.items()
            },
            popped={named(queue): _popped(popped) for queue, popped in pops.items()},
            consumed_per_second=self.rates.per_second(now, counters, "consumed"),
            failed_per_second=self.rates.per_second(now, counters, "failed"),
            pulled_per_second=self.rates.per_second(now, counters, "pulled"),
            since_rebalance=seconds_since(rebalancer.last_round),
        )

    def _queue(self, owned: OwnedQueue) -> QueueStatistics:
        cache, puller = owned.process_queue, owned.puller
        offset = cache.commit_offset
        return QueueStatistics(
            offset=offset,
            lag=None if puller.max_offset is None else max(puller.max_offset - offset, 0),
            cached_messages=cache.message_count,
            cached_bytes=cache.byte_count,
            in_flight=cache.in_flight,
            last_pull=puller.last_pull,
            locked=cache.locked_until > elapsed() if self.orderly else None,
            since_pull=seconds_since(puller.last_pull),
        )

    def health(self) -> ConsumerHealth:
        """Whether the consumer is consuming and, if not, why."""
        rebalancer, service, pops = self.rebalancer, self.service, self.pops()
        names = self.client.namespace
        named = names.unwrap_queue
        topics = {
            names.unwrap(topic): TopicView(
                len(self.client.routes.subscribe_queues(topic)),
                sum(queue.topic == topic for queue in (*rebalancer.owned, *pops)),
                rebalancer.members.count,
                self.client.routes.problem(topic),
            )
            for topic in self.subscriptions
            if topic != retry_topic(self.group) and origin_of_pop_retry(topic, self.group) == topic
        }
        queues = {
            named(queue): QueueView(
                self._queue(owned),
                owned.puller.complaint,
                owned.process_queue.is_full,
                owned.process_queue.paused,
            )
            for queue, owned in rebalancer.owned.items()
        }
        view = ConsumerView(
            suspended=rebalancer.suspended,
            taker=self.taker,
            topics=topics,
            complaint=rebalancer.members.complaint,
            queues=queues,
            pops={
                named(queue): PopView(_popped(popped), popped.complaint, popped.is_full)
                for queue, popped in pops.items()
            },
            name_servers=tuple(self.client.troubles.of_name_servers()),
            refused=tuple(rebalancer.refused),
            untaken={named(queue): why for queue, why in rebalancer.untaken.items()},
            busy_for=max(trio.current_time() - service.running_since, 0.0),
            is_saturated=service.is_saturated,
            suspended_queues=service.waiting_for_retry if self.orderly else 0,
            last_failure=service.last_failure,
            waiting_for_retry=0 if self.orderly else service.waiting_for_retry,
        )
        return health_of(view)

    # -- for administrators

    def running_info(self, *, stacks: bool) -> ConsumerRunningInfo:
        """The answer to 307, with keys as Apache's tools print them."""
        return ConsumerRunningInfo(
            properties=self._properties(),
            subscription_set=tuple(self.subscriptions.values()),
            mq_table={
                queue: self._process_queue(queue, owned)
                for queue, owned in self.rebalancer.owned.items()
            },
            mq_pop_table={
                queue: PopProcessQueueInfo(
                    popped.message_count, last_pop_timestamp=self._epoch_ms(popped.last_pop)
                )
                for queue, popped in self.pops().items()
            },
            status_table={
                topic: self._status(topic, counters)
                for topic, counters in self.service.counters.items()
            },
            jstack=_stacks() if stacks else None,
        )

    def _properties(self) -> dict[str, str]:
        options = {
            attribute.name: str(getattr(self.config, attribute.name))
            for attribute in attrs.fields(type(self.config))
        }
        return {
            **options,
            "PROP_NAMESERVER_ADDR": self.client.name_server_text,
            "PROP_CONSUME_TYPE": self.consume_type.value,
            "PROP_CONSUMEORDERLY": "true" if self.orderly else "false",
            "PROP_THREADPOOL_CORE_SIZE": str(self.concurrency()),
            "PROP_CLIENT_VERSION": "PYTHON",
            "PROP_CONSUMER_START_TIMESTAMP": str(self.started_ms),
        }

    def _process_queue(self, queue: MessageQueue, owned: OwnedQueue) -> ProcessQueueInfo:
        cache, numbers = owned.process_queue, self._queue(owned)
        locks = self.rebalancer.locks
        held = None if locks is None else locks.held.get(queue)
        return ProcessQueueInfo(
            commit_offset=numbers.offset,
            cached_msg_min_offset=numbers.offset if cache.message_count else 0,
            cached_msg_max_offset=numbers.offset + cache.span if cache.message_count else 0,
            cached_msg_count=cache.message_count,
            cached_msg_size_in_mib=cache.byte_count // _MIB,
            locked=bool(numbers.locked),
            last_lock_timestamp=self._epoch_ms(held),
            last_pull_timestamp=self._epoch_ms(numbers.last_pull),
        )

    def _epoch_ms(self, moment: float | None) -> int:
        """A moment of trio's clock in epoch milliseconds; 0 for None."""
        return (
            0
            if moment is None
            else self.client.clock.now_ms() - round((trio.current_time() - moment) * 1000)
        )

    def _status(self, topic: str, counters: Counters) -> ConsumeStatus:
        seconds, grown = self.rates.change(trio.current_time(), topic, counters)
        if seconds <= 0:
            return ConsumeStatus(consume_failed_msgs=counters.failed)
        return ConsumeStatus(
            pull_rt=1000 * grown.pull_seconds / grown.pulls if grown.pulls else 0.0,
            pull_tps=grown.pulled / seconds,
            consume_rt=1000 * grown.consume_seconds / grown.consumed if grown.consumed else 0.0,
            consume_ok_tps=grown.consumed / seconds,
            consume_failed_tps=grown.failed / seconds,
            consume_failed_msgs=counters.failed,
        )


def _popped(popped: PoppedQueue) -> PopStatistics:
    return PopStatistics(
        popped.rest,
        popped.message_count,
        popped.byte_count,
        popped.in_flight,
        popped.last_pop,
        seconds_since(popped.last_pop),
    )


def _stacks() -> str:
    """The stacks of all threads as text."""
    parts = [
        f"thread {thread}\n{''.join(traceback.format_stack(frame))}"
        for thread, frame in sys._current_frames().items()
    ]
    return "\n".join(parts)
