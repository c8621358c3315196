"""Handing prefetched messages to the tasks that poll.

The counterpart of the workers of a push consumer.
"""

from __future__ import annotations

import logging
import math
from collections import deque
from typing import TYPE_CHECKING, Final, Protocol

import trio

from rocketmq_sdk.consumer.lite_pull.prefetched_queue import PortionedQueue, PrefetchedQueue
from rocketmq_sdk.consumer.statistics import Counters
from rocketmq_sdk.errors import ClosedError
from rocketmq_sdk.log_fields import about

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rocketmq_sdk.consumer.config import LitePullConfig
    from rocketmq_sdk.consumer.pull.process_queue import ProcessQueue
    from rocketmq_sdk.consumer.trace import ConsumeTrace
    from rocketmq_sdk.model.received import ReceivedMessage

logger = logging.getLogger("rocketmq_sdk.consumer")

_STREAK: Final = 32
"""Messages after which a poll that finds more lets other tasks run."""
MOST_UNTOLD: Final = 256
LONGEST_UNTOLD: Final = 60.0
"""After so many messages, or seconds, without one `done`, the program is warned."""
REMEDY: Final = (
    "nothing is committed until then. Call done(message) of each message that is processed, or "
    "make the consumer with polled_is_done=True if it is processed before the next poll"
)
_Portion = tuple[PortionedQueue, int]


class Poller(Protocol):
    """Somebody who polls from outside of trio: a task of another loop, or a thread."""

    def ended(self) -> bool:
        """Whether it will not poll again."""
        ...


Who = trio.lowlevel.Task | Poller


class PollService:
    """The line of queues with prefetched messages.

    A poll takes messages from the first queue and puts it back at the end. Any number
    of tasks poll. A message is done when `done` says so. With `polled_is_done` messages
    are done when `all_done` says so, and with `auto_commit` those of a task when it
    polls again.
    """

    def __init__(self, config: LitePullConfig, *, trace: ConsumeTrace | None = None) -> None:
        self._trace = trace
        self._next_poll_is_done = config.auto_commit and config.polled_is_done
        self._line: deque[PrefetchedQueue] = deque()
        self._polled: dict[Who, list[_Portion]] = {}
        self._untold: dict[int, PrefetchedQueue] = {}
        # By identity; the queue keeps the message, so no other one gets its identity.
        self._waits_for_done = not config.polled_is_done  # nothing was said to be done yet
        self._first_polled = math.inf
        self._arrived = trio.Event()
        self._streak = 0
        self._warned = False
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
        """What was polled of a queue does not count any more, and holds back its
        offset.
        """
        for message in process_queue.taken.values():
            self._untold.pop(id(message), None)

    def forget(self, process_queue: ProcessQueue) -> None:
        """What was polled of a queue before a seek does not count any more."""
        assert isinstance(process_queue, PrefetchedQueue)
        for message in process_queue.forget():
            self._untold.pop(id(message), None)

    def close(self) -> None:
        """Make a waiting poll, and each later one, raise `ClosedError`."""
        self.closed = True
        self._arrived.set()

    # -- the side of whoever polls

    def done(self, messages: Iterable[ReceivedMessage]) -> None:
        """Polled messages are done, if they were polled here and are not forgotten."""
        self._waits_for_done = False
        for message in messages:
            process_queue = self._untold.pop(id(message), None)
            if process_queue is not None:
                process_queue.finish(message)

    def complaint(self, now: float) -> str:
        """What is wrong when nothing was said to be done, though much was polled."""
        untold = len(self._untold)
        if (
            not self._waits_for_done
            or not untold
            or (untold < MOST_UNTOLD and now - self._first_polled < LONGEST_UNTOLD)
        ):
            return ""
        return f"{untold} messages were polled, and none was said to be done: {REMEDY}"

    def look_for_done(self, now: float) -> None:
        """Warn a program that never says what is done, once."""
        complaint = self.complaint(now)
        if complaint and not self._warned:
            self._warned = True
            queue = next(iter(self._untold.values())).queue
            logger.warning("%s", complaint, extra=about(queue=queue))

    def all_done(self) -> None:
        """All polled messages are done, if they do not wait for `done`."""
        for portions in self._polled.values():
            _finish(portions)
        self._polled.clear()

    async def poll(
        self, most: int, deadline: float, poller: Poller | None = None
    ) -> list[ReceivedMessage]:
        """Up to `most` messages; waits for the first, and returns none at the deadline.

        If so configured, messages that this task, or whoever polls through a door,
        polled before count as done from here on. Nothing is taken when it is cancelled.
        """
        who = poller or trio.lowlevel.current_task()
        if self._polled:
            self.polls_again(who)
        if self.gives_way() or not self._line or self.closed:
            await self.arrived(deadline)
        return self.take(most, who)

    def polls_again(self, poller: Who) -> None:
        """What somebody has polled before counts as done, if so configured."""
        if self._next_poll_is_done and self._polled:
            _finish(self._polled.pop(poller, ()))
            if self._polled and not self._warned:
                self._look_for_ended_tasks()

    def gives_way(self) -> bool:
        """Whether other tasks should run now, before more is taken."""
        if self._streak < _STREAK:
            return False
        self._streak = 0
        return True

    def _look_for_ended_tasks(self) -> None:
        for poller, portions in self._polled.items():
            if _has_ended(poller):
                self._warned = True
                logger.warning(
                    "a task that polled has ended without another poll, so %r is not committed "
                    "beyond offset %d before the consumer's block ends; poll in a loop, or make "
                    "the consumer without polled_is_done and call done(message)",
                    portions[0][0].queue,
                    portions[0][1],
                    extra=about(queue=portions[0][0].queue),
                )
                return

    async def arrived(self, deadline: float) -> None:
        """Wait until there are messages, or for the deadline. Raises `ClosedError`."""
        await trio.lowlevel.checkpoint()
        while not self._line and not self.closed:
            if self._arrived.is_set():
                self._arrived = trio.Event()
            with trio.move_on_at(deadline):
                await self._arrived.wait()
            if trio.current_time() >= deadline:
                break
        if self.closed:
            raise ClosedError("the consumer is closed")

    def take(self, most: int, poller: Who) -> list[ReceivedMessage]:
        """Up to `most` of the messages that are there. Raises `ClosedError`."""
        if self.closed:
            raise ClosedError("the consumer is closed")
        line = self._line
        messages: list[ReceivedMessage] = []
        while line and len(messages) < most:
            process_queue = line.popleft()
            messages += (found := self._portion(process_queue, most - len(messages), poller))
            counters = process_queue.counters
            assert counters is not None
            counters.consumed += len(found)
            if process_queue.pending:
                line.append(process_queue)
            else:
                process_queue.scheduled = False
        self._streak += len(messages)
        if self._waits_for_done:
            self._note_polled(bool(messages))
        if self._trace is not None:
            self._trace.polled(messages)
        return messages

    def _note_polled(self, some: bool) -> None:
        now = trio.current_time()
        if some and self._first_polled == math.inf:
            self._first_polled = now
        self.look_for_done(now)

    def _portion(
        self, process_queue: PrefetchedQueue, most: int, poller: Who
    ) -> list[ReceivedMessage]:
        if not isinstance(process_queue, PortionedQueue):
            messages = process_queue.hand_out(most)
            self._untold.update((id(message), process_queue) for message in messages)
            return messages
        # Without automatic commits all that is polled is done at once, by a commit. It
        # is one portion, or a program that never commits would fill the memory.
        joined = not self._next_poll_is_done and process_queue.in_flight > 0
        messages = process_queue.hand_out(most, joined=joined)
        if not joined:
            self._polled.setdefault(poller, []).append((process_queue, messages[0].offset))
        return messages


def _has_ended(poller: Who) -> bool:
    if isinstance(poller, trio.lowlevel.Task):
        return poller.coro.cr_frame is None
    return poller.ended()


def _finish(portions: Iterable[_Portion]) -> None:
    for process_queue, first_offset in portions:
        process_queue.portion_done(first_offset)
