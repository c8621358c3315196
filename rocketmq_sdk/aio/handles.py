"""Handles of submitted messages, awaited in asyncio."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

from rocketmq_sdk.aio.run import PASS, LoopRun, wake
from rocketmq_sdk.producer.handle import SendHandle as InnerSendHandle

if TYPE_CHECKING:
    from collections.abc import Generator

    from rocketmq_sdk.model.message import Message
    from rocketmq_sdk.model.results import SendResult
    from rocketmq_sdk.producer.gathered import AccumulatedHandle as InnerAccumulatedHandle
    from rocketmq_sdk.remoting.channel import SocketWait

TURNS: Final = 0.7
"""What a turn of the loop costs, in turns of trio's (measured: 2.8 of 4.2 µs)."""


class SendHandle:
    """A message that was handed over with `Producer.submit`.

    Await it (or `wait()`) for its `SendResult`; any number of tasks may.

    `done` tells that it is finished, `message_id` is its unique id. Nothing is lost by
    not awaiting it: retries go on without a waiter.
    """

    __slots__ = ("_inner", "_run")

    def __init__(self, run: LoopRun, inner: InnerSendHandle | InnerAccumulatedHandle) -> None:
        self._run = run
        self._inner = inner

    def __await__(self) -> Generator[Any, Any, SendResult]:
        return self.wait().__await__()

    @property
    def done(self) -> bool:
        """Whether it is finished."""
        return self._inner.done

    @property
    def message(self) -> Message:
        """The message."""
        return self._inner.message

    @property
    def message_id(self) -> str:
        """The unique id of the message."""
        return self._inner.message_id

    async def wait(self) -> SendResult:
        """Wait for the result.

        Raises what `Producer.send` raises. Cancelling the waiter does not touch the
        message: it stays under way, and may be awaited again.
        """
        await self._finished()
        return self._inner.outcome()

    async def settled(self) -> None:
        """Wait until the message is finished, however.

        Whoever waits here does not look at the outcome: a failure still counts as seen
        by nobody.
        """
        self._run.check()
        if not self._inner.done:
            await self._run.call(self._inner.settled)

    def outcome(self) -> SendResult:
        """The result of a finished message, or its error raised."""
        return self._inner.outcome()

    async def _finished(self) -> None:
        if self._inner.done:
            await PASS
            return
        self._run.check()
        waiter = Waiter(self._run.loop)
        self._inner.call_when_done(waiter)
        try:
            await waiter.future
        except asyncio.CancelledError:
            self._inner.do_not_call(waiter)
            raise

    def __repr__(self) -> str:
        return repr(self._inner)


class AccumulatedHandle(SendHandle):
    """One message among those of a batch.

    Await it (or `wait()`) for its `SendResult`, as a `SendHandle`; cancelling the
    waiter changes nothing.
    """

    __slots__ = ()


def handle_of(run: LoopRun, inner: InnerSendHandle | InnerAccumulatedHandle) -> SendHandle:
    """The face of a handle."""
    kind = SendHandle if isinstance(inner, InnerSendHandle) else AccumulatedHandle
    return kind(run, inner)


class Waiter:
    """Sets a future of the loop when it is called."""

    __slots__ = ("future",)

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.future: asyncio.Future[None] = loop.create_future()

    def __call__(self) -> None:
        wake(self.future)


async def sent(run: LoopRun, inner: InnerSendHandle | InnerAccumulatedHandle) -> SendResult:
    """Wait for a message as its only waiter; when cancelled, give it up."""
    if inner.done:
        await PASS
        return inner.outcome()
    try:
        wait = inner.socket_wait()
        if wait is not None and wait.hold():
            await _looked_for(run.loop, inner, wait)
        if not inner.done:
            waiter = Waiter(run.loop)
            inner.call_when_done(waiter)
            await waiter.future
    except asyncio.CancelledError:
        inner.abandon()
        raise
    return inner.outcome()


async def _looked_for(
    loop: asyncio.AbstractEventLoop,
    inner: InnerSendHandle | InnerAccumulatedHandle,
    wait: SocketWait,
) -> None:
    """Look for the answer at the socket between turns of the loop, while that pays.

    It need not be there when this returns.
    """
    inner.mark(seen=True)
    try:
        found: bool | None = None
        while found is None and not inner.done:
            await PASS
            found = wait.look(TURNS)
            if found and not inner.done and wait.hold():  # it was for others, or not all
                found = None
    finally:
        wait.release()
        if not loop.is_closed():  # else nobody gives the reader its turn
            wait.leave()
