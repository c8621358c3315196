"""What connections hold together stays within a budget: the greediest pay for it, the
others do not notice.
"""

from __future__ import annotations

import gc
import logging
import subprocess
import sys
import weakref
from contextlib import asynccontextmanager
from struct import pack
from typing import TYPE_CHECKING, cast

import pytest
import trio

from rocketmq_sdk.codes import ResponseCode
from rocketmq_sdk.protocol.command import Command
from rocketmq_sdk.protocol.connection import Connection
from rocketmq_sdk.protocol.frame import encode_frame
from rocketmq_sdk.remoting.budget import ALWAYS_FAIR, OPEN_COST, PAUSE, STILL, MemoryBudget
from rocketmq_sdk.remoting.channel import ChannelLimits
from rocketmq_sdk.remoting.server import RemotingServer
from rocketmq_sdk.transport.memory import MemoryNetwork, MemoryStream

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from rocketmq_sdk.remoting.channel import Channel, Handler

MEBIBYTE = 1024 * 1024
LIMIT = 16 * MEBIBYTE
ECHO, HOLD, LARGE = 1, 2, 3
"""Codes: answer with the body, hold the request, answer with a mebibyte."""


class Server:
    """Serves three codes, keeps what it holds."""

    def __init__(self) -> None:
        self.held: list[tuple[Channel, Command]] = []
        self.served = 0

    def handle(self, channel: Channel, command: Command) -> Command | None:
        self.served += 1
        if command.code == HOLD:
            self.held.append((channel, command))
            return None
        return Command.response(body=bytes(MEBIBYTE) if command.code == LARGE else command.body)


class Client:
    """One connection in bytes."""

    def __init__(self, stream: MemoryStream) -> None:
        self.stream = stream
        self._connection = Connection()
        self._answers: list[Command] = []

    async def answer(self) -> Command:
        while not self._answers:
            data = await self.stream.receive_some(65536)
            assert data
            self._answers += self._connection.receive_commands(data)
        return self._answers.pop(0)

    async def echo(self, body: bytes = b"x") -> Command:
        await self.stream.send_all(encode_frame(Command(ECHO, body=body)))
        return await self.answer()

    async def half_a_frame(self, size: int) -> bool:
        """Send `size` bytes of a frame that never ends; False when cut off."""
        try:
            await self.stream.send_all(pack(">II", 15 * MEBIBYTE, 100))
            for _ in range(size // 65536):
                await self.stream.send_all(bytes(65536))
        except trio.BrokenResourceError:
            return False
        return True

    async def is_cut(self) -> None:
        """Wait until the server has closed."""
        try:
            while await self.stream.receive_some(65536):
                pass
        except trio.BrokenResourceError:
            pass


@asynccontextmanager
async def serving(
    handler: Handler, limit: int = LIMIT
) -> AsyncIterator[tuple[MemoryBudget, MemoryNetwork]]:
    network, budget = MemoryNetwork(), MemoryBudget(limit)
    limits = ChannelLimits(idle_timeout=float("inf"), stall_timeout=float("inf"))
    server = RemotingServer(handler, budget=budget, limits=limits)
    async with trio.open_nursery() as nursery:
        await nursery.start(server.serve, [network.listen("server:1")])
        yield budget, network
        nursery.cancel_scope.cancel()
    assert budget.used == 0
    assert not budget._loads


async def connect(network: MemoryNetwork) -> Client:
    return Client(await network.connect("server:1"))


async def test_ordinary_requests_do_not_touch_the_budget(
    autojump_clock: trio.testing.MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serving(Server().handle) as (budget, network):
        client = await connect(network)
        weighed: list[int] = []
        before = MemoryBudget.weigh

        def count(self: MemoryBudget, channel: Channel, load: int) -> None:
            weighed.append(load)
            before(self, channel, load)

        monkeypatch.setattr(MemoryBudget, "weigh", count)
        for _ in range(100):
            assert (await client.echo(b"x" * 1000)).code == ResponseCode.SUCCESS
        assert weighed == []
        assert budget.used == 0


async def test_unfinished_frames_of_sixty_connections(
    autojump_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    """They stop being read; who holds most is closed in the end; others are served."""
    async with serving(Server().handle) as (budget, network), trio.open_nursery() as nursery:
        for _ in range(60):
            greedy = await connect(network)
            nursery.start_soon(greedy.half_a_frame, 15 * MEBIBYTE)
        good = await connect(network)
        most = 0
        with caplog.at_level(logging.WARNING):
            for _ in range(200):
                with trio.fail_after(1.0):
                    assert (await good.echo(b"x" * 10_000)).code == ResponseCode.SUCCESS
                most = max(most, budget.used)
                await trio.sleep(0.2)
        assert most <= LIMIT
        assert budget.paused >= 2
        assert budget.closed >= 2
        assert "the most of all" in caplog.text
        assert str(LIMIT) in caplog.text
        nursery.cancel_scope.cancel()


async def test_answers_that_nobody_reads(autojump_clock: trio.testing.MockClock) -> None:
    server = Server()
    async with serving(server.handle) as (budget, network):
        request = encode_frame(Command(LARGE))
        for _ in range(40):
            client = await connect(network)
            await client.stream.send_all(request * 50)
        good = await connect(network)
        most = 0
        for _ in range(100):
            with trio.fail_after(1.0):
                assert (await good.echo()).code == ResponseCode.SUCCESS
            most = max(most, budget.used)
            await trio.sleep(0.1)
        assert most <= LIMIT
        assert server.served < 200


async def test_held_requests_and_their_late_answers_are_counted(
    autojump_clock: trio.testing.MockClock,
) -> None:
    server = Server()
    async with serving(server.handle) as (budget, network):
        client = await connect(network)
        await client.stream.send_all(encode_frame(Command(HOLD, body=bytes(1000))) * 100)
        await trio.testing.wait_all_tasks_blocked()
        assert budget.used == 100 * (OPEN_COST + 1000)
        for channel, request in server.held:
            channel.respond(request, Command.response(body=b"done"))
        for _ in server.held:
            assert (await client.answer()).body == b"done"
        assert (await client.echo()).body == b"x"
        assert budget.used == 0


async def test_a_wake_up_of_thousands_stays_within_the_budget(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """One arrival can answer many requests of peers that read nothing."""
    server = Server()
    async with serving(server.handle) as (budget, network):
        clients = [await connect(network) for _ in range(30)]
        for client in clients:
            await client.stream.send_all(encode_frame(Command(HOLD)) * 30)
        await trio.testing.wait_all_tasks_blocked()
        refused = 0
        for channel, request in server.held:
            refused += channel.overloaded
            large = Command.response(body=bytes(0 if channel.overloaded else MEBIBYTE))
            channel.respond(request, large)
            assert budget.used <= LIMIT
        assert refused


async def test_the_greedy_are_told_that_memory_is_scarce(
    autojump_clock: trio.testing.MockClock,
) -> None:
    server = Server()
    async with serving(server.handle) as (budget, network):
        greedy = await connect(network)
        await greedy.stream.send_all(encode_frame(Command(HOLD, body=bytes(13 * MEBIBYTE))))
        await trio.sleep(60)
        assert budget.scarce
        good = await connect(network)
        assert (await good.echo()).code == ResponseCode.SUCCESS
        before = trio.current_time()
        answer = await greedy.echo()
        assert answer.code == ResponseCode.SYSTEM_BUSY
        assert "[OVERLOAD]" in (answer.remark or "")
        assert trio.current_time() - before <= 2 * PAUSE
        assert budget.refused == 1
        assert budget.troubles()
        channel, request = server.held[0]
        channel.respond(request, Command.response())
        assert (await greedy.answer()).code == ResponseCode.SUCCESS
        assert (await greedy.echo()).code == ResponseCode.SUCCESS
        assert budget.troubles() == ()


async def test_who_holds_much_and_does_nothing_makes_room_for_others(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """A frame that is not finished costs its connection once others need the room; the
    large frame of one who is slowed down arrives.
    """
    async with serving(Server().handle) as (budget, network):
        idle, busy = await connect(network), await connect(network)
        assert await idle.half_a_frame(8 * MEBIBYTE + 65536)
        await trio.sleep(1000)
        assert budget.tight
        assert budget.closed == 0
        begin = trio.current_time()
        assert len((await busy.echo(bytes(6 * MEBIBYTE))).body) == 6 * MEBIBYTE
        assert trio.current_time() - begin <= STILL + PAUSE
        await idle.is_cut()
        assert budget.closed == 1
        assert not budget.tight


async def test_little_is_always_fair(autojump_clock: trio.testing.MockClock) -> None:
    async with serving(Server().handle) as (budget, network):
        greedy, modest = await connect(network), await connect(network)
        assert await greedy.half_a_frame(9 * MEBIBYTE)
        await trio.sleep(1)
        assert budget.tight
        body = bytes(ALWAYS_FAIR - 100)
        begin = trio.current_time()
        for _ in range(5):
            assert (await modest.echo(body)).body == body
        assert trio.current_time() == begin


async def test_large_answers_are_written_one_after_the_other(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with serving(Server().handle, limit=64 * MEBIBYTE) as (_budget, network):
        client = await connect(network)
        await client.stream.send_all(encode_frame(Command(LARGE)) * 3 + encode_frame(Command(ECHO)))
        sizes = [len((await client.answer()).body) for _ in range(4)]
        assert sizes == [MEBIBYTE] * 3 + [0]


class Peer:
    """What the budget needs of a channel; counts how often it is looked at."""

    looks = 0

    def __init__(self, number: int) -> None:
        self.channel_id = number
        self.remote_address = f"peer:{number}"
        self.reason: str | None = None

    @property
    def last_progress(self) -> float:
        Peer.looks += 1
        return 0.0

    def abort(self, reason: str) -> None:
        self.reason = reason


async def test_thousands_are_closed_from_the_greediest_on(
    autojump_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    """A lower limit closes many at once; the log names one of them for each second."""
    budget = MemoryBudget(5000 * 5000)
    peers = [Peer(number) for number in range(5000)]
    for peer in peers:
        budget.weigh(cast("Channel", peer), 1000 + peer.channel_id % 4000)
    budget.limit = 1_000_000
    with caplog.at_level(logging.WARNING):
        budget.weigh(cast("Channel", peers[0]), 900)
        assert budget.used <= budget.limit
        closed = [peer for peer in peers if peer.reason is not None]
        assert len(closed) == budget.closed > 3000
        assert len(caplog.records) == 1
        least = min(1000 + peer.channel_id % 4000 for peer in closed)
        assert all(load <= least for load in budget._loads.values())
        await trio.sleep(1)
        budget.weigh(cast("Channel", peers[0]), 1_000_000)
    assert f"{len(closed) - 1} others were closed before it" in caplog.text


async def test_small_loads_cost_nobody_a_look(autojump_clock: trio.testing.MockClock) -> None:
    """Those who stand still are looked for among the heavy ones, not among all."""
    budget = MemoryBudget(LIMIT)
    for number in range(2000):
        budget.weigh(cast("Channel", Peer(number)), 2000)
    heavy = [Peer(number) for number in (3000, 3001)]
    for peer in heavy:
        budget.weigh(cast("Channel", peer), 5 * MEBIBYTE)
    Peer.looks = 0
    await trio.sleep(2 * STILL)
    await budget.wait_for_room(cast("Channel", heavy[0]))
    assert Peer.looks == len(heavy)
    assert any(peer.reason is not None for peer in heavy)


async def test_a_connection_closed_for_a_bad_frame_leaves_no_circle(
    autojump_clock: trio.testing.MockClock,
) -> None:
    server = Server()
    async with serving(server.handle) as (_budget, network):
        client = await connect(network)
        await client.stream.send_all(encode_frame(Command(HOLD)))
        await trio.testing.wait_all_tasks_blocked()
        gone = weakref.ref(server.held.pop()[0])
        gc.disable()
        try:
            await client.stream.send_all(b"\xff" * 100)
            await client.is_cut()
            await trio.testing.wait_all_tasks_blocked()
            assert gone() is None
        finally:
            gc.enable()


async def test_an_idle_connection_keeps_nothing_of_its_last_request(
    autojump_clock: trio.testing.MockClock,
) -> None:
    bodies: list[bytes] = []

    def keep(_channel: Channel, command: Command) -> Command:
        bodies.append(command.body)
        return Command.response()

    async with serving(keep) as (_budget, network):
        clients = [await connect(network) for _ in range(3)]
        for client in clients:
            assert (await client.echo(bytes(MEBIBYTE))).code == ResponseCode.SUCCESS
        await trio.sleep(1)
        # The list, the loop variable, the argument.
        assert [sys.getrefcount(body) for body in bodies] == [3] * 3


async def test_a_piece_that_has_half_left_counts_as_a_whole(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with serving(Server().handle) as (budget, network):
        client = await connect(network)
        await client.stream.send_all(encode_frame(Command(LARGE)))
        received = 0
        while received < MEBIBYTE * 5 // 8:
            received += len(await client.stream.receive_some(64 * 1024))
            await trio.sleep(0.1)
        assert budget.used >= MEBIBYTE
        while received < MEBIBYTE:
            received += len(await client.stream.receive_some(64 * 1024))
        await trio.sleep(0.1)
        assert budget.used == 0


async def test_work_for_a_request_counts_and_the_greediest_make_room(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with serving(Server().handle) as (budget, network), trio.open_nursery() as nursery:
        greedy = await connect(network)
        nursery.start_soon(greedy.half_a_frame, 6 * MEBIBYTE)
        await trio.sleep(5)
        held = budget.used
        assert held >= 6 * MEBIBYTE
        with budget.working_on(4 * MEBIBYTE):
            assert budget.used == held + 4 * MEBIBYTE
            assert budget.closed == 0
            with budget.working_on(8 * MEBIBYTE):
                assert budget.closed == 1
        await trio.sleep(1)
        assert budget.used == 0
        nursery.cancel_scope.cancel()


async def test_freed_memory_is_returned_to_the_system_while_room_is_short(
    autojump_clock: trio.testing.MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    returned: list[float] = []
    monkeypatch.setattr(
        "rocketmq_sdk.remoting.budget.return_memory", lambda: returned.append(trio.current_time())
    )
    budget = MemoryBudget(LIMIT)
    for _ in range(100):
        with budget.working_on(LIMIT // 4):
            await trio.sleep(0.1)
    assert not returned  # there was room all the time
    for _ in range(100):
        with budget.working_on(LIMIT * 3 // 4):
            await trio.sleep(0.1)
    assert 9 <= len(returned) <= 11


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="glibc")
def test_what_is_returned_leaves_the_process() -> None:
    script = """
from pathlib import Path
from rocketmq_sdk.remoting.heap import return_memory

def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096

blocks = [bytes([1]) * 60_000 for _ in range(1000)]
del blocks[:-1]
before = resident()
return_memory()
print(before - resident())
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60
    )
    assert int(done.stdout) > 40_000_000
