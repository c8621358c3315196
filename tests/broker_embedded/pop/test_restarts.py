"""Lives of a broker behind deaths amid pops, one story each: what brought messages out
of reach once, step by step.
"""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
import trio

from rocketmq_sdk.broker_embedded.pop.progress import FILE_NAME
from rocketmq_sdk.broker_embedded.store.messages import MessageToStore
from rocketmq_sdk.clock import Clock, TrioClock
from rocketmq_sdk.errors import RocketMQError, StoreError
from rocketmq_sdk.names import REVIVE_GROUP
from rocketmq_sdk.protocol.bodies.pop_records import PopCheckPoint
from rocketmq_sdk.protocol.subscription import tags_code
from rocketmq_sdk.testing.faulty_files import FaultyFileSystem
from support.broker import open_on
from support.popping import Popper, make_topic
from support.seeded import VirtualClock

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from trio.testing import MockClock

    from rocketmq_sdk.broker_embedded.broker import EmbeddedBroker

GROUP = "PopGroup"
REVIVE = "rmq_sys_REVIVE_LOG_DefaultCluster"


class Disk:
    """What stays of a broker, whose lives end by a kill; the wall clock goes on
    meanwhile.
    """

    def __init__(self, **settings: Any) -> None:
        self.files = FaultyFileSystem()
        self.clock: Clock = TrioClock()
        self.settings = {"revive_queue_num": 1, **settings}

    @asynccontextmanager
    async def life(self) -> AsyncIterator[tuple[EmbeddedBroker, Popper]]:
        """One life, which ends with a kill at the end of the block."""
        try:
            async with open_on(self.files, clock=self.clock, **self.settings) as (broker, peer):
                yield broker, Popper(peer, "T")
                self.files.halt()
        except RocketMQError:
            if not self.files.dead:
                raise
        self.files = self.files.kill()

    async def begin(self, popper: Popper, count: int) -> None:
        """The topic with some messages."""
        await make_topic(popper.peer, "T", 1)
        for number in range(count):
            await popper.peer.send("T", b"%d" % number)


async def everything(popper: Popper, seconds: float) -> set[bytes]:
    """The bodies that come in some time."""
    found: set[bytes] = set()
    for _ in range(int(seconds)):
        found.update(await popper.bodies(invisible_time=3_600_000))
        await trio.sleep(1)
    return found


async def test_two_checkpoints_with_one_key_are_two(autojump_clock: MockClock) -> None:
    """After a kill a message in hand is popped again by another one while its time is
    changed: both in the same millisecond, from the same offset.
    """
    disk = Disk(enable_pop_buffer_merge=True)
    async with disk.life() as (_broker, popper):
        await disk.begin(popper, 4)
        handle = (await popper.pop(invisible_time=60_000, max_msg_nums=1)).handles[0]
        await trio.sleep(1)
    async with disk.life() as (_broker, popper):
        changed = await popper.change(handle, 1_000)
        again = await popper.pop(invisible_time=2_000)
        assert (changed.pop_time, changed.start_offset) == (
            again.pop_time,
            again.handles[0].start_offset,
        )
        assert len(again.messages) == 4
        assert await everything(popper, 10) == {b"0", b"1", b"2", b"3"}


@pytest.mark.parametrize("acknowledged", range(3))
async def test_acks_meet_all_checkpoints_of_their_key(
    acknowledged: int, autojump_clock: MockClock
) -> None:
    disk = Disk(enable_pop_buffer_merge=True)
    async with disk.life() as (_broker, popper):
        await disk.begin(popper, 3)
        handle = (await popper.pop(invisible_time=60_000, max_msg_nums=1)).handles[0]
        await trio.sleep(1)
    async with disk.life() as (_broker, popper):
        await popper.change(handle, 1_000)
        again = await popper.pop(invisible_time=2_000)
        await popper.ack(again.handles[acknowledged])
        expected = {b"0", b"1", b"2"} - {b"%d" % acknowledged}
        # The ack is due a second later than the checkpoint of the change, whose message
        # is out by then.
        assert await everything(popper, 10) | {b"0"} == expected | {b"0"}


async def test_a_handle_of_an_earlier_life_moves_nobody_over_what_was_in_memory(
    autojump_clock: MockClock,
) -> None:
    """Its checkpoint was in memory only, so the group begins again; a changed time in
    the middle tells nothing of what is before it.
    """
    disk = Disk(enable_pop_buffer_merge=True)
    async with disk.life() as (_broker, popper):
        await disk.begin(popper, 5)
        handles = (await popper.pop(invisible_time=60_000)).handles
        await trio.sleep(1)
    async with disk.life() as (_broker, popper):
        await popper.change(handles[3], 30_000)
    async with disk.life() as (_broker, popper):
        assert await popper.bodies() == [b"0", b"1", b"2", b"3", b"4"]


async def test_a_revival_that_is_tried_again_outlives_a_kill(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The checkpoint of the next try has the key of the one before it, which was
    finished just before the kill.
    """
    disk = Disk()
    async with disk.life() as (broker, popper):
        await disk.begin(popper, 1)
        await popper.pop(invisible_time=2_000)

        def full(*_args: Any) -> Any:
            raise StoreError("the disk is full for a moment")

        monkeypatch.setattr(broker.core.topics, "create_retry", full)
        await trio.sleep(9)
        assert broker.core.offsets.query(REVIVE_GROUP, REVIVE, 0) == 0
    async with disk.life() as (_broker, popper):
        assert await everything(popper, 30) == {b"0"}


def checkpoint_of_apache(broker: EmbeddedBroker, start: int, count: int) -> None:
    """A checkpoint that stands in the revive topic without this broker's marks."""
    checkpoint = PopCheckPoint(
        "T",
        GROUP,
        0,
        start,
        broker.core.clock.now_ms(),
        4_000,
        count,
        list(range(count)),
        broker_name="broker-a",
    )
    broker.core.groups.get(GROUP)
    assert broker.store.put(
        MessageToStore(REVIVE, 0, checkpoint.encode(), "TAGS\x01ck\x02", tags_code=tags_code("ck"))
    ).ok


@pytest.mark.parametrize(
    ("taken", "first"),
    [
        ([(0, 2), (2, 2)], b"4"),
        ([(2, 2), (0, 2)], b"4"),
        ([(3, 2), (0, 2)], b"2"),
        ([(1, 3), (0, 2), (4, 1)], b"5"),
        ([(2, 1)], b"0"),
    ],
)
async def test_checkpoints_of_others_raise_a_position_as_far_as_they_leave_no_gap(
    taken: list[tuple[int, int]], first: bytes, autojump_clock: MockClock
) -> None:
    """In a gap may be what Apache's broker had in memory only."""
    disk = Disk()
    async with disk.life() as (broker, popper):
        await disk.begin(popper, 6)
        broker.core.offsets.commit(GROUP, "T", 0, 0)
        await broker.core.offsets.persist()
        for start, count in taken:
            checkpoint_of_apache(broker, start, count)
        await broker.core.groups.save()
    disk.files.open(f"config/{FILE_NAME}").remove()
    async with disk.life() as (_broker, popper):
        assert (await popper.pop(max_msg_nums=1)).messages[0].body == first
        assert await everything(popper, 10) | {first} == {b"%d" % number for number in range(6)}


async def test_an_ack_does_not_overtake_its_checkpoint(autojump_clock: MockClock) -> None:
    """The wheel on the disk holds the checkpoint, the ack is in the log only when the
    broker is killed, and both are due when it is there again.
    """
    disk = Disk()
    async with disk.life() as (_broker, popper):
        await disk.begin(popper, 2)
        result = await popper.pop(invisible_time=5_000)
        await trio.sleep(3)
        await popper.ack(
            next(
                handle
                for message, handle in zip(result.messages, result.handles, strict=True)
                if message.body == b"1"
            )
        )
    await trio.sleep(20)
    async with disk.life() as (_broker, popper):
        assert await everything(popper, 10) == {b"0"}


class BackSteppedClock:
    """The clock of a machine that was set back."""

    def __init__(self, clock: Clock, seconds: int) -> None:
        self._clock = clock
        self._back_ms = seconds * 1000

    def now_ms(self) -> int:
        """Wall time."""
        return self._clock.now_ms() - self._back_ms

    def monotonic(self) -> float:
        """Not set back."""
        return self._clock.monotonic()


@pytest.mark.parametrize("merge", [False, True])
@pytest.mark.parametrize("seconds", [20, 1800])
async def test_a_clock_that_goes_back_between_two_lives_delays_what_was_popped_by_as_much(
    autojump_clock: MockClock, seconds: int, merge: bool
) -> None:
    """The end of an invisible time is a moment of the wall clock, as in Apache's
    broker; what is popped afterwards is not held up by it.
    """
    disk = Disk(enable_pop_buffer_merge=merge)
    async with disk.life() as (_broker, popper):
        await disk.begin(popper, 3)
        handle = (await popper.pop(invisible_time=60_000, max_msg_nums=1)).handles[0]
        assert (await popper.pop(invisible_time=60_000, max_msg_nums=1)).messages[0].body == b"1"
        await popper.ack(handle)
        await trio.sleep(15)
    disk.clock = BackSteppedClock(disk.clock, seconds)
    async with disk.life() as (_broker, popper):
        assert await popper.bodies(invisible_time=5_000) == [b"2"]
        assert await everything(popper, 10) == {b"2"}
        assert await everything(popper, 30 + seconds) == set()
        assert await everything(popper, 10) == {b"1"}


async def test_what_was_due_when_it_was_put_says_nothing_about_acks_in_the_wheel(
    autojump_clock: MockClock,
) -> None:
    """A broker that was down while acks were due has them in the wheel yet when the
    checkpoint of a short time comes past them.
    """
    disk = Disk()
    disk.clock = VirtualClock()
    async with disk.life() as (_broker, popper):
        await disk.begin(popper, 2)
        await trio.sleep(0.5)
        [short] = (await popper.pop(invisible_time=8000, max_msg_nums=1)).handles
        [long] = (await popper.pop(invisible_time=60_000, max_msg_nums=1)).handles
        await popper.ack(short)
        await trio.sleep(8)  # its checkpoint came out of the wheel, the ack did not
    await trio.sleep(10)
    async with disk.life() as (_broker, popper):
        await popper.change(long, 1000)
        assert await everything(popper, 20) == {b"1"}
