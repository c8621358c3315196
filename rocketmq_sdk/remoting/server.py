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
from rocketmq_sdk.remoting.places import Accepting, Places
from rocketmq_sdk.remoting.served_stream import ServedStream
from rocketmq_sdk.transport.addresses import stream_addresses
from rocketmq_sdk.transport.tcp import close_now
from rocketmq_sdk.transport.tls import TlsMode, accept_tls

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rocketmq_sdk.remoting.budget import MemoryBudget
    from rocketmq_sdk.remoting.channel import Channel, Handler, Overdue, Turn
    from rocketmq_sdk.transport.tls_files import ContextSource

logger = logging.getLogger("rocketmq_sdk.remoting")

STOP_TIMEOUT: Final = 3.0
FIRST_BYTE_TIMEOUT: Final = 120.0


class _Newcomer:
    """A connection of which it is not known yet what it speaks."""

    __slots__ = ("closed", "heard", "reason", "scope")

    def __init__(self) -> None:
        self.heard = self.closed = False
        self.reason = f"sent nothing within {FIRST_BYTE_TIMEOUT:g} s"
        self.scope = trio.CancelScope(deadline=trio.current_time() + FIRST_BYTE_TIMEOUT)

    def abort(self, reason: str) -> None:
        """Wait for it no longer."""
        self.reason = f"is closed: {reason}"
        self.scope.cancel()


class RemotingServer:
    """One handler, many channels.

    `on_open` and `on_close` are told of each channel, over streams and in process,
    synchronously. With `tls`, a context or what gives one for each connection, or a
    `tls_mode` other than permissive, the first byte of a connection decides whether it
    speaks TLS. `places` bounds its streams together with those of other servers. `turn`
    frames the serving of requests of a stream that arrived together, `overdue` judges
    those of them that had to wait for turns of others. `budget` bounds what its streams
    hold together with those of other servers; channels inside the process do not count.
    In the place of a handler, `make_handler` makes it for the first channel.
    """

    def __init__(
        self,
        handler: Handler | None = None,
        *,
        make_handler: Callable[[], Handler] | None = None,
        limits: ChannelLimits | None = None,
        on_open: Callable[[Channel], None] | None = None,
        on_close: Callable[[Channel], None] | None = None,
        tls: ssl.SSLContext | ContextSource | None = None,
        tls_mode: TlsMode = TlsMode.PERMISSIVE,
        places: Places | None = None,
        turn: Turn | None = None,
        overdue: Overdue | None = None,
        budget: MemoryBudget | None = None,
    ) -> None:
        self.channels: dict[int, Channel] = {}
        self._made_handler = handler
        self._make_handler = make_handler
        self.limits = limits or ChannelLimits()
        """Those of channels that are opened from now on."""
        self._on_open = on_open
        self._on_close = on_close
        self._tls = (lambda: tls) if isinstance(tls, ssl.SSLContext) else tls
        self._tls_mode = tls_mode
        self._places = Places() if places is None else places
        self._turn = turn
        self._overdue = overdue
        self._budget = budget
        self._streams = 0
        self._token: trio.lowlevel.TrioToken | None = None

    @property
    def _handler(self) -> Handler:
        if self._made_handler is None:
            assert self._make_handler is not None
            self._made_handler = self._make_handler()
        return self._made_handler

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
        await serve_together([(self, listeners)], task_status)

    async def _accept_all(
        self, listeners: Sequence[trio.abc.Listener[Any]], connections: trio.Nursery
    ) -> None:
        """Accept until cancelled; then close the listeners and what came by them."""
        served: dict[ServedStream, None] = {}  # in order, unlike a set
        try:
            if len(listeners) == 1:
                await self._accept(listeners[0], connections, served)
            else:
                async with trio.open_nursery() as accepting:
                    for listener in listeners:
                        accepting.start_soon(self._accept, listener, connections, served)
        finally:
            left: list[Any] = [each for each in listeners if not close_now(each)]
            if left or served:
                async with bounded_cleanup(STOP_TIMEOUT), trio.open_nursery() as closing:
                    for closes in (*left, *served):
                        closing.start_soon(closes.aclose)

    async def _accept(
        self,
        listener: trio.abc.Listener[Any],
        connections: trio.Nursery,
        served: dict[ServedStream, None],
    ) -> None:
        accepting = Accepting(listener, "a connection", logger)
        while (stream := await accepting.next()) is not None:
            connections.start_soon(self._serve_stream, stream, served)

    async def _serve_stream(
        self, stream: trio.abc.Stream, served: dict[ServedStream, None]
    ) -> None:
        addresses = stream_addresses(stream)
        self._streams += 1
        try:
            if self._tls is not None or self._tls_mode is not TlsMode.PERMISSIVE:
                secured = await self._secured(stream, addresses.remote_address)
                if secured is None:
                    return
                stream = secured
            channel = ServedStream(
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
            if not self._places.take(channel):
                await self._refuse(stream, addresses.remote_address)
                return
            served[channel] = None
            try:
                self._opened(channel)
                await channel.run()
            finally:
                served.pop(channel, None)
                self._places.leave(channel)
        except ConnectError as error:
            logger.info("closed a new connection: %s", error)
        except Exception:
            logger.exception("serving the connection of %s failed", addresses.remote_address)
        finally:
            self._streams -= 1

    async def _refuse(self, stream: trio.abc.Stream, address: str) -> None:
        places = self._places
        places.told.say(
            logger,
            logging.WARNING,
            f"closing a new connection of {address}: {places.taken} are open, the limit",
        )
        await trio.aclose_forcefully(stream)

    def _crowd(self) -> int:
        return self._streams

    async def _secured(self, stream: trio.abc.Stream, address: str) -> trio.abc.Stream | None:
        """The stream to speak on; None when there is no place for it."""
        newcomer = _Newcomer()
        if not self._places.take(newcomer):
            await self._refuse(stream, address)
            return None
        try:
            with newcomer.scope:
                context = None if self._tls is None else self._tls()
                return await accept_tls(stream, context, mode=self._tls_mode, address=address)
        finally:
            newcomer.closed = True
            self._places.leave(newcomer)
        await trio.aclose_forcefully(stream)
        raise ConnectError(f"{address} {newcomer.reason}", address=address)

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


async def serve_together(
    servers: Sequence[tuple[RemotingServer, Sequence[trio.abc.Listener[Any]]]],
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """`serve` for several servers, by one task and one for each of them."""
    left, over = len(servers), trio.Event()

    async def accept(server: RemotingServer, listeners: Sequence[trio.abc.Listener[Any]]) -> None:
        nonlocal left
        try:
            await server._accept_all(listeners, connections)
        finally:
            left -= 1
            if not left:
                over.set()

    async with trio.open_nursery() as accepting, trio.open_nursery() as connections:
        # They outlive the cancellation that ends accepting: they are drained.
        connections.cancel_scope.shield = True
        for server, listeners in servers:
            server._token = trio.lowlevel.current_trio_token()
            accepting.start_soon(accept, server, listeners)
        task_status.started()
        if servers:
            await over.wait()
        connections.cancel_scope.cancel()
