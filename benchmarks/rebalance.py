"""From the moment when one of ten members goes to the first message of the last queue that moves: it leaves, is killed, or stops without a FIN.

Nine members live in this process, the tenth in one of its own; every queue gets a message every 20 ms. Without a FIN the broker notices after its
own 120 s, so that figure is only taken at scale 1 and above.
"""

import signal
import subprocess
import sys
import time
from contextlib import AsyncExitStack

import trio

from benchmarks.harness import Report
from benchmarks.workers import broker_process
from rocketmq_sdk import Message, Producer, PushConsumer, ReceivedMessage

QUEUES = 20
MEMBERS = 10
TOPIC = "moving"
INTERVAL = 0.02
_MEMBER = """
import sys, trio
from rocketmq_sdk import PushConsumer

async def main():
    async def listener(message):
        await trio.sleep(0.002)
    async with PushConsumer(sys.argv[2], namesrv=sys.argv[1], subscriptions={"moving": "*"}, listener=listener):
        print("ready", flush=True)
        await trio.to_thread.run_sync(sys.stdin.readline)

trio.run(main)
"""


def _leave(member: "subprocess.Popen[str]") -> None:
    assert member.stdin is not None
    member.stdin.close()


def _kill(member: "subprocess.Popen[str]") -> None:
    member.kill()


def _stop(member: "subprocess.Popen[str]") -> None:
    member.send_signal(signal.SIGSTOP)


WAYS = {"leaves": _leave, "is killed": _kill, "stops without a FIN": _stop}


class _Seen:
    """When the members of this process last had a message of each queue."""

    def __init__(self) -> None:
        self.last: dict[int, float] = {}

    async def __call__(self, message: ReceivedMessage) -> None:
        self.last[message.queue_id] = time.perf_counter()
        await trio.sleep(0.002)


def _start(namesrv: str, group: str) -> "subprocess.Popen[str]":
    return subprocess.Popen([sys.executable, "-c", _MEMBER, namesrv, group], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


async def _send(producer: Producer, scope: trio.CancelScope) -> None:
    places = await producer.publish_queues(TOPIC)
    with scope:
        while True:
            for place in places:
                producer.submit(Message(TOPIC, b"x"), queue=place)
            await trio.sleep(INTERVAL)


async def _settled(seen: _Seen, missing: int) -> set[int]:
    """Wait until all queues but `missing` ones have come within the last second, for two seconds; gives the others."""
    since = time.perf_counter()
    while True:
        await trio.sleep(0.1)
        now = time.perf_counter()
        silent = {queue for queue in range(QUEUES) if now - seen.last.get(queue, 0.0) > 1.0}
        if len(silent) != missing:
            since = now
        elif now - since > 2.0:
            return silent


async def _measure(namesrv: str, report: Report, way: str) -> None:
    group, seen = f"movers-{way.replace(' ', '-')}", _Seen()
    async with AsyncExitStack() as stack:
        producer = await stack.enter_async_context(Producer("bench", namesrv=namesrv))
        await producer.create_topic(TOPIC, queues=QUEUES)
        for _ in range(MEMBERS - 1):
            await stack.enter_async_context(PushConsumer(group, namesrv=namesrv, subscriptions={TOPIC: "*"}, listener=seen))
        nursery = await stack.enter_async_context(trio.open_nursery())
        sending = trio.CancelScope()
        nursery.start_soon(_send, producer, sending)
        member = _start(namesrv, group)
        try:
            assert member.stdout is not None
            await trio.to_thread.run_sync(member.stdout.readline)
            with trio.fail_after(300):
                moving = await _settled(seen, QUEUES // MEMBERS)
                gone = time.perf_counter()
                WAYS[way](member)
                while not all(seen.last.get(queue, 0.0) > gone for queue in moving):
                    await trio.sleep(0.002)
                report.add(f"rebalance, one of {MEMBERS} {way}", "s", max(seen.last[queue] for queue in moving) - gone)
        finally:
            member.kill()
            member.wait()
        sending.cancel()


def run(report: Report, scale: float) -> None:
    """One round."""
    for way in WAYS:
        if way != "stops without a FIN" or scale >= 1:
            with broker_process() as namesrv:
                trio.run(_measure, namesrv, report, way)
