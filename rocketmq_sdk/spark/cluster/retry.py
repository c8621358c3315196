"""Calls to a cluster, retried until they succeed or their time is over.

Spark ends a stream at the first error of its planner and a batch at the fourth failure
of a task, so a broker that restarts must not become an error.
"""

from __future__ import annotations

import logging
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final, TypeVar

import trio

from rocketmq_sdk.backoff import Backoff
from rocketmq_sdk.errors import RocketMQError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

logger = logging.getLogger("rocketmq_sdk.spark")
_BACKOFF: Final = Backoff(first=0.1, limit=3.0)

T = TypeVar("T")


class UnreachableError(RocketMQError):
    """A call to the cluster did not succeed within `retryTimeout`.

    The text names what was asked of whom, `__cause__` the last error.
    """


def whole_text(error: BaseException) -> str:
    """The text of an error with more context.

    It adds the queue that a send was meant for, and what was being asked.
    """
    text = str(error)
    if isinstance(error, RocketMQError) and error.last_queue is not None:
        broker, queue_id = error.last_queue
        text = f"{text} (the last try was at broker {broker!r}, queue {queue_id})"
    return ", ".join([text, *getattr(error, "__notes__", ())])


async def persistently(
    what: str,
    timeout: float,
    call: Callable[[], Awaitable[T]],
    *,
    final: tuple[type[RocketMQError], ...] = (),
    refresh: Callable[[], Awaitable[object]] | None = None,
) -> T:
    """Call until it succeeds, for up to `timeout` seconds, and return the result.

    Errors that are `retryable` are retried. Those of the classes in `final` are raised
    at once, and so are all others, with a note that says `what` was being done. After
    an error that makes routes suspect, `refresh` is called before the next try. Raises
    `UnreachableError` when the time is over.
    """
    deadline = trio.current_time() + timeout
    attempt = 0
    while True:
        try:
            return await call()
        except final:
            raise
        except RocketMQError as error:
            if not error.retryable:
                error.add_note(f"while {what}")
                raise
            pause = _BACKOFF.delay(attempt)
            if trio.current_time() + pause > deadline:
                tries = f"retryTimeout={timeout:g}s ({attempt + 1} tries)"
                raise UnreachableError(
                    f"{what} did not succeed within {tries}: {whole_text(error)}"
                ) from error
            if attempt in (0, 5):
                logger.warning("%s failed and is tried again: %s", what, whole_text(error))
            stale = error.route_stale
        attempt += 1
        await trio.sleep(pause)
        if stale and refresh is not None:
            try:
                await refresh()
            except RocketMQError as error:
                logger.debug("routes could not be asked for: %s", error)


@asynccontextmanager
async def side_by_side() -> AsyncIterator[trio.Nursery]:
    """A nursery whose first error is raised as itself.

    Whoever reads it in a Spark traceback wants one reason, not a group of them.
    """
    try:
        async with trio.open_nursery() as nursery:
            yield nursery
    except BaseExceptionGroup as group:
        error: BaseException = group.split(Exception)[0] or group
        while isinstance(error, ExceptionGroup):
            error = error.exceptions[0]
        raise error from error.__cause__
