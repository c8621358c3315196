"""The broker's table of consumer groups (`SubscriptionGroupManager`).

A created or changed group is in the file before the call returns. When that cannot be
written all is as it was and `StoreError` is raised.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import attrs

from rocketmq_sdk.broker_embedded.tables.attributes import GROUP_ATTRIBUTES, alter_attributes
from rocketmq_sdk.broker_embedded.tables.written_table import WrittenTable
from rocketmq_sdk.errors import FieldError, StoreCorruptError
from rocketmq_sdk.names import BUILT_IN_GROUPS, group_problem, is_system_group
from rocketmq_sdk.protocol.bodies.groups import SubscriptionGroupConfig, SubscriptionGroupWrapper
from rocketmq_sdk.protocol.body import body_table
from rocketmq_sdk.protocol.json.dialect import Written, written_pretty

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rocketmq_sdk.broker_embedded.settings.config import LiveConfig
    from rocketmq_sdk.broker_embedded.tables.table_file import TableFile
    from rocketmq_sdk.broker_embedded.tables.unwritten import Unwritten
    from rocketmq_sdk.clock import Clock
    from rocketmq_sdk.protocol.bodies.topics import DataVersion

READ_BIT: Final = 2
"""Place of the read permission in a mask of what is forbidden."""


class GroupManager(WrittenTable[SubscriptionGroupConfig]):
    """Consumer groups by name, their forbidden topics, and the version of both.

    Not safe for use from several threads.
    """

    def __init__(
        self,
        config_file: TableFile | None,
        config: LiveConfig,
        clock: Clock,
        unwritten: Unwritten | None = None,
    ) -> None:
        """Make the built-in groups and read the file.

        Raises `StoreCorruptError` when the file holds something that is no table of
        groups.
        """
        super().__init__(
            config_file,
            clock,
            {name: SubscriptionGroupConfig(name) for name in BUILT_IN_GROUPS},
            unwritten,
        )
        self._config = config
        self.forbidden: dict[str, dict[str, int]] = {}
        """Masks by group and topic; change them through `set_forbidden`."""
        self._unknown: dict[str, dict[str, object]] = {}
        content = config_file.load() if config_file is not None else None
        if content is not None:
            self._load(content)

    def _load(self, content: object) -> None:
        try:
            wrapper = SubscriptionGroupWrapper.from_json(content)
        except FieldError as error:
            raise StoreCorruptError(
                f"subscriptionGroup.json cannot be read: {error}; restore it from "
                "subscriptionGroup.json.bak"
            ) from error
        self._table.update(wrapper.subscription_group_table)
        known = body_table(SubscriptionGroupConfig).names
        raw = content.get("subscriptionGroupTable") if isinstance(content, dict) else None
        for name, members in (raw or {}).items():
            if not isinstance(members, dict):
                continue
            unknown = {member: value for member, value in members.items() if member not in known}
            if unknown:
                self._unknown[name] = unknown
        self.forbidden = wrapper.forbidden_table
        self.data_version = wrapper.data_version or self.data_version

    def get(self, group: str) -> SubscriptionGroupConfig | None:
        """The group, made with defaults where the settings allow it.

        None for a name that is not legal, or for a missing group that may not be made.
        """
        existing = self.find_existing(group)
        if existing is not None:
            return existing
        config = self._config.current
        allowed = config.auto_create_subscription_group or (
            is_system_group(group) and config.enable_create_sys_group
        )
        if not allowed or group_problem(group) is not None:
            return None
        created = SubscriptionGroupConfig(group)
        self._change(group, created)
        return created

    def find_existing(self, group: str) -> SubscriptionGroupConfig | None:
        """The group, or None; never makes one."""
        if self._pending and group in self._pending:
            self._touch()
        return self._table.get(group)

    def all(self) -> dict[str, SubscriptionGroupConfig]:
        """The table itself, by name; not to be changed."""
        return self._table

    def update(self, requested: SubscriptionGroupConfig) -> None:
        """Create or change a group.

        The attributes of `requested` are changes in request syntax. Raises
        `ConfigurationError` for attributes that are not acceptable.
        """
        self.update_all((requested,))

    def update_all(self, requested: tuple[SubscriptionGroupConfig, ...]) -> None:
        """Create or change several groups, all or none.

        Raises `ConfigurationError` for attributes that are not acceptable.
        """
        altered = [self._altered(config) for config in requested]
        with self.together():
            for config in altered:
                self._swap(self._table, config.group_name, config)
            self._count_change()

    def _altered(self, requested: SubscriptionGroupConfig) -> SubscriptionGroupConfig:
        existing = self._table.get(requested.group_name)
        current = existing.attributes if existing is not None else {}
        attributes = alter_attributes(
            GROUP_ATTRIBUTES, current, requested.attributes, creating=existing is None
        )
        return attrs.evolve(requested, attributes=attributes)

    def replace(
        self,
        table: Mapping[str, SubscriptionGroupConfig],
        forbidden: Mapping[str, dict[str, int]],
        version: DataVersion,
    ) -> None:
        """Become the copy of a master's table; on `StoreError` nothing changes."""
        with self.together():
            self._replace_all(table, version)
            for group in self.forbidden.keys() | forbidden.keys():
                self._swap(self.forbidden, group, forbidden.get(group))

    def delete(self, group: str) -> bool:
        """Forget a group and what is forbidden to it; False when there was none."""
        existed = group in self._table
        if existed or group in self.forbidden:
            with self.together():
                self._swap(self.forbidden, group, None)
                self._swap(self._unknown, group, None)
                self._change(group, None)
        return existed

    def forget_topic(self, topic: str) -> None:
        """A topic is gone: nobody is forbidden to read it any more."""
        forbidden = [group for group, topics in self.forbidden.items() if topic in topics]
        if forbidden:
            with self.together():
                for group in forbidden:
                    left = {**self.forbidden[group]}
                    del left[topic]
                    self._swap(self.forbidden, group, left or None)
                self._count_change()

    def disable_consume(self, group: str) -> None:
        """Stop serving messages to a group."""
        existing = self._table.get(group)
        if existing is not None and existing.consume_enable:
            self._change(group, attrs.evolve(existing, consume_enable=False))

    def is_forbidden(self, group: str, topic: str, bit: int = READ_BIT) -> bool:
        """Whether a group may not use a topic in one way."""
        topics = self.forbidden.get(group)
        return topics is not None and bool(topics.get(topic, 0) >> bit & 1)

    def set_forbidden(self, group: str, topic: str, forbidden: bool, bit: int = READ_BIT) -> None:
        """Forbid or allow a group one way of using a topic.

        As with Apache, clearing the last bit of one topic clears all that is forbidden
        to the group.
        """
        topics = self.forbidden.get(group, {})
        before = topics.get(topic, 0)
        mask = before | 1 << bit if forbidden else before & ~(1 << bit)
        with self.together():
            self._swap(self.forbidden, group, {**topics, topic: mask} if mask else None)
            self._count_change()

    def wrapper(self) -> SubscriptionGroupWrapper:
        """The whole table with its version."""
        return SubscriptionGroupWrapper(
            dict(self._table),
            {group: dict(topics) for group, topics in self.forbidden.items()},
            self.data_version,
        )

    def _text(self, name: str, value: SubscriptionGroupConfig) -> Written:
        return written_pretty({**self._unknown.get(name, {}), **value.to_json()}, 2)

    def _content(self, texts: Mapping[str, Written]) -> dict[str, object]:
        return {
            **SubscriptionGroupWrapper({}, dict(self.forbidden), self.data_version).to_json(),
            "subscriptionGroupTable": texts,
        }
