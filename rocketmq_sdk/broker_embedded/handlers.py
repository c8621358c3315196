"""What the modules of administration share."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, TypeVar

from rocketmq_sdk.errors import FieldError, RemoteProtocolError
from rocketmq_sdk.protocol.bodies.topics import DataVersion
from rocketmq_sdk.protocol.command import Command

if TYPE_CHECKING:
    from rocketmq_sdk.broker_embedded.core import BrokerContext
    from rocketmq_sdk.codes import RequestCode, ResponseCode
    from rocketmq_sdk.remoting.channel import Channel, Continuation, Handler

Serve = Callable[["BrokerContext", Command], "Command | Continuation"]
_Value = TypeVar("_Value")


def bind_all(context: BrokerContext, served: Mapping[RequestCode, Serve]) -> dict[int, Handler]:
    """Handlers that serve requests of any channel with a context."""

    def bind(serve: Serve) -> Handler:
        def handle(_channel: Channel, command: Command) -> Command | Continuation:
            return serve(context, command)

        return handle

    return {int(code): bind(serve) for code, serve in served.items()}


def refused(code: ResponseCode, remark: str) -> Command:
    """An answer that is no success."""
    return Command.response(code, remark=remark)


def answer_when_registered(context: BrokerContext, answer: Command) -> Command | Continuation:
    """An answer that leaves when the name servers have been told what changed, or after
    the time that registration allows for it.
    """
    wait = context.registered()
    if wait is None:
        return answer

    async def finish() -> Command:
        await wait()
        return answer

    return finish


def page(
    table: Mapping[str, _Value],
    version: DataVersion,
    *,
    start: int | None,
    asked_version: str | None,
    limit: int | None,
    most: int,
) -> dict[str, _Value]:
    """A slice of a table for peers that fetch it in parts, the whole of it for those
    that name no start.

    A peer that names another version than the current one begins anew, as its earlier
    parts are of no use.
    """
    if start is None:
        return dict(table)
    if asked_version:
        try:
            start = start if DataVersion.decode(asked_version.encode()) == version else 0
        except RemoteProtocolError as error:
            raise FieldError(
                f"the field dataVersion is {asked_version[:60]!r}, no version"
            ) from error
    count = most if limit is None or limit <= 0 else min(limit, most)
    names = list(table)[max(0, start) : max(0, start) + count]
    return {name: table[name] for name in names}
