"""The client that producers, consumers and administration share.

It has connections, routes, heartbeats and calls. Follows `MQClientInstance`.
"""

from __future__ import annotations

import logging
import random
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final, Unpack

import trio

from rocketmq_sdk.client.address_server import AddressServer, instance_namespace
from rocketmq_sdk.client.api import members
from rocketmq_sdk.client.api.routes import written_route
from rocketmq_sdk.client.arguments import checked, wrong_type
from rocketmq_sdk.client.brokers import BrokerAddresses
from rocketmq_sdk.client.callbacks import CallbackDispatch, ConsumerCallbacks, ProducerCallbacks
from rocketmq_sdk.client.config import (
    CLIENT_OPTIONS,
    ClientConfig,
    ClientOptions,
    NamesrvSource,
    named_namesrv,
    resolve_namesrv,
)
from rocketmq_sdk.client.heartbeat import FIRST_AFTER, Heartbeats
from rocketmq_sdk.client.identity import local_ip, make_client_id
from rocketmq_sdk.client.name_servers import NameServers
from rocketmq_sdk.client.namespace import Namespace, NamespaceFields
from rocketmq_sdk.client.periodic_jobs import PeriodicJobs
from rocketmq_sdk.client.queries import MessageQueries
from rocketmq_sdk.client.routes import DefaultTopic, RouteCache
from rocketmq_sdk.client.troubles import Troubles
from rocketmq_sdk.clock import Clock, TrioClock
from rocketmq_sdk.distinct import process_id
from rocketmq_sdk.errors import ClosedError, ConfigurationError, RocketMQError, RouteError
from rocketmq_sdk.lifecycle import RunsOnce, open_quiet_nursery
from rocketmq_sdk.model.route import MASTER_ID, pack_host
from rocketmq_sdk.protocol.bodies.members import HeartbeatData
from rocketmq_sdk.protocol.bodies.routes import decode_route
from rocketmq_sdk.protocol.command import Command
from rocketmq_sdk.protocol.message_id import UniqueIdGenerator
from rocketmq_sdk.remoting.client import RemotingClient
from rocketmq_sdk.remoting.credentials import Signing
from rocketmq_sdk.validators import refuse_unknown

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from rocketmq_sdk.model.route import TopicRoute
    from rocketmq_sdk.remoting.channel import Channel
    from rocketmq_sdk.remoting.source import ChannelSource

logger = logging.getLogger("rocketmq_sdk.client")
WRITTEN_ROUTES: Final = 1024
"""Most routes that are remembered with their bytes."""
UNREGISTER_TIMEOUT: Final = 1.0
"""Seconds that leaving waits for each broker's word that it has forgotten a group."""


def check_client(client: object) -> None:
    """Refuse what is no client to share. Raises `WrongTypeError`."""
    if client is not None and not isinstance(client, Client):
        raise wrong_type("client", client, "a Client, or namesrv= with a name server or broker")


def _check_command(command: object) -> None:
    if not isinstance(command, Command):
        raise wrong_type("command", command, "a Command")


class Client(RunsOnce):
    """A client of a cluster, shared by producers and consumers through `client=`.

    `namesrv` is a list of addresses (text separated by `;`, or a sequence), the URL of
    an address server that names them, or an `EmbeddedBroker`; unset, `NAMESRV_ADDR` is
    read. The options are those of
    `ClientConfig`; `channels` opens the connections, instead of TCP, to the addresses
    that it knows. Use it as `async with Client(...) as client`, once; leaving the block
    ends its tasks and connections. Raises `ConfigurationError` for settings that are
    unknown or not acceptable.
    """

    _second_time = "a client runs once; make a new one"

    def __init__(
        self,
        namesrv: NamesrvSource | None = None,
        *,
        clock: Clock | None = None,
        channels: ChannelSource | None = None,
        **options: Unpack[ClientOptions],
    ) -> None:
        refuse_unknown(options, CLIENT_OPTIONS, "Client")
        self.config = ClientConfig(**options)
        namesrv = named_namesrv(namesrv)
        source = resolve_namesrv(namesrv)
        self._source = channels if isinstance(source, tuple) else source
        self._addresses: tuple[str, ...] = source if isinstance(source, tuple) else ()
        self._own_clock = TrioClock() if clock is None else None
        self.clock: Clock = clock or self._own_clock or TrioClock()
        self._address_server: AddressServer | None = None
        if source == () and isinstance(namesrv, str):
            self._address_server = AddressServer(
                namesrv.strip(), self.config.unit_name, self._name_servers_changed
            )
        near = (self._address_server.host,) if self._address_server else self._addresses
        ip = self.config.client_ip or local_ip(near)
        self.client_id: str = make_client_id(ip, self.config.instance_name, self.config.unit_name)
        self.ids = UniqueIdGenerator(pack_host(ip, 0)[:-4], process_id(), self.clock)
        instance = instance_namespace(namesrv) if isinstance(namesrv, str) else ""
        self.namespace = Namespace(self.config.namespace or instance)
        own = [NamespaceFields(self.config.namespace_v2)] if self.config.namespace_v2 else []
        keys = self.config.credentials
        signing = [] if keys is None else [Signing(keys)]
        self._interceptors = [*own, *self.config.interceptors, *signing]
        self.brokers = BrokerAddresses()
        self.troubles = Troubles(lambda: self._addresses or (None,))
        self.routes = RouteCache(
            self._ask_route,
            self.brokers,
            interval=self.config.poll_name_server_interval,
            on_changed=self._route_changed,
        )
        self._written_routes: dict[str, tuple[bytes, TopicRoute]] = {}
        """Routes by topic, with the bytes that they were read out of."""
        self._consumers: dict[str, ConsumerCallbacks] = {}
        self._producers: dict[str, ProducerCallbacks] = {}
        self._jobs = PeriodicJobs()
        self._callbacks = CallbackDispatch(self._consumers, self._producers)
        self._heartbeats = Heartbeats(
            self,
            self.brokers,
            self.heartbeat_data,
            self.config.heartbeat_broker_interval,
            self.troubles,
            v2=self.config.use_heartbeat_v2,
        )
        self._remoting: RemotingClient | None = None
        self._name_servers: NameServers | None = None
        self._nursery: trio.Nursery | None = None

    # --- life

    @asynccontextmanager
    async def _run(self) -> AsyncIterator[None]:
        if self._own_clock is None:
            async with self._run_by_clock():
                yield
        else:
            with self._own_clock.of_this_run():
                async with self._run_by_clock():
                    yield

    @asynccontextmanager
    async def _run_by_clock(self) -> AsyncIterator[None]:
        async with (
            RemotingClient.open(
                self._source,
                self._callbacks.handler,
                connect_timeout=self.config.connect_timeout,
                tls=self.config.tls,
                interceptors=self._interceptors,
            ) as remoting,
            open_quiet_nursery() as nursery,
        ):
            self._remoting = remoting
            remoting.on_connect.append(self._connected)
            await self._find_name_servers(remoting, nursery)
            self._nursery = nursery
            await nursery.start(self.routes.run, nursery)
            self._jobs.add(nursery, self._heartbeats.beat_regularly, FIRST_AFTER)
            nursery.start_soon(self._jobs.run)
            try:
                yield
            finally:
                self._nursery = None
                nursery.cancel_scope.cancel()

    async def _find_name_servers(self, remoting: RemotingClient, nursery: trio.Nursery) -> None:
        server = self._address_server
        if server is None:
            servers: tuple[str | None, ...] = self._addresses or (None,)
            self._name_servers = NameServers(
                remoting, servers, self.troubles, first=random.randrange(len(servers))
            )
            return
        self._name_servers = NameServers(remoting, (), self.troubles, unknown=server.unknown)
        await server.refresh()
        nursery.start_soon(server.run)

    def _name_servers_changed(self, addresses: tuple[str, ...]) -> None:
        """The address server has named others."""
        self._addresses = addresses
        if self._name_servers is not None:
            self._name_servers.replace(random.sample(addresses, len(addresses)))

    @property
    def jobs(self) -> PeriodicJobs:
        """What is done again and again, for the client and for its members."""
        return self._jobs

    @property
    def running(self) -> bool:
        """Whether the block of the client is entered and not left."""
        return self._nursery is not None

    @property
    def nursery(self) -> trio.Nursery:
        """Where tasks live that belong to the client.

        Cancelled when its block is left.
        """
        self.check_run()
        if self._nursery is None:
            raise ClosedError("the client is not running; enter it with `async with`")
        return self._nursery

    @property
    def remoting(self) -> RemotingClient:
        """The connections."""
        self.check_run()
        if self._remoting is None:
            raise ClosedError("the client is not running; enter it with `async with`")
        return self._remoting

    # --- members

    def register_producer(self, group: str, owner: ProducerCallbacks) -> None:
        """Register a producer under its group.

        Raises `ConfigurationError` when the group has a producer here.
        """
        self.check_run()
        if group in self._producers:
            raise ConfigurationError(
                f"the client has a producer of group {group!r} already; share that one, or give "
                "each a client of its own"
            )
        self._producers[group] = owner

    def register_consumer(self, group: str, owner: ConsumerCallbacks) -> None:
        """Register a consumer under its group.

        Raises `ConfigurationError` when the group has a consumer here.
        """
        self.check_run()
        if group in self._consumers:
            raise ConfigurationError(
                f"the client has a consumer of group {group!r} already; give each a client of its "
                "own"
            )
        self._consumers[group] = owner

    async def unregister_producer(self, group: str) -> None:
        """Forget a producer and tell the brokers; failures are logged.

        The caller bounds the time.
        """
        if self._producers.pop(group, None) is not None:
            await self._unregister(producer_group=group)

    async def unregister_consumer(self, group: str) -> None:
        """Forget a consumer and tell the brokers; failures are logged.

        The caller bounds the time.
        """
        if self._consumers.pop(group, None) is not None:
            await self._unregister(consumer_group=group)

    async def _unregister(
        self, *, producer_group: str | None = None, consumer_group: str | None = None
    ) -> None:
        # A broker without a connection has nothing to forget: it takes a closed
        # connection as leaving.
        remoting = self._remoting
        if remoting is None:
            return
        addresses = [
            address
            for address in self.brokers.all()
            if remoting.channel_nowait(address) is not None
        ]

        async def leave(address: str) -> None:
            try:
                await members.unregister(
                    self,
                    address,
                    producer_group=producer_group,
                    consumer_group=consumer_group,
                    timeout=UNREGISTER_TIMEOUT,
                )
            except RocketMQError as error:
                logger.info(
                    "leaving %s at %s failed: %s", producer_group or consumer_group, address, error
                )

        async with trio.open_nursery() as nursery:
            for address in addresses:
                nursery.start_soon(leave, address)

    def heartbeat_data(self) -> HeartbeatData:
        """What brokers are told of this client now."""
        return HeartbeatData(
            self.client_id,
            tuple(self._producers),
            tuple(owner.heartbeat_data() for owner in self._consumers.values()),
        )

    async def heartbeat_now(self) -> None:
        """Send full heartbeats to all brokers in use, and wait for their answers.

        Returns when each has answered or failed, or after a second: a broker that does
        not answer holds up nobody.
        """
        await self._heartbeats.beat_all_now(self.nursery)

    def _connected(self, address: str | None, channel: Channel) -> None:
        """A connection was opened, for the first time or again.

        The broker must learn at once who is on it.
        """
        if address is not None:
            channel.on_close.append(lambda _closed: self._disconnected(address))
        if address is not None:
            self._heartbeats.forget(address)
        if (
            address is not None
            and self._nursery is not None
            and self.brokers.name_of(address) is not None
        ):
            self._nursery.start_soon(self._introduce, address)

    def _disconnected(self, address: str) -> None:
        broker_name = self.brokers.name_of(address)
        # A connection that was retired ends when another one is there already.
        if broker_name is not None and (
            self._remoting is None or self._remoting.channel_nowait(address) is None
        ):
            for owner in list(self._consumers.values()):
                owner.on_broker_disconnected(broker_name)

    async def _introduce(self, address: str) -> None:
        await self._heartbeats.beat(address)
        for owner in list(self._consumers.values()):
            owner.on_broker_connected(address)

    # --- routes

    async def _ask_route(self, topic: str) -> TopicRoute:
        try:
            written = await written_route(self, topic)
            # Most routes are the same for days.
            known = self._written_routes.get(topic)
            if known is None or known[0] != written:
                if len(self._written_routes) >= WRITTEN_ROUTES:
                    self._written_routes.clear()
                known = self._written_routes[topic] = (written, decode_route(written))
            return known[1]
        finally:
            if self._name_servers is not None and self._nursery is not None:
                self._name_servers.look_again(self._nursery, self.config.api_timeout)

    @checked
    async def route(
        self, topic: str, *, refresh: bool = False, default: DefaultTopic | None = None
    ) -> TopicRoute:
        """The route of a topic.

        A known one of a topic in use is not asked for again unless `refresh` is set.

        Raises `RouteError` (`TopicNotFoundError`) when nobody knows the topic,
        `ConnectError` or `RequestTimeoutError` when no name server answers.
        """
        self.check_run()
        if not refresh and topic in self.routes.topics():
            known = self.routes.get(topic)
            if known is not None:
                return known
        return await self.routes.fetch(topic, default)

    def _route_changed(self, topic: str) -> None:
        owners: list[ConsumerCallbacks | ProducerCallbacks] = [
            *self._consumers.values(),
            *self._producers.values(),
        ]
        for owner in owners:
            owner.on_route_changed(topic)

    def broker_address(self, broker_name: str, broker_id: int = 0) -> str | None:
        """The address of a broker that a route has named, or None."""
        return self.brokers.address(broker_name, broker_id)

    # --- calls

    @property
    def name_server_text(self) -> str:
        """The name servers as one text; empty where an in-process broker is its own."""
        return ";".join(self._addresses)

    async def call_name_server(self, command: Command, timeout: float | None = None) -> Command:
        """Ask a name server: the chosen one, the others when it fails.

        Raises `ConnectError` or `RequestTimeoutError` when none answers.
        """
        _check_command(command)
        self.check_run()
        if self._name_servers is None:
            raise ClosedError("the client is not running; enter it with `async with`")
        command.encoding = self.config.header_encoding
        return await self._name_servers.call(
            command, self.config.api_timeout if timeout is None else timeout
        )

    async def call_address(
        self, address: str, command: Command, timeout: float | None = None
    ) -> Command:
        """Ask the peer at an address; connects when there is no connection.

        Returns the answer whatever its code.
        """
        _check_command(command)
        command.encoding = self.config.header_encoding
        return await self.remoting.call(
            address, command, self.config.api_timeout if timeout is None else timeout
        )

    async def call_addresses(
        self, requests: Sequence[tuple[str, Command]], timeout: float | None = None
    ) -> list[Command | RocketMQError]:
        """Ask several peers at the same time; errors stand where answers would."""
        for request in requests:
            if not isinstance(request, tuple) or len(request) != 2:
                raise wrong_type("requests", request, "pairs of an address and a Command")
            _address, command = request
            _check_command(command)
            command.encoding = self.config.header_encoding
        return await self.remoting.call_all(
            requests, self.config.api_timeout if timeout is None else timeout
        )

    async def call_broker(
        self,
        broker_name: str,
        command: Command,
        timeout: float | None = None,
        *,
        broker_id: int = 0,
        any_replica: bool = False,
    ) -> Command:
        """Ask a broker by name.

        With `any_replica` a slave is asked while the routes name no master. Raises
        `RouteError` when they name nobody.
        """
        _check_command(command)
        self.check_run()
        address = self._known_address(broker_name, broker_id, any_replica=any_replica)
        return await self.call_address(address, command, timeout)

    async def oneway_broker(
        self,
        broker_name: str,
        command: Command,
        timeout: float | None = None,
        *,
        any_replica: bool = False,
    ) -> None:
        """Hand a one-way command to the connection of a master.

        With `any_replica` a slave gets it while the routes name no master. Opening the
        connection may take up to `timeout`.
        """
        _check_command(command)
        self.check_run()
        command.encoding = self.config.header_encoding
        address = self._known_address(broker_name, MASTER_ID, any_replica=any_replica)
        self.remoting.intercept(address, command)
        channel = self.remoting.channel_nowait(address)
        if channel is None:
            channel = await self.remoting.channel(
                address, self.config.api_timeout if timeout is None else timeout
            )
        channel.send_oneway(command)

    @property
    def messages(self) -> MessageQueries:
        """Questions about stored messages: by id, key, tag, place and time."""
        return MessageQueries(self)

    def _known_address(self, broker_name: str, broker_id: int, *, any_replica: bool) -> str:
        address = self.brokers.address(broker_name, broker_id)
        if address is None and any_replica and broker_id == MASTER_ID:
            replica = self.brokers.subscribe_address(broker_name)
            address = None if replica is None else replica.address
        if address is None:
            raise RouteError(f"no route has named the broker {broker_name!r} with id {broker_id}")
        return address
