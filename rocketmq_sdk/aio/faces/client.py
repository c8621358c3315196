"""`Client` for asyncio.

Written by `python -m tools.doors` from `rocketmq_sdk.client.runtime`;
that is the place for changes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rocketmq_sdk.aio.faces.queries import MessageQueries
from rocketmq_sdk.aio.life import Entered
from rocketmq_sdk.client.runtime import Client as InnerClient
from rocketmq_sdk.doors.face import inner_of

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Unpack

    from rocketmq_sdk.aio.arguments import NamesrvSource
    from rocketmq_sdk.client.config import ClientConfig, ClientOptions
    from rocketmq_sdk.client.routes import DefaultTopic
    from rocketmq_sdk.clock import Clock
    from rocketmq_sdk.errors import RocketMQError
    from rocketmq_sdk.model.route import TopicRoute
    from rocketmq_sdk.protocol.command import Command
    from rocketmq_sdk.remoting.source import ChannelSource


class Client(Entered):
    """A client of a cluster, shared by producers and consumers through `client=`.

    `namesrv` is a list of addresses (text separated by `;`, or a sequence), the URL of
    an address server that names them, or an `EmbeddedBroker`; unset, `NAMESRV_ADDR` is
    read. The options are those of
    `ClientConfig`; `channels` opens the connections, instead of TCP, to the addresses
    that it knows. Use it as `async with Client(...) as client`, once; leaving the block
    ends its tasks and connections. Raises `ConfigurationError` for settings that are
    unknown or not acceptable.
    """

    _inner: InnerClient

    def __init__(
        self,
        namesrv: NamesrvSource | None = None,
        *,
        clock: Clock | None = None,
        channels: ChannelSource | None = None,
        **options: Unpack[ClientOptions],
    ) -> None:
        self._inner = InnerClient(inner_of(namesrv), clock=clock, channels=channels, **options)

    @property
    def config(self) -> ClientConfig:
        """The settings."""
        return self._inner.config

    @property
    def client_id(self) -> str:
        """The id under which brokers know the client."""
        return self._inner.client_id

    @property
    def running(self) -> bool:
        """Whether the block of the client is entered and not left."""
        return self._inner.running

    async def heartbeat_now(self) -> None:
        """Send full heartbeats to all brokers in use, and wait for their answers.

        Returns when each has answered or failed, or after a second: a broker that does
        not answer holds up nobody.
        """
        return await self._call(self._inner.heartbeat_now)

    async def route(
        self, topic: str, *, refresh: bool = False, default: DefaultTopic | None = None
    ) -> TopicRoute:
        """The route of a topic.

        A known one of a topic in use is not asked for again unless `refresh` is set.

        Raises `RouteError` (`TopicNotFoundError`) when nobody knows the topic,
        `ConnectError` or `RequestTimeoutError` when no name server answers.
        """
        return await self._call(self._inner.route, topic, refresh=refresh, default=default)

    def broker_address(self, broker_name: str, broker_id: int = 0) -> str | None:
        """The address of a broker that a route has named, or None."""
        return self._call_now(self._inner.broker_address, broker_name, broker_id)

    @property
    def name_server_text(self) -> str:
        """The name servers as one text; empty where an in-process broker is its own."""
        return self._inner.name_server_text

    async def call_addresses(
        self, requests: Sequence[tuple[str, Command]], timeout: float | None = None
    ) -> list[Command | RocketMQError]:
        """Ask several peers at the same time; errors stand where answers would."""
        return await self._call(self._inner.call_addresses, requests, timeout)

    @property
    def messages(self) -> MessageQueries:
        """Questions about stored messages: by id, key, tag, place and time."""
        return self._adopt(MessageQueries(self._inner.messages))
