"""TLS over any byte stream, and a port that serves both TLS and plain connections.

A ClientHello begins with 0x16; a frame of legal length begins with 0x00. So the first
byte tells which is spoken (`NettyRemotingServer` and `TlsMode.PERMISSIVE` of Apache
RocketMQ 5.4.0).
"""

from __future__ import annotations

import errno
import socket
import ssl
from enum import Enum
from typing import Final

import trio

from rocketmq_sdk.errors import ConnectError
from rocketmq_sdk.transport.tls_stream import TlsStream

CLIENT_HELLO: Final = 0x16
HANDSHAKE_TIMEOUT: Final = 10.0
_BROKEN = (trio.BrokenResourceError, trio.ClosedResourceError, OSError, ssl.SSLError)


class TlsMode(Enum):
    """Whether a server accepts TLS connections, plain ones, or both."""

    DISABLED = "disabled"
    PERMISSIVE = "permissive"
    ENFORCING = "enforcing"


class PushbackStream(trio.abc.Stream):
    """A stream whose first bytes were read already and are read again."""

    def __init__(self, stream: trio.abc.Stream, first: bytes) -> None:
        self._stream = stream
        self._first = first

    async def receive_some(self, max_bytes: int | None = None) -> bytes | bytearray:
        if self._first:
            await trio.lowlevel.checkpoint()
            taken = self._first if max_bytes is None else self._first[:max_bytes]
            self._first = self._first[len(taken) :]
            return taken
        return await self._stream.receive_some(max_bytes)

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        await self._stream.send_all(data)

    async def wait_send_all_might_not_block(self) -> None:
        await self._stream.wait_send_all_might_not_block()

    async def aclose(self) -> None:
        await self._stream.aclose()


async def start_client_tls(
    stream: trio.abc.Stream,
    context: ssl.SSLContext,
    *,
    host: str | None,
    address: str,
    timeout: float = HANDSHAKE_TIMEOUT,
) -> trio.abc.Stream:
    """Begin TLS on a connected stream.

    `host` is the name that is asked for and, if the context says so, checked.

    Raises `ConnectError`; the stream is closed then.
    """
    return await _handshake(TlsStream(stream, context, host=host), address, timeout)


async def accept_tls(
    stream: trio.abc.Stream,
    context: ssl.SSLContext | None,
    *,
    mode: TlsMode = TlsMode.PERMISSIVE,
    address: str,
    timeout: float = HANDSHAKE_TIMEOUT,
) -> trio.abc.Stream:
    """The stream to speak on after a look at the first byte of a new connection.

    `timeout` holds for a TLS handshake only.

    Raises `ConnectError` when the peer speaks what `mode` does not allow, the handshake
    fails, or it is gone; the stream is closed then.
    """
    try:
        first = await _first_byte(stream)
    except _BROKEN as error:
        await trio.aclose_forcefully(stream)
        raise ConnectError(f"{address} went away: {error}", address=address) from error
    except BaseException:
        await trio.aclose_forcefully(stream)
        raise
    secure = bool(first) and first[0] == CLIENT_HELLO
    usable = context is not None and mode is not TlsMode.DISABLED
    if not first or (secure and not usable) or (not secure and mode is TlsMode.ENFORCING):
        await trio.aclose_forcefully(stream)
        what = (
            "sent nothing"
            if not first
            else "speaks TLS, which is off"
            if secure
            else "does not speak TLS, which is required"
        )
        raise ConnectError(f"{address} {what}", address=address)
    peeked = isinstance(stream, trio.SocketStream)
    if not secure or context is None:
        return stream if peeked else PushbackStream(stream, first)
    taken = b"" if peeked else first
    return await _handshake(
        TlsStream(stream, context, server_side=True, first=taken), address, timeout
    )


async def _first_byte(stream: trio.abc.Stream) -> bytes:
    """The first byte, none at the end; a socket keeps it."""
    if not isinstance(stream, trio.SocketStream):
        return bytes(await stream.receive_some(1))
    try:
        return await stream.socket.recv(1, socket.MSG_PEEK)
    except OSError as error:
        if error.errno == errno.EBADF:
            raise trio.ClosedResourceError from error
        raise


async def _handshake(secured: TlsStream, address: str, timeout: float) -> trio.abc.Stream:
    with trio.move_on_after(timeout):
        try:
            await secured.do_handshake()
        except _BROKEN as error:
            await trio.aclose_forcefully(secured)
            raise ConnectError(
                f"no TLS connection with {address}: {error.__cause__ or error}", address=address
            ) from error
        except BaseException:
            await trio.aclose_forcefully(secured)
            raise
        return secured
    raise ConnectError(f"no TLS connection with {address} within {timeout:g} s", address=address)
