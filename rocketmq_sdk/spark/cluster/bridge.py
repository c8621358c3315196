"""The trio thread of a Spark process.

Planners, readers and writers are plain code, while the client is asynchronous. A Spark
worker runs one task after another in one thread and may be killed at any moment; its
daemon forks before it imports this module. So the thread starts when first used,
belongs to the process that started it, and ends with it.

Clients and producers are cached by configuration, because the next task of the worker
mostly wants the same: at most `MOST_CACHED`, closed after `IDLE_SECONDS` without use.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable, Iterator
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TYPE_CHECKING, Any, Final, Generic, Self, TypeVar

import attrs
import trio

from rocketmq_sdk.errors import ClosedError, RequestTimeoutError

if TYPE_CHECKING:
    from types import TracebackType

    from rocketmq_sdk.client.runtime import Client
    from rocketmq_sdk.producer.producer import Producer
    from rocketmq_sdk.spark.cluster.access import ClusterAccess

logger = logging.getLogger("rocketmq_sdk.spark")
MOST_CACHED: Final = 4
"""Clients and producers that are kept though nobody uses them."""
IDLE_SECONDS: Final = 60.0
"""How long they are kept."""

T = TypeVar("T")


@attrs.define(eq=False)
class _Cached:
    """A client or producer, opened by a task of its own."""

    key: Hashable
    users: int = 0
    last_used: float = 0.0
    value: Any = None
    failure: BaseException | None = None
    opened: trio.Event = attrs.field(factory=trio.Event)
    scope: trio.CancelScope = attrs.field(factory=trio.CancelScope)
    close: trio.Event = attrs.field(factory=trio.Event)


class Cache:
    """Resources that are opened once and lent out.

    Lives in a nursery of one trio run.
    """

    def __init__(self, nursery: trio.Nursery) -> None:
        self._nursery = nursery
        self._entries: dict[Hashable, _Cached] = {}

    def __len__(self) -> int:
        return len(self._entries)

    @asynccontextmanager
    async def lease(
        self, key: Hashable, opener: Callable[[], AbstractAsyncContextManager[T]]
    ) -> AsyncIterator[T]:
        """The resource of a key, opened when nobody has it.

        Raises what opening raises; the next one tries again.
        """
        entry = self._entries.get(key)
        if entry is None or entry.failure is not None or entry.close.is_set():
            entry = self._entries[key] = _Cached(key)
            self._nursery.start_soon(self._hold, entry, opener)
        entry.users += 1
        try:
            await entry.opened.wait()
            if entry.failure is not None:
                raise entry.failure
            yield entry.value
        finally:
            entry.users -= 1
            entry.last_used = trio.current_time()
            self._close_surplus()

    async def _hold(
        self, entry: _Cached, opener: Callable[[], AbstractAsyncContextManager[Any]]
    ) -> None:
        try:
            async with opener() as value:
                entry.value = value
                entry.opened.set()
                await entry.close.wait()
        except Exception as error:  # noqa: BLE001 - whoever waits for the resource raises it
            if entry.opened.is_set():
                logger.warning("a cached connection ended: %s", error)
            entry.failure = error
        finally:
            entry.opened.set()
            if self._entries.get(entry.key) is entry:
                del self._entries[entry.key]

    def _close_surplus(self) -> None:
        idle = sorted(
            (entry for entry in self._entries.values() if not entry.users),
            key=lambda entry: entry.last_used,
        )
        for entry in idle[: max(0, len(self._entries) - MOST_CACHED)]:
            self._drop(entry)

    def _drop(self, entry: _Cached) -> None:
        entry.close.set()
        del self._entries[entry.key]

    async def close_idle(self) -> None:
        """Close what has been idle too long; runs until cancelled."""
        while True:
            await trio.sleep(IDLE_SECONDS / 4)
            limit = trio.current_time() - IDLE_SECONDS
            for entry in [
                entry
                for entry in self._entries.values()
                if not entry.users and entry.last_used <= limit and entry.opened.is_set()
            ]:
                self._drop(entry)


class _Loop:
    """The thread, and the jobs that are under way in it."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self.cache: Cache
        self._nursery: trio.Nursery
        self._token: trio.lowlevel.TrioToken
        self._under_way: set[Future[Any]] = set()
        self._ended = False
        self._lock = threading.Lock()
        ready = threading.Event()
        self._thread = threading.Thread(
            target=self._main, args=(ready,), name="rocketmq-trio", daemon=True
        )
        self._thread.start()
        ready.wait()

    def _main(self, ready: threading.Event) -> None:
        try:
            trio.run(self._serve, ready)
        except BaseException:
            logger.exception("the trio thread failed")
            raise
        finally:
            with self._lock:
                self._ended = True
                left = list(self._under_way)
            for future in left:
                if not future.done():
                    future.set_exception(ClosedError("the trio thread of this process has ended"))
            ready.set()

    async def _serve(self, ready: threading.Event) -> None:
        async with trio.open_nursery() as nursery:
            self._nursery, self.cache = nursery, Cache(nursery)
            self._token = trio.lowlevel.current_trio_token()
            ready.set()
            await self.cache.close_idle()

    @property
    def alive(self) -> bool:
        return not self._ended and self.pid == os.getpid()

    def start(
        self, function: Callable[..., Awaitable[T]], args: tuple[Any, ...]
    ) -> tuple[Future[T], Callable[[], None]]:
        """Begin a job; its future, and how to cancel it from any thread."""
        future: Future[T] = Future()
        scope = trio.CancelScope()
        with self._lock:
            if self._ended:
                raise ClosedError("the trio thread of this process has ended")
            self._under_way.add(future)
        self._token.run_sync_soon(
            self._nursery.start_soon, self._job, function, args, future, scope
        )

        def cancel() -> None:
            try:
                self._token.run_sync_soon(scope.cancel)
            except trio.RunFinishedError:
                logger.debug("the trio thread ended before a job of it was cancelled")

        return future, cancel

    async def _job(
        self,
        function: Callable[..., Awaitable[T]],
        args: tuple[Any, ...],
        future: Future[T],
        scope: trio.CancelScope,
    ) -> None:
        try:
            with scope:
                try:
                    value = await function(*args)
                except Exception as error:  # noqa: BLE001 - the waiting thread raises it
                    future.set_exception(error)
                else:
                    future.set_result(value)
            if not future.done():
                future.set_exception(ClosedError("the job was cancelled"))
        finally:
            self._under_way.discard(future)


_loop: _Loop | None = None
_start_lock = threading.Lock()


def _current() -> _Loop:
    global _loop, _start_lock
    found = _loop
    if found is not None and found.alive:
        return found
    if (
        found is not None and found.pid != os.getpid()
    ):  # the lock may have been held by another thread when the process was forked
        _start_lock = threading.Lock()
    with _start_lock:
        if _loop is None or not _loop.alive:
            _loop = _Loop()
        return _loop


def run(function: Callable[..., Awaitable[T]], *args: Any, timeout: float | None = None) -> T:
    """Run an async function in the trio thread of this process and wait for it.

    Call it from any other thread. Raises what the function raises, and
    `RequestTimeoutError` after `timeout` seconds. Whatever interrupts the waiting, a
    timeout or `KeyboardInterrupt`, cancels the function.
    """
    future, cancel = _current().start(function, args)
    try:
        return future.result(timeout)
    except TimeoutError:
        if future.done():
            raise
        cancel()
        raise RequestTimeoutError(
            f"{getattr(function, '__name__', function)} took longer than {timeout} s"
        ) from None
    except BaseException:
        cancel()
        raise


class Job(Generic[T]):
    """An async function that runs in the trio thread beside the block.

    `with Job(function, *args) as job: ...; job.result()`. Leaving the block cancels
    what still runs and waits until it has ended.
    """

    def __init__(self, function: Callable[..., Awaitable[T]], *args: Any) -> None:
        self._function, self._args = function, args

    def __enter__(self) -> Self:
        self._future, self._cancel = _current().start(self._function, self._args)
        return self

    def result(self) -> T:
        """What the function returns, when it has; raises what it raises."""
        return self._future.result()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if not self._future.done():
            self._cancel()
        self._future.exception()


class Feed(Generic[T]):
    """Items made in the trio thread, consumed by plain code.

    `with Feed(produce, args, ahead=2) as feed: for item in feed`. `produce(put, *args)`
    awaits `put(item)` for each item and returns when there are no more; it stays up to
    `ahead` items in front of the consumer. The consumer gets its exception after the
    items that came before it. Leaving the block cancels the producer and waits until it
    has ended.
    """

    def __init__(self, produce: Callable[..., Awaitable[None]], *args: Any, ahead: int = 1) -> None:
        self._loop = _current()
        self._produce, self._args = produce, args
        self._send, self._receive = trio.open_memory_channel[T](max(ahead, 0))
        self._future: Future[None] | None = None
        self._cancel: Callable[[], None] = lambda: None

    def __enter__(self) -> Self:
        self._future, self._cancel = self._loop.start(self._make, ())
        return self

    async def _make(self) -> None:
        async with self._send:
            await self._produce(self._send.send, *self._args)

    def __iter__(self) -> Iterator[T]:
        assert self._future is not None, "enter the feed with `with`"
        while True:
            try:
                yield run(self._receive.receive)
            except trio.EndOfChannel:
                self._future.result()
                return

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        assert self._future is not None
        self._cancel()
        self._future.exception()


@asynccontextmanager
async def client(connection: ClusterAccess) -> AsyncIterator[Client]:
    """The cached client of a configuration, in the trio thread.

    `async with bridge.client(connection) as client`.
    """
    from rocketmq_sdk.client.runtime import Client

    def opener() -> AbstractAsyncContextManager[Client]:
        return Client(connection.namesrv, **connection.client_options())

    async with _here().cache.lease(("client", connection), opener) as value:
        yield value


@asynccontextmanager
async def producer(
    connection: ClusterAccess, group: str, **options: Any
) -> AsyncIterator[Producer]:
    """The cached producer of a configuration, in the trio thread.

    `options` are those of `Producer`, with values that can be keys.
    """
    from rocketmq_sdk.producer.producer import Producer

    def opener() -> AbstractAsyncContextManager[Producer]:
        return Producer(group, namesrv=connection.namesrv, **connection.client_options(), **options)

    async with _here().cache.lease(
        ("producer", connection, group, tuple(sorted(options.items()))), opener
    ) as value:
        yield value


def cached() -> int:
    """How many clients and producers this process holds."""
    return len(_loop.cache) if _loop is not None and _loop.alive else 0


def under_way() -> int:
    """How many jobs run in the trio thread of this process: calls, reads and writes."""
    return len(_loop._under_way) if _loop is not None and _loop.alive else 0


def _here() -> _Loop:
    if _loop is None or not _loop.alive:
        raise ClosedError("clients of the bridge live in its trio thread; call this by bridge.run")
    return _loop
