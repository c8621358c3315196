"""Handing messages to the listener in the order of their queues.

One call at a time for each queue, as `ConsumeMessageOrderlyService` of Apache RocketMQ
5.4.0 does. A queue with work stands in the line or is with one worker, never both. When
the listener fails, the messages stay at the head of their queue, which is suspended for
a fixed time; other queues go on. A queue is consumed only while the broker's lock on it
is known to be held. There is no consume timeout: a slow message holds up only its own
queue.
"""

from __future__ import annotations

import heapq
from itertools import count, takewhile
from typing import TYPE_CHECKING, Final

import trio

from rocketmq_sdk.consumer.outcome import (
    DEAD_LETTER,
    ConsumeLater,
    ConsumeOrderlyStatus,
    ListenerAnswer,
)
from rocketmq_sdk.consumer.push.listener_service import (
    NOT_RUNNING,
    GiveBack,
    ListenerService,
    Worker,
)
from rocketmq_sdk.consumer.push.log_lines import EXHAUSTED, LEFT_OUT, tell_answer
from rocketmq_sdk.consumer.retry_states import State, failure

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rocketmq_sdk.consumer.listener import Listener
    from rocketmq_sdk.consumer.pull.process_queue import ProcessQueue
    from rocketmq_sdk.model.received import ReceivedMessage

SHORTEST_SUSPENSION: Final = 0.01
LONGEST_SUSPENSION: Final = 30.0


class OrderlyService(ListenerService):
    """Runs the listener for the process queues of one consumer, each in order.

    `suspension` is how long a queue is suspended after a failure, in seconds, limited
    to 10 ms to 30 s. `most_retries` returns how often a message may be delivered again
    now. A message whose attempts are exhausted goes to the dead letter topic by
    `give_back`; its queue does not pass it until that has succeeded.

    Without `auto_commit`, what the listener has returned from stays with the process
    queue, as deferred, until the listener commits it or rolls it back.
    """

    def __init__(
        self,
        listener: Listener,
        *,
        group: str,
        batch: int,
        concurrency: int,
        suspension: float,
        give_back: GiveBack,
        most_retries: Callable[[], int],
        auto_commit: bool = True,
    ) -> None:
        super().__init__(listener, group=group, batch=batch, concurrency=concurrency)
        self.auto_commit = auto_commit
        self._suspension = suspension
        self._give_back = give_back
        self._most_retries = most_retries
        self._suspended: list[tuple[float, int, ProcessQueue]] = []
        self._order = count()
        self._settled: dict[int, trio.Event] = {}

    in_order = True
    # Here `scheduled` means: in the line, with a worker, or suspended.

    def withdraw(self, process_queue: ProcessQueue) -> None:
        """Take a process queue out.

        What the listener has not got is dropped, what it has goes on.
        """
        process_queue.withdraw()
        if process_queue in self._line:
            self._line.remove(process_queue)
        self._suspended = [entry for entry in self._suspended if entry[2] is not process_queue]
        heapq.heapify(self._suspended)

    async def wait_settled(self, process_queue: ProcessQueue) -> bool:
        """Wait until no worker has a withdrawn process queue.

        Returns False when its listener may still run in an abandoned thread.
        """
        while any(worker.process_queue is process_queue for worker in self._workers):
            event = self._settled.setdefault(id(process_queue), trio.Event())
            await event.wait()
        return not (self.in_threads and process_queue.in_flight)

    @property
    def waiting_for_retry(self) -> int:
        """How many queues are suspended, each with one message or batch to repeat."""
        return len(self._suspended)

    # -- workers

    def _leave(self, worker: Worker, suspension: float = 0.0) -> None:
        """A worker is done with its queue.

        The queue goes back to the line, or is suspended for `suspension` seconds, or
        has no work.
        """
        process_queue = worker.process_queue
        assert process_queue is not None
        worker.started = NOT_RUNNING
        worker.process_queue = None
        worker.messages = ()
        if not process_queue.has_work:
            process_queue.scheduled = False
        elif suspension:
            heapq.heappush(
                self._suspended,
                (trio.current_time() + suspension, next(self._order), process_queue),
            )
            self._sweep.set()
        else:
            self._line.append(process_queue)
        if self._settled and (event := self._settled.pop(id(process_queue), None)) is not None:
            event.set()

    def _decide(self, worker: Worker, answer: object) -> None:
        """Without `auto_commit`: commit, roll back, or keep the messages of a call."""
        self._check_answer(answer)
        process_queue = worker.process_queue
        assert process_queue is not None
        counters = self.counters_of(process_queue.queue.topic)
        suspension = 0.0
        if answer is ConsumeOrderlyStatus.ROLLBACK:
            counters.failed += len(worker.messages)
            process_queue.roll_back()
            suspension = self._rest(self._suspension)
        else:
            counters.consumed += len(worker.messages)
            counters.consume_seconds += trio.current_time() - worker.started
            for _message in worker.messages:
                process_queue.defer()
            if answer is ConsumeOrderlyStatus.COMMIT:
                process_queue.finish_all()
        self._leave(worker, suspension)

    @staticmethod
    def _rest(suspension: float) -> float:
        return min(max(suspension, SHORTEST_SUSPENSION), LONGEST_SUSPENSION)

    def _done(self, process_queue: ProcessQueue, message: ReceivedMessage) -> None:
        """A message is done, or waits for the listener's commit."""
        if self.auto_commit:
            process_queue.finish(message)
        else:
            process_queue.defer()

    async def _conclude(self, worker: Worker) -> None:
        """Clean up after `interrupt` has cancelled a worker's scope.

        Its queue belongs to another member now.
        """
        worker.abandoned = worker.timed_out = False
        if worker.process_queue is not None:
            self._leave(worker)

    # -- failures

    async def _after_failure(self, worker: Worker, error: Exception) -> None:
        """The listener has raised: suspend the queue.

        What is not done stays at its head.
        """
        worker.started = NOT_RUNNING
        if worker.abandoned:
            await trio.lowlevel.checkpoint()
        process_queue, messages = worker.process_queue, worker.messages
        assert process_queue is not None
        suspension = self._suspension
        failed: Sequence[ReceivedMessage] = messages
        rejected = False
        if isinstance(error, ListenerAnswer):
            failed = self._meant(error, messages)
            rejected = error.delay_level == DEAD_LETTER
            if isinstance(error, ConsumeLater) and error.suspend is not None:
                suspension = error.suspend
            given_up = self._given_up(failed, rejected=rejected)
            tell_answer(self._group, error, failed, given_up, broadcasting=self.broadcasting)
        else:
            given_up = self._given_up(failed, rejected=False)
            fate = LEFT_OUT if self.broadcasting else EXHAUSTED
            self._tell_failure(error, failed, fate if given_up else "its queue rests")
        self.counters_of(process_queue.queue.topic).failed += len(failed)
        kept = await self._sort_out(process_queue, messages, failed, rejected=rejected)
        if worker.abandoned:
            return  # the queue is another member's now; what is not done holds the offset back
        process_queue.put_back(kept)
        self._leave(
            worker,
            self._rest(suspension) if kept else 0.0,
        )

    def _given_up(
        self, failed: Sequence[ReceivedMessage], *, rejected: bool
    ) -> list[ReceivedMessage]:
        """Those that failed and are not delivered again: up to the first that is."""
        most = self._most_retries()
        return list(
            takewhile(
                lambda message: rejected or failure(message.reconsume_times, most) is State.DLQ,
                failed,
            )
        )

    async def _sort_out(
        self,
        process_queue: ProcessQueue,
        messages: Sequence[ReceivedMessage],
        failed: Sequence[ReceivedMessage],
        *,
        rejected: bool,
    ) -> list[ReceivedMessage]:
        """Finish what is done or given up; returns what has to come again, in order.

        That is the first message that failed, and all after it that are not finished.
        """
        kept: list[ReceivedMessage] = []
        concerned = {id(message) for message in failed}
        for message in messages:
            if id(message) not in concerned:
                if kept:
                    # The listener has seen it, but not after the one that comes again.
                    kept.append(message)
                else:
                    self._done(process_queue, message)
                    self.counters_of(process_queue.queue.topic).consumed += 1
                continue
            given_up = (
                rejected or failure(message.reconsume_times, self._most_retries()) is State.DLQ
            )
            if given_up and not kept and await self._give_back(message, DEAD_LETTER):
                # Not open until a commit: a rollback must not make two dead letters.
                process_queue.finish(message)
                continue
            message.reconsume_times += 1
            kept.append(message)
        return kept

    # -- the sweeper

    async def _sweep_forever(self) -> None:
        """Put suspended queues back into the line when they are due."""
        while True:
            self._sweep = trio.Event()
            now = trio.current_time()
            while self._suspended and self._suspended[0][0] <= now:
                _due, _order, process_queue = heapq.heappop(self._suspended)
                self._line.append(process_queue)
                self._wake_one()
            with trio.move_on_at(self._suspended[0][0] if self._suspended else NOT_RUNNING):
                await self._sweep.wait()
