"""Sockets: one port for all families, errors of this package, TLS told from plain by
the first byte.
"""

from __future__ import annotations

import socket
import ssl
import struct
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest
import trio
import trio.testing
import trustme

from rocketmq_sdk.errors import ConfigurationError, ConnectError
from rocketmq_sdk.transport.tcp import (
    KEEP_ALIVE,
    open_tcp_listeners,
    open_tcp_stream,
    receive_soon,
    send_now,
)
from rocketmq_sdk.transport.tls import PushbackStream, TlsMode, accept_tls, start_client_tls

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

pytestmark = pytest.mark.real_time


def tls_contexts() -> tuple[ssl.SSLContext, ssl.SSLContext]:
    authority = trustme.CA()
    server, client = (
        ssl.create_default_context(ssl.Purpose.CLIENT_AUTH),
        ssl.create_default_context(),
    )
    authority.issue_cert("localhost").configure_cert(server)
    authority.configure_trust(client)
    return server, client


@asynccontextmanager
async def open_pair() -> AsyncIterator[tuple[trio.SocketStream, trio.SocketStream]]:
    (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
    async with listener:
        one = await trio.open_tcp_stream(*listener.socket.getsockname()[:2])
        async with one, await listener.accept() as two:
            yield one, two


@pytest.mark.parametrize("port", [-1, 65536])
async def test_a_port_that_does_not_exist_is_refused(port: int) -> None:
    with pytest.raises(ConfigurationError, match=f":{port}: there are ports 0 to 65535"):
        await open_tcp_listeners("127.0.0.1", port)


async def test_all_families_share_one_port():
    listeners, port = await open_tcp_listeners(None, 0)
    try:
        assert {listener.socket.getsockname()[1] for listener in listeners} == {port}
        stream = await open_tcp_stream("127.0.0.1", port)
        (served,) = [one for one in listeners if one.socket.family == socket.AF_INET]
        # neither side keeps small writes back for 40 ms
        for end in (stream, await served.accept()):
            assert end.socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
            await end.aclose()
    finally:
        for listener in listeners:
            await listener.aclose()


async def test_a_machine_that_is_gone_is_noticed_by_the_kernel():
    """What is set is all that can be tested here: a loopback does not vanish."""
    listeners, port = await open_tcp_listeners("127.0.0.1", 0)
    stream = await open_tcp_stream("127.0.0.1", port)
    try:
        assert stream.socket.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        known = {name: value for name, value in KEEP_ALIVE.items() if hasattr(socket, name)}
        assert {
            name: stream.socket.getsockopt(socket.IPPROTO_TCP, getattr(socket, name))
            for name in known
        } == known
    finally:
        await stream.aclose()
        for listener in listeners:
            await listener.aclose()


async def test_a_taken_port_is_a_configuration_error():
    listeners, port = await open_tcp_listeners("127.0.0.1", 0)
    with pytest.raises(ConfigurationError, match=str(port)):
        await open_tcp_listeners("127.0.0.1", port)
    for listener in listeners:
        await listener.aclose()


async def test_nobody_listens():
    with socket.socket() as silent:  # it keeps the port
        silent.bind(("127.0.0.1", 0))
        port = silent.getsockname()[1]
        with trio.fail_after(60), pytest.raises(ConnectError, match=f"127.0.0.1:{port}") as caught:
            await open_tcp_stream("127.0.0.1", port)
    assert isinstance(caught.value.__cause__, OSError)
    assert not caught.value.outcome_unknown


async def test_a_write_to_a_full_or_closed_socket_takes_nothing():
    listeners, port = await open_tcp_listeners("127.0.0.1", 0)
    stream = await open_tcp_stream("127.0.0.1", port)
    sent = 1
    with trio.fail_after(60):
        while sent:
            sent = send_now(stream, b"x" * 65536)
            await trio.lowlevel.checkpoint()
    await stream.aclose()
    assert send_now(stream, b"x") == 0
    for listener in listeners:
        await listener.aclose()


async def test_pushback_gives_the_first_bytes_again():
    one, two = trio.testing.memory_stream_pair()
    await two.send_all(b"rest")
    pushed = PushbackStream(one, b"first")
    assert await pushed.receive_some(2) == b"fi"
    assert await pushed.receive_some(100) == b"rst"
    assert await pushed.receive_some(100) == b"rest"


@pytest.mark.parametrize("mode", list(TlsMode))
@pytest.mark.parametrize("secure", [False, True])
async def test_the_first_byte_decides(mode: TlsMode, secure: bool):
    server_context, client_context = tls_contexts()
    ours, theirs = trio.testing.memory_stream_pair()
    welcome = mode is TlsMode.PERMISSIVE or (mode is TlsMode.ENFORCING) == secure
    results: list[object] = []

    async def server() -> None:
        try:
            stream = await accept_tls(ours, server_context, mode=mode, address="peer:1")
            results.append(bytes(await stream.receive_some(100)))
        except ConnectError as error:
            results.append(error)

    async def client() -> None:
        stream: trio.abc.Stream = theirs
        try:
            if secure:
                stream = await start_client_tls(
                    theirs, client_context, host="localhost", address="server:1"
                )
            await stream.send_all(b"\0hello")
        except (ConnectError, trio.BrokenResourceError):
            assert not welcome

    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(server)
            nursery.start_soon(client)
    if not welcome:
        assert isinstance(results[0], ConnectError)
    elif secure:
        assert results == [b"\0hello"]
    else:
        assert results == [b"\0"]  # the byte that was looked at comes again, alone


async def test_a_broken_handshake_is_a_connect_error():
    server_context, _ = tls_contexts()
    ours, theirs = trio.testing.memory_stream_pair()
    await theirs.send_all(b"\x16 this is no hello at all, whatever it begins with")
    with trio.fail_after(60), pytest.raises(ConnectError, match="no TLS"):
        await accept_tls(ours, server_context, address="peer:1")


async def test_bytes_that_come_later_are_waited_for():
    """So are the end of the stream, an error, and the stream's own end."""
    async with open_pair() as (one, two):
        got: list[bytes | bytearray] = []
        async with trio.open_nursery() as nursery:

            async def receive() -> None:
                got.append(await receive_soon(one, 3))

            nursery.start_soon(receive)
            await trio.testing.wait_all_tasks_blocked(0.01)
            assert not got
            await two.send_all(b"abcde")
        assert got == [b"abc"]
        assert await receive_soon(one, 3) == b"de"
        await two.send_eof()
        assert await receive_soon(one, 3) == b""
    async with open_pair() as (one, two):
        two.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        await two.aclose()
        with pytest.raises(ConnectionResetError):
            await receive_soon(one, 3)
    async with open_pair() as (one, _two), trio.open_nursery() as nursery:
        nursery.start_soon(one.aclose)
        with pytest.raises(trio.ClosedResourceError):
            await receive_soon(one, 3)


async def test_a_cancelled_wait_for_bytes_takes_none():
    async with open_pair() as (one, two):
        with trio.move_on_after(0.01):
            await receive_soon(one, 3)
        await two.send_all(b"abc")
        assert await receive_soon(one, 3) == b"abc"
