"""The broker's table of consumer groups (`SubscriptionGroupManager`). A created or changed group is in the file before the call returns."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import attrs

from rocketmq_sdk.broker_embedded.config import LiveConfig
from rocketmq_sdk.broker_embedded.managers.attributes import GROUP_ATTRIBUTES, alter_attributes
from rocketmq_sdk.broker_embedded.table_file import TableFile
from rocketmq_sdk.clock import Clock
from rocketmq_sdk.errors import FieldError, StoreCorruptError
from rocketmq_sdk.names import TOOLS_GROUP, group_problem, is_system_group
from rocketmq_sdk.protocol.bodies.groups import SubscriptionGroupConfig, SubscriptionGroupWrapper
from rocketmq_sdk.protocol.bodies.topics import DataVersion
from rocketmq_sdk.protocol.json_dialect import Written, written_pretty

BUILT_IN_GROUPS: Final = (
    TOOLS_GROUP,
    "FILTERSRV_CONSUMER",
    "SELF_TEST_C_GROUP",
    "CID_ONS-HTTP-PROXY",
    "CID_ONSAPI_PULL",
    "CID_ONSAPI_PERMISSION",
    "CID_ONSAPI_OWNER",
    "CID_RMQ_SYS_TRANS",
)
READ_BIT: Final = 2
"""Place of the read permission in a mask of what is forbidden."""


class GroupManager:
    """Consumer groups by name, what is forbidden to them, and the version of both. Not safe for use from several threads."""

    def __init__(self, config_file: TableFile | None, config: LiveConfig, clock: Clock) -> None:
        """Make the built-in groups and read the file.

        Raises `StoreCorruptError` when the file holds something that is no table of groups.
        """
        self._file = config_file
        self._config = config
        self._clock = clock
        self.data_version = DataVersion(0, clock.now_ms(), 0)
        self._table = {name: SubscriptionGroupConfig(name) for name in BUILT_IN_GROUPS}
        # What the file holds of each group, so that one more among thousands costs little.
        self._texts: dict[str, Written] = {}
        self._together = self._unwritten = False
        self._written: dict[str, SubscriptionGroupConfig] = {}
        self.forbidden: dict[str, dict[str, int]] = {}
        """Masks by group and topic; change them through `set_forbidden`."""
        content = config_file.load() if config_file is not None else None
        if content is not None:
            self._load(content)

    def _load(self, content: object) -> None:
        try:
            wrapper = SubscriptionGroupWrapper.from_json(content)
        except FieldError as error:
            raise StoreCorruptError(f"subscriptionGroup.json can not be read: {error}; restore it from subscriptionGroup.json.bak") from error
        self._table.update(wrapper.subscription_group_table)
        self.forbidden = wrapper.forbidden_table
        self.data_version = wrapper.data_version or self.data_version

    def get(self, group: str) -> SubscriptionGroupConfig | None:
        """The group, made with defaults where the settings allow it; None for a name that is not legal or where they do not."""
        existing = self._table.get(group)
        if existing is not None:
            return existing
        config = self._config.current
        allowed = config.auto_create_subscription_group or (is_system_group(group) and config.enable_create_sys_group)
        if not allowed or group_problem(group) is not None:
            return None
        created = SubscriptionGroupConfig(group)
        self._table[group] = created
        self._changed()
        return created

    def find_existing(self, group: str) -> SubscriptionGroupConfig | None:
        """The group, or None; never makes one."""
        return self._table.get(group)

    def all(self) -> dict[str, SubscriptionGroupConfig]:
        """The table itself, by name; not to be changed."""
        return self._table

    def update(self, requested: SubscriptionGroupConfig) -> None:
        """Create or change a group; the attributes of `requested` are changes in request syntax.

        Raises `ConfigurationError` for attributes that are not acceptable.
        """
        self._table[requested.group_name] = self._altered(requested)
        self._changed()

    def update_all(self, requested: tuple[SubscriptionGroupConfig, ...]) -> None:
        """Create or change several groups, all or none.

        Raises `ConfigurationError` for attributes that are not acceptable.
        """
        self._table.update({config.group_name: self._altered(config) for config in requested})
        self._changed()

    def _altered(self, requested: SubscriptionGroupConfig) -> SubscriptionGroupConfig:
        existing = self._table.get(requested.group_name)
        current = existing.attributes if existing is not None else {}
        attributes = alter_attributes(GROUP_ATTRIBUTES, current, requested.attributes, creating=existing is None)
        return attrs.evolve(requested, attributes=attributes)

    def delete(self, group: str) -> bool:
        """Forget a group and what is forbidden to it; False when there was none."""
        existed = self._table.pop(group, None) is not None
        forbidden = self.forbidden.pop(group, None) is not None
        if existed or forbidden:
            self._changed()
        return existed

    def disable_consume(self, group: str) -> None:
        """Stop serving messages to a group."""
        existing = self._table.get(group)
        if existing is not None and existing.consume_enable:
            self._table[group] = attrs.evolve(existing, consume_enable=False)
            self._changed()

    def is_forbidden(self, group: str, topic: str, bit: int = READ_BIT) -> bool:
        """Whether a group may not use a topic in one way."""
        topics = self.forbidden.get(group)
        return topics is not None and bool(topics.get(topic, 0) >> bit & 1)

    def set_forbidden(self, group: str, topic: str, forbidden: bool, bit: int = READ_BIT) -> None:
        """Forbid or allow a group one way of using a topic.

        As with Apache, clearing the last bit of one topic clears all that is forbidden to the group.
        """
        before = self.forbidden.get(group, {}).get(topic, 0)
        mask = before | 1 << bit if forbidden else before & ~(1 << bit)
        if mask:
            self.forbidden.setdefault(group, {})[topic] = mask
        else:
            self.forbidden.pop(group, None)
        self._changed()

    def wrapper(self) -> SubscriptionGroupWrapper:
        """The whole table with its version."""
        return SubscriptionGroupWrapper(dict(self._table), {group: dict(topics) for group, topics in self.forbidden.items()}, self.data_version)

    @contextmanager
    def together(self) -> Iterator[None]:
        """What changes in the block is written once, at its end. For synchronous blocks."""
        self._together = True
        try:
            yield
        finally:
            self._together = False
            if self._unwritten:
                self._unwritten = False
                self.persist()

    def persist(self) -> None:
        """Write the file."""
        if self._file is None:
            return
        texts, before = self._texts, self._written
        for name, group in self._table.items():
            if before.get(name) is not group:
                texts[name] = written_pretty(group.to_json(), 2)
        for name in texts.keys() - self._table.keys():
            del texts[name]
        self._written = dict(self._table)
        rest = SubscriptionGroupWrapper({}, self.forbidden, self.data_version).to_json()
        self._file.store({**rest, "subscriptionGroupTable": texts})

    def _changed(self) -> None:
        self.data_version = self.data_version.next(self._clock.now_ms())
        if self._together:
            self._unwritten = True
        else:
            self.persist()
