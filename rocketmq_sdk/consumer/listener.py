"""What a listener may be, and how a plain function becomes an async one."""

from __future__ import annotations

import inspect
import math
from collections.abc import Awaitable, Callable
from typing import Any

import trio

AsyncListener = Callable[[Any], Awaitable[object]]
Listener = Callable[[Any], object]
"""Takes one message, or with `batch` above 1 a list of messages.

A coroutine function, or a plain function, which then runs in a worker thread. A
coroutine that a plain function returns is awaited, as for `lambda message:
handle(message, more)`.
"""


def is_async(listener: Listener) -> bool:
    """Whether calling a listener returns an awaitable."""
    # An object may have an `async def __call__`, which `callable` does not show.
    return inspect.iscoroutinefunction(listener) or inspect.iscoroutinefunction(
        getattr(listener, "__call__", None)  # noqa: B004 - see above
    )


def in_thread(listener: Listener) -> AsyncListener:
    """A plain listener as an async one that runs in a thread.

    When the wait for it is cancelled, the thread is abandoned.
    """
    # At most one thread for each worker, and the abandoned ones.
    limiter = trio.CapacityLimiter(math.inf)

    def run(argument: object) -> tuple[object]:
        # In a tuple: trio refuses a thread's result that is a bare coroutine.
        return (listener(argument),)

    async def call(argument: object) -> object:
        (result,) = await trio.to_thread.run_sync(
            run, argument, abandon_on_cancel=True, limiter=limiter
        )
        # A lambda or an object around an async function: only a call shows it.
        if inspect.iscoroutine(result):
            return await result
        return result

    return call
