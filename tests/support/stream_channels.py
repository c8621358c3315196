"""A stream channel for the length of a block."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import trio

from rocketmq_sdk.lifecycle import raise_unwrapped
from rocketmq_sdk.remoting.stream import StreamChannel

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from rocketmq_sdk.remoting.channel import ChannelLimits, Handler, Turn


@asynccontextmanager
async def open_stream_channel(
    stream: trio.abc.Stream,
    handler: Handler,
    *,
    limits: ChannelLimits | None = None,
    remote_address: str = "unknown:0",
    local_address: str = "unknown:0",
    pause_reading: bool = False,
    turn: Turn | None = None,
) -> AsyncIterator[StreamChannel]:
    """A channel over `stream` for the length of the block.

    At its end what is queued is sent within `drain_timeout` and the stream is closed.
    """
    channel = StreamChannel(
        stream,
        handler,
        limits=limits,
        remote_address=remote_address,
        local_address=local_address,
        pause_reading=pause_reading,
        turn=turn,
    )
    try:
        async with trio.open_nursery() as nursery:
            await nursery.start(channel.run)
            try:
                yield channel
            finally:
                await channel.aclose()
    except BaseExceptionGroup as group:
        raise_unwrapped(group)
