"""What tests of hostile clients share: a raw connection, and a well-behaved client that
works meanwhile and must not notice.
"""

from __future__ import annotations

import os
import re
from contextlib import asynccontextmanager
from pathlib import Path
from struct import Struct
from typing import TYPE_CHECKING

import trio

from rocketmq_sdk.protocol.frame import decode_frame, encode_frame
from rocketmq_sdk.remoting.dispatch import Dispatcher
from rocketmq_sdk.remoting.source import TcpChannelSource
from support.broker import send_request

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from rocketmq_sdk.protocol.command import Command

_WORD = Struct(">I")
PROMPT = 60.0
"""Seconds within which a machine under load answers; what hangs takes for ever."""
_EXCEPTION_NAME = re.compile(r"\b\w*(Error|Exception|error|exception): ")
"""The beginning of a remark that is an exception of Python and not a sentence for the
peer.
"""


class RawClient:
    """Bytes out, frames in."""

    def __init__(self, stream: trio.SocketStream) -> None:
        self.stream = stream
        self._received = bytearray()

    @classmethod
    async def connect(cls, address: str) -> RawClient:
        host, port = address.rsplit(":", 1)
        return cls(await trio.open_tcp_stream(host, int(port)))

    async def send(self, data: bytes) -> bool:
        """Write; False when the server has cut the connection."""
        try:
            await self.stream.send_all(data)
        except trio.BrokenResourceError:
            return False
        return True

    async def end(self) -> None:
        """End the sending side; nothing happens when the server has cut the
        connection.
        """
        try:
            await self.stream.send_eof()
        except trio.BrokenResourceError:
            return

    async def answer(self) -> Command | None:
        """The next frame; None when the server closed the connection."""
        with trio.fail_after(PROMPT):
            while (
                len(self._received) < 4
                or len(self._received) < 4 + _WORD.unpack_from(self._received)[0]
            ):
                try:
                    data = await self.stream.receive_some(65536)
                except trio.BrokenResourceError:
                    return None
                if not data:
                    return None
                self._received += data
        stop = 4 + _WORD.unpack_from(self._received)[0]
        frame = bytes(self._received[4:stop])
        del self._received[:stop]
        return decode_frame(frame)

    async def ask(self, command: Command) -> Command | None:
        await self.send(encode_frame(command))
        return await self.answer()

    async def closed_by_server(self) -> bool:
        """Whether the server ends the connection, promptly."""
        while await self.answer() is not None:
            pass
        return True


@asynccontextmanager
async def raw_client(address: str) -> AsyncIterator[RawClient]:
    """A raw connection for a block; forgotten without manners at its end."""
    client = await RawClient.connect(address)
    try:
        yield client
    finally:
        await trio.aclose_forcefully(client.stream)


class GoodClient:
    """How a well-behaved client fares."""

    def __init__(self) -> None:
        self.sent = 0
        self.slowest = 0.0


@asynccontextmanager
async def good_client(address: str, topic: str = "WellBehaved") -> AsyncIterator[GoodClient]:
    """A client that sends all the time while the block runs; a send that fails or takes
    long fails the block, and so does silence.
    """
    good = GoodClient()
    async with trio.open_nursery() as nursery:
        channel = await TcpChannelSource().open_channel(address, Dispatcher(), nursery)

        async def work() -> None:
            while True:
                began = trio.current_time()
                answer = await channel.call(send_request(topic, b"well-behaved"), PROMPT)
                assert answer.code == 0, answer
                good.sent += 1
                good.slowest = max(good.slowest, trio.current_time() - began)
                await trio.sleep(0.005)

        nursery.start_soon(work)
        yield good
        before = good.sent
        with trio.fail_after(PROMPT):
            while good.sent < before + 3:
                await trio.sleep(0.01)
        assert not channel.closed
        nursery.cancel_scope.cancel()


def assert_sensible(answer: Command | None, what: object) -> Command:
    """An answer with a code, in words for the peer: no exception of ours shows
    through.
    """
    assert answer is not None, f"{what}: the connection was cut"
    assert answer.is_response, what
    remark = answer.remark or ""
    assert not _EXCEPTION_NAME.match(remark), f"{what}: an exception shows through: {remark!r}"
    assert "Traceback" not in remark, what
    return answer


def assert_quiet(log: list[str]) -> None:
    """Merely bad input is worth no traceback."""
    text = "".join(log)
    assert "Traceback" not in text, text[text.index("Traceback") - 300 :][:3000]


def resident_bytes(pid: int) -> int:
    """The memory that a process holds."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * 4096


def processor_seconds(pid: int) -> float:
    """The processor time that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
