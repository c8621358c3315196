"""Copies a master's tables: topics, groups, offsets, delays, timers.

`SlaveSynchronize` of Apache. Everything each minute, the progress of timers every 3
seconds, as Apache does it. Beyond Apache, a record of an unknown topic makes that topic
at once, before the slave acknowledges the record, and asks the master for its true
configuration. Otherwise a topic made by the last messages before a master's death could
not be read.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

import trio

from rocketmq_sdk.broker_embedded.replication import master_calls as calls
from rocketmq_sdk.broker_embedded.timers.checkpoint import TimerCheckpoint, write_checkpoint
from rocketmq_sdk.codes import RequestCode
from rocketmq_sdk.errors import NotSupportedError, RocketMQError, StoreError
from rocketmq_sdk.protocol.bodies.members import MessageRequestModeSerializeWrapper
from rocketmq_sdk.protocol.bodies.timers import TimerMetricsSerializeWrapper
from rocketmq_sdk.protocol.bodies.topics import TopicConfig

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from rocketmq_sdk.broker_embedded.core import Core
    from rocketmq_sdk.broker_embedded.members.part import MemberPart
    from rocketmq_sdk.broker_embedded.registration.calls import AddressCaller
    from rocketmq_sdk.broker_embedded.store.messages import Arrival
    from rocketmq_sdk.broker_embedded.timers.part import TimerPart

logger = logging.getLogger(__name__)

FULL_PERIOD: Final = 60.0
"""Seconds between two looks at everything."""
SHORT_PERIOD: Final = 3.0
"""Seconds between two looks at the progress of timers, and after what failed."""


class SlaveSync:
    """Keeps a slave's tables equal to its master's.

    `master` gives the address at which the master serves requests, None while it is
    unknown.
    """

    def __init__(
        self,
        core: Core,
        timers: TimerPart,
        members: MemberPart,
        caller: AddressCaller,
        master: Callable[[], str | None],
    ) -> None:
        self._core = core
        self._timers = timers
        self._members = members
        self._caller = caller
        self._master = master
        self._woken = trio.Event()
        self._due_at = 0.0
        self._own: set[str] = set()
        """Topics made for a record's sake that the master has not confirmed yet."""
        self._problems: dict[str, str] = {}
        self.synced: dict[str, int] = {}
        """When each table was taken over last; epoch milliseconds."""

    def wake(self) -> None:
        """Look at everything now."""
        self._due_at = 0.0
        self._woken.set()

    def on_arrival(self, arrival: Arrival) -> None:
        """A record was replicated: its topic and queue have to be known from now on."""
        topics = self._core.topics
        known = topics.get(arrival.topic)
        if known is not None and arrival.queue_id < max(
            known.read_queue_nums, known.write_queue_nums
        ):
            return
        queues = max(self._core.config.current.default_topic_queue_nums, arrival.queue_id + 1)
        if known is not None:
            queues = max(queues, known.read_queue_nums, known.write_queue_nums)
        try:
            topics.put(TopicConfig(arrival.topic, queues, queues))
        except StoreError as error:
            logger.error(
                "the topic %s of a replicated message could not be kept: %s", arrival.topic, error
            )
        self._own.add(arrival.topic)
        self.wake()

    async def run(self) -> None:
        """Look again and again until cancelled."""
        while True:
            self._woken = trio.Event()
            if self._master() is not None:
                now = self._core.clock.monotonic()
                if now >= self._due_at:
                    self._due_at = now + FULL_PERIOD
                    await self.sync_all()
                await self._try("progress of timers", self._timer_checkpoint)
            with trio.move_on_after(SHORT_PERIOD):
                await self._woken.wait()

    async def sync_all(self) -> None:
        """Copy every table once; a failure is logged and tried again soon.

        It does not stop the other tables.
        """
        steps: tuple[tuple[str, Callable[[str], Awaitable[None]]], ...] = (
            ("topics", self._topics),
            ("consumer offsets", self._offsets),
            ("delay offsets", self._delays),
            ("groups", self._groups),
            ("modes of groups", self._modes),
            ("numbers of timers", self._timer_metrics),
        )
        for name, step in steps:
            if not await self._try(name, step):
                self._due_at = 0.0

    async def _try(self, name: str, step: Callable[[str], Awaitable[None]]) -> bool:
        """One step; returns whether it succeeded.

        A master that does not know the request has nothing to give; that is no failure.
        """
        address = self._master()
        if address is None:
            return False
        try:
            await step(address)
        except NotSupportedError:
            return True
        except RocketMQError as error:
            if self._problems.get(name) != str(error):
                self._problems[name] = str(error)
                logger.warning(
                    "the %s of the master at %s could not be taken over: %s", name, address, error
                )
            return False
        if self._problems.pop(name, None) is not None:
            logger.info("the %s of the master at %s are taken over again", name, address)
        self.synced[name] = self._core.clock.now_ms()
        return True

    async def _topics(self, address: str) -> None:
        wrapper = await calls.all_topics(self._caller, address)
        topics = self._core.topics
        self._own -= wrapper.topic_config_table.keys()
        kept = {name: config for name in self._own if (config := topics.get(name)) is not None}
        table = {**wrapper.topic_config_table, **kept}
        # Versions alone do not tell: a change here and one there in the same
        # millisecond have the same one.
        if wrapper.data_version is not None and (
            topics.data_version != wrapper.data_version or topics.all() != table
        ):
            topics.replace(table, wrapper.data_version)

    async def _groups(self, address: str) -> None:
        wrapper = await calls.all_groups(self._caller, address)
        groups = self._core.groups
        same = (groups.data_version, groups.all(), groups.forbidden) == (
            wrapper.data_version,
            wrapper.subscription_group_table,
            wrapper.forbidden_table,
        )
        if wrapper.data_version is not None and not same:
            groups.replace(
                wrapper.subscription_group_table, wrapper.forbidden_table, wrapper.data_version
            )

    async def _offsets(self, address: str) -> None:
        self._core.offsets.take_over(await calls.all_offsets(self._caller, address))
        await self._core.offsets.persist()

    async def _delays(self, address: str) -> None:
        self._timers.schedule.take_over(await calls.delay_offsets(self._caller, address))
        await self._timers.schedule.persist()

    async def _modes(self, address: str) -> None:
        body = (
            await calls.ask(self._caller, address, RequestCode.GET_ALL_MESSAGE_REQUEST_MODE)
        ).body
        self._members.modes.take_over(MessageRequestModeSerializeWrapper.decode(body))

    async def _timer_metrics(self, address: str) -> None:
        body = (await calls.ask(self._caller, address, RequestCode.GET_TIMER_METRICS)).body
        await self._timers.service.take_over_metrics(TimerMetricsSerializeWrapper.decode(body))

    async def _timer_checkpoint(self, address: str) -> None:
        """Copy how far the master served its timers.

        This slave has no wheel of its own; it makes one when it is opened as master.
        """
        body = (await calls.ask(self._caller, address, RequestCode.GET_TIMER_CHECK_POINT)).body
        theirs = TimerCheckpoint.decode(body)
        own = TimerCheckpoint(theirs.last_read_time, 0, theirs.queue_offset, theirs.queue_offset)
        self._timers.service.timers.checkpoint = own
        files = self._core.store.files
        await files.run(lambda: write_checkpoint(files, own))
