"""What a lite pull consumer holds of one queue, and how far it may be committed.

What may be committed ends before the first message that was handed out and is not done
yet. Messages that the program says to be done one by one stay in the cache until then,
so that the thresholds bound what it holds. Where what is polled counts as done, they
leave the cache as they are polled (`AssignedMessageQueue` and `ProcessQueue` of Apache
RocketMQ 5.4.0), so a program that polls and never commits is not held up.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rocketmq_sdk.consumer.pull.process_queue import ProcessQueue

if TYPE_CHECKING:
    from rocketmq_sdk.consumer.config import FlowLimits
    from rocketmq_sdk.model.queue import MessageQueue
    from rocketmq_sdk.model.received import ReceivedMessage


class PrefetchedQueue(ProcessQueue):
    """The prefetched messages of one queue, of which each is done by itself."""

    __slots__ = ()

    @property
    def position(self) -> int:
        """The offset of the next message to hand out."""
        return self.pending[0].offset if self.pending else self.next_offset

    def hand_out(self, most: int) -> list[ReceivedMessage]:
        """Up to `most` cached messages, at least one, in order.

        Call only while there are some.
        """
        pending = self.pending
        messages = [pending.popleft() for _ in range(min(most, len(pending)))]
        self.taken.update((message.offset, message) for message in messages)
        return messages

    def forget(self) -> list[ReceivedMessage]:
        """What was handed out does not count any more; gives what was not done."""
        forgotten = list(self.taken.values())
        self.taken.clear()
        self.byte_count -= sum([len(message.body) for message in forgotten])
        if self._drained is not None:
            self._drained.set()
        return forgotten


class PortionedQueue(PrefetchedQueue):
    """The prefetched messages of one queue, done as they were polled: by portions."""

    __slots__ = ("_out", "_out_count")

    def __init__(
        self, queue: MessageQueue, next_offset: int, limits: FlowLimits | None = None
    ) -> None:
        super().__init__(queue, next_offset, limits)
        self._out: dict[int, int] = {}
        # The portions handed out and not done: first offset and number of messages, in
        # the order of offsets.
        self._out_count = 0

    @property
    def commit_offset(self) -> int:
        """The first offset handed out and not done, otherwise the position."""
        return next(iter(self._out)) if self._out else self.position

    @property
    def in_flight(self) -> int:
        """How many messages were handed out and are not done."""
        return self._out_count

    @property
    def span(self) -> int:
        """Distance between the oldest and the newest cached offset."""
        return self._last_offset - self.pending[0].offset if self.pending else 0

    def hand_out(self, most: int, *, joined: bool = False) -> list[ReceivedMessage]:
        """A portion: up to `most` cached messages, at least one, in order.

        Call only while `has_work`. The offset of the first message names the portion.
        With `joined` the messages become part of the last portion, if there is one.
        """
        pending = self.pending
        if most >= len(pending):
            messages = list(pending)
            pending.clear()
            self.byte_count = 0
        else:
            messages = [pending.popleft() for _ in range(most)]
            self.byte_count -= sum([len(message.body) for message in messages])
        name = next(reversed(self._out)) if joined and self._out else messages[0].offset
        self._out[name] = self._out.get(name, 0) + len(messages)
        self._out_count += len(messages)
        self._look_for_room()
        return messages

    def portion_done(self, first_offset: int) -> None:
        """A portion is done; what is done up to the first gap may be committed."""
        self._out_count -= self._out.pop(first_offset, 0)
        if self._drained is not None and not self._out:
            self._drained.set()

    def forget(self) -> list[ReceivedMessage]:
        """What was handed out does not count any more."""
        self._out.clear()
        self._out_count = 0
        if self._drained is not None:
            self._drained.set()
        return []
