"""What every part of a broker works with: clock, settings, store, tables, counters."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rocketmq_sdk.broker_embedded.part import SavedTable, Service
from rocketmq_sdk.broker_embedded.store.files.config_file import ConfigFile, broken_files
from rocketmq_sdk.broker_embedded.store.files.memory_files import ends_with_its_store
from rocketmq_sdk.broker_embedded.tables.groups import GroupManager
from rocketmq_sdk.broker_embedded.tables.offsets import FILE_NAME as OFFSETS_FILE
from rocketmq_sdk.broker_embedded.tables.offsets import ConsumerOffsetManager
from rocketmq_sdk.broker_embedded.tables.put_times import PutTimes
from rocketmq_sdk.broker_embedded.tables.stats import BrokerStats
from rocketmq_sdk.broker_embedded.tables.topics import TopicManager
from rocketmq_sdk.broker_embedded.tables.unwritten import Unwritten
from rocketmq_sdk.clock import TrioClock
from rocketmq_sdk.names import is_system_topic
from rocketmq_sdk.remoting.budget import MemoryBudget

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from rocketmq_sdk.broker_embedded.settings.config import BrokerConfig, LiveConfig
    from rocketmq_sdk.broker_embedded.store.files.file_system import FileSystem
    from rocketmq_sdk.broker_embedded.store.message_store import MessageStore
    from rocketmq_sdk.broker_embedded.supervision import Supervisor
    from rocketmq_sdk.clock import Clock

FAQ: Final = "\nSee https://rocketmq.apache.org/docs/bestPractice/06FAQ for further details."
"""What Apache appends to remarks that users ask about."""


CLOCK_TOLERANCE: Final = 5.0
"""Seconds by which the system's clock may be set before it is told."""


def _clock_was_set(clock: Clock) -> Iterator[str]:
    """That the system's clock was set since the start; a broker does not follow."""
    by = clock.set_by() if isinstance(clock, TrioClock) else 0.0
    if abs(by) >= CLOCK_TOLERANCE:
        where = "forward" if by > 0 else "back"
        yield (
            f"the system's clock was set {where} by {abs(by):,.0f} s since the start, and the "
            "broker's goes on as before; start it again, so that delays, timers and times of "
            "messages follow"
        )


def _broken_files(files: FileSystem) -> tuple[str, ...]:
    return () if ends_with_its_store(files) else broken_files(files)


def _table_file(files: FileSystem, name: str) -> ConfigFile | None:
    """The file of a table that is written with each change.

    None where nobody can read it later: writing it would encode the whole table for
    each new topic.
    """
    if ends_with_its_store(files):
        return None
    return ConfigFile(files, name)


class Core:
    """Complete once it is made.

    Parts take it. They add nothing to it except listeners for deleted topics and
    groups.
    """

    __slots__ = (
        "address",
        "boot_ms",
        "clock",
        "config",
        "group_deleted",
        "groups",
        "memory",
        "offsets",
        "put_times",
        "stats",
        "store",
        "store_host",
        "supervisor",
        "topic_deleted",
        "topics",
        "unwritten",
    )

    def __init__(
        self,
        store: MessageStore,
        config: LiveConfig,
        clock: Clock,
        supervisor: Supervisor,
        *,
        store_host: bytes,
        address: Callable[[], str],
    ) -> None:
        """Read the tables beside an open store.

        `store_host` is the packed address in records and message ids, `address` gives
        the `host:port` at which others reach the broker. Raises `StoreCorruptError` or
        `FieldError` when a file is corrupt.
        """
        current = config.current
        self.clock = clock
        self.config = config
        self.store = store
        self.store_host = store_host
        self.address = address
        self.boot_ms = clock.now_ms()
        """When the broker was opened; epoch milliseconds."""
        self.unwritten = Unwritten()
        """What of topics and groups is not in their files yet."""
        self.topics = TopicManager(
            _table_file(store.files, "topics.json"), config, clock, unwritten=self.unwritten
        )
        store.ask_for_batch_topics(self.topics.has_batch_queues)
        self.groups = GroupManager(
            _table_file(store.files, "subscriptionGroup.json"), config, clock, self.unwritten
        )
        self.unwritten.watch(self.topics)
        self.unwritten.watch(self.groups)
        self.offsets = ConsumerOffsetManager(
            ConfigFile(store.files, OFFSETS_FILE),
            clock,
            version_step=current.consumer_offset_update_version_step,
        )
        self.offsets.load()
        if not store.started_clean:
            self.offsets.limit(store.max_offset)
        if store.needs is not None:
            store.needs.consumed = self._consumed
        self.stats = BrokerStats()
        self.put_times = PutTimes(clock, self.stats)
        """How long puts and gets take."""
        self.memory = MemoryBudget(current.connection_memory_limit)
        """What all connections hold."""
        self.supervisor = supervisor
        """Runs the services; knows how they are."""
        self.topic_deleted: list[Callable[[str], None]] = [self.stats.remove_topic]
        """Called with each topic that was deleted."""
        self.group_deleted: list[Callable[[str], None]] = [self.stats.remove_group]
        """Called with each consumer group that was deleted."""
        supervisor.troubles = self._troubles
        config.on_change.append(self._configured)

    def _troubles(self) -> Iterable[str]:
        """What is wrong with what every part works with."""
        yield from self.store.troubles()
        yield from self.memory.troubles()
        yield from _broken_files(self.store.files)
        yield from _clock_was_set(self.clock)

    def _configured(self, _before: BrokerConfig, now: BrokerConfig) -> None:
        self.store.retention.configure(now.store)
        self.memory.limit = now.connection_memory_limit

    def services(self) -> tuple[Service, ...]:
        """Writing topics and groups beside the loop, where there is a disk."""
        if not self.store.files.write_through:
            return ()
        return (
            Service("table of topics", self.topics.run, on_call=self.topics.begin()),
            Service("table of consumer groups", self.groups.run, on_call=self.groups.begin()),
        )

    def _consumed(self) -> Callable[[str, int], int | None]:
        """What all groups have consumed, as retention in memory asks for it."""
        consumed = self.offsets.consumed_by_all()

        def of_queue(topic: str, queue_id: int) -> int | None:
            queues = consumed.get(topic)
            if queues is None:
                return None if is_system_topic(topic) else 0
            return queues.get(queue_id, 0)

        return of_queue

    def saved_tables(self) -> tuple[SavedTable, ...]:
        """The offsets of all groups; topics and groups are written when they change."""
        config = self.config
        return (
            SavedTable("topics", None, self.topics.save, self.topics.has_to_save),
            SavedTable("consumer groups", None, self.groups.save, self.groups.has_to_save),
            SavedTable(
                "consumer offsets",
                lambda: config.current.flush_consumer_offset_interval,
                self.offsets.persist,
                self.offsets.has_to_save,
            ),
        )
