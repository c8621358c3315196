"""Revival: puts unacknowledged messages into retry topics (`PopReviveService`).

Checkpoints and acks come out of the timer wheel into the queues of the revive topic. A
checkpoint waits here until its time is over and all acks that were due by then have
come. Then each message without an ack is put into the group's retry topic, with one
more attempt counted unless its client only suspended it; the popping client decides
when that is enough. Checkpoints of groups that are gone are dropped. Checkpoints are
finished in the order of their queue, so one offset, that of the last finished one, says
how far revival went. It is kept as the offset of the group CID_RMQ_SYS_REVIVE_GROUP, as
Apache keeps it.

Apache looks at each queue every second and waits two more to be sure that acks have
come; here the wheel is asked, and revival happens within about a second after the
invisible time.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, Final

import attrs
import trio

from rocketmq_sdk.backoff import Backoff
from rocketmq_sdk.broker_embedded.pop.plan import first_offset
from rocketmq_sdk.broker_embedded.pop.progress import checkpoints_before, identity_of, is_torn
from rocketmq_sdk.broker_embedded.pop.records import is_stored
from rocketmq_sdk.broker_embedded.pop.revive_queue import ReviveQueue, properties_of_copy
from rocketmq_sdk.broker_embedded.store.following.tries import MOST_TRIES
from rocketmq_sdk.broker_embedded.store.following.unreadable import UNKNOWN, Place
from rocketmq_sdk.broker_embedded.store.messages import (
    GetStatus,
    MessageToStore,
    PutStatus,
    QueueRead,
)
from rocketmq_sdk.broker_embedded.store.services import OnCall
from rocketmq_sdk.broker_embedded.supervision import Complaints, JoinedTroubles, error_text
from rocketmq_sdk.broker_embedded.timers.messages import TIMER_DEQUEUE_MS
from rocketmq_sdk.errors import ProtocolError, RocketMQError, StoreError
from rocketmq_sdk.log_fields import about
from rocketmq_sdk.model.properties import TAGS, TIMER_DELIVER_MS, property_in_text
from rocketmq_sdk.names import (
    RETRY_PREFIX,
    REVIVE_GROUP,
    pop_retry_topic_v1,
    pop_retry_topic_v2,
    return_problem,
)
from rocketmq_sdk.protocol.bodies.pop_records import (
    ACK_TAG,
    BATCH_ACK_TAG,
    CHECKPOINT_TAG,
    AckRecord,
    PopCheckPoint,
)
from rocketmq_sdk.protocol.message_codec import decode_message
from rocketmq_sdk.protocol.subscription import tags_code

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Callable

    from rocketmq_sdk.broker_embedded.pop.progress import Identity
    from rocketmq_sdk.broker_embedded.pop.records import PopRecords
    from rocketmq_sdk.broker_embedded.settings.config import LiveConfig
    from rocketmq_sdk.broker_embedded.store.message_store import MessageStore
    from rocketmq_sdk.broker_embedded.store.messages import Arrival
    from rocketmq_sdk.broker_embedded.tables.groups import GroupManager
    from rocketmq_sdk.broker_embedded.tables.offsets import ConsumerOffsetManager
    from rocketmq_sdk.broker_embedded.tables.topics import TopicManager
    from rocketmq_sdk.clock import Clock
    from rocketmq_sdk.model.received import ReceivedMessage

logger = logging.getLogger(__name__)

BACKOFF_SECONDS: Final = (
    10,
    20,
    30,
    60,
    120,
    180,
    240,
    300,
    360,
    420,
    480,
    540,
    600,
    1200,
    1800,
    3600,
    7200,
)
"""Delays before a failed revival is tried again, by the number of failures."""
RETRY_SECONDS: Final = 1.0
"""How long revival rests when not even that could be written down."""
_REST: Final = Backoff(first=RETRY_SECONDS, limit=30.0, jitter=0.0)
_GRACE_MS: Final = 2000
_EARLY_MS: Final = 5000
_SECOND_MS: Final = 1000
_BEHIND_SECONDS: Final = 0.1
_SLICE: Final = 128
_FOREVER: Final = frozenset({PutStatus.MESSAGE_ILLEGAL, PutStatus.PROPERTIES_SIZE_EXCEEDED})
_GONE: Final = None


class _UnavailableError(RocketMQError):
    """Something cannot be done now; the text says what."""


class _UnreadError(StoreError):
    """A record of the revive topic cannot be read now, but perhaps in some seconds."""

    def __init__(self, text: str, delay: float) -> None:
        super().__init__(text)
        self.delay = delay


class ReviveService:
    """Revives the messages of one broker.

    Add `on_arrival` to the store's list of listeners.
    """

    def __init__(
        self,
        store: MessageStore,
        topics: TopicManager,
        groups: GroupManager,
        offsets: ConsumerOffsetManager,
        records: PopRecords,
        config: LiveConfig,
        clock: Clock,
        store_host: bytes,
        *,
        delivered_until: Callable[[], int],
    ) -> None:
        """`delivered_until` gives the moment up to which all timers were delivered.

        Epoch milliseconds.
        """
        self._store = store
        self._topics = topics
        self._groups = groups
        self._offsets = offsets
        self._records = records
        self._config = config
        self._clock = clock
        self._store_host = store_host
        self._delivered_until = delivered_until
        self._queues: dict[int, ReviveQueue] = {}
        self._copies: Counter[Identity] | None = None
        self._finished: set[tuple[object, ...]] = set()
        self._loaded_at = 0
        self._mark = 0, 0
        self._readable_until = 0
        self._wake, self.on_call = trio.Event(), OnCall()
        self.trouble = Complaints()
        self._follower = store.follow("revival")
        self.troubles = JoinedTroubles(self.trouble, self._follower)
        """Queues of the revive topic that wait, and why."""
        self.revived = 0
        """Messages put into retry topics since the start."""

    async def load(self, copies: Counter[Identity], since: int) -> None:
        """Go on where the offsets say.

        `copies` are in the retry topics since those were written, and are not made
        twice. The wheel may deliver checkpoints once more that it had delivered before
        a crash; the finished ones among those behind the position `since` of the log
        are known again.
        """
        topic = self._records.topic
        for queue_id in {
            *range(self._config.current.revive_queue_num),
            *self._store.queue_ids(topic),
        }:
            finished = self._offsets.query(REVIVE_GROUP, topic, queue_id)
            least = self._store.min_offset(topic, queue_id)
            queue = self._queues[queue_id] = ReviveQueue(queue_id, max(finished + 1, least))
            queue.old_end = self._store.max_offset(topic, queue_id)
            if queue.next_offset == least:
                continue  # nothing lies before it
            known = checkpoints_before(self._store, topic, queue_id, since, queue.next_offset)
            read: list[PopCheckPoint] = await self._store.files.run(partial(list, known))
            self._finished.update(checkpoint.identity for checkpoint in read)
        self._copies, self._loaded_at = copies, self._clock.now_ms()

    def on_arrival(self, arrival: Arrival) -> None:
        """A message has arrived; one of the revive topic is looked at."""
        if arrival.topic == self._records.topic:
            self._wake.set()
            self.on_call.call()

    @trio.lowlevel.enable_ki_protection
    async def run(self) -> None:
        """Revive until cancelled."""
        while True:
            self._wake = trio.Event()
            wait = await self._round()
            with trio.move_on_after(wait):
                await self._wake.wait()

    async def _round(self) -> float:
        """Read and finish what is due; returns the seconds until there is more to do.

        An arrival may end that time earlier.
        """
        wait = float("inf")
        delivered = self._delivered_and_readable()
        for queue in self._queues.values():
            if self._clock.monotonic() >= queue.rests_until:
                try:
                    await self._serve(queue, delivered)
                except Exception as problem:  # noqa: BLE001 - it is tried again later
                    self._rest(queue, problem)
                else:
                    self._went_well(queue)
            self._keep_offset(queue)
            if queue.failures:
                wait = min(wait, max(_BEHIND_SECONDS, queue.rests_until - self._clock.monotonic()))
                continue
            if queue.open:
                wait = min(wait, self._until(queue.open[0]))
        if self._copies is not None and wait == float("inf") and delivered > self._loaded_at:
            self._copies = None
            self._finished.clear()
        return wait

    async def _serve(self, queue: ReviveQueue, delivered: int) -> None:
        """Read and finish what is due in one queue. Whatever it raises keeps no other
        queue waiting.
        """
        more = True
        while more:
            try:
                more = await self._read(queue)
            except StoreError:
                # What was read before goes on; acks behind it are not known yet.
                await self._finish(queue, 0)
                raise
            if await self._finish(queue, 0 if more else delivered) or more:
                await trio.lowlevel.checkpoint()

    def _rest(self, queue: ReviveQueue, problem: Exception) -> None:
        """Let a queue wait after an error, longer each time."""
        now = self._clock.monotonic()
        if isinstance(problem, _UnreadError):  # the follower names it
            queue.rests_until = now + problem.delay
            queue.failures += 1
            return
        queue.rests_until = now + _REST.delay(queue.failures)
        queue.failures += 1
        what = f"revive queue {queue.queue_id}"
        if self.trouble.add(what, problem):
            logger.warning("revival of %s waits: %s", what, error_text(problem))

    def _went_well(self, queue: ReviveQueue) -> None:
        if queue.failures:
            queue.failures = 0
            self.trouble.over(f"revive queue {queue.queue_id}")

    def _delivered_and_readable(self) -> int:
        """Moment up to which delivered timers are readable in their queues.

        Under SYNC_FLUSH they are readable after their sync.
        """
        store = self._store
        for _ in range(2):
            if store.dispatched.value < self._mark[1]:
                break
            self._readable_until = self._mark[0]
            self._mark = self._delivered_until(), store.max_physical_offset
        return self._readable_until

    def _until(self, checkpoint: PopCheckPoint) -> float:
        """Seconds until a checkpoint may be finished.

        The acks of its time leave the wheel when their second is over.
        """
        over = -(-checkpoint.revive_time // _SECOND_MS) * _SECOND_MS
        return max(_BEHIND_SECONDS, (over - self._clock.now_ms()) / 1000)

    def next_offset(self, queue_id: int) -> int:
        """The offset from which a queue of the revive topic is not read yet."""
        queue = self._queues.get(queue_id)
        return 0 if queue is None else queue.next_offset

    # --- reading

    async def _read(self, queue: ReviveQueue) -> bool:
        """Read some more of a queue; whether there is still more.

        Raises `_UnreadError` for a record that cannot be read now.
        """
        follower, topic = self._follower, self._records.topic
        ahead = await follower.read(topic, queue.queue_id, queue.next_offset, most=_SLICE)
        for message in ahead:
            place, record = message.place, message.record
            if isinstance(record, StoreError):
                delay = follower.left(place) or await follower.failed(place, record)
                if delay is not None:
                    raise _UnreadError(str(record), delay)
            else:
                follower.went_well(place)
                try:
                    self._take_in(queue, place.offset, record)
                except (ProtocolError, ValueError) as error:
                    follower.give_up(place, str(error))
            queue.next_offset = place.offset + 1
        if not ahead:
            least = self._store.min_offset(topic, queue.queue_id)
            queue.next_offset = max(queue.next_offset, least)
        return bool(ahead)

    def _take_in(self, queue: ReviveQueue, offset: int, record: bytes | None) -> None:
        if record is None:
            raise ValueError("the log does not have it any more")
        message = decode_message(record, inflate=False)
        text = message.properties_bytes.decode("utf-8", "replace")
        tag = property_in_text(text, TAGS)
        if tag == CHECKPOINT_TAG:
            checkpoint = PopCheckPoint.decode(message.body)
            self._records.read(checkpoint, queue.queue_id)
            self._take_checkpoint(queue, offset, checkpoint)
        elif tag in (ACK_TAG, BATCH_ACK_TAG):
            ack = AckRecord.decode(message.body, batch=tag == BATCH_ACK_TAG)
            self._records.read(ack, queue.queue_id)
            if not (ack.broker_name or "").strip():
                # Apache's merge buffer names no broker in the batches that it writes
                # (`putBatchAckToStore`); this one is meant.
                ack.broker_name = self._config.current.broker_name
            for checkpoint in queue.by_key.get(ack.key, ()):
                checkpoint.acknowledge(ack.offsets)
        due = property_in_text(text, TIMER_DELIVER_MS)
        if due is not None and TIMER_DEQUEUE_MS in text and due.isdecimal() and len(due) < 16:
            # What was due when it was put did not come out of the wheel, and a time far
            # ahead can only come from a peer's hand: they say nothing about acks.
            queue.latest_ms = max(queue.latest_ms, min(int(due), self._clock.now_ms()))

    def _take_checkpoint(self, queue: ReviveQueue, offset: int, checkpoint: PopCheckPoint) -> None:
        checkpoint.revive_offset = offset
        if checkpoint.revive_time > self._clock.now_ms() + _EARLY_MS:
            # Not due for long, so it did not come through the wheel; it would hold up
            # those behind it.
            if not is_stored(self._records.put_checkpoint(checkpoint, queue.queue_id)):
                raise ValueError(
                    f"a checkpoint of {checkpoint.topic} is due at {checkpoint.revive_time}, "
                    "which is too far ahead"
                )
            return
        same_key = queue.by_key.get(checkpoint.key, ())
        if same_key or self._finished:
            identity = checkpoint.identity
            if identity in self._finished or any(known.identity == identity for known in same_key):
                return
        queue.by_key.setdefault(checkpoint.key, []).append(checkpoint)
        queue.open.append(checkpoint)

    # --- finishing

    async def _finish(self, queue: ReviveQueue, delivered: int) -> bool:
        """Revive what is due at the head of a queue; whether there was something.

        All timers up to `delivered` were read.
        """
        some = False
        turn = 0
        while queue.open:
            checkpoint = queue.open[0]
            due, now = checkpoint.revive_time, self._clock.now_ms()
            if due > now or (due > delivered and queue.latest_ms - due <= _GRACE_MS):
                break
            await self._revive(checkpoint, queue.queue_id)
            self._records.finished(checkpoint)
            queue.close_first()
            if checkpoint.revive_offset < queue.old_end:
                self._finished.add(checkpoint.identity)
            some = True
            turn += checkpoint.count
            if turn >= _SLICE:
                turn = 0
                self._keep_offset(queue)
                await trio.lowlevel.checkpoint()
        return some

    def _keep_offset(self, queue: ReviveQueue) -> None:
        finished = queue.finished
        if finished >= 0 and finished > self._offsets.query(
            REVIVE_GROUP, self._records.topic, queue.queue_id
        ):
            self._offsets.commit(REVIVE_GROUP, self._records.topic, queue.queue_id, finished)

    async def _revive(self, checkpoint: PopCheckPoint, queue_id: int) -> None:
        """Put every message without an ack into the retry topic, or note it for later.

        Raises `_UnavailableError` when not even the note can be written; the checkpoint
        then stays, with the bits of what was done.
        """
        if (
            self._topics.get(checkpoint.topic) is None
            or self._groups.find_existing(checkpoint.group) is None
            or return_problem(checkpoint.topic) is not None
        ):
            return
        for offset in checkpoint.open_offsets():
            try:
                message = await self._look_up(checkpoint, offset)
            except StoreError as problem:
                if not await self._given_up(checkpoint, offset, problem):
                    self._put_again(checkpoint, offset, queue_id, problem)
            else:
                try:
                    if message is not None:
                        self._put_copy(checkpoint, message)
                except Exception as problem:  # noqa: BLE001 - it is tried again later
                    self._put_again(checkpoint, offset, queue_id, problem)
            checkpoint.acknowledge([offset])

    async def _given_up(self, checkpoint: PopCheckPoint, offset: int, problem: StoreError) -> bool:
        """Whether a message was read in vain often enough; then it is set aside."""
        if (checkpoint.re_put_times or 0) + 1 < MOST_TRIES:
            return False
        topic, queue_id = checkpoint.topic, checkpoint.queue_id
        units = await self._follower.units(topic, queue_id, offset, 1)
        known = units if isinstance(units, list) else []
        position, size = known[0][:2] if known else (UNKNOWN, UNKNOWN)
        place = Place(topic, queue_id, offset, position, size)
        if not await self._follower.disk_answers(place):
            return False
        self._follower.give_up(place, str(problem))
        return True

    async def _look_up(self, checkpoint: PopCheckPoint, offset: int) -> ReceivedMessage | None:
        """The message at an offset; None when it is gone. Raises `StoreError`."""
        topic, queue_id, store = checkpoint.topic, checkpoint.queue_id, self._store
        if store.is_cold(topic, queue_id, offset):
            found = await store.read_cold(QueueRead(topic, queue_id, offset, 1))
        else:
            found = store.get(topic, queue_id, offset, 1)
        body = found.body
        if found.status is not GetStatus.FOUND or first_offset(body) != offset:
            place = self._records.place(checkpoint, offset)
            record = None if place is None else store.record_at(*place)
            if record is None:
                return _GONE
            body = record
        try:
            return decode_message(body, inflate=False)
        except ProtocolError as error:
            logger.error(
                "message %d of queue %d of %s cannot be revived and is skipped: %s",
                offset,
                queue_id,
                topic,
                error,
                extra=about(topic=topic, queue=queue_id),
            )
            return _GONE

    def _put_copy(self, checkpoint: PopCheckPoint, message: ReceivedMessage) -> None:
        """Store a copy. Raises `_UnavailableError` or `StoreError` when that fails."""
        topic, queue_id = self._retry_queue(checkpoint)
        raw = message.properties_bytes
        properties = properties_of_copy(raw, checkpoint)
        attempt = message.reconsume_times + (not checkpoint.suspend)
        if self._is_there(topic, message, attempt, properties):
            return
        for text in (
            properties.decode("utf-8", "replace"),
            raw.decode("utf-8", "replace"),
            raw.decode("utf-8", "ignore"),
        ):
            result = self._store.put(self._copy(message, topic, queue_id, text, attempt))
            if result.status not in _FOREVER:
                break
        else:
            logger.error(
                "message %d of %s cannot be put into %s (%s); it is given up",
                message.offset,
                checkpoint.topic,
                topic,
                result.status.name,
                extra=about(topic=checkpoint.topic),
            )
            return
        if not is_stored(result):
            raise _UnavailableError(f"{topic} takes no message ({result.status.name})")
        self.revived += 1
        self._records.revived(checkpoint, topic, queue_id, result)

    def _copy(
        self, message: ReceivedMessage, topic: str, queue_id: int, text: str, attempt: int
    ) -> MessageToStore:
        return MessageToStore(
            topic,
            queue_id,
            message.body,
            text,
            flag=message.flag,
            sys_flag=message.sys_flag,
            born_timestamp=message.born_timestamp,
            born_host=self._store_host,
            reconsume_times=attempt,
            tags_code=tags_code(property_in_text(text, TAGS)),
            store_host=self._store_host,
        )

    def _is_there(
        self, topic: str, message: ReceivedMessage, attempt: int, properties: bytes
    ) -> bool:
        """Whether the copy was made before the broker was killed."""
        if self._copies is None:
            return False
        identity = identity_of(topic, message, attempt, properties)
        if not self._copies[identity]:
            # A copy that was being written when the power failed is kept by recovery
            # even where its properties do not reach to their end.
            known = (
                found
                for found, number in self._copies.items()
                if number and is_torn(found, identity)
            )
            if (torn := next(known, None)) is None:
                return False
            identity = torn
        self._copies[identity] -= 1
        return True

    def _retry_queue(self, checkpoint: PopCheckPoint) -> tuple[str, int]:
        """Topic and queue for a copy; makes a missing topic. Raises `StoreError`."""
        config, group = self._config.current, checkpoint.group
        topic = checkpoint.topic
        if not topic.startswith(RETRY_PREFIX):
            topic = (pop_retry_topic_v2 if config.enable_retry_topic_v2 else pop_retry_topic_v1)(
                topic, group
            )
        known = self._topics.get(checkpoint.topic)
        separate = config.use_separate_retry_queue and known is not None
        existing = self._topics.get(topic)
        if existing is None:
            existing = self._topics.create_retry(
                topic, known.read_queue_nums if separate and known is not None else 1
            )
            if self._offsets.query(group, topic, 0) < 0:
                self._offsets.commit(group, topic, 0, 0)
        queue_id = (
            checkpoint.queue_id
            if separate and checkpoint.queue_id < existing.read_queue_nums
            else 0
        )
        return topic, queue_id

    def _put_again(
        self, checkpoint: PopCheckPoint, offset: int, queue_id: int, problem: Exception
    ) -> None:
        """Write a checkpoint of one message for later.

        Raises `_UnavailableError` when that fails too.
        """
        times = checkpoint.re_put_times or 0
        if (
            times >= len(BACKOFF_SECONDS)
            and self._config.current.skip_when_ck_re_put_reach_max_times
        ):
            logger.error(
                "message %d of %s is given up after %d tries: %s",
                offset,
                checkpoint.topic,
                times,
                problem,
                extra=about(topic=checkpoint.topic),
            )
            return
        grown = BACKOFF_SECONDS[min(times, len(BACKOFF_SECONDS) - 1)] * 1000
        overdue = max(0, self._clock.now_ms() - checkpoint.revive_time)
        again = attrs.evolve(
            checkpoint,
            start_offset=offset,
            count=1,
            distances=[0],
            bits=0,
            invisible_time=checkpoint.invisible_time + overdue + grown,
            re_put_times=times + 1,
        )
        if not is_stored(self._records.put_checkpoint(again, queue_id)):
            raise _UnavailableError(str(problem))
        logger.warning(
            "message %d of %s is revived in %d s: %s",
            offset,
            checkpoint.topic,
            grown // 1000,
            problem,
            extra=about(topic=checkpoint.topic),
        )
