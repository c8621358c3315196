"""One way to write a scenario for all doors: a coroutine that is given its door.

For the door for threads the coroutine never waits: what it awaits has been done by a
call that blocked.
"""

from __future__ import annotations

import asyncio
import inspect
import time
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import attrs
import trio

import rocketmq_sdk
from rocketmq_sdk import aio, sync
from rocketmq_sdk.aio import life as aio_life
from rocketmq_sdk.sync import life as sync_life
from support import asyncio_run

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
    from contextlib import AbstractAsyncContextManager

T = TypeVar("T")
LIMIT = 60.0
NAMES = frozenset(
    {
        *("Admin", "Client", "EmbeddedBroker", "LitePullConsumer", "Producer", "PullConsumer"),
        *("PushConsumer", "SimpleConsumer", "TransactionProducer"),
    }
)


class Blocking:
    """An object of the door for threads that looks as if it was one for trio."""

    def __init__(self, inner: Any, kind: type | None = None) -> None:
        self.inner = inner
        self._kind = kind or type(getattr(inner, "_inner", inner))

    async def __aenter__(self) -> Any:
        return Blocking.around(self.inner.__enter__())

    async def __aexit__(self, *error: Any) -> bool | None:
        result: bool | None = self.inner.__exit__(*error)
        return result

    def __aiter__(self) -> Blocking:
        return Blocking(iter(self.inner))

    async def __anext__(self) -> Any:
        try:
            return next(self.inner)
        except StopIteration:
            raise StopAsyncIteration from None

    @staticmethod
    def around(value: Any) -> Any:
        """A value as a scenario sees it."""
        blocks = hasattr(value, "__enter__") or hasattr(value, "__next__")
        return Blocking(value) if hasattr(value, "_inner") or blocks else value

    def __getattr__(self, name: str) -> Any:
        value = getattr(self.inner, name)
        if not callable(value):
            return self.around(value)
        method = inspect.unwrap(getattr(self._kind, name, value))

        def call(*args: Any, **kwargs: Any) -> Any:
            return self.around(value(*map(bare, args), **kwargs))

        async def awaited(*args: Any, **kwargs: Any) -> Any:
            return call(*args, **kwargs)

        return awaited if inspect.iscoroutinefunction(method) else call


def bare(value: Any) -> Any:
    """The object itself."""
    return value.inner if isinstance(value, Blocking) else value


@attrs.frozen
class DoorUnderTest:
    """A door, as scenarios use it."""

    name: str
    package: Any

    def __getattr__(self, name: str) -> Any:
        if name not in NAMES:
            raise AttributeError(name)
        kind = getattr(self.package, name)
        if self.name != "sync":
            return kind
        return lambda *args, **kwargs: Blocking(
            kind(*args, **{key: bare(value) for key, value in kwargs.items()})
        )

    def run(self, scenario: Callable[..., Coroutine[Any, Any, None]], *args: Any) -> None:
        """Run `scenario(door, *args)`."""
        if self.name == "trio":
            trio.run(self._on_trio, scenario, *args)
        elif self.name == "aio":
            asyncio_run.run(scenario, self, *args)
        else:
            try:
                scenario(self, *args).send(None)
            except StopIteration:
                return
            raise AssertionError("the scenario waits for something that this door does not have")

    async def _on_trio(self, scenario: Callable[..., Awaitable[None]], *args: Any) -> None:
        with trio.fail_after(LIMIT):
            await scenario(self, *args)

    @asynccontextmanager
    async def within(self, made: Callable[[], AbstractAsyncContextManager[T]]) -> AsyncIterator[T]:
        """A context manager of trio, entered in the run of the door's objects."""
        if self.name == "trio":
            async with made() as value:
                yield value
            return
        async with self.EmbeddedBroker() as anchor:
            run = bare(anchor)._running()
            there: Any
            if self.name == "aio":
                async with aio_life.Managed(run, made) as there:
                    yield there
            else:
                with sync_life.Managed(run, made) as there:
                    yield there

    async def sleep(self, seconds: float) -> None:
        """Let time pass."""
        if self.name == "trio":
            await trio.sleep(seconds)
        elif self.name == "aio":
            await asyncio.sleep(seconds)
        else:
            time.sleep(seconds)  # noqa: ASYNC251 - there is no loop

    async def until(self, condition: Callable[[], object]) -> None:
        """Wait until something is true."""
        deadline = time.monotonic() + LIMIT
        while not condition():
            assert time.monotonic() < deadline
            await self.sleep(0.005)

    def function(self, plain: Callable[[Any], object]) -> Any:
        """A function of the user's: an async one, but for threads."""
        if self.name == "sync":
            return plain

        async def function(argument: Any) -> object:
            return plain(argument)

        return function

    async def result(self, handle: Any) -> Any:
        """What has become of a submitted message."""
        return bare(handle).result() if self.name == "sync" else await handle


DOORS = (
    DoorUnderTest("trio", rocketmq_sdk),
    DoorUnderTest("aio", aio),
    DoorUnderTest("sync", sync),
)
