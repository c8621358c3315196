"""Linked channels of each kind, for tests of the contract that they share."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import pytest
import trio

from rocketmq_sdk.protocol.command import Command
from rocketmq_sdk.remoting.channel import Channel, ChannelLimits, Handler
from rocketmq_sdk.remoting.local import open_local_channel
from rocketmq_sdk.transport.memory import MemoryNetwork
from support.stream_channels import open_stream_channel

Link = Callable[..., AbstractAsyncContextManager[tuple[Channel, Channel]]]


def echo(_channel: Channel, command: Command) -> Command:
    return Command.response(0, body=command.body)


@asynccontextmanager
async def stream_link(
    server: Handler = echo,
    client: Handler = echo,
    *,
    limits: ChannelLimits | None = None,
    server_limits: ChannelLimits | None = None,
) -> AsyncIterator[tuple[Channel, Channel]]:
    network = MemoryNetwork()
    listener = network.listen("server:1")
    one, two = await network.connect("server:1"), await listener.accept()
    async with (
        open_stream_channel(
            two,
            server,
            limits=server_limits or limits,
            remote_address="client:1",
            pause_reading=True,
        ) as far,
        open_stream_channel(one, client, limits=limits, remote_address="server:1") as near,
    ):
        yield near, far


def local_link(through_codec: bool) -> Link:
    @asynccontextmanager
    async def link(
        server: Handler = echo,
        client: Handler = echo,
        *,
        limits: ChannelLimits | None = None,
        server_limits: ChannelLimits | None = None,
    ) -> AsyncIterator[tuple[Channel, Channel]]:
        async with trio.open_nursery() as nursery:
            near = await open_local_channel(
                server,
                client,
                nursery,
                limits=limits,
                server_limits=server_limits,
                server_address="server:1",
                through_codec=through_codec,
            )
            try:
                yield near, near.peer
            finally:
                near.abort("the test is over")

    return link


@pytest.fixture(params=["stream", "local", "local through codec"])
def link(request: pytest.FixtureRequest) -> Link:
    return (
        stream_link
        if request.param == "stream"
        else local_link(request.param == "local through codec")
    )
