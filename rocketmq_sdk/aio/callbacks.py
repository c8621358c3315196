"""The user's async functions, which trio tasks call and the user's loop runs.

A call costs no task and no turn of the loop unless it waits. Its first step, up to its
first real wait, is made at once, inside the calling trio task, as the current task of
asyncio being a *carrier*: a task of the loop that is kept for this (what
`asyncio._enter_task` is for, see "Extending" in the documentation of asyncio). If the
function waits, its carrier carries it on.

A listener that does not wait is handed several messages, one after the other, as one
change to the loop (`CallsInLoop`). At the first one that waits, the messages behind are
given back, so that other workers take them meanwhile.
"""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import logging
import sys
import types
from asyncio.tasks import _enter_task, _leave_task
from typing import TYPE_CHECKING, Any, Final

import outcome
import sniffio
import trio

from rocketmq_sdk.aio.guest import generator_hooks_of_loop
from rocketmq_sdk.consumer.listener import Failed, is_async
from rocketmq_sdk.errors import RocketMQError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Generator, Iterator, Sequence

    from rocketmq_sdk.consumer.listener import Results
    from rocketmq_sdk.consumer.lite_pull.member import AssignmentChange

    _Outside = tuple[sys._asyncgen_hooks, str | None]

TOGETHER: Final = 64
"""Messages that a listener gets at once, if it has not waited for anything lately."""
LONGEST: Final = 0.005
"""Seconds after which the loop has its turn, though the listener does not wait."""
logger = logging.getLogger("rocketmq_sdk.aio")
_library = sniffio.thread_local


_ENDED: Final = object()
"""What `_one_by_one` yields when a call has ended."""


@types.coroutine
def _one_by_one(
    function: Callable[[Any], Awaitable[object]], arguments: Iterator[Any], results: Results
) -> Generator[Any, Any, None]:
    """Calls of a function, each of which may run in a context of its own."""
    for argument in arguments:
        awaitable = function(argument)
        if type(awaitable) is not types.CoroutineType:
            awaitable = _itself(awaitable)
        results.append((yield from awaitable))  # type: ignore[misc]
        yield _ENDED


class _Job:
    """A call that waits for something, and the trio task that waits for the call."""

    __slots__ = ("context", "coroutine", "raise_cancel", "result", "task", "waits_for")

    def __init__(
        self,
        context: contextvars.Context,
        coroutine: Coroutine[Any, Any, object],
        waits_for: object,
    ) -> None:
        self.context = context
        self.coroutine = coroutine
        self.waits_for = waits_for
        self.task: trio.lowlevel.Task | None = None
        self.result: outcome.Outcome[object] | None = None
        self.raise_cancel: Callable[[], None] | None = None


class _Carrier:
    """A task of the loop that carries calls on, one at a time."""

    __slots__ = ("_hooks", "_owner", "begun", "job", "loop", "task", "waiter")

    def __init__(self, owner: LoopCalls, loop: asyncio.AbstractEventLoop) -> None:
        self._owner = owner
        self.loop = loop
        self.job: _Job | None = None
        self.begun = False
        self.waiter: asyncio.Future[None] = loop.create_future()
        self.task = loop.create_task(self._carry(), name="a call of rocketmq_sdk.aio")
        self._hooks = generator_hooks_of_loop()

    def take(self, job: _Job) -> None:
        """Carry a call on."""
        self.job = job
        self.begun = False
        if not self.waiter.done():
            self.waiter.set_result(None)

    def cancel(self) -> None:
        """Cancel the call; one that is not carried yet is cancelled when it is."""
        if self.begun:
            self.task.cancel()

    def enter(self) -> _Outside:
        """Be the loop's task in trio's turn, for a step of a call.

        Async generators that begin there are asyncio's.
        """
        outside = sys.get_asyncgen_hooks(), _library.name
        sys.set_asyncgen_hooks(*self._hooks)
        _library.name = None
        _enter_task(self.loop, self.task)
        return outside

    def leave(self, outside: _Outside) -> None:
        """Be trio's task again."""
        _leave_task(self.loop, self.task)
        hooks, _library.name = outside
        sys.set_asyncgen_hooks(*hooks)

    async def _carry(self) -> None:
        while not self._owner.closed:
            try:
                await self.waiter
            except asyncio.CancelledError:
                if self.job is None:
                    raise
                self.task.cancel()  # it hits the call
            self.waiter = self.loop.create_future()
            job = self.job
            if job is None:
                continue
            self.begun = True
            if job.raise_cancel is not None:
                self.task.cancel()
            try:
                result: outcome.Outcome[object] = outcome.Value(await _Rest(job))
            except asyncio.CancelledError as error:
                if job.raise_cancel is not None:
                    result = outcome.capture(job.raise_cancel)
                elif self.task.cancelling():
                    # The loop ends its tasks. The call has no outcome: whoever made it
                    # is cancelled as well.
                    raise
                else:
                    result = outcome.Error(_cancelled(error))
            except (Exception, BaseExceptionGroup) as error:  # noqa: BLE001
                # Whoever called gets it.
                result = outcome.Error(error)
            if job.raise_cancel is not None:
                self.task.uncancel()
            self.job = None
            self._owner.idle.append(self)
            job.result = result
            if job.task is not None:
                trio.lowlevel.reschedule(job.task, result)


class _Rest:
    """What is left of a coroutine that waits for something already."""

    __slots__ = ("_job",)

    def __init__(self, job: _Job) -> None:
        self._job = job

    def __await__(self) -> Generator[Any, Any, object]:
        coroutine, waits_for = self._job.coroutine, self._job.waits_for
        run = self._job.context.run
        step: Callable[[Any], object]
        argument: Any
        while True:
            try:
                sent = yield waits_for
            except BaseException as error:  # noqa: BLE001 - it goes where it would have gone
                step, argument = coroutine.throw, error
            else:
                step, argument = coroutine.send, sent
            try:
                waits_for = run(step, argument)
            except StopIteration as end:
                return end.value
            if waits_for is _ENDED:
                return None


class LoopCalls:
    """Makes the calls of one object in the loop in which they come."""

    def __init__(self) -> None:
        self.idle: list[_Carrier] = []
        self.closed = False
        self.most_together = 1
        """How many messages a listener may be handed at once: many while it does not
        wait for anything.
        """
        self._carriers: set[asyncio.Task[None]] = set()

    async def call(self, function: Callable[[Any], Awaitable[object]], argument: object) -> Any:
        """Await `function(argument)` in the loop. For trio tasks.

        A cancellation cancels the function, and this ends when the function does.
        """
        carrier = self.carrier()
        context = contextvars.copy_context()  # its own, as a task would have one
        outside = carrier.enter()
        try:
            coroutine, waits_for = context.run(_first_step, function, argument)
        except StopIteration as end:
            self.idle.append(carrier)
            self.most_together = min(TOGETHER, 2 * self.most_together)
            return end.value
        except asyncio.CancelledError as error:
            self.idle.append(carrier)
            raise _cancelled(error) from error
        except BaseException:
            self.idle.append(carrier)
            raise
        finally:
            carrier.leave(outside)
        job = _Job(context, coroutine, waits_for)
        self.carry(carrier, job)
        return await self.carried(carrier, job)

    def carry(self, carrier: _Carrier, job: _Job) -> None:
        """Have a call that waits carried on."""
        self.most_together = 1
        carrier.take(job)

    async def carried(self, carrier: _Carrier, job: _Job) -> Any:
        """Wait for a call that is carried on."""
        if job.result is not None:
            await trio.lowlevel.checkpoint()
            return job.result.unwrap()
        job.task = trio.lowlevel.current_task()

        def abort(raise_cancel: Callable[[], None]) -> trio.lowlevel.Abort:
            if carrier.task.done():  # it was ended with its loop
                return trio.lowlevel.Abort.SUCCEEDED
            job.raise_cancel = raise_cancel
            carrier.cancel()
            return trio.lowlevel.Abort.FAILED

        return await trio.lowlevel.wait_task_rescheduled(abort)

    def carrier(self) -> _Carrier:
        """A task that carries nothing; it goes back to `idle`."""
        while self.idle:
            carrier = self.idle.pop()
            if not (carrier.task.done() or carrier.task.cancelling()):
                return carrier
        carrier = _Carrier(self, asyncio.get_running_loop())
        self._carriers.add(carrier.task)
        carrier.task.add_done_callback(self._carriers.discard)
        return carrier

    async def close(self) -> None:
        """End the tasks. Nobody may call any more."""
        self.closed = True
        for carrier in self.idle:
            if not carrier.waiter.done():
                carrier.waiter.set_result(None)
        if self._carriers:
            await asyncio.wait(self._carriers)


class CallsInLoop:
    """Calls of a listener, one for each of several messages."""

    __slots__ = (
        "_arguments",
        "_calls",
        "_carrier",
        "_function",
        "_give_back",
        "_job",
        "_number",
        "_results",
    )

    def __init__(
        self,
        calls: LoopCalls,
        function: Callable[[Any], Awaitable[object]],
        messages: Sequence[object],
        results: Results,
        give_back: Callable[[int], None],
    ) -> None:
        self._calls = calls
        self._function = function
        self._arguments = iter(messages)
        self._number = len(messages)
        self._results = results
        self._give_back = give_back
        self._carrier: _Carrier | None = None
        self._job: _Job | None = None

    async def wait(self) -> None:
        """Make the calls, up to the first one that waits for something, then that one.

        A cancellation cancels that one, and this ends when it does.
        """
        carrier, job = self._carrier, self._job
        if carrier is None or job is None:
            carrier, job = self._begin()
            if job is None or self._results:
                return
        try:
            await self._calls.carried(carrier, job)
        except (Exception, BaseExceptionGroup) as error:  # noqa: BLE001 - told by who waits
            self._results.append(Failed(error))

    def _begin(self) -> tuple[_Carrier, _Job | None]:
        """Make the calls, and have the first one that waits carried on."""
        calls, results = self._calls, self._results
        carrier = self._carrier = calls.carrier()
        try:
            job = self._job = self._make(carrier)
        except BaseException as error:  # noqa: BLE001 - it ends all, by who waits
            results.append(Failed(error))
            job = None
        if job is not None:
            calls.carry(carrier, job)
            self._give_rest_back(1)
            return carrier, job
        calls.idle.append(carrier)
        if len(results) >= self._number:
            calls.most_together = TOGETHER
        self._give_rest_back(0)
        return carrier, None

    def _give_rest_back(self, running: int) -> None:
        made = len(self._results) + running
        if made < self._number:
            self._number = made
            self._give_back(made)

    def _make(self, carrier: _Carrier) -> _Job | None:
        """Make calls until one waits, or all have ended, or it takes long."""
        results, number, copy = self._results, self._number, contextvars.copy_context().copy
        now = trio.lowlevel.current_clock().current_time
        end = now() + LONGEST
        steps = _one_by_one(self._function, self._arguments, results)
        outside = carrier.enter()
        try:
            while len(results) < number and now() < end:
                context = copy()  # its own, as a task would have one
                try:
                    waits_for = context.run(steps.send, None)
                except asyncio.CancelledError as error:
                    results.append(Failed(_cancelled(error)))
                except (Exception, BaseExceptionGroup) as error:  # noqa: BLE001
                    results.append(Failed(error))  # told by who waits
                else:
                    if waits_for is _ENDED:
                        continue
                    return _Job(context, steps, waits_for)
                steps = _one_by_one(self._function, self._arguments, results)
        finally:
            carrier.leave(outside)
        return None

    def abandon(self) -> None:
        """Cancel one that is under way. None is when `wait` was left."""
        carrier, job = self._carrier, self._job
        if carrier is not None and job is not None and job.result is None and job.task is None:
            job.raise_cancel = _abandoned
            carrier.cancel()


def _first_step(
    function: Callable[[Any], Awaitable[object]], argument: object
) -> tuple[Coroutine[Any, Any, object], object]:
    """Call a function and run it to its first wait.

    Raises `StopIteration` with its result when it has none, and its error.
    """
    awaitable = function(argument)
    coroutine = awaitable if inspect.iscoroutine(awaitable) else _itself(awaitable)
    return coroutine, coroutine.send(None)


def _abandoned() -> None:
    raise RocketMQError("nobody waits for it any more")


def _cancelled(error: asyncio.CancelledError) -> RocketMQError:
    failure = RocketMQError("it awaited something that was cancelled")
    failure.__cause__ = error
    return failure


class InLoop:
    """An async function of the user's, as one that trio awaits."""

    def __init__(self, calls: LoopCalls, function: Callable[[Any], Awaitable[object]]) -> None:
        self._calls = calls
        self._function = function

    async def __call__(self, argument: object) -> Any:
        return await self._calls.call(self._function, argument)

    @property
    def most_together(self) -> int:
        """How many messages to hand over at once at present."""
        return self._calls.most_together

    def call_each(
        self, messages: Sequence[object], results: Results, give_back: Callable[[int], None]
    ) -> CallsInLoop:
        """Begin to call it with one message after the other."""
        return CallsInLoop(self._calls, self._function, messages, results, give_back)

    def __repr__(self) -> str:
        return repr(self._function)


def listener_in_loop(calls: LoopCalls, listener: Any) -> Any:
    """A listener as trio's consumers want it.

    An async one runs in the loop, a plain one in a thread.
    """
    if not callable(listener) or isinstance(listener, type):
        return listener  # refused by name
    if is_async(listener):
        return InLoop(calls, listener)

    def plain(argument: object) -> object:
        result = listener(argument)
        # A lambda around an async function: only a call shows it.
        return calls.call(_itself, result) if inspect.isawaitable(result) else result

    return plain


def change_listener_in_loop(
    calls: LoopCalls, listener: Callable[[AssignmentChange], object] | None
) -> Any:
    """A listener of assignment changes as trio's consumer wants it."""
    if not callable(listener) or isinstance(listener, type):
        return listener

    def called(change: AssignmentChange) -> object:
        result = listener(change)
        return calls.call(_itself, result) if inspect.isawaitable(result) else result

    return called


async def _itself(awaitable: Awaitable[object]) -> object:
    return await awaitable
