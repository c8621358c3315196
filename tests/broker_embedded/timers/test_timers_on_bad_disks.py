"""Timers on disks that fail to read, read short, or are slow."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import trio

from rocketmq_sdk.clock import TrioClock
from rocketmq_sdk.names import TIMER_TOPIC
from rocketmq_sdk.testing.faults import Operation
from support.bad_disk import LOG, break_record, disk_of, open_on_disk, push_out, record_of

if TYPE_CHECKING:
    from trio.testing import MockClock

    from rocketmq_sdk.broker_embedded.broker import EmbeddedBroker
    from support.broker import Peer


async def send(
    broker: EmbeddedBroker, peer: Peer, count: int, seconds: int = 20, topic: str = "orders"
) -> None:
    due = broker.core.clock.now_ms() + seconds * 1000
    for number in range(count):
        await peer.send(topic, b"%d" % number, properties=f"TIMER_DELIVER_MS\x01{due}\x02")


async def bodies(broker: EmbeddedBroker, peer: Peer, topic: str = "orders") -> list[int]:
    found: list[int] = []
    while len(found) < broker.store.max_offset(topic, 0):
        messages = await peer.pull(topic, len(found))
        found += [int(message.body) for message in messages]
    return found


async def test_one_unreadable_timer_of_a_slot_costs_itself_and_repeats_nobody(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with open_on_disk() as (broker, peer, _deliveries):
        await send(broker, peer, 100)
        await push_out(peer)
        bad = break_record(broker, TIMER_TOPIC, 0, 70)
        await trio.sleep(22)
        others = [number for number in range(100) if number != 70]
        assert await bodies(broker, peer) == others, "the others wait"
        assert f"the timer service waits: a message of {TIMER_TOPIC}" in str(broker.health())
        await trio.sleep(40)
        assert caplog.text.count("is set aside") == 1
        assert broker.store.unreadable.count == 1
        hits = bad.hits
        await trio.sleep(3600)
        assert bad.hits == hits
        assert await bodies(broker, peer) == others
        files = disk_of(broker)
    async with open_on_disk(files) as (broker, peer, _deliveries):
        await trio.sleep(60)
        assert await bodies(broker, peer) == others
        assert broker.parts.timers.service.timers.pending_count == 0


@pytest.mark.parametrize("restart", [False, True])
async def test_a_timer_that_can_be_read_later_comes_later_once(
    autojump_clock: MockClock, restart: bool
) -> None:
    clock = TrioClock()
    async with open_on_disk(clock=clock) as (broker, peer, _deliveries):
        await send(broker, peer, 10)
        await push_out(peer)
        files = disk_of(broker)
        bad = files.faults.shorten(LOG, at=record_of(broker, TIMER_TOPIC, 0, 4))
        await trio.sleep(24)
        assert len(await bodies(broker, peer)) == 9
        if not restart:
            bad.lift()
            await trio.sleep(20)
    bad.lift()
    async with open_on_disk(files, clock=clock) as (broker, peer, _deliveries):
        await trio.sleep(20)
        assert await bodies(broker, peer) == [0, 1, 2, 3, 5, 6, 7, 8, 9, 4]
        assert broker.store.unreadable.count == 0
        assert broker.health().reasons == ()
        assert broker.parts.timers.service.timers.metrics.count("orders") == 0


async def test_timers_found_in_the_topic_after_a_start_do_not_wait_for_an_unreadable_one(
    autojump_clock: MockClock,
) -> None:
    async with open_on_disk(timer_stop_enqueue="true") as (broker, peer, _deliveries):
        await send(broker, peer, 10, seconds=100)
        await send(broker, peer, 1, seconds=100, topic="others")
        await push_out(peer)
        files, place = disk_of(broker), record_of(broker, TIMER_TOPIC, 0, 3)
    async with open_on_disk(files) as (broker, peer, _deliveries):
        bad = files.faults.fail(Operation.READ, LOG, at=place, times=4)
        await trio.sleep(130)
        assert bad.hits == 4
        assert sorted(await bodies(broker, peer)) == list(range(10))
        assert await bodies(broker, peer, "others") == [0]
        assert broker.parts.timers.service.timers.metrics.count("orders") == 0


async def test_an_unreadable_recall_is_waited_for_by_its_topic_only(
    autojump_clock: MockClock,
) -> None:
    async with open_on_disk() as (broker, peer, _deliveries):
        await send(broker, peer, 3)
        await send(broker, peer, 3, topic="others")
        due = broker.core.clock.now_ms() + 20_000
        key = "0A0000010000000000000000000000000000"
        for properties in (f"UNIQ_KEY\x01{key}\x02", f"TIMER_DEL_UNIQKEY\x01{key}\x02"):
            await peer.send("orders", b"9", properties=f"{properties}TIMER_DELIVER_MS\x01{due}\x02")
        await push_out(peer)
        bad = break_record(broker, TIMER_TOPIC, 0, 7)
        await trio.sleep(23)
        assert await bodies(broker, peer, "others") == [0, 1, 2]
        assert await bodies(broker, peer) == []
        bad.lift()
        await trio.sleep(20)
        assert await bodies(broker, peer) == [0, 1, 2], "the recalled one came"


async def test_nothing_is_lost_or_repeated_while_the_disk_gives_nothing(
    autojump_clock: MockClock,
) -> None:
    async with open_on_disk() as (broker, peer, _deliveries):
        await send(broker, peer, 50)
        await push_out(peer)
        bad = disk_of(broker).faults.fail(Operation.READ, LOG)
        await trio.sleep(1800)
        assert broker.store.unreadable.count == 0
        bad.lift()
        await trio.sleep(35)
        assert sorted(await bodies(broker, peer)) == list(range(50))


async def test_an_unreadable_part_of_the_timer_log_costs_what_is_in_it(
    autojump_clock: MockClock,
) -> None:
    async with open_on_disk() as (broker, peer, _deliveries):
        await send(broker, peer, 300)
        await push_out(peer)
        await trio.sleep(5)
        disk_of(broker).faults.fail(Operation.READ, "timerlog/*", at=range(5200, 5252))
        await trio.sleep(60)
        came = await bodies(broker, peer)
        assert len(came) == len(set(came))
        assert set(range(300)) - set(came) == {100}
        assert broker.store.unreadable.count == 1


@pytest.mark.parametrize("path", ["timerlog/*", "timerwheel"])
async def test_files_that_cannot_be_read_at_the_start_are_made_again_from_the_topic(
    autojump_clock: MockClock, path: str
) -> None:
    clock = TrioClock()
    async with open_on_disk(clock=clock) as (broker, peer, _deliveries):
        await send(broker, peer, 30, seconds=60)
        await send(broker, peer, 30, seconds=10, topic="early")
        await push_out(peer)
        await trio.sleep(20)
        files = disk_of(broker)
    files.faults.fail(Operation.READ, path, times=5)
    async with open_on_disk(files, clock=clock) as (broker, peer, _deliveries):
        await trio.sleep(60)
        assert sorted(await bodies(broker, peer)) == list(range(30))
        assert sorted(await bodies(broker, peer, "early")) == list(range(30))


async def test_a_slow_disk_keeps_no_sender_waiting(autojump_clock: MockClock) -> None:
    async with open_on_disk() as (broker, peer, _deliveries):
        for topic in ("orders", "b", "c"):
            await send(broker, peer, 100, topic=topic)
        await push_out(peer)
        await trio.sleep(15)
        slow = disk_of(broker).faults.slow(Operation.READ, delay=0.005)
        longest = 0.0
        while broker.store.max_offset("c", 0) < 100:
            began = trio.current_time()
            await peer.send("others", b"x")
            longest = max(longest, trio.current_time() - began)
            await trio.sleep(0.001)
        assert slow.hits >= 10
        assert slow.on_loop == 0
        assert longest < 0.003


async def test_a_stop_while_timers_are_made_durable_repeats_nobody(
    autojump_clock: MockClock,
) -> None:
    """The stop takes the task that waits for the disk away, and begins again itself."""
    async with open_on_disk() as (broker, peer, _deliveries):
        files = disk_of(broker)
        await send(broker, peer, 10)
        await trio.sleep(20.5)
        files.faults.slow(Operation.SYNC, LOG, delay=5)
        with trio.fail_after(30):
            while len(await bodies(broker, peer)) < 10:
                await trio.sleep(0.1)
        await trio.sleep(2)
        assert broker.parts.timers.service.checkpoint().queue_offset == 10
    assert not files.exists("abort")
    async with open_on_disk(files) as (broker, peer, _deliveries):
        await trio.sleep(60)
        assert await bodies(broker, peer) == list(range(10))
