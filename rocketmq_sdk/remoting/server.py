"""Accepts connections and serves all of them with one handler.

Follows `NettyRemotingServer`.
"""

from __future__ import annotations

import logging
import ssl
from typing import TYPE_CHECKING, Any, Final

import trio

from rocketmq_sdk.errors import ConnectError
from rocketmq_sdk.lifecycle import bounded_cleanup
from rocketmq_sdk.log_fields import about
from rocketmq_sdk.remoting.channel import ChannelLimits
from rocketmq_sdk.remoting.local import (
    LOCAL_ADDRESS,
    LocalChannel,
    check_same_run,
    open_local_channel,
)
from rocketmq_sdk.remoting.stream import StreamChannel
from rocketmq_sdk.transport.addresses import stream_addresses
from rocketmq_sdk.transport.tls import TlsMode, accept_tls

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rocketmq_sdk.remoting.budget import MemoryBudget
    from rocketmq_sdk.remoting.channel import Channel, Handler, Overdue, Turn
    from rocketmq_sdk.transport.tls_files import ContextSource

logger = logging.getLogger("rocketmq_sdk.remoting")

STOP_TIMEOUT: Final = 3.0
ACCEPT_PAUSE: Final = 0.1
FIRST_BYTE_TIMEOUT: Final = 120.0


class RemotingServer:
    """One handler, many channels.

    `on_open` and `on_close` are told of each channel, over streams and in process,
    synchronously. With `tls`, a context or what gives one for each connection, or a
    `tls_mode` other than permissive, the first byte of a connection decides whether it
    speaks TLS. Over `max_connections` new streams are
    closed at once. `turn` frames the serving of requests of a stream that arrived
    together, `overdue` judges those of them that had to wait for turns of others.
    `budget` bounds what its streams hold together with those of other servers; channels
    inside the process do not count.
    """

    def __init__(
        self,
        handler: Handler,
        *,
        limits: ChannelLimits | None = None,
        on_open: Callable[[Channel], None] | None = None,
        on_close: Callable[[Channel], None] | None = None,
        tls: ssl.SSLContext | ContextSource | None = None,
        tls_mode: TlsMode = TlsMode.PERMISSIVE,
        max_connections: int = 10000,
        turn: Turn | None = None,
        overdue: Overdue | None = None,
        budget: MemoryBudget | None = None,
    ) -> None:
        self.channels: dict[int, Channel] = {}
        self._handler = handler
        self.limits = limits or ChannelLimits()
        """Those of channels that are opened from now on."""
        self._on_open = on_open
        self._on_close = on_close
        self._tls = (lambda: tls) if isinstance(tls, ssl.SSLContext) else tls
        self._tls_mode = tls_mode
        self._max_connections = max_connections
        self._turn = turn
        self._overdue = overdue
        self._budget = budget
        self._streams = 0
        self._token: trio.lowlevel.TrioToken | None = None

    async def serve(
        self,
        listeners: Sequence[trio.abc.Listener[Any]],
        task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        """Accept and serve until cancelled.

        Then accept no more, send what is queued within a bound, and close all channels
        of streams.

        Closes the listeners. Never raises for what a connection does.
        """
        self._token = trio.lowlevel.current_trio_token()
        served: set[StreamChannel] = set()
        async with trio.open_nursery() as nursery:
            connections: trio.Nursery = await nursery.start(self._host)
            try:
                async with trio.open_nursery() as accepting:
                    for listener in listeners:
                        accepting.start_soon(self._accept, listener, connections, served)
                    task_status.started()
            finally:
                async with bounded_cleanup(STOP_TIMEOUT):
                    for listener in listeners:
                        await listener.aclose()
                    async with trio.open_nursery() as closing:
                        for channel in list(served):
                            closing.start_soon(channel.aclose)
                connections.cancel_scope.cancel()

    @staticmethod
    async def _host(task_status: trio.TaskStatus[trio.Nursery]) -> None:
        """The nursery of connections.

        It outlives the cancellation that ends accepting, so that they can be drained;
        `serve` ends it.
        """
        async with trio.open_nursery() as connections:
            connections.cancel_scope.shield = True
            task_status.started(connections)
            await trio.sleep_forever()

    async def _accept(
        self,
        listener: trio.abc.Listener[Any],
        connections: trio.Nursery,
        served: set[StreamChannel],
    ) -> None:
        while True:
            try:
                stream = await listener.accept()
            except trio.ClosedResourceError:
                return
            except OSError as error:
                # Out of descriptors or memory, or a peer that is gone already: the
                # others are served on.
                logger.error("cannot accept a connection: %s", error)
                await trio.sleep(ACCEPT_PAUSE)
                continue
            connections.start_soon(self._serve_stream, stream, served)

    async def _serve_stream(self, stream: trio.abc.Stream, served: set[StreamChannel]) -> None:
        addresses = stream_addresses(stream)
        if self._streams >= self._max_connections:
            logger.warning(
                "closing a new connection of %s: %d are open, the limit",
                addresses.remote_address,
                self._streams,
            )
            await trio.aclose_forcefully(stream)
            return
        self._streams += 1
        try:
            if self._tls is not None or self._tls_mode is not TlsMode.PERMISSIVE:
                stream = await self._secured(stream, addresses.remote_address)
            channel = StreamChannel(
                stream,
                self._handler,
                limits=self.limits,
                remote_address=addresses.remote_address,
                local_address=addresses.local_address,
                remote_host_packed=addresses.remote_host_packed,
                pause_reading=True,
                turn=self._turn,
                overdue=self._overdue,
                budget=self._budget,
                crowd=self._crowd,
            )
            served.add(channel)
            try:
                self._opened(channel)
                await channel.run()
            finally:
                served.discard(channel)
        except ConnectError as error:
            logger.info("closed a new connection: %s", error)
        except Exception:
            logger.exception("serving the connection of %s failed", addresses.remote_address)
        finally:
            self._streams -= 1

    def _crowd(self) -> int:
        return self._streams

    async def _secured(self, stream: trio.abc.Stream, address: str) -> trio.abc.Stream:
        with trio.move_on_after(FIRST_BYTE_TIMEOUT):
            context = None if self._tls is None else self._tls()
            return await accept_tls(stream, context, mode=self._tls_mode, address=address)
        raise ConnectError(
            f"{address} sent nothing within {FIRST_BYTE_TIMEOUT:g} s", address=address
        )

    async def local(
        self,
        client_handler: Handler,
        nursery: trio.Nursery,
        *,
        address: str = LOCAL_ADDRESS,
        limits: ChannelLimits | None = None,
        through_codec: bool = False,
    ) -> LocalChannel:
        """A channel to this server inside the process.

        `address` is what the client sees. Its tasks live in `nursery`, the client's.

        Raises `WrongRunError` when this server serves in another `trio.run`.
        """
        if self._token is None:
            self._token = trio.lowlevel.current_trio_token()
        check_same_run(self._token)
        return await open_local_channel(
            self._handler,
            client_handler,
            nursery,
            limits=limits,
            server_limits=self.limits,
            server_address=address,
            on_open=self._opened,
            through_codec=through_codec,
            turn=self._turn,
        )

    def _opened(self, channel: Channel) -> None:
        self.channels[channel.channel_id] = channel
        channel.on_close.append(self._closed)
        if self._on_open is None:
            return
        try:
            self._on_open(channel)
        except Exception:
            logger.exception(
                "the owner of the server failed over the new channel of %s, which is closed",
                channel.remote_address,
                extra=about(peer=channel.remote_address),
            )
            channel.abort("the owner of the server failed over it")

    def _closed(self, channel: Channel) -> None:
        self.channels.pop(channel.channel_id, None)
        if self._on_close is not None:
            self._on_close(channel)

    def abort_all(self, reason: str) -> None:
        """End all channels at once, without sending what is queued."""
        for channel in list(self.channels.values()):
            channel.abort(reason)

    async def aclose(self) -> None:
        """Close all channels that are open, in process ones too.

        What `serve` accepts goes on until it is cancelled.
        """
        if not self.channels:
            return
        async with bounded_cleanup(STOP_TIMEOUT), trio.open_nursery() as nursery:
            for channel in list(self.channels.values()):
                nursery.start_soon(channel.aclose)
