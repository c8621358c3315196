"""How long queues take to move when one of ten members goes.

The member leaves, is killed, or stops without a FIN. Measured until the first message
of the last queue that moves.

Nine members live in this process, the tenth in one of its own; every queue gets a
message every 20 ms. A queue has moved when its messages come to another member than
before, be it one of the leaver's or one that was given on from member to member.
Without a FIN the broker notices after its own 120 s, so that figure is only taken at
scale 1 and above. `java_groups` does the same with Apache's members, and with both
kinds in one group.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Protocol

import trio

from benchmarks.workers import broker_process
from rocketmq_sdk import Admin, Message, Producer, PushConsumer, ReceivedMessage

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from benchmarks.harness import Report

QUEUES = 20
NAMES = [f"m{number}" for number in range(10)]
LEAVER = "m5"
STAYING = [name for name in NAMES if name != LEAVER]
INTERVAL = 0.02
_ADDRESS = "127.0.0.1"
"""The same in all client ids, so members of both kinds sort by their names alone."""
_MEMBER = """
import sys, trio
from rocketmq_sdk import PushConsumer

async def main():
    namesrv, group, topic, name, address = sys.argv[1:]
    async def listener(message):
        await trio.sleep(0.002)
    async with PushConsumer(
        group,
        namesrv=namesrv,
        subscriptions={topic: "*"},
        listener=listener,
        instance_name=name,
        client_ip=address,
    ):
        print("ready", flush=True)
        await trio.to_thread.run_sync(sys.stdin.readline)

trio.run(main)
"""


def _start(*arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", _MEMBER, *arguments, LEAVER, _ADDRESS],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


Rows = list[tuple[str, int, float, float]]
"""Member, queue, first and last message since the mark.

Times are seconds of the monotonic clock; 0 means none.
"""


class Leaver(Protocol):
    """The member that goes; it has a process of its own."""

    @property
    def process(self) -> subprocess.Popen[str]: ...

    async def join(self, namesrv: str, group: str, topic: str) -> None: ...

    async def leave(self) -> None: ...

    def close(self) -> None: ...


class Members(Protocol):
    """Members that stay and note what comes to them."""

    async def join(self, stack: AsyncExitStack, namesrv: str, group: str, topic: str) -> None: ...

    async def mark(self) -> None: ...

    async def rows(self) -> Rows: ...


class OurLeaver:
    """A push consumer of ours in a process of its own."""

    process: subprocess.Popen[str]

    async def join(self, namesrv: str, group: str, topic: str) -> None:
        self.process = _start(namesrv, group, topic)
        assert self.process.stdout is not None
        await trio.to_thread.run_sync(self.process.stdout.readline)

    async def leave(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()

    def close(self) -> None:
        self.process.kill()
        self.process.wait()


class OurMembers:
    """Our push consumers in this process, until the stack that they join is closed."""

    def __init__(self, names: Sequence[str]) -> None:
        self._names = names
        self._first: dict[tuple[str, int], float] = {}
        self._last: dict[tuple[str, int], float] = {}

    def _listener(self, name: str) -> Callable[[ReceivedMessage], Awaitable[None]]:
        async def listener(message: ReceivedMessage) -> None:
            now, key = time.perf_counter(), (name, message.queue_id)
            self._first.setdefault(key, now)
            self._last[key] = now
            await trio.sleep(0.002)

        return listener

    async def join(self, stack: AsyncExitStack, namesrv: str, group: str, topic: str) -> None:
        for name in self._names:
            consumer = PushConsumer(
                group,
                namesrv=namesrv,
                subscriptions={topic: "*"},
                listener=self._listener(name),
                instance_name=name,
                client_ip=_ADDRESS,
            )
            await stack.enter_async_context(consumer)

    async def mark(self) -> None:
        self._first.clear()

    async def rows(self) -> Rows:
        return [(*key, self._first.get(key, 0.0), last) for key, last in self._last.items()]


async def _stop(leaver: Leaver) -> None:
    leaver.process.send_signal(signal.SIGSTOP)


async def _kill(leaver: Leaver) -> None:
    leaver.process.kill()


async def _leave(leaver: Leaver) -> None:
    await leaver.leave()


WAYS = {"leaves": _leave, "is killed": _kill, "stops without a FIN": _stop}


async def _send(producer: Producer, topic: str, scope: trio.CancelScope) -> None:
    places = await producer.publish_queues(topic)
    with scope:
        while True:
            for place in places:
                producer.submit(Message(topic, b"x"), queue=place)
            await trio.sleep(INTERVAL)


async def _settled(members: Sequence[Members], missing: int) -> tuple[dict[int, str], Rows]:
    """Wait until each queue but `missing` ones has had one member for two seconds.

    Returns each queue's member and what was seen.
    """
    since = time.perf_counter()
    while True:
        await trio.sleep(0.1)
        rows = [row for some in members for row in await some.rows()]
        now = time.perf_counter()
        recent = [(queue, member) for member, queue, _, last in rows if now - last < 1.0]
        if len(recent) != QUEUES - missing or len(dict(recent)) != len(recent):
            since = now
        elif now - since > 2.0:
            return dict(recent), rows


async def measure(namesrv: str, way: str, members: Sequence[Members], leaver: Leaver) -> float:
    """Seconds from the exit of a member to the last first message of a moved queue."""
    group = topic = f"movers_{time.time_ns()}"
    async with AsyncExitStack() as stack:
        producer = await stack.enter_async_context(Producer("bench", namesrv=namesrv))
        await Admin(client=producer.client).topics.create(topic, queues=QUEUES)
        for some in members:
            await some.join(stack, namesrv, group, topic)
        stack.callback(leaver.close)
        await leaver.join(namesrv, group, topic)
        nursery = await stack.enter_async_context(trio.open_nursery())
        sending = trio.CancelScope()
        nursery.start_soon(_send, producer, topic, sending)
        with trio.fail_after(300):
            before, _ = await _settled(members, QUEUES // len(NAMES))
            for some in members:
                await some.mark()
            gone = time.perf_counter()
            nursery.start_soon(WAYS[way], leaver)
            after, rows = await _settled(members, 0)
        sending.cancel()
    return (
        max(
            first for member, queue, first, _ in rows if after[queue] == member != before.get(queue)
        )
        - gone
    )


async def _ours(namesrv: str, way: str) -> float:
    return await measure(namesrv, way, [OurMembers(STAYING)], OurLeaver())


def ways(scale: float) -> list[str]:
    """Those that are measured at this scale."""
    return [way for way in WAYS if way != "stops without a FIN" or scale >= 1]


def run(report: Report, scale: float) -> None:
    """One round."""
    for way in ways(scale):
        with broker_process() as namesrv:
            report.add(
                f"rebalance, one of 10 {way}",
                "s",
                trio.run(_ours, namesrv, way),
                f"java, rebalance, one of 10 {way}",
            )
