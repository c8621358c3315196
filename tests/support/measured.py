"""A well-behaved client with nothing else to do, and how busy the broker was meanwhile.

The client is to be a process of its own: it calls by sockets that block and looks at
the clock, so its times are the broker's. How late plain sleeps of it were tells whether
the machine was busy with something else.
"""

from __future__ import annotations

import gc
import json
import os
import socket
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import attrs
import trio

from rocketmq_sdk.codes import RequestCode
from rocketmq_sdk.model.route import split_address
from rocketmq_sdk.protocol.command import Command
from rocketmq_sdk.protocol.connection import Connection
from rocketmq_sdk.protocol.frame import encode_frame
from support.broker import pull_request, send_request
from support.extreme_run import GOOD_GROUP, GOOD_TOPIC
from support.hostile import resident_bytes

if TYPE_CHECKING:
    from collections.abc import Sequence


class Load:
    """How busy the broker was, and how large."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._began, self._cpu = trio.current_time(), self._seconds()
        self.most = resident_bytes(self._pid)

    def _seconds(self) -> float:
        fields = Path(f"/proc/{self._pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    async def watch(self) -> None:
        """Look until cancelled."""
        while True:
            self.most = max(self.most, resident_bytes(self._pid))
            await trio.sleep(0.1)

    @property
    def share(self) -> float:
        """Of one core, since the beginning."""
        return (self._seconds() - self._cpu) / (trio.current_time() - self._began)


@attrs.define
class Measured:
    """What the well-behaved client saw, and what the broker took meanwhile."""

    times: list[float]
    late: list[float]
    failures: list[str]
    share: float = 0.0
    most: int = 0

    @property
    def p99(self) -> float:
        """Of the calls, in seconds."""
        return percentile(self.times, 0.99)

    def __str__(self) -> str:
        return (
            f"{len(self.times)} good calls, p50 {percentile(self.times, 0.5) * 1e3:.2f} ms, "
            f"p99 {self.p99 * 1e3:.2f} ms, slowest {percentile(self.times, 1) * 1e3:.0f} ms; "
            f"plain sleeps were {percentile(self.late, 0.99) * 1e3:.2f} ms late at p99; "
            f"the broker took {self.share:.0%} of a core and at most {self.most / 1e6:.0f} MB; "
            f"{len(self.failures)} failures"
        )


def percentile(times: list[float], share: float) -> float:
    """The time within which this share lies."""
    ordered = sorted(times)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))] if ordered else 0.0


def measure(address: str, namesrv: str, seconds: float, *, only_send: bool = False) -> Measured:
    """Be the well-behaved client for so long: send, pull, commit, ask for the route."""
    sockets = [socket.create_connection(split_address(place), 30) for place in (address, namesrv)]
    for each in sockets:
        each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    seen = Measured([], [], [])
    ends, number = time.perf_counter() + seconds, 0
    gc.disable()
    while time.perf_counter() < ends:
        for place, command in enumerate(_round(number)[: 1 if only_send else 4]):
            command.opaque = number * 4 + place
            frame = encode_frame(command)
            began = time.perf_counter()
            sockets[place == 3].sendall(frame)
            answer = _answer(sockets[place == 3])
            seen.times.append(time.perf_counter() - began)
            if answer.code != 0 or answer.opaque != command.opaque:
                seen.failures.append(f"a good call failed: {command} {answer}")
        number += 1
        due = time.perf_counter() + 0.01
        time.sleep(0.01)
        seen.late.append(time.perf_counter() - due)
    return seen


def _round(number: int) -> tuple[Command, ...]:
    place = {"consumerGroup": GOOD_GROUP, "topic": GOOD_TOPIC, "queueId": "0"}
    commit = {**place, "commitOffset": str(number + 1)}
    return (
        send_request(GOOD_TOPIC, b"x" * 1000),
        pull_request(GOOD_TOPIC, number, group=GOOD_GROUP),
        Command(RequestCode.UPDATE_CONSUMER_OFFSET, ext_fields=commit),
        Command(RequestCode.GET_ROUTEINFO_BY_TOPIC, ext_fields={"topic": GOOD_TOPIC}),
    )


def _answer(connected: socket.socket) -> Command:
    connection = Connection()
    while True:
        data = connected.recv(1 << 20)
        for command in connection.receive_commands(data):
            return command
        if not data:
            raise ConnectionError("the broker closed a good connection")


def print_measured(places: Sequence[str], seconds: float, *, only_send: bool = False) -> None:
    """`measure`, as text for `measured`."""
    seen = measure(places[0], places[1], seconds, only_send=only_send)
    json.dump({"times": seen.times, "late": seen.late, "failures": seen.failures}, sys.stdout)


async def measured(pid: int, arguments: Sequence[str]) -> Measured:
    """What a Python process with these arguments prints, while a broker works."""
    load = Load(pid)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(load.watch)
        done = await trio.run_process([sys.executable, *arguments], capture_stdout=True)
        nursery.cancel_scope.cancel()
    return Measured(**json.loads(done.stdout), share=load.share, most=load.most)
