"""What the requests of pop share: buffer, order infos, records, revival."""

from __future__ import annotations

from collections import Counter
from functools import lru_cache
from typing import TYPE_CHECKING

from rocketmq_sdk.broker_embedded.pop import order_info
from rocketmq_sdk.broker_embedded.pop.buffer import PopBuffer
from rocketmq_sdk.broker_embedded.pop.order_info import OrderInfoManager
from rocketmq_sdk.broker_embedded.pop.plan import PopPolicy
from rocketmq_sdk.broker_embedded.pop.progress import (
    Identity,
    PopProgress,
    raise_positions,
    revived_copies,
)
from rocketmq_sdk.broker_embedded.pop.records import PopRecords
from rocketmq_sdk.broker_embedded.pop.revive import ReviveService
from rocketmq_sdk.broker_embedded.store.files.config_file import ConfigFile
from rocketmq_sdk.broker_embedded.store.files.memory_files import ends_with_its_store
from rocketmq_sdk.errors import StoreError

if TYPE_CHECKING:
    from rocketmq_sdk.broker_embedded.core import Core
    from rocketmq_sdk.broker_embedded.pop.polling import PopHolder
    from rocketmq_sdk.broker_embedded.settings.config import BrokerConfig
    from rocketmq_sdk.broker_embedded.timers.part import TimerPart
    from rocketmq_sdk.broker_embedded.timers.service import TimerService


class PopState:
    """Tables and tasks of pop over an open store.

    `load` and `close` are called as the broker opens and closes.
    """

    __slots__ = (
        "_core",
        "buffer",
        "intake",
        "notifications",
        "order",
        "progress",
        "records",
        "revive",
        "waiting",
    )

    def __init__(self, core: Core, timers: TimerPart) -> None:
        store, config, clock = core.store, core.config, core.clock
        self._core = core
        self.order = OrderInfoManager(ConfigFile(store.files, order_info.FILE_NAME), clock)
        self.intake = timers.intake
        self.records = PopRecords(timers.intake, config, clock, core.store_host, core.stats)
        # Nobody reads checkpoints of a broker in memory later; a disk that is full or
        # became read-only takes none.
        forgotten = ends_with_its_store(store.files)
        self.buffer = PopBuffer(
            self.records,
            core.offsets,
            config,
            clock,
            lambda: forgotten or not store.writable,
        )
        self.revive = ReviveService(
            store,
            core.topics,
            core.groups,
            core.offsets,
            self.records,
            config,
            clock,
            core.store_host,
            delivered_until=lambda: delivered_until(timers.service),
        )
        self.progress = PopProgress(store, lambda: self.records.written + self.revive.revived)
        self.waiting: PopHolder
        self.notifications: PopHolder

    async def load(self) -> None:
        """Read the files, and raise the groups' offsets by what was popped.

        The store says what was popped. Also finds where revival goes on. Raises
        `StoreCorruptError` when a file is corrupt, `StoreError` when the store cannot
        be read.
        """
        self.order.load()
        core, progress = self._core, self.progress
        if core.config.current.is_slave:
            return  # the master knows what was popped
        progress.load()
        end, copies = core.store.max_physical_offset, Counter[Identity]()
        if progress.position < end:
            await raise_positions(
                core.store,
                core.topics,
                core.groups,
                core.offsets,
                self.records.topic,
                progress.position,
            )
        if progress.before < end:
            copies = await core.store.files.run(lambda: revived_copies(core.store, progress.before))
        await self.revive.load(copies, progress.before)
        core.offsets.around_write = progress.writing

    def count_out(
        self, topic: str, asked: str, group: str, queue_id: int, messages: int, size: int
    ) -> None:
        """Messages left for a pop of the topic `asked`, out of it or a retry topic."""
        stats = self._core.stats
        stats.got(topic, group, queue_id, messages, size)
        if stats.figures is not None:
            retry = "false" if topic == asked else "true"
            stats.figures.got(asked, group, messages, size, retry)
            stats.figures.popped(topic, group, queue_id, messages)

    def release(self) -> None:
        """Answer all requests that wait; from now on pops get nothing."""
        self.waiting.release_all()
        self.notifications.release_all()

    async def close(self) -> None:
        """Write what is in memory to store and offsets. Raises `StoreError`."""
        stored = self.buffer.flush()
        await self.order.persist()
        if not stored:
            raise StoreError(
                "checkpoints of pops could not be stored; "
                "what they cover is popped again after the next start"
            )


def delivered_until(timers: TimerService) -> int:
    """Epoch milliseconds up to which all timers were delivered; 0 when unknown."""
    if timers.behind_messages:
        return 0
    wheel = timers.timers
    return wheel.write_time if wheel.next_slot is None else min(wheel.next_slot, wheel.write_time)


def policy_of(config: BrokerConfig) -> PopPolicy:
    """What the settings in force say about retries and the order of queues."""
    return _policy(
        config.pop_from_retry_probability,
        config.enable_retry_topic_v2,
        config.retrieve_message_from_pop_retry_topic_v1,
        config.priority_order_asc,
    )


_policy = lru_cache(maxsize=64)(PopPolicy)
