"""What typed calls need of a client, and how an answer becomes a result or an error."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from rocketmq_sdk.errors import broker_error

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rocketmq_sdk.errors import RocketMQError
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
        any_replica: bool = False,
    ) -> Command:
        """Ask a broker by name. Raises `RouteError` when no route has named it.

        `any_replica` says that a slave may be asked while the routes name no master:
        the request is one whose row at the broker is for any replica, and the answer
        helps a consumer to go on reading.
        """
        ...

    async def oneway_broker(
        self,
        broker_name: str,
        command: Command,
        timeout: float | None = None,
        *,
        any_replica: bool = False,
    ) -> None:
        """Hand a one-way command to the connection of a master.

        `any_replica` as with `call_broker`. Opening the connection may take up to
        `timeout`.
        """
        ...


class AddressesCaller(Caller, Protocol):
    """Asks several brokers at the same time, too."""

    def broker_address(self, broker_name: str, broker_id: int = 0) -> str | None:
        """The address of a broker that a route has named, or None."""
        ...

    async def call_addresses(
        self, requests: Sequence[tuple[str, Command]], timeout: float | None = None
    ) -> list[Command | RocketMQError]:
        """Ask several peers at the same time; errors stand where answers would."""
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
