"""TLS over streams: trio's own checks, writes without a task, and what peers do
wrong.
"""

from __future__ import annotations

import socket
import ssl
from typing import TYPE_CHECKING

import pytest
import trio
import trustme
from trio.testing import (
    check_two_way_stream,
    lockstep_stream_pair,
    memory_stream_pair,
)

from rocketmq_sdk.remoting.channel import ChannelLimits
from rocketmq_sdk.transport.tcp import can_send_now, send_now
from rocketmq_sdk.transport.tls import accept_tls
from rocketmq_sdk.transport.tls_stream import TlsStream

if TYPE_CHECKING:
    from trio.abc import Stream

AUTHORITY = trustme.CA()
CERTIFICATE = AUTHORITY.issue_cert("localhost")


def contexts() -> tuple[ssl.SSLContext, ssl.SSLContext]:
    server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    client = ssl.create_default_context()
    CERTIFICATE.configure_cert(server)
    AUTHORITY.configure_trust(client)
    return server, client


async def secured(streams: tuple[Stream, Stream]) -> tuple[TlsStream, TlsStream]:
    """Both ends after their handshake, the client's first."""
    server_context, client_context = contexts()
    client = TlsStream(streams[0], client_context, host="localhost")
    server = TlsStream(streams[1], server_context, server_side=True)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(client.do_handshake)
        nursery.start_soon(server.do_handshake)
    return client, server


def sockets() -> tuple[Stream, Stream]:
    one, two = (
        trio.SocketStream(trio.socket.from_stdlib_socket(each)) for each in socket.socketpair()
    )
    return one, two


@pytest.mark.real_time  # there are many handshakes
async def test_it_is_a_stream_as_trio_wants_them() -> None:
    async def free() -> tuple[TlsStream, TlsStream]:
        return await secured(memory_stream_pair())

    async def clogged() -> tuple[TlsStream, TlsStream]:
        return await secured(lockstep_stream_pair())

    with trio.fail_after(60):
        await check_two_way_stream(free, clogged)


@pytest.mark.real_time
async def test_what_a_full_socket_does_not_take_at_once_follows() -> None:
    """Each byte once and in order, whether a task sends it or not."""
    with trio.fail_after(60):
        client, server = await secured(sockets())
        assert can_send_now(client)
        pieces = [bytes([number]) * 100_000 for number in range(40)]
        got = bytearray()

        async def read() -> None:
            while len(got) < 4_000_000:
                got.extend(await server.receive_some(300_000))

        left = b""
        async with trio.open_nursery() as nursery:
            for number, piece in enumerate(pieces):
                sent = 0 if left else send_now(client, piece)
                left += piece[sent:]
                if left and number % 4 == 3:
                    if number == 3:
                        nursery.start_soon(read)
                    assert send_now(client, left) == 0  # it is in the middle of a record
                    await client.send_all(left)
                    left = b""
            await client.send_all(left)
        assert bytes(got) == b"".join(pieces)
        await client.aclose()
        assert send_now(client, b"x") == 0
        assert await server.receive_some(10) == b""
        await server.aclose()


async def test_all_that_has_arrived_is_read_at_once() -> None:
    client, server = await secured(memory_stream_pair())
    for number in range(5):
        await client.send_all(bytes([number]) * 20_000)
    expected = b"".join(bytes([number]) * 20_000 for number in range(5))
    assert await server.receive_some(ChannelLimits().max_frame) == expected


async def test_what_came_before_nonsense_is_read_then_it_is_told() -> None:
    ends = memory_stream_pair()
    client, server = await secured(ends)
    await client.send_all(b"whole")
    await ends[0].send_all(b"\x17\x03\x03\x00\x10" + b"no record of this key")
    assert await server.receive_some(100) == b"whole"
    for _ in range(2):
        with pytest.raises(trio.BrokenResourceError):
            await server.receive_some(100)
    with pytest.raises(trio.BrokenResourceError):
        await server.send_all(b"x")
    assert server.send_now(b"x") == 0


@pytest.mark.real_time
async def test_a_plain_connection_to_a_port_with_tls_stays_a_bare_socket() -> None:
    """So it is as fast as at a port without TLS; nothing of it is lost."""
    server_context, _client = contexts()
    one, two = sockets()
    await one.send_all(b"\0hello")
    accepted = await accept_tls(two, server_context, address="peer:1")
    assert accepted is two
    assert await accepted.receive_some(100) == b"\0hello"
    await one.aclose()
    await two.aclose()
