"""What a fault does to one request."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from typing import TYPE_CHECKING

import trio

from rocketmq_sdk.protocol.command import Command
from rocketmq_sdk.remoting.channel import Channel, Continuation, Handler

if TYPE_CHECKING:
    from collections.abc import Awaitable

Outcome = Command | Continuation | None
Act = Callable[[Channel, Command, Handler], Outcome]
"""Serves a request in place of the handler, its third argument, which it may call."""


async def answer_of(outcome: Outcome) -> Command | None:
    """The answer that a handler gives, now or later; None if it comes otherwise."""
    if outcome is None or isinstance(outcome, Command):
        return outcome
    return await outcome()


def failed(code: int, remark: str, *, served: bool) -> Act:
    """Answer with an error, before or after the request is served."""

    def act(channel: Channel, request: Command, serve: Handler) -> Outcome:
        if not served:
            return Command.response(code, remark=remark)
        # A copy: what the broker answers to it later concerns nobody.
        outcome = serve(channel, copy(request))
        if outcome is None or isinstance(outcome, Command):
            return Command.response(code, remark=remark)
        later = outcome

        async def after() -> Command:
            await later()
            return Command.response(code, remark=remark)

        return after

    return act


def delayed(seconds: float, *, served: bool) -> Act:
    """Serve later, or answer later."""

    def act(channel: Channel, request: Command, serve: Handler) -> Outcome:
        outcome = serve(channel, request) if served else None
        if served and outcome is None:
            return None

        async def later() -> Command | None:
            answer = await answer_of(outcome) if served else None
            await trio.sleep(seconds)
            return answer if served else await answer_of(serve(channel, request))

        return later

    return act


def request_lost(_channel: Channel, _request: Command, _serve: Handler) -> Outcome:
    """Serve nothing, answer nothing."""
    return trio.sleep_forever


def answer_lost(channel: Channel, request: Command, serve: Handler) -> Outcome:
    """Serve, and never answer."""
    outcome = serve(channel, copy(request))

    async def never() -> None:
        await answer_of(outcome)
        await trio.sleep_forever()

    return never


def closed(*, served: bool) -> Act:
    """Break the connection, before or after the request is served."""

    def act(channel: Channel, request: Command, serve: Handler) -> Outcome:
        outcome = serve(channel, copy(request)) if served else None
        if outcome is None or isinstance(outcome, Command):
            channel.abort("closed as the test wants it")
            return None
        later = outcome

        async def after() -> None:
            await later()
            channel.abort("closed as the test wants it")

        return after

    return act


class Reordering:
    """Serves two requests in the other order."""

    def __init__(self, within: float) -> None:
        self._within = within
        self._first: trio.Event | None = None

    def __call__(self, channel: Channel, request: Command, serve: Handler) -> Outcome:
        """The first of two waits until the second is served."""
        waiting = self._first
        if waiting is not None:
            self._first = None
            outcome = serve(channel, request)
            if outcome is None or isinstance(outcome, Command):
                return self._answered(outcome, waiting)
            return self._after(outcome, waiting)
        turn = self._first = trio.Event()

        async def later() -> Command | None:
            with trio.move_on_after(self._within):
                await turn.wait()
            if self._first is turn:
                self._first = None
            return await answer_of(serve(channel, request))

        return later

    @staticmethod
    def _answered(outcome: Command | None, waiting: trio.Event) -> Command | None:
        # The answer that is returned leaves before another task runs.
        waiting.set()
        return outcome

    @staticmethod
    def _after(later: Continuation, waiting: trio.Event) -> Callable[[], Awaitable[Command | None]]:
        async def after() -> Command | None:
            try:
                return await later()
            finally:
                waiting.set()

        return after
