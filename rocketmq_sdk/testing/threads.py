"""Test brokers for code that does not run on trio: a thread, and faces of the broker.

The broker runs in a `trio.run` of its own in a thread and listens on TCP. Its faces
have the same names as `TestBroker`: `BlockingBroker` waits as plain code does,
`AsyncioBroker` as asyncio does.
"""

from __future__ import annotations

import asyncio
import threading
import time
from concurrent.futures import Future
from contextlib import suppress
from contextvars import copy_context
from functools import partial, wraps
from typing import (
    TYPE_CHECKING,
    Any,
    Concatenate,
    Final,
    Generic,
    ParamSpec,
    Protocol,
    Self,
    TypeVar,
)

import trio

from rocketmq_sdk.clock import SystemClock
from rocketmq_sdk.errors import ClosedError
from rocketmq_sdk.testing.broker import TestBroker
from rocketmq_sdk.testing.cluster import ClusterFaults, ClusterWaits, TestCluster
from rocketmq_sdk.testing.failures import WaitTimeoutError
from rocketmq_sdk.testing.tcp_cluster import TcpCluster
from rocketmq_sdk.testing.trio_thread import END_WITHIN, TrioThread
from rocketmq_sdk.testing.waits import (
    FIRST_STEP,
    LONGEST_STEP,
    WITHIN,
    Waits,
    checked_within,
    holds,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from types import TracebackType

    from rocketmq_sdk.testing.traffic.recording import Recording
    from rocketmq_sdk.testing.traffic.request_faults import RequestFaults

P = ParamSpec("P")
T = TypeVar("T")
_HAS_ENDED: Final = "the test broker has ended"
_END_OF_REST_WITHIN: Final = 2.0
"""The same where something else did not end, which may keep the others from it."""


class BrokerThread:
    """A test broker in a thread of its own; the options are those of `TestBroker`.

    It listens on free ports of 127.0.0.1 unless the options say otherwise. Any thread
    may use it. It does not outlive the interpreter.
    """

    def __init__(self, **options: Any) -> None:
        self._options: dict[str, Any] = {
            "listen": "127.0.0.1:0",
            "namesrv_listen": "127.0.0.1:0",
            **options,
        }
        self._own: TrioThread | None = None
        self._shared: TrioThread | None = None
        self._ready, self._over = threading.Event(), threading.Event()
        self._end: trio.Event | None = None
        self._last: Callable[[], None] | None = None
        self._calls: set[trio.CancelScope] = set()
        self._error: BaseException | None = None
        self.broker: TestBroker
        """The broker itself; only for `run` and `look`."""

    def within(self, thread: TrioThread) -> Self:
        """Be in this thread, which others share, in the place of one of its own."""
        self._shared = thread
        return self

    def before_end(self, function: Callable[[], None]) -> None:
        """Have a plain function called in its loop at its end, before it leaves."""
        self._last = function

    def __enter__(self) -> Self:
        """Start it. Raises what entering a `TestBroker` raises."""
        if self._ready.is_set():
            raise ClosedError("a test broker in a thread is opened once; make another one")
        if self._shared is None:
            self._own = TrioThread()
        self._thread.admit(self)
        self._ready.wait()
        if self._error is not None:
            self._end_own()
            raise self._error
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """End it.

        Raises what leaving a `TestBroker` raises, and `WaitTimeoutError` when it does
        not end, unless the block ends with an error.
        """
        thread, hangs = self._thread, False
        if self._end is not None and thread.runs:
            thread.tell(self._end.set)
            hangs = not self._over.wait(END_WITHIN if thread.usable else _END_OF_REST_WITHIN)
            if hangs:
                thread.give_up()
        self._end_own()
        if hangs and kind is None:
            raise WaitTimeoutError("the test broker did not end in time; what it saw is unchecked")
        if self._error is not None and kind is None:
            raise self._error

    @property
    def _thread(self) -> TrioThread:
        thread = self._shared or self._own
        if thread is None:
            raise ClosedError("the test broker is not open; enter it by `with`")
        return thread

    def _end_own(self) -> None:
        if self._own is not None:
            self._own.end()

    def run(self, function: Callable[[], Awaitable[T]]) -> T:
        """Run an async function in the broker's loop, and wait for what it returns.

        Raises `ClosedError` when the broker has ended, also while it waits.
        """
        return self._thread.run(partial(self._call, function))

    async def _call(self, function: Callable[[], Awaitable[T]]) -> T:
        self._check_open()
        with trio.CancelScope() as scope:
            self._calls.add(scope)
            try:
                return await function()
            finally:
                self._calls.discard(scope)
        raise ClosedError(_HAS_ENDED)

    def look(self, function: Callable[[], T]) -> T:
        """The same for a plain function."""
        return self._thread.look(partial(self._look, function))

    def _look(self, function: Callable[[], T]) -> T:
        self._check_open()
        return function()

    def _check_open(self) -> None:
        if self._over.is_set():
            raise ClosedError(_HAS_ENDED)

    async def live(self) -> None:
        """Be there until `__exit__`; what was raised is for those who wait."""
        try:
            await self._serve()
        except trio.Cancelled:
            self._error = ClosedError(_HAS_ENDED)
            raise
        except BaseException as error:  # noqa: BLE001 - raised where it is waited for
            self._error = error
        finally:
            self._over.set()
            self._ready.set()
            for scope in self._calls:
                scope.cancel()

    def lost(self) -> None:
        """Its thread has ended before it."""
        self._error = self._error or ClosedError(_HAS_ENDED)
        self._over.set()
        self._ready.set()

    async def _serve(self) -> None:
        async with TestBroker(**self._options) as self.broker:
            await self._until_end()

    async def _until_end(self) -> None:
        self._end = trio.Event()
        self._ready.set()
        await self._end.wait()
        last, self._last = self._last, None
        if last is not None:
            last()


class ClusterThread(BrokerThread):
    """A `TcpCluster` in a thread of its own; the options are those of `TcpCluster`."""

    cluster: TcpCluster
    """The cluster itself; only for `run` and `look`."""

    def __init__(self, masters: int = 2, slaves: int = 0, **options: Any) -> None:
        super().__init__()
        self._options = {"masters": masters, "slaves": slaves, **options}

    async def _serve(self) -> None:
        async with TcpCluster(**self._options) as self.cluster:
            await self._until_end()


def _not_here(face: object, original: type, name: str) -> AttributeError:
    text = f"{type(face).__name__!r} object has no attribute {name!r}"
    if hasattr(original, name) or name == "network":
        text += (
            f"; {original.__name__} has it for what runs in its own loop, on trio: parties and "
            "cuts are of its network in memory. Here all goes over TCP, by namesrv_address"
        )
    return AttributeError(text, name=name, obj=face)


class _Face:
    """What both faces share."""

    def __init__(self, thread: BrokerThread, broker: TestBroker | None = None) -> None:
        self._thread = thread
        self._target = self._broker = thread.broker if broker is None else broker

    @property
    def address(self) -> str:
        """`host:port` of the broker on TCP."""
        return str(self._broker.address)

    @property
    def namesrv_address(self) -> str:
        """`host:port` of its name server on TCP: what clients need."""
        return str(self._broker.namesrv_address)

    @property
    def own_address(self) -> str:
        """The address that routes and records name."""
        return self._broker.own_address

    @property
    def running(self) -> bool:
        """Whether it serves now."""
        return self._broker.running

    @property
    def emulates(self) -> str | None:
        """The older release that it is to its clients; None where it is itself."""
        return self._broker.emulates

    @property
    def faults(self) -> RequestFaults:
        """What goes wrong, as the test declares it; from any thread."""
        return self._broker.faults

    @property
    def seen(self) -> Recording:
        """The requests that it got."""
        return self._broker.seen

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.namesrv_address}>"

    if not TYPE_CHECKING:  # type checkers are to see what is there

        def __getattr__(self, name: str) -> Any:
            raise _not_here(self, TestBroker, name)


def _look(
    method: Callable[Concatenate[Any, P], T],
) -> Callable[Concatenate[Any, P], T]:
    """A plain method of what a face is of, called in its loop."""

    @wraps(method)
    def call(self: OfThread, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self._thread.look(partial(method, self._target, *args, **kwargs))

    return call


def blocking(
    method: Callable[Concatenate[Any, P], Awaitable[T]],
) -> Callable[Concatenate[Any, P], T]:
    """An async method of it that is waited for."""

    @wraps(method)
    def call(self: OfThread, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self._thread.run(partial(method, self._target, *args, **kwargs))

    return call


def in_asyncio(
    method: Callable[Concatenate[Any, P], Awaitable[T]],
) -> Callable[Concatenate[Any, P], Awaitable[T]]:
    """An async method of it for asyncio."""

    @wraps(method)
    async def call(self: OfThread, /, *args: P.args, **kwargs: P.kwargs) -> T:
        work = partial(method, self._target, *args, **kwargs)
        return await _to_thread(self._thread, work)

    return call


class Cancellable(Generic[T]):
    """An async function for a loop in another thread, which any thread may cancel."""

    def __init__(self, function: Callable[[], Awaitable[T]]) -> None:
        self._function = function
        self._scope = trio.CancelScope()
        self._token: trio.lowlevel.TrioToken | None = None
        self._given_up = False

    async def __call__(self) -> T:
        self._token = trio.lowlevel.current_trio_token()
        if self._given_up:  # `cancel` has not seen the token
            self._scope.cancel()
        with self._scope:
            return await self._function()
        raise ClosedError("nobody waits for it any more")

    def cancel(self) -> None:
        """Cancel it, now or when it begins; does not wait."""
        self._given_up = True
        if self._token is not None:
            with suppress(trio.RunFinishedError):
                self._token.run_sync_soon(self._scope.cancel)


async def _to_thread(thread: Elsewhere, function: Callable[[], Awaitable[T]]) -> T:
    """Run it there; a caller that is cancelled cancels it there, and waits for its end.

    Each call has a thread of its own, as those of the loop's executor are few: calls
    would wait for waits that wait for them.
    """
    work = Cancellable(function)
    future: Future[T] = Future()
    future.set_running_or_notify_cancel()  # nobody else can cancel it
    waiting = partial(copy_context().run, _fill, future, partial(thread.run, work))
    threading.Thread(target=waiting, name="a call of a test broker", daemon=True).start()
    running = asyncio.wrap_future(future)
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        work.cancel()
        # The caller asks for its outcome no more, also one that is cancelled again.
        running.add_done_callback(lambda done: done.cancelled() or done.exception())
        await asyncio.wait((running,))
        raise


def _fill(future: Future[T], function: Callable[[], T]) -> None:
    try:
        future.set_result(function())
    except BaseException as error:  # noqa: BLE001 - raised where it is waited for
        future.set_exception(error)


class Elsewhere(Protocol):
    """Where functions run that need trio: a thread."""

    def run(self, function: Callable[[], Awaitable[T]]) -> T:
        """Run an async function there, and wait for what it returns."""
        ...

    def look(self, function: Callable[[], T]) -> T:
        """The same for a plain function."""
        ...


class Watched(Protocol):
    """What waits are about."""

    wait: Any

    def report(self) -> str:
        """What it saw, for people to read."""
        ...


class OfThread(Protocol):
    """A face of something in a thread."""

    _target: Any

    @property
    def _thread(self) -> Elsewhere: ...


class WaitsOfThread:
    """What waits in both doors share."""

    def __init__(self, thread: Elsewhere, owner: Watched) -> None:
        self._thread = thread
        self._target = owner.wait
        self._report = owner.report

    def _in_vain(self, what: str, within: float) -> WaitTimeoutError:
        report = self._thread.look(self._report)
        return WaitTimeoutError(f"waited {within:g} s for {what}, but {report}")


class WaitsInThreads(WaitsOfThread):
    """What waits share in plain code."""

    def until(self, condition: Callable[[], object], what: str, *, within: float = WITHIN) -> None:
        """As `Waits.until`; the function is called in the thread of the caller."""
        clock = SystemClock()
        end, step = clock.monotonic() + checked_within(within), FIRST_STEP
        while not holds(condition):
            if clock.monotonic() >= end:
                raise self._in_vain(what, within)
            time.sleep(step)
            step = min(LONGEST_STEP, step * 1.5)


class BlockingWaits(WaitsInThreads):
    """`Waits` for plain code."""

    stored = blocking(Waits.stored)
    group = blocking(Waits.group)
    lag = blocking(Waits.lag)
    committed = blocking(Waits.committed)
    dead_letter = blocking(Waits.dead_letter)
    hit = blocking(Waits.hit)
    settled = blocking(Waits.settled)


class WaitsInAsyncio(WaitsOfThread):
    """What waits share in asyncio."""

    async def until(
        self, condition: Callable[[], object], what: str, *, within: float = WITHIN
    ) -> None:
        """As `Waits.until`; the function is called in the loop of the caller."""
        loop = asyncio.get_running_loop()
        end, step = loop.time() + checked_within(within), FIRST_STEP
        while not holds(condition):
            if loop.time() >= end:
                raise self._in_vain(what, within)
            await asyncio.sleep(step)
            step = min(LONGEST_STEP, step * 1.5)


class AsyncioWaits(WaitsInAsyncio):
    """`Waits` for asyncio."""

    stored = in_asyncio(Waits.stored)
    group = in_asyncio(Waits.group)
    lag = in_asyncio(Waits.lag)
    committed = in_asyncio(Waits.committed)
    dead_letter = in_asyncio(Waits.dead_letter)
    hit = in_asyncio(Waits.hit)
    settled = in_asyncio(Waits.settled)


class BlockingClusterWaits(WaitsInThreads):
    """`ClusterWaits` for plain code."""

    stored = blocking(ClusterWaits.stored)
    lag = blocking(ClusterWaits.lag)
    dead_letter = blocking(ClusterWaits.dead_letter)
    copied = blocking(ClusterWaits.copied)


class AsyncioClusterWaits(WaitsInAsyncio):
    """`ClusterWaits` for asyncio."""

    stored = in_asyncio(ClusterWaits.stored)
    lag = in_asyncio(ClusterWaits.lag)
    dead_letter = in_asyncio(ClusterWaits.dead_letter)
    copied = in_asyncio(ClusterWaits.copied)


class BlockingBroker(_Face):
    """A `TestBroker` in a thread, for plain code: its methods wait.

    Clients of any door and language reach it at `namesrv_address`.
    """

    health = _look(TestBroker.health)
    sent = _look(TestBroker.sent)
    requests = _look(TestBroker.requests)
    report = _look(TestBroker.report)
    check = _look(TestBroker.check)
    start = blocking(TestBroker.start)
    stop = blocking(TestBroker.stop)
    restart = blocking(TestBroker.restart)
    kill = blocking(TestBroker.kill)
    seed = blocking(TestBroker.seed)
    snapshot = blocking(TestBroker.snapshot)
    restore = blocking(TestBroker.restore)
    reset = blocking(TestBroker.reset)
    emulate = blocking(TestBroker.emulate)

    def __init__(self, thread: BrokerThread, broker: TestBroker | None = None) -> None:
        super().__init__(thread, broker)
        self.wait = BlockingWaits(thread, self._broker)
        """Waiting for what the code under test does."""


class AsyncioBroker(_Face):
    """A `TestBroker` in a thread, for asyncio: the same methods are async.

    Clients of any door and language reach it at `namesrv_address`.
    """

    health = _look(TestBroker.health)
    sent = _look(TestBroker.sent)
    requests = _look(TestBroker.requests)
    report = _look(TestBroker.report)
    check = _look(TestBroker.check)
    start = in_asyncio(TestBroker.start)
    stop = in_asyncio(TestBroker.stop)
    restart = in_asyncio(TestBroker.restart)
    kill = in_asyncio(TestBroker.kill)
    seed = in_asyncio(TestBroker.seed)
    snapshot = in_asyncio(TestBroker.snapshot)
    restore = in_asyncio(TestBroker.restore)
    reset = in_asyncio(TestBroker.reset)
    emulate = in_asyncio(TestBroker.emulate)

    def __init__(self, thread: BrokerThread, broker: TestBroker | None = None) -> None:
        super().__init__(thread, broker)
        self.wait = AsyncioWaits(thread, self._broker)
        """Waiting for what the code under test does."""


class _ClusterFace:
    """What both faces of a cluster share."""

    def __init__(self, thread: ClusterThread) -> None:
        self._thread = thread
        self._target = thread.cluster

    if not TYPE_CHECKING:  # type checkers are to see what is there

        def __getattr__(self, name: str) -> Any:
            raise _not_here(self, TestCluster, name)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.namesrv_address}>"

    @property
    def namesrv_address(self) -> str:
        """`host:port` of its name server on TCP: what clients need."""
        return self._target.namesrv_address

    @property
    def faults(self) -> ClusterFaults:
        """What goes wrong, at one broker or at any; from any thread."""
        return self._target.faults

    sent = _look(TestCluster.sent)
    requests = _look(TestCluster.requests)
    report = _look(TestCluster.report)
    check = _look(TestCluster.check)


class BlockingCluster(_ClusterFace):
    """A `TcpCluster` in a thread, for plain code: its methods wait."""

    seed = blocking(TestCluster.seed)

    def __init__(self, thread: ClusterThread) -> None:
        super().__init__(thread)
        brokers = self._target.brokers.items()
        self.brokers = {name: BlockingBroker(thread, broker) for name, broker in brokers}
        """All brokers by name, masters before their slaves."""
        self.wait = BlockingClusterWaits(thread, self._target)
        """Waiting for what all masters hold together."""


class AsyncioCluster(_ClusterFace):
    """A `TcpCluster` in a thread, for asyncio: the same methods are async."""

    seed = in_asyncio(TestCluster.seed)

    def __init__(self, thread: ClusterThread) -> None:
        super().__init__(thread)
        brokers = self._target.brokers.items()
        self.brokers = {name: AsyncioBroker(thread, broker) for name, broker in brokers}
        """All brokers by name, masters before their slaves."""
        self.wait = AsyncioClusterWaits(thread, self._target)
        """Waiting for what all masters hold together."""
