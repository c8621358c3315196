"""Lives and deaths of a whole broker, chosen by a seed: messages of every kind at once.

A client sends plain, delayed and timed messages and transactions, and pops, while the
file system ends everything in the middle of an operation; then the broker starts again
on what is left. What was acknowledged comes: nothing is lost, and only what a death
interrupts in its delivery comes twice, once more for each death at most.
"""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from random import Random
from typing import TYPE_CHECKING, Any

import trio

from rocketmq_sdk.errors import ConnectError, RocketMQError
from rocketmq_sdk.protocol.bodies.topics import TopicConfig
from rocketmq_sdk.protocol.frame import decode_frame
from rocketmq_sdk.testing.faulty_files import FaultyFileSystem
from support.broker import Peer, PeerOfMortal, open_on, send_request
from support.chunks import exchange
from support.popping import Popper
from support.seeded import VirtualClock
from support.transactions import (
    COMMIT,
    ROLLBACK,
    bodies_in,
    end_of_check,
    end_request,
    half_request,
    producer_heartbeat,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from rocketmq_sdk.broker_embedded.broker import EmbeddedBroker
    from rocketmq_sdk.protocol.command import Command

TOPIC = "T"
SETTLED = 90
"""Seconds after which everything that waits has come."""


class Story:
    """What one client sends, and what it was promised."""

    def __init__(self, generator: Random) -> None:
        self.generator = generator
        self.count = 0
        self.owed: set[bytes] = set()
        self.maybe: set[bytes] = set()
        """What it does not know the fate of."""
        self.once: set[bytes] = set()
        """What no death may double: its record is the only one there will be."""
        self.outcomes: dict[bytes, int] = {}
        self.rolled_back: set[bytes] = set()

    def body(self, kind: bytes) -> bytes:
        self.count += 1
        return b"%s%d " % (kind, self.count) * self.generator.choice([1, 5, 60])

    async def _send(self, peer: Peer, body: bytes, properties: str) -> None:
        self.maybe.add(body)
        request = send_request(
            TOPIC, body, queue_id=self.generator.randrange(2), properties=properties
        )
        if (await peer.ask(request)).code == 0:
            self.owed.add(body)

    async def plain(self, _broker: EmbeddedBroker, peer: Peer) -> None:
        body = self.body(b"plain")
        self.once.add(body)
        await self._send(peer, body, "")

    async def burst(self, broker: EmbeddedBroker, peer: Peer) -> None:
        """Plain messages of a producer that arrive together, which a broker puts as
        runs.
        """
        first, now = self.count + 1, broker.core.clock.now_ms() & 0xFFFFFFFF
        requests: list[Command] = []
        bodies = [self.body(b"burst") for _ in range(self.generator.choice([2, 10, 40]))]
        for number, body in enumerate(bodies, first):
            unique = f"7F00000112345678ABCD{now:08X}{number & 0xFFFF:04X}"
            requests.append(
                send_request(
                    TOPIC,
                    body,
                    queue_id=self.generator.randrange(2),
                    reconsume_times=0,
                    batch=False,
                    properties=f"UNIQ_KEY\x01{unique}\x02WAIT\x01true\x02",
                )
            )
            requests[-1].opaque = number
        self.maybe.update(bodies)
        self.once.update(bodies)
        assert isinstance(peer, PeerOfMortal)
        answers: dict[int, bytes] = {}
        with trio.move_on_after(60):
            answers = await exchange(broker, [requests])
        if peer.files.dead:
            raise ConnectError("the broker is dead", outcome_unknown=True)
        for request, body in zip(requests, bodies, strict=True):
            frame = answers.get(request.opaque)
            if frame is not None and decode_frame(frame[4:]).code == 0:
                self.owed.add(body)

    async def delayed(self, _broker: EmbeddedBroker, peer: Peer) -> None:
        level = self.generator.choice([1, 2])
        await self._send(peer, self.body(b"delayed"), f"DELAY\x01{level}\x02")

    async def timed(self, broker: EmbeddedBroker, peer: Peer) -> None:
        due = broker.core.clock.now_ms() + self.generator.choice([1, 1500, 4000, 30_000])
        await self._send(peer, self.body(b"timed"), f"TIMER_DELIVER_MS\x01{due}\x02")

    async def transaction(self, broker: EmbeddedBroker, peer: Peer) -> None:
        """A half message and its end, or the end is left to the check."""
        body = self.body(b"half")[:60].strip()
        outcome = self.generator.choice([COMMIT, COMMIT, ROLLBACK])
        self.outcomes[body] = outcome
        self.once.add(body)
        self.maybe.add(body)
        half = await peer.ask(
            half_request(
                TOPIC,
                body,
                unique=f"U-{body.decode()}",
                born_timestamp=broker.core.clock.now_ms(),
            )
        )
        if half.code:
            return
        if outcome == COMMIT:
            self.owed.add(body)  # by its end, or by the check that follows
        if self.generator.random() < 0.8 and (
            (await peer.ask(end_request(half, outcome))).code == 0 and outcome == ROLLBACK
        ):
            self.rolled_back.add(body)

    async def checks(self, _broker: EmbeddedBroker, peer: Peer) -> None:
        """Answer what the broker asks about transactions."""
        asked, peer.requests = peer.requests, []
        for check in asked:
            body = check.ext_fields.get("msgId", "").removeprefix("U-").encode()
            if body in self.outcomes:
                await peer.ask(end_of_check(check, self.outcomes[body]))

    async def pop(self, _broker: EmbeddedBroker, peer: Peer) -> None:
        popper = Popper(peer, TOPIC)
        result = await popper.pop(invisible_time=2000, max_msg_nums=8)
        for handle in result.handles[::2]:
            await popper.ack(handle)

    async def sleep(self, _broker: EmbeddedBroker, _peer: Peer) -> None:
        await trio.sleep(self.generator.choice([0.05, 0.5, 2, 5]))

    async def work(self, broker: EmbeddedBroker, peer: Peer, steps: int) -> None:
        """Random steps of two tasks until the end comes."""
        kinds: list[Callable[[EmbeddedBroker, Peer], Awaitable[None]]] = [
            self.plain,
            self.plain,
            self.burst,
            self.delayed,
            self.delayed,
            self.timed,
            self.timed,
            self.transaction,
            self.transaction,
            self.checks,
            self.pop,
            self.sleep,
            self.sleep,
        ]

        async def alone() -> None:
            with suppress(RocketMQError):
                for _ in range(steps // 2):
                    await self.generator.choice(kinds)(broker, peer)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(alone)
            nursery.start_soon(alone)

    async def finish(self, broker: EmbeddedBroker, peer: Peer, deaths: int) -> None:
        """Everything that is owed comes, as often as it may."""
        for _ in range(SETTLED // 2):
            await trio.sleep(2)
            await self.checks(broker, peer)
        found = Counter(bodies_in(broker, TOPIC, 0) + bodies_in(broker, TOPIC, 1))
        lost = self.owed - found.keys()
        assert not lost, f"lost: {sorted(body[:12] for body in lost)}"
        foreign = found.keys() - self.owed - self.maybe
        assert not foreign, f"never sent: {sorted(body[:12] for body in foreign)}"
        assert not found.keys() & self.rolled_back
        for body, copies in found.items():
            most = 1 if body in self.once else 1 + deaths
            assert copies <= most, f"{body[:12]!r} came {copies} times, after {deaths} deaths"


async def run_broker_seed(seed: int) -> int:
    """One run of several lives; gives the number of deaths. Raises `AssertionError` for
    what went wrong.
    """
    generator = Random(seed)
    power_cuts = generator.random() < 0.7
    settings: dict[str, Any] = {
        "flush_disk_type": "SYNC_FLUSH" if power_cuts else "ASYNC_FLUSH",
        "message_delay_level": "1s 3s",
        "mapped_file_size_commit_log": generator.choice([65_536, 1 << 20]),
        "mapped_file_size_consume_queue": 2000,
        "mapped_file_size_timer_log": 5200,
        "max_hash_slot_num": 100,
        "max_index_num": 400,
        "transaction_check_interval": 2000,
        "transaction_time_out": 1000,
        "transaction_check_max": 1000,
        "revive_queue_num": 1,
        "flush_delay_offset_interval": generator.choice([200, 10_000]),
        "flush_consumer_offset_interval": generator.choice([300, 5000]),
        "timer_flush_interval_ms": generator.choice([100, 1000]),
        "hot_bytes": generator.choice([0, 65_536]),
    }
    files = FaultyFileSystem(
        seed, page_size=generator.choice([512, 4096]), blocking=generator.random() < 0.7
    )
    clock, story = VirtualClock(), Story(generator)
    deaths = 0
    for _ in range(generator.choice([1, 2, 3])):
        files.cut_at = files.operations + generator.choice(
            [generator.randrange(20, 200), generator.randrange(100, 900)]
        )
        with suppress(RocketMQError):
            async with open_on(files, clock=clock, **settings) as (broker, peer):
                if broker.core.topics.get(TOPIC) is None:
                    broker.core.topics.put(TopicConfig(TOPIC, 2, 2))
                await peer.ask(producer_heartbeat("c@1", "PG"))
                await story.work(broker, peer, generator.choice([20, 60, 120]))
                if generator.random() < 0.6:
                    files.halt()
        deaths += files.dead
        files = files.power_cut(generator.randrange(1 << 30)) if power_cuts else files.kill()
        await trio.sleep(generator.choice([0, 1, 10]))
    files.cut_at = None
    async with open_on(files, clock=clock, **settings) as (broker, peer):
        if broker.core.topics.get(TOPIC) is None:
            broker.core.topics.put(TopicConfig(TOPIC, 2, 2))
        await peer.ask(producer_heartbeat("c@1", "PG"))
        await story.finish(broker, peer, deaths)
    return deaths
