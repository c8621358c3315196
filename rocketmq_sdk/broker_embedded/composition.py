"""How the parts of a broker are put together, apart from its life in `broker.py`:
settings, context, table of handlers.
"""

from __future__ import annotations

import difflib
from enum import Enum
from typing import TYPE_CHECKING, Final

from rocketmq_sdk.broker_embedded import admin
from rocketmq_sdk.broker_embedded.core import BrokerContext
from rocketmq_sdk.broker_embedded.filter import consumer_filters as filters_file
from rocketmq_sdk.broker_embedded.filter.bloom import BloomFilter
from rocketmq_sdk.broker_embedded.filter.consumer_filters import ConsumerFilterManager
from rocketmq_sdk.broker_embedded.members import assignment_requests as assignment
from rocketmq_sdk.broker_embedded.members import heartbeats as client
from rocketmq_sdk.broker_embedded.members import lock_requests as lock
from rocketmq_sdk.broker_embedded.members.consumers import ConsumerManager
from rocketmq_sdk.broker_embedded.members.producers import ProducerManager
from rocketmq_sdk.broker_embedded.members.queue_locks import QueueLocks
from rocketmq_sdk.broker_embedded.pop import ack, change_invisible, notification
from rocketmq_sdk.broker_embedded.pop import popping as pop
from rocketmq_sdk.broker_embedded.pop.polling import PopHolder
from rocketmq_sdk.broker_embedded.pop.service import PopService
from rocketmq_sdk.broker_embedded.pull import pull, query
from rocketmq_sdk.broker_embedded.pull.broadcast_offsets import BroadcastOffsetManager
from rocketmq_sdk.broker_embedded.pull.long_polling import PullHolder
from rocketmq_sdk.broker_embedded.replication import answers as roles
from rocketmq_sdk.broker_embedded.replication.role import Replication
from rocketmq_sdk.broker_embedded.send import reply, send, send_back
from rocketmq_sdk.broker_embedded.send.put import PutPipeline
from rocketmq_sdk.broker_embedded.settings.apache_names import settings_of
from rocketmq_sdk.broker_embedded.settings.config import BrokerConfig, LiveConfig
from rocketmq_sdk.broker_embedded.store.config import StoreConfig
from rocketmq_sdk.broker_embedded.store.files.config_file import ConfigFile
from rocketmq_sdk.broker_embedded.tables import offset_requests as offsets
from rocketmq_sdk.broker_embedded.tables import offsets as offsets_file
from rocketmq_sdk.broker_embedded.tables.groups import GroupManager
from rocketmq_sdk.broker_embedded.tables.offsets import ConsumerOffsetManager
from rocketmq_sdk.broker_embedded.tables.stats import BrokerStats
from rocketmq_sdk.broker_embedded.tables.topics import TopicManager
from rocketmq_sdk.broker_embedded.timers import metrics as timer_metrics
from rocketmq_sdk.broker_embedded.timers import recall
from rocketmq_sdk.broker_embedded.timers import schedule as schedule_file
from rocketmq_sdk.broker_embedded.timers.schedule import ScheduleService
from rocketmq_sdk.broker_embedded.timers.service import TimerService
from rocketmq_sdk.broker_embedded.transactions import ending as transaction
from rocketmq_sdk.broker_embedded.transactions.check import TransactionCheckService
from rocketmq_sdk.broker_embedded.transactions.table import TransactionTable
from rocketmq_sdk.codes import RequestCode
from rocketmq_sdk.errors import ConfigurationError
from rocketmq_sdk.model.delay_levels import DelayLevels
from rocketmq_sdk.remoting.dispatch import Dispatcher

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from rocketmq_sdk.broker_embedded.store.message_store import MessageStore
    from rocketmq_sdk.clock import Clock


def resolve_settings(config: BrokerConfig | None, settings: Mapping[str, object]) -> BrokerConfig:
    """The settings given to `EmbeddedBroker`: a configuration changed by single
    settings under their Python or Apache names.

    Raises `ConfigurationError` for a name that does not exist, with the nearest one
    that does, and for a bad value.
    """
    resolved = config or BrokerConfig()
    names: dict[str, tuple[str, str]] = {}
    for cls in (StoreConfig, BrokerConfig):
        for setting in settings_of(cls).values():
            names[setting.name] = names[setting.attribute] = (setting.name, setting.attribute)
    texts: dict[str, str] = {}
    values: dict[str, object] = {}
    for name, value in settings.items():
        if name not in names:
            near = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise ConfigurationError(f"the broker has no setting {name!r}{hint}")
        apache, attribute = names[name]
        if isinstance(value, str):
            texts[apache] = value
        elif isinstance(value, bool):
            texts[apache] = "true" if value else "false"
        elif isinstance(value, Enum):
            texts[apache] = value.name
        elif isinstance(value, int):
            texts[apache] = str(value)
        else:
            values[attribute] = value
    resolved, _warnings = resolved.with_settings(texts)
    resolved = resolved.with_options(values) if values else resolved
    resolved.check_role()
    return resolved


def make_context(
    store: MessageStore,
    config: LiveConfig,
    clock: Clock,
    store_host: bytes,
    address: Callable[[], str],
) -> BrokerContext:
    """Managers and services over an open store; their files are read.

    Raises `StoreCorruptError` or `FieldError` when a file cannot be what it claims to
    be.
    """
    context = BrokerContext()
    current = config.current
    context.clock, context.config, context.store, context.store_host, context.address = (
        clock,
        config,
        store,
        store_host,
        address,
    )
    context.boot_ms = clock.now_ms()
    context.registered = lambda: None
    context.replication = Replication(current, store, clock)
    context.topics = TopicManager(ConfigFile(store.files, "topics.json"), config, clock)
    store.ask_for_batch_topics(context.topics.has_batch_queues)
    context.groups = GroupManager(ConfigFile(store.files, "subscriptionGroup.json"), config, clock)
    context.offsets = ConsumerOffsetManager(
        ConfigFile(store.files, offsets_file.FILE_NAME),
        clock,
        version_step=current.consumer_offset_update_version_step,
    )
    context.offsets.load()
    if not store.started_clean:
        context.offsets.limit(store.max_offset)
    context.consumers = ConsumerManager(
        clock, notify=lambda: config.current.notify_consumer_ids_changed_enable
    )
    context.broadcast_offsets = BroadcastOffsetManager(
        context.consumers,
        context.offsets,
        clock,
        lambda *queue: _first_for_newcomers(store, *queue),
    )
    bloom = BloomFilter(
        current.max_error_rate_of_bloom_filter, current.expect_consumer_num_use_filter
    )
    context.filters = ConsumerFilterManager(
        ConfigFile(store.files, filters_file.FILE_NAME), clock, bloom
    )
    context.filters.load()
    context.consumers.group_left.append(context.filters.unregister)
    if current.enable_calc_filter_bit_map:
        store.calculate_bit_maps(context.filters.bit_map)
    context.producers = ProducerManager(clock)
    context.locks = QueueLocks(clock)
    config.on_change.append(lambda _before, now: store.configure_retention(now.store))
    context.stats = BrokerStats()
    levels = DelayLevels(current.store.message_delay_level)
    context.timers = TimerService(store, ConfigFile(store.files, timer_metrics.FILE_NAME), clock)
    if not current.is_slave:
        context.timers.load()
    context.transactions = TransactionTable(store, context.offsets)
    context.put = PutPipeline(
        store, config, levels, context.timers.timers, clock, context.transactions
    )
    context.transaction_checks = TransactionCheckService(
        store, context.transactions, config, context.producers, context.topics, clock, store_host
    )
    context.schedule = ScheduleService(
        store,
        ConfigFile(store.files, schedule_file.FILE_NAME),
        levels,
        clock,
        version_step=current.delay_offset_update_version_step,
    )
    context.schedule.load()
    context.topic_deleted = [
        context.stats.remove_topic,
        context.filters.remove_topic,
        context.timers.timers.metrics.forget,
    ]
    context.topic_deleted.append(context.broadcast_offsets.remove_topic)
    context.group_deleted = [
        context.stats.remove_group,
        context.filters.remove_group,
        context.broadcast_offsets.remove_group,
    ]
    context.pop = PopService(context)
    context.pop.load()
    return context


def _first_for_newcomers(store: MessageStore, topic: str, queue_id: int) -> int:
    """Where a client begins of whom nothing is known: at the first message while that
    is in memory, else at the end.
    """
    in_memory = store.queue_unit(topic, queue_id, 0) is not None and not store.is_cold(
        topic, queue_id, 0
    )
    return 0 if in_memory else store.max_offset(topic, queue_id)


NOT_VIP: Final = (
    RequestCode.PULL_MESSAGE,
    RequestCode.LITE_PULL_MESSAGE,
    RequestCode.PEEK_MESSAGE,
    RequestCode.POP_MESSAGE,
    RequestCode.NOTIFICATION,
    RequestCode.POLLING_INFO,
)
"""What Apache's broker does not serve on its VIP port, so that those who wait do not
fill it.
"""


def vip_dispatcher(dispatcher: Dispatcher) -> Dispatcher:
    """The handlers of the VIP port."""
    return Dispatcher(
        {code: handler for code, handler in dispatcher.handlers.items() if code not in NOT_VIP},
        dispatcher.refused,
    )


def make_dispatcher(context: BrokerContext) -> Dispatcher:
    """The table of all handlers; completes the context by what holds pulls."""
    puller = pull.PullProcessor(context)
    context.held_pulls = PullHolder(context.clock, puller.rerun)
    popper, notifier = pop.PopProcessor(context), notification.NotificationProcessor(context)
    context.pop.waiting = PopHolder(context.clock, popper.rerun)
    context.pop.notifications = PopHolder(context.clock, notifier.rerun, last_first=True)
    context.consumers.resubscribed.append(context.pop.waiting.wake_outdated)
    dispatcher = Dispatcher(refused=admin.REFUSED)
    dispatcher.handlers.update(admin.handlers(context))
    dispatcher.handlers.update(pull.handlers(puller))
    dispatcher.handlers.update(pop.handlers(popper))
    dispatcher.handlers.update(notification.handlers(notifier))
    for module in (
        send,
        reply,
        query,
        offsets,
        client,
        lock,
        send_back,
        transaction,
        recall,
        ack,
        change_invisible,
        assignment,
    ):
        dispatcher.handlers.update(module.handlers(context))
    if context.config.current.is_slave:
        dispatcher.handlers.update(roles.slave_handlers())
    return dispatcher
