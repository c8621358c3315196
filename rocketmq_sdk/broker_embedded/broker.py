"""The embedded broker: a name server and a broker in this process."""

from __future__ import annotations

import logging
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final, Unpack

import trio

from rocketmq_sdk.broker_embedded.access.part import first_keys, inner_keys
from rocketmq_sdk.broker_embedded.composition import Parts, resolve_settings
from rocketmq_sdk.broker_embedded.core import Core
from rocketmq_sdk.broker_embedded.fast_failure import FastFailure
from rocketmq_sdk.broker_embedded.files_of_settings import FilesOfSettings
from rocketmq_sdk.broker_embedded.housekeeping import Housekeeping, save_all
from rocketmq_sdk.broker_embedded.namesrv.server import NameServer, dialled_address
from rocketmq_sdk.broker_embedded.ports import Ports, metrics_address
from rocketmq_sdk.broker_embedded.registration.calls import BrokerIdentity
from rocketmq_sdk.broker_embedded.replication.part import wants_port
from rocketmq_sdk.broker_embedded.request_tables import RequestTables
from rocketmq_sdk.broker_embedded.secured_ports import SecuredPorts
from rocketmq_sdk.broker_embedded.settings.config import BrokerConfig, LiveConfig
from rocketmq_sdk.broker_embedded.store.files.config_file import ConfigFile
from rocketmq_sdk.broker_embedded.store.files.memory_files import MemoryFileSystem
from rocketmq_sdk.broker_embedded.store.files.regular_files import make_directory
from rocketmq_sdk.broker_embedded.store.log.place import open_files
from rocketmq_sdk.broker_embedded.store.message_store import MessageStore
from rocketmq_sdk.broker_embedded.store.sizing import (
    fitted_in_memory,
    fitted_on_disk,
    note_sizes,
    without_size_limit,
)
from rocketmq_sdk.broker_embedded.supervision import BrokerHealth, Supervisor, error_text
from rocketmq_sdk.clock import Clock, TrioClock
from rocketmq_sdk.errors import (
    ClosedError,
    RocketMQError,
    StoreError,
    StoreFullError,
)
from rocketmq_sdk.lifecycle import RunsOnce, bounded_cleanup, open_quiet_nursery
from rocketmq_sdk.log_fields import about
from rocketmq_sdk.model.route import join_address, pack_host, split_address
from rocketmq_sdk.remoting.client import RemotingClient
from rocketmq_sdk.remoting.credentials import Credentials, Signing
from rocketmq_sdk.remoting.dispatch import Dispatcher
from rocketmq_sdk.remoting.local import check_same_run
from rocketmq_sdk.remoting.places import Places
from rocketmq_sdk.remoting.server import RemotingServer
from rocketmq_sdk.remoting.source import TcpChannelSource
from rocketmq_sdk.transport.tcp import open_tcp_stream
from rocketmq_sdk.validators import path_of, with_methods, with_values

if TYPE_CHECKING:
    import os
    import ssl
    from collections.abc import AsyncIterator, Awaitable, Callable

    from rocketmq_sdk.broker_embedded.metrics.exporter import Exporter
    from rocketmq_sdk.broker_embedded.part import SavedTable
    from rocketmq_sdk.broker_embedded.request import Request
    from rocketmq_sdk.broker_embedded.settings.options import BrokerOptions
    from rocketmq_sdk.broker_embedded.store.files.file_system import FileSystem
    from rocketmq_sdk.remoting.channel import Channel, Handler, Turn
    from rocketmq_sdk.remoting.source import ChannelSource

logger = logging.getLogger(__name__)

MEMORY: Final = ":memory:"
CLOSE_TIMEOUT: Final = 10.0
"""Seconds that leaving the block may take, besides the last sync of the store."""
ABANDON_TIMEOUT: Final = 2.0
"""The same when the block is left by an exception or a cancellation."""
_FOR_LAST_SAVE: Final = 0.2
"""The part of the time for closing that is kept for saving tables once more."""
_FOR_LEAVING: Final = 0.4
"""The part that telling others may take."""


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
    decides, as in Apache's permissive mode. `metrics` is the address in the same form
    at which metrics and health are served over HTTP (extra `metrics`; without it as the
    setting `metrics_exporter_type` says). Single settings are given by their Apache
    names in either spelling, as in `flush_disk_type="SYNC_FLUSH"`; they change
    `config`, or what `config_file` says.

    `config_file` is a properties file such as Apache's `broker.conf`, and
    `namesrv_config_file` one for the name server. Settings are read from it (with
    `config`, which then holds what it says, it is not read), and those changed at run
    time are written to it. Without a file they are recorded beside the tables of a
    durable store, and hold after a restart unless that gives them another value than
    the start before did.

    Entering the block raises `ConfigurationError` for bad settings, `StoreLockedError`
    when another broker has the directory open, `StoreError` when it cannot be opened.
    Leaving it answers held requests, closes connections, writes and syncs everything,
    in at most 10 s (2 s when the block is left by an exception or a cancellation) and
    the time of the last sync. All of it is tried; the first error comes out at the end,
    unless the block was left by another one. A service of the broker that fails is
    started again after a pause, and `health()` tells of it; the block goes on.

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
        metrics: str | int | None = None,
        config: BrokerConfig | None = None,
        config_file: str | os.PathLike[str] | None = None,
        namesrv_config_file: str | os.PathLike[str] | None = None,
        clock: Clock | None = None,
        **settings: Unpack[BrokerOptions],
    ) -> None:
        self._files_of_settings = FilesOfSettings(config_file, namesrv_config_file)
        base = config or self._files_of_settings.read_broker()
        self._live = LiveConfig(resolve_settings(base, settings))
        self._namesrv_config = self._files_of_settings.read_namesrv()
        root = self._live.current.store_path_root_dir if path is None else path_of("path", path)
        self._path = None if root is None or root == MEMORY else Path(root)
        self._ports = Ports(listen, namesrv_listen, self._live)
        self._secured = SecuredPorts(self._live.current.tls, tls)
        self._metrics_at = metrics_address(metrics, self._live.current)
        self._exporter: Exporter | None = None
        if clock is not None:
            with_methods("clock", clock, ("now_ms", "monotonic"), "give a Clock")
        self._own_clock = TrioClock() if clock is None else None
        self._clock: Clock = clock or self._own_clock or TrioClock()
        self._token: trio.lowlevel.TrioToken | None = None
        self.on_recovery: Callable[[int, int], None] | None = None
        """Progress callback `(done, total)` in log bytes; called from a worker thread.

        It reports while a long start reads the log. Set it before the block is entered.
        """
        self.address: str | None = None
        """`host:port` of the broker on TCP; None without `listen`."""
        self.namesrv_address: str | None = None
        """`host:port` of the name server on TCP; None without `namesrv_listen`."""
        self.ha_address: str | None = None
        """`host:port` for slaves; None without such a port (see `haListenPort`)."""
        self.metrics_address: str | None = None
        """`host:port` of metrics and health over HTTP; None if they are not served."""
        self.core: Core
        """Store, tables and settings, while the broker is open."""
        self.parts: Parts
        """Its subjects by name, while the broker is open."""
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
    def clock(self) -> Clock:
        """The broker's clock, which follows virtual time in tests.

        `deliver_at=broker.clock.now_ms() + 1_800_000` is right there too.
        """
        return self._clock

    @property
    def config(self) -> BrokerConfig:
        """The settings in force."""
        return self._live.current

    @property
    def credentials(self) -> Credentials | None:
        """The keys of a super user of the settings, for clients in this process.

        Those of `innerClientAuthenticationCredentials`, else of
        `initAuthenticationUser`; None without either.
        """
        keys = first_keys(self.config)
        return Credentials(*keys[0]) if keys else None

    def health(self) -> BrokerHealth:
        """Whether it takes messages now, how its services are, and what is wrong.

        Raises `ClosedError` when the broker is not open, `WrongRunError` elsewhere than
        in its `trio.run`.
        """
        if self._token is None or not hasattr(self, "core"):
            raise ClosedError(f"{self!r} is not open")
        self.check_run()
        return self.core.supervisor.health()

    @property
    def store(self) -> MessageStore:
        """The message store, while the broker is open."""
        return self.core.store

    @property
    def requests(self) -> tuple[Request, ...]:
        """A row for each request that it serves, while the broker is open."""
        return self._served.rows

    @property
    def handler(self) -> Dispatcher:
        """The broker's table of handlers, while it is open."""
        return self._served.dispatcher

    # The source of channels

    def knows(self, address: str) -> bool:
        """Whether an address is this broker's own."""
        return address in (self._ports.own_address, self.namesrv_address)

    async def open_channel(
        self,
        address: str | None,
        handler: Handler,
        nursery: trio.Nursery,
        *,
        through_codec: bool = False,
    ) -> Channel:
        """A channel to the name server, to the broker, or over TCP elsewhere."""
        if self._token is None:
            raise ClosedError(f"{self!r} is not open")
        check_same_run(self._token)
        own = self._ports.own_address
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
            if self._own_clock is not None:
                stack.enter_context(self._own_clock.of_this_run())
            if self._metrics_at is not None:
                await self._open_metrics(stack, *self._metrics_at)
            await self._open_ports(stack)
            packed = pack_host(*split_address(self._ports.own_address))
            files = self._files()
            sized = self._fit_sizes(files)
            store = MessageStore(without_size_limit(self.config.store), files, self._clock, packed)
            store.on_recovery = self._told_recovery()
            supervisor = Supervisor(self._clock, lambda: store.failure)
            store.start_service = supervisor.start_of_store
            await stack.enter_async_context(store)
            if sized:
                note_sizes(files, store.config)
            caller = await self._open_caller(stack)
            await self._open_parts(store, supervisor, packed, caller)
            async with open_quiet_nursery() as nursery:
                await self._start(nursery)
                limit, problems = ABANDON_TIMEOUT, list[Exception]()
                try:
                    yield
                    limit = CLOSE_TIMEOUT
                finally:
                    if self._exporter is not None:
                        self._exporter.closing()
                    async with bounded_cleanup(limit * (1 - _FOR_LAST_SAVE)):
                        await self._close(problems, limit * _FOR_LEAVING)
                    async with bounded_cleanup(limit * _FOR_LAST_SAVE):
                        await self._save_all(problems)
                    # Where the time did not suffice. Channels inside of the process
                    # live in their clients' nurseries.
                    self._abort_channels("the broker has closed")
                    nursery.cancel_scope.cancel()
            if problems:
                raise problems[0]

    async def _open_metrics(self, stack: AsyncExitStack, host: str, port: int) -> None:
        """Serve metrics and health from now on, before the store is open."""
        from rocketmq_sdk.broker_embedded.metrics.exporter import Exporter

        self._exporter = Exporter(self.config)
        self.metrics_address = await stack.enter_async_context(self._exporter.serving(host, port))

    def _told_recovery(self) -> Callable[[int, int], None] | None:
        exporter, told = self._exporter, self.on_recovery
        if exporter is None:
            return told

        def tell(done: int, total: int) -> None:
            exporter.recovering(done, total)
            if told is not None:
                told(done, total)

        return tell

    def _forget_run(self) -> None:
        self._token = None

    def _fit_sizes(self, files: FileSystem) -> bool:
        """Take file sizes that fit the place; whether a disk changed any.

        A master and its slaves need the same sizes, so none are chosen for them.
        """
        config = self.config
        alone = not (config.is_slave or wants_port(config))
        on_disk = files.capacity_bytes() > 0
        fitted = config.store
        if on_disk:
            fitted = fitted_on_disk(fitted, files, choose=alone)
        elif alone:
            fitted = fitted_in_memory(fitted)
        if fitted is config.store:
            return False
        self._live.current = with_values(config, store=fitted)
        return on_disk

    def _files(self) -> FileSystem:
        if self._path is None:
            return MemoryFileSystem(self.config.store.memory_limit, messages_only=True)
        try:
            make_directory(self._path)
        except OSError as error:
            raise StoreError(
                f"the store {self._path} cannot be opened: {error.strerror}"
            ) from error
        return open_files(self._path, self._live.current.store_path_commit_log)

    def _front(self, handler: Dispatcher) -> Handler:
        """What serves the requests of one server: its table of handlers.

        A subclass may put something in front of it.
        """
        return handler

    def _outgoing(self) -> ChannelSource:
        """How the broker reaches name servers elsewhere and its master."""
        return TcpChannelSource()

    async def _connect(self, address: str) -> trio.abc.Stream:
        """A stream to the port for slaves of the master."""
        host, port = split_address(address)
        return await self._secured.secure(await open_tcp_stream(host, port), host, address)

    async def _open_ports(self, stack: AsyncExitStack) -> None:
        await self._ports.open(stack)
        self.namesrv_address = self._ports.namesrv_address
        if self._ports.port is not None:
            self.address = self._ports.own_address

    async def _open_caller(self, stack: AsyncExitStack) -> RemotingClient | None:
        """The client for calls to other name servers, and of a slave to its master."""
        if not self.config.namesrv_addr and not self.config.is_slave:
            return None
        keys = inner_keys(self.config)
        signing = () if keys is None else (Signing(Credentials(*keys)),)
        return await stack.enter_async_context(
            RemotingClient.open(
                self._outgoing(), Dispatcher(), tls=self._secured.client, interceptors=signing
            )
        )

    async def _open_parts(
        self,
        store: MessageStore,
        supervisor: Supervisor,
        packed: bytes,
        caller: RemotingClient | None,
    ) -> None:
        ports, live, clock = self._ports, self._live, self._clock
        given = live.current.store
        self._files_of_settings.attach_broker(live, store.files)
        if live.current.store is not given:
            store.retention.configure(live.current.store)
        self.core = Core(
            store, live, clock, supervisor, store_host=packed, address=lambda: ports.own_address
        )
        if self._exporter is not None:
            self.core.stats.figures = self._exporter.figures
            store.observe_syncs(self._exporter.figures.syncs.add)
        self.namesrv = NameServer(
            self._clock,
            config=self._namesrv_config,
            address=self.namesrv_address,
            kv_file=ConfigFile(store.files, "kvConfig.json"),
            memory=self.core.memory,
            own_address=dialled_address(lambda: ports.port, ports.own_address),
        )
        self._files_of_settings.attach_namesrv(self.namesrv.config, store.files)
        self.parts = Parts(self.core, self.namesrv, caller, self._identity, self._connect)
        self._tables: list[SavedTable] = [
            *self.core.saved_tables(),
            *(table for part in self.parts for table in part.saved_tables()),
        ]
        self._served = RequestTables(self.core, self.parts)
        self._make_servers()
        if self._secured.server is not None and self.parts.replication.master is not None:
            self.parts.replication.master.accept = self._secured.accept
        for part in self.parts:
            await part.load()
        if not self.config.is_slave and self.core.offsets.has_to_save():
            # A power cut can leave offsets behind the ends of their queues; new half
            # messages must not come to lie below them.
            try:
                await self.core.offsets.persist()
            except StoreFullError as error:
                self.core.supervisor.save_failed("consumer offsets", error)

    def _make_servers(self) -> None:
        store, served, namesrv = self.core.store, self._served, self.namesrv
        self.core.unwritten.after.append(self.parts.registration.service.waiting)
        # In memory there is no write to join.
        turn: Turn = self.core.put_times.around(store if store.files.write_through else None)
        guarded, exporter = self.parts.access.guarded, self._exporter
        times = None if exporter is None else exporter.measure(self.core, turn, served.rows)
        on_open = None if times is None else times.opened

        def handler(dispatcher: Dispatcher, rows: tuple[Request, ...]) -> Handler:
            inner = guarded(self._front(dispatcher), dispatcher, rows)
            if times is None or dispatcher is namesrv.handler:
                return inner
            return times.in_front_of(inner)

        fast_failure, places = FastFailure(self._live, lambda: served.rows), Places()
        self.server = RemotingServer(
            make_handler=lambda: handler(served.dispatcher, served.rows),
            on_open=on_open,
            on_close=self._channel_closed,
            tls=self._secured.server,
            tls_mode=self._secured.mode,
            turn=times or turn,
            overdue=fast_failure,
            budget=self.core.memory,
            places=places,
        )
        self.vip_server = RemotingServer(
            make_handler=lambda: handler(served.of_vip, served.rows),
            on_open=on_open,
            on_close=self._channel_closed,
            tls=self._secured.server,
            tls_mode=self._secured.mode,
            turn=times or turn,
            budget=self.core.memory,
            places=places,
        )
        self.namesrv_server = RemotingServer(
            make_handler=lambda: handler(namesrv.handler, namesrv.requests),
            tls=self._secured.server,
            tls_mode=self._secured.mode,
            budget=self.core.memory,
            places=places,
        )
        if exporter is not None:
            names = {"broker": self.server, "vip": self.vip_server, "namesrv": self.namesrv_server}
            exporter.know(self.core, self.parts, names, self._path, fast_failure)

    def _identity(self) -> BrokerIdentity:
        config, address = self.config, self._ports.own_address
        host = config.broker_ip2 or split_address(address)[0]
        return BrokerIdentity(
            config.broker_cluster_name,
            config.broker_name,
            config.broker_id,
            address,
            join_address(host, self._ports.told_ha_port),
        )

    async def _start(self, nursery: trio.Nursery) -> None:
        registration = self.parts.registration.service
        registration.register_own()
        services = [
            *self.core.services(),
            *(service for part in self.parts for service in part.services()),
            Housekeeping(self.core, self._tables).service(),
            self.namesrv.service(),
            *self._secured.services(),
        ]
        for service in services:
            self.core.supervisor.start(nursery, service)
        nursery.start_soon(self.core.supervisor.call_in_time)
        ports = self._ports
        servers = (
            (self.server, ports.broker),
            (self.namesrv_server, ports.namesrv),
            (self.vip_server, ports.vip),
        )
        await ports.serve(nursery, servers, self.parts.replication.serve)
        if ports.ha:
            self.ha_address = join_address(ports.host, ports.ha_port)
        await registration.wait_tried()
        if self._exporter is not None:
            self._exporter.opened()

    async def _close(self, problems: list[Exception], leaving: float) -> None:
        """Close the broker within the caller's time limit, `leaving` seconds of it for
        telling others.

        Each step is tried; errors are added to `problems`.
        """
        await self._try_each(
            problems, self._release_held, *(part.close for part in reversed(self.parts))
        )
        await self._save_all(problems)
        with trio.move_on_after(leaving):
            await self._try_each(problems, *(part.leave for part in reversed(self.parts)))
        await self._try_each(
            problems,
            self._ports.stop_accepting,
            self.server.aclose,
            self.vip_server.aclose,
            self.namesrv_server.aclose,
        )

    def _abort_channels(self, reason: str) -> None:
        for server in (self.server, self.vip_server, self.namesrv_server):
            server.abort_all(reason)

    async def _save_all(self, problems: list[Exception]) -> None:
        """Save every table, whatever happens to the others."""
        left: dict[str, Exception | None] = {}
        try:
            await save_all(self._tables, left)
        finally:
            for name, error in left.items():
                if error is None:
                    logger.error("while closing %r: %s could not be written in time", self, name)
                else:
                    text = f"{name} could not be written: {error_text(error)}"
                    self._note(problems, text, error)

    async def _try_each(
        self, problems: list[Exception], *steps: Callable[[], Awaitable[None]]
    ) -> None:
        for step in steps:
            try:
                await step()
            except Exception as error:  # noqa: BLE001
                # All steps are tried; the first error is raised.
                self._note(problems, error_text(error), error)

    def _note(self, problems: list[Exception], text: str, error: Exception) -> None:
        unexpected = not isinstance(error, RocketMQError)
        logger.error("while closing %r: %s", self, text, exc_info=error if unexpected else None)
        problems.append(error)

    async def _release_held(self) -> None:
        for part in self.parts:
            part.release()

    def _channel_closed(self, channel: Channel) -> None:
        """Each part forgets the channel, whatever happens in the others."""
        if self._exporter is not None:
            self._exporter.channel_closed(channel)
        for part in self.parts:
            try:
                part.channel_closed(channel)
            except Exception:
                logger.exception(
                    "%s failed over the closed channel of %s",
                    type(part).__name__,
                    channel.remote_address,
                    extra=about(peer=channel.remote_address),
                )
