"""Handing prefetched messages to the task that polls.

The counterpart of the workers of a push consumer.
"""

from __future__ import annotations

import math
from collections import deque
from typing import TYPE_CHECKING, Final

import trio

from rocketmq_sdk.consumer.lite_pull.prefetched_queue import PrefetchedQueue
from rocketmq_sdk.consumer.statistics import Counters
from rocketmq_sdk.errors import ClosedError, ConfigurationError

if TYPE_CHECKING:
    from rocketmq_sdk.consumer.pull.process_queue import ProcessQueue
    from rocketmq_sdk.consumer.trace import ConsumeTrace
    from rocketmq_sdk.model.message import ReceivedMessage

_STREAK: Final = 32
"""Messages after which a poll that finds more lets other tasks run."""


class PollService:
    """The line of queues with prefetched messages.

    A poll takes messages from the first queue and puts it back at the end. One task
    polls at a time.
    """

    def __init__(self, *, auto_release: bool, trace: ConsumeTrace | None = None) -> None:
        self._trace = trace
        self._auto_release = auto_release
        self._line: deque[PrefetchedQueue] = deque()
        self._polled: list[PrefetchedQueue] = []
        self._arrived = trio.Event()
        self._streak = 0
        self._polling = False
        self.closed = False
        self.counters: dict[str, Counters] = {}

    # -- what reports ask

    @property
    def consumed(self) -> int:
        """How many messages were polled."""
        return sum(counters.consumed for counters in self.counters.values())

    failed = timed_out = waiting_for_retry = 0
    running_since = math.inf
    is_saturated = False
    last_failure: str | None = None
    """Always None: what fails after a poll is up to the program."""

    # -- the side of the pull loops

    def add(self, process_queue: ProcessQueue) -> None:
        """Announce that a queue has messages."""
        assert isinstance(process_queue, PrefetchedQueue)
        if process_queue.counters is None:
            process_queue.counters = self.counters.setdefault(process_queue.queue.topic, Counters())
        if not process_queue.scheduled and process_queue.pending and not process_queue.paused:
            process_queue.scheduled = True
            self._line.append(process_queue)
            self._arrived.set()

    def hold(self, process_queue: ProcessQueue) -> None:
        """Hand out nothing more of a queue until it is added again.

        What is cached stays.
        """
        if process_queue.scheduled:
            assert isinstance(process_queue, PrefetchedQueue)
            self._line.remove(process_queue)
            process_queue.scheduled = False

    def withdraw(self, process_queue: ProcessQueue) -> None:
        """Take a queue out; messages that were not polled are dropped."""
        self.hold(process_queue)
        process_queue.withdraw()

    def interrupt(self, process_queue: ProcessQueue) -> None:
        """Do nothing: polled messages cannot be taken back; they just do not count."""

    def close(self) -> None:
        """Make a waiting poll, and each later one, raise `ClosedError`."""
        self.closed = True
        self._arrived.set()

    # -- the side of whoever polls

    def release(self) -> None:
        """All polled messages are done."""
        for process_queue in self._polled:
            process_queue.release()
        self._polled.clear()

    async def poll(self, most: int, deadline: float) -> list[ReceivedMessage]:
        """Up to `most` messages; waits for the first, and returns none at the deadline.

        With automatic commits, messages polled before count as done from here on.
        Nothing is taken when it is cancelled.
        """
        if self._polling:
            raise ConfigurationError(
                "another task polls this consumer; let one task poll and hand the messages on"
            )
        if self._auto_release and self._polled:
            self.release()
        self._polling = True
        try:
            if self._streak >= _STREAK or not self._line or self.closed:
                self._streak = 0
                await self._wait(deadline)
        finally:
            self._polling = False
        return self._take(most)

    async def _wait(self, deadline: float) -> None:
        await trio.lowlevel.checkpoint()
        while not self._line and not self.closed:
            self._arrived = trio.Event()
            with trio.move_on_at(deadline):
                await self._arrived.wait()
            if trio.current_time() >= deadline:
                break
        if self.closed:
            raise ClosedError("the consumer is closed")

    def _take(self, most: int) -> list[ReceivedMessage]:
        line = self._line
        messages: list[ReceivedMessage] = []
        while line and len(messages) < most:
            process_queue = line.popleft()
            if not process_queue.in_flight:
                self._polled.append(process_queue)
            found = process_queue.hand_out(most - len(messages))
            messages += found
            counters = process_queue.counters
            assert counters is not None
            counters.consumed += len(found)
            if process_queue.pending:
                line.append(process_queue)
            else:
                process_queue.scheduled = False
        self._streak += len(messages)
        if self._trace is not None:
            self._trace.polled(messages)
        return messages
