"""Delay levels: delivers messages of the schedule topic when they are due.

`ScheduleMessageService` of Apache. Each level has a queue whose messages are due in the
order in which they came. One task sleeps until the next due message of all levels,
where Apache looks at every level each 100 ms; a message that arrives in an empty queue
wakes it. A put that fails is tried again until it succeeds, and the level waits for it.
A message that no store would take is named in the log and skipped, where Apache's level
waits for ever.

How far each level was delivered is kept in `delayOffset.json`, which is written some
seconds late: after a crash the last deliveries happen again.
"""

from __future__ import annotations

import heapq
import logging
from typing import TYPE_CHECKING, Final

import trio

from rocketmq_sdk.broker_embedded.store.messages import MessageToStore, PutStatus
from rocketmq_sdk.broker_embedded.supervision import BACKOFF, Complaints, error_text
from rocketmq_sdk.errors import ProtocolError
from rocketmq_sdk.model.properties import REAL_QID, REAL_TOPIC, TAGS, property_in_text
from rocketmq_sdk.names import SCHEDULE_TOPIC, TRANSACTION_HALF_TOPIC
from rocketmq_sdk.protocol.bodies.offsets import DelayOffsetSerializeWrapper
from rocketmq_sdk.protocol.bodies.topics import DataVersion
from rocketmq_sdk.protocol.message_codec import decode_message
from rocketmq_sdk.protocol.subscription import tags_code

if TYPE_CHECKING:
    from rocketmq_sdk.broker_embedded.store.files.config_file import ConfigFile
    from rocketmq_sdk.broker_embedded.store.message_store import MessageStore
    from rocketmq_sdk.broker_embedded.store.messages import Arrival
    from rocketmq_sdk.clock import Clock
    from rocketmq_sdk.model.delay_levels import DelayLevels
    from rocketmq_sdk.model.message import ReceivedMessage

logger = logging.getLogger(__name__)

FILE_NAME: Final = "delayOffset.json"
RETRY_MS: Final = 100
"""How long a level waits after a put that failed."""
_SLICE: Final = 64
_FOREVER: Final = frozenset({PutStatus.MESSAGE_ILLEGAL, PutStatus.PROPERTIES_SIZE_EXCEEDED})
"""Failures of a put that another try would meet again.

The messages behind it do not wait.
"""


class ScheduleService:
    """Delivers delayed messages; add `on_arrival` to the store's listeners."""

    __slots__ = (
        "_clock",
        "_due",
        "_earlier",
        "_file",
        "_late",
        "_levels",
        "_offsets",
        "_sleeping_until",
        "_store",
        "_tries",
        "_version_step",
        "data_version",
        "dirty",
        "trouble",
    )

    def __init__(
        self,
        store: MessageStore,
        config_file: ConfigFile,
        levels: DelayLevels,
        clock: Clock,
        *,
        version_step: int = 200,
    ) -> None:
        self._store = store
        self._file = config_file
        self._levels = levels
        self._clock = clock
        self._version_step = max(1, version_step)
        self._offsets: dict[int, int] = {}
        self._due: list[tuple[int, int]] = []
        self._late: dict[tuple[int, int], int] = {}
        self._earlier = trio.Event()
        self._sleeping_until: float = 0
        self.data_version = DataVersion()
        self.dirty = False
        self._tries: dict[int, int] = {}
        self.trouble = Complaints()
        """Levels that wait because something cannot be read or written."""

    def load(self) -> None:
        """Read the file and look at the head of each queue; the store is open.

        Offsets are brought into the range of their queues.
        """
        found = self._file.load()
        if found is not None:
            wrapper = DelayOffsetSerializeWrapper.from_json(found)
            self._offsets = {
                level: offset
                for level, offset in wrapper.offset_table.items()
                if 0 < level <= self._levels.maximum
            }
            self.data_version = wrapper.data_version or DataVersion()
        for level in range(1, self._levels.maximum + 1):
            least = self._store.min_offset(SCHEDULE_TOPIC, level - 1)
            most = self._store.max_offset(SCHEDULE_TOPIC, level - 1)
            if level in self._offsets or most:
                self._offsets[level] = min(max(self._offsets.get(level, 0), least), most)
            self._look(level)

    async def persist(self) -> None:
        """Write the file when something was delivered since the last time."""
        if self.dirty:
            self.dirty = False
            try:
                await self._file.save(self.wrapper().to_json())
            except BaseException:
                self.dirty = True
                raise

    def wrapper(self) -> DelayOffsetSerializeWrapper:
        """How far each level was delivered, as the file has it.

        GET_ALL_DELAY_OFFSET answers the same.
        """
        return DelayOffsetSerializeWrapper(dict(self._offsets), self.data_version)

    def take_over(self, wrapper: DelayOffsetSerializeWrapper) -> None:
        """Remember how far a master delivered; for a slave, which delivers nothing."""
        if wrapper.offset_table != self._offsets:
            self._offsets = dict(wrapper.offset_table)
            self.data_version = wrapper.data_version or DataVersion()
            self.dirty = True

    def offset(self, level: int) -> int:
        """The next message of a level to deliver."""
        return self._offsets.get(level, 0)

    def next_due_ms(self) -> int | None:
        """When the next message is due (epoch milliseconds); None when none waits."""
        return self._due[0][0] if self._due else None

    def on_arrival(self, arrival: Arrival) -> None:
        """A message arrived; in the schedule topic it may be the next one due."""
        if arrival.topic != SCHEDULE_TOPIC:
            return
        level = arrival.queue_id + 1
        if level > self._levels.maximum:
            return
        due_ms, latest = arrival.tags_code, self._clock.now_ms() + self._levels.delay_ms(level)
        if due_ms > latest:
            due_ms = self._late[level, arrival.queue_offset] = latest
        if arrival.queue_offset == self._offsets.get(level, 0):
            self._push(due_ms, level)

    def _push(self, due_ms: int, level: int) -> None:
        heapq.heappush(self._due, (due_ms, level))
        if due_ms < self._sleeping_until:
            self._earlier.set()

    def _look(self, level: int) -> None:
        """Remember when the head of a level is due."""
        offset = self._offsets.get(level, 0)
        unit = self._store.queue_unit(SCHEDULE_TOPIC, level - 1, offset)
        if unit is not None:
            self._push(self._deliver_time(unit[2], level, offset), level)

    def _deliver_time(self, due_ms: int, level: int, offset: int) -> int:
        """When a message is due.

        A time later than any message of the level can have means that the clock was set
        back since the store wrote it. What was waiting before this start is due at once
        then, as with Apache; what came since is due when its level says.
        """
        now = self._clock.now_ms()
        return (
            due_ms
            if due_ms <= now + self._levels.delay_ms(level)
            else self._late.get((level, offset), now)
        )

    @trio.lowlevel.enable_ki_protection
    async def run(self) -> None:
        """Deliver until cancelled."""
        while True:
            self._earlier = trio.Event()
            now = self._clock.now_ms()
            if self._due and self._due[0][0] <= now:
                _due_ms, level = heapq.heappop(self._due)
                self._try_level(level, now)
                await trio.lowlevel.checkpoint()
                continue
            self._sleeping_until = self._due[0][0] if self._due else float("inf")
            with trio.move_on_after((self._sleeping_until - now) / 1000):
                await self._earlier.wait()
            self._sleeping_until = 0

    def _try_level(self, level: int, now: int) -> None:
        """Deliver what is due in a level; after an error the level waits, and no other
        one does.
        """
        about = f"delay level {level}"
        try:
            self._deliver(level, now)
        except Exception as error:  # noqa: BLE001 - other levels go on
            tries = self._tries[level] = self._tries.get(level, 0) + 1
            self._push(now + int(BACKOFF.delay(tries - 1) * 1000), level)
            if self.trouble.add(about, error):
                logger.error(
                    "%s stands at message %d and is tried again: %s",
                    about,
                    self.offset(level),
                    error_text(error),
                )
        else:
            if self._tries.pop(level, None) is not None:
                self.trouble.over(about)

    def _deliver(self, level: int, now: int) -> None:
        """Deliver at most a slice of what is due in a level; remember what is next."""
        queue_id = level - 1
        for _ in range(_SLICE):
            offset = self._offsets.get(level, 0)
            unit = self._store.queue_unit(SCHEDULE_TOPIC, queue_id, offset)
            if unit is None:
                behind = self._store.min_offset(SCHEDULE_TOPIC, queue_id)
                if offset >= behind:
                    return
                self._advance(level, behind)
                continue
            due_ms = self._deliver_time(unit[2], level, offset)
            if due_ms > now:
                self._push(due_ms, level)
                return
            if not self._deliver_one(unit[0], unit[1]):
                self._push(now + RETRY_MS, level)
                return
            if self._late:
                self._late.pop((level, offset), None)
            self._advance(level, offset + 1)
        self._look(level)

    def _advance(self, level: int, offset: int) -> None:
        self._offsets[level] = offset
        self.dirty = True
        if offset % self._version_step == 0:
            self.data_version = self.data_version.next(self._clock.now_ms())

    def _deliver_one(self, physical_offset: int, size: int) -> bool:
        """Put one message where it belongs; False to try it again.

        An unreadable message is skipped.
        """
        record = self._store.record_at(physical_offset, size)
        if record is None:
            logger.error("the delayed message at %d cannot be read; it is skipped", physical_offset)
            return True
        try:
            message = _rebuild(decode_message(record, inflate=False))
        except (ProtocolError, ValueError) as error:
            logger.error(
                "the delayed message at %d cannot be delivered and is skipped: %s",
                physical_offset,
                error,
            )
            return True
        if message.topic == TRANSACTION_HALF_TOPIC:
            logger.error(
                "the delayed message at %d belongs to a transaction; it is dropped", physical_offset
            )
            return True
        result = self._store.put(message)
        if result.ok:
            return True
        name, status = message.topic, result.status
        if status in _FOREVER:
            logger.error(
                "the delayed message at %d cannot be put into %s (%s); it is skipped",
                physical_offset,
                name,
                status.name,
            )
            return True
        logger.warning(
            "the delayed message at %d could not be put into %s (%s); it is tried again",
            physical_offset,
            name,
            status.name,
        )
        return False


def _rebuild(waiting: ReceivedMessage) -> MessageToStore:
    """The message before its delay; its properties keep traces, as with Apache.

    Raises `ValueError` when they do not say where it belongs.
    """
    text = waiting.properties_bytes.decode("utf-8", "replace")
    topic, queue_id = property_in_text(text, REAL_TOPIC), property_in_text(text, REAL_QID)
    if topic is None or queue_id is None:
        raise ValueError("it does not name its real topic and queue")
    return MessageToStore(
        topic,
        int(queue_id),
        waiting.body,
        text,
        flag=waiting.flag,
        sys_flag=waiting.sys_flag,
        born_timestamp=waiting.born_timestamp,
        born_host=waiting.born_host,
        reconsume_times=waiting.reconsume_times,
        tags_code=tags_code(property_in_text(text, TAGS)),
        store_host=waiting.store_host,
    )
