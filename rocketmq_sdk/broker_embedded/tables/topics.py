"""The broker's table of topics (`TopicConfigManager`).

System topics are made at each start and overlaid by what the file holds. Whatever
creates or changes a topic writes the file before it returns, so a message cannot be
acknowledged into a topic that a restart has forgotten, and then tells `on_change`,
which registers the topic at the name servers. When the file cannot be written the topic
is as it was and `StoreError` is raised.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

import attrs

from rocketmq_sdk.broker_embedded.tables.attributes import (
    QUEUE_TYPE,
    TOPIC_ATTRIBUTES,
    alter_attributes,
)
from rocketmq_sdk.broker_embedded.tables.written_table import Undo, WrittenTable
from rocketmq_sdk.errors import FieldError, StoreCorruptError, StoreError
from rocketmq_sdk.model.enums import Permission
from rocketmq_sdk.names import (
    BENCHMARK_TOPIC,
    DEFAULT_TOPIC,
    OFFSET_MOVED_TOPIC,
    ROCKSDB_HALF_TOPIC,
    ROCKSDB_OP_TOPIC,
    SCHEDULE_TOPIC,
    SELF_TEST_TOPIC,
    SYSTEM_TOPICS,
    TIMER_TOPIC,
    TRANSACTION_HALF_TOPIC,
    TRANSACTION_OP_TOPIC,
    is_system_topic,
    reply_topic,
    revive_topic,
)
from rocketmq_sdk.protocol.bodies.topics import (
    DataVersion,
    TopicConfig,
    TopicConfigSerializeWrapper,
)
from rocketmq_sdk.protocol.body import body_table
from rocketmq_sdk.protocol.json.dialect import Written, written_pretty

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from rocketmq_sdk.broker_embedded.settings.config import BrokerConfig, LiveConfig
    from rocketmq_sdk.broker_embedded.tables.table_file import TableFile
    from rocketmq_sdk.broker_embedded.tables.unwritten import Unwritten
    from rocketmq_sdk.clock import Clock

logger = logging.getLogger(__name__)

SYNC_MEMBER_TOPIC_PREFIX: Final = "rmq_sys_SYNC_BROKER_MEMBER_"
UNIT_FLAG: Final = 1
"""In a topic's system flag: it belongs to a unit of a deployment."""
UNIT_SUBSCRIPTION_FLAG: Final = 2
"""In a topic's system flag: groups of units subscribe to it."""
READ_WRITE: Final = int(Permission.READ | Permission.WRITE)
ALL: Final = int(Permission.READ | Permission.WRITE | Permission.INHERIT)
_INHERIT: Final = int(Permission.INHERIT)
_SCHEDULE_QUEUES: Final = 18
_BENCHMARK_QUEUES: Final = 1024
_CLUSTER_QUEUES: Final = 16


def system_topics(config: BrokerConfig) -> list[TopicConfig]:
    """The system topics that a broker makes at each start.

    `TopicConfigManager.init` of Apache.
    """

    def topic(name: str, queues: int, perm: int = READ_WRITE) -> TopicConfig:
        return TopicConfig(name, queues, queues, perm)

    topics = [topic(SELF_TEST_TOPIC, 1)]
    if config.auto_create_topic_enable:
        topics.append(topic(DEFAULT_TOPIC, config.default_topic_queue_nums, ALL))
    topics += [
        topic(BENCHMARK_TOPIC, _BENCHMARK_QUEUES),
        topic(
            config.broker_cluster_name,
            _CLUSTER_QUEUES,
            ALL if config.cluster_topic_enable else _INHERIT,
        ),
        topic(config.broker_name, 1, ALL if config.broker_topic_enable else _INHERIT),
        topic(OFFSET_MOVED_TOPIC, 1),
        topic(SCHEDULE_TOPIC, _SCHEDULE_QUEUES),
    ]
    if config.trace_topic_enable:
        topics.append(topic(config.msg_trace_topic_name, 1))
    topics += [
        topic(reply_topic(config.broker_cluster_name), 1),
        topic(revive_topic(config.broker_cluster_name), config.revive_queue_num),
        topic(SYNC_MEMBER_TOPIC_PREFIX + config.broker_name, 1, _INHERIT),
        topic(TRANSACTION_HALF_TOPIC, 1),
        topic(TRANSACTION_OP_TOPIC, 1),
        topic(ROCKSDB_HALF_TOPIC, 1),
        topic(ROCKSDB_OP_TOPIC, 1),
    ]
    if config.timer_wheel_enable:
        topics.append(topic(TIMER_TOPIC, 1))
    return topics


class TopicManager(WrittenTable[TopicConfig]):
    """Topics by name, with the version that name servers compare.

    Not safe for use from several threads.
    """

    def __init__(
        self,
        config_file: TableFile | None,
        config: LiveConfig,
        clock: Clock,
        on_change: Callable[[TopicConfig], None] | None = None,
        unwritten: Unwritten | None = None,
    ) -> None:
        """Make the system topics and read the file.

        Raises `StoreCorruptError` when the file holds something that is no table of
        topics.
        """
        super().__init__(
            config_file,
            clock,
            {topic.topic_name: topic for topic in system_topics(config.current)},
            unwritten,
        )
        self._config = config
        self.on_change = on_change
        """Called with each created or changed topic, after the file was written."""
        self._to_tell: list[TopicConfig] = []
        self._mapping_version = self.data_version
        self._system = SYSTEM_TOPICS | self._table.keys()
        self._unknown: dict[str, dict[str, object]] = {}
        self._load()

    def _load(self) -> None:
        content = self._file.load() if self._file is not None else None
        if content is None:
            return
        try:
            wrapper = TopicConfigSerializeWrapper.from_json(content)
        except FieldError as error:
            raise StoreCorruptError(
                f"topics.json cannot be read: {error}; restore it from topics.json.bak"
            ) from error
        self._table.update(wrapper.topic_config_table)
        self.data_version = wrapper.data_version or self.data_version
        known = body_table(TopicConfig).names
        raw = content.get("topicConfigTable") if isinstance(content, dict) else None
        for name, members in (raw or {}).items():
            if not isinstance(members, dict):
                continue
            unknown = {member: value for member, value in members.items() if member not in known}
            if unknown:
                self._unknown[name] = unknown

    def get(self, topic: str) -> TopicConfig | None:
        """The topic, or None."""
        if self._pending and topic in self._pending:
            self._touch()
        return self._table.get(topic)

    def has_batch_queues(self, topic: str) -> bool:
        """Whether a topic was made with `queue.type=BatchCQ`."""
        config = self._table.get(topic)
        return config is not None and config.attributes.get(QUEUE_TYPE) == "BatchCQ"

    def all(self) -> dict[str, TopicConfig]:
        """The table itself, by name; not to be changed."""
        return self._table

    def is_system(self, topic: str) -> bool:
        """Whether the topic is the broker's own; requests cannot change such topics.

        Nor can they create or delete them.
        """
        return topic in self._system or is_system_topic(topic)

    def system_names(self) -> list[str]:
        """The static system topics and this broker's own ones, sorted."""
        return sorted(self._system)

    def create_on_send(
        self, topic: str, default_topic: str, default_queue_nums: int, sys_flag: int = 0
    ) -> TopicConfig | None:
        """The topic for a send; None when there is none and none may be made.

        A new one is made after a default topic that can be inherited from.
        """
        existing = self.get(topic)
        if existing is not None:
            return existing
        default = self._table.get(default_topic)
        if default is None:
            return None
        if (
            default_topic == DEFAULT_TOPIC
            and not self._config.current.auto_create_topic_enable
            and default.perm != READ_WRITE
        ):
            # As Apache does it: the default topic loses what makes it inheritable, and
            # keeps that when creation is switched on again.
            default = self._table[default_topic] = attrs.evolve(default, perm=READ_WRITE)
        if not default.perm & _INHERIT:
            return None
        queues = max(0, min(default_queue_nums, default.write_queue_nums))
        created = TopicConfig(
            topic, queues, queues, default.perm & ~_INHERIT, default.topic_filter_type, sys_flag
        )
        self.put(created)
        return created

    def create_retry(
        self, topic: str, queue_nums: int = 1, perm: int = READ_WRITE, sys_flag: int = 0
    ) -> TopicConfig:
        """A group's retry or dead letter topic; made when missing."""
        existing = self.get(topic)
        if existing is not None:
            return existing
        created = TopicConfig(topic, queue_nums, queue_nums, perm, topic_sys_flag=sys_flag)
        self.put(created)
        return created

    def update(self, requested: TopicConfig) -> bool:
        """Create or change a topic; False when nothing was different.

        The attributes of `requested` are changes in request syntax. Raises
        `ConfigurationError` for attributes that are not acceptable.
        """
        if requested == self.get(requested.topic_name):
            return False
        self.put(attrs.evolve(requested, attributes=self.altered_attributes(requested)))
        return True

    def altered_attributes(self, requested: TopicConfig) -> dict[str, str]:
        """The attributes that a topic would have after a request.

        Raises `ConfigurationError` when they are not acceptable.
        """
        existing = self._table.get(requested.topic_name)
        current = existing.attributes if existing is not None else {}
        return alter_attributes(
            TOPIC_ATTRIBUTES, current, requested.attributes, creating=existing is None
        )

    def put(self, topic: TopicConfig) -> None:
        """Keep a topic as it is, write the file, tell `on_change`."""
        with self.together():
            self._change(topic.topic_name, topic)
            self._to_tell.append(topic)

    def replace(self, table: Mapping[str, TopicConfig], version: DataVersion) -> None:
        """Become the copy of a master's table; on `StoreError` nothing changes.

        `on_change` is not called.
        """
        with self.together():
            self._replace_all(table, version)

    def set_order(self, topic: str) -> None:
        """Mark a topic as ordered, by a name server's order configuration.

        The mark is never removed.
        """
        existing = self._table.get(topic)
        if existing is not None and not existing.order:
            self._change(topic, attrs.evolve(existing, order=True))

    def delete(self, topic: str) -> bool:
        """Forget a topic and write the file; False when there was none."""
        if topic not in self._table:
            return False
        with self.together():
            self._swap(self._unknown, topic, None)
            self._change(topic, None)
        return True

    def renew_version(self) -> None:
        """Count a change outside of the table, such as the broker's own permission.

        Name servers then take the table anew. The version counts even when it cannot be
        written now; the next change writes it.
        """
        self.data_version = self.data_version.next(self._clock.now_ms())
        try:
            self._write(self.data_version)
        except StoreError as error:
            logger.warning("the version of the topics is written with the next change: %s", error)

    def wrapper(self) -> TopicConfigSerializeWrapper:
        """The whole table with its version."""
        return TopicConfigSerializeWrapper(
            dict(self._table), self.data_version, self._mapping_version, {}, {}
        )

    def _text(self, name: str, value: TopicConfig) -> Written:
        return written_pretty({**self._unknown.get(name, {}), **value.to_json()}, 2)

    def _content(self, texts: Mapping[str, Written]) -> dict[str, object]:
        return {"dataVersion": self.data_version.to_json(), "topicConfigTable": texts}

    def _take_back(self, version: DataVersion, undo: list[Undo]) -> None:
        super()._take_back(version, undo)
        self._to_tell.clear()

    def _after_write(self) -> None:
        self._wrote(self._begin_write())

    def _begin_write(self) -> list[TopicConfig]:
        told, self._to_tell = self._to_tell, []
        return told

    def _wrote(self, told: list[TopicConfig]) -> None:
        if self.on_change is not None:
            for topic in told:
                self.on_change(topic)
