"""Dispatch of requests by code, and answers for errors."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import trio

from rocketmq_sdk.codes import ResponseCode
from rocketmq_sdk.errors import (
    BrokerError,
    RocketMQError,
    StoreFullError,
    TooManyRequestsError,
)
from rocketmq_sdk.log_fields import about
from rocketmq_sdk.protocol.command import Command

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rocketmq_sdk.remoting.channel import Channel, Continuation, Handler, Together

logger = logging.getLogger("rocketmq_sdk.remoting")


def error_response(error: BaseException) -> Command:
    """The answer that tells a peer of an error.

    A `BrokerError`'s own code and remark, SYSTEM_BUSY for a limit,
    SERVICE_NOT_AVAILABLE for a full store, else SYSTEM_ERROR with the text.
    """
    if isinstance(error, BrokerError):
        return Command.response(error.code, remark=error.remark)
    if isinstance(error, TooManyRequestsError):
        return Command.response(ResponseCode.SYSTEM_BUSY, remark=f"[OVERLOAD]{error}")
    if isinstance(error, StoreFullError):
        return Command.response(ResponseCode.SERVICE_NOT_AVAILABLE, remark=str(error))
    if isinstance(error, RocketMQError):
        return Command.response(ResponseCode.SYSTEM_ERROR, remark=str(error))
    return Command.response(ResponseCode.SYSTEM_ERROR, remark=f"{type(error).__name__}: {error}")


class Dispatcher:
    """A `Handler` that calls the handler of the request's code.

    `handlers` maps codes to handlers, which `replace` changes; `refused` maps codes
    that are known and not served to the remark of the answer. Other codes are answered
    as Apache's server does without a default processor. Ctrl-C never interrupts a
    handler: this is the one protected entry.

    `together` has, for some of the handlers, what serves several of their requests that
    arrived together. It is used only where that very handler is in the table: whoever
    replaces or wraps it sees each request.
    """

    __slots__ = ("_handlers", "_together", "refused")

    def __init__(
        self,
        handlers: Mapping[int, Handler] | None = None,
        refused: Mapping[int, str] | None = None,
        together: Mapping[Handler, Together] | None = None,
    ) -> None:
        self._handlers: dict[int, Handler] = dict(handlers or {})
        self._together: dict[Handler, Together] = dict(together or {})
        self.refused: dict[int, str] = dict(refused or {})

    @property
    def codes(self) -> frozenset[int]:
        """The codes that are served."""
        return frozenset(self._handlers)

    def together(self, code: int) -> Together | None:
        """What serves several requests of a code at once; None for one by one."""
        handler = self._handlers.get(code)
        return None if handler is None else self._together.get(handler)

    def replace(self, code: int, handler: Handler | None) -> Handler | None:
        """Let another handler serve a code from now on, none at all with None; returns
        the handler before, or None.
        """
        before = self._handlers.pop(code, None)
        if handler is not None:
            self._handlers[code] = handler
        return before

    @trio.lowlevel.enable_ki_protection
    def __call__(self, channel: Channel, command: Command) -> Command | Continuation | None:
        """Serve one request; never raises an `Exception`."""
        handler = self._handlers.get(command.code)
        if handler is None:
            reason = self.refused.get(command.code)
            return Command.response(
                ResponseCode.REQUEST_CODE_NOT_SUPPORTED,
                remark=f" request type {command.code} not supported" if reason is None else reason,
            )
        try:
            return handler(channel, command)
        except RocketMQError as error:
            logger.debug(
                "request %r from %s is answered with an error: %s",
                command,
                channel.remote_address,
                error,
                extra=about(request=command, peer=channel.remote_address),
            )
            return error_response(error)
        except Exception as error:
            logger.exception(
                "request %r from %s failed",
                command,
                channel.remote_address,
                extra=about(request=command, peer=channel.remote_address),
            )
            return error_response(error)
