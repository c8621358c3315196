"""Delay levels: delivers messages of the schedule topic when they are due.

`ScheduleMessageService` of Apache. Each level has a queue whose messages are due in the
order in which they came. One task sleeps until the next due message of all levels,
where Apache looks at every level each 100 ms; a message that arrives in an empty queue
wakes it. Levels that are due are served beside each other, so that a slow disk keeps no
level waiting for another one. A put that fails is tried again until it succeeds, and
the level waits for it. A message that cannot be read is tried some times; one that
stays unreadable, or that no store would take, is set aside, where Apache's level waits
for ever.

How far each level was delivered is kept in `delayOffset.json`, which is written some
seconds late, behind the log: after a crash the last deliveries happen again.
"""

from __future__ import annotations

import heapq
import logging
import math
from typing import TYPE_CHECKING, Final

import trio

from rocketmq_sdk.broker_embedded.store.messages import MessageToStore, PutStatus
from rocketmq_sdk.broker_embedded.store.services import OnCall
from rocketmq_sdk.broker_embedded.supervision import (
    BACKOFF,
    Complaints,
    JoinedTroubles,
    error_text,
)
from rocketmq_sdk.broker_embedded.timers.lateness import Lateness
from rocketmq_sdk.errors import ProtocolError, StoreError
from rocketmq_sdk.lifecycle import open_quiet_nursery
from rocketmq_sdk.model.properties import REAL_QID, REAL_TOPIC, TAGS, property_in_text
from rocketmq_sdk.names import SCHEDULE_TOPIC, return_problem
from rocketmq_sdk.protocol.bodies.offsets import DelayOffsetSerializeWrapper
from rocketmq_sdk.protocol.bodies.topics import DataVersion
from rocketmq_sdk.protocol.message_codec import decode_message
from rocketmq_sdk.protocol.subscription import tags_code

if TYPE_CHECKING:
    from rocketmq_sdk.broker_embedded.store.files.config_file import ConfigFile
    from rocketmq_sdk.broker_embedded.store.following.follower import Followed
    from rocketmq_sdk.broker_embedded.store.message_store import MessageStore
    from rocketmq_sdk.broker_embedded.store.messages import Arrival, PutResult
    from rocketmq_sdk.broker_embedded.tables.stats import BrokerStats
    from rocketmq_sdk.clock import Clock
    from rocketmq_sdk.model.delay_levels import DelayLevels
    from rocketmq_sdk.model.received import ReceivedMessage

logger = logging.getLogger(__name__)

FILE_NAME: Final = "delayOffset.json"
RETRY_MS: Final = 100
"""How long a level waits after a put that failed."""
_TURN: Final = 16
"""Messages delivered before others have their turn."""
_FOREVER: Final = frozenset({PutStatus.MESSAGE_ILLEGAL, PutStatus.PROPERTIES_SIZE_EXCEEDED})
"""Failures of a put that another try would meet again.

The messages behind it do not wait.
"""


class ScheduleService:
    """Delivers delayed messages; add `on_arrival` to the store's listeners."""

    __slots__ = (
        "_busy",
        "_clock",
        "_due",
        "_earlier",
        "_file",
        "_follower",
        "_heads",
        "_late",
        "_levels",
        "_offsets",
        "_sleeping_until",
        "_stats",
        "_store",
        "_tries",
        "_version_step",
        "closing",
        "data_version",
        "dirty",
        "on_call",
        "trouble",
        "troubles",
    )

    def __init__(
        self,
        store: MessageStore,
        config_file: ConfigFile,
        levels: DelayLevels,
        clock: Clock,
        stats: BrokerStats,
        *,
        version_step: int = 200,
    ) -> None:
        self._store = store
        self._file = config_file
        self._levels = levels
        self._clock = clock
        self._stats = stats
        self._version_step = max(1, version_step)
        self._offsets: dict[int, int] = {}
        self._due: list[tuple[int, int]] = []
        self._late: dict[tuple[int, int], int] = {}
        self._heads: dict[int, int] = {}
        self._earlier = trio.Event()
        self._sleeping_until: float = 0
        self.on_call = OnCall()
        """Called when a message waits."""
        self.data_version = DataVersion()
        self.dirty = False
        self._tries: dict[int, int] = {}
        self._busy: set[int] = set()
        self._follower = store.follow("delay levels")
        self.closing = False
        """Whether the broker is about to end, and waits for no slave any more."""
        self.trouble = Complaints()
        """Levels that wait because something cannot be written."""
        self.troubles = JoinedTroubles(
            self.trouble, self._follower, Lateness(lambda: self.behind_ms)
        )
        """Levels and messages that wait, and how late they come."""

    async def load(self) -> None:
        """Read the file and look at the head of each queue; the store is open.

        Offsets are brought into the range of their queues.
        """
        wrapper = self._file.load_body(DelayOffsetSerializeWrapper)
        if wrapper is not None:
            self._offsets = {
                level: offset
                for level, offset in wrapper.offset_table.items()
                if 0 < level <= self._levels.maximum
            }
            self.data_version = wrapper.data_version or DataVersion()
        queues = {queue_id + 1 for queue_id in self._store.queue_ids(SCHEDULE_TOPIC)}
        for level in sorted(queues | self._offsets.keys()):
            if level > self._levels.maximum:
                continue
            least = self._store.min_offset(SCHEDULE_TOPIC, level - 1)
            most = self._store.max_offset(SCHEDULE_TOPIC, level - 1)
            if level in self._offsets or most:
                self._offsets[level] = min(max(self._offsets.get(level, 0), least), most)
            if most == least:
                continue
            due_ms = await self._next_due(level)
            if due_ms is not None:
                self._push(due_ms, level)

    async def persist(self) -> None:
        """Write the file when something was delivered since the last time.

        Behind the log that holds it: after a power cut no delivery is missing that the
        file speaks of. Raises `StoreError`.
        """
        if self.dirty:
            self.dirty = False
            value, end = self.wrapper().to_json(), self._store.max_physical_offset
            try:
                await self._store.secure(end, replicated=not self.closing)
                await self._file.save(value)
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

    @property
    def behind_ms(self) -> int:
        """How long the message has been due that waits for longest; 0 when none is."""
        heads = self._heads
        return max(0, self._clock.now_ms() - min(heads.values())) if heads else 0

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
        self.on_call.call()
        if due_ms < self._sleeping_until:
            self._earlier.set()

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
        self._busy.clear()
        async with open_quiet_nursery() as nursery:
            while True:
                self._earlier = trio.Event()
                now = self._clock.now_ms()
                while self._due and self._due[0][0] <= now:
                    due_ms, level = heapq.heappop(self._due)
                    if level not in self._busy:
                        self._busy.add(level)
                        self._heads.setdefault(level, due_ms)
                        nursery.start_soon(self._try_level, level)
                self._sleeping_until = self._due[0][0] if self._due else float("inf")
                with trio.move_on_after((self._sleeping_until - now) / 1000):
                    await self._earlier.wait()
                self._sleeping_until = 0

    async def _try_level(self, level: int) -> None:
        """Deliver what is due in a level; after an error the level waits, and no other
        one does.
        """
        about = f"delay level {level}"
        next_ms: int | None = None
        try:
            next_ms = await self._deliver(level)
        except Exception as error:  # noqa: BLE001 - other levels go on
            tries = self._tries[level] = self._tries.get(level, 0) + 1
            next_ms = self._clock.now_ms() + int(BACKOFF.delay(tries - 1) * 1000)
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
        finally:
            self._busy.discard(level)
        if next_ms is None and self.offset(level) < self._store.max_offset(
            SCHEDULE_TOPIC, level - 1
        ):
            next_ms = self._clock.now_ms()  # it came after the last look
        if next_ms is not None:
            self._push(next_ms, level)

    async def _deliver(self, level: int) -> int | None:
        """Deliver what is due in a level; returns when there is more to do, if ever."""
        while True:
            ahead = await self._read_due(level, self._clock.now_ms())
            for number, message in enumerate(ahead, 1):
                if number % _TURN == 0:
                    await trio.lowlevel.checkpoint()
                if message.code > 0:
                    self._heads[level] = message.code
                left_ms = await self._deliver_one(message)
                if left_ms:
                    return self._clock.now_ms() + left_ms
                if self._late:
                    self._late.pop((level, message.place.offset), None)
                self._advance(level, message.place.offset + 1)
            if not ahead:
                self._heads.pop(level, None)
                return await self._next_due(level)
            await trio.lowlevel.checkpoint()

    async def _read_due(self, level: int, now: int) -> list[Followed]:
        """Some of the messages of a level that are due."""
        return await self._follower.read(
            SCHEDULE_TOPIC,
            level - 1,
            self.offset(level),
            wanted=lambda offset, code: self._deliver_time(code, level, offset) <= now,
        )

    async def _next_due(self, level: int) -> int | None:
        """When the head of a level is due; None for an empty level."""
        offset = max(self.offset(level), self._store.min_offset(SCHEDULE_TOPIC, level - 1))
        units = await self._follower.units(SCHEDULE_TOPIC, level - 1, offset, 1)
        if isinstance(units, StoreError):
            return self._clock.now_ms()
        return self._deliver_time(units[0][2], level, offset) if units else None

    def _advance(self, level: int, offset: int) -> None:
        self._offsets[level] = offset
        self.dirty = True
        if offset % self._version_step == 0:
            self.data_version = self.data_version.next(self._clock.now_ms())

    async def _deliver_one(self, waiting: Followed) -> int:
        """Put one message where it belongs; milliseconds until it has to be tried
        again, 0 when it is done with.

        What cannot be read or delivered is set aside in the end.
        """
        place, follower = waiting.place, self._follower
        left = follower.left(place)
        if left:
            return _milliseconds(left)
        if isinstance(waiting.record, StoreError):
            delay = await follower.failed(place, waiting.record)
            return 0 if delay is None else _milliseconds(delay)
        follower.went_well(place)
        problem, result = self._put(waiting.record)
        about = f"delay level {place.queue_id + 1}"
        if problem is not None or result is None or result.ok:
            if problem is not None:
                follower.give_up(place, problem)
            self.trouble.over(about)
            return 0
        stuck = f"message {place.offset} cannot be put ({result.status.name})"
        if self.trouble.add(about, StoreError(stuck)):
            logger.warning("%s waits, and it is tried again: %s", about, stuck)
        return RETRY_MS

    def _put(self, record: bytes | None) -> tuple[str | None, PutResult | None]:
        """Store the message of a record in its topic; a problem is one for ever."""
        if record is None:
            return "the log does not have it any more", None
        try:
            message = _rebuild(decode_message(record, inflate=False))
        except (ProtocolError, ValueError) as error:
            return f"it cannot be delivered: {error}", None
        if problem := return_problem(message.topic):
            return problem, None
        result = self._store.put(message)
        if result.status in _FOREVER:
            return f"it cannot be put into {message.topic} ({result.status.name})", None
        if result.ok:
            stats = self._stats
            stats.put(message.topic, message.queue_id, result.count, result.size)
            if stats.figures is not None:
                stats.figures.delivered_late(message.topic, result.count, result.size)
        return None, result


def _milliseconds(seconds: float) -> int:
    return max(1, math.ceil(seconds * 1000))


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
