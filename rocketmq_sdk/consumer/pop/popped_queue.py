"""What a push consumer holds of one place that it pops."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rocketmq_sdk.consumer.pop.receipt import PoppedMessage, Receipt
from rocketmq_sdk.consumer.pull.process_queue import ProcessQueue

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rocketmq_sdk.consumer.config import FlowLimits
    from rocketmq_sdk.model.queue import MessageQueue
    from rocketmq_sdk.model.received import ReceivedMessage


class PoppedQueue(ProcessQueue):
    """The popped messages of one place (a topic at one broker, or one queue of it).

    `done` is called with each message that is finished.
    """

    __slots__ = ("_done", "complaint", "ended", "goes", "last_pop", "rest")

    def __init__(
        self,
        queue: MessageQueue,
        done: Callable[[PoppedMessage], None],
        limits: FlowLimits | None = None,
    ) -> None:
        super().__init__(queue, 0, limits)
        self._done = done
        self.complaint = ""
        """Why popping does not work at present; empty when it does."""
        self.goes = False
        """Send no further pop: the place is assigned to nobody, or is to be pulled."""
        self.ended = False
        """The loop has ended; no further pop is sent."""
        self.last_pop: float | None = None
        self.rest: int | None = None
        """How many more messages the broker had after the last pop."""

    @property
    def is_full(self) -> bool:
        """Whether so much is held that popping pauses."""
        return self.message_count > self.limits.messages

    # Messages of several queues meet here, so they are keyed by identity, not offset.

    @property
    def has_work(self) -> bool:
        """Whether a worker may take a message; drops those whose time is over."""
        self.drop_expired()
        return bool(self.pending)

    def take(self) -> ReceivedMessage:
        """The next message for a listener; call only while `has_work`."""
        message = self.pending.popleft()
        self.taken[id(message)] = message
        return message

    def finish(self, message: ReceivedMessage) -> None:
        """A taken message is done, or the broker knows what becomes of it."""
        del self.taken[id(message)]
        self.byte_count -= len(message.body)
        if isinstance(message, PoppedMessage):
            self._done(message)
        self._look_for_room()
        if self._drained is not None and self.in_flight == 0:
            self._drained.set()

    def take_batch(self, most: int) -> list[ReceivedMessage]:
        """Up to `most` messages for a listener, at least one."""
        return [self.take() for _ in range(min(most, len(self.pending)))]

    def finish_batch(self, messages: Sequence[ReceivedMessage]) -> None:
        """Taken messages are done, as `finish` says it of one."""
        for message in messages:
            self.finish(message)

    def hand_back(self, messages: Sequence[ReceivedMessage]) -> None:
        """Taken messages that no listener has got are to be taken again.

        Unless the place is withdrawn; then they come again when their time is over.
        """
        for message in messages:
            del self.taken[id(message)]
        if self.withdrawn:
            self.byte_count -= sum(len(message.body) for message in messages)
        else:
            self.pending.extendleft(reversed(messages))
        if self._drained is not None and self.in_flight == 0:
            self._drained.set()

    def deadline_of(self, messages: Sequence[ReceivedMessage]) -> float:
        """The end of the invisible time, when others may get the messages."""
        return (
            min(_receipt(message).expires_at for message in messages) if messages else float("inf")
        )

    def add(self, messages: Sequence[PoppedMessage]) -> None:
        """Add what a pop returned."""
        self.pending.extend(messages)
        self.byte_count += sum(len(message.body) for message in messages)

    def drop_expired(self) -> None:
        """Drop messages that the broker delivers again by now."""
        while self.pending and not _receipt(self.pending[0]).is_good:
            self.byte_count -= len(self.pending.popleft().body)
        self._look_for_room()

    def withdraw(self) -> None:
        """Drop what no listener has; it comes again when its time is over."""
        self.withdrawn = True
        self.byte_count -= sum(len(message.body) for message in self.pending)
        self.pending.clear()


def _receipt(message: ReceivedMessage) -> Receipt:
    assert isinstance(message, PoppedMessage)
    return message.receipt
