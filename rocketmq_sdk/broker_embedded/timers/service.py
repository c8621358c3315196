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
from typing import TYPE_CHECKING, Final

import trio

from rocketmq_sdk.broker_embedded.store.following.unreadable import UNKNOWN, Place
from rocketmq_sdk.broker_embedded.store.messages import MessageToStore, PutStatus
from rocketmq_sdk.broker_embedded.store.services import OnCall
from rocketmq_sdk.broker_embedded.supervision import BACKOFF, Complaints, JoinedTroubles, error_text
from rocketmq_sdk.broker_embedded.timers.checkpoint import write_checkpoint
from rocketmq_sdk.broker_embedded.timers.due_slot import TURN, DueSlot
from rocketmq_sdk.broker_embedded.timers.lateness import Lateness
from rocketmq_sdk.broker_embedded.timers.messages import (
    NEVER_ENQUEUED,
    delivered,
    is_deletion,
    out_time,
    rolled,
)
from rocketmq_sdk.broker_embedded.timers.reading import Recalls, TimerReader
from rocketmq_sdk.broker_embedded.timers.record import unread_record
from rocketmq_sdk.broker_embedded.timers.timer_store import Entry, TimerStore
from rocketmq_sdk.errors import StoreError
from rocketmq_sdk.log_fields import about
from rocketmq_sdk.model.properties import REAL_TOPIC, property_in_text
from rocketmq_sdk.names import TIMER_TOPIC
from rocketmq_sdk.protocol.bodies.timers import TimerMetricsSerializeWrapper

if TYPE_CHECKING:
    from rocketmq_sdk.broker_embedded.store.files.config_file import ConfigFile
    from rocketmq_sdk.broker_embedded.store.following.follower import Followed
    from rocketmq_sdk.broker_embedded.store.message_store import MessageStore
    from rocketmq_sdk.broker_embedded.store.messages import Arrival
    from rocketmq_sdk.broker_embedded.tables.stats import BrokerStats
    from rocketmq_sdk.broker_embedded.timers.checkpoint import TimerCheckpoint
    from rocketmq_sdk.broker_embedded.timers.reading import Found
    from rocketmq_sdk.broker_embedded.timers.record import TimerRecord
    from rocketmq_sdk.clock import Clock
    from rocketmq_sdk.model.received import ReceivedMessage

logger = logging.getLogger(__name__)

RETRY_SECONDS: Final = 0.5
"""How long a put that failed waits to be tried again."""
_PER_TURN: Final = 16
"""Messages delivered before others have their turn."""
_EXPIRY_SECONDS: Final = 30
_NEVER: Final = 1 << 60
_FOREVER: Final = frozenset({PutStatus.MESSAGE_ILLEGAL, PutStatus.PROPERTIES_SIZE_EXCEEDED})
"""What a put that is tried again would say again."""


class TimerService:
    """Owns the timers of one store.

    Add `on_arrival` to the store's list of listeners; run `run` in a task.
    """

    def __init__(
        self, store: MessageStore, metrics_file: ConfigFile, clock: Clock, stats: BrokerStats
    ) -> None:
        config = store.config
        self._store = store
        self._metrics_file = metrics_file
        self._clock = clock
        self._stats = stats
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
        self._slot: DueSlot | None = None
        self._reader = TimerReader(store)
        self._uncounted: set[int] = set()
        self._look_again_at = _NEVER
        self._failures = 0
        self.on_call = OnCall()
        """Called when a timer waits."""
        self.trouble = Complaints()
        """What keeps all timers waiting."""
        self.troubles = JoinedTroubles(
            self.trouble, self._reader.follower, Lateness(lambda: self.timers.behind_ms)
        )
        """All that cannot be read or delivered now, or is late."""
        self.enqueued = 0
        """Messages put into the wheel since the start."""
        self.dequeued = 0
        """Messages delivered since the start."""

    def load(self) -> None:
        """Read what is there; the store is open. Raises `StoreError`."""
        self.timers.load()
        self.timers.metrics.load(self._metrics_file.load_body(TimerMetricsSerializeWrapper))
        if self.timers.next_slot is not None or self.behind_messages:
            self.on_call.call()

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
        self.on_call.call()
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
                self._entered(entry, arrival.properties, arrival.store_timestamp)
                return
        self._wake.set()

    def _entered(self, entry: Entry, text: str, stored_ms: int) -> None:
        if entry is Entry.ENTERED:
            self.enqueued += 1
            if self._stats.figures is not None:
                waits = max(0, out_time(text) - stored_ms) // 1000
                real_topic = property_in_text(text, REAL_TOPIC) or ""
                self._stats.figures.timer_entered(real_topic, waits)
            self._changed.set()
            first = self.timers.next_slot
            if first is not None and first < self._sleeping_until:
                self._wake.set()

    async def _catch_up(self) -> None:
        """Read the timer messages that arrived while this service was away or busy."""
        timers, reader = self.timers, self._reader
        while self._enqueues:
            ahead = await reader.topic(timers.next_offset)
            for message in ahead:
                if message.place.offset >= timers.next_offset:
                    if not await self._enter(message):
                        return
                    timers.next_offset = message.place.offset + 1
            if not ahead:
                least = self._store.min_offset(TIMER_TOPIC, 0)
                timers.next_offset = max(timers.next_offset, least)
                break
            await trio.lowlevel.checkpoint()
        for offset in timers.take_put_off():
            for message in await reader.topic(offset, most=1):
                if message.place.offset == offset:
                    await self._enter(message)

    async def _enter(self, waiting: Followed) -> bool:
        """Put a timer message into its slot, or deliver it when that is over.

        False when its slot is not free yet, or its place in the log cannot be read yet.
        """
        place, record = waiting.place, waiting.record
        if isinstance(record, StoreError):
            return await self._enter_unread(place, record)
        found = self._reader.decoded(place.position, place.size, record)
        if found is None or isinstance(found, StoreError):
            return True
        message, text = found
        entry = self.timers.enter(
            place.offset, place.position, place.size, text, message.store_timestamp
        )
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
        self._entered(entry, text, message.store_timestamp)
        self._changed.set()
        return True

    async def _enter_unread(self, place: Place, error: StoreError) -> bool:
        """Let a timer message that cannot be read go into the wheel all the same.

        It is read again in a later slot, and holds up nobody behind it.
        """
        follower = self._reader.follower
        if place.position == UNKNOWN:
            left = follower.left(place)
            delay = left or await follower.failed(place, error)
            if delay is None:
                return True
            self._look_again_at = self._clock.now_ms() + int(delay * 1000) + 1
            return False
        delay = await self._reader.later(place.position, place.size, error)
        if delay is not None:
            self._uncounted.add(place.position)
            self.timers.enter_later(
                unread_record(place.position, place.size), self._clock.now_ms() + int(delay * 1000)
            )
            self._changed.set()
        return True

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
            self._look_again_at = _NEVER
            try:
                due = await self._work()
            except Exception as error:  # noqa: BLE001 - tried again; nothing is lost meanwhile
                if self.trouble.add("timers", error):
                    logger.error("timers wait and are tried again: %s", error_text(error))
                await trio.sleep(BACKOFF.delay(self._failures))
                self._failures += 1
                continue
            self._failures = 0
            self.trouble.over("timers")
            self._sleeping_until = due
            until = min(due + self.timers.precision_ms, self._look_again_at)
            with trio.move_on_after(max(0, until - self._clock.now_ms()) / 1000):
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

        First the recalls, then the others in the order in which they came. After an
        error the next call goes on where this one stopped.
        """
        slot = self._slot
        if slot is None or slot.time != time:
            slot = self._slot = DueSlot(time, self.timers.walk(time))
        await slot.collect(self.timers, self._store.files, self._reader.follower)
        await self._read_recalls(slot)
        while slot.records:
            await self._deliver_some(slot)
        for topic in slot.recalls.without_effect():
            self.timers.metrics.add(topic, 1, self._clock.now_ms())
        self._slot = None
        self.timers.finish(time)
        self._changed.set()

    async def _read_recalls(self, slot: DueSlot) -> None:
        """Read what takes messages of a slot back.

        While one cannot be read, those of its topic go with it into a later slot.
        """
        while slot.deletions:
            some = slot.deletions[: -TURN - 1 : -1]
            for record, found in zip(some, await self._reader.found(some), strict=True):
                if isinstance(found, StoreError):
                    when = await self._later(record, found)
                    if when is not None:
                        self.timers.enter_later(record, when)
                        slot.held[record.topic_hash] = when
                elif found is not None:
                    slot.recalls.add(found[1])
                slot.deletions.pop()

    async def _later(self, record: TimerRecord, error: StoreError) -> int | None:
        """When a timer that cannot be read is tried again; None for never."""
        position, size = record.physical_offset, record.message_size
        delay = await self._reader.later(position, size, error)
        if delay is None:
            self._uncounted.discard(position)
        return None if delay is None else self._clock.now_ms() + int(delay * 1000)

    async def _deliver_some(self, slot: DueSlot) -> None:
        """Deliver some messages of a slot.

        One that cannot be stored now is tried again before the others go on; one that
        cannot be read goes into a later slot.
        """
        records = slot.next_records()
        found = await self._reader.found(records)
        for record, waiting in zip(records, found, strict=True):
            position = record.physical_offset
            if isinstance(waiting, StoreError) and position not in slot.moved:
                slot.moved[position] = await self._later(record, waiting)
        for first in range(0, len(records), _PER_TURN):
            turn = records[first : first + _PER_TURN]
            done = self._deliver_turn(slot, turn, found[first : first + _PER_TURN])
            slot.done(done)
            for record in turn[:done]:
                slot.moved.pop(record.physical_offset, None)
            if done < len(turn):
                await trio.sleep(RETRY_SECONDS)
                return
            await trio.lowlevel.checkpoint()

    def _deliver_turn(
        self,
        slot: DueSlot,
        records: list[TimerRecord],
        found: list[Found | StoreError | None],
    ) -> int:
        """Deliver until a put fails; returns how many are done with.

        All puts are one write.
        """
        store = self._store
        store.begin()
        try:
            for index, (record, waiting) in enumerate(zip(records, found, strict=True)):
                unread = isinstance(waiting, StoreError)
                when = (
                    slot.moved[record.physical_offset]
                    if unread
                    else slot.held.get(record.topic_hash)
                )
                if when is not None:
                    self.timers.enter_later(record, when)
                elif (
                    waiting is not None
                    and not isinstance(waiting, StoreError)
                    and not self._deliver_one(slot.time, record, waiting, slot.recalls)
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
        if record.physical_offset in self._uncounted:
            self._uncounted.discard(record.physical_offset)
            self._count_out(text, 1 if is_deletion(text) else -1)
        if recalls.take(text):
            return True
        if not (record.rolls or self._is_early(text, time)):
            return self._deliver(message, text, record.write_time)
        if not self._offer(rolled(message, text, record.write_time, self._clock.now_ms()), text):
            return False
        self._count_out(text, -1 if is_deletion(text) else 1)
        return True

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
        if self._stats.figures is not None:
            self._stats.figures.timers_out.add((property_in_text(text, REAL_TOPIC) or "",))
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
            self._stats.put(message.topic, message.queue_id, result.count, result.size)
            return True
        if result.status in _FOREVER:
            logger.error(
                "a timer message cannot be put into %s (%s); it is skipped",
                message.topic,
                result.status.name,
                extra=about(topic=message.topic),
            )
            return True
        if not self._refused:
            logger.warning(
                "a timer message could not be put into %s (%s); it is tried again until it is",
                message.topic,
                result.status.name,
                extra=about(topic=message.topic),
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

    def has_to_save(self) -> bool:
        """Whether `persist` has to write, or to wait for what is being written."""
        timers, metrics = self.timers, self.timers.metrics
        return self._durable and (
            timers.has_to_flush() or metrics.dirty or self._unkept or self._flushing.locked()
        )

    async def persist(self) -> None:
        """Make changed log, wheel and checkpoint durable.

        A failure is logged and tried again later. After cancellation the next call
        writes all of it.
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
                self._changed.set()

    async def _flush(self) -> None:
        timers, files = self.timers, self._store.files
        flush = timers.begin_flush()
        if flush is None:
            return
        pages = timers.wheel.take_dirty()
        doubtful = True
        try:
            timers.log.write_out()
            target, sync_log = timers.log.prepare_sync()
            wheel = timers.wheel.write_pages(pages) if pages else None
            doubtful = False
            await self._store.secure(flush.log_position, replicated=not self._closed)
            doubtful = True
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
            timers.log.doubtful = timers.log.doubtful or doubtful
            timers.forget_flush()
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
            metrics.load(wrapper)
            metrics.dirty = True
            await self._persist_metrics()

    async def close(self) -> None:
        """End the deliveries, so that `persist` can make them durable."""
        self._closed = True
        if self._scope is not None:
            self._scope.cancel()
            await self._ended.wait()
