"""Checkpoints in memory, and the order of offset commits (`PopBufferMergeService`).

With `enablePopBufferMerge` a checkpoint is kept here for some seconds. Without it, in a
broker in memory or whose store takes none, until shortly before it is due: consumers go
on taking messages from a disk that cannot be written any more. When all its
messages are acknowledged in that time nothing is ever written; otherwise it is
stored with the bits of the acks that came. A group's offset in a queue moves only over
pops whose checkpoint is stored or finished, so what was in memory when a process was
killed is popped again. Apache looks at all checkpoints every 5 ms; here one task sleeps
until the next one has to be stored.
"""

from __future__ import annotations

import heapq
import logging
from collections import deque
from itertools import count
from typing import TYPE_CHECKING, Final

import trio

from rocketmq_sdk.broker_embedded.pop.records import is_stored
from rocketmq_sdk.broker_embedded.store.services import OnCall
from rocketmq_sdk.log_fields import about

if TYPE_CHECKING:
    from collections.abc import Callable

    from rocketmq_sdk.broker_embedded.pop.records import PopRecords
    from rocketmq_sdk.broker_embedded.settings.config import LiveConfig
    from rocketmq_sdk.broker_embedded.store.messages import PutResult
    from rocketmq_sdk.broker_embedded.tables.offsets import ConsumerOffsetManager
    from rocketmq_sdk.clock import Clock
    from rocketmq_sdk.protocol.bodies.pop_records import PopCheckPoint

logger = logging.getLogger(__name__)

QueueKey = tuple[str, str, int]
"""Topic, group, queue id."""
RETRY_MS: Final = 1000
"""How long a checkpoint that could not be stored waits for the next try."""
_LEAST_STAY_MS: Final = 1500
_SLICE: Final = 256


class _Entry:
    """One pop of one queue.

    `over` is set when the group's offset may pass it. `checkpoint` is None for a
    stretch without messages.
    """

    __slots__ = ("checkpoint", "next_offset", "over", "queue_key", "revive_queue_id", "store_at")

    def __init__(
        self,
        queue_key: QueueKey,
        next_offset: int,
        checkpoint: PopCheckPoint | None = None,
        revive_queue_id: int = 0,
    ) -> None:
        self.queue_key = queue_key
        self.next_offset = next_offset
        self.checkpoint = checkpoint
        self.revive_queue_id = revive_queue_id
        self.over = checkpoint is None
        self.store_at = 0


class PopBuffer:
    """Keeps checkpoints and moves offsets."""

    __slots__ = (
        "_clock",
        "_config",
        "_due",
        "_earlier",
        "_entries",
        "_keeps_all",
        "_offsets",
        "_order",
        "_queues",
        "_records",
        "_sleeping_until",
        "closing",
        "on_call",
    )

    def __init__(
        self,
        records: PopRecords,
        offsets: ConsumerOffsetManager,
        config: LiveConfig,
        clock: Clock,
        keeps_all: Callable[[], bool],
    ) -> None:
        """`keeps_all` says whether to keep checkpoints here whatever the settings."""
        self._keeps_all = keeps_all
        self._records = records
        self._offsets = offsets
        self._config = config
        self._clock = clock
        self._entries: dict[str, _Entry] = {}
        self._queues: dict[QueueKey, deque[_Entry]] = {}
        self._due: list[tuple[int, int, _Entry]] = []
        self._order = count()
        self._earlier = trio.Event()
        self._sleeping_until: float = 0
        self.closing = False
        self.on_call = OnCall()
        """Called with the first checkpoint."""

    def __len__(self) -> int:
        return len(self._entries)

    def queue_count(self) -> int:
        """Queues of groups that have pops here."""
        return len(self._queues)

    def position(self, key: QueueKey) -> int:
        """Where the next pop of a queue begins, by pops not yet passed; -1 for none.

        These are the pops that the group's offset has not passed.
        """
        waiting = self._queues.get(key)
        return waiting[-1].next_offset if waiting else -1

    def hand_out(
        self, checkpoint: PopCheckPoint, revive_queue_id: int, next_offset: int
    ) -> PutResult | None:
        """Book a pop before its messages leave: in memory (None), or in the store.

        When the result says that nothing was stored, nothing has happened and the
        messages must not leave.
        """
        key = (checkpoint.topic, checkpoint.group, checkpoint.queue_id)
        if self._may_keep(checkpoint, key):
            self._keep(_Entry(key, next_offset, checkpoint, revive_queue_id), checkpoint)
            return None
        result = self._records.put_checkpoint(
            checkpoint, revive_queue_id, complete=key not in self._queues
        )
        if is_stored(result):
            self.pass_over(key, next_offset)
        return result

    def _may_keep(self, checkpoint: PopCheckPoint, key: QueueKey) -> bool:
        config = self._config.current
        if (
            not (config.enable_pop_buffer_merge or self._keeps_all())
            or self.closing
            or len(self._entries) >= config.pop_ck_max_buffer_size
        ):
            return False
        if (
            checkpoint.revive_time - self._clock.now_ms()
            < config.pop_ck_stay_buffer_time_out + _LEAST_STAY_MS
        ):
            return False
        return (
            len(self._queues.get(key, ())) < config.pop_ck_offset_max_queue_size
            and checkpoint.key not in self._entries
        )

    def _keep(self, entry: _Entry, checkpoint: PopCheckPoint) -> None:
        config = self._config.current
        self._entries[checkpoint.key] = entry
        self._queues.setdefault(entry.queue_key, deque()).append(entry)
        latest = checkpoint.revive_time - config.pop_ck_stay_buffer_time_out
        if config.enable_pop_buffer_merge or not self._keeps_all():
            latest = min(latest, self._clock.now_ms() + config.pop_ck_stay_buffer_time)
        self._push(entry, latest)

    def _push(self, entry: _Entry, store_at: int) -> None:
        entry.store_at = store_at
        if len(self._due) > 2 * len(self._entries) + _SLICE:
            self._due = [item for item in self._due if not item[2].over]
            heapq.heapify(self._due)
        heapq.heappush(self._due, (store_at, next(self._order), entry))
        self.on_call.call()
        if store_at < self._sleeping_until:
            self._earlier.set()

    def pass_over(self, key: QueueKey, next_offset: int) -> None:
        """Move the group's offset over stored or empty stretches.

        Pops in front of them have to be passed first.
        """
        waiting = self._queues.get(key)
        if waiting is None:
            self._commit(key, next_offset)
        else:
            waiting.append(_Entry(key, next_offset))

    def acknowledge(self, match_key: str, offsets: list[int]) -> list[int]:
        """Acknowledge messages of one pop; returns those without checkpoint here."""
        entry = self._entries.get(match_key)
        if entry is None or entry.checkpoint is None:
            return offsets
        left = entry.checkpoint.acknowledge(offsets)
        if entry.checkpoint.all_done:
            self._finish(entry, match_key)
        return left

    def _finish(self, entry: _Entry, match_key: str) -> None:
        entry.over = True
        del self._entries[match_key]
        self._commit_head(entry.queue_key)

    def _commit_head(self, key: QueueKey) -> None:
        waiting = self._queues.get(key)
        reached = -1
        while waiting and waiting[0].over:
            reached = waiting.popleft().next_offset
        if waiting is not None and not waiting:
            del self._queues[key]
        if reached >= 0:
            self._commit(key, reached)

    def _commit(self, key: QueueKey, offset: int) -> None:
        topic, group, queue_id = key
        if not self._offsets.has_reset(group, topic, queue_id):
            self._offsets.commit(group, topic, queue_id, offset)

    def forget_queue(self, key: QueueKey) -> None:
        """The group's offset was reset: pops of the queue no longer move it.

        Their checkpoints are stored.
        """
        for entry in self._queues.pop(key, ()):
            if not entry.over:
                self._store(entry)

    def remove_topic(self, topic: str) -> None:
        """Drop what is kept of a topic that is deleted."""
        self._drop(lambda key: key[0] == topic)

    def remove_group(self, group: str) -> None:
        """Drop what is kept of a group that is deleted."""
        self._drop(lambda key: key[1] == group)

    def _drop(self, concerns: Callable[[QueueKey], bool]) -> None:
        for key in [key for key in self._queues if concerns(key)]:
            for entry in self._queues.pop(key):
                entry.over = True
        for name in [name for name, entry in self._entries.items() if entry.over]:
            del self._entries[name]

    def flush(self) -> bool:
        """Store every checkpoint and move the offsets.

        False when some could not be stored. From then on none is kept in memory.
        """
        self.closing = True
        stored = [self._store(entry) for entry in list(self._entries.values())]
        return all(stored)

    def _store(self, entry: _Entry) -> bool:
        """Store a checkpoint with the acks that came; False to try it again."""
        checkpoint = entry.checkpoint
        assert checkpoint is not None
        waiting = self._queues.get(entry.queue_key)
        complete = waiting is not None and waiting[0] is entry
        result = self._records.put_checkpoint(checkpoint, entry.revive_queue_id, complete=complete)
        if not is_stored(result):
            logger.warning(
                "a checkpoint of %s could not be stored (%s); it is tried again",
                checkpoint.topic,
                result.status.name,
                extra=about(topic=checkpoint.topic),
            )
            return False
        self._finish(entry, checkpoint.key)
        return True

    @trio.lowlevel.enable_ki_protection
    async def run(self) -> None:
        """Store checkpoints when their time in memory has passed, until cancelled."""
        while True:
            self._earlier = trio.Event()
            now = self._clock.now_ms()
            for _ in range(_SLICE):
                if not self._due or (not self._due[0][2].over and self._due[0][0] > now):
                    break
                entry = heapq.heappop(self._due)[2]
                if not entry.over and not self._store(entry):
                    self._push(entry, now + RETRY_MS)
            else:
                await trio.lowlevel.checkpoint()
                continue
            self._sleeping_until = self._due[0][0] if self._due else float("inf")
            with trio.move_on_after(max(0.0, (self._sleeping_until - now) / 1000)):
                await self._earlier.wait()
            self._sleeping_until = 0
