"""What a lite pull consumer holds of one queue, and how far it may be committed.

Messages leave the cache when they are polled (`AssignedMessageQueue` and `ProcessQueue`
of Apache RocketMQ 5.4.0), so a program that polls and never commits is not held up by
the thresholds. What may be committed ends before the first message that was handed out
and is not released yet.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rocketmq_sdk.consumer.pull.process_queue import ProcessQueue

if TYPE_CHECKING:
    from rocketmq_sdk.consumer.config import FlowLimits
    from rocketmq_sdk.model.message import ReceivedMessage
    from rocketmq_sdk.model.queue import MessageQueue


class PrefetchedQueue(ProcessQueue):
    """The prefetched messages of one queue."""

    __slots__ = ("_held", "_held_count")

    def __init__(
        self, queue: MessageQueue, next_offset: int, limits: FlowLimits | None = None
    ) -> None:
        super().__init__(queue, next_offset, limits)
        self._held: int | None = None
        self._held_count = 0

    @property
    def position(self) -> int:
        """The offset of the next message to hand out."""
        return self.pending[0].offset if self.pending else self.next_offset

    @property
    def commit_offset(self) -> int:
        """The first offset handed out and not released, otherwise the position."""
        return self.position if self._held is None else self._held

    @property
    def in_flight(self) -> int:
        """How many messages were handed out and not released."""
        return self._held_count

    @property
    def span(self) -> int:
        """Distance between the oldest and the newest cached offset."""
        return self._last_offset - self.pending[0].offset if self.pending else 0

    def hand_out(self, most: int) -> list[ReceivedMessage]:
        """Up to `most` cached messages, at least one; call only while `has_work`."""
        pending = self.pending
        if self._held is None:
            self._held = pending[0].offset
        if most >= len(pending):
            messages = list(pending)
            pending.clear()
            self.byte_count = 0
        else:
            messages = [pending.popleft() for _ in range(most)]
            self.byte_count -= sum([len(message.body) for message in messages])
        self._held_count += len(messages)
        self._look_for_room()
        return messages

    def release(self) -> None:
        """What was handed out is done and may be committed."""
        self._held = None
        self._held_count = 0
        if self._drained is not None:
            self._drained.set()
