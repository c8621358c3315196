"""The user's async functions, which trio tasks call and the user's loop runs.

A call costs no task. A few tasks of the loop, made when they are needed, take calls
from one line and await the user's function directly; one that begins while more wait
wakes another. So calls that trio hands over in one turn are made in one turn of the
loop, and a function that waits holds up nobody.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections import deque
from typing import TYPE_CHECKING, Any, Final

import outcome
import trio

from rocketmq_sdk.consumer.listener import is_async
from rocketmq_sdk.errors import RocketMQError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from rocketmq_sdk.consumer.lite_pull.member import AssignmentChange

logger = logging.getLogger("rocketmq_sdk.aio")
STREAK: Final = 32
"""Calls after which a task lets the loop make a turn, if the function never waits."""


class _Job:
    """One call, and the trio task that waits for it."""

    __slots__ = ("argument", "carrier", "function", "raise_cancel", "task")

    def __init__(self, function: Callable[[Any], Awaitable[object]], argument: object) -> None:
        self.function = function
        self.argument = argument
        self.task = trio.lowlevel.current_task()
        self.carrier: asyncio.Task[None] | None = None
        self.raise_cancel: Callable[[], None] | None = None


class LoopCalls:
    """Makes the calls of one object in the loop in which they come."""

    def __init__(self) -> None:
        self._line: deque[_Job] = deque()
        self._idle: list[asyncio.Future[None]] = []
        self._carriers: set[asyncio.Task[None]] = set()
        self._closed = False

    async def call(self, function: Callable[[Any], Awaitable[object]], argument: object) -> Any:
        """Await `function(argument)` in the loop. For trio tasks.

        A cancellation cancels the function, and this ends when the function does.
        """
        job = _Job(function, argument)
        self._line.append(job)
        self._wake_one()

        def abort(raise_cancel: Callable[[], None]) -> trio.lowlevel.Abort:
            if job.carrier is None:
                self._line.remove(job)
                return trio.lowlevel.Abort.SUCCEEDED
            if job.carrier.done():  # it was ended with its loop
                return trio.lowlevel.Abort.SUCCEEDED
            job.raise_cancel = raise_cancel
            job.carrier.cancel()
            return trio.lowlevel.Abort.FAILED

        return await trio.lowlevel.wait_task_rescheduled(abort)

    async def close(self) -> None:
        """End the tasks. Nobody may call any more."""
        self._closed = True
        for waiter in self._idle:
            if not waiter.done():
                waiter.set_result(None)
        if self._carriers:
            await asyncio.wait(self._carriers)

    def _wake_one(self) -> None:
        while self._idle:
            waiter = self._idle.pop()
            if not waiter.done():
                waiter.set_result(None)
                return
        task = asyncio.get_running_loop().create_task(
            self._carry(), name="calls of rocketmq_sdk.aio"
        )
        self._carriers.add(task)
        task.add_done_callback(self._carriers.discard)

    async def _carry(self) -> None:
        loop, line, streak = asyncio.get_running_loop(), self._line, 0
        carrier = asyncio.current_task()
        assert carrier is not None
        while not self._closed:
            if not line:
                waiter = loop.create_future()
                self._idle.append(waiter)
                await waiter
                streak = 0
                continue
            if streak >= STREAK:
                await asyncio.sleep(0)
                streak = 0
                continue
            job = line.popleft()
            if line:
                self._wake_one()
            streak += 1
            job.carrier = carrier
            try:
                result: outcome.Outcome[object] = outcome.Value(await job.function(job.argument))
            except asyncio.CancelledError as error:
                if job.raise_cancel is not None:
                    result = outcome.capture(job.raise_cancel)
                elif carrier.cancelling():
                    # The loop ends its tasks. The call has no outcome: whoever made it
                    # is cancelled as well.
                    raise
                else:
                    result = outcome.Error(_cancelled(error))
            except (Exception, BaseExceptionGroup) as error:  # noqa: BLE001 - whoever called gets it
                result = outcome.Error(error)
            if job.raise_cancel is not None:
                carrier.uncancel()
            trio.lowlevel.reschedule(job.task, result)


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

    def __repr__(self) -> str:
        return repr(self._function)


def listener_in_loop(calls: LoopCalls, listener: Any) -> Any:
    """A listener as trio's consumers want it.

    An async one runs in the loop, a plain one in a thread.
    """
    if not callable(listener):
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
    if not callable(listener):
        return listener

    def called(change: AssignmentChange) -> object:
        result = listener(change)
        return calls.call(_itself, result) if inspect.isawaitable(result) else result

    return called


async def _itself(awaitable: Awaitable[object]) -> object:
    return await awaitable
