"""Moves messages from the timer topic into the wheel; delivers them when due.

The threads of `TimerMessageStore` of Apache RocketMQ 5.4.0. A message that arrives goes
into the wheel at once. One task sleeps until the earliest slot is over and delivers its
messages in the order in which they came, a few at a time so that others have their
turn; a put that fails is tried again until it succeeds. Another task makes log, wheel
and checkpoint durable about a second after something changed. Neither does anything
before the first timer.

A crash loses no timer. What was delivered since the last checkpoint is delivered again.
"""

from __future__ import annotations

import logging
from array import array
from typing import TYPE_CHECKING, Final

import trio

from rocketmq_sdk.broker_embedded.store.messages import MessageToStore, PutStatus
from rocketmq_sdk.broker_embedded.timers.checkpoint import write_checkpoint
from rocketmq_sdk.broker_embedded.timers.messages import (
    NEVER_ENQUEUED,
    delete_keys,
    delivered,
    is_deletion,
    out_time,
    rolled,
)
from rocketmq_sdk.broker_embedded.timers.timer_store import Entry, TimerStore
from rocketmq_sdk.errors import ProtocolError, StoreError
from rocketmq_sdk.model.properties import REAL_TOPIC, TIMER_DEL_UNIQKEY, UNIQ_KEY, property_in_text
from rocketmq_sdk.names import TIMER_TOPIC
from rocketmq_sdk.protocol.message_codec import MAX_PROPERTIES, decode_message

if TYPE_CHECKING:
    from rocketmq_sdk.broker_embedded.store.files.config_file import ConfigFile
    from rocketmq_sdk.broker_embedded.store.message_store import MessageStore
    from rocketmq_sdk.broker_embedded.store.messages import Arrival
    from rocketmq_sdk.broker_embedded.timers.checkpoint import TimerCheckpoint
    from rocketmq_sdk.broker_embedded.timers.record import TimerRecord
    from rocketmq_sdk.clock import Clock
    from rocketmq_sdk.model.message import ReceivedMessage
    from rocketmq_sdk.protocol.bodies.timers import TimerMetricsSerializeWrapper

    Found = tuple[ReceivedMessage, str]

logger = logging.getLogger(__name__)

RETRY_SECONDS: Final = 0.5
"""How long a put that failed waits to be tried again."""
_TURN: Final = 32
_WALK_TURN: Final = 1000
_EXPIRY_SECONDS: Final = 30
_NEVER: Final = 1 << 60
_FOREVER: Final = frozenset({PutStatus.MESSAGE_ILLEGAL, PutStatus.PROPERTIES_SIZE_EXCEEDED})
"""What a put that is tried again would say again."""


class Recalls:
    """The messages that those of one slot take back."""

    __slots__ = ("_found", "_topics")

    def __init__(self) -> None:
        self._topics: dict[str, str] = {}
        self._found: set[str] = set()

    def add(self, text: str) -> None:
        """A message that takes another one back, by its properties."""
        key = property_in_text(text, TIMER_DEL_UNIQKEY)
        if key is not None:
            self._topics[key] = property_in_text(text, REAL_TOPIC) or ""

    def take(self, text: str) -> bool:
        """Whether a message is taken back, by its properties."""
        if not self._topics:
            return False
        unique = property_in_text(text, UNIQ_KEY)
        keys = (
            () if unique is None else delete_keys(property_in_text(text, REAL_TOPIC) or "", unique)
        )
        key = next((key for key in keys if key in self._topics), None)
        if key is not None:
            self._found.add(key)
        return key is not None

    def without_effect(self) -> list[str]:
        """The real topics of recalls that found nothing.

        Each was subtracted from the topic's timers.
        """
        return [topic for key, topic in self._topics.items() if key not in self._found]


class TimerService:
    """Owns the timers of one store.

    Add `on_arrival` to the store's list of listeners; run `run` in a task.
    """

    def __init__(self, store: MessageStore, metrics_file: ConfigFile, clock: Clock) -> None:
        config = store.config
        self._store = store
        self._metrics_file = metrics_file
        self._clock = clock
        self.timers = TimerStore(store, clock)
        self._flush_seconds = config.timer_flush_interval_ms / 1000
        self._enqueues = not config.timer_stop_enqueue
        self._dequeues = not config.timer_stop_dequeue
        # In memory nothing survives that a checkpoint could tell of.
        self._durable = store.files.write_through
        self._wake = trio.Event()
        self._sleeping_until = 0
        self._changed = trio.Event()
        self._flushing = trio.Lock()
        self._scope: trio.CancelScope | None = None
        self._ended = trio.Event()
        self._closed = False
        self._expired_at = 0.0
        self._refused = self._unkept = False
        self.enqueued = 0
        """Messages put into the wheel since the start."""
        self.dequeued = 0
        """Messages delivered since the start."""

    def load(self) -> None:
        """Read what is there; the store is open. Raises `StoreError`."""
        self.timers.load()
        self.timers.metrics.load(self._metrics_file.load())

    @property
    def behind_messages(self) -> int:
        """How many messages of the timer topic were not looked at."""
        return max(0, self._store.max_offset(TIMER_TOPIC, 0) - self.timers.next_offset)

    def checkpoint(self) -> TimerCheckpoint:
        """How far timers were served durably.

        A power cut may lose that anything behind it was served.
        """
        return self.timers.checkpoint if self._durable else self.timers.current_checkpoint()

    # --- entering

    def on_arrival(self, arrival: Arrival) -> None:
        """A message arrived; a timer goes into the wheel at once.

        Unless it is due already or others wait in front of it.
        """
        if arrival.topic != TIMER_TOPIC or arrival.queue_id:
            return
        timers = self.timers
        if self._enqueues and arrival.queue_offset == timers.next_offset:
            entry = timers.enter(
                arrival.queue_offset,
                arrival.physical_offset,
                arrival.size,
                arrival.properties,
                arrival.store_timestamp,
            )
            if entry is Entry.ENTERED or entry is Entry.SKIPPED:
                timers.next_offset += 1
                self._entered(entry)
                return
        self._wake.set()

    def _entered(self, entry: Entry) -> None:
        if entry is Entry.ENTERED:
            self.enqueued += 1
            self._changed.set()
            first = self.timers.next_slot
            if first is not None and first < self._sleeping_until:
                self._wake.set()

    async def _catch_up(self) -> None:
        """Read the timer messages that arrived while this service was away or busy."""
        store, timers = self._store, self.timers
        turn = 0
        while self._enqueues:
            offset = timers.next_offset
            if store.queue_unit(TIMER_TOPIC, 0, offset) is None:
                least = store.min_offset(TIMER_TOPIC, 0)
                if offset >= least:
                    break
                timers.next_offset = least
                continue
            if not await self._enter(offset):
                return
            timers.next_offset = offset + 1
            turn += 1
            if turn % _TURN == 0:
                await trio.lowlevel.checkpoint()
        for offset in timers.take_put_off():
            await self._enter(offset)

    async def _enter(self, offset: int) -> bool:
        """Put a timer message into its slot, or deliver it when that is over.

        False when its slot is not free yet.
        """
        unit = self._store.queue_unit(TIMER_TOPIC, 0, offset)
        found = None if unit is None else self._read(unit[0], unit[1])
        if unit is None or found is None:
            return True
        message, text = found
        entry = self.timers.enter(offset, unit[0], unit[1], text, message.store_timestamp)
        if entry is Entry.BLOCKED:
            return False
        if entry is Entry.DUE:
            # In the order in which they were due: an ack does not overtake its
            # checkpoint that waits in the wheel since the broker went away.
            await self._deliver_until(out_time(text))
            while True:
                if self._deliver(message, text, NEVER_ENQUEUED):
                    break
                await trio.sleep(RETRY_SECONDS)
        self._entered(entry)
        self._changed.set()
        return True

    def _read(self, physical_offset: int, size: int) -> Found | None:
        return self._decoded(physical_offset, self._store.record_at(physical_offset, size))

    @staticmethod
    def _decoded(physical_offset: int, record: bytes | None) -> Found | None:
        """A timer message and its property text; None if unreadable.

        That is logged.
        """
        if record is None:
            logger.error("the timer message at %d cannot be read; it is skipped", physical_offset)
            return None
        try:
            message = decode_message(record, inflate=False)
        except ProtocolError as error:
            logger.error(
                "the timer message at %d cannot be read; it is skipped: %s", physical_offset, error
            )
            return None
        if message.topic != TIMER_TOPIC:
            logger.error(
                "the message at %d belongs to %s and is no timer; it is skipped",
                physical_offset,
                message.topic,
            )
            return None
        raw = message.properties_bytes
        text = raw.decode("utf-8", "replace")
        return message, text if len(text.encode()) <= MAX_PROPERTIES else raw.decode(
            "utf-8", "ignore"
        )

    # --- leaving

    @trio.lowlevel.enable_ki_protection
    async def run(self) -> None:
        """Deliver until cancelled or closed."""
        if self._closed:
            return
        self._ended = trio.Event()
        try:
            with trio.CancelScope() as self._scope:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(self._keep)
                    await self._serve()
        finally:
            self._ended.set()

    async def _serve(self) -> None:
        while True:
            self._wake = trio.Event()
            try:
                due = await self._work()
            except StoreError as error:
                logger.error("timers wait for the disk: %s", error)
                await trio.sleep(RETRY_SECONDS)
                continue
            self._sleeping_until = due
            with trio.move_on_after(
                max(0, due + self.timers.precision_ms - self._clock.now_ms()) / 1000
            ):
                await self._wake.wait()
            self._sleeping_until = 0

    async def _work(self) -> int:
        """Enter what arrived and deliver what is due; returns the next slot.

        Raises `StoreError` when something cannot be read.
        """
        while True:
            await self._catch_up()
            time = self.timers.next_slot if self._dequeues else None
            if time is None:
                return _NEVER
            if time >= self.timers.write_time:
                return time
            await self._deliver_slot(time)

    async def _deliver_until(self, time: int) -> None:
        """Deliver what is due up to the slot of a time. Raises `StoreError`."""
        while (
            self._dequeues
            and (first := self.timers.next_slot) is not None
            and first <= time
            and first < self.timers.write_time
        ):
            await self._deliver_slot(first)

    async def _deliver_slot(self, time: int) -> None:
        """Deliver the messages of the earliest slot.

        First the recalls, then the others in the order in which they came.
        """
        normal, recalls = array("q"), Recalls()
        for count, (position, record) in enumerate(self.timers.chain(time)):
            if record.deletes:
                found = self._read(record.physical_offset, record.message_size)
                if found is not None:
                    recalls.add(found[1])
            else:
                normal.append(position)
            if count % _WALK_TURN == _WALK_TURN - 1:
                await trio.lowlevel.checkpoint()
        for index in range(len(normal) - 1, -1, -_TURN):
            await self._deliver_some(time, normal[max(0, index - _TURN + 1) : index + 1], recalls)
            await trio.lowlevel.checkpoint()
        for topic in recalls.without_effect():
            self.timers.metrics.add(topic, 1, self._clock.now_ms())
        self.timers.finish(time)
        self._changed.set()

    async def _deliver_some(self, time: int, positions: array[int], recalls: Recalls) -> None:
        """Deliver the messages of some records.

        One that cannot be stored now is tried again before the others go on.
        """
        records = [
            record
            for position in reversed(positions)
            if (record := self.timers.log.record(position)) is not None
        ]
        found = await self._read_all(records)
        done = 0
        while True:
            done = self._deliver_turn(time, records, found, recalls, done)
            if done == len(records):
                return
            await trio.sleep(RETRY_SECONDS)

    def _deliver_turn(
        self,
        time: int,
        records: list[TimerRecord],
        found: list[Found | None],
        recalls: Recalls,
        start: int,
    ) -> int:
        """Deliver from an index on until a put fails; returns the index to go on with.

        All puts are one write.
        """
        store = self._store
        store.begin()
        try:
            for index in range(start, len(records)):
                waiting = found[index]
                if waiting is not None and not self._deliver_one(
                    time, records[index], waiting, recalls
                ):
                    return index
            return len(records)
        finally:
            try:
                store.end()
            except StoreError as error:
                logger.error("timers that were due could not be written: %s", error)

    def _deliver_one(
        self, time: int, record: TimerRecord, waiting: Found, recalls: Recalls
    ) -> bool:
        """Deliver one message; False when it has to be tried again."""
        message, text = waiting
        if recalls.take(text):
            return True
        if not (record.rolls or self._is_early(text, time)):
            return self._deliver(message, text, record.write_time)
        if not self._offer(rolled(message, text, record.write_time, self._clock.now_ms()), text):
            return False
        self._count_out(text, -1 if is_deletion(text) else 1)
        return True

    async def _read_all(self, records: list[TimerRecord]) -> list[Found | None]:
        """The messages of records; what is not in memory is read in a thread."""
        store = self._store
        data = [
            store.record_nowait(record.physical_offset, record.message_size) for record in records
        ]
        cold = [index for index, record in enumerate(data) if record is None]
        if cold:
            places = [
                (records[index].physical_offset, records[index].message_size) for index in cold
            ]
            with store.reading(min(places)[0]):
                read = await store.files.run(lambda: [store.record_at(*place) for place in places])
            for index, record in zip(cold, read, strict=True):
                data[index] = record
        return [
            self._decoded(record.physical_offset, found)
            for record, found in zip(records, data, strict=True)
        ]

    def _is_early(self, text: str, time: int) -> bool:
        """Whether a message is in a slot before its own; it gets another turn.

        Only damage can bring this about.
        """
        try:
            return out_time(text) >= time + self.timers.precision_ms
        except ValueError:
            return False

    def _deliver(self, message: ReceivedMessage, text: str, enqueued_ms: int) -> bool:
        """Store a message in its real topic; False to try it again.

        A message that no store would take is logged and skipped.
        """
        if is_deletion(text):
            logger.warning(
                "the timer message at %d came too late to take another one back",
                message.commit_log_offset,
            )
            return True
        try:
            out = delivered(message, text, enqueued_ms, self._clock.now_ms())
        except ValueError as error:
            logger.error(
                "the timer message at %d cannot be delivered and is skipped: %s",
                message.commit_log_offset,
                error,
            )
            return True
        if not self._offer(out, text):
            return False
        self.dequeued += 1
        if enqueued_ms != NEVER_ENQUEUED:
            self._count_out(text, 1)
        return True

    def _count_out(self, text: str, count: int) -> None:
        self.timers.metrics.add(
            property_in_text(text, REAL_TOPIC) or "", -count, self._clock.now_ms()
        )

    def _offer(self, message: MessageToStore, bare: str) -> bool:
        """Put a message; False to try it again.

        `bare` is the text that was stored before, for one that has become too long.
        """
        result = self._store.put(message)
        if result.status in _FOREVER and message.properties != bare:
            message.properties = bare
            result = self._store.put(message)
        if result.ok:
            self._refused = False
            return True
        if result.status in _FOREVER:
            logger.error(
                "a timer message cannot be put into %s (%s); it is skipped",
                message.topic,
                result.status.name,
            )
            return True
        if not self._refused:
            logger.warning(
                "a timer message could not be put into %s (%s); it is tried again until it is",
                message.topic,
                result.status.name,
            )
        self._refused = True
        return False

    # --- keeping

    async def _keep(self) -> None:
        while True:
            await self._changed.wait()
            self._changed = trio.Event()
            await trio.sleep(self._flush_seconds)
            await self.persist()

    async def persist(self) -> None:
        """Make changed log, wheel and checkpoint durable.

        A failure is logged and tried again later.
        """
        if not self._durable:
            return
        async with self._flushing:
            try:
                await self._flush()
                await self._persist_metrics()
                self._unkept = False
            except StoreError as error:
                if not self._unkept:
                    logger.error(
                        "timers could not be made durable; that is tried again until they are: %s",
                        error,
                    )
                self._unkept = True
                self.timers.forget_flush()
                self._changed.set()

    async def _flush(self) -> None:
        timers, files = self.timers, self._store.files
        flush = timers.begin_flush()
        if flush is None:
            return
        pages = timers.wheel.take_dirty()
        try:
            timers.log.write_out()
            target, sync_log = timers.log.prepare_sync()
            wheel = timers.wheel.write_pages(pages) if pages else None
            await self._store.flush_log(flush.log_position)
            flush.checkpoint.log_flushed = target

            def sync() -> None:
                sync_log()
                if wheel is not None:
                    wheel.sync()
                    files.sync_directory(".")
                write_checkpoint(files, flush.checkpoint)

            await files.run(sync)
        except BaseException:
            timers.wheel.give_back(pages)
            timers.log.doubtful = True
            raise
        timers.log.synced = target
        timers.checkpoint = flush.checkpoint
        now = self._clock.monotonic()
        if now - self._expired_at >= _EXPIRY_SECONDS:
            self._expired_at = now
            timers.expire()

    async def _persist_metrics(self) -> None:
        metrics = self.timers.metrics
        if metrics.dirty:
            metrics.dirty = False
            try:
                await self._metrics_file.save(metrics.wrapper().to_json())
            except BaseException:
                metrics.dirty = True
                raise

    async def take_over_metrics(self, wrapper: TimerMetricsSerializeWrapper) -> None:
        """Keep a master's numbers, as a slave serves no timer. Raises `StoreError`."""
        metrics = self.timers.metrics
        if metrics.wrapper() != wrapper:
            metrics.load(wrapper.to_json())
            metrics.dirty = True
            await self._persist_metrics()

    async def close(self) -> None:
        """End the deliveries, so that `persist` can make them durable."""
        self._closed = True
        if self._scope is not None:
            self._scope.cancel()
            await self._ended.wait()
