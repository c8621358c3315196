"""Wheel, log and checkpoint together: all waiting timers, across restarts.

The state of `TimerMessageStore` of Apache RocketMQ 5.4.0. All methods are synchronous
and belong to the thread of the event loop; the timer service owns the object and does
what has to wait. The first flush after the first timer creates the files.
"""

from __future__ import annotations

import heapq
import logging
from bisect import bisect_right
from enum import Enum
from functools import lru_cache
from typing import TYPE_CHECKING, Final, NamedTuple

import attrs

from rocketmq_sdk.broker_embedded.store.log.record import properties_of
from rocketmq_sdk.broker_embedded.timers.checkpoint import (
    TimerCheckpoint,
    read_checkpoint,
    write_checkpoint,
)
from rocketmq_sdk.broker_embedded.timers.log import TimerLog
from rocketmq_sdk.broker_embedded.timers.messages import is_deletion, out_time, turns_of
from rocketmq_sdk.broker_embedded.timers.metrics import TimerMetrics
from rocketmq_sdk.broker_embedded.timers.places import WaitingPlaces
from rocketmq_sdk.broker_embedded.timers.record import (
    MAGIC_DEFAULT,
    MAGIC_DELETE,
    MAGIC_ROLL,
    NO_POSITION,
    RECORD_SIZE,
    TimerRecord,
    encode_timer_record,
)
from rocketmq_sdk.broker_embedded.timers.slot_walk import SlotWalk
from rocketmq_sdk.broker_embedded.timers.wheel import PATH as WHEEL_PATH
from rocketmq_sdk.broker_embedded.timers.wheel import SLOTS, TimerWheel
from rocketmq_sdk.errors import ProtocolError, StoreCorruptError, StoreError
from rocketmq_sdk.model.properties import REAL_TOPIC, UNIQ_KEY, property_in_text
from rocketmq_sdk.names import TIMER_TOPIC, java_hash
from rocketmq_sdk.protocol.message_codec import decode_message

if TYPE_CHECKING:
    from rocketmq_sdk.broker_embedded.store.files.file_system import FileSystem
    from rocketmq_sdk.broker_embedded.store.message_store import MessageStore
    from rocketmq_sdk.clock import Clock

_log = logging.getLogger(__name__)
_LOAD_TRIES: Final = 3
_SPARE_SLOTS: Final = 60
_ROLL_MARGIN: Final = 3
_LONGEST_WINDOW: Final = SLOTS // 2 - _SPARE_SLOTS
_topic_hash = lru_cache(maxsize=1024)(java_hash)


class Entry(Enum):
    """What happened to a message of the timer topic."""

    ENTERED = "ENTERED"
    DUE = "DUE"
    """It is due: it goes to its real topic at once."""
    SKIPPED = "SKIPPED"
    """It is no timer, or was delivered before."""
    BLOCKED = "BLOCKED"
    """Its slot still has messages from two weeks ago; those go first."""


class Flush(NamedTuple):
    """What one flush makes durable."""

    checkpoint: TimerCheckpoint
    log_position: int
    """Up to where the commit log has to be durable first.

    What was delivered must not be lost once the checkpoint says so.
    """


class TimerStore:
    """Wheel, log and checkpoint; call `load` first.

    `next_offset` is the offset of the next message of the timer topic to look at.
    """

    def __init__(self, store: MessageStore, clock: Clock) -> None:
        config = store.config
        self._store = store
        self._clock = clock
        self._files: FileSystem = store.files
        self.precision_ms = config.timer_precision_ms
        window = config.timer_roll_window_slot
        self._window = window if 2 <= window <= _LONGEST_WINDOW else _LONGEST_WINDOW
        self.log = TimerLog(store.files, config.mapped_file_size_timer_log)
        self.wheel = TimerWheel(store.files, self.precision_ms)
        self.metrics = TimerMetrics()
        self.checkpoint = TimerCheckpoint()
        self.next_offset = 0
        self.pending_count = 0
        """Messages in unfinished slots; recalls count as -1."""
        self._write_time = 0
        self._slots: list[int] = []
        self._waiting: set[int] = set()
        self.places = WaitingPlaces(wanted=store.needs is not None)
        self._replay_below = 0
        self._replayed_until = 0
        self._put_off: dict[tuple[str, int], int] = {}
        self._decided: set[tuple[str, int]] = set()
        self._finished = 0
        self._saved = (0, 0, 0)

    # --- time

    @property
    def write_time(self) -> int:
        """The current slot; what belongs to an earlier one is due.

        It never goes back.
        """
        return self._write_time_at(self._clock.now_ms())

    def _write_time_at(self, now_ms: int) -> int:
        floor = now_ms - now_ms % self.precision_ms
        if floor > self._write_time:
            self._write_time = floor
        return self._write_time

    @property
    def read_time(self) -> int:
        """All earlier slots were delivered."""
        return min(self._slots[0], self._write_time) if self._slots else self._write_time

    @property
    def behind_ms(self) -> int:
        """How long ago the earliest undelivered slot began.

        When none waits it is less than two widths of a slot, as with Apache.
        """
        return self._clock.now_ms() - min(
            self.write_time, self._slots[0] if self._slots else self.write_time
        )

    @property
    def next_slot(self) -> int | None:
        """The earliest slot with undelivered messages."""
        return self._slots[0] if self._slots else None

    def waiting_slots(self, until_ms: int) -> list[int]:
        """The slots up to a moment in which messages wait, earliest first."""
        return self._slots[: bisect_right(self._slots, until_ms)]

    # --- entering

    def congestion(self, time: int) -> int:
        """How many messages wait in the slot of a time."""
        slot = self.wheel.get(time)
        return slot.number if slot is not None and slot.time in self._waiting else 0

    def enter(
        self, queue_offset: int, physical_offset: int, size: int, text: str, stored_ms: int
    ) -> Entry:
        """Put a message of the timer topic into its slot.

        The caller advances `next_offset`. `text` is the message's properties.
        """
        try:
            out_ms = out_time(text)
        except ValueError as error:
            _log.error(
                "the message at %d in %s cannot be delivered and is skipped: %s",
                physical_offset,
                TIMER_TOPIC,
                error,
            )
            return Entry.SKIPPED
        if queue_offset < self._replay_below and self._is_done(
            queue_offset, out_ms, text, stored_ms
        ):
            return Entry.SKIPPED
        now_ms = self._clock.now_ms()
        now = self._write_time_at(now_ms)
        precision = self.precision_ms
        if out_ms < now:
            return Entry.DUE
        time = out_ms - out_ms % precision
        deletes = is_deletion(text)
        magic = MAGIC_DEFAULT | MAGIC_DELETE if deletes else MAGIC_DEFAULT
        if out_ms - now >= self._window * precision:
            magic |= MAGIC_ROLL
            time = now + self._turn(out_ms - now) * precision
        occupant = self.wheel.occupant(time)
        if occupant is not None and occupant.time != time and occupant.time in self._waiting:
            return Entry.BLOCKED
        real_topic = property_in_text(text, REAL_TOPIC) or ""
        change = -1 if deletes else 1
        self._put_into(time, now, magic, physical_offset, size, _topic_hash(real_topic), change)
        self.metrics.add(real_topic, change, now_ms)
        return Entry.ENTERED

    def enter_later(self, record: TimerRecord, when_ms: int) -> None:
        """Put a message that cannot be read now into a later slot.

        There it is looked at again: it goes to its topic, or to its own slot when that
        is later still. `record` tells what is known of it.
        """
        now, precision = self.write_time, self.precision_ms
        time = max(when_ms - when_ms % precision, now)
        while (
            (occupant := self.wheel.occupant(time)) is not None
            and occupant.time != time
            and occupant.time in self._waiting
        ):
            time += precision
        change = -1 if record.magic & MAGIC_DELETE else 1
        self._put_into(
            time,
            now,
            record.magic,
            record.physical_offset,
            record.message_size,
            record.topic_hash,
            change,
        )

    def _put_into(
        self,
        time: int,
        now: int,
        magic: int,
        physical_offset: int,
        size: int,
        topic_hash: int,
        change: int,
    ) -> None:
        """Append a record to the chain of a slot, which is free or in use now."""
        occupant = self.wheel.occupant(time)
        previous, first, count = NO_POSITION, NO_POSITION, 0
        known = occupant is not None and occupant.time == time and time in self._waiting
        if known and occupant is not None:
            previous, first, count = occupant.last, occupant.first, occupant.number
        position = self.log.append(
            encode_timer_record(previous, magic, now, time - now, physical_offset, size, topic_hash)
        )
        self.wheel.put(time, position if first == NO_POSITION else first, position, count + change)
        self.pending_count += change
        self.places.add(time, physical_offset, size)
        if not known:
            self._waiting.add(time)
            heapq.heappush(self._slots, time)

    def _is_done(self, queue_offset: int, out_ms: int, text: str, stored_ms: int) -> bool:
        """Whether a message seen again was delivered or is left to `take_put_off`.

        One that was too far ahead for the wheel is in the topic a second time when its
        first turn is over, and must not come twice.
        """
        if out_ms < self._replayed_until:
            return True
        key = property_in_text(text, UNIQ_KEY) or str(queue_offset)
        turns = turns_of(text)
        self._put_off.pop((key, turns - 1), None)
        if out_ms - stored_ms < (self._window - _ROLL_MARGIN) * self.precision_ms:
            return False
        if (key, turns) in self._decided:
            return False
        self._put_off[key, turns] = queue_offset
        return True

    def take_put_off(self) -> list[int]:
        """The offsets of messages whose second turn was not found in the replay.

        They are to be entered now, as the replay is over.
        """
        if self.replaying or not self._put_off:
            return []
        self._decided = set(self._put_off)
        taken, self._put_off = sorted(self._put_off.values()), {}
        return taken

    def _turn(self, ahead_ms: int) -> int:
        """How many slots ahead a message goes that is more than a window away.

        Half a window when that leaves enough for the next turn.
        """
        window, left = self._window, ahead_ms - self._window * self.precision_ms
        return window // 2 if left < window // 3 * self.precision_ms else window

    # --- leaving

    def belongs(self, record: TimerRecord, time: int) -> bool:
        """Whether a record is one of the slot of a time."""
        return record.slot_time // self.precision_ms == time // self.precision_ms

    def walk(self, time: int) -> SlotWalk:
        """A walk through the records of a slot, last one first."""
        slot = self.wheel.get(time)
        last = NO_POSITION if slot is None else slot.last
        return SlotWalk(self.log, self._files, last, lambda record: self.belongs(record, time))

    def finish(self, time: int) -> None:
        """Note that all messages of the earliest slot were delivered."""
        assert self._slots[0] == time
        heapq.heappop(self._slots)
        self._waiting.discard(time)
        self.places.done(time)
        self._finished += 1
        slot = self.wheel.get(time)
        if slot is not None:
            self.pending_count -= slot.number

    # --- keeping

    @property
    def replaying(self) -> bool:
        """Whether messages are looked at again because a part of the log was lost.

        The old checkpoint counts until that is done.
        """
        return self.next_offset < self._replay_below

    def current_checkpoint(self) -> TimerCheckpoint:
        """Up to where timers have been served by now."""
        offset = max(self.next_offset, self._replay_below)
        return attrs.evolve(
            self.checkpoint,
            last_read_time=self.read_time,
            queue_offset=offset,
            master_queue_offset=offset,
        )

    def has_to_flush(self) -> bool:
        """Whether anything new can be made durable."""
        changed = self._state() != self._saved or self.wheel.dirty
        return changed and not (self.replaying or self._put_off)

    def _state(self) -> tuple[int, int, int]:
        return self.next_offset, self.log.end, self._finished

    def begin_flush(self) -> Flush | None:
        """What to make durable now; None when nothing has happened since."""
        if not self.has_to_flush():
            return None
        checkpoint = attrs.evolve(
            self.checkpoint,
            last_read_time=self.read_time,
            queue_offset=self.next_offset,
            master_queue_offset=self.next_offset,
            version_timestamp=self._clock.now_ms(),
            version_counter=self.checkpoint.version_counter + 1,
        )
        self._saved = self._state()
        return Flush(checkpoint, self._store.max_physical_offset)

    def forget_flush(self) -> None:
        """Note that a flush came to no end; the next one covers what it did."""
        self._saved = (-1, -1, -1)

    def expire(self) -> None:
        """Remove files whose messages the commit log lacks. Raises `StoreError`."""
        for file in self.log.take_expired(self.places.least(self._store.min_physical_offset)):
            file.file.close()
            file.remove()

    def close(self) -> None:
        """Close all descriptors."""
        self.log.close()

    # --- recovery

    def load(self) -> None:
        """Load the files and make them agree.

        A wheel or a log that cannot be read is made again from the timer topic. Raises
        `StoreCorruptError` when a file is corrupt, and `StoreError`.
        """
        now, stored = self.write_time, self._store.stored_timestamp
        self.checkpoint = read_checkpoint(self._files, now, stored)
        for _ in range(_LOAD_TRIES):
            try:
                self._load()
            except StoreCorruptError:
                raise
            except StoreError as error:
                problem = error
                self._forget_loaded()
            else:
                return
        _log.error("wheel and timer log are made again from %s: %s", TIMER_TOPIC, problem)
        self.log.chain.load(mend=True)
        self.log.chain.remove_all()
        self._files.remove(WHEEL_PATH)
        self._load()

    def _forget_loaded(self) -> None:
        """Be as before `load`."""
        self.log.close()
        self.log = TimerLog(self._files, self.log.file_size)
        self.wheel = TimerWheel(self._files, self.precision_ms)
        self._waiting.clear()
        self._slots.clear()
        self.pending_count = 0

    def _load(self) -> None:
        checkpoint = self.checkpoint
        self.log.chain.load(mend=True)
        found_wheel = self.wheel.load()
        least, most = self._store.min_offset(TIMER_TOPIC, 0), self._store.max_offset(TIMER_TOPIC, 0)
        now = self.write_time
        if not (found_wheel or self.log.chain.files or checkpoint.last_read_time or most):
            return
        if checkpoint.log_flushed < self.log.chain.min_position:
            _log.warning(
                "the beginning of the timer log is lost; it is made again from %s", TIMER_TOPIC
            )
            self.log.chain.remove_all()
        start = self.log.boundary(checkpoint.log_flushed)
        fresh = list(self.log.scan(start))
        end = self._sound_end(fresh[-1][0] + RECORD_SIZE if fresh else start)
        fresh = [(position, record) for position, record in fresh if position < end]
        read_time = checkpoint.last_read_time
        self.log.start_at(end)
        if not found_wheel or not self._catch_up(fresh, read_time) or not self._agrees(read_time):
            if end:
                _log.warning(
                    "the timer wheel is missing or does not agree with its log; it is made again"
                )
            self._rebuild(read_time)
        if read_time > now:
            _log.warning(
                "timers were served until %d, which is to come: the clock was set back", read_time
            )
            self._forget_delivered(now, read_time)
        self._replay_below, self._replayed_until = min(checkpoint.queue_offset, most), read_time
        self.next_offset = min(max(self._next_by_log(fresh, end), least), most)
        self._collect(min(read_time, now))
        self._saved = (self.next_offset, self.log.end, 0)
        self._make_durable(min(start, end), min(read_time, now))

    def _sound_end(self, end: int) -> int:
        """The end of the log without records whose messages the commit log lost."""
        self.log.look_until(end)
        while True:
            position = self.log.last_position(end)
            record = self.log.record(position)
            if record is None or self._has_message(record):
                return end
            end = position

    def _has_message(self, record: TimerRecord) -> bool:
        """Whether the commit log has, or had, the message of a record.

        The hash of its topic is the end of a record: one that a kill tore there, which
        nothing else shows, counts as not written.
        """
        if record.physical_offset < self._store.min_physical_offset:
            return True
        try:
            if self._queue_offset(record) is None:
                return False
            data = self._store.record_at(record.physical_offset, record.message_size)
        except StoreError as error:
            _log.warning("a timer is taken for sound: %s", error)
            return True
        return data is not None and record.topic_hash == java_hash(
            property_in_text(properties_of(data), REAL_TOPIC) or ""
        )

    def _queue_offset(self, record: TimerRecord) -> int | None:
        """The offset of a record's message in the timer topic.

        None when there is no such message.
        """
        data = self._store.record_at(record.physical_offset, record.message_size)
        if data is None:
            return None
        try:
            message = decode_message(data, inflate=False)
        except ProtocolError:
            return None
        return message.offset if message.topic == TIMER_TOPIC else None

    def _next_by_log(self, fresh: list[tuple[int, TimerRecord]], end: int) -> int:
        """The offset after the last message that the log holds.

        Without records after the checkpoint it is the checkpoint's. Messages enter the
        log in their order, except some of a replay.
        """
        checkpoint = self.checkpoint
        if not fresh and 0 < checkpoint.log_flushed <= end:
            return checkpoint.queue_offset
        records = fresh if checkpoint.log_flushed <= end else self.log.scan(self.log.min_position)
        last = max(
            (record for _position, record in records),
            key=lambda record: record.physical_offset,
            default=None,
        )
        try:
            offset = None if last is None else self._queue_offset(last)
        except StoreError:
            assert last is not None
            offset = self._offset_of(last.physical_offset)
        return 0 if offset is None else offset + 1

    def _offset_of(self, physical_offset: int) -> int:
        """The offset of the message at a position, by the queue alone."""
        low, high = self._store.min_offset(TIMER_TOPIC, 0), self._store.max_offset(TIMER_TOPIC, 0)
        while low < high:
            middle = (low + high) // 2
            unit = self._store.queue_unit(TIMER_TOPIC, 0, middle)
            if unit is not None and unit[0] < physical_offset:
                low = middle + 1
            else:
                high = middle
        return low

    def _catch_up(self, fresh: list[tuple[int, TimerRecord]], read_time: int) -> bool:
        """Add the records that the wheel on disk may lack.

        Returns False when wheel and log do not fit.
        """
        precision = self.precision_ms
        for position, record in fresh:
            time = record.slot_time // precision * precision
            if time < read_time:
                continue
            slot = self.wheel.get(time)
            if slot is not None and slot.last >= position:
                self.wheel.touch(time)
                continue
            if record.previous != NO_POSITION and (slot is None or record.previous != slot.last):
                return False
            self._link(position, record, time)
        return True

    def _link(self, position: int, record: TimerRecord, time: int) -> None:
        change = -1 if record.deletes else 1
        slot = self.wheel.get(time)
        if slot is None or record.previous == NO_POSITION:
            self.wheel.put(time, position, position, change)
        else:
            self.wheel.put(time, slot.first, position, slot.number + change)

    def _agrees(self, read_time: int) -> bool:
        """Whether each slot that counts has its last record in the log."""
        precision = self.precision_ms
        # In the order of the log, which is read once at most then.
        for slot in sorted(self.wheel.slots(read_time), key=lambda slot: slot.last):
            record = self.log.record(slot.last)
            if record is None or record.slot_time // precision * precision != slot.time:
                return False
        return True

    def _rebuild(self, read_time: int) -> None:
        self.wheel.reset()
        precision = self.precision_ms
        for position, record in self.log.scan(self.log.min_position):
            time = record.slot_time // precision * precision
            if time >= read_time:
                self._link(position, record, time)

    def _forget_delivered(self, now: int, read_time: int) -> None:
        """Free slots whose turn comes again.

        Their messages were delivered; new messages begin new chains there.
        """
        for slot in list(self.wheel.slots(now)):
            if slot.time < read_time:
                self.wheel.clear(slot.time)

    def _collect(self, read_time: int) -> None:
        for slot in self.wheel.slots(read_time):
            self._waiting.add(slot.time)
            self.pending_count += slot.number
        self._slots = sorted(self._waiting)

    def _make_durable(self, start: int, read_time: int) -> None:
        """Make durable what counts from now on.

        Otherwise records after a power cut would be linked to what is not there.
        """
        self.log.rewrite(start)
        pages = self.wheel.take_dirty()
        if pages:
            self.wheel.write_pages(pages).sync()
            self._files.sync_directory(".")
        old = self.checkpoint
        # With the log goes up to where it holds messages: a start that trusts the one
        # without the other enters them again.
        offset = max(old.queue_offset, self.next_offset)
        self.checkpoint = attrs.evolve(
            old,
            last_read_time=read_time,
            log_flushed=self.log.synced,
            queue_offset=offset,
            master_queue_offset=offset,
        )
        if self.checkpoint != old:
            write_checkpoint(self._files, self.checkpoint)
