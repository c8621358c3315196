"""The TCP ports of a broker and its name server.

They are bound before the store opens and served until the broker closes.
"""

from __future__ import annotations

import logging
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final

import trio

from rocketmq_sdk.broker_embedded.replication.part import open_ha_listeners, wants_port
from rocketmq_sdk.broker_embedded.settings.config import MetricsExporterType
from rocketmq_sdk.errors import ConfigurationError, WrongTypeError
from rocketmq_sdk.model.route import join_address, split_address
from rocketmq_sdk.remoting.server import serve_together
from rocketmq_sdk.transport.tcp import LAST_PORT, open_tcp_listeners

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence
    from contextlib import AsyncExitStack

    from rocketmq_sdk.broker_embedded.settings.config import BrokerConfig, LiveConfig
    from rocketmq_sdk.remoting.server import RemotingServer

    Listeners = list[trio.SocketListener]

logger = logging.getLogger(__name__)

_LOCAL_HOST: Final = "127.0.0.1"
_DEFAULT_PORT: Final = 10911
_WILDCARDS: Final = frozenset({"0.0.0.0", "::"})
VIP_DISTANCE: Final = 2
"""How much lower the VIP port is than the broker's own."""


class Ports:
    """Where a broker listens. Without `listen` only its own process can reach it.

    The broker's address is known once `open` has returned: it stands in the records of
    the store.
    """

    __slots__ = (
        "_accepted",
        "_accepting",
        "_config",
        "_listen",
        "_namesrv_listen",
        "broker",
        "ha",
        "ha_port",
        "host",
        "namesrv",
        "namesrv_address",
        "port",
        "vip",
    )

    def __init__(
        self, listen: str | int | None, namesrv_listen: str | int | None, config: LiveConfig
    ) -> None:
        """Raises `ConfigurationError` for something that is no address."""
        self._listen = _parse_listen(listen)
        self._namesrv_listen = _parse_listen(namesrv_listen)
        self._config = config
        self._accepting = trio.CancelScope()
        self._accepted: trio.Event | None = None
        self.host = _LOCAL_HOST
        self.port: int | None = None
        """The broker's own port; None without `listen`."""
        self.ha_port = 0
        self.broker: Listeners = []
        self.namesrv: Listeners = []
        self.vip: Listeners = []
        """Two below the broker's own, for requests that must not wait behind others."""
        self.ha: Listeners = []
        """For slaves."""
        self.namesrv_address: str | None = None
        """`host:port` of the name server on TCP; None without `namesrv_listen`."""

    @property
    def own_address(self) -> str:
        """The address in records, in message ids and in routes for this process."""
        config = self._config.current
        return join_address(config.broker_ip1 or self.host, self.port or _DEFAULT_PORT)

    @property
    def told_ha_port(self) -> int:
        """The port for slaves; without one, the port of Apache's broker."""
        beside = min((self.port or _DEFAULT_PORT) + 1, LAST_PORT)
        return self.ha_port or self._config.current.ha_listen_port or beside

    async def open(self, stack: AsyncExitStack) -> None:
        """Bind what has to be bound, the broker's own port first; `stack` closes all.

        Raises `ConfigurationError` when a port cannot be bound.
        """
        if self._listen is not None:
            self.broker, self.port = await open_tcp_listeners(*self._listen)
            stack.callback(_close_all, self.broker)
            self.host = _stable_host(self.broker)
        if self._namesrv_listen is not None:
            self.namesrv, port = await open_tcp_listeners(*self._namesrv_listen)
            stack.callback(_close_all, self.namesrv)
            self.namesrv_address = join_address(_stable_host(self.namesrv), port)
        if self._listen is not None and self.port is not None:
            await self._open_beside(stack, *self._listen, self.port, self._config.current)

    async def _open_beside(
        self, stack: AsyncExitStack, host: str, asked: int, port: int, config: BrokerConfig
    ) -> None:
        if wants_port(config):
            self.ha, self.ha_port = await open_ha_listeners(
                host, config.ha_listen_port, port, asked
            )
            stack.callback(_close_all, self.ha)
        try:
            # Port 0 would be any free one, where nobody looks for it.
            self.vip, _port = await open_tcp_listeners(host, port - VIP_DISTANCE or -1)
        except ConfigurationError as error:
            logger.info("there is no VIP port: %s", error)
        else:
            stack.callback(_close_all, self.vip)

    async def serve(
        self,
        nursery: trio.Nursery,
        servers: Sequence[tuple[RemotingServer, Listeners]],
        serve_slaves: Callable[..., Awaitable[None]],
    ) -> None:
        """Accept connections in the nursery.

        Each server has its listeners; slaves are served by `serve_slaves`.
        """
        with_ports = [(server, listeners) for server, listeners in servers if listeners]
        if with_ports:
            self._accepted = trio.Event()
            nursery.start_soon(self._accept, with_ports, self._accepted)
        if self.ha:
            await nursery.start(serve_slaves, self.ha)

    async def _accept(
        self, servers: Sequence[tuple[RemotingServer, Listeners]], ended: trio.Event
    ) -> None:
        try:
            with self._accepting:
                await serve_together(servers)
        finally:
            ended.set()

    async def stop_accepting(self) -> None:
        """Accept no more connections, and close those that are open."""
        self._accepting.cancel()
        if self._accepted is not None:
            await self._accepted.wait()


def metrics_address(asked: str | int | None, config: BrokerConfig) -> tuple[str, int] | None:
    """Where metrics are served, as asked for or by the settings; None: nowhere.

    Raises `ConfigurationError` for something that is no address, and without the
    package that serves them.
    """
    found = _parse_listen(asked)
    if found is None and config.metrics_exporter_type is MetricsExporterType.PROM:
        host = config.metrics_prom_exporter_host or config.broker_ip1 or _LOCAL_HOST
        found = host, config.metrics_prom_exporter_port
    if found is not None and find_spec("h11") is None:
        raise ConfigurationError("metrics need h11; install rocketmq-trio[metrics]")
    return found


def _close_all(listeners: Listeners) -> None:
    for listener in listeners:
        listener.socket.close()


def _stable_host(listeners: Listeners) -> str:
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
    if not isinstance(listen, str):
        raise WrongTypeError(f"{listen!r:.200} is no address; give host:port, or a port")
    return split_address(listen)
