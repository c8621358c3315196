"""Handing messages to the listener in any order.

A fixed number of workers for the whole consumer, and one sweeper: what
`ConsumeMessageConcurrentlyService` of Apache RocketMQ 5.4.0 does with a thread pool. A
worker takes one message (or one batch) of the first queue in the line and puts the
queue back at the end, so several workers may work on one queue.
"""

from __future__ import annotations

import heapq
import logging
from itertools import count
from typing import TYPE_CHECKING

import trio

from rocketmq_sdk.consumer.outcome import BROKER_CHOOSES, DEAD_LETTER, ListenerAnswer
from rocketmq_sdk.consumer.push.listener_service import (
    NOT_RUNNING,
    GiveBack,
    ListenerService,
    Worker,
)
from rocketmq_sdk.consumer.push.log_lines import (
    EXHAUSTED,
    LEFT_OUT,
    describe,
    tell_answer,
    topic_of,
)
from rocketmq_sdk.consumer.retry_states import Event, State, failure
from rocketmq_sdk.consumer.send_back import RECONSUME_DELAY, TIMEOUT_DELAY_LEVEL
from rocketmq_sdk.log_fields import about

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rocketmq_sdk.consumer.listener import Listener
    from rocketmq_sdk.consumer.pull.process_queue import ProcessQueue
    from rocketmq_sdk.model.received import ReceivedMessage

logger = logging.getLogger("rocketmq_sdk.consumer")


class ConcurrentService(ListenerService):
    """Runs the listener for the messages of all process queues of one consumer.

    `most_retries` returns how often a message may be delivered again now, since the
    group's number may change while the consumer runs. The broker decides what becomes
    of a failed message by the number that it has stored.
    """

    def __init__(
        self,
        listener: Listener,
        *,
        group: str,
        batch: int,
        concurrency: int,
        consume_timeout: float,
        give_back: GiveBack,
        most_retries: Callable[[], int],
    ) -> None:
        super().__init__(listener, group=group, batch=batch, concurrency=concurrency)
        self._consume_timeout = consume_timeout
        self._give_back = give_back
        self._most_retries = most_retries
        self._deferred: list[tuple[float, int, ProcessQueue, ReceivedMessage]] = []
        self._looks: list[float] = []
        self._order = count()

    in_order = False

    def withdraw(self, process_queue: ProcessQueue) -> None:
        """Take a process queue out.

        What the listener has not got is dropped, what it has goes on.
        """
        if process_queue.scheduled:
            self._line.remove(process_queue)
            process_queue.scheduled = False
        process_queue.withdraw()
        if process_queue.deferred:
            self._deferred = [entry for entry in self._deferred if entry[2] is not process_queue]
            heapq.heapify(self._deferred)

    @property
    def waiting_for_retry(self) -> int:
        """How many messages that no broker took back wait to be consumed again."""
        return len(self._deferred)

    def look_at(self, moment: float) -> None:
        """Have the sweeper check the listeners at a moment of trio's clock."""
        heapq.heappush(self._looks, moment)
        if self._looks[0] == moment:
            self._sweep.set()

    # -- failures

    async def _after_failure(self, worker: Worker, error: Exception) -> None:
        """The listener has raised: send back what it has not done."""
        worker.started = NOT_RUNNING
        if worker.abandoned:
            await trio.lowlevel.checkpoint()
        process_queue, messages = worker.process_queue, worker.messages
        assert process_queue is not None
        delay_level = BROKER_CHOOSES
        failed: Sequence[ReceivedMessage] = messages
        if isinstance(error, ListenerAnswer):
            delay_level = error.delay_level
            failed = self._meant(error, messages)
            given_up = self._given_up(failed, rejected=delay_level == DEAD_LETTER)
            tell_answer(self._group, error, failed, given_up, broadcasting=self.broadcasting)
        else:
            self._tell_failure(error, failed, self._fate(failed))
        if len(failed) != len(messages):
            kept = {id(message) for message in failed}
            for message in messages:
                if id(message) not in kept:
                    process_queue.finish(message)
            self.counters_of(process_queue.queue.topic).consumed += len(messages) - len(failed)
        worker.messages = ()
        await self._return(process_queue, failed, delay_level)
        self._leave(worker)

    def _given_up(
        self, messages: Sequence[ReceivedMessage], *, rejected: bool
    ) -> Sequence[ReceivedMessage]:
        """Those of the messages that failed which are not delivered again."""
        if rejected or self.broadcasting:
            return messages
        most = self._most_retries()
        return [
            message for message in messages if failure(message.reconsume_times, most) is State.DLQ
        ]

    def _fate(self, messages: Sequence[ReceivedMessage], event: Event = Event.FAILED) -> str:
        if self.broadcasting:
            return LEFT_OUT
        if (
            messages
            and failure(messages[0].reconsume_times, self._most_retries(), event) is State.DLQ
        ):
            return EXHAUSTED
        return "to be consumed again later"

    async def _return(
        self, process_queue: ProcessQueue, messages: Sequence[ReceivedMessage], delay_level: int
    ) -> None:
        self.counters_of(process_queue.queue.topic).failed += len(messages)
        for message in messages:
            if await self._give_back(message, delay_level):
                process_queue.finish(message)
            else:
                process_queue.defer()
                if process_queue.withdrawn:
                    continue  # it holds the offset back, so the next owner gets it
                message.reconsume_times += 1
                heapq.heappush(
                    self._deferred,
                    (
                        trio.current_time() + RECONSUME_DELAY,
                        next(self._order),
                        process_queue,
                        message,
                    ),
                )
                self._sweep.set()

    async def _conclude(self, worker: Worker) -> None:
        """Clean up after the sweeper or `interrupt` has cancelled a worker's scope."""
        process_queue, messages, timed_out = worker.process_queue, worker.messages, worker.timed_out
        worker.abandoned = worker.timed_out = False
        self._leave(worker)
        if timed_out and process_queue is not None:
            self.timed_out += len(messages)
            fate = self._fate(messages, Event.TIMED_OUT)
            logger.warning(
                "group %s: the listener took more than %g s; %s: %s",
                self._group,
                self._consume_timeout,
                fate,
                describe(messages),
                extra=about(group=self._group, topic=topic_of(messages)),
            )
            await self._return(process_queue, messages, TIMEOUT_DELAY_LEVEL)

    # -- the sweeper

    async def _sweep_forever(self) -> None:
        """Cancel listeners that time out, and bring back deferred messages when due."""
        while True:
            self._sweep = trio.Event()
            now = trio.current_time()
            due = now + self._consume_timeout
            for worker in self._workers:
                deadline = worker.started + self._consume_timeout
                if worker.process_queue is not None and worker.started is not NOT_RUNNING:
                    deadline = min(deadline, worker.process_queue.deadline_of(worker.messages))
                if deadline <= now:
                    worker.started = NOT_RUNNING
                    worker.abandoned = worker.timed_out = True
                    worker.scope.cancel()
                elif deadline < due:
                    due = deadline
            while self._deferred and self._deferred[0][0] <= now:
                _due, _order, process_queue, message = heapq.heappop(self._deferred)
                process_queue.resume(message)
                self.add(process_queue)
            if self._deferred:
                due = min(due, self._deferred[0][0])
            while self._looks and self._looks[0] <= now:
                heapq.heappop(self._looks)
            if self._looks:
                due = min(due, self._looks[0])
            with trio.move_on_at(due):
                await self._sweep.wait()
