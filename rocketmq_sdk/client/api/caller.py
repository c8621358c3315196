"""What typed calls need of a client, and how an answer becomes a result or an error."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from rocketmq_sdk.errors import broker_error

if TYPE_CHECKING:
    from rocketmq_sdk.protocol.command import Command


class Caller(Protocol):
    """Delivers commands.

    `Client` is one; timeouts are seconds, None means the client's `api_timeout`.
    """

    @property
    def client_id(self) -> str:
        """How brokers know the client."""
        ...

    async def call_name_server(self, command: Command, timeout: float | None = None) -> Command:
        """Ask a name server.

        Raises `ConnectError` or `RequestTimeoutError` when none answers.
        """
        ...

    async def call_address(
        self, address: str, command: Command, timeout: float | None = None
    ) -> Command:
        """Ask the peer at an address."""
        ...

    async def call_broker(
        self,
        broker_name: str,
        command: Command,
        timeout: float | None = None,
        *,
        broker_id: int = 0,
    ) -> Command:
        """Ask a broker by name. Raises `RouteError` when no route has named it."""
        ...

    async def oneway_broker(
        self, broker_name: str, command: Command, timeout: float | None = None
    ) -> None:
        """Hand a one-way command to the connection of a master.

        Opening that connection may take up to `timeout`.
        """
        ...


def checked(
    response: Command,
    *,
    address: str | None = None,
    topic: str | None = None,
    group: str | None = None,
) -> Command:
    """The response if it says success, else its error raised."""
    if response.code != 0:
        raise broker_error(
            response.code, response.remark, address=address, topic=topic, group=group
        )
    return response
