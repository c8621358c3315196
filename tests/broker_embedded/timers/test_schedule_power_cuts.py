"""Delay levels and power cuts: what was acknowledged comes, at most twice."""

from __future__ import annotations

import contextlib
from collections import Counter
from typing import TYPE_CHECKING

import pytest
import trio

from rocketmq_sdk.clock import TrioClock
from rocketmq_sdk.errors import RocketMQError
from rocketmq_sdk.testing.faulty_files import FaultyFileSystem
from support.timers import open_watched
from support.transactions import bodies_in

if TYPE_CHECKING:
    from trio.testing import MockClock

    from rocketmq_sdk.broker_embedded.store.messages import MessageToStore, PutResult

SETTINGS = {
    "message_delay_level": "2s",
    "flush_delay_offset_interval": 500,
    "flush_disk_type": "SYNC_FLUSH",
    "mapped_file_size_commit_log": 1 << 20,
}
BODIES = [b"%d" % number for number in range(4)]


async def cut_while_delivering(files: FaultyFileSystem, clock: TrioClock, step: int) -> None:
    """Send, write the offsets at the moment when the first message is delivered, and
    cut the power so many operations later.
    """
    with contextlib.suppress(RocketMQError, BaseExceptionGroup):
        async with open_watched(files, clock=clock, **SETTINGS) as (broker, peer, _deliveries):
            for body in BODIES:
                answer = await peer.send("orders", body, properties="DELAY\x011\x02")
                assert answer.code == 0
            schedule, put = broker.parts.timers.schedule, broker.store.put

            async def write_offsets() -> None:
                files.cut_at = files.operations + step
                await schedule.persist()

            async with trio.open_nursery() as nursery:

                def noticed(message: MessageToStore) -> PutResult:
                    if files.cut_at is None:
                        nursery.start_soon(write_offsets)
                    return put(message)

                broker.store.put = noticed  # type: ignore[method-assign]
                await trio.sleep(3)
    files.halt()


@pytest.mark.parametrize("seed", range(24))
async def test_a_power_cut_loses_no_delayed_message(autojump_clock: MockClock, seed: int) -> None:
    files, clock = FaultyFileSystem(seed), TrioClock()
    await cut_while_delivering(files, clock, 1 + seed % 16)
    left = files.power_cut(seed)
    async with open_watched(left, clock=clock, **SETTINGS) as (broker, _peer, _deliveries):
        await trio.sleep(10)
        came = Counter(bodies_in(broker, "orders"))
        assert set(came) == set(BODIES)
        assert max(came.values()) <= 2
    async with open_watched(left, clock=clock, **SETTINGS) as (broker, _peer, _deliveries):
        await trio.sleep(10)
        assert Counter(bodies_in(broker, "orders")) == came, "a clean stop repeats nothing"
