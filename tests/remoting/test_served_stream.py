"""A server's loop does not sleep between the requests of a lone peer."""

from __future__ import annotations

import socket
import struct
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING

import pytest
import trio

from rocketmq_sdk.protocol.command import Command
from rocketmq_sdk.protocol.frame import encode_frame
from rocketmq_sdk.remoting import served_stream
from rocketmq_sdk.remoting.server import RemotingServer
from rocketmq_sdk.remoting.spinning import MOST
from rocketmq_sdk.transport.tcp import open_tcp_listeners
from support.spinning import Always, Patient

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from rocketmq_sdk.remoting.channel import Channel
    from rocketmq_sdk.remoting.spinning import Spinning

pytestmark = pytest.mark.real_time
begun: list[int] = []
"""The sizes beside which a reader has begun to spin."""


def echo(_channel: Channel, command: Command) -> Command:
    return Command.response(0, body=command.body)


class Noted(Always):
    __slots__ = ()

    def begin(self, size: int = 0) -> bool:
        begun.append(size)
        return super().begin(size)


class NotedPatient(Noted, Patient):
    __slots__ = ()


class Peer:
    """Speaks frames over a bare socket."""

    def __init__(self, stream: trio.SocketStream) -> None:
        self.stream = stream

    async def ask(self, body: bytes = b"x") -> None:
        """Send a request and take its answer."""
        await self.stream.send_all(encode_frame(Command.request(10, body=body)))
        await self.answer(body)

    async def answer(self, body: bytes) -> None:
        data = b""
        while not data.endswith(body):
            data += await self.stream.receive_some()


@asynccontextmanager
async def serving(
    monkeypatch: pytest.MonkeyPatch, policy: type[Spinning], peers: int = 1
) -> AsyncIterator[tuple[RemotingServer, list[Peer]]]:
    begun.clear()
    monkeypatch.setattr(served_stream, "Spinning", policy)
    server = RemotingServer(echo)
    listeners, port = await open_tcp_listeners("127.0.0.1", 0)
    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            await nursery.start(server.serve, listeners)
            async with AsyncExitStack() as streams:
                yield (
                    server,
                    [
                        Peer(
                            await streams.enter_async_context(
                                await trio.open_tcp_stream("127.0.0.1", port)
                            )
                        )
                        for _ in range(peers)
                    ],
                )
            nursery.cancel_scope.cancel()


async def closed(server: RemotingServer) -> None:
    """Wait until the server has no channel."""
    while server.channels:
        await trio.lowlevel.checkpoint()


async def test_a_lone_peer_is_looked_for_after_each_of_its_requests(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with serving(monkeypatch, NotedPatient) as (_server, (peer,)):
        for number in range(20):
            await peer.ask(b"%d" % number)
        assert len(begun) >= 19
        assert min(begun) > 0
        await peer.ask(bytes(20_000))
        await peer.ask()
        assert max(begun) > 20_000


async def test_peers_that_ask_beside_each_other_are_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with serving(monkeypatch, Noted, 3) as (_server, peers):
        await peers[0].ask()
        await peers[1].ask()
        await peers[2].ask()
        begun.clear()
        for _ in range(20):
            for peer in peers:
                await peer.ask()
        assert begun == []
        # and one that is alone again is looked for
        for _ in range(3):
            await peers[0].ask()
        assert begun


async def test_others_are_served_while_it_spins(monkeypatch: pytest.MonkeyPatch) -> None:
    async with serving(monkeypatch, NotedPatient, 2) as (_server, (lone, other)):
        for _ in range(3):
            await lone.ask()
        assert begun
        for _ in range(3):
            await other.ask()
        await lone.ask()


async def test_who_sends_parts_of_frames_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    async with serving(monkeypatch, Noted) as (server, (peer,)):
        for _ in range(3):
            await peer.ask()
        (channel,) = server.channels.values()
        frame, seen = encode_frame(Command.request(10, body=b"parts")), 0.0
        begun.clear()
        for part in (frame[:3], frame[3:9], frame[9:-1]):
            seen = channel.last_progress
            await peer.stream.send_all(part)
            while channel.last_progress == seen:
                await trio.lowlevel.checkpoint()
            for _ in range(2 * MOST):
                await trio.lowlevel.checkpoint()
        assert begun == []
        await peer.stream.send_all(frame[-1:])
        await peer.answer(b"parts")


@pytest.mark.parametrize("how", ["ends", "breaks", "stays"])
async def test_a_connection_ends_while_it_spins(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async with serving(monkeypatch, NotedPatient) as (server, (peer,)):
        for _ in range(3):
            await peer.ask()
        assert begun
        (channel,) = server.channels.values()
        if how == "ends":
            await peer.stream.send_eof()
        elif how == "breaks":
            linger = struct.pack("ii", 1, 0)
            peer.stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            await peer.stream.aclose()
        else:
            server.abort_all("the test ends it")
        await closed(server)
        assert channel.close_reason is not None
        wanted = {"ends": "the peer closed it", "breaks": "reading failed", "stays": "the test"}
        assert wanted[how] in channel.close_reason


async def test_the_server_stops_while_it_spins(monkeypatch: pytest.MonkeyPatch) -> None:
    async with serving(monkeypatch, NotedPatient) as (server, (peer,)):
        for _ in range(3):
            await peer.ask()
        assert begun
        await server.aclose()
        assert not server.channels


async def test_the_loop_sleeps_when_nothing_comes_for_a_while(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Sleeps(trio.abc.Instrument):
        number = 0

        def before_io_wait(self, timeout: float) -> None:
            self.number += timeout > 0

    async with serving(monkeypatch, Noted) as (_server, (peer,)):
        for _ in range(3):
            await peer.ask()
        assert begun
        begun.clear()
        sleeps = Sleeps()
        trio.lowlevel.add_instrument(sleeps)
        await trio.sleep(0.01)
        trio.lowlevel.remove_instrument(sleeps)
        assert sleeps.number >= 1
        assert begun == []
