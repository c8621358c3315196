"""Blocks: what is entered with `async with` in asyncio is entered in a trio task, which
keeps it open until the block is left.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, Self, TypeVar

import trio

from rocketmq_sdk.aio.callbacks import (
    InLoop,
    LoopCalls,
    change_listener_in_loop,
    listener_in_loop,
)
from rocketmq_sdk.aio.run import LoopRun, join_run
from rocketmq_sdk.doors.face import AnyFace
from rocketmq_sdk.doors.face import inner_client as client_behind
from rocketmq_sdk.doors.outcomes import LeftByErrorError, is_reason
from rocketmq_sdk.errors import ClosedError

if TYPE_CHECKING:
    from types import TracebackType

    from rocketmq_sdk.lifecycle import RunsOnce

P = ParamSpec("P")
T = TypeVar("T")
logger = logging.getLogger("rocketmq_sdk.aio")


class KeptBlock(Generic[T]):
    """A trio context manager that a trio task keeps open.

    When it ends by itself before the block is left, which is a failure in the
    background, the task that has entered it is cancelled, as `asyncio.TaskGroup` does,
    and the error is raised from the block.
    """

    def __init__(
        self, run: LoopRun, manager: AbstractAsyncContextManager[T], *, own_errors: bool
    ) -> None:
        self._run = run
        self._manager = manager
        self._own_errors = own_errors
        self._parent = asyncio.current_task()
        self._cancelling = 0 if self._parent is None else self._parent.cancelling()
        self._cancelled_parent = False
        self._leave = trio.Event()
        self._reason: Exception | None = None
        self._left = False
        self._entered = False
        self._ready = run.loop.create_future()
        self._value: Any = None
        self._call = run.start(self._keep)

    async def _keep(self) -> None:
        try:
            async with self._manager as self._value:
                self._entered = True
                self._tell()
                await self._leave.wait()
                if self._reason is not None:
                    raise self._reason
        except BaseException:
            if self._entered and not self._left:
                self._interrupt()
            raise
        finally:
            self._tell()

    def _tell(self) -> None:
        if not self._ready.done() and not self._run.loop.is_closed():
            self._ready.set_result(None)

    def _interrupt(self) -> None:
        """It has failed in the background: cancel the block."""
        parent = self._parent
        if parent is not None and not parent.done() and not self._run.loop.is_closed():
            self._cancelled_parent = True
            parent.cancel("something failed in the background of a block of rocketmq_sdk.aio")

    async def enter(self) -> T:
        """Wait until it is open. Raises what entering raises."""
        cancelled: asyncio.CancelledError | None = None
        while not self._ready.done():
            try:
                await asyncio.shield(self._ready)
            except asyncio.CancelledError as error:
                cancelled = error
                self._left = True
                self._call.scope.cancel()
        if cancelled is not None or not self._entered:
            self._left = True
            self._call.scope.cancel()
            await self._call.result(self._run.loop)
            raise cancelled or ClosedError("it ended while it was opened")
        value: T = self._value
        return value

    async def leave(self, error: BaseException | None) -> bool:
        """Leave it by an error, or by None; whether the error is swallowed.

        Raises what leaving raises, and what has failed in the background.
        """
        self._left = True
        if isinstance(error, Exception):
            self._reason = error if self._own_errors else LeftByErrorError()
        elif error is not None:
            self._call.scope.cancel()
        self._leave.set()
        traceback = None if error is None else error.__traceback__
        try:
            await self._call.result(self._run.loop)
        except asyncio.CancelledError:
            if error is not None and self._reason is None:
                return False  # the error itself has cancelled it
            raise
        except BaseException as failure:
            if self._reason is not None and is_reason(failure, self._reason):
                assert error is not None
                error.__traceback__ = traceback
                return False
            if self._cancelled_parent and not await self._take_cancellation_back(error):
                logger.error("a block ended by an error while its task was cancelled: %r", failure)
                return False
            raise failure from None if isinstance(error, asyncio.CancelledError) else error
        return False

    async def _take_cancellation_back(self, error: BaseException | None) -> bool:
        """Undo the cancellation by `_interrupt`; False if others want one."""
        assert self._parent is not None
        if not isinstance(error, asyncio.CancelledError) and self._parent is asyncio.current_task():
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(0)  # it may not have come yet
        return self._parent.uncancel() <= self._cancelling


class Managed(AbstractAsyncContextManager[T], Generic[T]):
    """An async context manager around one of trio's, for one block."""

    def __init__(
        self,
        run: LoopRun,
        make: Callable[[], AbstractAsyncContextManager[Any]],
        show: Callable[[Any], T] = lambda value: value,
    ) -> None:
        self._run = run
        self._make = make
        self._show = show
        self._kept: KeptBlock[Any] | None = None

    async def __aenter__(self) -> T:
        self._run.check()
        self._kept = KeptBlock(self._run, self._make(), own_errors=True)
        return self._show(await self._kept.enter())

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool:
        assert self._kept is not None
        return await self._kept.leave(error)


class Face(AnyFace[LoopRun]):
    """The asyncio face of an object that lives in trio."""

    async def _call(
        self, function: Callable[P, Awaitable[T]], /, *args: P.args, **kwargs: P.kwargs
    ) -> T:
        run = self._run or self._running()
        return await run.call(function, *args, **kwargs)

    def _call_now(self, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Call a synchronous function of the object, which lives in this thread."""
        if self._run is not None:
            self._run.check()
        return function(*args, **kwargs)


class Entered(Face):
    """A face that is entered with `async with`, once."""

    _inner: RunsOnce
    _kept: KeptBlock[Any] | None = None
    _calls: LoopCalls | None = None

    async def __aenter__(self) -> Self:
        if self._kept is not None or self._run is not None:
            raise ClosedError(self._inner._second_time)
        run = await join_run()
        try:
            self._kept = KeptBlock(run, self._inner, own_errors=False)
            self._set_run(run)
            await self._kept.enter()
        except BaseException:
            await self._end(run)
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool | None:
        assert self._kept is not None
        assert self._run is not None
        run, kept = self._run, self._kept
        try:
            return await kept.leave(error)
        finally:
            await self._end(run)

    async def _end(self, run: LoopRun) -> None:
        self._set_run(None)
        try:
            if self._calls is not None:
                await self._calls.close()
        finally:
            if run.leave():
                await run.ended()

    # --- functions of the user's

    def _calls_in_loop(self) -> LoopCalls:
        if self._calls is None:
            self._calls = LoopCalls()
        return self._calls

    def _in_loop(self, function: Callable[[Any], Awaitable[Any]]) -> InLoop:
        return InLoop(self._calls_in_loop(), function)

    def _listener_in_loop(self, listener: Any) -> Any:
        return listener_in_loop(self._calls_in_loop(), listener)

    def _change_listener_in_loop(self, listener: Any) -> Any:
        return change_listener_in_loop(self._calls_in_loop(), listener)


class InProcessBroker(Entered):
    """A broker in the loop, which `namesrv=` takes."""


class Stream(AsyncIterator[T]):
    """An async generator of trio's, iterated in asyncio."""

    def __init__(self, face: Face, make: Callable[[], AsyncIterator[T]]) -> None:
        self._face = face
        self._items = make()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> T:
        return await self._face._call(self._items.__anext__)


def inner_client(client: object) -> Any:
    """The client behind a face. Raises `ConfigurationError` for one of another door."""
    return client_behind(client, Face)
