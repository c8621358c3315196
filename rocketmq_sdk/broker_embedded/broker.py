"""The embedded broker: a name server and a broker in this process, and the root where
all their parts are put together.
"""

from __future__ import annotations

import logging
import os
import ssl
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import attrs
import trio

from rocketmq_sdk.broker_embedded.composition import (
    make_context,
    make_dispatcher,
    resolve_settings,
    vip_dispatcher,
)
from rocketmq_sdk.broker_embedded.fast_failure import FastFailure
from rocketmq_sdk.broker_embedded.housekeeping import Housekeeping
from rocketmq_sdk.broker_embedded.members.assignment import TopicQueues
from rocketmq_sdk.broker_embedded.namesrv.server import NameServer, dialled_address
from rocketmq_sdk.broker_embedded.registration.calls import BrokerIdentity
from rocketmq_sdk.broker_embedded.registration.service import RegistrationService
from rocketmq_sdk.broker_embedded.replication.role import open_ha_listeners, wants_port
from rocketmq_sdk.broker_embedded.settings.config import BrokerConfig, LiveConfig
from rocketmq_sdk.broker_embedded.store.files.config_file import ConfigFile
from rocketmq_sdk.broker_embedded.store.files.memory_files import MemoryFileSystem
from rocketmq_sdk.broker_embedded.store.files.os_files import OsFileSystem
from rocketmq_sdk.broker_embedded.store.message_store import MessageStore
from rocketmq_sdk.clock import Clock, TrioClock
from rocketmq_sdk.errors import ClosedError, ConfigurationError, RocketMQError, StoreError
from rocketmq_sdk.lifecycle import RunsOnce, bounded_cleanup, open_quiet_nursery
from rocketmq_sdk.model.route import join_address, pack_host, split_address
from rocketmq_sdk.names import SCHEDULE_TOPIC, TIMER_TOPIC, revive_topic
from rocketmq_sdk.remoting.client import RemotingClient
from rocketmq_sdk.remoting.dispatch import Dispatcher
from rocketmq_sdk.remoting.local import check_same_run
from rocketmq_sdk.remoting.server import RemotingServer
from rocketmq_sdk.remoting.source import TcpChannelSource
from rocketmq_sdk.transport.tcp import open_tcp_listeners

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

    from rocketmq_sdk.broker_embedded.core import BrokerContext
    from rocketmq_sdk.broker_embedded.store.config import StoreConfig
    from rocketmq_sdk.broker_embedded.store.files.file_system import FileSystem
    from rocketmq_sdk.remoting.channel import Channel, Handler

logger = logging.getLogger(__name__)

MEMORY: Final = ":memory:"
CLOSE_TIMEOUT: Final = 10.0
"""Seconds that leaving the block may take, besides the last sync of the store."""
ABANDON_TIMEOUT: Final = 2.0
"""The same when the block is left by an exception or a cancellation."""
_NO_LIMIT: Final = (1 << 31) - 1
_LOCAL_HOST: Final = "127.0.0.1"
_DEFAULT_PORT: Final = 10911
VIP_DISTANCE: Final = 2
_WILDCARDS: Final = frozenset({"0.0.0.0", "::"})


class EmbeddedBroker(RunsOnce):
    """A complete name server and broker in this process, in memory or in a directory.

        async with EmbeddedBroker() as broker:
            async with Producer("shop", namesrv=broker) as producer:
                ...

    `path` is the directory of a durable store, in the format of Apache's broker; None
    or ":memory:" keeps everything in memory, isolated from all other brokers and
    bounded by the setting `memory_limit` (None with the setting `store_path_root_dir`
    opens that directory). `listen` and `namesrv_listen` open TCP ports for the broker
    and the name server, as "host:port" or a port number on 127.0.0.1, 0 for any free
    one; without them only this process can reach the broker, by passing it as
    `namesrv=`. With `tls` both ports speak TLS too; the first byte of a connection
    decides, as in Apache's permissive mode. Single settings are given by their Apache
    names in either spelling, as in `flush_disk_type="SYNC_FLUSH"`; they change
    `config`.

    Entering the block raises `ConfigurationError` for bad settings, `StoreLockedError`
    when another broker has the directory open, `StoreError` when it cannot be opened.
    Leaving it answers held requests, closes connections, writes and syncs everything,
    in at most 10 s (2 s when the block is left by an exception or a cancellation) and
    the time of the last sync. All of it is tried; the first error comes out at the end,
    unless the block was left by another one. When a service of the broker fails, the
    block is cancelled and left with one `RocketMQError` that names the service.

    All channels, local ones too, belong to the trio run in which the block was entered;
    use from another run raises a `RocketMQError`.
    """

    _second_time = "a broker object is opened once; make another one"

    def __init__(
        self,
        path: str | os.PathLike[str] | None = None,
        *,
        listen: str | int | None = None,
        namesrv_listen: str | int | None = None,
        tls: ssl.SSLContext | None = None,
        config: BrokerConfig | None = None,
        clock: Clock | None = None,
        **settings: object,
    ) -> None:
        self._live = LiveConfig(resolve_settings(config, settings))
        root = self._live.current.store_path_root_dir if path is None else os.fspath(path)
        self._path = None if root is None or root == MEMORY else Path(root)
        self._listen = _parse_listen(listen)
        self._namesrv_listen = _parse_listen(namesrv_listen)
        if tls is not None and not isinstance(tls, ssl.SSLContext):
            raise ConfigurationError(
                f"tls is {tls!r}; give an ssl.SSLContext that holds the broker's certificate"
            )
        self._tls = tls
        self._clock = clock or TrioClock()
        self._token: trio.lowlevel.TrioToken | None = None
        self._host = _LOCAL_HOST
        self._port: int | None = None
        self._accepting: list[tuple[trio.CancelScope, trio.Event]] = []
        self.on_recovery: Callable[[int, int], None] | None = None
        """Told, from another thread, how many bytes of how many of the log a long start
        has read; to be set before the block is entered.
        """
        self.address: str | None = None
        """`host:port` of the broker on TCP; None without `listen`."""
        self.namesrv_address: str | None = None
        """`host:port` of the name server on TCP; None without `namesrv_listen`."""
        self.ha_address: str | None = None
        """`host:port` for slaves; None where this broker has none (see
        `haListenPort`).
        """
        self._ha_port = 0
        self._ha_listeners: list[trio.SocketListener] = []
        self._vip_listeners: list[trio.SocketListener] = []
        self.context: BrokerContext
        """Managers, services and store, while the broker is open."""
        self.namesrv: NameServer
        """The name server, while the broker is open."""
        self.server: RemotingServer
        """The broker's ends of all connections, while it is open."""
        self.vip_server: RemotingServer
        """The same for the VIP port."""
        self.namesrv_server: RemotingServer
        """The name server's ends of all connections, while it is open."""

    def __repr__(self) -> str:
        where = self._path if self._path is not None else MEMORY
        return f"<EmbeddedBroker {where} {self.address or 'without ports'}>"

    @property
    def config(self) -> BrokerConfig:
        """The settings in force."""
        return self._live.current

    @property
    def store(self) -> MessageStore:
        """The message store, while the broker is open."""
        return self.context.store

    @property
    def handler(self) -> Dispatcher:
        """The broker's table of handlers, while it is open."""
        return self._dispatcher

    # The source of channels

    def knows(self, address: str) -> bool:
        """Whether an address is this broker's own."""
        return address in (self._own_address(), self.namesrv_address)

    async def open_channel(
        self,
        address: str | None,
        handler: Handler,
        nursery: trio.Nursery,
        *,
        through_codec: bool = False,
    ) -> Channel:
        """A channel to the name server (None or its address), to the broker (its
        address), or over TCP to anything else.

        Own channels hand commands over without making bytes, `through_codec` makes and
        reads them all the same, for tests. Raises `ClosedError` when the broker is not
        open, `ConnectError` when another address cannot be reached.
        """
        if self._token is None:
            raise ClosedError(f"{self!r} is not open")
        check_same_run(self._token)
        own = self._own_address()
        if address is None or address == self.namesrv_address:
            return await self.namesrv_server.local(
                handler, nursery, address=own, through_codec=through_codec
            )
        if address == own:
            return await self.server.local(
                handler, nursery, address=own, through_codec=through_codec
            )
        return await TcpChannelSource().open_channel(address, handler, nursery)

    # Life

    @asynccontextmanager
    async def _run(self) -> AsyncIterator[None]:
        self._token = trio.lowlevel.current_trio_token()
        async with AsyncExitStack() as stack:
            stack.callback(self._forget_run)
            listeners = await self._open_listeners(stack)
            packed = pack_host(*split_address(self._own_address()))
            store = MessageStore(self._store_config(), self._files(), self._clock, packed)
            store.on_recovery = self.on_recovery
            await stack.enter_async_context(store)
            caller = await self._open_caller(stack)
            self._make_parts(store, packed, caller)
            if not self.config.is_slave:
                await store.files.run(self.context.transactions.load)
                # A power cut can leave offsets behind the ends of their queues; new
                # half messages must not come to lie below them.
                await self._housekeeping.persist_offsets()
            async with open_quiet_nursery() as nursery:
                await self._start(nursery, listeners)
                limit, problems = ABANDON_TIMEOUT, list[Exception]()
                try:
                    yield
                    limit = CLOSE_TIMEOUT
                finally:
                    async with bounded_cleanup(limit):
                        await self._close(problems)
                    nursery.cancel_scope.cancel()
            if problems:
                raise problems[0]

    def _forget_run(self) -> None:
        self._token = None

    def _store_config(self) -> StoreConfig:
        """The store's settings without its own limit of sizes.

        What clients send is checked before it gets there, against the limit in force.
        What was acknowledged under a higher limit and is due now is stored whatever its
        size.
        """
        return attrs.evolve(self.config.store, max_message_size=_NO_LIMIT)

    def _files(self) -> FileSystem:
        if self._path is None:
            return MemoryFileSystem(self.config.store.memory_limit)
        try:
            self._path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StoreError(
                f"the store {self._path} cannot be opened: {error.strerror}"
            ) from error
        return OsFileSystem(self._path)

    async def _open_listeners(self, stack: AsyncExitStack) -> list[list[trio.SocketListener]]:
        """Bind what has to be bound, broker first; the port is known before the store
        opens, because records hold it.
        """
        opened: list[list[trio.SocketListener]] = []
        for wanted in (self._listen, self._namesrv_listen):
            listeners: list[trio.SocketListener] = []
            if wanted is not None:
                listeners, port = await open_tcp_listeners(*wanted)
                stack.callback(_close_all, listeners)
                address = join_address(_stable_host(listeners), port)
                if wanted is self._listen:
                    self._host, self._port = _stable_host(listeners), port
                    self.address = self._own_address()
                else:
                    self.namesrv_address = address
            opened.append(listeners)
        await self._open_more_listeners(stack)
        return opened

    async def _open_more_listeners(self, stack: AsyncExitStack) -> None:
        """The ports beside the broker's own: for slaves, and the one two below for
        requests that must not wait behind others (VIP).
        """
        if self._listen is None or self._port is None:
            return
        if wants_port(self.config):
            self._ha_listeners, self._ha_port = await open_ha_listeners(
                self._listen[0], self.config.ha_listen_port, self._port, self._listen[1]
            )
            stack.callback(_close_all, self._ha_listeners)
        try:
            self._vip_listeners, _port = await open_tcp_listeners(
                self._listen[0], self._port - VIP_DISTANCE
            )
        except ConfigurationError as error:
            logger.info("there is no VIP port: %s", error)
        else:
            stack.callback(_close_all, self._vip_listeners)

    async def _open_caller(self, stack: AsyncExitStack) -> RemotingClient | None:
        """What carries calls to name servers elsewhere, and of a slave to its
        master.
        """
        if not self.config.namesrv_addr and not self.config.is_slave:
            return None
        return await stack.enter_async_context(
            RemotingClient.open(TcpChannelSource(), Dispatcher())
        )

    def _own_address(self) -> str:
        """The address in records, message ids and, for clients of this process, in
        routes.
        """
        return join_address(self.config.broker_ip1 or self._host, self._port or _DEFAULT_PORT)

    def _make_parts(
        self, store: MessageStore, packed: bytes, caller: RemotingClient | None
    ) -> None:
        self.context = make_context(store, self._live, self._clock, packed, self._own_address)
        self._dispatcher = make_dispatcher(self.context)
        own_address = dialled_address(lambda: self._port, self._own_address())
        self.namesrv = NameServer(
            self._clock, kv_file=ConfigFile(store.files, "kvConfig.json"), own_address=own_address
        )
        self._registration = RegistrationService(
            self._live,
            self.context.topics,
            identity=self._identity,
            namesrv=self.namesrv,
            caller=caller,
        )
        self.context.topics.on_change = self._registration.topic_changed
        self.context.registered = self._registration.waiting
        self._registration.on_master = self.context.replication.found_master
        self._housekeeping = Housekeeping(self.context)
        # In memory there is no write to join.
        turn = store if store.files.write_through else None
        overdue = FastFailure(self._live)
        self.server = RemotingServer(
            self._dispatcher,
            on_close=self._channel_closed,
            tls=self._tls,
            turn=turn,
            overdue=overdue,
        )
        self.namesrv_server = RemotingServer(self.namesrv.handler, tls=self._tls)
        self.vip_server = RemotingServer(
            vip_dispatcher(self._dispatcher),
            on_close=self._channel_closed,
            tls=self._tls,
            turn=turn,
        )
        if self.config.is_slave:
            assert caller is not None
            store.listen(self.context.replication.follow(self.context, caller).on_arrival)
            holders = [self.context.held_pulls]
        else:
            pop = self.context.pop
            store.listen(self.context.schedule.on_arrival, topic=SCHEDULE_TOPIC)
            store.listen(self.context.timers.on_arrival, topic=TIMER_TOPIC)
            store.listen(pop.revive.on_arrival, topic=revive_topic(self.config.broker_cluster_name))
            holders = [self.context.held_pulls, pop.waiting, pop.notifications]
        for holder in holders:
            store.listen(holder.on_arrival, waiting=holder.waiting_by_queue)
        self.context.topic_queues = TopicQueues(
            self._live, self._clock, self.namesrv.table.route, caller
        )

    def _identity(self) -> BrokerIdentity:
        config = self.config
        host = config.broker_ip2 or split_address(self._own_address())[0]
        return BrokerIdentity(
            config.broker_cluster_name,
            config.broker_name,
            config.broker_id,
            self._own_address(),
            join_address(host, self._ha_port_told()),
        )

    def _ha_port_told(self) -> int:
        """The port for slaves; where there is none the one that Apache's broker would
        have.
        """
        return self._ha_port or self.config.ha_listen_port or (self._port or _DEFAULT_PORT) + 1

    async def _start(
        self, nursery: trio.Nursery, listeners: list[list[trio.SocketListener]]
    ) -> None:
        self._registration.register_own()
        context = self.context
        # What writes messages of its own is a master's; a slave gets them with its
        # master's log.
        of_masters: list[tuple[str, Callable[[], Awaitable[None]]]] = [
            ("schedule service", context.schedule.run),
            ("timer service", context.timers.run),
            ("check of transactions", context.transaction_checks.run),
            ("pop polling", context.pop.waiting.run),
            ("notifications of pop", context.pop.notifications.run),
            ("pop buffer", context.pop.buffer.run),
            ("revival of popped messages", context.pop.revive.run),
        ]
        of_role = [("replication", context.replication.run)] if self.config.is_slave else of_masters
        services: tuple[tuple[str, Callable[[], Awaitable[None]]], ...] = (
            ("long polling", context.held_pulls.run),
            *of_role,
            ("housekeeping", self._housekeeping.run),
            ("name server", self.namesrv.run),
            ("registration", self._registration.run),
        )
        for name, run in services:
            nursery.start_soon(_guarded, name, run)
        for server, listening in zip((self.server, self.namesrv_server), listeners, strict=True):
            if listening:
                await nursery.start(self._accept, server, listening)
        if self._vip_listeners:
            await nursery.start(self._accept, self.vip_server, self._vip_listeners)
        if self._ha_listeners:
            await nursery.start(context.replication.serve, self._ha_listeners)
            self.ha_address = join_address(self._host, self._ha_port)
        await self._registration.wait_tried()

    async def _accept(
        self,
        server: RemotingServer,
        listeners: Sequence[trio.abc.Listener[Any]],
        task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        """Serve listeners until the broker closes."""
        ended = trio.Event()
        try:
            with trio.CancelScope() as scope:
                self._accepting.append((scope, ended))
                await server.serve(listeners, task_status=task_status)
        finally:
            ended.set()

    async def _close(self, problems: list[Exception]) -> None:
        """Everything that leaving means, within the bound of the caller. Each step is
        tried; what goes wrong is added to `problems`.
        """
        context = self.context
        persist: tuple[Callable[[], Awaitable[None]], ...] = (
            self._housekeeping.persist_offsets,
            context.schedule.persist,
            context.filters.persist,
        )
        if not self.config.is_slave:
            persist = (*persist, context.timers.persist, context.pop.order.persist)
        steps: tuple[Callable[[], Awaitable[None]], ...] = (
            self._release_held,
            context.pop.close,
            self.context.timers.close,
            *persist,
            self._registration.unregister,
            self._stop_accepting,
            self.server.aclose,
            self.vip_server.aclose,
            self.namesrv_server.aclose,
            *persist,
        )
        for step in steps:
            try:
                await step()
            except Exception as error:
                logger.error(
                    "while closing %r: %s",
                    self,
                    error,
                    exc_info=not isinstance(error, RocketMQError),
                )
                problems.append(error)

    async def _release_held(self) -> None:
        self.context.held_pulls.release_all()
        self.context.pop.release()

    async def _stop_accepting(self) -> None:
        for scope, _ended in self._accepting:
            scope.cancel()
        for _scope, ended in self._accepting:
            await ended.wait()

    def _channel_closed(self, channel: Channel) -> None:
        """Each table forgets the channel, whatever happens in the others."""
        pop = self.context.pop
        for table in (
            self.context.held_pulls,
            pop.waiting,
            pop.notifications,
            self.context.consumers,
            self.context.producers,
        ):
            try:
                table.channel_closed(channel)
            except Exception:
                logger.exception(
                    "%s failed over the closed channel of %s",
                    type(table).__name__,
                    channel.remote_address,
                )


async def _guarded(name: str, run: Callable[[], Awaitable[None]]) -> None:
    """Run a service; what ends it becomes an error that names it."""
    try:
        await run()
    except RocketMQError:
        raise
    except Exception as error:
        raise RocketMQError(
            f"the {name} of the embedded broker failed: {type(error).__name__}: {error}"
        ) from error


def _close_all(listeners: list[trio.SocketListener]) -> None:
    for listener in listeners:
        listener.socket.close()


def _stable_host(listeners: list[trio.SocketListener]) -> str:
    """The bound address, IPv4 first; 127.0.0.1 for a wildcard."""
    hosts = sorted(
        (str(listener.socket.getsockname()[0]) for listener in listeners),
        key=lambda host: ":" in host,
    )
    return _LOCAL_HOST if hosts[0] in _WILDCARDS else hosts[0]


def _parse_listen(listen: str | int | None) -> tuple[str, int] | None:
    if listen is None:
        return None
    if isinstance(listen, int):
        if not 0 <= listen <= 65535:
            raise ConfigurationError(f"{listen} is no port")
        return _LOCAL_HOST, listen
    return split_address(listen)
