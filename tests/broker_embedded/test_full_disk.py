"""A broker whose disk takes nothing for a while: connections stay, refusals have a
code, nothing acknowledged is lost, and nothing has to be restarted.
"""

from __future__ import annotations

import errno
import os
import random
from contextlib import asynccontextmanager, nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import trio
import trio.testing

from rocketmq_sdk.broker_embedded.broker import EmbeddedBroker
from rocketmq_sdk.codes import RequestCode, ResponseCode
from rocketmq_sdk.errors import BrokerError, StoreError, StoreFullError
from rocketmq_sdk.testing.faults import Operation
from rocketmq_sdk.testing.faulty_device import PowerCutError
from rocketmq_sdk.testing.faulty_files import FaultyFile, FaultyFileSystem
from rocketmq_sdk.transport.memory import MemoryNetwork
from support.broker import (
    BrokerOnFiles,
    Peer,
    heartbeat,
    pull_request,
    send_request,
    subscription,
)
from support.popping import Popper
from support.store import bodies
from support.stream_channels import open_stream_channel

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from rocketmq_sdk.protocol.command import Command

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
async def test_a_log_that_cannot_be_written_refuses_by_code_and_heals(
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
        pulled = sorted(message.body for message in await peer.pull("T", 0))
        assert pulled == [b"%d" % number for number in range(10)]
        broken = False
        await trio.sleep(1)
        assert broker.health().taking_messages
        assert await send_some(peer, 30, 10) == [0] * 10
        found = bodies(broker.store, "T")
    assert len(found) == len(set(found))
    assert {b"%d" % number for number in (*range(10), *range(30, 40))} <= set(found)
    async with served(BrokerOnFiles(files)) as (broker, _peer):
        assert bodies(broker.store, "T") == found


async def test_nobody_reads_what_the_log_does_not_have(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """A later message would get the offset of one that was consumed and is lost then,
    and be passed over.
    """
    files = FaultyFileSystem()
    async with served(BrokerOnFiles(files)) as (_broker, peer):
        assert await send_some(peer, 0, 3) == [0] * 3
        end = 3
        full = files.faults.fail(Operation.WRITE, "commitlog/*", code=errno.ENOSPC)
        held = pull_request("T", end, hold=10)
        async with trio.open_nursery() as nursery:
            answers: list[Command] = []

            async def wait() -> None:
                answers.append(await peer.ask(held))

            nursery.start_soon(wait)
            await trio.sleep(0.1)
            assert set(await send_some(peer, 3, 2)) == {FULL}
        assert [answer.code for answer in answers] == [ResponseCode.PULL_NOT_FOUND]
        asked = await peer.ask(RequestCode.GET_MAX_OFFSET, topic="T", queueId=0)
        assert asked.ext_fields["offset"] == str(end)
        assert len(await peer.pull("T", 0)) == end
        full.lift()
        await trio.sleep(1)
        found = [message.body for message in await peer.pull("T", end)]
        assert found
        assert set(found) <= {b"3", b"4"}  # of those that were refused


@pytest.mark.parametrize("synced", [True, False])
async def test_consumers_go_on_when_a_disk_becomes_read_only(
    synced: bool, autojump_clock: trio.testing.MockClock
) -> None:
    """Pulls, pops and acknowledgements; sends are refused by code; all is well again
    when the disk is, unless a sync failed.
    """
    files = FaultyFileSystem()
    ends = nullcontext() if synced else pytest.raises(StoreError, match="cannot sync")
    with ends:
        async with served(BrokerOnFiles(files)) as (broker, peer):
            await consumed_from_a_read_only_disk(files, broker, peer, synced=synced)


async def consumed_from_a_read_only_disk(
    files: FaultyFileSystem, broker: EmbeddedBroker, peer: Peer, *, synced: bool
) -> None:
    """What `test_consumers_go_on_when_a_disk_becomes_read_only` does."""
    assert await send_some(peer, 0, 9) == [0] * 9
    popper = Popper(peer, "T", max_msg_nums=3)
    taken = [await popper.pop()]
    assert len(await peer.pull("T", 0)) == 9  # the group is known from now on
    await trio.sleep(1)
    kinds = set(Operation) - {Operation.READ, Operation.LIST}
    kinds -= {Operation.SYNC, Operation.SYNC_DIRECTORY} if synced else set()
    faults = [files.faults.fail(each, "*", code=errno.EROFS) for each in kinds]
    codes = await send_some(peer, 9, 3)
    taken.append(await popper.pop())
    codes += await send_some(peer, 12, 3)
    taken.append(await popper.pop())
    assert set(codes) <= {ResponseCode.SYSTEM_ERROR, FULL}
    assert "Read-only" in str(broker.health())
    for result in taken[1:]:
        for handle in result.handles:
            await popper.ack(handle)
    found = [message.body for result in taken for message in result.messages]
    assert sorted(found) == [b"%d" % number for number in range(9)]
    assert len(await peer.pull("T", 0)) == 9
    await trio.sleep(15)
    for fault in faults:
        fault.lift()
    await trio.sleep(2)
    assert broker.health().taking_messages == synced == (not broker.store.needs_restart)
    assert await send_some(peer, 20, 1) == ([0] if synced else [FULL])
    assert not peer.channel.closed


@pytest.mark.real_time
@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="no /proc to name descriptors")
async def test_a_log_on_a_disk_heals_as_well(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same at the system call."""
    broken = False
    pwrite = os.pwrite

    def fail(descriptor: int, data: bytes, offset: int) -> int:
        if broken and "commitlog" in str(Path(f"/proc/self/fd/{descriptor}").readlink()):
            raise OSError(28, "No space left on device")
        return pwrite(descriptor, data, offset)

    async with served(EmbeddedBroker(tmp_path)) as (broker, peer):
        assert await send_some(peer, 0, 5) == [0] * 5
        monkeypatch.setattr(os, "pwrite", fail)
        broken = True
        assert set(await send_some(peer, 5, 5)) == {FULL}
        broken = False
        with trio.fail_after(60):
            while not broker.health():
                await trio.sleep(0.01)
        assert await send_some(peer, 10, 5) == [0] * 5
        assert not peer.channel.closed
        found = bodies(broker.store, "T")
    async with EmbeddedBroker(tmp_path) as broker:
        assert bodies(broker.store, "T") == found


class Work:
    """Clients of every kind, beside a disk that fills and empties."""

    def __init__(self, files: FaultyFileSystem, seed: int) -> None:
        self.files = files
        self.random = random.Random(seed)
        self.limit = files.limit_bytes
        self.acknowledged: list[bytes] = []
        self.popped: set[bytes] = set()
        self.number = 0
        self.groups = 0

    async def send(self, peer: Peer) -> None:
        for _ in range(self.random.choice([1, 5, 30])):
            body = b"%d " % self.number * self.random.choice([5, 50, 800])
            self.number += 1
            fields = {"queue_id": self.number % 2}
            if self.random.random() < 0.1:
                fields["properties"] = "DELAY\x011\x02"
            answer = await peer.ask(send_request("T", body, **fields))
            if answer.code in (0, ResponseCode.FLUSH_DISK_TIMEOUT):
                self.acknowledged.append(body)
            else:
                assert answer.code in (1, FULL), answer

    async def pop(self, peer: Peer) -> None:
        popper = Popper(peer, "T", max_msg_nums=8)
        with suppress(BrokerError):
            result = await popper.pop()
            for message, handle in zip(result.messages, result.handles, strict=True):
                await popper.ack(handle)
                self.popped.add(message.body)

    async def join(self, peer: Peer) -> None:
        """A new group registers and commits: that works on a full disk."""
        self.groups += 1
        group = f"G{self.groups}"
        answer = await peer.ask(heartbeat("client", group, subscription("T")))
        assert answer.code == 0, answer
        answer = await peer.ask(
            RequestCode.UPDATE_CONSUMER_OFFSET,
            consumerGroup=group,
            topic="T",
            queueId=0,
            commitOffset=1,
        )
        assert answer.code == 0, answer

    def fill(self) -> None:
        self.files.limit_bytes = self.files.used_bytes + self.random.choice([0, 0, 4096, 100_000])

    def free(self) -> None:
        self.files.limit_bytes = self.limit

    async def step(self, broker: EmbeddedBroker, peer: Peer) -> None:
        step = self.random.choice(["send", "send", "pop", "join", "fill", "free", "sleep"])
        if step in ("fill", "free"):
            getattr(self, step)()
        elif step == "sleep":
            await trio.sleep(self.random.choice([0.1, 1, 12]))
        else:
            await getattr(self, step)(peer)
        assert not peer.channel.closed
        assert all(service.last_error is None for service in broker.health().services)


@pytest.mark.parametrize("seed", range(6))
async def test_a_disk_that_fills_and_empties_at_random_points(
    seed: int, autojump_clock: trio.testing.MockClock
) -> None:
    """Connections, services and new groups go on; starts work while it is full, after a
    kill as well; with space everything is taken again, and nothing acknowledged is
    lost.
    """
    files = FaultyFileSystem(seed, limit_bytes=1 << 30)
    work = Work(files, seed)
    settings: dict[str, Any] = {
        "flush_disk_type": work.random.choice(["ASYNC_FLUSH", "SYNC_FLUSH"]),
        "mapped_file_size_commit_log": 256 * 1024,
        "mapped_file_size_consume_queue": 20 * 200,
        "allocation_step": work.random.choice([16 * 1024, 256 * 1024]),
        "clean_file_forcibly_enable": False,
    }
    for life in range(4):
        with suppress(PowerCutError):
            async with served(BrokerOnFiles(files, **settings)) as (broker, peer):
                if not life:
                    await work.send(peer)
                for _ in range(25):
                    await work.step(broker, peer)
                if work.random.random() < 0.5:
                    files.halt()
        if files.dead:
            files.kill()
    work.free()
    async with served(BrokerOnFiles(files, **settings)) as (broker, peer):
        with trio.fail_after(15):
            while not broker.health():
                await trio.sleep(0.1)
        await work.send(peer)
        await trio.sleep(130)
        found = [body for queue_id in (0, 1) for body in bodies(broker.store, "T", queue_id)]
    assert set(work.acknowledged) <= set(found)
    assert len(found) <= work.number + 10
