"""The user's functions, which trio tasks call and threads run.

Calls stand in one line, and a thread that is done with some takes the next. So a
function that is quick is called many times by one thread, without a change of threads
for each call; their results go back together. Between calls such a thread gives trio
its turns itself (`Driving.work`), so that what comes next needs no other thread. As
long as calls wait, another thread is woken every millisecond, so that a slow function
soon has a thread for each call.
"""

from __future__ import annotations

import inspect
import math
import threading
from collections import deque
from contextlib import suppress
from contextvars import copy_context
from threading import get_ident
from typing import TYPE_CHECKING, Any, Final

import trio

from rocketmq_sdk.clock import thread_seconds
from rocketmq_sdk.consumer.listener import Failed, is_async
from rocketmq_sdk.errors import ConfigurationError
from rocketmq_sdk.validators import check_callable

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rocketmq_sdk.consumer.listener import Results
    from rocketmq_sdk.consumer.lite_pull.member import AssignmentChange
    from rocketmq_sdk.sync.driving import Driving

HELP: Final = 0.001
"""Seconds after which calls that still wait get another thread, if threads could work
meanwhile.
"""
LONGEST: Final = 0.02
"""Seconds after which that is so even if this thread has kept the others from work."""
SLOW: Final = 0.1
"""Seconds for which a function is taken for slow after that, so that none waits."""
TOGETHER: Final = 64
"""Messages that a quick listener gets with one change of threads."""


class Chunk:
    """Calls of one function, and the trio task that waits for them."""

    __slots__ = (
        "_calls",
        "arguments",
        "broken_up",
        "context",
        "ended",
        "function",
        "give_back",
        "number",
        "over",
        "results",
        "running",
        "task",
    )

    def __init__(
        self,
        calls: ThreadCalls,
        function: Callable[[Any], object],
        arguments: Sequence[object],
        results: Results,
        give_back: Callable[[int], None] | None,
    ) -> None:
        self._calls = calls
        self.function = function
        self.arguments = deque(arguments)
        """Those of the calls that nobody has begun to make."""
        self.number = len(arguments)
        """How many calls are to be made."""
        self.results = results
        self.give_back = give_back
        self.context = copy_context()
        """What the function sees: spans of tracing, for example."""
        self.task: trio.lowlevel.Task | None = None
        self.broken_up = self.over = False
        self.ended = 0
        """Calls that had ended when that was looked at last."""
        self.running = 0
        """Calls that ran when the chunk was abandoned."""

    async def wait(self) -> None:
        """Wait until all have ended, or some of them will not be made."""
        if self.over:
            await trio.lowlevel.checkpoint()
            return
        self.task = trio.lowlevel.current_task()
        await trio.lowlevel.wait_task_rescheduled(self._stop_waiting)

    def _stop_waiting(self, _raise_cancel: object) -> trio.lowlevel.Abort:
        self.task = None
        return trio.lowlevel.Abort.SUCCEEDED

    def wake(self) -> None:
        """Have the task that waits look at what there is."""
        if self.task is not None:
            trio.lowlevel.reschedule(self.task)
            self.task = None

    def make_calls(self) -> None:
        """Make those that nobody has begun to make. For a thread."""
        function, take, ended = self.function, self.arguments.popleft, self.results.append
        copy = self.context.copy
        while True:
            try:
                argument = take()
            except IndexError:
                return  # all are made, or the rest was given back
            try:
                # Each call has a context of its own, as a task would.
                returned = copy().run(function, argument)
                if returned is not None:
                    returned = _checked(returned)
            except BaseException as error:  # noqa: BLE001 - told by who waits
                ended(Failed(error))
            else:
                ended(returned)

    def abandon(self) -> None:
        """Make no further one, and ignore what becomes of those that run."""
        self._calls.abandon(self)


class _Worker:
    """A thread that makes calls, until it is told to end."""

    def __init__(self, owner: ThreadCalls) -> None:
        self._owner = owner
        owner.workers += 1
        self.wake = threading.Lock()
        self.wake.acquire()
        self.ident: int | None = None
        threading.Thread(target=self._work, name="a call of rocketmq_sdk.sync", daemon=True).start()

    def _work(self) -> None:
        owner, line, made = self._owner, self._owner.line, False
        self.ident = get_ident()
        while True:
            try:
                chunk = line.popleft()
            except IndexError:
                if owner.give_turns():
                    continue
                if made and owner.ask_for_turns(self):
                    made = False
                    self.wake.acquire()
                    continue
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
                owner.tell()  # these calls may take long
            chunk.make_calls()
            owner.done.append(chunk)
            made = True


class ThreadCalls:
    """Makes the calls of one object in threads."""

    def __init__(self) -> None:
        self.driving: Driving | None = None
        """Who gives trio its turns; None before what it belongs to is open."""
        self.line: deque[Chunk] = deque()
        """Chunks that no thread has begun with."""
        self.done: deque[Chunk] = deque()
        self.idle: list[_Worker] = []
        self.closed = False
        self._told = False
        self._helping = False
        self.workers = 0
        self._chunks = 0
        self._together: dict[Chunk, None] = {}
        """Those with several calls that are not broken up."""
        self._abandoned = self._over = 0
        self._slow_until = -math.inf
        self._token: trio.lowlevel.TrioToken | None = None

    async def call(self, function: Callable[[Any], object], argument: object) -> Any:
        """Call a function in a thread. For trio tasks.

        When cancelled, a call that has begun is abandoned: it runs on, its result is
        ignored.
        """
        chunk = self.begin(function, (argument,), [])
        try:
            await chunk.wait()
        finally:
            chunk.abandon()
        result = chunk.results[0]
        if isinstance(result, Failed):
            raise result.error
        return result

    @property
    def most_together(self) -> int:
        """How many arguments to hand over at once: one when functions are slow."""
        return 1 if trio.current_time() < self._slow_until else TOGETHER

    def begin(
        self,
        function: Callable[[Any], object],
        arguments: Sequence[object],
        results: Results,
        give_back: Callable[[int], None] | None = None,
    ) -> Chunk:
        """Call a function with one argument after the other, in few changes of threads.

        `results` gets what was returned or raised, in the order of the arguments.
        `give_back` is told from which place on they will not be used: a call takes
        long, and the others shall not wait for it, or the chunk is abandoned, which
        must follow.
        """
        if self._token is None:
            self._token = trio.lowlevel.current_trio_token()
        chunk = Chunk(self, function, arguments, results, give_back)
        self.line.append(chunk)
        self._chunks += 1
        if give_back is not None:
            self._together[chunk] = None
        if trio.current_time() < self._slow_until:
            self.wake_one()
        elif self.workers == len(self.idle):
            self._wake_with_turns()
        elif not self._helping:
            self._helping = True
            trio.lowlevel.spawn_system_task(self._help, name="helps calls of rocketmq_sdk.sync")
        return chunk

    def abandon(self, chunk: Chunk) -> None:
        """Make no further call of a chunk, and ignore the results of those that run."""
        self._chunks -= 1
        self._together.pop(chunk, None)
        if not chunk.over:
            self._take_out(chunk)
            chunk.running = chunk.number - len(chunk.results)
            self._abandoned += chunk.running

    def _take_out(self, chunk: Chunk) -> None:
        """Make no further call of a chunk."""
        with suppress(ValueError):  # a thread has it
            self.line.remove(chunk)
        back = 0
        with suppress(IndexError):
            while True:
                chunk.arguments.pop()  # from behind: a thread takes the first ones
                back += 1
        chunk.number -= back
        if back and chunk.give_back is not None:
            chunk.give_back(chunk.number)

    def wake_one(self) -> None:
        """Have another thread look at the line, if there may be one more."""
        try:
            worker = self.idle.pop()
        except IndexError:
            if self.workers - self._abandoned < self._chunks:
                _Worker(self)
            return
        worker.wake.release()

    def _wake_with_turns(self) -> None:
        """Have a thread make the calls, and give trio its turns after them."""
        if self.idle and self.driving is not None:
            self.driving.offer(self.idle.pop())
        else:
            self.wake_one()

    def give_turns(self) -> bool:
        """Give trio its turns until there are calls to make, if they were lent.

        For a thread that has none to make. False when it has nothing to do now.
        """
        driving = self.driving
        return driving is not None and driving.work(self)

    def ask_for_turns(self, worker: _Worker) -> bool:
        """Have a thread that has made all calls woken to give turns, with the results.

        Whether it will be. Otherwise it waits for calls.
        """
        driving, token = self.driving, self._token
        if driving is None or not driving.may_lend or self.closed or token is None:
            return False
        self._told = True
        try:
            token.run_sync_soon(self._answer, worker)
        except trio.RunFinishedError:
            return False
        return True

    def _answer(self, worker: _Worker) -> None:
        self.collect()
        if self.driving is None or trio.current_time() < self._slow_until:
            worker.wake.release()
        else:
            self.driving.offer(worker)

    async def _help(self) -> None:
        """Wake one more thread, then two, four ... as long as calls wait."""
        more = 1
        try:
            while self.line or self._together:
                first, ended = self.line[0] if self.line else None, self._ended_calls()
                await self._give_time()
                # Where calls have ended, a thread is at a long chunk, not a slow call.
                waits = bool(self.line) and self.line[0] is first and self._ended_calls() == ended
                if waits:
                    self._slow_until = trio.current_time() + SLOW
                    for _ in range(min(more, len(self.line))):
                        self.wake_one()
                    more *= 2
                self._break_up(all_of_them=waits)
        finally:
            self._helping = False

    def _ended_calls(self) -> tuple[int, int]:
        """Changes with each call that ends of those that were handed over together."""
        return self._over, sum([len(chunk.results) for chunk in self._together])

    async def _give_time(self) -> None:
        """Wait until the threads had a while to work in.

        While this thread is busy they do not: it keeps the interpreter lock.
        """
        began, busy, thread = trio.current_time(), thread_seconds(), get_ident()
        while True:
            await trio.sleep(HELP)
            self.collect()
            passed = trio.current_time() - began
            if get_ident() != thread:  # another one gives the turns now
                busy, thread = thread_seconds(), get_ident()
            elif passed - (thread_seconds() - busy) >= HELP / 2:
                return
            if passed >= LONGEST:
                return

    def _break_up(self, *, all_of_them: bool) -> None:
        """Give back calls that would come after one that takes long.

        And have those looked at that have ended before it.
        """
        for chunk in list(self._together):
            ended = len(chunk.results)
            if all_of_them or (ended and ended == chunk.ended):
                del self._together[chunk]
                chunk.broken_up = True
                self._take_out(chunk)
                self._look_at(chunk)
            chunk.ended = ended

    def tell(self) -> None:
        """Have trio collect the results; called by threads."""
        if self.done and not self._told:
            self._told = True
            assert self._token is not None
            if self.driving is not None and self.driving.serves_after_calls(self.collect):
                return
            try:
                self._token.run_sync_soon(self.collect)
            except trio.RunFinishedError:
                self.done.clear()

    def collect(self) -> None:
        """Take in the results. Call it in trio."""
        self._told = False
        done = self.done
        while done:
            self._look_at(done.popleft())

    def _look_at(self, chunk: Chunk) -> None:
        """Calls of a chunk have ended, or will not be made."""
        if len(chunk.results) >= chunk.number and not chunk.over:
            chunk.over = True
            self._over += 1
            self._abandoned -= chunk.running
        chunk.wake()

    def close(self) -> None:
        """End the threads; one that is in a call ends after it."""
        self.closed = True
        while self.idle:
            self.idle.pop().wake.release()


def _refuse_async(function: Any, what: str) -> None:
    check_callable(what, function, "give a plain function")
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
        return await calls.call(function, argument)

    return call


class ListenerInThread:
    """A plain listener as an async one for trio, which also takes several messages."""

    def __init__(self, calls: ThreadCalls, listener: Callable[[Any], object]) -> None:
        self._calls = calls
        self._listener = listener

    async def __call__(self, argument: object) -> object:
        """Call it, as `function_in_thread` does."""
        return await self._calls.call(self._listener, argument)

    @property
    def most_together(self) -> int:
        """How many messages to hand over at once at present."""
        return self._calls.most_together

    def call_each(
        self,
        messages: Sequence[object],
        results: Results,
        give_back: Callable[[int], None],
    ) -> Chunk:
        """Begin to call it with one message after the other (`ThreadCalls.begin`)."""
        return self._calls.begin(self._listener, messages, results, give_back)


def listener_in_thread(calls: ThreadCalls, listener: Any) -> Any:
    """A plain listener as an async one for trio. Raises `ConfigurationError`."""
    _refuse_async(listener, "the listener")
    return ListenerInThread(calls, listener)


def change_listener_in_thread(
    calls: ThreadCalls, listener: Callable[[AssignmentChange], object] | None
) -> Any:
    """A listener of assignment changes as trio's consumer wants it."""
    if listener is None:
        return None
    return function_in_thread(calls, listener, "on_assignment_change")
