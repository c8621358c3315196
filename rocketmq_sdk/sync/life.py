"""Blocks: what a thread enters with `with` is entered in a trio task, which keeps it
open until the block is left.
"""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, Self, TypeVar

import trio

from rocketmq_sdk.doors.face import AnyFace
from rocketmq_sdk.doors.face import inner_client as client_behind
from rocketmq_sdk.doors.outcomes import LeftByErrorError, is_reason
from rocketmq_sdk.errors import ClosedError
from rocketmq_sdk.sync.callbacks import (
    ThreadCalls,
    change_listener_in_thread,
    function_in_thread,
    listener_in_thread,
)
from rocketmq_sdk.sync.run import ThreadRun, join_run

if TYPE_CHECKING:
    from datetime import timedelta
    from types import TracebackType

    from rocketmq_sdk.lifecycle import RunsOnce

P = ParamSpec("P")
T = TypeVar("T")


class KeptBlock(Generic[T]):
    """A trio context manager that a trio task keeps open.

    When it ends by itself before the block is left, which is a failure in the
    background, calls raise `ClosedError` from then on, and the block raises the error
    when it is left.
    """

    def __init__(
        self,
        run: ThreadRun,
        make: Callable[[], AbstractAsyncContextManager[T]],
        *,
        own_errors: bool,
    ) -> None:
        self._run = run
        self._make = make
        self._own_errors = own_errors
        self._leave: trio.Event
        self._reason: Exception | None = None
        self._entered = False
        self._ready = threading.Event()
        self._value: Any = None
        self._call = run.start(self._keep)

    async def _keep(self) -> None:
        self._leave = trio.Event()
        try:
            async with self._make() as self._value:
                self._entered = True
                self._ready.set()
                await self._leave.wait()
                if self._reason is not None:
                    raise self._reason
        finally:
            self._ready.set()

    @property
    def failure(self) -> BaseException | None:
        """What has failed in the background."""
        return self._call.error if self._call.done else None

    def wait(self, timeout: float | None) -> bool:
        """Wait until it has ended; whether it has."""
        return self._call.wait(timeout)

    def enter(self) -> T:
        """Wait until it is open. Raises what entering raises."""
        try:
            while not (self._ready.is_set() or self._call.done):
                self._ready.wait(0.1)  # a run that has broken down tells only the call
        except BaseException:
            self._cancel()
            self._call.wait()
            raise
        if not self._entered:
            self._call.wait()
            self._call.outcome()
            raise ClosedError("it ended while it was opened")
        value: T = self._value
        return value

    def _cancel(self) -> None:
        self._run.post(self._call.cancel)

    def leave(self, error: BaseException | None) -> bool:
        """Leave it by an error, or by None; whether the error is swallowed.

        Raises what leaving raises, and what has failed in the background.
        """
        if isinstance(error, Exception):
            self._reason = error if self._own_errors else LeftByErrorError()
        elif error is not None:
            self._cancel()
        self._run.post(self._set_leave)
        traceback = None if error is None else error.__traceback__
        try:
            self._call.wait()
        except BaseException:
            self._cancel()
            self._call.wait()
            raise
        failure = self._call.error
        if failure is None or (error is not None and self._reason is None):
            return False
        if is_reason(failure, self._reason):
            assert error is not None
            error.__traceback__ = traceback
            return False
        raise failure from (None if isinstance(error, ClosedError) else error)

    def _set_leave(self) -> None:
        self._leave.set()


class Managed(AbstractContextManager[T], Generic[T]):
    """A context manager around an async one of trio's, for one block."""

    def __init__(
        self,
        run: ThreadRun,
        make: Callable[[], AbstractAsyncContextManager[Any]],
        show: Callable[[Any], T] = lambda value: value,
    ) -> None:
        self._run = run
        self._make = make
        self._show = show
        self._kept: KeptBlock[Any] | None = None

    def __enter__(self) -> T:
        self._run.check()
        self._kept = KeptBlock(self._run, self._make, own_errors=True)
        return self._show(self._kept.enter())

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool:
        if self._run.lost:  # a forked process leaves its parent's block
            return False
        assert self._kept is not None
        return self._kept.leave(error)


class Face(AnyFace[ThreadRun]):
    """The face for threads of an object that lives in trio."""

    def _call(self, function: Callable[P, Awaitable[T]], /, *args: P.args, **kwargs: P.kwargs) -> T:
        run = self._run or self._running()
        return run.call(function, *args, **kwargs)

    def _call_now(self, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Call a synchronous function of the object in its thread, if it is open."""
        run = self._run
        if run is None:
            return function(*args, **kwargs)
        return run.call_now(function, *args, **kwargs)


class Entered(Face):
    """A face that is entered with `with`, once."""

    _inner: RunsOnce
    _kept: KeptBlock[Any] | None = None
    _calls: ThreadCalls | None = None

    def __enter__(self) -> Self:
        if self._kept is not None or self._run is not None:
            raise ClosedError(self._inner._second_time)
        run = join_run()
        try:
            if self._calls is not None:
                self._calls.driving = run.driving
            self._kept = KeptBlock(run, lambda: self._inner, own_errors=False)
            self._set_run(run)
            self._kept.enter()
        except BaseException:
            self._end(run)
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool | None:
        assert self._kept is not None
        assert self._run is not None
        run, kept = self._run, self._kept
        if run.lost:  # a forked process leaves its parent's block
            return None
        try:
            return kept.leave(error)
        finally:
            self._end(run)

    def _end(self, run: ThreadRun) -> None:
        self._set_run(None)
        if self._calls is not None:
            self._calls.close()
        run.leave()

    def join(self, timeout: float | timedelta | None = None) -> None:
        """Wait until something has failed in the background, and raise that error.

        Returns after `timeout` seconds, if they are given, or when another thread
        leaves the block. What a program waits in that has nothing else to do:
        `with PushConsumer(...) as consumer: consumer.join()`. Ctrl-C ends it.
        """
        seconds = (
            timeout
            if timeout is None or isinstance(timeout, int | float)
            else (timeout.total_seconds())
        )
        self._running()
        kept = self._kept
        if kept is not None and kept.wait(seconds) and isinstance(kept.failure, Exception):
            raise kept.failure

    # --- functions of the user's

    def _calls_in_threads(self) -> ThreadCalls:
        if self._calls is None:
            self._calls = ThreadCalls()
        return self._calls

    def _in_thread(self, function: Any, what: str) -> Any:
        return function_in_thread(self._calls_in_threads(), function, what)

    def _listener_in_thread(self, listener: Any) -> Any:
        return listener_in_thread(self._calls_in_threads(), listener)

    def _change_listener_in_thread(self, listener: Any) -> Any:
        return change_listener_in_thread(self._calls_in_threads(), listener)


class InProcessBroker(Entered):
    """A broker in the process, which `namesrv=` takes."""


class Stream(Iterator[T]):
    """An async generator of trio's, iterated in a thread."""

    def __init__(self, face: Face, make: Callable[[], AsyncIterator[T]]) -> None:
        self._face = face
        self._items = make()

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> T:
        try:
            return self._face._call(self._items.__anext__)
        except StopAsyncIteration:
            raise StopIteration from None


def next_of(face: Face, items: AsyncIterator[T]) -> T:
    """The next item of an async iterator, for `__next__`."""
    try:
        return face._call(items.__anext__)
    except StopAsyncIteration:
        raise StopIteration from None


def inner_client(client: object) -> Any:
    """The client behind a face. Raises `ConfigurationError` for one of another door."""
    return client_behind(client, Face)
