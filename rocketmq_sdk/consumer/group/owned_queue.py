"""A queue that a member owns."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import trio

from rocketmq_sdk.clock import elapsed

if TYPE_CHECKING:
    from rocketmq_sdk.consumer.group.queue_locks import QueueLocks
    from rocketmq_sdk.consumer.pull.process_queue import ProcessQueue
    from rocketmq_sdk.consumer.pull.puller import QueuePuller
    from rocketmq_sdk.model.queue import MessageQueue

REPEAT_INTERVAL: Final = 60.0
"""Seconds after which an offset that has not moved is committed again.

The broker does not confirm commits, and forgets them when it is killed.
"""


class OwnedQueue:
    """One owned queue: its pull loop, and the scopes of its task.

    `pulling` is the scope around the loop, `draining` the one around the wait for its
    listeners.
    """

    __slots__ = (
        "_committed",
        "_repeat_at",
        "draining",
        "ended",
        "lost",
        "moved",
        "puller",
        "pulling",
        "queue",
        "reset_to",
    )

    def __init__(self, queue: MessageQueue, puller: QueuePuller) -> None:
        self.queue = queue
        self.puller = puller
        self.pulling = trio.CancelScope()
        self.draining = trio.CancelScope()
        self.ended = trio.Event()
        self.reset_to: int | None = None
        self.lost = False
        """The broker's lock is not ours any more, so neither is the offset."""
        self.moved = False
        """Another member may own the queue, so its offset is that member's."""
        self._committed: int | None = None
        self._repeat_at = 0.0

    def may_commit(self, locks: QueueLocks | None) -> bool:
        """Whether the offset is ours to commit; `locks` of an ordered group."""
        return locks is None or (not self.lost and locks.trusted_until(self.queue) > elapsed())

    def has_to_commit(self, locks: QueueLocks | None) -> bool:
        """Whether its offset has to be committed now, and may be.

        One that has not moved has to be after a while.
        """
        return (
            (
                self.process_queue.commit_offset != self._committed
                or trio.current_time() >= self._repeat_at
            )
            and not self.puller.unsure
            and self.may_commit(locks)
        )

    def note_committed(self, offset: int) -> None:
        """Remember what was sent."""
        self._committed, self._repeat_at = offset, trio.current_time() + REPEAT_INTERVAL

    def forget_committed(self) -> None:
        """The broker may have forgotten it: commit again."""
        self._committed = None

    @property
    def process_queue(self) -> ProcessQueue:
        """What is cached of the queue, and determines its offset."""
        return self.puller.process_queue

    @property
    def process_queues(self) -> tuple[ProcessQueue, ...]:
        """All process queues of the queue, the current one last.

        Before it are those from before a correction of the offset that listeners still
        work on.
        """
        return (*self.puller.former, self.puller.process_queue)
