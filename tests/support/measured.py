"""A well-behaved client with nothing else to do, and how busy the broker was meanwhile.

The client is to be a process of its own: it calls by sockets that block and looks at
the clock, so its times are the broker's. How late plain sleeps of it were tells whether
the machine was busy with something else. So does, for each call, how long the broker
and the client waited for a processor, as the system counts it (`/proc/PID/schedstat`):
what is left of a call is what the broker took for it. Where the system does not count,
the broker is blamed for all.
"""

from __future__ import annotations

import gc
import json
import os
import select
import socket
import subprocess
import sys
import time
from contextlib import asynccontextmanager
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
from support.hostile import resident_bytes

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence

GOOD_TOPIC, GOOD_GROUP = "WellBehaved", "WellBehavedGroup"
LONGEST_WORK = 1.0
"""Seconds of processor time of the broker within which it answers a good call."""
LONGEST = 10.0
"""Seconds within which it does on a machine that works for others meanwhile."""


class Schedule:
    """What the system knows of the turns of a process.

    A thread beside the main one that waits for a processor may have the interpreter's
    lock, and then the main thread waits for it: all their waits count.
    """

    def __init__(self, process: int | str) -> None:
        self._process = process
        try:
            self._file = os.open(f"/proc/{process}/schedstat", os.O_RDONLY)
        except OSError:
            self._file = -1

    def now(self) -> tuple[float, float]:
        """Seconds that the main thread has worked, and that all threads have waited for
        a processor.
        """
        try:
            worked = int(os.pread(self._file, 100, 0).split()[0])
            waited = sum(
                int(path.read_bytes().split()[1])
                for path in Path(f"/proc/{self._process}/task").glob("*/schedstat")
            )
        except (OSError, ValueError, IndexError):
            return 0.0, 0.0
        return worked / 1e9, waited / 1e9


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
    waits: list[float]
    """For each call, the seconds in which broker or client waited for a processor."""
    late: list[float]
    failures: list[str]
    rounds: int = 0
    """How often all calls were made."""
    share: float = 0.0
    most: int = 0

    @property
    def taken(self) -> list[float]:
        """The seconds of each call without those waits."""
        return [time - wait for time, wait in zip(self.times, self.waits, strict=True)]

    @property
    def p99(self) -> float:
        """Of the calls, in seconds."""
        return percentile(self.times, 0.99)

    def __str__(self) -> str:
        return (
            f"{len(self.times)} good calls, p50 {percentile(self.times, 0.5) * 1e3:.2f} ms, "
            f"p99 {self.p99 * 1e3:.2f} ms, slowest {percentile(self.times, 1) * 1e3:.0f} ms; "
            f"without waits for a processor p99 {percentile(self.taken, 0.99) * 1e3:.2f} ms, "
            f"slowest {percentile(self.taken, 1) * 1e3:.0f} ms; "
            f"plain sleeps were {percentile(self.late, 0.99) * 1e3:.2f} ms late at p99; "
            f"the broker took {self.share:.0%} of a core and at most {self.most / 1e6:.0f} MB; "
            f"{len(self.failures)} failures"
        )


def percentile(times: list[float], share: float) -> float:
    """The time within which this share lies."""
    ordered = sorted(times)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))] if ordered else 0.0


def measure(
    places: Sequence[str], process: int, going_on: Callable[[], bool], *, only_send: bool = False
) -> Measured:
    """Be the well-behaved client of a broker process: send, pull, commit, ask for the
    route. `places` are the addresses of broker and name server.
    """
    sockets = [socket.create_connection(split_address(place), 30) for place in places]
    for each in sockets:
        each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    seen, schedules = Measured([], [], [], []), (Schedule(process), Schedule("self"))
    gc.disable()
    while going_on():
        for place, command in enumerate(_round(seen.rounds)[: 1 if only_send else 4]):
            command.opaque = seen.rounds * 4 + place
            frame = encode_frame(command)
            before = [each.now() for each in schedules]
            began = time.perf_counter()
            sockets[place == 3].sendall(frame)
            answer = _answer(sockets[place == 3])
            took = time.perf_counter() - began
            after = [each.now() for each in schedules]
            waited = sum(end[1] - begin[1] for begin, end in zip(before, after, strict=True))
            seen.times.append(took)
            seen.waits.append(max(0.0, min(waited, took)))  # a thread may have ended
            worked = after[0][0] - before[0][0]
            if worked > LONGEST_WORK or took > LONGEST:
                seen.failures.append(f"{took:.1f} s, {worked:.1f} s of work, for a good {command}")
            if answer.code != 0 or answer.opaque != command.opaque:
                seen.failures.append(f"a good call failed: {command} {answer}")
        seen.rounds += 1
        due = time.perf_counter() + 0.01
        time.sleep(0.01)
        seen.late.append(time.perf_counter() - due)
    return seen


def for_seconds(seconds: float) -> Callable[[], bool]:
    """Go on for so long."""
    ends = time.perf_counter() + seconds
    return lambda: time.perf_counter() < ends


def until_told() -> bool:
    """Go on until somebody writes to this process, or closes its input."""
    return not select.select([sys.stdin], [], [], 0)[0]


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


def print_measured(
    places: Sequence[str],
    process: int,
    going_on: Callable[[], bool],
    *,
    only_send: bool = False,
) -> None:
    """`measure`, as text for `measured`."""
    seen = measure(places, process, going_on, only_send=only_send)
    json.dump(
        {
            "times": seen.times,
            "waits": seen.waits,
            "late": seen.late,
            "failures": seen.failures,
            "rounds": seen.rounds,
        },
        sys.stdout,
    )


async def measured(pid: int, arguments: Sequence[str]) -> Measured:
    """What a Python process with these arguments prints, while a broker works."""
    load = Load(pid)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(load.watch)
        done = await trio.run_process([sys.executable, *arguments], capture_stdout=True)
        nursery.cancel_scope.cancel()
    return Measured(**json.loads(done.stdout), share=load.share, most=load.most)


@asynccontextmanager
async def measuring(
    places: Sequence[str], process: int, take: Callable[[Measured], None]
) -> AsyncIterator[None]:
    """A well-behaved client in a process of its own while the block runs.

    It makes one round at least before the block, and one behind it; `take` is given
    what it saw.
    """
    load = Load(process)
    client = await trio.lowlevel.open_process(
        [sys.executable, "-m", "support.measured", *places, str(process)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=Path(__file__).parents[1],
    )
    assert client.stdin is not None
    assert client.stdout is not None
    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(load.watch)
            assert await client.stdout.receive_some(1) == b"\n", "the client could not start"
            yield
            await client.stdin.aclose()
            said = bytearray()
            async for data in client.stdout:
                said += data
            nursery.cancel_scope.cancel()
        assert said, "the well-behaved client ended with an error"
        take(Measured(**json.loads(said), share=load.share, most=load.most))
    finally:
        client.kill()
        with trio.CancelScope(shield=True):
            await client.wait()


def _main() -> None:
    *places, process = sys.argv[1:]
    measure(places, int(process), _once())
    print(flush=True)
    print_measured(places, int(process), _and_once_more(until_told))


def _once() -> Callable[[], bool]:
    left = [True]
    return lambda: bool(left and left.pop())


def _and_once_more(going_on: Callable[[], bool]) -> Callable[[], bool]:
    """Once more after what it was for is over: it must be well then."""
    last = _once()
    return lambda: going_on() or last()


if __name__ == "__main__":
    _main()
