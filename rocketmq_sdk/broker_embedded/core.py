"""Handlers of requests by subject. Each module offers `handlers(context)`, a table from
request code to handler; `broker.py` joins them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

    from rocketmq_sdk.broker_embedded.filter.consumer_filters import ConsumerFilterManager
    from rocketmq_sdk.broker_embedded.members.assignment import TopicQueues
    from rocketmq_sdk.broker_embedded.members.consumers import ConsumerManager
    from rocketmq_sdk.broker_embedded.members.producers import ProducerManager
    from rocketmq_sdk.broker_embedded.members.queue_locks import QueueLocks
    from rocketmq_sdk.broker_embedded.pop.service import PopService
    from rocketmq_sdk.broker_embedded.pull.broadcast_offsets import BroadcastOffsetManager
    from rocketmq_sdk.broker_embedded.pull.long_polling import PullHolder
    from rocketmq_sdk.broker_embedded.replication.role import Replication
    from rocketmq_sdk.broker_embedded.send.put import PutPipeline
    from rocketmq_sdk.broker_embedded.settings.config import LiveConfig
    from rocketmq_sdk.broker_embedded.store.message_store import MessageStore
    from rocketmq_sdk.broker_embedded.tables.groups import GroupManager
    from rocketmq_sdk.broker_embedded.tables.offsets import ConsumerOffsetManager
    from rocketmq_sdk.broker_embedded.tables.stats import BrokerStats
    from rocketmq_sdk.broker_embedded.tables.topics import TopicManager
    from rocketmq_sdk.broker_embedded.timers.schedule import ScheduleService
    from rocketmq_sdk.broker_embedded.timers.service import TimerService
    from rocketmq_sdk.broker_embedded.transactions.check import TransactionCheckService
    from rocketmq_sdk.broker_embedded.transactions.table import TransactionTable
    from rocketmq_sdk.clock import Clock

FAQ: Final = "\nSee https://rocketmq.apache.org/docs/bestPractice/06FAQ for further details."
"""What Apache appends to remarks that users ask about."""


class BrokerContext:
    """What processors work with. Made by the composition root, handed around as it is.

    `store_host` is the packed address in records and message ids, `address()` the
    `host:port` that others reach the broker at, `boot_ms` epoch milliseconds of the
    start. `topic_deleted` and `group_deleted` tell those who keep something about a
    topic or group that it is gone.
    """

    __slots__ = (
        "address",
        "boot_ms",
        "broadcast_offsets",
        "clock",
        "config",
        "consumers",
        "filters",
        "group_deleted",
        "groups",
        "held_pulls",
        "locks",
        "offsets",
        "pop",
        "producers",
        "put",
        "registered",
        "replication",
        "schedule",
        "stats",
        "store",
        "store_host",
        "timers",
        "topic_deleted",
        "topic_queues",
        "topics",
        "transaction_checks",
        "transactions",
    )

    clock: Clock
    config: LiveConfig
    store: MessageStore
    store_host: bytes
    address: Callable[[], str]
    boot_ms: int
    topics: TopicManager
    groups: GroupManager
    offsets: ConsumerOffsetManager
    broadcast_offsets: BroadcastOffsetManager
    consumers: ConsumerManager
    filters: ConsumerFilterManager
    producers: ProducerManager
    locks: QueueLocks
    stats: BrokerStats
    put: PutPipeline
    held_pulls: PullHolder
    schedule: ScheduleService
    pop: PopService
    topic_queues: TopicQueues
    timers: TimerService
    transactions: TransactionTable
    transaction_checks: TransactionCheckService
    registered: Registered
    replication: Replication
    topic_deleted: list[Callable[[str], None]]
    group_deleted: list[Callable[[str], None]]


if TYPE_CHECKING:
    from collections.abc import Awaitable

    Registered = Callable[[], "Callable[[], Awaitable[None]] | None"]
