"""Mixed work on a broker in memory for some minutes:
`python -m tools.memory_soak --minutes 20 [--limit MIB]`, in the directory `tests`.

Sends, pulls, pops, delays, timers, transactions, messages that come again, topics that
come and go. Prints what the process and the store hold. Exit code 0 when the process
holds no more at the end than after a third of the time, give or take a tenth of the
limit (at least 4 MiB), and no request was refused.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import trio

from rocketmq_sdk.broker_embedded.broker import EmbeddedBroker
from rocketmq_sdk.codes import RequestCode
from support.broker import Peer, connect, send_request
from support.popping import Popper
from support.transactions import COMMIT, ROLLBACK, begun, ended

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

MIB = 1024 * 1024
_PAUSE = 0.002


def resident_mib() -> float:
    """What the process holds now."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096 / MIB


class Soak:
    """The work, and what came of it."""

    def __init__(self, broker: EmbeddedBroker, peer: Peer) -> None:
        self.broker = broker
        self.peer = peer
        self.done: Counter[str] = Counter()
        self.refused: Counter[str] = Counter()
        self.turn = 0

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

    async def nobody(self) -> None:
        """What nobody consumes is pushed out in the end."""
        await self.send("nobody", bytes(2000), queue_id=0)


async def _repeat(work: Callable[[], Awaitable[None]], pause: float) -> None:
    while True:
        await work()
        await trio.sleep(pause)


async def soak(minutes: float, limit: int) -> int:
    """Work and look; returns the exit code."""
    began, seen = time.monotonic(), list[float]()
    async with EmbeddedBroker(memory_limit=limit) as broker, trio.open_nursery() as nursery:
        assert broker.core.groups.get("CG") is not None
        work = Soak(broker, await connect(broker, nursery))
        for kind in (work.pulled, work.popped, work.nobody):
            nursery.start_soon(_repeat, kind, _PAUSE)
        for kind in (work.later, work.transactions, work.topics):
            nursery.start_soon(_repeat, kind, 0.1)
        while time.monotonic() - began < minutes * 60:
            await trio.sleep(min(10.0, minutes * 60 / 20))
            seen.append(resident_mib())
            used = broker.store.files.used_bytes / MIB  # type: ignore[attr-defined]
            print(
                f"{time.monotonic() - began:6.0f} s  process {seen[-1]:6.1f} MiB  "
                f"store {used:5.1f} MiB  {dict(work.done)}  refused {dict(work.refused)}",
                flush=True,
            )
        nursery.cancel_scope.cancel()
    third = max(seen[: len(seen) // 3 + 1])
    flat = max(seen[-3:]) <= third + max(4.0, limit / MIB / 10)
    print(f"{'flat' if flat else 'GROWING'}: {third:.1f} MiB, then {max(seen[-3:]):.1f} MiB")
    return 0 if flat and not work.refused else 1


def main() -> int:
    """Run it with what the command line asks for."""
    parser = argparse.ArgumentParser(description="Work on a broker in memory for a while.")
    parser.add_argument("--minutes", type=float, default=20)
    parser.add_argument("--limit", type=int, default=64, metavar="MIB")
    options = parser.parse_args()
    return trio.run(soak, options.minutes, options.limit * MIB)


if __name__ == "__main__":
    sys.exit(main())
