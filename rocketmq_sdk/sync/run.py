"""One trio run in a thread of its own, for all objects that the process has open.

It begins with the first object that is opened and ends with the last one, or with the
interpreter. Threads put what they want in a line; trio is woken once for all that is in
it, and each caller waits on a lock of its own.
"""

from __future__ import annotations

import atexit
import contextlib
import contextvars
import logging
import os
import threading
from collections import deque
from threading import get_ident
from typing import TYPE_CHECKING, Any, Final, ParamSpec, TypeVar

import trio

from rocketmq_sdk.doors.outcomes import told_outside
from rocketmq_sdk.errors import ClosedError, WrongRunError
from rocketmq_sdk.sync.driving import Driving, nothing
from rocketmq_sdk.sync.signals import undisturbed

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from rocketmq_sdk.sync.driving import Job

P = ParamSpec("P")
T = TypeVar("T")
logger = logging.getLogger("rocketmq_sdk.sync")
EXIT_TIMEOUT: Final = 5.0
"""Seconds that the end of the interpreter waits for what is still open."""
_ENDED: Final = "it was closed with everything in rocketmq_sdk.sync"
_CANCELLED: Final = "the call was cancelled"
_FORKED: Final = (
    "this object was opened before the process was forked, and threads and connections do not "
    "come along. Open it in each process, after the fork: in gunicorn's post_fork hook, Celery's "
    "worker_process_init signal, uWSGI's postfork; with multiprocessing in the worker, or use its "
    "start method 'spawn'"
)


class Call:
    """An async call that runs in trio, and the thread that waits for it."""

    __slots__ = ("_finished", "_run", "context", "done", "error", "function", "scope", "value")

    def __init__(self, run: ThreadRun, function: Callable[[], Awaitable[object]]) -> None:
        self._run = run
        self.function = function
        self.context = contextvars.copy_context()
        self.scope: trio.CancelScope | None = None
        self.done = False
        self.value: Any = None
        self.error: BaseException | None = None
        self._finished = threading.Lock()
        self._finished.acquire()

    def begin(self) -> None:
        """Start it, unless it was cancelled. Call it in trio."""
        if self.done:
            return
        self.scope = trio.CancelScope()  # here, so that a cancellation finds it at once
        try:
            self.context.run(self._run.nursery.start_soon, self.work)
        except RuntimeError:  # the nursery is closed
            self.too_late(ClosedError(_ENDED))
        else:
            self._run.jobs.add(self)

    def too_late(self, error: ClosedError) -> None:
        """The run has ended, and the call with it."""
        if not self.done:
            self.error = error
            self.finish()

    async def work(self) -> None:
        """The trio side."""
        assert self.scope is not None
        try:
            with self.scope:
                self.value = await self.function()
            if self.scope.cancelled_caught:
                self.error = ClosedError(_CANCELLED)
        except BaseException as error:  # noqa: BLE001 - whoever called gets it
            self.error = told_outside(error, _ENDED)
        finally:
            self._run.jobs.discard(self)
            self.finish()

    def finish(self) -> None:
        """Let the waiting thread go on."""
        self.done = True
        self._finished.release()

    def socket_wait(self) -> None:
        """None: its task in trio waits, maybe at a socket."""

    def cancel(self) -> None:
        """Cancel it, or see to it that it does not begin. Call it in trio."""
        if self.done:
            return
        if self.scope is None:  # an exception of a signal came before it was in the line
            self.too_late(ClosedError(_CANCELLED))
        else:
            self.scope.cancel()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait for the end; whether it has come."""
        if self.done:
            return True
        try:
            self._finished.acquire(timeout=-1 if timeout is None else timeout)
        finally:  # after an exception of a signal, too
            self._let_next()
        return self.done

    def _let_next(self) -> None:
        """Leave the lock to the next one who waits, if it is done."""
        if self.done:
            with contextlib.suppress(RuntimeError):
                self._finished.release()

    def outcome(self) -> Any:
        """The result, or the error raised."""
        error = self.error
        if error is None:
            return self.value
        try:
            raise error
        finally:
            del error  # no circle through the traceback


class ThreadRun:
    """trio in a thread, and how many objects are open in it."""

    def __init__(self) -> None:
        self.users = 0
        self.ending = False
        self.nursery: trio.Nursery
        self.failure: BaseException | None = None
        self.jobs: set[Any] = set()
        """What threads may wait for and is under way in trio."""
        self._over = False
        self._keeper: int | None = None
        self._line: deque[tuple[Callable[..., object], tuple[Any, ...]]] = deque()
        self._woken = False
        self._token: trio.lowlevel.TrioToken
        self._last: trio.Event
        self.driving = Driving(self._line, self._serve)
        """Who gives trio its turns."""
        self._began = threading.Event()
        self._thread = threading.Thread(target=self._work, name="rocketmq_sdk.sync", daemon=True)

    def begin(self) -> None:
        """Start it, if nobody has, and wait until it takes calls."""
        with _state.lock:
            if self._thread.ident is None:
                # An exception of a signal inside of it is the end of the thread.
                with undisturbed():
                    self._thread.start()
        self._began.wait()

    def _work(self) -> None:
        self._keeper = get_ident()
        try:
            if self.driving.begin(self._main):
                self.driving.keep()
            else:
                trio.run(self._main)
        except BaseException as error:
            self.failure = error
            logger.error("the trio run of rocketmq_sdk.sync has failed", exc_info=error)
        finally:
            self.ending = self._over = True
            self._began.set()
            self._give_up()

    async def _main(self) -> None:
        self._token = trio.lowlevel.current_trio_token()
        self._last = trio.Event()
        async with trio.open_nursery() as self.nursery:
            self._began.set()
            await self._last.wait()
            self.nursery.cancel_scope.cancel()

    def _give_up(self) -> None:
        """End what came too late, and what a run that has failed has left."""
        error = ClosedError(_ENDED)
        with contextlib.suppress(IndexError):  # several threads may be here
            while True:
                function, _ = self._line.popleft()
                too_late = getattr(getattr(function, "__self__", None), "too_late", None)
                if too_late is not None:
                    too_late(error)
        with contextlib.suppress(KeyError):
            while True:
                self.jobs.pop().too_late(error)

    # --- from threads

    @property
    def lost(self) -> bool:
        """Whether it stayed in the process that this one was forked from."""
        return self.driving.lost

    def lose(self) -> None:
        """It stayed in the process that this one was forked from."""
        self.driving.lost = True

    def check(self) -> None:
        """Raise `WrongRunError` in a forked process, and where trio's tasks run."""
        driving = self.driving
        if driving.lost:
            raise WrongRunError(_FORKED)
        thread = get_ident()
        if thread == self._keeper or thread == driving.driver:
            raise WrongRunError(
                "this was called inside rocketmq_sdk.sync, which would wait for itself for ever: "
                "queue selectors, hooks, interceptors and callbacks of futures run there, and "
                "cannot send or receive; let a thread do it"
            )

    @property
    def posted(self) -> int:
        """How much is in the line."""
        return len(self._line)

    def post(self, function: Callable[..., object], *arguments: Any) -> None:
        """Have a synchronous function called in trio, after what was posted before."""
        self._line.append((function, arguments))
        if self._over:
            self._give_up()
        elif not (self._woken or self.driving.serves_soon()):
            try:
                self._woken = True
                self._token.run_sync_soon(self._serve)
            except trio.RunFinishedError:
                pass  # its thread gives it up
            except BaseException:  # of a signal: nobody was woken, perhaps
                self._woken = False
                raise

    def _serve(self) -> None:
        self._woken = False
        line = self._line
        while line:
            function, arguments = line.popleft()
            function(*arguments)

    def start(self, function: Callable[[], Awaitable[object]]) -> Call:
        """Start an async function in trio."""
        call = Call(self, function)
        self.post(call.begin)
        return call

    def make(self, begin: Callable[[], object], job: Job) -> None:
        """Begin a call in trio, and wait until it is done."""
        driving = self.driving
        if not driving.drive(begin, job):
            self.post(begin)
        if not job.done:
            driving.wait(job)

    def help(self, job: Job) -> None:
        """Help what was posted along, if this thread may, until a job is done."""
        self.driving.drive(nothing, job)

    def call(self, function: Callable[P, Awaitable[T]], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Run an async function in trio and wait for it.

        `KeyboardInterrupt`, and any other exception of a signal handler, cancels it.
        """
        self.check()
        call = Call(self, lambda: function(*args, **kwargs))
        try:
            self.make(call.begin, call)
        except BaseException:
            self.post(call.cancel)
            raise
        value: T = call.outcome()
        return value

    def call_now(self, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a synchronous function in trio and wait for it."""

        async def plain() -> T:
            return function(*args, **kwargs)

        return self.call(plain)

    # --- the end

    def leave(self) -> None:
        """An object is closed; the last one ends the run, and this waits for that."""
        with _state.lock:
            self.users -= 1
            last = self.users == 0
            if last:
                self.ending = True
                if _state.run is self:
                    _state.run = None
                if self._began.is_set():
                    self.post(self._set_last)  # so that it ends, whatever interrupts the wait
        if last:
            self.stop()

    def stop(self, timeout: float | None = None) -> None:
        """End the run, cancelling what is open in it."""
        if self.lost or self._thread.ident in (None, threading.get_ident()):
            return
        self._began.wait()
        self.post(self._set_last)
        self._thread.join(timeout)

    def _set_last(self) -> None:
        self._last.set()


class _State:
    """The run of this process, if there is one."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.run: ThreadRun | None = None
        self.ends_with_interpreter = False


_state = _State()


def join_run() -> ThreadRun:
    """The run of the process, for one more object; `ThreadRun.leave` gives it back."""
    with _state.lock:
        run = _state.run
        if run is None or run.ending:
            run = _state.run = ThreadRun()
            if not _state.ends_with_interpreter:
                _state.ends_with_interpreter = True
                atexit.register(_end_with_interpreter)
        run.users += 1
    try:
        run.begin()
    except BaseException:
        run.leave()
        raise
    return run


def _end_with_interpreter() -> None:
    run = _state.run
    if run is not None and not run.ending:
        logger.warning(
            "the interpreter ends while %d objects of rocketmq_sdk.sync are open; they are closed "
            "as by an error. Leave their `with` blocks first",
            run.users,
        )
        run.stop(EXIT_TIMEOUT)


def _forked() -> None:
    if _state.run is not None:
        _state.run.lose()
    _state.lock = threading.Lock()
    _state.run = None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)
