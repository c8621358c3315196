"""Lives and deaths of a broker whose messages are popped, chosen by a seed.

A client sends, pops, acknowledges and changes invisible times until the file system
ends everything in the middle of an operation; then the broker starts again on what is
left. What the client was told holds through all of it: a message that was sent comes
until it is acknowledged, one that was acknowledged in time never comes again, and none
comes before its invisible time is over.
"""

from __future__ import annotations

from contextlib import suppress
from random import Random
from typing import TYPE_CHECKING, Any

import trio

from rocketmq_sdk.errors import RocketMQError
from rocketmq_sdk.protocol.bodies.topics import TopicConfig
from rocketmq_sdk.testing.faulty_files import FaultyFileSystem
from support.broker import Peer, open_on, send_request
from support.popping import Popper
from support.seeded import VirtualClock

if TYPE_CHECKING:
    from collections.abc import Callable

    from rocketmq_sdk.protocol.receipt_handle import ReceiptHandle

LONGEST_MS = 60_000
SETTLED = 75.0
"""Seconds after which every message that is out can have come back."""


class Story:
    """What the client knows."""

    def __init__(self, generator: Random, *, strict: bool) -> None:
        self.generator = generator
        self.strict = strict
        self.sent: set[bytes] = set()
        self.done: set[bytes] = set()
        self.maybe_done: set[bytes] = set()
        self.unsure: set[bytes] = set()
        self.hidden_until: dict[bytes, int] = {}
        self.handles: dict[bytes, ReceiptHandle] = {}
        self.count = 0

    async def send(self, peer: Peer, _popper: Popper) -> None:
        self.count += 1
        body = b"m%d " % self.count * self.generator.choice([1, 30])
        if (
            await peer.ask(send_request("T", body, queue_id=self.generator.randrange(2)))
        ).code == 0:
            self.sent.add(body)

    async def pop(self, _peer: Peer, popper: Popper) -> None:
        """Look at each message that comes: was it to come?"""
        invisible = self.generator.choice([2_000, 8_000, LONGEST_MS])
        result = await popper.pop(
            invisible_time=invisible, max_msg_nums=self.generator.choice([1, 3, 32])
        )
        for message, handle in zip(result.messages, result.handles, strict=True):
            body = message.body
            if self.strict and body not in self.unsure:
                early = self.hidden_until.get(body, 0) - result.pop_time
                assert early <= 0, f"{body[:8]!r} comes {early} ms early, by {handle}"
                assert body not in self.done, (
                    f"{body[:8]!r} comes after it was acknowledged, by {handle}"
                )
            self.hidden_until[body] = handle.next_visible_ms
            self.handles[body] = handle

    async def ack(self, _peer: Peer, popper: Popper) -> None:
        """Acknowledge some of what is in hand, one by one or together."""
        now = self.now()
        live = [
            body for body, handle in self.handles.items() if handle.next_visible_ms > now + 1500
        ]
        chosen = self.generator.sample(live, min(len(live), self.generator.choice([1, 1, 4])))
        if not chosen:
            return
        self.maybe_done.update(chosen)
        handles = [self.handles.pop(body) for body in chosen]
        if len(handles) == 1:
            await popper.ack(handles[0])
        else:
            await popper.ack_all(handles)
        self.done.update(chosen)

    async def change(self, _peer: Peer, popper: Popper) -> None:
        """Another invisible time for something in hand."""
        live = [
            body
            for body, handle in self.handles.items()
            if handle.next_visible_ms > self.now() + 1500
        ]
        if not live:
            return
        body = self.generator.choice(live)
        invisible = self.generator.choice([1_000, 5_000, LONGEST_MS])
        handle = self.handles.pop(body)
        # When the broker dies between the new checkpoint and the ack of the old one,
        # both bring the message.
        self.unsure.add(body)
        self.handles[body] = await popper.change(handle, invisible)
        self.unsure.discard(body)
        self.hidden_until[body] = self.handles[body].next_visible_ms

    async def sleep(self, _peer: Peer, _popper: Popper) -> None:
        await trio.sleep(self.generator.choice([0.1, 1, 3, 7]))

    def now(self) -> int:
        """The broker's clock, which is the loop's."""
        return self.clock_ms()

    clock_ms: Callable[[], int]

    async def work(self, peer: Peer, steps: int) -> None:
        """Random steps until the end comes."""
        popper = Popper(peer, "T")
        kinds = (
            [self.send] * 4
            + [self.pop] * 4
            + [self.ack] * 3
            + [self.change, self.sleep, self.sleep]
        )
        for _ in range(steps):
            await self.generator.choice(kinds)(peer, popper)

    async def finish(self, peer: Peer) -> None:
        """Everything that was not acknowledged comes."""
        popper = Popper(peer, "T")
        seen: set[bytes] = set()
        for _ in range(3):
            await trio.sleep(SETTLED)
            while result := (await popper.pop(invisible_time=LONGEST_MS)).messages:
                seen.update(message.body for message in result)
        missing = self.sent - self.done - self.maybe_done - seen
        assert not missing, f"lost: {sorted(body[:8] for body in missing)}"
        if self.strict:
            again = seen & self.done - self.unsure
            assert not again, f"acknowledged and back: {sorted(body[:8] for body in again)}"


async def run_seed(seed: int, *, power_cut: bool, merge: bool) -> int:
    """One run; gives how often the broker died. Raises `AssertionError` for what it got
    wrong.

    The broker draws lots as well (which queue a pop begins with), so its draws are set:
    a run is the same each time.
    """
    generator = Random(seed)
    story = Story(generator, strict=not merge)
    settings: dict[str, Any] = {
        "flush_disk_type": "SYNC_FLUSH"
        if power_cut
        else generator.choice(["SYNC_FLUSH", "ASYNC_FLUSH"]),
        "enable_pop_buffer_merge": merge,
        "mapped_file_size_commit_log": 65_536,
        "revive_queue_num": 2,
        "flush_consumer_offset_interval": generator.choice([300, 5000]),
        "enable_retry_topic_v2": generator.random() < 0.3,
    }
    files = FaultyFileSystem(seed, page_size=512, blocking=generator.random() < 0.7)
    clock = VirtualClock()  # the wall goes on while brokers come and go
    story.clock_ms = clock.now_ms
    deaths = 0
    for life in range(generator.choice([2, 3])):
        if life:
            files.cut_at = files.operations + generator.randrange(20, 900)
        with suppress(RocketMQError):
            async with open_on(files, clock=clock, **settings) as (broker, peer):
                if broker.core.topics.get("T") is None:
                    broker.core.topics.put(TopicConfig("T", 2, 2))
                await story.work(peer, generator.choice([10, 40, 80]))
                if generator.random() < 0.5:
                    files.halt()
        deaths += files.dead
        files = files.power_cut(seed) if power_cut and files.dead else files.kill()
    async with open_on(files, clock=clock, **settings) as (broker, peer):
        if broker.core.topics.get("T") is not None:
            await story.work(peer, 30)
            await story.finish(peer)
    return deaths
