"""What is open in one asyncio loop shares one trio run; here calls go in and come back.

The run begins with the first object that is opened in a loop and ends with the last
one, or when the loop shuts down.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import TYPE_CHECKING, Any, Final, ParamSpec, TypeVar
from weakref import WeakKeyDictionary

import trio

from rocketmq_sdk.aio.guest import Guest
from rocketmq_sdk.doors.outcomes import told_outside
from rocketmq_sdk.errors import ClosedError, WrongRunError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable

P = ParamSpec("P")
T = TypeVar("T")
logger = logging.getLogger("rocketmq_sdk.aio")
SHUTDOWN_TIMEOUT: Final = 12.0
"""Seconds that the shutdown of a loop waits for what is still open in it."""
_runs: WeakKeyDictionary[asyncio.AbstractEventLoop, LoopRun] = WeakKeyDictionary()


class Call:
    """An async call that runs in trio, and the asyncio task that waits for it."""

    __slots__ = ("done", "error", "scope", "value", "waiter")

    def __init__(self) -> None:
        self.scope = trio.CancelScope()
        self.waiter: asyncio.Future[None] | None = None
        self.done = False
        self.value: Any = None
        self.error: BaseException | None = None

    async def work(self, call: Callable[[], Awaitable[object]]) -> None:
        """The trio side."""
        try:
            with self.scope:
                self.value = await call()
                return
            self.error = asyncio.CancelledError()
        except BaseException as error:  # noqa: BLE001 - whoever called gets it
            self.error = told_outside(error, "it was closed with everything in its event loop")
        finally:
            self.done = True
            wake(self.waiter)

    async def result(self, loop: asyncio.AbstractEventLoop) -> Any:
        """The asyncio side. A cancellation cancels the call and waits for its end."""
        cancelled: asyncio.CancelledError | None = None
        while not self.done:
            self.waiter = loop.create_future()
            try:
                await self.waiter
            except asyncio.CancelledError as error:
                cancelled = error
                self.scope.cancel()
        if cancelled is not None:
            if self.error is not None and not isinstance(self.error, asyncio.CancelledError):
                raise cancelled from self.error
            raise cancelled
        if self.error is not None:
            raise self.error
        return self.value


def wake(waiter: asyncio.Future[None] | None) -> None:
    """Let a waiter go on, unless its loop is closed or it has gone."""
    if waiter is not None and not waiter.done() and not waiter.get_loop().is_closed():
        waiter.set_result(None)


class LoopRun:
    """The trio run of one loop, and how many objects are open in it."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.users = 0
        self.nursery: trio.Nursery
        self.failure: BaseException | None = None
        self._began = loop.create_future()
        self._ended = loop.create_future()
        self._last = trio.Event()
        self._at_shutdown = self._wait_for_shutdown()
        with contextlib.suppress(StopIteration):  # its first step makes it known to the loop
            self._at_shutdown.__anext__().send(None)
        self._guest = Guest(loop, self._main, self._over)

    async def _main(self) -> None:
        async with trio.open_nursery() as self.nursery:
            wake(self._began)
            await self._last.wait()
            self.nursery.cancel_scope.cancel()

    def _over(self, error: BaseException | None) -> None:
        self.failure = error
        if _runs.get(self.loop) is self:
            del _runs[self.loop]
        wake(self._began)
        wake(self._ended)
        if error is not None and not self.loop.is_closed():
            self.loop.call_exception_handler(
                {"message": "the trio run of rocketmq_sdk.aio has failed", "exception": error}
            )

    @property
    def ending(self) -> bool:
        """Whether it takes nothing more."""
        return self._last.is_set() or self._guest.over

    async def begin(self) -> None:
        """Wait until it takes calls."""
        await _undisturbed(self._began)
        if self.failure is not None:
            raise self.failure

    async def _wait_for_shutdown(self) -> AsyncGenerator[None]:
        """A generator that the loop closes in `shutdown_asyncgens`.

        The only word of a loop's end that reaches a library.
        """
        try:
            yield
        finally:
            if not self._guest.over:
                logger.warning(
                    "the event loop shuts down while %d objects of rocketmq_sdk.aio are open; they "
                    "are closed as by a cancellation. Leave their `async with` blocks first",
                    self.users,
                )
                self._guest.cancel()
                async with asyncio.timeout(SHUTDOWN_TIMEOUT):
                    await self._ended

    def leave(self) -> bool:
        """An object is closed; whether it was the last one, so that the run ends."""
        self.users -= 1
        if self.users == 0 and not self.ending:
            self._last.set()
        return self.users == 0

    async def ended(self) -> None:
        """Wait until the run has ended."""
        await _undisturbed(self._ended)
        with contextlib.suppress(RuntimeError):  # the loop is closing it
            await self._at_shutdown.aclose()

    def check(self) -> None:
        """Raise `WrongRunError` outside of the loop, `ClosedError` after the run."""
        if asyncio._get_running_loop() is not self.loop:
            raise WrongRunError(
                "this object was opened in another event loop, which has to make the calls: open "
                "it in the loop that uses it. From a thread, call "
                "asyncio.run_coroutine_threadsafe(coroutine, loop), or use rocketmq_sdk.sync"
            )
        if self._guest.over:
            raise ClosedError("the event loop of this object has shut down")

    async def call(
        self, function: Callable[P, Awaitable[T]], /, *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Run an async function in trio and wait for it.

        When cancelled, the function is cancelled, and has ended when this raises.
        """
        self.check()
        call = self.start(lambda: function(*args, **kwargs))
        value: T = await call.result(self.loop)
        return value

    def start(self, function: Callable[[], Awaitable[object]]) -> Call:
        """Start an async function in trio."""
        call = Call()
        self.nursery.start_soon(call.work, function)
        return call


async def _undisturbed(future: asyncio.Future[None]) -> None:
    """Wait for a future; a cancellation is raised when it is done."""
    cancelled: asyncio.CancelledError | None = None
    while not future.done():
        try:
            await asyncio.shield(future)
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        raise cancelled


async def join_run() -> LoopRun:
    """The run of the running loop, for one more object; `LoopRun.leave` gives it back.

    Raises `WrongRunError` outside of asyncio, and while another loop of the thread has
    objects open.
    """
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:
        raise WrongRunError(
            "rocketmq_sdk.aio runs in an asyncio event loop, and none is running here. On trio "
            "import rocketmq_sdk itself, in plain threads rocketmq_sdk.sync"
        ) from None
    run = _runs.get(loop)
    while run is not None and run.ending:
        await run.ended()
        run = _runs.get(loop)
    if run is None:
        run = _runs[loop] = LoopRun(loop)
    run.users += 1
    try:
        await run.begin()
    except BaseException:
        if run.leave():
            await run.ended()
        raise
    return run


class Passed:
    """An awaitable that lets the loop make one turn."""

    def __await__(self) -> Any:
        yield


PASS: Final = Passed()
