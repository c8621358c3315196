"""The memory network keeps trio's contract of streams and breaks on demand."""

from __future__ import annotations

import pytest
import trio
import trio.testing

from rocketmq_sdk.errors import ConfigurationError, ConnectError
from rocketmq_sdk.transport.memory import MemoryNetwork, MemoryStream


async def stream_pair(capacity: int = 256 * 1024) -> tuple[MemoryStream, MemoryStream]:
    network = MemoryNetwork(capacity=capacity)
    listener = network.listen("server:1")
    client = await network.connect("server:1")
    return client, await listener.accept()


async def test_streams_keep_the_contract():
    with trio.fail_after(60):
        await trio.testing.check_half_closeable_stream(stream_pair, None)


async def test_streams_keep_the_contract_when_clogged():
    async def clogged() -> tuple[MemoryStream, MemoryStream]:
        client, server = await stream_pair(capacity=1024)
        await client.send_all(b"x" * 1024)
        await server.send_all(b"x" * 1024)
        return client, server

    with trio.fail_after(60):
        await trio.testing.check_two_way_stream(stream_pair, clogged)


async def test_a_full_pipe_holds_its_sender(autojump_clock):
    client, server = await stream_pair(capacity=10)
    with trio.move_on_after(5) as scope:
        await client.send_all(b"x" * 11)
    assert scope.cancelled_caught
    with trio.fail_after(5):
        assert await server.receive_some(100) == b"x" * 10


async def test_delay_holds_connecting_and_bytes(autojump_clock):
    network = MemoryNetwork()
    listener = network.listen("server:1")
    network.delay("server:1", 2.0)
    with trio.fail_after(60):
        begin = trio.current_time()
        client = await network.connect("server:1")
        assert trio.current_time() - begin == pytest.approx(2.0)
        server = await listener.accept()
        await client.send_all(b"ping")
        assert await server.receive_some(4) == b"ping"
        assert trio.current_time() - begin == pytest.approx(4.0)
        network.delay("server:1", 0.0)
        await server.send_all(b"pong")
        assert await client.receive_some(4) == b"pong"
        assert trio.current_time() - begin == pytest.approx(4.0)


async def test_cut_breaks_both_ends_and_loses_bytes():
    network = MemoryNetwork()
    listener = network.listen("server:1")
    client = await network.connect("server:1")
    server = await listener.accept()
    await client.send_all(b"lost")
    assert network.cut("server:1") == 1
    for end in (client, server):
        with pytest.raises(trio.BrokenResourceError):
            await end.receive_some(10)
        with pytest.raises(trio.BrokenResourceError):
            await end.send_all(b"x")
    assert network.cut("server:1") == 0


async def test_refusing_and_nobody():
    network = MemoryNetwork()
    with pytest.raises(ConnectError, match="nobody:1"):
        await network.connect("nobody:1")
    listener = network.listen("server:0")
    assert network.serves(listener.address)
    network.refuse(listener.address)
    with pytest.raises(ConnectError, match="refused"):
        await network.connect(listener.address)
    network.refuse(listener.address, False)
    await network.connect(listener.address)
    with pytest.raises(ConfigurationError, match="already"):
        network.listen(listener.address)


async def test_a_closed_listener_is_gone_and_breaks_who_waited():
    network = MemoryNetwork()
    listener = network.listen("server:1")
    client = await network.connect("server:1")
    await listener.aclose()
    with pytest.raises(trio.BrokenResourceError):
        await client.receive_some(1)
    with pytest.raises(trio.ClosedResourceError):
        await listener.accept()
    with pytest.raises(ConnectError):
        await network.connect("server:1")
    network.listen("server:1")
