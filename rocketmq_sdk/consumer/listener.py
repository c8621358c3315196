"""What a listener may be, and how a plain function becomes an async one."""

from __future__ import annotations

import inspect
import math
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, Protocol, runtime_checkable

import attrs
import trio

from rocketmq_sdk.consumer.outcome import ConsumeOrderlyStatus
from rocketmq_sdk.errors import ConfigurationError
from rocketmq_sdk.model.received import ReceivedMessage


@attrs.frozen(eq=False)
class Failed:
    """What a call has raised."""

    error: BaseException


Results = list[object]
"""What calls have returned, in the order of their messages; of one that has raised, a
`Failed`.
"""
AsyncListener = Callable[[Any], Awaitable[object]]
Returned = ConsumeOrderlyStatus | None
MessageListener = Callable[[ReceivedMessage], Awaitable[Returned] | Returned]
"""Takes one message."""
BatchListener = Callable[[list[ReceivedMessage]], Awaitable[Returned] | Returned]
"""Takes a list of messages, for `batch` above 1."""
Listener = MessageListener | BatchListener
"""Takes one message, or with `batch` above 1 a list of messages.

It returns None, or with `auto_commit=False` a `ConsumeOrderlyStatus`.

A coroutine function, or a plain function, which then runs in a worker thread. A
coroutine that a plain function returns is awaited, as for `lambda message:
handle(message, more)`.
"""


class Calls(Protocol):
    """Calls of a listener, one for each message of several, until `abandon`."""

    async def wait(self) -> None:
        """Wait until all have ended, or some of them will not be made; may be repeated.

        Cancelling it ends the wait, and a call that can be cancelled.
        """
        ...

    def abandon(self) -> None:
        """Make no further one, and ignore what becomes of those that run."""
        ...


@runtime_checkable
class CallsEach(Protocol):
    """An async listener for one message that can be handed several at once.

    For a listener in a thread or in another loop, where each hand-over is dear.
    """

    @property
    def most_together(self) -> int:
        """How many messages to hand over at once at present."""
        ...

    def call_each(
        self,
        messages: Sequence[ReceivedMessage],
        results: Results,
        give_back: Callable[[int], None],
        /,
    ) -> Calls:
        """Begin to call the listener with one message after the other.

        `results` gets the outcome of each call. `give_back` is told the place from
        which on no message will be called, because a call takes long and the others
        shall not wait for it, or because all are abandoned.
        """
        ...


LISTENER_REMEDY: Final = "give a function of a message, or of a list of them with batch"


def is_async(listener: Listener) -> bool:
    """Whether calling a listener returns an awaitable."""
    # An object may have an `async def __call__`, which `callable` does not show.
    return inspect.iscoroutinefunction(listener) or inspect.iscoroutinefunction(
        getattr(listener, "__call__", None)  # noqa: B004 - see above
    )


def check_clock_for_threads(clock: trio.abc.Clock) -> None:
    """Raise `ConfigurationError` when a clock jumps while threads work.

    A `MockClock` with an autojump threshold does not see them: the consume timeout is
    over before the thread has begun.
    """
    if getattr(clock, "autojump_threshold", math.inf) != math.inf:
        raise ConfigurationError(
            "the listener is a plain function, which runs in a thread, and the clock jumps "
            "(MockClock with an autojump_threshold) without waiting for threads; make the listener "
            "an async function, or test it under a clock that does not jump"
        )


def in_thread(listener: Listener) -> AsyncListener:
    """A plain listener as an async one that runs in a thread.

    When the wait for it is cancelled, the thread is abandoned.
    """
    # At most one thread for each worker, and the abandoned ones.
    limiter = trio.CapacityLimiter(math.inf)

    def run(argument: Any) -> tuple[object]:
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
