"""What a listener may be, and how a plain function becomes one to await."""

from __future__ import annotations

import inspect
import math
from collections.abc import Awaitable, Callable
from typing import Any

import trio

AsyncListener = Callable[[Any], Awaitable[object]]
Listener = Callable[[Any], object]
"""Takes one message, or with `batch` above 1 a list; a coroutine function, or a plain
function, which then runs in a worker thread.

What a plain function returns is awaited when it is a coroutine, as that of
`lambda message: handle(message, more)` is.
"""


def is_async(listener: Listener) -> bool:
    """Whether calling a listener gives something to await."""
    # An object may have an `async def __call__`; `callable` would not tell.
    return inspect.iscoroutinefunction(listener) or inspect.iscoroutinefunction(
        getattr(listener, "__call__", None)  # noqa: B004 - see above
    )


def in_thread(listener: Listener) -> AsyncListener:
    """A plain listener as one to await: it runs in a thread, which is left to itself
    when the wait for it is cancelled.
    """
    # At most one thread for each worker, and those whose results nobody waits for any
    # more.
    limiter = trio.CapacityLimiter(math.inf)

    def run(argument: object) -> tuple[object]:
        return (
            listener(argument),
        )  # a bare coroutine is something that trio's thread does not give back

    async def call(argument: object) -> object:
        (result,) = await trio.to_thread.run_sync(
            run, argument, abandon_on_cancel=True, limiter=limiter
        )
        if inspect.iscoroutine(
            result
        ):  # a lambda or an object around an async function: only a call can tell
            return await result
        return result

    return call
