"""Those that would hold up very many others are served one after the other, beside
them.
"""

from __future__ import annotations

import errno
import socket
from contextlib import ExitStack, asynccontextmanager
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest
import trio
import trio.testing

from rocketmq_sdk.codes import ResponseCode
from rocketmq_sdk.protocol.command import Command
from rocketmq_sdk.protocol.connection import Connection
from rocketmq_sdk.protocol.frame import encode_frame
from rocketmq_sdk.remoting.server import RemotingServer
from rocketmq_sdk.remoting.side_lane import SideLane

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from rocketmq_sdk.remoting.channel import Channel, Handler

MANY = 80
GOOD, BAD = 1, 2


async def test_one_is_in_the_lane_in_a_turn_of_the_loop_and_in_order() -> None:
    lane, came = SideLane(), list[int]()

    async def use(number: int) -> None:
        await lane.enter(number)
        came.append(number)
        lane.leave(number)

    await lane.enter("holder")
    async with trio.open_nursery() as nursery:
        for number in range(6):
            nursery.start_soon(use, number)
            await trio.testing.wait_all_tasks_blocked()
        lane.leave("somebody else")
        await trio.testing.wait_all_tasks_blocked()
        assert came == []
        lane.leave("holder")
        for number in range(6):
            await trio.lowlevel.checkpoint()
            assert len(came) <= number + 1
    assert came == list(range(6))


async def test_those_that_need_several_turns_take_them_in_turn() -> None:
    lane, came = SideLane(), list[str]()

    async def use(who: str) -> None:
        for _ in range(9):
            await lane.take_turns(who)
            came.append(who)
        lane.leave(who)

    await use("a")
    assert came == ["a"] * 9
    came.clear()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(use, "a")
        nursery.start_soon(use, "b")
    assert all(before != after for before, after in pairwise(came[3:-3]))


async def test_whoever_gives_up_waiting_leaves_the_lane_to_the_others() -> None:
    lane = SideLane()
    await lane.enter("holder")
    async with trio.open_nursery() as nursery:
        with trio.move_on_after(0) as gave_up:
            await lane.enter("impatient")
        assert gave_up.cancelled_caught
        nursery.start_soon(lane.enter, "patient")
        await trio.testing.wait_all_tasks_blocked()
        lane.leave("holder")
    lane.leave("patient")
    await trio.testing.wait_all_tasks_blocked()
    with trio.fail_after(1):
        await lane.enter("next")


@pytest.mark.real_time
@pytest.mark.parametrize("epoll", [True, False], ids=["epoll", "too many open files"])
async def test_a_burst_of_refused_requests_holds_nobody_else_up(
    epoll: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    served: list[int] = []

    def no_epoll() -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    if not epoll:
        monkeypatch.setattr("rocketmq_sdk.remoting.side_lane.select.epoll", no_epoll)

    def handle(_channel: Channel, command: Command) -> Command:
        served.append(command.code)
        bad = command.code == BAD
        return Command.response(ResponseCode.REQUEST_CODE_NOT_SUPPORTED if bad else 0)

    def send(connected: socket.socket, code: int) -> None:
        connected.sendall(encode_frame(Command(code)))

    def answered(connected: socket.socket) -> bool:
        try:
            return bool(connected.recv(65536))
        except BlockingIOError:
            return False

    async def all_answered(connections: list[socket.socket]) -> None:
        with trio.fail_after(60):
            for connected in connections:
                while not answered(connected):
                    await trio.sleep(0.001)

    listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
    place = listeners[0].socket.getsockname()
    async with trio.open_nursery() as nursery:
        server = RemotingServer(handle)
        await nursery.start(server.serve, listeners)
        with ExitStack() as stack:
            good, *bad = (stack.enter_context(socket.create_connection(place)) for _ in range(MANY))
            for connected in (good, *bad):
                connected.setblocking(False)
            for _ in range(2):  # the first ones came when there were few
                for connected in bad:
                    send(connected, BAD)
                await all_answered(bad)
            for _ in range(3):
                served.clear()
                for connected in bad:
                    send(connected, BAD)
                send(good, GOOD)
                await all_answered([good, *bad])
                assert served.index(GOOD) <= 2
                assert served.count(BAD) == len(bad)
            for _ in range(2):  # what newcomers send first
                there = server._crowd()
                bad = [stack.enter_context(socket.create_connection(place)) for _ in range(20)]
                with trio.fail_after(60):
                    while server._crowd() < there + len(bad):
                        await trio.sleep(0.001)
                served.clear()
                for connected in bad:
                    connected.setblocking(False)
                    send(connected, BAD)
                send(good, GOOD)
                await all_answered([good, *bad])
                assert served.index(GOOD) <= 2
            bad.pop().close()
            for connected in bad:
                send(connected, GOOD)
            await all_answered(bad)
        nursery.cancel_scope.cancel()


class StepsOfTurns(trio.abc.Instrument):
    """How many steps of tasks there were in each turn of the loop."""

    def __init__(self) -> None:
        self.turns = [0]

    def before_task_step(self, _task: trio.lowlevel.Task) -> None:
        self.turns[-1] += 1

    def after_io_wait(self, _timeout: float) -> None:
        self.turns.append(0)


@asynccontextmanager
async def crowd_of(
    handler: Handler, number: int = MANY, **options: Any
) -> AsyncIterator[tuple[RemotingServer, list[socket.socket]]]:
    """A server, and connections to it that do not block."""
    listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
    place = listeners[0].socket.getsockname()
    async with trio.open_nursery() as nursery:
        server = RemotingServer(handler, **options)
        await nursery.start(server.serve, listeners)
        with ExitStack() as stack:
            connections = [
                stack.enter_context(socket.create_connection(place)) for _ in range(number)
            ]
            for connected in connections:
                connected.setblocking(False)
            with trio.fail_after(60):
                while len(server.channels) < number:
                    await trio.sleep(0.001)
            yield server, connections
        nursery.cancel_scope.cancel()


async def read_commands(connected: socket.socket, number: int) -> list[Command]:
    """The next commands that come; fewer when the other side closes."""
    connection, commands = Connection(), list[Command]()
    with trio.fail_after(60):
        while len(commands) < number:
            await trio.lowlevel.wait_readable(connected)
            data = connected.recv(1 << 20)
            commands += connection.receive_commands(data)
            if not data:
                break
    return commands


def answer_all(_channel: Channel, command: Command) -> Command:
    bad = command.code == BAD
    return Command.response(
        ResponseCode.REQUEST_CODE_NOT_SUPPORTED if bad else 0, body=command.body
    )


@pytest.mark.real_time
async def test_those_that_wait_for_the_lane_cost_the_others_no_turn() -> None:
    async with crowd_of(answer_all) as (_server, connections):
        for connected in connections:
            connected.sendall(encode_frame(Command(BAD)))
        for connected in connections:
            await read_commands(connected, 1)
        steps = StepsOfTurns()
        trio.lowlevel.add_instrument(steps)
        try:
            # Those that came in a crowd are in the lane; all send at once.
            for connected in connections:
                connected.sendall(encode_frame(Command(BAD)))
            await read_commands(connections[-1], 1)
        finally:
            trio.lowlevel.remove_instrument(steps)
        # The first ones came when there were few; what they sent is known now.
        assert sum(steps.turns) > MANY // 2
        assert sorted(steps.turns)[-2] <= 8, steps.turns
        for connected in connections[:-1]:
            (answer,) = await read_commands(connected, 1)
            assert answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED


@pytest.mark.real_time
async def test_who_does_not_take_answers_is_served_no_more_until_it_does() -> None:
    served: list[int] = []
    body, number = bytes(32_000), 1000

    def handle(_channel: Channel, command: Command) -> Command:
        if command.opaque < number:
            served.append(command.opaque)
        return Command.response(body=body)

    async with crowd_of(handle) as (_server, connections):
        greedy, other = connections[-2:]
        requests = b"".join(encode_frame(Command(GOOD, opaque=at)) for at in range(number))
        greedy.setblocking(True)
        greedy.sendall(requests)
        greedy.setblocking(False)
        before = 0
        while not served or before < len(served):  # what the sockets take is served
            before = len(served)
            for opaque in range(20):
                other.sendall(encode_frame(Command(GOOD, opaque=number + opaque)))
                await read_commands(other, 1)
        assert len(served) < number
        answers = await read_commands(greedy, number)
        assert [answer.opaque for answer in answers] == list(range(number))


@pytest.mark.real_time
async def test_a_frame_in_parts_arrives_whole_and_whoever_leaves_is_noticed() -> None:
    async with crowd_of(answer_all) as (server, connections):
        slow, *gone, last = connections[-20:]
        body = bytes(range(256)) * 1000
        frame = encode_frame(Command(GOOD, body=body))
        for at in range(0, len(frame), 50_000):
            slow.sendall(frame[at : at + 50_000])
            last.sendall(encode_frame(Command(GOOD)))
            await read_commands(last, 1)
        (answer,) = await read_commands(slow, 1)
        assert answer.body == body
        there = len(server.channels)
        for connected in gone:
            connected.close()
        with trio.fail_after(60):
            while len(server.channels) > there - len(gone):
                await trio.sleep(0.001)
        # Their descriptors are used again.
        place = last.getpeername()
        for _ in gone:
            with socket.create_connection(place) as connected:
                connected.setblocking(False)
                connected.sendall(encode_frame(Command(GOOD, body=b"again")))
                (answer,) = await read_commands(connected, 1)
                assert answer.body == b"again"
        server.abort_all("the test is over")
        assert await read_commands(last, 1) == []
