"""A stream channel of a server, whose loop does not sleep between a peer's requests.

A client that sends one message or one batch after the other needs about as long for the
next one as it takes to put this process to sleep and to wake it. So while nobody else
asks for anything, the reader looks at its socket for a while, in each turn of the loop,
before it waits for it.
"""

from __future__ import annotations

from typing import Any

import trio

from rocketmq_sdk.remoting.spinning import Spinning
from rocketmq_sdk.remoting.stream import StreamChannel
from rocketmq_sdk.transport.tcp import can_receive_now, receive_now, receive_soon


class ServedStream(StreamChannel):
    """The channel of a server to one client."""

    __slots__ = ("_alone", "_size", "_spinning")

    def __init__(self, *args: Any, **options: Any) -> None:
        """The arguments are those of `StreamChannel`."""
        super().__init__(*args, **options)
        self._spinning: Spinning | None = None
        self._alone = False  # whether no other peer asked since the chunk before the last
        self._size = 0  # of the last chunk

    async def _receive(self, stream: trio.abc.Stream, size: int) -> bytes | bytearray:
        keeper = self._housekeeper
        chunks = keeper.chunks
        data: bytes | bytearray | None = None
        if self._alone and self._arrived:
            data = await self._spin(stream, size)
        if data is None:
            data = await receive_soon(stream, size)
        self._alone = keeper.chunks == chunks and can_receive_now(stream)
        self._size = len(data)
        return data

    async def _spin(self, stream: trio.abc.Stream, size: int) -> bytes | None:
        """Look for what comes next while the loop turns, if that is worth it.

        None when nothing has come for a while. Other tasks have their turns meanwhile.
        """
        spinning = self._spinning
        if spinning is None:
            spinning = self._spinning = Spinning(self._housekeeper.now)
        if not spinning.begin(self._size):
            return None
        while True:
            await trio.lowlevel.checkpoint()
            data = receive_now(stream, size)
            if not spinning.goes_on(found=data is not None):
                return data
