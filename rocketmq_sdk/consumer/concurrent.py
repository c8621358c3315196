"""Handing messages to the listener: a fixed number of workers for the whole consumer, and one sweeper.

What `ConsumeMessageConcurrentlyService` of Apache RocketMQ 5.4.0 does with a thread pool. A message costs no task, no memory channel and no cancel
scope here: queues that have work stand in one line, a free worker takes the first queue, one message (or one batch) of it, puts the queue back at the
end of the line and awaits the listener directly. A worker that starts while there is more to do wakes one other worker, so that a listener that never
waits keeps one worker busy and a slow listener soon has all of them. The cancel scope around a worker's loop is opened anew only after it was used.
"""

import heapq
import inspect
import logging
import math
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from itertools import count
from typing import TYPE_CHECKING, Any, Final, cast

import trio

from rocketmq_sdk.consumer.outcome import BROKER_CHOOSES, ListenerAnswer
from rocketmq_sdk.consumer.retry import RECONSUME_DELAY, TIMEOUT_DELAY_LEVEL
from rocketmq_sdk.errors import ConfigurationError

if TYPE_CHECKING:
    from rocketmq_sdk.consumer.process_queue import ProcessQueue
    from rocketmq_sdk.model.message import ReceivedMessage

logger = logging.getLogger("rocketmq_sdk.consumer")

AsyncListener = Callable[[Any], Awaitable[object]]
Listener = Callable[[Any], object]
"""Takes one message, or with `batch` above 1 a list; a coroutine function, or a plain function, which then runs in a worker thread."""
GiveBack = Callable[["ReceivedMessage", int], Awaitable[bool]]

_STREAK: Final = 32
"""Messages after which a worker lets other tasks run when its listener never waits."""
_SLICE: Final = 0.005
"""Seconds after which it does so, when its listener is slow without waiting."""
_NOT_RUNNING: Final = math.inf


class _Worker:
    """One task's state: what it works on and since when."""

    __slots__ = ("abandoned", "messages", "process_queue", "scope", "started", "timed_out")

    def __init__(self) -> None:
        self.scope = trio.CancelScope()
        self.process_queue: ProcessQueue | None = None
        self.messages: Sequence[ReceivedMessage] = ()
        self.started = _NOT_RUNNING
        self.abandoned = False
        self.timed_out = False


def _is_async(listener: Listener) -> bool:
    # An object may have an `async def __call__`; `callable` would not tell.
    return inspect.iscoroutinefunction(listener) or inspect.iscoroutinefunction(getattr(listener, "__call__", None))  # noqa: B004 - see above


def _in_thread(listener: Listener) -> AsyncListener:
    # At most one thread for each worker, and those whose results nobody waits for any more.
    limiter = trio.CapacityLimiter(math.inf)

    async def call(argument: object) -> object:
        result = await trio.to_thread.run_sync(listener, argument, abandon_on_cancel=True, limiter=limiter)
        if inspect.iscoroutine(result):
            result.close()
            raise ConfigurationError(f"the listener {listener!r} is a plain function that returns a coroutine; make it async")
        return result

    return call


class ConcurrentService:
    """Runs the listener for the messages of all process queues of one consumer."""

    def __init__(self, listener: Listener, *, group: str, batch: int, concurrency: int, consume_timeout: float, give_back: GiveBack) -> None:
        if not callable(listener):
            raise ConfigurationError(f"the listener is {listener!r}, which can not be called")
        self._listener = cast("AsyncListener", listener) if _is_async(listener) else _in_thread(listener)
        self._group = group
        self._batch = batch
        self._consume_timeout = consume_timeout
        self._give_back = give_back
        self._workers = [_Worker() for _ in range(concurrency)]
        self._line: deque[ProcessQueue] = deque()
        self._idle = trio.lowlevel.ParkingLot()
        self._waking = False
        self._deferred: list[tuple[float, int, ProcessQueue, ReceivedMessage]] = []
        self._order = count()
        self._sweep = trio.Event()
        self.consumed = 0
        self.failed = 0
        self.timed_out = 0

    # -- the owner's side

    def start(self, nursery: trio.Nursery) -> None:
        """Start the workers and the sweeper; they run until the nursery is cancelled."""
        for worker in self._workers:
            nursery.start_soon(self._work, worker, name=f"listener of group {self._group}")
        nursery.start_soon(self._sweep_forever)

    def add(self, process_queue: "ProcessQueue") -> None:
        """Tell that a process queue has messages for the listener."""
        if not process_queue.scheduled and process_queue.has_work:
            process_queue.scheduled = True
            self._line.append(process_queue)
            self._wake_one()

    def withdraw(self, process_queue: "ProcessQueue") -> None:
        """Take a process queue out: what the listener has not got is forgotten, what it has goes on."""
        if process_queue.scheduled:
            self._line.remove(process_queue)
            process_queue.scheduled = False
        process_queue.withdraw()
        if process_queue.deferred:
            self._deferred = [entry for entry in self._deferred if entry[2] is not process_queue]
            heapq.heapify(self._deferred)

    def interrupt(self, process_queue: "ProcessQueue") -> None:
        """Cancel the listeners that work on messages of a process queue; the messages are neither done nor sent back."""
        for worker in self._workers:
            if worker.process_queue is process_queue:
                worker.abandoned = True
                worker.started = _NOT_RUNNING
                worker.scope.cancel()

    @property
    def waiting_for_retry(self) -> int:
        """How many messages wait to be consumed again because no broker took them back."""
        return len(self._deferred)

    # -- workers

    def _wake_one(self) -> None:
        if not self._waking and self._idle:
            self._waking = True
            self._idle.unpark()

    async def _wait_work(self) -> None:
        if self._line:
            await trio.lowlevel.checkpoint()
        while not self._line:
            await self._idle.park()
            self._waking = False

    async def _work(self, worker: _Worker) -> None:
        while True:
            try:
                with trio.CancelScope() as worker.scope:
                    await self._consume(worker)
            except Exception:
                # A listener that was cancelled may fail on its way out.
                if not worker.abandoned:
                    raise
                logger.debug("group %s: a cancelled listener failed", self._group, exc_info=True)
            await self._conclude(worker)

    async def _consume(self, worker: _Worker) -> None:
        line, listener, most, now = self._line, self._listener, self._batch, trio.lowlevel.current_clock().current_time
        streak, slice_end = 0, now() + _SLICE
        messages: Sequence[ReceivedMessage]
        argument: ReceivedMessage | list[ReceivedMessage]
        while True:
            if streak >= _STREAK or not line:
                await self._wait_work()
                streak, slice_end = 0, now() + _SLICE
                continue
            process_queue = line.popleft()
            if most == 1:
                argument = process_queue.take()
                messages = (argument,)
            else:
                messages = process_queue.take_batch(most)
                argument = list(messages)  # the listener's own; what it does to it does not matter here
            streak += len(messages)
            if process_queue.pending or process_queue.again:
                line.append(process_queue)
            else:
                process_queue.scheduled = False
            if line and not self._waking:
                self._wake_one()
            worker.process_queue = process_queue
            worker.messages = messages
            worker.started = started = now()
            if started > slice_end:
                streak = _STREAK
            try:
                await listener(argument)
            except Exception as error:  # noqa: BLE001 - whatever a listener raises means "later"
                await self._after_failure(worker, error)
            except BaseExceptionGroup as group:
                await self._after_mixed_failure(worker, group)
            else:
                if worker.abandoned:
                    await trio.lowlevel.checkpoint()
                for message in messages:
                    process_queue.finish(message)
                    self.consumed += 1
            worker.started = _NOT_RUNNING
            worker.process_queue = None

    # -- failures

    async def _after_mixed_failure(self, worker: _Worker, group: BaseExceptionGroup[BaseException]) -> None:
        # A cancelled listener whose own tasks failed as well: the cancellation counts, the failures are told.
        cancelled, failures = group.split(trio.Cancelled)
        if cancelled is None or not isinstance(failures, ExceptionGroup):
            raise group
        logger.warning("group %s: a listener failed while it was cancelled", self._group, exc_info=failures)
        await trio.lowlevel.checkpoint()
        await self._after_failure(worker, failures)

    async def _after_failure(self, worker: _Worker, error: Exception) -> None:
        """The listener has raised: send back what it has not done."""
        worker.started = _NOT_RUNNING
        if worker.abandoned:
            await trio.lowlevel.checkpoint()
        process_queue, messages = worker.process_queue, worker.messages
        assert process_queue is not None
        delay_level = BROKER_CHOOSES
        failed: Sequence[ReceivedMessage] = messages
        if isinstance(error, ListenerAnswer):
            delay_level = error.delay_level
            if error.messages is not None:
                meant = {id(message) for message in error.messages}
                failed = [message for message in messages if id(message) in meant]
            logger.debug("group %s: the listener answered %r to %s", self._group, error, _describe(failed))
        else:
            logger.warning("group %s: the listener failed; to be consumed again later: %s", self._group, _describe(failed), exc_info=error)
        if len(failed) != len(messages):
            kept = {id(message) for message in failed}
            for message in messages:
                if id(message) not in kept:
                    process_queue.finish(message)
                    self.consumed += 1
        worker.messages = ()
        await self._return(process_queue, failed, delay_level)

    async def _return(self, process_queue: "ProcessQueue", messages: "Sequence[ReceivedMessage]", delay_level: int) -> None:
        for message in messages:
            self.failed += 1
            if await self._give_back(message, delay_level):
                process_queue.finish(message)
            else:
                process_queue.defer()
                if process_queue.withdrawn:
                    continue  # it holds the offset back, so the next owner gets it
                message.reconsume_times += 1
                heapq.heappush(self._deferred, (trio.current_time() + RECONSUME_DELAY, next(self._order), process_queue, message))
                self._sweep.set()

    async def _conclude(self, worker: _Worker) -> None:
        """Clean up behind a worker whose scope was cancelled by the sweeper or by `interrupt`."""
        process_queue, messages, timed_out = worker.process_queue, worker.messages, worker.timed_out
        worker.abandoned = worker.timed_out = False
        worker.process_queue, worker.messages, worker.started = None, (), _NOT_RUNNING
        if timed_out and process_queue is not None:
            self.timed_out += len(messages)
            logger.warning(
                "group %s: the listener took more than %g s; to be consumed again later: %s", self._group, self._consume_timeout, _describe(messages)
            )
            await self._return(process_queue, messages, TIMEOUT_DELAY_LEVEL)

    # -- the sweeper

    async def _sweep_forever(self) -> None:
        """Cancel listeners that take too long and bring deferred messages back, each when it is due."""
        while True:
            self._sweep = trio.Event()
            now = trio.current_time()
            due = now + self._consume_timeout
            for worker in self._workers:
                deadline = worker.started + self._consume_timeout
                if deadline <= now:
                    worker.started = _NOT_RUNNING
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
            with trio.move_on_at(due):
                await self._sweep.wait()


def _describe(messages: "Sequence[ReceivedMessage]") -> str:
    first = messages[0] if messages else None
    if first is None:
        return "no message"
    more = f" and {len(messages) - 1} more" if len(messages) > 1 else ""
    return f"message {first.message_id} of {first.topic} (attempt {first.reconsume_times + 1}){more}"
