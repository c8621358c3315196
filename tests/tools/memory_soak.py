"""Mixed work on a broker in memory for some minutes:
`python -m tools.memory_soak --minutes 20 [--limit MIB]`, in the directory `tests`.

Sends, pulls, pops, delays, timers, transactions, messages that come again, topics,
groups and connections that come and go, each by a timetable: what is measured does not
depend on how busy the machine is. Prints what the process and the store hold, and how
late the work was at most. Exit code 0 when no request was refused and memory is flat
once the work has settled: when the store is so full that what nobody consumed is given
up, but not before a third of the time. What flat is says `support/memory_trend.py`.
When it is not, the kinds of objects of which there became more are named. Exit code 2
when the machine was too slow for the timetable: one half of the time that counts had a
tenth more work than the other, so that nothing can be said.
"""

from __future__ import annotations

import argparse
import gc
import logging
import sys
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import trio

from rocketmq_sdk.broker_embedded.broker import EmbeddedBroker
from rocketmq_sdk.codes import RequestCode
from support.broker import Peer, connect, heartbeat, send_request, subscription
from support.memory_trend import Sample, judge
from support.popping import Popper, make_topic
from support.transactions import COMMIT, ROLLBACK, begun, ended

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

MIB = 1024 * 1024
_OFTEN, _SELDOM = 0.1, 0.5
"""Seconds from one round of a kind of work to the next. Together they are about 800
requests a second, a tenth of what one core can do. Members come so often that caches of
some thousand names are full when it counts.
"""
_UNEVEN = 0.1
"""How much more messages one half of the time may have than the other."""
_LEAST = 10
"""How many looks there have to be after the work has settled."""
_NAMED = 12
"""How many kinds of objects are named."""


def resident_mib() -> float:
    """What the process holds now."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096 / MIB


class Soak:
    """The work, and what came of it."""

    def __init__(self, broker: EmbeddedBroker, peer: Peer, namesrv: Peer) -> None:
        self.broker = broker
        self.peer = peer
        self.namesrv = namesrv
        self.done: Counter[str] = Counter()
        self.refused: Counter[str] = Counter()
        self.turn = 0
        self.late = 0.0
        """Seconds that it was behind its timetable, at most."""

    async def repeat(self, work: Callable[[], Awaitable[None]], every: float) -> None:
        """Work by the timetable; what is late is made up for."""
        due = trio.current_time()
        while True:
            await trio.sleep_until(due)
            self.late = max(self.late, trio.current_time() - due)
            await work()
            due += every

    async def send(self, topic: str, body: bytes, **fields: Any) -> None:
        answer = await self.peer.ask(send_request(topic, body, **fields))
        if answer.code:
            self.refused[f"send {answer.code}"] += 1
        self.done["sent"] += 1

    async def pulled(self) -> None:
        """Sent and pulled, with commits; from time to time read from the start."""
        for _ in range(20):
            await self.send("pulled", bytes(500), queue_id=0)
        store = self.broker.store
        await self.peer.ask(
            RequestCode.UPDATE_CONSUMER_OFFSET,
            consumerGroup="CG",
            topic="pulled",
            queueId=0,
            commitOffset=store.max_offset("pulled", 0),
        )

    async def popped(self) -> None:
        """Sent and popped; a twentieth is not acknowledged and comes again."""
        for number in range(20):
            await self.send("popped", b"%d " % number * 20, queue_id=number % 4)
        popper = Popper(self.peer, "popped", "PG", invisible_time=8000)
        while True:
            result = await popper.pop()
            if not result.handles:
                break
            for handle in result.handles:
                self.turn += 1
                if self.turn % 20:
                    await popper.ack(handle)
                    self.done["acknowledged"] += 1

    async def later(self) -> None:
        """Delays and timers, near and far."""
        now = self.broker.core.clock.now_ms()
        await self.send("later", bytes(100), properties="DELAY\x012\x02", queue_id=0)
        for seconds in (3, 30, 86_400 if self.done["later"] % 50 == 0 else 5):
            text = f"TIMER_DELIVER_MS\x01{now + 1000 * seconds}\x02"
            await self.send("later", bytes(100), properties=text, queue_id=0)
        self.done["later"] += 1

    async def transactions(self) -> None:
        number = self.done["transactions"]
        now = self.broker.core.clock.now_ms()
        answer = await begun(self.peer, b"%d" % number, topic="orders", born_timestamp=now)
        if number % 10:
            await ended(self.peer, answer, COMMIT if number % 3 else ROLLBACK)
        self.done["transactions"] += 1

    async def topics(self) -> None:
        name = f"topic{self.done['topics'] % 7}"
        await self.send(name, bytes(3000), queue_id=0)
        await self.peer.ask(RequestCode.DELETE_TOPIC_IN_BROKER, topic=name)
        self.done["topics"] += 1

    async def members(self) -> None:
        """A consumer with a connection, a topic and a group of its own, and its end."""
        name = f"member{self.done['members']}"
        async with trio.open_nursery() as nursery:
            peer = await connect(self.broker, nursery)
            await peer.ask(heartbeat(name, name, subscription(name)))
            await make_topic(peer, name, 1)
            await peer.send(name, bytes(100), queue_id=0)
            await Popper(peer, name, name, invisible_time=1000).pop()
            await peer.ask(RequestCode.DELETE_SUBSCRIPTIONGROUP, groupName=name, cleanOffset=True)
            for topic in (name, f"%RETRY%{name}", f"%RETRY%{name}_{name}"):
                await peer.ask(RequestCode.DELETE_TOPIC_IN_BROKER, topic=topic)
                await self.namesrv.ask(RequestCode.DELETE_TOPIC_IN_NAMESRV, topic=topic)
            await peer.channel.aclose()
            nursery.cancel_scope.cancel()
        self.done["members"] += 1

    async def nobody(self) -> None:
        """What nobody consumes is pushed out in the end."""
        await self.send("nobody", bytes(16_000), queue_id=0)


def census() -> Counter[str]:
    """How many objects there are of each type that can hold others."""
    gc.collect()
    return Counter(
        f"{type(each).__module__}.{type(each).__qualname__}" for each in gc.get_objects()
    )


async def soak(minutes: float, limit: int) -> int:
    """Work and look; returns the exit code."""
    began, seen, settled = time.monotonic(), list[Sample](), 0.0
    first, sent = Counter[str](), dict[float, int]()
    async with (
        # What is never committed is given up soon, so that its number settles too.
        EmbeddedBroker(
            memory_limit=limit,
            transaction_time_out=3000,
            transaction_check_interval=5000,
            transaction_check_max=3,
        ) as broker,
        trio.open_nursery() as nursery,
    ):
        assert broker.core.groups.get("CG") is not None
        memory = broker.store.retention.memory
        assert memory is not None
        peers = [await connect(broker, nursery), await connect(broker, nursery, namesrv=True)]
        work = Soak(broker, *peers)
        for kind in (work.pulled, work.popped, work.nobody, work.members):
            nursery.start_soon(work.repeat, kind, _OFTEN)
        for kind in (work.later, work.transactions, work.topics):
            nursery.start_soon(work.repeat, kind, _SELDOM)
        while time.monotonic() - began < minutes * 60:
            await trio.sleep(min(10.0, minutes * 60 / 30))
            now = time.monotonic() - began
            seen.append(Sample(now, resident_mib(), sys.getallocatedblocks()))
            sent[now] = work.done["sent"]
            if not settled and memory.lost:
                settled = now
            if settled and not first and now > max(settled, minutes * 20):
                first = census()
            used = broker.store.files.used_bytes / MIB  # type: ignore[attr-defined]
            print(
                f"{now:6.0f} s  process {seen[-1].resident:6.1f} MiB  {seen[-1].blocks:,} blocks  "
                f"store {used:5.1f} MiB  {dict(work.done)}  refused {dict(work.refused)}  "
                f"late {work.late:.1f} s",
                flush=True,
            )
        last = census()
        nursery.cancel_scope.cancel()
    warm = [each for each in seen if settled and each.seconds > max(settled, minutes * 20)]
    if len(warm) < _LEAST:
        print(f"too short: the store is full after {settled:.0f} s (0: never)")
        return 1
    flat, text = judge(warm, max(4.0, limit / MIB / 16))
    print(text)
    if not flat:
        last.subtract(first)
        for name, more in last.most_common(_NAMED):
            print(f"{more:+10,} {name}")
    rates = [
        (sent[there.seconds] - sent[here.seconds]) / (there.seconds - here.seconds)
        for here, there in ((warm[0], warm[len(warm) // 2]), (warm[len(warm) // 2], warm[-1]))
    ]
    print("messages a second in both halves: {:.0f}, {:.0f}".format(*rates))
    if max(rates) > (1 + _UNEVEN) * min(rates):
        print("that is too uneven to tell: this machine is too busy")
        return 2
    return 0 if flat and not work.refused else 1


def main() -> int:
    """Run it with what the command line asks for."""
    parser = argparse.ArgumentParser(description="Work on a broker in memory for a while.")
    parser.add_argument("--minutes", type=float, default=20)
    parser.add_argument("--limit", type=int, default=64, metavar="MIB")
    options = parser.parse_args()
    logging.disable(logging.CRITICAL)  # it is told of each transaction that is given up
    return trio.run(soak, options.minutes, options.limit * MIB)


if __name__ == "__main__":
    sys.exit(main())
