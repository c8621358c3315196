"""The user's functions, which trio tasks call and threads run.

Calls stand in one line, and a thread that is done with one takes the next. So a
function that is quick is called many times by one thread, without a change of threads
for each call; their results go back together. As long as calls wait, another thread is
woken every millisecond, so that a slow function soon has a thread for each call.
"""

from __future__ import annotations

import inspect
import math
import threading
from collections import deque
from contextvars import copy_context
from typing import TYPE_CHECKING, Any, Final

import outcome
import trio

from rocketmq_sdk.consumer.listener import is_async
from rocketmq_sdk.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable

    from rocketmq_sdk.consumer.lite_pull.member import AssignmentChange

HELP: Final = 0.001
"""Seconds after which calls that still wait get another thread."""
SLOW: Final = 0.1
"""Seconds for which a function is taken for slow after that, so that none waits."""


class _Job:
    """A call, and the trio task that waits for it."""

    __slots__ = ("abandoned", "argument", "context", "function", "result", "task")

    def __init__(self, function: Callable[[Any], object], argument: object) -> None:
        self.function = function
        self.argument = argument
        self.context = copy_context()
        """What the function sees: spans of tracing, for example."""
        self.task = trio.lowlevel.current_task()
        self.abandoned = False
        self.result: outcome.Outcome[object]


class _Worker:
    """A thread that makes calls, until it is told to end."""

    def __init__(self, owner: ThreadCalls) -> None:
        self._owner = owner
        owner.workers += 1
        self.wake = threading.Lock()
        self.wake.acquire()
        threading.Thread(target=self._work, name="a call of rocketmq_sdk.sync", daemon=True).start()

    def _work(self) -> None:
        owner, line = self._owner, self._owner.line
        while True:
            try:
                job = line.popleft()
            except IndexError:
                owner.tell()
                owner.idle.append(self)
                if owner.closed:
                    return
                if line:  # it came meanwhile, and perhaps nobody was woken
                    owner.wake_one()
                self.wake.acquire()
                if self._owner.closed:
                    return
                continue
            if not line:
                owner.tell()  # this call may take long
            job.result = outcome.capture(job.context.run, job.function, job.argument)
            owner.done.append(job)


class ThreadCalls:
    """Makes the calls of one object in threads."""

    def __init__(self) -> None:
        self.line: deque[_Job] = deque()
        self.done: deque[_Job] = deque()
        self.idle: list[_Worker] = []
        self.closed = False
        self._told = False
        self._helping = False
        self.workers = 0
        self._calls = 0
        self._abandoned = 0
        self._slow_until = -math.inf
        self._token: trio.lowlevel.TrioToken | None = None

    async def call(self, function: Callable[[Any], object], argument: object) -> Any:
        """Call a function in a thread. For trio tasks.

        When cancelled, a call that has begun is abandoned: it runs on, its result is
        ignored.
        """
        if self._token is None:
            self._token = trio.lowlevel.current_trio_token()
        job = _Job(function, argument)
        self.line.append(job)
        self._calls += 1
        if self.workers == len(self.idle) or trio.current_time() < self._slow_until:
            self.wake_one()
        elif not self._helping:
            self._helping = True
            trio.lowlevel.spawn_system_task(self._help, name="helps calls of rocketmq_sdk.sync")

        def abort(_raise_cancel: object) -> trio.lowlevel.Abort:
            job.abandoned = True
            try:
                self.line.remove(job)
            except ValueError:
                self._abandoned += 1  # a thread has it
            return trio.lowlevel.Abort.SUCCEEDED

        try:
            return await trio.lowlevel.wait_task_rescheduled(abort)
        finally:
            self._calls -= 1

    def wake_one(self) -> None:
        """Have another thread look at the line, if there may be one more."""
        try:
            worker = self.idle.pop()
        except IndexError:
            if self.workers - self._abandoned < self._calls:
                _Worker(self)
            return
        worker.wake.release()

    async def _help(self) -> None:
        """Wake one more thread, then two, four ... as long as calls wait."""
        more = 1
        try:
            while self.line:
                first = self.line[0]
                await trio.sleep(HELP)
                self._collect()
                if self.line and self.line[0] is first:
                    self._slow_until = trio.current_time() + SLOW
                    for _ in range(min(more, len(self.line))):
                        self.wake_one()
                    more *= 2
        finally:
            self._helping = False

    def tell(self) -> None:
        """Have trio collect the results; called by threads."""
        if self.done and not self._told:
            self._told = True
            assert self._token is not None
            try:
                self._token.run_sync_soon(self._collect)
            except trio.RunFinishedError:
                self.done.clear()

    def _collect(self) -> None:
        self._told = False
        done = self.done
        while done:
            job = done.popleft()
            if job.abandoned:
                self._abandoned -= 1
            else:
                trio.lowlevel.reschedule(job.task, job.result)

    def close(self) -> None:
        """End the threads; one that is in a call ends after it."""
        self.closed = True
        while self.idle:
            self.idle.pop().wake.release()


def _refuse_async(function: object, what: str) -> None:
    if not callable(function):
        raise ConfigurationError(f"{what} is {function!r}, which cannot be called")
    if is_async(function):
        raise ConfigurationError(
            f"{what} is {function!r}, an async function, and nothing in rocketmq_sdk.sync could "
            "run it; give a plain function, or use rocketmq_sdk.aio"
        )


def _checked(result: object) -> object:
    """What a function has returned; a coroutine would never run."""
    if inspect.iscoroutine(result):
        result.close()
        raise ConfigurationError(
            "the function returned a coroutine, and nothing in rocketmq_sdk.sync could run it; "
            "give a plain function, or use rocketmq_sdk.aio"
        )
    return result


def function_in_thread(calls: ThreadCalls, function: Callable[[Any], object], what: str) -> Any:
    """A plain function as an async one for trio. Raises `ConfigurationError`."""
    _refuse_async(function, what)

    async def call(argument: object) -> object:
        return _checked(await calls.call(function, argument))

    return call


def listener_in_thread(calls: ThreadCalls, listener: Any) -> Any:
    """A plain listener as an async one for trio. Raises `ConfigurationError`."""
    return function_in_thread(calls, listener, "the listener")


def change_listener_in_thread(
    calls: ThreadCalls, listener: Callable[[AssignmentChange], object] | None
) -> Any:
    """A listener of assignment changes as trio's consumer wants it."""
    if listener is None:
        return None
    return function_in_thread(calls, listener, "on_assignment_change")
