"""What all channels share: calls and deadlines, serving requests, closing."""

from __future__ import annotations

import logging
import math
from abc import abstractmethod
from itertools import takewhile
from typing import TYPE_CHECKING

import trio

from rocketmq_sdk.codes import ResponseCode
from rocketmq_sdk.errors import (
    ConnectError,
    LocalProtocolError,
    RocketMQError,
    TooManyRequestsError,
)
from rocketmq_sdk.log_fields import about
from rocketmq_sdk.protocol.command import Command
from rocketmq_sdk.protocol.flags import FLAG_ONEWAY, FLAG_RESPONSE
from rocketmq_sdk.remoting.budget import OPEN_COST
from rocketmq_sdk.remoting.call_table import CallTable
from rocketmq_sdk.remoting.channel import TOGETHER, Channel, ChannelLimits, ChannelStatistics
from rocketmq_sdk.remoting.dispatch import error_response
from rocketmq_sdk.remoting.housekeeper import housekeeper

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rocketmq_sdk.remoting.channel import Continuation, Handler, Reply, Together

logger = logging.getLogger("rocketmq_sdk.remoting")


class CommandChannel(Channel):
    """Channels differ in how a command leaves (`_transmit`); the rest is here.

    An answer that the handler returns leaves at once. Requests that stay open, because
    a continuation works on them or somebody answers later, are kept in `_open` by
    identity until they are answered, so that nothing is answered twice and their number
    is known.
    """

    __slots__ = (
        "_current",
        "_finished",
        "_handler",
        "_housekeeper",
        "_nursery",
        "_open",
        "_open_bytes",
        "_scope",
        "_together",
        "calls",
        "last_read",
        "limits",
    )

    def __init__(
        self,
        handler: Handler,
        limits: ChannelLimits,
        *,
        remote_address: str,
        local_address: str,
        remote_host_packed: bytes,
    ) -> None:
        super().__init__(
            remote_address=remote_address,
            local_address=local_address,
            remote_host_packed=remote_host_packed,
        )
        self.limits = limits
        self._handler = handler
        self._together: Callable[[int], Together | None] | None = getattr(handler, "together", None)
        self._housekeeper = housekeeper()
        self.calls = CallTable(
            limits.max_in_flight, remote_address, self.channel_id, self._housekeeper.look_at
        )
        """Its own requests under way."""
        self.last_read = trio.current_time()
        """When the peer was last heard from; a peer in the process always is."""
        self._open: dict[int, tuple[Command, int]] = {}
        self._open_bytes = 0
        self._current: Command | None = None
        self._nursery: trio.Nursery | None = None
        self._scope = trio.CancelScope()
        self._finished = trio.Event()

    @abstractmethod
    def _transmit(self, command: Command) -> None:
        """Send a command. Raises `LocalProtocolError` when it cannot be written."""

    def _refuse_closed(self) -> ConnectError:
        return ConnectError(
            f"the connection to {self.remote_address} is closed: {self.close_reason}",
            address=self.remote_address,
        )

    def _refuse_unsent(self) -> TooManyRequestsError:
        unsent, limit = self.unsent_bytes(), self.limits.max_unsent_bytes
        return TooManyRequestsError(
            f"{unsent} bytes wait to be sent to {self.remote_address}; the limit is {limit}"
        )

    def statistics(self) -> ChannelStatistics:
        return ChannelStatistics(
            in_flight=len(self.calls.slots),
            requests_in_flight=len(self._open),
            unsent_bytes=self.unsent_bytes(),
            late_answers=self.calls.late_answers,
        )

    # Serving

    def respond(self, request: Command, response: Command) -> None:
        if request is self._current:
            self._current = None
        elif not self._forget_open(request):
            return
        if self.answered_late is not None:
            self.answered_late(self, request, response)
        if self.closed or request.flag & FLAG_ONEWAY:
            return
        if self.unsent_bytes() > self.limits.max_unsent_bytes:
            self.abort(
                f"{self.unsent_bytes()} bytes of late answers wait for a peer that does not read; "
                f"the limit is {self.limits.max_unsent_bytes}"
            )
            return
        self._answer(request, response)

    def _keep_open(self, request: Command) -> None:
        """A request stays without an answer; what it holds by now is counted."""
        cost = OPEN_COST + len(request.body)
        self._open[id(request)] = (request, cost)
        self._open_bytes += cost

    def _forget_open(self, request: Command) -> bool:
        found = self._open.pop(id(request), None)
        if found is None:
            return False
        self._open_bytes -= found[1]
        return True

    def _answer(self, request: Command, response: Command) -> None:
        response.opaque = request.opaque
        response.flag |= FLAG_RESPONSE
        response.encoding = request.encoding
        try:
            self._transmit(response)
        except LocalProtocolError as error:
            logger.error(
                "the answer to %r of %s cannot be sent: %s",
                request,
                self.remote_address,
                error,
                extra=about(request=request, peer=self.remote_address),
            )
            response = error_response(error)
            response.opaque = request.opaque
            response.encoding = request.encoding
            self._transmit(response)

    def _serve(self, request: Command) -> Command | None:
        """Run the handler for a request; returns the answer that is to leave now."""
        oneway = request.flag & FLAG_ONEWAY
        if len(self._open) >= self.limits.max_requests_in_flight:
            if oneway:
                logger.warning(
                    "dropping %r of %s: %d requests are open, the limit",
                    request,
                    self.remote_address,
                    len(self._open),
                    extra=about(request=request, peer=self.remote_address),
                )
                return None
            remark = (
                f"[OVERLOAD]{len(self._open)} requests of this connection are not answered yet, "
                "the limit"
            )
            return Command.response(ResponseCode.SYSTEM_BUSY, remark=remark)
        self._current = request
        try:
            answer = self._handler(self, request)
        except Exception as error:
            logger.exception(
                "request %r from %s failed",
                request,
                self.remote_address,
                extra=about(request=request, peer=self.remote_address),
            )
            answer = error_response(error)
        answered = self._current is None
        self._current = None
        if isinstance(answer, Command):
            return None if oneway or answered else answer
        if answer is not None:
            if not answered:
                self._keep_open(request)
            assert self._nursery is not None
            self._nursery.start_soon(self._continue, request, answer)
        elif not oneway and not answered:
            self._keep_open(request)
        return None

    def _serve_together(self, commands: Sequence[Command], number: int) -> Sequence[Reply] | None:
        """Serve the first of several requests of one code, from index `number` on.

        Returns an answer, or None without one, for each that was served; None where
        they cannot be served together.
        """
        first = commands[number]
        together = None if self._together is None else self._together(first.code)
        room = min(TOGETHER, self.limits.max_requests_in_flight - len(self._open))
        if together is None or room <= 0:
            return None
        try:
            answers = together(self, commands[number : number + room])
            for at, answer in enumerate(answers, number):
                if answer is None and not commands[at].flag & FLAG_ONEWAY:
                    self._keep_open(commands[at])
            return answers
        except Exception as error:
            # What was done for each of those that it may have served is not known.
            requests = list(
                takewhile(
                    lambda request: request.code == first.code and not request.is_response,
                    commands[number : number + room],
                )
            )
            logger.exception(
                "requests %r from %s failed",
                requests,
                self.remote_address,
                extra=about(peer=self.remote_address),
            )
            return [
                None if request.flag & FLAG_ONEWAY else error_response(error)
                for request in requests
            ]

    @trio.lowlevel.enable_ki_protection
    async def _continue(self, request: Command, continuation: Continuation) -> None:
        try:
            answer = await continuation()
        except RocketMQError as error:
            logger.debug(
                "request %r from %s is answered with an error: %s",
                request,
                self.remote_address,
                error,
                extra=about(request=request, peer=self.remote_address),
            )
            answer = error_response(error)
        except Exception as error:
            logger.exception(
                "request %r from %s failed",
                request,
                self.remote_address,
                extra=about(request=request, peer=self.remote_address),
            )
            answer = error_response(error)
        except BaseException:
            self._forget_open(request)
            raise
        if answer is not None:
            self.respond(request, answer)
        elif request.flag & FLAG_ONEWAY:
            self._forget_open(request)

    # Time

    @trio.lowlevel.enable_ki_protection
    def sweep(self, now: float) -> float:
        """Fail overdue calls and watch the connection. For the housekeeper."""
        due = self.calls.fail_overdue(now)
        return min(due, self._watch(now))

    def quiet_until(self, now: float) -> float:
        """When `sweep` is needed if nothing happens before; `now` for at once.

        For the housekeeper.
        """
        return max(now, min(self.calls.next_deadline(), self._watched_until()))

    def flush_queued(self) -> None:
        """Write what was queued. For the housekeeper, where it has been asked to."""

    def _watch(self, _now: float) -> float:
        """Look after the connection; gives the next moment to look again."""
        return math.inf

    def _watched_until(self) -> float:
        """When `_watch` has something to do if nothing happens before."""
        return math.inf

    # The end

    def _begin_close(self, reason: str) -> bool:
        if self.closed:
            return False
        self.closed = True
        self.close_reason = reason
        return True

    def abort(self, reason: str) -> None:
        if self._begin_close(reason):
            self._scope.cancel()

    def _finish(self) -> None:
        """The last step of closing: calls fail, the owners are told."""
        if self._finished.is_set():
            return
        self._begin_close("the task that serves it has ended")
        self._housekeeper.forget(self)
        self._open.clear()
        self._open_bytes = 0
        self.calls.fail_all(
            lambda: ConnectError(
                f"the connection to {self.remote_address} ended before the answer: "
                f"{self.close_reason}",
                address=self.remote_address,
                outcome_unknown=True,
            )
        )
        callbacks, self.on_close = self.on_close, []
        for callback in callbacks:
            try:
                callback(self)
            except Exception:
                logger.exception(
                    "a callback of the closed channel to %s failed",
                    self.remote_address,
                    extra=about(peer=self.remote_address),
                )
        self._finished.set()

    async def wait_closed(self) -> None:
        await self._finished.wait()
