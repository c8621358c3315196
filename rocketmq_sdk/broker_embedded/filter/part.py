"""Filters of subscriptions: the part."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rocketmq_sdk.broker_embedded.filter.bloom import BloomFilter
from rocketmq_sdk.broker_embedded.filter.consumer_filters import FILE_NAME, ConsumerFilterManager
from rocketmq_sdk.broker_embedded.filter.message_filters import SubscriptionFilters
from rocketmq_sdk.broker_embedded.part import Part, SavedTable
from rocketmq_sdk.broker_embedded.store.files.config_file import ConfigFile

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rocketmq_sdk.broker_embedded.core import Core
    from rocketmq_sdk.broker_embedded.settings.config import BrokerConfig

_SAVE_INTERVAL_MS: Final = 10_000


class FilterPart(Part):
    """The expressions of all groups, and the filters made from subscriptions."""

    __slots__ = ("_config", "_store", "expressions", "subscriptions")

    def __init__(self, core: Core) -> None:
        config = core.config.current
        bloom = BloomFilter(
            config.max_error_rate_of_bloom_filter, config.expect_consumer_num_use_filter
        )
        self._config = core.config
        self.expressions = ConsumerFilterManager(
            ConfigFile(core.store.files, FILE_NAME), core.clock, bloom
        )
        """The SQL92 expressions that groups subscribe with."""
        self.subscriptions = SubscriptionFilters(self.expressions, core.config, core.clock)
        """Makes the filter of a subscription."""
        self._store = core.store
        if config.enable_calc_filter_bit_map:
            core.store.calculate_bit_maps(self.expressions.bit_map)
        core.config.on_change.append(self._config_changed)

    def _config_changed(self, before: BrokerConfig, now: BrokerConfig) -> None:
        wanted = now.enable_calc_filter_bit_map
        if wanted != before.enable_calc_filter_bit_map:
            self._store.calculate_bit_maps(self.expressions.bit_map if wanted else None)

    def saved_tables(self) -> Iterable[SavedTable]:
        """The expressions."""
        return (SavedTable("filters", lambda: _SAVE_INTERVAL_MS, self._save, self._changed),)

    async def load(self) -> None:
        """Read the expressions."""
        self.expressions.load()

    def topic_deleted(self, topic: str) -> None:
        """Forget the expressions for a topic."""
        self.expressions.remove_topic(topic)

    def group_deleted(self, group: str) -> None:
        """Forget the expressions of a group."""
        self.expressions.remove_group(group)

    def _changed(self) -> bool:
        self.expressions.clean(self._config.current.filter_data_clean_time_span)
        return self.expressions.dirty

    async def _save(self) -> None:
        if self._changed():
            await self.expressions.persist()
