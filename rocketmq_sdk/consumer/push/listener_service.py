"""Workers that hand messages to a listener, and the line of queues that have work.

A message costs no task, no memory channel and no cancel scope. Queues that have work
stand in one line; a free worker takes the first queue and awaits the listener directly.
A worker that starts while there is more to do wakes one other worker, so that a
listener that never waits keeps one worker busy and a slow listener soon has all of
them. Workers are made when they are first needed: an idle consumer has none. The cancel
scope around a worker's loop is replaced only after it was used.
"""

from __future__ import annotations

import logging
import math
import os
import sysconfig
from abc import abstractmethod
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from contextvars import copy_context
from functools import cache, partial
from pathlib import Path
from traceback import walk_tb
from typing import TYPE_CHECKING, Any, ClassVar, Final, cast

import trio

from rocketmq_sdk.client.troubles import one_line
from rocketmq_sdk.clock import elapsed
from rocketmq_sdk.consumer.failures import tell_watchers
from rocketmq_sdk.consumer.listener import (
    AsyncListener,
    CallsEach,
    Failed,
    Listener,
    Results,
    check_clock_for_threads,
    in_thread,
    is_async,
)
from rocketmq_sdk.consumer.outcome import ConsumeOrderlyStatus
from rocketmq_sdk.consumer.push.log_lines import describe, topic_of
from rocketmq_sdk.consumer.statistics import Counters
from rocketmq_sdk.errors import ConfigurationError, RequestTimeoutError
from rocketmq_sdk.log_fields import about

if TYPE_CHECKING:
    from rocketmq_sdk.consumer.outcome import ListenerAnswer
    from rocketmq_sdk.consumer.pull.process_queue import ProcessQueue
    from rocketmq_sdk.model.received import ReceivedMessage

logger = logging.getLogger("rocketmq_sdk.consumer")

GiveBack = Callable[["ReceivedMessage", int], Awaitable[bool]]

STREAK: Final = 128
"""Messages after which a worker yields to other tasks if its listener never waits."""
SLICE: Final = 0.005
"""Seconds after which it does so if its listener is slow without waiting."""
NOT_RUNNING: Final = math.inf
DIRECT_TIMEOUT: Final = 9.0
"""Seconds for a message that an administrator has consumed directly.

The broker waits for 10.
"""


class Worker:
    """The state of one worker task: what it works on, and since when."""

    __slots__ = (
        "abandoned",
        "messages",
        "process_queue",
        "retired",
        "scope",
        "started",
        "timed_out",
    )

    def __init__(self) -> None:
        self.scope = trio.CancelScope()
        self.process_queue: ProcessQueue | None = None
        self.messages: Sequence[ReceivedMessage] = ()
        self.started = NOT_RUNNING
        self.abandoned = False
        self.timed_out = False
        self.retired = False
        """It ends as soon as it has no message."""


class ListenerService:
    """Runs the listener for the messages of the process queues of one consumer.

    The kinds differ in the order of messages and in what failures mean.
    """

    auto_commit = True
    """Whether a message is done when the listener returns."""
    in_order: ClassVar[bool]
    """Whether a queue is with one worker at a time.

    Otherwise it goes back to the line before the listener is called.
    """
    broadcasting = False
    """Whether messages that are given up are left out, as there are no dead letters."""

    def __init__(self, listener: Listener, *, group: str, batch: int, concurrency: int) -> None:
        if not callable(listener):
            raise ConfigurationError(f"the listener is {listener!r}, which cannot be called")
        self.in_threads = not is_async(listener)
        self._listener = in_thread(listener) if self.in_threads else cast("AsyncListener", listener)
        alone: object = listener if batch == 1 and not self.in_order else None
        self._each = alone if isinstance(alone, CallsEach) else None
        self._group = group
        self._batch = batch
        self.concurrency = concurrency
        """How many calls of the listener may run at the same time."""
        self._workers: list[Worker] = []
        self._active = 0
        """Workers that are not retired."""
        self._line: deque[ProcessQueue] = deque()
        self._idle = trio.lowlevel.ParkingLot()
        self._nursery: trio.Nursery | None = None
        self._context = copy_context()
        self._waking = False
        self._sweeping = False
        self._sweep = trio.Event()
        self.counters: dict[str, Counters] = {}
        self.timed_out = 0
        self.last_failure: str | None = None
        self._hinted = False

    # -- the owner's side

    def wrap_listener(self, wrap: Callable[[AsyncListener], AsyncListener]) -> None:
        """Wrap the listener; call it before the service is started."""
        self._listener = wrap(self._listener)
        self._each = None  # what wraps it sees each call

    def start(self, nursery: trio.Nursery) -> None:
        """Begin; workers and the sweeper run until `nursery` is cancelled.

        Raises `ConfigurationError` when the listener cannot work under trio's clock.
        """
        if self.in_threads:
            check_clock_for_threads(trio.lowlevel.current_clock())
        self._nursery, self._context = nursery, copy_context()
        if self._line:
            self._wake_one()

    def _start_worker(self, nursery: trio.Nursery) -> None:
        if not self._sweeping:
            self._sweeping = True
            nursery.start_soon(self._sweep_forever)
        worker = Worker()
        self._workers.append(worker)
        self._active += 1
        # It may be made by the reader of a connection, whose context is another one.
        self._context.run(
            partial(nursery.start_soon, self._work, worker, name=f"listener of group {self._group}")
        )

    def resize(self, concurrency: int) -> None:
        """Run so many calls of the listener at the same time from now on.

        Calls above the number run to their end.
        """
        self.concurrency = concurrency
        active = [worker for worker in self._workers if not worker.retired]
        active.sort(key=lambda worker: worker.process_queue is None)  # those without work go first
        for worker in active[concurrency:]:
            worker.retired = True
            self._active -= 1
        self._idle.unpark_all()
        if self._line:
            self._wake_one()

    def counters_of(self, topic: str) -> Counters:
        """The counters of a topic."""
        found = self.counters.get(topic)
        if found is None:
            found = self.counters[topic] = Counters()
        return found

    @property
    def consumed(self) -> int:
        """Messages that the listener has done since the start."""
        return sum(counters.consumed for counters in self.counters.values())

    @property
    def failed(self) -> int:
        """Deliveries that the listener has failed on since the start."""
        return sum(counters.failed for counters in self.counters.values())

    def add(self, process_queue: ProcessQueue) -> None:
        """Announce that a process queue has messages for the listener."""
        if process_queue.counters is None:
            process_queue.counters = self.counters_of(process_queue.queue.topic)
        if not process_queue.scheduled and process_queue.has_work:
            process_queue.scheduled = True
            self._line.append(process_queue)
            self._wake_one()

    @abstractmethod
    def withdraw(self, process_queue: ProcessQueue) -> None:
        """Take a process queue out.

        What the listener has not got is dropped, what it has goes on.
        """

    def interrupt(self, process_queue: ProcessQueue) -> None:
        """Cancel the listeners that work on messages of a process queue.

        The messages are neither done nor sent back.
        """
        for worker in self._workers:
            if worker.process_queue is process_queue:
                worker.abandoned = True
                worker.started = NOT_RUNNING
                worker.scope.cancel()

    @property
    @abstractmethod
    def waiting_for_retry(self) -> int:
        """How many messages wait here to be consumed again."""

    @property
    def running_since(self) -> float:
        """When the longest running call of the listener began.

        In seconds of trio's clock; infinite when none runs.
        """
        return min((worker.started for worker in self._workers), default=NOT_RUNNING)

    @property
    def is_saturated(self) -> bool:
        """Whether as many calls of the listener run as may run."""
        return self._active >= self.concurrency and all(
            worker.started is not NOT_RUNNING for worker in self._workers
        )

    async def consume_directly(self, message: ReceivedMessage) -> ConsumeOrderlyStatus | None:
        """Hand one message to the listener now, in addition to the workers.

        Returns its answer. Raises what the listener raises, and `RequestTimeoutError`.
        No offset moves and nothing is sent back.
        """
        with trio.move_on_after(DIRECT_TIMEOUT) as scope:
            answer = await self._listener(message if self._batch == 1 else [message])
            self._check_answer(answer)
            return answer if isinstance(answer, ConsumeOrderlyStatus) else None
        assert scope.cancelled_caught
        raise RequestTimeoutError(f"the listener took more than {DIRECT_TIMEOUT:g} s")

    # -- workers

    def _wake_one(self) -> None:
        """Have one more worker look at the line, if one is free or may be made."""
        if self._waking:
            return
        if self._idle:
            self._waking = True
            self._idle.unpark()
        elif self._active < self.concurrency and self._nursery is not None:
            self._waking = True
            self._start_worker(self._nursery)

    async def _wait_work(self, worker: Worker) -> bool:
        """Wait until there is work; returns False when the worker has to end."""
        if self._line:
            await trio.lowlevel.checkpoint()
        while not self._line and not worker.retired:
            await self._idle.park()
            self._waking = False
        if worker.retired and self._line:
            self._wake_one()  # the wake-up may have been for another one
        return not worker.retired

    async def _work(self, worker: Worker) -> None:
        self._waking = False
        while not worker.retired:
            try:
                with trio.CancelScope() as worker.scope:
                    await self._consume(worker)
            except Exception:
                # A cancelled listener may fail while it unwinds.
                if not worker.abandoned:
                    raise
                logger.debug(
                    "group %s: a cancelled listener failed",
                    self._group,
                    exc_info=True,
                    extra=about(group=self._group),
                )
            await self._conclude(worker)
        self._workers.remove(worker)
        if self._line:
            self._wake_one()  # it may have been made, or woken, for what stands there

    # Every message passes here: nothing is called that can be written out.
    async def _consume(self, worker: Worker) -> None:
        """Take messages and call the listener until cancelled, or retired."""
        line, listener, most, in_order = self._line, self._listener, self._batch, self.in_order
        each = self._each
        now = trio.lowlevel.current_clock().current_time
        streak, slice_end = 0, now() + SLICE
        while not worker.retired:
            if streak >= STREAK or not line:
                if not await self._wait_work(worker):
                    return
                streak, slice_end = 0, now() + SLICE
                continue
            process_queue = line.popleft()
            started = now()
            moment = elapsed() if in_order else started
            if process_queue.locked_until <= moment or not process_queue.has_work:
                process_queue.scheduled = False  # a lock or messages add it again
                continue
            if most > 1:
                messages: Sequence[ReceivedMessage] = process_queue.take_batch(most)
                argument: Any = list(messages)  # the listener may change its own list
            elif each is None or len(process_queue.pending) < 2:
                messages = (argument := process_queue.take(),)
            else:
                argument, *_ = messages = process_queue.take_batch(each.most_together)
            taken = len(messages)
            streak = STREAK if started > slice_end else streak + taken
            if not in_order:
                if process_queue.pending or process_queue.again:
                    line.append(process_queue)
                else:
                    process_queue.scheduled = False
            if line and not self._waking:
                self._wake_one()
            worker.process_queue = process_queue
            worker.messages, worker.started = messages, started
            if taken > most:
                await self._call_each(worker)
                continue
            try:
                answer = await listener(argument)
            except (Exception, BaseExceptionGroup) as error:  # noqa: BLE001 - all means "later"
                await self._after_any_failure(worker, error)
            else:
                if worker.abandoned:
                    await trio.lowlevel.checkpoint()
                if answer is not None or not self.auto_commit:
                    self._decide(worker, answer)
                    continue
                if taken == 1:
                    process_queue.finish(messages[0])
                else:
                    process_queue.finish_batch(messages)
                if (counters := process_queue.counters) is not None:
                    counters.consumed += taken
                    counters.consume_seconds += now() - started
                if in_order:
                    self._leave(worker)
                else:  # the part of `_leave` that matters, without a call per message
                    worker.started, worker.process_queue = NOT_RUNNING, None

    async def _call_each(self, worker: Worker) -> None:
        """Have the listener called with one message after the other.

        Each is done or fails by itself.
        """
        process_queue, started, results = worker.process_queue, worker.started, Results()
        assert process_queue is not None
        assert self._each is not None
        messages, looked = list(worker.messages), 0

        def give_back(place: int) -> None:
            process_queue.hand_back(messages[place:])
            del messages[place:]
            worker.messages = messages[looked:]
            self.add(process_queue)

        calls = self._each.call_each(worker.messages, results, give_back)
        failed: list[tuple[ReceivedMessage, object]] = []
        try:
            while looked < len(messages):
                await calls.wait()
                if worker.abandoned:
                    await trio.lowlevel.checkpoint()
                before, looked = looked, len(results)
                failed = self._finish_each(process_queue, messages[before:looked], results[before:])
                for message, result in failed:
                    worker.process_queue, worker.messages = process_queue, (message,)
                    if not isinstance(result, Failed):
                        self._check_answer(result)
                    elif isinstance(result.error, Exception | BaseExceptionGroup):
                        await self._after_any_failure(worker, result.error)
                    else:
                        raise result.error
                worker.process_queue, worker.started = process_queue, started
                worker.messages = messages[looked:]
        finally:  # also when cancelled: what is done is done
            calls.abandon()
            if looked < len(messages):
                before, looked = looked, len(results)
                failed = self._finish_each(process_queue, messages[before:looked], results[before:])
                worker.messages = [*messages[looked:], *[message for message, _result in failed]]
            counters = self.counters_of(process_queue.queue.topic)
            counters.consume_seconds += trio.current_time() - started
        self._leave(worker)

    def _finish_each(
        self, process_queue: ProcessQueue, ended: list[ReceivedMessage], results: Results
    ) -> list[tuple[ReceivedMessage, object]]:
        """Finish messages whose calls are done; gives the others, with what came."""
        failed = [
            (message, result)
            for message, result in zip(ended, results, strict=False)
            if result is not None
        ]
        if failed:
            kept = {id(message) for message, _result in failed}
            ended = [message for message in ended if id(message) not in kept]
        process_queue.finish_batch(ended)
        self.counters_of(process_queue.queue.topic).consumed += len(ended)
        return failed

    def _check_answer(self, answer: object) -> None:
        """Raise `ConfigurationError` for what a listener must not return."""
        if answer is not None and (
            self.auto_commit or not isinstance(answer, ConsumeOrderlyStatus)
        ):
            raise unexpected(answer, may_decide=not self.auto_commit)

    def _decide(self, worker: Worker, answer: object) -> None:  # noqa: ARG002 - see subclasses
        """The listener has returned something, or has to."""
        self._check_answer(answer)

    def _leave(self, worker: Worker) -> None:
        """A worker is done with its queue."""
        worker.started = NOT_RUNNING
        worker.process_queue = None
        worker.messages = ()

    @abstractmethod
    async def _conclude(self, worker: Worker) -> None:
        """Clean up after a worker's scope was cancelled."""

    @abstractmethod
    async def _sweep_forever(self) -> None:
        """Do what becomes due, until cancelled."""

    # -- failures

    async def _after_any_failure(
        self, worker: Worker, error: Exception | BaseExceptionGroup[BaseException]
    ) -> None:
        if isinstance(error, Exception):
            await self._after_failure(worker, error)
        else:
            await self._after_mixed_failure(worker, error)
        if worker.abandoned:
            # Its scope was cancelled meanwhile. Not delivered here, the cancellation
            # would hit the next message.
            await trio.lowlevel.checkpoint()

    async def _after_mixed_failure(
        self, worker: Worker, group: BaseExceptionGroup[BaseException]
    ) -> None:
        # A cancelled listener whose own tasks also failed: the cancellation counts, the
        # failures are logged.
        cancelled, failures = group.split(trio.Cancelled)
        if cancelled is None or not isinstance(failures, ExceptionGroup):
            raise group
        logger.warning(
            "group %s: a listener failed while it was cancelled",
            self._group,
            exc_info=failures,
            extra=about(group=self._group),
        )
        await trio.lowlevel.checkpoint()
        await self._after_failure(worker, failures)

    def _tell_failure(self, error: Exception, failed: Sequence[ReceivedMessage], fate: str) -> None:
        """Log in one line that the listener has raised.

        The traceback is in the record when the logger writes debug messages. (A message
        of poison fails again and again.)
        """
        self.last_failure = repr(error)
        self._hint_at_lists(error)
        what = f"group {self._group}: the listener failed with "
        what += f"{one_line(f'{error!r}{_place_of(error)}')}; {fate}: {describe(failed)}"
        tell_watchers(what, error)
        logger.warning(
            "%s",
            what,
            exc_info=error if logger.isEnabledFor(logging.DEBUG) else None,
            extra={**about(group=self._group, topic=topic_of(failed)), "error": error},
        )

    def _hint_at_lists(self, error: Exception) -> None:
        """Tell once that `batch` hands out lists, to a listener that did not know."""
        if (
            isinstance(error, AttributeError)
            and isinstance(error.obj, list)
            and self._batch > 1
            and not self._hinted
        ):
            self._hinted = True
            logger.warning(
                "group %s: with batch=%d the listener gets lists of messages",
                self._group,
                self._batch,
                extra=about(group=self._group),
            )

    @abstractmethod
    async def _after_failure(self, worker: Worker, error: Exception) -> None:
        """The listener has raised."""

    def _meant(
        self, answer: ListenerAnswer, messages: Sequence[ReceivedMessage]
    ) -> Sequence[ReceivedMessage]:
        """The messages that an answer refers to: those it names, otherwise all.

        An answer that names a message that was not in the call cannot be trusted, so it
        refers to all.
        """
        if answer.messages is None:
            return messages
        meant = {id(message) for message in answer.messages}
        if not meant <= {id(message) for message in messages}:
            logger.warning(
                "group %s: the listener's answer %r names messages that it was not given; all of "
                "this call are meant: %s",
                self._group,
                answer,
                describe(messages),
                extra=about(group=self._group, topic=topic_of(messages)),
            )
            return messages
        return [message for message in messages if id(message) in meant]


def _place_of(error: Exception) -> str:
    """Where an exception was raised, as text; empty when that is not known.

    Of an exception of a library, where the listener's own code called that.
    """
    frames = list(walk_tb(error.__traceback__))
    if not frames:
        return ""
    own = [one for one in frames if not one[0].f_code.co_filename.startswith(_libraries())]
    frame, line = (own or frames)[-1]
    return f" at {frame.f_code.co_filename}:{line} in {frame.f_code.co_name}"


@cache
def _libraries() -> tuple[str, ...]:
    """Where Python's own modules and installed packages are, and this one."""
    paths = sysconfig.get_paths()
    package = str(Path(__file__).parents[2])
    return (
        "<frozen ",
        *(paths[name] + os.sep for name in ("stdlib", "purelib", "platlib")),
        package + os.sep,
    )


def unexpected(answer: object, *, may_decide: bool = False) -> ConfigurationError:
    """The error for a listener that returns something.

    Whoever returns False, or another client's status, means a failure that would count
    as done. With `may_decide` it may return COMMIT and ROLLBACK.
    """
    if may_decide:
        return ConfigurationError(
            f"the listener returned {answer!r:.200}; without auto_commit it must return "
            "ConsumeOrderlyStatus.COMMIT, ConsumeOrderlyStatus.ROLLBACK, or None to decide later"
        )
    if isinstance(answer, ConsumeOrderlyStatus):
        return ConfigurationError(
            f"the listener returned {answer}, but this consumer commits by itself; make it with "
            "orderly=True, auto_commit=False"
        )
    return ConfigurationError(
        f"the listener returned {answer!r:.200}; it must return None. A message is done when the "
        "listener returns, and comes again when it raises: raise ConsumeLater() or RejectMessage() "
        "instead of returning a status"
    )
