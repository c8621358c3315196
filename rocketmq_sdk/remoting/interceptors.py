"""What looks at, and may change, each request of a client on its way out and each
answer on its way in (`RPCHook`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from rocketmq_sdk.protocol.command import Command


class Interceptor(Protocol):
    """Called synchronously, in the order in which interceptors were given. What it
    raises ends the call.
    """

    def before(self, command: Command, address: str | None) -> None:
        """A request is about to be sent; `address` is None for the name server of an
        in-process source.
        """
        ...

    def after(self, command: Command, response: Command, address: str | None) -> None:
        """Its answer has come, whatever the code."""
        ...
