"""Deaths of a broker in the middle of pops: nothing is lost, nothing comes early
(`support/pop_lives.py`).
"""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

import pytest

from rocketmq_sdk.clock import TrioClock
from rocketmq_sdk.errors import RocketMQError
from rocketmq_sdk.testing.faulty_files import FaultyFileSystem
from support.broker import open_on
from support.pop_lives import run_seed
from support.popping import Popper, make_topic
from support.seeded import run_seeds

if TYPE_CHECKING:
    from trio.testing import MockClock

KINDS = {
    "kill": (False, False),
    "power-cut": (True, False),
    "kill-merged": (False, True),
    "power-cut-merged": (True, True),
}
PARTS = [0, *(pytest.param(part, marks=pytest.mark.slow) for part in range(1, 4))]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("part", PARTS)
def test_a_death_loses_nothing_and_hands_out_nothing_early(kind: str, part: int) -> None:
    power_cut, merge = KINDS[kind]
    run = partial(run_seed, power_cut=power_cut, merge=merge)
    assert run_seeds(run, range(1000 * part, 1000 * part + 2)) >= 1


@pytest.mark.parametrize("part", PARTS)
async def test_nothing_leaves_before_its_checkpoint_is_safe_though_the_one_of_the_next_queue_fails(
    part: int, autojump_clock: MockClock
) -> None:
    answered = refused = 0
    for step in range(1 + part, 31, 4):
        files = FaultyFileSystem(step, page_size=512)
        clock = TrioClock()
        popped: set[bytes] = set()
        with suppress(RocketMQError):
            async with open_on(files, clock=clock, flush_disk_type="SYNC_FLUSH") as (_broker, peer):
                await make_topic(peer, "T", 2)
                for number in range(2):
                    await peer.send("T", b"%d" % number, queue_id=number)
                files.cut_at = files.operations + step
                refused += 1
                popped.update(
                    message.body
                    for message in (await Popper(peer, "T").pop(invisible_time=60_000)).messages
                )
                refused -= 1
                answered += 1
                files.halt()
        for cut in range(6 if popped else 0):
            async with open_on(files.power_cut(cut), clock=clock, flush_disk_type="SYNC_FLUSH") as (
                _broker,
                peer,
            ):
                again = {
                    message.body
                    for message in (await Popper(peer, "T").pop(invisible_time=60_000)).messages
                }
            assert not popped & again, (
                f"handed out early after a death at step {step}: {popped & again}"
            )
    assert answered
    assert refused
