"""Copies a master's tables: topics, groups, offsets, delays, timers.

`SlaveSynchronize` of Apache. Everything each minute, the progress of timers every 3
seconds, as Apache does it. Beyond Apache, progress (offsets, delays, timers) is taken
over only when this log holds all that it rests on. And a record of an unknown topic
makes that topic at once, before the slave acknowledges the record, and asks the master
for its true configuration. Otherwise a topic made by the last messages before a
master's death could not be read.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

import trio

from rocketmq_sdk.broker_embedded.replication import master_calls as calls
from rocketmq_sdk.broker_embedded.timers.checkpoint import TimerCheckpoint, write_checkpoint
from rocketmq_sdk.codes import RequestCode
from rocketmq_sdk.errors import BrokerError, NotSupportedError, RocketMQError, StoreError
from rocketmq_sdk.log_fields import about
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


class _BehindError(RocketMQError):
    """This slave has less of the log than the progress that it was told of."""


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
        self.master_answers = False
        """Whether the master answered the last time that it was asked."""

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
                "the topic %s of a replicated message could not be kept: %s",
                arrival.topic,
                error,
                extra=about(topic=arrival.topic),
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
            self.master_answers = False
            return False
        try:
            await step(address)
        except NotSupportedError:
            self.master_answers = True
            return True
        except _BehindError:
            self.master_answers = True
            return False
        except RocketMQError as error:
            self.master_answers = isinstance(error, (BrokerError, StoreError))
            if self._problems.get(name) != str(error):
                self._problems[name] = str(error)
                logger.warning(
                    "the %s of the master at %s could not be taken over: %s", name, address, error
                )
            return False
        if self._problems.pop(name, None) is not None:
            logger.info("the %s of the master at %s are taken over again", name, address)
        self.master_answers = True
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

    async def _has_it_all(self, address: str) -> None:
        """Wait until this log holds all that the master has done so far, durably.

        Progress tells which records need no more work because others stand for them,
        further on in the log: a delayed message that was delivered, for instance. A
        slave that took over the progress without those others, and became the master,
        would lose them. Raises when it takes long.
        """
        store = self._core.store
        end = await calls.log_end(self._caller, address)
        if not await store.dispatched.wait_reached(end, SHORT_PERIOD):
            raise _BehindError(f"this log ends before {end}")
        await store.flush_log(end)

    async def _offsets(self, address: str) -> None:
        offsets = await calls.all_offsets(self._caller, address)
        await self._has_it_all(address)
        self._core.offsets.take_over(offsets)
        await self._core.offsets.persist()

    async def _delays(self, address: str) -> None:
        offsets = await calls.delay_offsets(self._caller, address)
        await self._has_it_all(address)
        self._timers.schedule.take_over(offsets)
        await self._timers.schedule.persist()

    async def _modes(self, address: str) -> None:
        body = (
            await calls.ask(self._caller, address, RequestCode.GET_ALL_MESSAGE_REQUEST_MODE)
        ).body
        await self._members.modes.take_over(MessageRequestModeSerializeWrapper.decode(body))

    async def _timer_metrics(self, address: str) -> None:
        body = (await calls.ask(self._caller, address, RequestCode.GET_TIMER_METRICS)).body
        await self._timers.service.take_over_metrics(TimerMetricsSerializeWrapper.decode(body))

    async def _timer_checkpoint(self, address: str) -> None:
        """Copy how far the master served its timers.

        This slave has no wheel of its own; it makes one when it is opened as master.
        """
        body = (await calls.ask(self._caller, address, RequestCode.GET_TIMER_CHECK_POINT)).body
        theirs = TimerCheckpoint.decode(body)
        await self._has_it_all(address)
        own = TimerCheckpoint(theirs.last_read_time, 0, theirs.queue_offset, theirs.queue_offset)
        self._timers.service.timers.checkpoint = own
        files = self._core.store.files
        await files.run(lambda: write_checkpoint(files, own))
