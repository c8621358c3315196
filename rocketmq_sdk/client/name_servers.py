"""Choice of the name server: one while it works, the others when it does not.

Apache's client makes one attempt per call and leaves the next server to the next call
(`NettyRemotingClient.getAndCreateNameserverChannel`); here a query that finds its
server dead goes on to the others with what is left of its time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio

from rocketmq_sdk.codes import RequestCode
from rocketmq_sdk.errors import ConnectError, RequestTimeoutError, RocketMQError
from rocketmq_sdk.names import DEFAULT_TOPIC
from rocketmq_sdk.protocol.command import Command
from rocketmq_sdk.protocol.headers.routes import GetRouteInfoRequestHeader

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rocketmq_sdk.client.troubles import Troubles
    from rocketmq_sdk.remoting.client import RemotingClient


class NameServers:
    """Asks one of several name servers.

    An address None means the name server of an in-process source.
    """

    __slots__ = ("_addresses", "_chosen", "_remoting", "_troubles", "_unknown")

    def __init__(
        self,
        remoting: RemotingClient,
        addresses: Sequence[str | None],
        troubles: Troubles,
        *,
        first: int = 0,
        unknown: Callable[[], ConnectError] | None = None,
    ) -> None:
        self._remoting = remoting
        self._addresses = tuple(addresses)
        self._unknown = unknown
        self._troubles = troubles
        self._chosen = first % max(1, len(self._addresses))

    def replace(self, addresses: Sequence[str | None]) -> None:
        """Ask these from now on; the chosen one stays chosen if it is among them."""
        chosen = self.chosen if self._addresses else None
        self._addresses = tuple(addresses)
        self._chosen = self._addresses.index(chosen) if chosen in self._addresses else 0

    @property
    def chosen(self) -> str | None:
        """The address that the next query goes to."""
        return self._addresses[self._chosen]

    async def call(self, command: Command, timeout: float) -> Command:
        """The answer of the first server that gives one within `timeout` seconds.

        Raises `ConnectError` or `RequestTimeoutError` of the last one when none
        answers.
        """
        deadline = trio.current_time() + timeout
        number = len(self._addresses)
        if not number:
            assert self._unknown is not None
            raise self._unknown()
        failures: list[ConnectError | RequestTimeoutError] = []
        while True:
            chosen = self._chosen % len(self._addresses)
            share = (deadline - trio.current_time()) / (number - len(failures))
            asked = self._addresses[chosen]
            try:
                answer = await self._ask(asked, command, share)
            except (ConnectError, RequestTimeoutError) as error:
                self._troubles.name_server_failed(asked, error)
                failures.append(error)
                if self._chosen == chosen:
                    self._chosen = (chosen + 1) % len(self._addresses)
                if len(failures) == number:
                    raise
            else:
                self._troubles.name_server_answered(asked)
                return answer

    async def _ask(self, address: str | None, command: Command, timeout: float) -> Command:
        """The answer of one server.

        A connection that ends under the query may be an old one of a server that was
        restarted, so the server is asked once more, on a new one.
        """
        deadline = trio.current_time() + timeout
        try:
            return await self._remoting.call(address, command, timeout)
        except ConnectError as error:
            if not error.outcome_unknown:  # there was no connection
                raise
        return await self._remoting.call(address, command, max(0.0, deadline - trio.current_time()))

    def look_again(self, nursery: trio.Nursery, timeout: float) -> None:
        """Ask those that have been silent for some time whether they are back."""
        for address in self._troubles.silent_name_servers():
            nursery.start_soon(self._look, address, timeout)

    async def _look(self, address: str | None, timeout: float) -> None:
        header = GetRouteInfoRequestHeader(topic=DEFAULT_TOPIC, accept_standard_json_only=True)
        command = Command.request(RequestCode.GET_ROUTEINFO_BY_TOPIC, header)
        try:
            await self._remoting.call(address, command, timeout)
        except RocketMQError as error:
            self._troubles.name_server_failed(address, error)
        else:
            self._troubles.name_server_answered(address)
