"""Delays and timers of a broker: the part."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rocketmq_sdk.broker_embedded import needs
from rocketmq_sdk.broker_embedded.needs import Action
from rocketmq_sdk.broker_embedded.part import Part, SavedTable, Service
from rocketmq_sdk.broker_embedded.request import Asked, Cost, Request, Wait, Writes
from rocketmq_sdk.broker_embedded.store.files.config_file import ConfigFile
from rocketmq_sdk.broker_embedded.timers import metrics, schedule
from rocketmq_sdk.broker_embedded.timers.intake import Intake
from rocketmq_sdk.broker_embedded.timers.recall import RecallProcessor
from rocketmq_sdk.broker_embedded.timers.schedule import ScheduleService
from rocketmq_sdk.broker_embedded.timers.service import TimerService
from rocketmq_sdk.codes import RequestCode
from rocketmq_sdk.model.delay_levels import DelayLevels
from rocketmq_sdk.names import SCHEDULE_TOPIC, TIMER_TOPIC
from rocketmq_sdk.protocol.command import Command
from rocketmq_sdk.protocol.headers.timers import RecallMessageRequestHeader

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rocketmq_sdk.broker_embedded.core import Core


class TimerPart(Part):
    """Messages that wait for their time, and the way into the store that leads there.

    A slave delivers nothing: it keeps what its master tells of its progress.
    """

    __slots__ = ("_core", "_recall", "intake", "schedule", "service")

    def __init__(self, core: Core) -> None:
        files, config = core.store.files, core.config.current
        levels = DelayLevels(config.store.message_delay_level)
        self._core = core
        self.schedule = ScheduleService(
            core.store,
            ConfigFile(files, schedule.FILE_NAME),
            levels,
            core.clock,
            core.stats,
            version_step=config.delay_offset_update_version_step,
        )
        """Delay levels."""
        self.service = TimerService(
            core.store, ConfigFile(files, metrics.FILE_NAME), core.clock, core.stats
        )
        """Timers for any moment."""
        self.intake = Intake(core.store, core.config, levels, self.service.timers, core.clock)
        self._recall = RecallProcessor(core, self.intake)

    def requests(self) -> Iterable[Request]:
        """Taking a message back, and what a slave asks about progress."""
        return (
            Request(
                RequestCode.RECALL_MESSAGE,
                self._recall.recall,
                needs.topic(Action.PUB),
                RecallMessageRequestHeader,
                connection=True,
                asked=Asked.MASTER_BY_NAME,
                wait=Wait.SEND,
                writes=Writes.LOG,
            ),
            Request(RequestCode.GET_TIMER_CHECK_POINT, self._checkpoint, needs.cluster(Action.GET)),
            Request(
                RequestCode.GET_TIMER_METRICS,
                self._metrics,
                needs.cluster(Action.GET),
                cost=Cost.TABLE,
            ),
            Request(
                RequestCode.GET_ALL_DELAY_OFFSET, self._delay_offsets, needs.cluster(Action.GET)
            ),
        )

    def services(self) -> Iterable[Service]:
        """Both deliveries."""
        if self._core.config.current.is_slave:
            return ()
        return (
            Service(
                "schedule service",
                self.schedule.run,
                trouble=self.schedule.troubles,
                on_call=self.schedule.on_call,
            ),
            Service(
                "timer service",
                self.service.run,
                trouble=self.service.troubles,
                on_call=self.service.on_call,
            ),
        )

    def saved_tables(self) -> Iterable[SavedTable]:
        """Progress of the delay levels and of timers; timers save as they change."""
        config = self._core.config
        delays = SavedTable(
            "delay offsets",
            lambda: config.current.flush_delay_offset_interval,
            self.schedule.persist,
            lambda: self.schedule.dirty,
        )
        if config.current.is_slave:
            return (delays,)
        return (delays, SavedTable("timers", None, self.service.persist, self.service.has_to_save))

    async def load(self) -> None:
        """Read both, and listen to messages that have to wait."""
        if not self._core.config.current.is_slave:
            self.service.load()
        await self.schedule.load()
        needs = self._core.store.needs
        if needs is not None:
            needs.floors[SCHEDULE_TOPIC] = lambda queue_id: self.schedule.offset(queue_id + 1)
            needs.floors[TIMER_TOPIC] = lambda _queue_id: self.service.timers.next_offset
            needs.places.append(self.service.timers.places.between)
        if not self._core.config.current.is_slave:
            self._core.store.listen(self.schedule.on_arrival, topic=SCHEDULE_TOPIC)
            self._core.store.listen(self.service.on_arrival, topic=TIMER_TOPIC)

    def topic_deleted(self, topic: str) -> None:
        """Forget how many timers of a topic wait."""
        self.service.timers.metrics.forget(topic)

    async def close(self) -> None:
        """End the deliveries."""
        self.schedule.closing = True
        await self.service.close()

    def _checkpoint(self) -> Command:
        """GET_TIMER_CHECK_POINT (60)."""
        return Command.response(body=self.service.checkpoint().encode())

    def _metrics(self) -> Command:
        """GET_TIMER_METRICS (61)."""
        return Command.response(body=self.service.timers.metrics.wrapper().encode())

    def _delay_offsets(self) -> Command:
        """GET_ALL_DELAY_OFFSET (45)."""
        return Command.response(body=self.schedule.wrapper().encode())
