"""TCP byte streams.

Foreign exceptions end here: what goes wrong while connecting is a `ConnectError` that
keeps its cause.
"""

from __future__ import annotations

import errno
import logging
import os
import socket
import sys
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, Protocol, cast

import trio

from rocketmq_sdk.errors import ConfigurationError, ConnectError

if TYPE_CHECKING:
    from collections.abc import Sequence

    _Found = tuple[socket.AddressFamily, socket.SocketKind, int, str, tuple[Any, ...]]

logger = logging.getLogger("rocketmq_sdk.transport")

BACKLOG: Final = 1024
CONNECT_TIMEOUT: Final = 3.0
LAST_PORT: Final = 65535
PIECE_SIZE: Final = 64 * 1024
_MOST_PIECES: Final = 1024
"""Linux's IOV_MAX."""
KEEP_ALIVE: Final = {
    "TCP_KEEPIDLE": 5,
    "TCP_KEEPINTVL": 5,
    "TCP_KEEPCNT": 3,
    "TCP_USER_TIMEOUT": 15_000,
}
"""TCP keep-alive: seconds, `TCP_USER_TIMEOUT` in milliseconds, and a count.

A machine that vanished without a FIN answers no probe of the kernel and acknowledges no
byte: after 15 s (20 when something was just sent) reading fails, and every waiting
request with it. A process that only hangs is not noticed, because its kernel answers.
Apache's client leaves keep-alive off (`NettyRemotingClient`) and waits for its requests
to time out.
"""


async def open_tcp_stream(
    host: str, port: int, *, timeout: float = CONNECT_TIMEOUT
) -> trio.SocketStream:
    """Connect within `timeout` seconds.

    Small writes leave at once (TCP_NODELAY, which trio sets).

    Raises `ConnectError`. Cancellation leaves no socket behind.
    """
    address = f"{host}:{port}"
    with trio.move_on_after(timeout):
        try:
            return _kept_alive(await trio.open_tcp_stream(host, port))
        except (OSError, ValueError) as error:  # ValueError: a host name that cannot be one
            raise ConnectError(
                f"cannot connect to {address}: {_reason(error)}", address=address
            ) from error
    raise ConnectError(f"no connection to {address} within {timeout:g} s", address=address)


def _kept_alive(stream: trio.SocketStream) -> trio.SocketStream:
    """Have the kernel probe the other machine, where the system supports it.

    Without it only requests that time out show that the machine is gone.
    """
    try:
        stream.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in KEEP_ALIVE.items():
            if hasattr(socket, name):
                stream.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
    except OSError as error:
        logger.info("the connection to the other machine is not watched by the kernel: %s", error)
    return stream


def _reason(error: BaseException) -> str:
    """What the system said; trio wraps it once for each address that it tried."""
    while isinstance(error.__cause__, OSError):
        error = error.__cause__
    if isinstance(error, BaseExceptionGroup):
        return "; ".join(dict.fromkeys(_reason(inner) for inner in error.exceptions))
    if isinstance(error.__cause__, BaseExceptionGroup):
        return _reason(error.__cause__)
    return str(getattr(error, "strerror", None) or error).rpartition("): ")[
        2
    ]  # trio puts the address in front, which is named already


class SendsNow(Protocol):
    """A stream that is written to without a task, if `sends_now` is true."""

    sends_now: bool

    def send_now(self, data: bytes) -> int:
        """What `send_now` of this module does."""
        ...


def can_send_now(stream: trio.abc.Stream) -> bool:
    """Whether `send_now` works with a stream.

    It must be a bare TCP stream, on a system that writes to sockets as to files, TLS
    over one, or one of a network in memory.
    """
    if isinstance(stream, trio.SocketStream):
        return sys.platform != "win32"
    return bool(getattr(stream, "sends_now", False))


# Handing bytes to a sleeping writer task costs a pass of the loop, 20 to 30 us, which
# one request at a time pays on both sides. The socket does not block, so a write is
# safe wherever nobody else is in the middle of one.
def send_now(stream: trio.abc.Stream, data: bytes) -> int:
    """Give the stream as many bytes as it takes at once; tells their number.

    Only while no task sends on the stream. What it did not take must be sent next.

    0 also when the stream is broken or closed: the next `send_all` meets the error.
    """
    if type(stream) is not trio.SocketStream:  # which has no subclasses
        return cast("SendsNow", stream).send_now(data)
    try:
        return os.write(stream.socket.fileno(), data)
    except OSError:
        return 0


def send_pieces_now(stream: trio.abc.Stream, pieces: Sequence[bytes | memoryview]) -> int:
    """`send_now` for pieces that follow each other; a TCP stream need not join them."""
    if not isinstance(stream, trio.SocketStream):
        return send_now(stream, b"".join(pieces))
    try:
        return os.writev(stream.socket.fileno(), pieces[:_MOST_PIECES])
    except OSError:
        return 0


def can_receive_now(stream: trio.abc.Stream) -> bool:
    """Whether `wait_readable` and `receive_now` work with a stream."""
    return type(stream) is trio.SocketStream and sys.platform != "win32"  # it has no subclasses


async def wait_readable(stream: trio.abc.Stream) -> None:
    """Wait until something has come, without taking it."""
    assert isinstance(stream, trio.SocketStream)
    await trio.lowlevel.wait_readable(stream.socket)


def descriptor_of(stream: trio.abc.Stream) -> int:
    """That of the socket. Raises `trio.ClosedResourceError` when it is closed."""
    assert isinstance(stream, trio.SocketStream)
    descriptor = stream.socket.fileno()
    if descriptor < 0:
        raise trio.ClosedResourceError("this stream was closed")
    return descriptor


def receive_now(stream: trio.abc.Stream, size: int) -> bytes | None:
    """What has come, up to `size` bytes; empty at the end, None when nothing has.

    Raises `OSError`.
    """
    assert isinstance(stream, trio.SocketStream)
    try:
        return os.read(stream.socket.fileno(), size)
    except BlockingIOError:
        return None


# The bare `receive_some` of trio first asks the socket in vain: an exception, a system
# call and the layers around them, before the task may wait.
async def receive_soon(stream: trio.abc.Stream, size: int) -> bytes | bytearray:
    """`stream.receive_some`, where a TCP stream is expected to have nothing yet.

    Raises what that raises, and `OSError`.
    """
    if not isinstance(stream, trio.SocketStream) or sys.platform == "win32":
        return await stream.receive_some(size)
    sock = stream.socket
    while True:
        await trio.lowlevel.wait_readable(sock)
        try:
            return os.read(sock.fileno(), size)
        except BlockingIOError:
            continue


async def send_some(stream: trio.abc.Stream, data: bytes | memoryview) -> int:
    """Send what the stream takes, at least a byte; returns the number of bytes.

    So progress can be watched, unlike that of `send_all`.

    A TCP stream tells of each write; others are given `PIECE_SIZE` bytes at a time.
    Raises what `send_all` raises, and `OSError`.
    """
    if isinstance(stream, trio.SocketStream):
        return await stream.socket.send(data)
    piece = data if len(data) <= PIECE_SIZE else data[:PIECE_SIZE]
    await stream.send_all(piece)
    return len(piece)


async def open_tcp_listeners(host: str | None, port: int) -> tuple[list[trio.SocketListener], int]:
    """Listen on one port for all address families of `host`.

    Returns the listeners and the port. Port 0 takes any free one, None all addresses.

    Raises `ConfigurationError` when the address cannot be bound.
    """
    if not 0 <= port <= LAST_PORT:
        raise ConfigurationError(
            f"cannot listen on {host or '*'}:{port}: there are ports 0 to {LAST_PORT}"
        )
    for attempt in range(20):
        try:
            return await _bind(host, port)
        except OSError as error:
            # A free port of one family may be taken in the other one.
            if port or error.errno != errno.EADDRINUSE or attempt == 19:
                raise ConfigurationError(
                    f"cannot listen on {host or '*'}:{port}: {error.strerror or error}"
                ) from error
    raise AssertionError("unreachable")


async def wait_connected(listener: trio.abc.Listener[Any]) -> None:
    """Wait until somebody connects, where it is a TCP listener.

    The bare `accept` of trio first asks the socket in vain, as `receive_some` does.
    """
    if isinstance(listener, trio.SocketListener) and sys.platform != "win32":
        sock = listener.socket
        if sock.fileno() >= 0:
            await trio.lowlevel.wait_readable(sock)


def close_now(listener: trio.abc.Listener[Any]) -> bool:
    """Close a TCP listener without a turn of the loop; False for another one."""
    if not isinstance(listener, trio.SocketListener):
        return False
    listener.socket.close()
    return True


async def _bind(host: str | None, port: int) -> tuple[list[trio.SocketListener], int]:
    found = _numeric(host) or await trio.socket.getaddrinfo(
        host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )
    listeners: list[trio.SocketListener] = []
    try:
        for family, kind, protocol, _, address in dict.fromkeys(found):
            try:
                sock = socket.socket(family, kind, protocol)
            except OSError as error:
                if error.errno == errno.EAFNOSUPPORT and len(found) > 1:
                    continue
                raise
            listeners.append(_listen(sock, (address[0], port, *address[2:])))
            port = listeners[-1].socket.getsockname()[1]
    except BaseException:
        for listener in listeners:
            listener.socket.close()
        raise
    return listeners, port


@lru_cache(maxsize=64)
def _numeric(host: str | None) -> Sequence[_Found]:
    """The addresses of a host that nobody has to be asked for; none for a name.

    Their port is 0.
    """
    flags = socket.AI_PASSIVE | socket.AI_NUMERICHOST
    try:
        return socket.getaddrinfo(host or None, 0, type=socket.SOCK_STREAM, flags=flags)
    except OSError:
        return []


def _listen(sock: socket.socket, address: tuple[object, ...]) -> trio.SocketListener:
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if sock.family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        sock.bind(address)
        sock.listen(BACKLOG)
    except BaseException:
        sock.close()
        raise
    return trio.SocketListener(trio.socket.from_stdlib_socket(sock))
