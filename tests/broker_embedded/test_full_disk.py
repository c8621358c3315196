"""A broker whose disk takes nothing for a while: connections stay, refusals have a code,
nothing acknowledged is lost, and nothing has to be restarted.
"""

from __future__ import annotations

import os
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
import trio
import trio.testing

from rocketmq_sdk.broker_embedded.broker import EmbeddedBroker
from rocketmq_sdk.codes import ResponseCode
from rocketmq_sdk.testing.faulty_files import FaultyFile, FaultyFileSystem
from rocketmq_sdk.transport.memory import MemoryNetwork
from support.broker import BrokerOnFiles, Peer, send_request
from support.store import bodies

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

from rocketmq_sdk.errors import StoreFullError
from rocketmq_sdk.remoting.stream import open_stream_channel

FULL = ResponseCode.SERVICE_NOT_AVAILABLE


@asynccontextmanager
async def served(broker: EmbeddedBroker) -> AsyncIterator[tuple[EmbeddedBroker, Peer]]:
    """An open broker, and a connection of bytes to it, as over TCP."""
    network = MemoryNetwork()
    listener = network.listen("broker:1")
    peer = Peer()
    async with broker, trio.open_nursery() as nursery:
        nursery.start_soon(broker.server.serve, [listener])
        async with open_stream_channel(
            await network.connect("broker:1"), peer.handle
        ) as peer.channel:
            yield broker, peer
        nursery.cancel_scope.cancel()


async def send_some(peer: Peer, first: int, count: int, **fields: Any) -> list[int]:
    """Sends at once; the codes of the answers."""
    codes = [0] * count

    async def send(number: int) -> None:
        request = send_request("T", b"%d" % number, queue_id=0, **fields)
        codes[number - first] = (await peer.ask(request)).code

    async with trio.open_nursery() as nursery:
        for number in range(first, first + count):
            nursery.start_soon(send, number)
    return codes


@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
async def test_a_log_that_can_not_be_written_refuses_by_code_and_heals(
    flush: str, autojump_clock: trio.testing.MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Although its space was allocated. What was refused may be there once, in its
    place; what was acknowledged is there.
    """
    files = FaultyFileSystem()
    broken = False
    pwrite = FaultyFile.pwrite

    def fail(self: FaultyFile, data: bytes, offset: int) -> None:
        if broken and self.path.startswith("commitlog"):
            raise StoreFullError(f"{self.path}: no space to write (No space left on device)")
        pwrite(self, data, offset)

    monkeypatch.setattr(FaultyFile, "pwrite", fail)
    async with served(BrokerOnFiles(files, flush_disk_type=flush)) as (broker, peer):
        assert await send_some(peer, 0, 10) == [0] * 10
        broken = True
        codes = await send_some(peer, 10, 10)
        codes += await send_some(peer, 20, 10)
        allowed = {FULL} if flush == "ASYNC_FLUSH" else {FULL, ResponseCode.FLUSH_DISK_TIMEOUT}
        assert set(codes) <= allowed
        assert not peer.channel.closed
        assert "no space" in str(broker.health())
        pulled = {message.body for message in await peer.pull("T", 0)}
        assert pulled >= {b"%d" % number for number in range(10)}
        broken = False
        await trio.sleep(1)
        assert broker.health().taking_messages
        assert await send_some(peer, 30, 10) == [0] * 10
        found = bodies(broker.store, "T")
    assert len(found) == len(set(found))
    assert {b"%d" % number for number in (*range(10), *range(30, 40))} <= set(found)
    async with served(BrokerOnFiles(files)) as (broker, _peer):
        assert bodies(broker.store, "T") == found


@pytest.mark.real_time
async def test_a_log_on_a_disk_heals_as_well(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same at the system call."""
    broken = False
    pwrite = os.pwrite

    def fail(descriptor: int, data: bytes, offset: int) -> int:
        if broken and "commitlog" in os.readlink(f"/proc/self/fd/{descriptor}"):
            raise OSError(28, "No space left on device")
        return pwrite(descriptor, data, offset)

    if not os.path.exists("/proc/self/fd"):
        pytest.skip("no /proc to find the file of a descriptor")
    async with served(EmbeddedBroker(tmp_path)) as (broker, peer):
        assert await send_some(peer, 0, 5) == [0] * 5
        monkeypatch.setattr(os, "pwrite", fail)
        broken = True
        assert set(await send_some(peer, 5, 5)) == {FULL}
        broken = False
        with trio.fail_after(30):
            while not broker.health():
                await trio.sleep(0.01)
        assert await send_some(peer, 10, 5) == [0] * 5
        assert not peer.channel.closed
        found = bodies(broker.store, "T")
    async with EmbeddedBroker(tmp_path) as broker:
        assert bodies(broker.store, "T") == found
