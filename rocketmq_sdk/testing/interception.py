"""Requests of a running broker or name server, watched or answered by a test.

    with intercept(broker, RequestCode.PULL_MESSAGE, by=refused()) as pulls:
        ...
    assert pulls.counts[RequestCode.PULL_MESSAGE] > 1

Nothing is paid for requests that nobody intercepts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from copy import copy
from typing import TYPE_CHECKING

import trio

from rocketmq_sdk.codes import ResponseCode
from rocketmq_sdk.protocol.command import Command
from rocketmq_sdk.remoting.channel import Channel, Continuation, Handler
from rocketmq_sdk.remoting.dispatch import Dispatcher
from rocketmq_sdk.remoting.housekeeper import housekeeper

if TYPE_CHECKING:
    from types import TracebackType

    from rocketmq_sdk.broker_embedded.broker import EmbeddedBroker
    from rocketmq_sdk.broker_embedded.namesrv.server import NameServer

Interceptor = Callable[[Channel, Command, Handler], Command | Continuation | None]
"""Serves a request in place of a handler, which it gets as its third argument and may
call: `interceptor(channel, request, serve)`. It returns what a handler may: an answer,
an async function that gives the answer later, or None for no answer at all.
"""


class Interception:
    """Interceptors at work, from `intercept` until `restore` or the end of a `with`."""

    def __init__(self, dispatcher: Dispatcher, codes: frozenset[int], by: Interceptor) -> None:
        self.requests: list[Command] = []
        """Every request that was intercepted, in order of arrival."""
        self._dispatcher = dispatcher
        self._by: Interceptor | None = by
        self._installed = {code: self._install(code) for code in codes}

    @property
    def counts(self) -> Counter[int]:
        """How many requests of each code were intercepted."""
        return Counter(request.code for request in self.requests)

    def restore(self) -> None:
        """Let the broker serve the requests again."""
        self._by = None
        for code, (own, before) in self._installed.items():
            current = self._dispatcher.replace(code, before)
            if current is not own:  # a later interception, which passes on to this one
                self._dispatcher.replace(code, current)
        self._installed.clear()

    def __enter__(self) -> Interception:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.restore()

    def _install(self, code: int) -> tuple[Handler, Handler | None]:
        before = self._dispatcher.replace(code, None)
        serve = before or Dispatcher(refused=self._dispatcher.refused)

        def intercepted(channel: Channel, request: Command) -> Command | Continuation | None:
            if self._by is None:
                return serve(channel, request)
            # The broker may empty a request that it holds.
            self.requests.append(copy(request))
            housekeeper().hide_nothing()
            return self._by(channel, request, serve)

        self._dispatcher.replace(code, intercepted)
        return intercepted, before


def passed_on(channel: Channel, request: Command, serve: Handler) -> Command | Continuation | None:
    """Only watch: the broker serves the request."""
    return serve(channel, request)


def unanswered(_channel: Channel, _request: Command, _serve: Handler) -> Continuation:
    """Never answer, and serve nothing."""
    return trio.sleep_forever


def refused(
    code: int = ResponseCode.SYSTEM_ERROR, remark: str = "as the test wants it"
) -> Interceptor:
    """Answer with an error, and serve nothing."""

    def refuse(_channel: Channel, _request: Command, _serve: Handler) -> Command:
        return Command.response(code, remark=remark)

    return refuse


def intercept(
    at: EmbeddedBroker | NameServer | Dispatcher, *codes: int, by: Interceptor = passed_on
) -> Interception:
    """Let `by` serve requests of some codes, of all that are served without `codes`.

    It begins at once and ends with `restore`, with the `with` block that it may be used
    in, or when the broker closes. Interceptions may lie one over another: the last one
    is asked first. A broker must be open; its second port for quick requests (VIP) is
    not intercepted.
    """
    dispatcher = at if isinstance(at, Dispatcher) else at.handler
    return Interception(dispatcher, frozenset(codes) or dispatcher.codes, by)
