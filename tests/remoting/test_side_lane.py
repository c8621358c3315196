"""Those that would hold up very many others are served one after the other, beside
them.
"""

from __future__ import annotations

import socket
from contextlib import ExitStack
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest
import trio
import trio.testing

from rocketmq_sdk.codes import ResponseCode
from rocketmq_sdk.protocol.command import Command
from rocketmq_sdk.protocol.frame import encode_frame
from rocketmq_sdk.remoting.server import RemotingServer
from rocketmq_sdk.remoting.side_lane import SideLane

if TYPE_CHECKING:
    from rocketmq_sdk.remoting.channel import Channel

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
async def test_a_burst_of_refused_requests_holds_nobody_else_up() -> None:
    served: list[int] = []

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
