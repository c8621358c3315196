"""Connections that never say anything do not keep others out."""

from __future__ import annotations

import errno
import logging
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest
import trio

from rocketmq_sdk.errors import ConnectError
from rocketmq_sdk.protocol.command import Command
from rocketmq_sdk.protocol.frame import encode_frame
from rocketmq_sdk.remoting.budget import MemoryBudget
from rocketmq_sdk.remoting.places import LEAST, MOST, RESERVED, Accepting, Places, most_connections
from rocketmq_sdk.remoting.server import RemotingServer
from rocketmq_sdk.remoting.source import MemoryChannelSource
from rocketmq_sdk.transport.memory import MemoryNetwork
from rocketmq_sdk.transport.tls import TlsMode

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from trio.testing import MockClock

    from rocketmq_sdk.remoting.channel import Channel


def echo(_channel: Channel, _command: Command) -> Command:
    return Command.response()


@asynccontextmanager
async def served(places: Places, **settings: TlsMode) -> AsyncIterator[MemoryNetwork]:
    network = MemoryNetwork()
    servers = [RemotingServer(echo, places=places, **settings) for _ in range(2)]
    async with trio.open_nursery() as nursery:
        for number, server in enumerate(servers, 1):
            await nursery.start(server.serve, [network.listen(f"server:{number}")])
        with trio.fail_after(60):
            yield network
        nursery.cancel_scope.cancel()


async def test_those_that_never_brought_a_request_give_way(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    places = Places(20)
    async with served(places) as network, trio.open_nursery() as nursery:
        source = MemoryChannelSource(network)
        good = await source.open_channel("server:1", echo, nursery)
        assert (await good.call(Command(10), 3)).code == 0
        half = encode_frame(Command(10))[:-1]
        strangers = []
        for number in range(200):
            stream = await network.connect(f"server:{1 + number % 2}")
            if number % 3:
                await stream.send_all(half)
            strangers.append(stream)
            if number % 50 == 0:
                late = await source.open_channel("server:2", echo, nursery)
                assert (await late.call(Command(10), 3)).code == 0
        await trio.sleep(1)
        assert places.taken <= 20
        assert places.gave_way > 170
        assert places.refused == 0
        assert (await good.call(Command(10), 3)).code == 0
        assert (await late.call(Command(10), 3)).code == 0
        nursery.cancel_scope.cancel()
    await trio.sleep(5)
    assert places.taken == 0
    assert len(caplog.records) < 10


async def test_those_that_are_heard_stay_and_newcomers_are_refused_quietly(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    places = Places(5)
    async with served(places) as network, trio.open_nursery() as nursery:
        source = MemoryChannelSource(network)
        heard = [await source.open_channel("server:1", echo, nursery) for _ in range(5)]
        for channel in heard:
            await channel.call(Command(10), 3)
        for _ in range(100):
            refused = await source.open_channel("server:2", echo, nursery)
            await refused.wait_closed()
        assert places.refused == 100
        assert [(await channel.call(Command(10), 3)).code for channel in heard] == [0] * 5
        assert len([each for each in caplog.records if "the limit" in each.message]) == 1
        nursery.cancel_scope.cancel()


async def test_a_handshake_that_is_never_begun_gives_way_too(autojump_clock: MockClock) -> None:
    places = Places(10)
    async with served(places, tls_mode=TlsMode.DISABLED) as network:
        streams = [await network.connect("server:1") for _ in range(50)]
        await trio.sleep(1)
        assert places.taken == 10
        assert places.gave_way == 40
        async with trio.open_nursery() as nursery:
            channel = await MemoryChannelSource(network).open_channel("server:1", echo, nursery)
            assert (await channel.call(Command(10), 3)).code == 0
            nursery.cancel_scope.cancel()
        assert len(streams) == 50


async def test_what_is_kept_of_requests_counts_as_held(autojump_clock: MockClock) -> None:
    """Whoever has most kept is closed; what every client has is nobody's fault."""
    closed: list[str] = []

    def keep(channel: Channel, command: Command) -> Command:
        channel.keep(command.code)
        return Command.response()

    network, budget = MemoryNetwork(), MemoryBudget(1_000_000)
    server = RemotingServer(
        keep, budget=budget, on_close=lambda channel: closed.append(channel.close_reason or "")
    )
    async with trio.open_nursery() as nursery:
        await nursery.start(server.serve, [network.listen("server:1")])
        source = MemoryChannelSource(network)
        small = [await source.open_channel("server:1", echo, nursery) for _ in range(30)]
        for channel in small:
            await channel.call(Command(60_000), 30)
        assert budget.used == 0
        large = [await source.open_channel("server:1", echo, nursery) for _ in range(2)]
        await large[0].call(Command(700_000), 30)
        await large[0].call(Command(-100_000), 30)
        assert 500_000 < budget.used <= 600_000
        with pytest.raises(ConnectError):
            await large[1].call(Command(900_000), 30)
        await large[1].wait_closed()
        assert ["that all connections hold" in reason for reason in closed] == [True]
        assert 500_000 < budget.used <= 600_000
        assert (await large[0].call(Command(0), 30)).code == 0
        nursery.cancel_scope.cancel()


class _Failing:
    """A listener of a process that has no descriptors for a while."""

    def __init__(self) -> None:
        self.left = 1000

    async def accept(self) -> str:
        self.left -= 1
        if self.left > 0:
            raise OSError(errno.EMFILE, "Too many open files")
        if self.left < 0:
            raise trio.ClosedResourceError
        return "a stream"


async def test_what_cannot_be_accepted_is_tried_again_and_told_now_and_then(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    accepting = Accepting(_Failing(), "a connection", logging.getLogger("test"))  # type: ignore[arg-type]
    assert await accepting.next() == "a stream"
    assert await accepting.next() is None
    assert 90 < trio.current_time() < 110
    assert 9 <= len(caplog.records) <= 11
    assert "cannot accept a connection" in caplog.text
    assert "times since it was told last" in caplog.text


def test_files_keep_descriptors(monkeypatch: pytest.MonkeyPatch) -> None:
    import resource

    for soft, most in (
        (resource.RLIM_INFINITY, MOST),
        (1 << 20, MOST),
        (1024, 1024 - RESERVED),
        (256, LEAST),
    ):
        monkeypatch.setattr(resource, "getrlimit", lambda _kind, soft=soft: (soft, soft))
        assert most_connections() == most
