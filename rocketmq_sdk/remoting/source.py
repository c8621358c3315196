"""Where channels come from: TCP, a memory network, or a broker in the same process."""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING, Final, Protocol

import trio

from rocketmq_sdk.errors import ConfigurationError, ConnectError
from rocketmq_sdk.model.route import split_address
from rocketmq_sdk.remoting.caller_stream import CallerStream
from rocketmq_sdk.remoting.channel import ChannelLimits
from rocketmq_sdk.remoting.stream import StreamChannel
from rocketmq_sdk.transport.addresses import stream_addresses
from rocketmq_sdk.transport.tcp import CONNECT_TIMEOUT, open_tcp_stream
from rocketmq_sdk.transport.tls import start_client_tls

if TYPE_CHECKING:
    from rocketmq_sdk.remoting.channel import Channel, Handler
    from rocketmq_sdk.transport.memory import MemoryNetwork
    from rocketmq_sdk.transport.tls_files import ContextSource

CLIENT_LIMITS: Final = ChannelLimits(silence_timeout=6.0)
"""Seconds without any byte after which an overdue request closes a connection.

A long poll can wait 30 s for a broker that has vanished, unless another request shows
that it has. 6 s is longer than the 5 s for which a broker may make a send wait for its
disk or its slave (`syncFlushTimeout`). Apache's client closes a connection at the first
request that times out (`clientCloseSocketIfTimeout`), whatever else arrives on it.
"""


class ChannelSource(Protocol):
    """Opens channels to addresses."""

    async def open_channel(
        self, address: str | None, handler: Handler, nursery: trio.Nursery
    ) -> Channel:
        """Open a channel to `host:port`.

        None means the name server of the source, where it has one.

        The tasks of the channel live in `nursery`; `handler` serves what the peer asks.
        Raises `ConnectError`.
        """
        ...

    def knows(self, address: str) -> bool:
        """Whether the source serves this address itself; others are opened over TCP."""
        ...


def _no_name_server(address: str | None) -> str:
    if address is None:
        raise ConfigurationError(
            "this source of channels has no name server of its own; pass the name server's address"
        )
    return address


class TcpChannelSource:
    """Channels over TCP, with TLS when there is a context, or what gives one.

    Times in seconds; connecting and the TLS handshake each have `connect_timeout`.
    """

    def __init__(
        self,
        *,
        tls: ssl.SSLContext | ContextSource | None = None,
        connect_timeout: float = CONNECT_TIMEOUT,
        limits: ChannelLimits | None = None,
    ) -> None:
        self._tls = (lambda: tls) if isinstance(tls, ssl.SSLContext) else tls
        self._connect_timeout = connect_timeout
        self._limits = limits or CLIENT_LIMITS

    async def open_channel(
        self, address: str | None, handler: Handler, nursery: trio.Nursery
    ) -> StreamChannel:
        """Connect.

        Raises `ConnectError`, and `ConfigurationError` for None or what is no address.
        """
        address = _no_name_server(address)
        host, port = split_address(address)
        stream: trio.abc.Stream = await open_tcp_stream(host, port, timeout=self._connect_timeout)
        addresses = stream_addresses(stream)
        if self._tls is not None:
            stream = await start_client_tls(
                stream, self._tls(), host=host, address=address, timeout=self._connect_timeout
            )
        channel = CallerStream(
            stream,
            handler,
            limits=self._limits,
            remote_address=address,
            local_address=addresses.local_address,
            remote_host_packed=addresses.remote_host_packed,
        )
        await nursery.start(channel.run)
        return channel

    def knows(self, address: str) -> bool:
        """TCP serves no address of its own."""
        del address
        return False


class MemoryChannelSource:
    """Channels over a `MemoryNetwork`.

    `name_server` is the address that None stands for, `source` the address that servers
    see.
    """

    def __init__(
        self,
        network: MemoryNetwork,
        *,
        name_server: str | None = None,
        source: str = "127.0.0.1:0",
        connect_timeout: float = CONNECT_TIMEOUT,
        limits: ChannelLimits | None = None,
    ) -> None:
        self._network = network
        self._name_server = name_server
        self._source = source
        self._connect_timeout = connect_timeout
        self._limits = limits or CLIENT_LIMITS

    async def open_channel(
        self, address: str | None, handler: Handler, nursery: trio.Nursery
    ) -> StreamChannel:
        """Connect.

        Raises `ConnectError`, and `ConfigurationError` for None without a name server.
        """
        address = _no_name_server(self._name_server if address is None else address)
        with trio.move_on_after(self._connect_timeout):
            stream = await self._network.connect(address, source=self._source)
            addresses = stream_addresses(stream)
            channel = StreamChannel(
                stream,
                handler,
                limits=self._limits,
                remote_address=address,
                local_address=addresses.local_address,
                remote_host_packed=addresses.remote_host_packed,
            )
            await nursery.start(channel.run)
            return channel
        raise ConnectError(
            f"no connection to {address} within {self._connect_timeout:g} s", address=address
        )

    def knows(self, address: str) -> bool:
        """Whether somebody listens on the address in this network."""
        return self._network.serves(address)
