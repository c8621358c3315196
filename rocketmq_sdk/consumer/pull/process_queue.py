"""What is cached of one queue, and the offset that may be committed.

Follows the rules of `ProcessQueue` of Apache RocketMQ 5.4.0 with another structure.
Messages arrive in offset order and are taken in offset order, so a deque of waiting
messages and an insertion-ordered dictionary of taken ones replace the tree. The
smallest offset that is not finished is the first key of the dictionary, otherwise the
first waiting message, otherwise the offset to pull next. That offset is the end of the
contiguous prefix. It costs nothing per message, because it is looked up only when it is
committed. A message that could not be sent back stays in the dictionary, where it holds
the prefix back.
"""

from __future__ import annotations

import math
from collections import deque
from operator import lt
from typing import TYPE_CHECKING

import trio

from rocketmq_sdk.consumer.config import FlowLimits

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rocketmq_sdk.consumer.statistics import Counters
    from rocketmq_sdk.model.queue import MessageQueue
    from rocketmq_sdk.model.received import ReceivedMessage


class ProcessQueue:
    """The cached messages of one owned queue.

    Synchronous except for the two waits; used from one trio thread.
    """

    __slots__ = (
        "_drained",
        "_last_offset",
        "_room",
        "again",
        "byte_count",
        "counters",
        "deferred",
        "limits",
        "locked_until",
        "next_offset",
        "paused",
        "pending",
        "queue",
        "scheduled",
        "taken",
        "withdrawn",
    )

    def __init__(
        self, queue: MessageQueue, next_offset: int, limits: FlowLimits | None = None
    ) -> None:
        self.queue = queue
        self.next_offset = next_offset
        self.limits = limits or FlowLimits()
        self.pending: deque[ReceivedMessage] = deque()
        self.again: deque[ReceivedMessage] | tuple[()] = ()
        self.taken: dict[int, ReceivedMessage] = {}
        self.deferred = 0
        self.counters: Counters | None = None
        """The counters of its topic, set by its service when it first has messages."""
        self.paused = False
        self.byte_count = 0
        self.scheduled = False
        self.withdrawn = False
        self.locked_until = math.inf
        """Until when the lock of a queue in order is trusted.

        In seconds of trio's clock; infinite for other queues.
        """
        self._last_offset = next_offset
        self._room: trio.Event | None = None
        self._drained: trio.Event | None = None

    @property
    def message_count(self) -> int:
        """How many messages are cached, including those that listeners work on."""
        return len(self.pending) + len(self.taken)

    @property
    def in_flight(self) -> int:
        """How many messages are with listeners or being sent back."""
        return len(self.taken) - self.deferred - len(self.again)

    @property
    def has_work(self) -> bool:
        """Whether a worker may take a message."""
        return bool(self.pending or self.again)

    @property
    def commit_offset(self) -> int:
        """The smallest offset that is not finished; everything below it is."""
        if self.taken:
            return next(iter(self.taken))
        if self.pending:
            return self.pending[0].offset
        return self.next_offset

    @property
    def span(self) -> int:
        """Distance between the oldest and the newest cached offset."""
        return self._last_offset - self.commit_offset if self.taken or self.pending else 0

    @property
    def is_blocked(self) -> bool:
        """Whether a pause or the flow limits forbid pulling now."""
        return self.paused or self.is_full

    @property
    def is_full(self) -> bool:
        """Whether the flow limits forbid pulling now."""
        return self.limits.blocks(len(self.pending) + len(self.taken), self.byte_count, self.span)

    def room(self, most: int, size: int) -> int:
        """How many pulls of so many messages and bytes fit below the flow limits."""
        if self.paused:
            return 0
        limits = self.limits
        return min(
            (limits.messages - len(self.pending) - len(self.taken)) // most,
            (limits.span - self.span) // most,
            (limits.size - self.byte_count) // max(1, size),
        )

    def put(self, messages: list[ReceivedMessage], next_offset: int) -> int:
        """Add what a pull found, in offset order, and set where to pull next.

        Returns the number of new messages. Messages below the pull offset are left out:
        a pull into the middle of a stored batch returns the whole batch. Whatever the
        broker says, each offset is taken once, and never behind one that is held.
        """
        if messages and messages[-1].offset - messages[0].offset != len(messages) - 1:
            messages = _ascending(messages)
        if messages and messages[0].offset < self.next_offset:
            messages = [message for message in messages if message.offset >= self.next_offset]
        if messages:
            self.pending.extend(messages)
            self.byte_count += sum([len(message.body) for message in messages])
            self._last_offset = last = messages[-1].offset
            if next_offset <= last:
                next_offset = last + 1
        if next_offset > self.next_offset:
            self.next_offset = next_offset
        return len(messages)

    def take(self) -> ReceivedMessage:
        """The next message for a listener; call only while `has_work`."""
        if self.again:
            return self.again.popleft()
        message = self.pending.popleft()
        self.taken[message.offset] = message
        return message

    def take_batch(self, most: int) -> list[ReceivedMessage]:
        """Up to `most` messages for a listener, at least one.

        Call only while `has_work`.
        """
        if self.again:
            batch = [self.take()]
            while len(batch) < most and (self.pending or self.again):
                batch.append(self.take())
            return batch
        pending, taken = self.pending, self.taken
        if len(pending) <= most:
            batch = list(pending)
            pending.clear()
        else:
            popleft = pending.popleft
            batch = [popleft() for _ in range(most)]
        for message in batch:
            taken[message.offset] = message
        return batch

    def finish(self, message: ReceivedMessage) -> None:
        """A taken message is done: consumed, or sent back."""
        del self.taken[message.offset]
        self.byte_count -= len(message.body)
        # As `_look_for_room`, without a call for each message.
        if self._room is not None and not self.is_blocked:
            self._room.set()
        if self._drained is not None and self.in_flight == 0:
            self._drained.set()

    def finish_batch(self, messages: Sequence[ReceivedMessage]) -> None:
        """Taken messages are done, as `finish` says it of one."""
        taken = self.taken
        if len(taken) == len(messages):  # then they are the same
            taken.clear()
        else:
            for message in messages:
                del taken[message.offset]
        self.byte_count -= sum([len(message.body) for message in messages])
        if self._room is not None and not self.is_blocked:
            self._room.set()
        if self._drained is not None and self.in_flight == 0:
            self._drained.set()

    # For those who have one.
    def deadline_of(self, messages: Sequence[ReceivedMessage]) -> float:  # noqa: ARG002
        """The latest time until which a listener may work on taken messages.

        In seconds of trio's clock; applies in addition to the consume timeout.
        """
        return math.inf

    def put_back(self, messages: Sequence[ReceivedMessage]) -> None:
        """Put taken messages back in front of all others.

        For queues in order, when nothing else is taken.
        """
        for message in messages:
            del self.taken[message.offset]
        if self.withdrawn:
            self.byte_count -= sum([len(message.body) for message in messages])
            self.next_offset = messages[0].offset if messages else self.next_offset
        else:
            self.pending.extendleft(reversed(messages))
        if self._drained is not None and self.in_flight == 0:
            self._drained.set()

    def finish_all(self) -> None:
        """All taken messages are done; all were deferred. For queues in order."""
        self.deferred = 0
        for message in list(self.taken.values()):
            self.finish(message)

    def roll_back(self) -> None:
        """All taken messages come again. For queues in order."""
        self.deferred = 0
        self.put_back(list(self.taken.values()))

    def defer(self) -> None:
        """A taken message stays cached until `resume`: it could not be sent back.

        In order: until `finish_all` or `roll_back`.
        """
        self.deferred += 1
        if self._drained is not None and self.in_flight == 0:
            self._drained.set()

    def resume(self, message: ReceivedMessage) -> None:
        """Consume a deferred message again."""
        self.deferred -= 1
        if not self.again:  # there is rarely any, and an empty deque takes 760 bytes
            self.again = deque()
        self.again.append(message)

    def hand_back(self, messages: Sequence[ReceivedMessage]) -> None:
        """Taken messages that no listener has got are to be taken again."""
        if self.withdrawn:
            self.deferred += len(messages)
        elif self.again:
            self.again.extend(messages)
        else:
            self.again = deque(messages)
        if self._drained is not None and self.in_flight == 0:
            self._drained.set()

    def withdraw(self) -> None:
        """Drop what no listener has.

        Taken messages stay until they are finished, but none goes to a listener again.
        """
        self.withdrawn = True
        self.byte_count -= sum([len(message.body) for message in self.pending])
        if self.pending:
            self.next_offset = self.pending[0].offset
            self.pending.clear()
        self.deferred += len(self.again)
        self.again = ()

    def set_limits(self, limits: FlowLimits) -> None:
        """Apply new limits at once."""
        self.limits = limits
        self._look_for_room()

    def set_paused(self, paused: bool) -> None:
        """Stop or resume pulling; a pull under way still delivers."""
        self.paused = paused
        self._look_for_room()

    def _look_for_room(self) -> None:
        if self._room is not None and not self.is_blocked:
            self._room.set()

    async def wait_room(self) -> None:
        """Wait until the queue is not paused and the flow limits allow a pull."""
        while self.is_blocked:
            self._room = trio.Event()
            try:
                await self._room.wait()
            finally:
                self._room = None

    async def wait_drained(self) -> None:
        """Wait until no listener works on a message of this queue."""
        if self.in_flight == 0:
            return
        self._drained = trio.Event()
        try:
            await self._drained.wait()
        finally:
            self._drained = None


def _ascending(messages: list[ReceivedMessage]) -> list[ReceivedMessage]:
    """Messages in the order of their offsets, each once; nearly always they are so."""
    offsets = [message.offset for message in messages]
    if all(map(lt, offsets, offsets[1:])):
        return messages
    by_offset = dict(zip(reversed(offsets), reversed(messages), strict=True))
    return [by_offset[offset] for offset in sorted(by_offset)]
