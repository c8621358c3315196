"""Timers and what goes wrong: lost files, clocks set back, poison in the timer topic,
messages at the limits.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import attrs
import pytest
import trio

from rocketmq_sdk.broker_embedded.store.files.memory_files import MemoryFileSystem
from rocketmq_sdk.broker_embedded.store.messages import MessageToStore
from rocketmq_sdk.broker_embedded.timers.checkpoint import PATH as CHECKPOINT
from rocketmq_sdk.broker_embedded.timers.checkpoint import (
    TimerCheckpoint,
    read_checkpoint,
    write_checkpoint,
)
from rocketmq_sdk.broker_embedded.timers.log import DIRECTORY
from rocketmq_sdk.broker_embedded.timers.record import RECORD, RECORD_SIZE
from rocketmq_sdk.broker_embedded.timers.wheel import PATH as WHEEL
from rocketmq_sdk.clock import TrioClock
from rocketmq_sdk.names import TIMER_TOPIC
from rocketmq_sdk.protocol.message_codec import decode_messages
from rocketmq_sdk.testing.faults import Operation
from rocketmq_sdk.testing.faulty_files import FaultyFileSystem
from support.timers import open_watched

if TYPE_CHECKING:
    from trio.testing import MockClock

    from rocketmq_sdk.broker_embedded.broker import EmbeddedBroker
    from support.broker import Peer

SMALL = {"mapped_file_size_timer_log": 520, "mapped_file_size_commit_log": 1 << 20}


async def send_timers(broker: EmbeddedBroker, peer: Peer, *waits: float) -> list[int]:
    """One timer for each wait in seconds, its body the moment; gives the moments."""
    now = broker.core.clock.now_ms()
    moments = [now + int(wait * 1000) for wait in waits]
    for moment in moments:
        await peer.send("orders", b"%d" % moment, properties=f"TIMER_DELIVER_MS\x01{moment}\x02")
    return moments


def bodies_and_times(broker: EmbeddedBroker) -> list[tuple[int, int]]:
    """Moment and store time of what came in queue 0 of `orders`."""
    found: list[tuple[int, int]] = []
    while len(found) < broker.store.max_offset("orders", 0):
        result = broker.store.get("orders", 0, len(found), 32)
        found += [
            (int(message.body), message.store_timestamp) for message in decode_messages(result.body)
        ]
    return found


async def test_a_start_reads_the_log_of_very_many_slots_once(autojump_clock: MockClock) -> None:
    files, count = FaultyFileSystem(blocking=True), 2000
    async with open_watched(files) as (broker, peer, _deliveries):
        await send_timers(broker, peer, *(1000 + n * 787 % count for n in range(count)))
        await trio.sleep(20)
    with files.faults.slow(Operation.READ, f"{DIRECTORY}/*", delay=0) as reads:
        async with open_watched(files):
            assert files.file_sizes(DIRECTORY)
            assert reads.hits < 20


LOSSES = {
    "wheel": (WHEEL,),
    "log": (DIRECTORY,),
    "wheel and log": (WHEEL, DIRECTORY),
    "checkpoint": (CHECKPOINT,),
    "all": (WHEEL, DIRECTORY, CHECKPOINT),
}


@pytest.mark.parametrize("lost", LOSSES)
async def test_lost_files_are_made_again(lost: str, autojump_clock: MockClock) -> None:
    """No timer is lost or early; only without the checkpoint those that came before
    come again.
    """
    files, clock = MemoryFileSystem(1 << 30, write_through=True), TrioClock()
    with trio.fail_after(1000):
        async with open_watched(files, clock=clock, **SMALL) as (broker, peer, _deliveries):
            early = await send_timers(broker, peer, 1, 2, 3)
            late = await send_timers(broker, peer, *[20 + number / 2 for number in range(40)])
            await trio.sleep(6)
        for path in LOSSES[lost]:
            files.remove(path)
            files.remove_tree(path)
        async with open_watched(files, clock=clock, **SMALL) as (broker, _peer, _deliveries):
            await trio.sleep(50)
            found = bodies_and_times(broker)
            again = early if CHECKPOINT in LOSSES[lost] else []
            assert sorted(moment for moment, _time in found) == sorted(early + again + late)
            assert all(time >= moment for moment, time in found)


async def test_a_timer_that_was_put_off_comes_once_when_the_log_is_lost(
    autojump_clock: MockClock,
) -> None:
    """Its first and its second turn are both in the topic then."""
    files, clock = MemoryFileSystem(1 << 30, write_through=True), TrioClock()
    settings = {**SMALL, "clock": clock, "timer_roll_window_slot": 20}
    with trio.fail_after(1000):
        async with open_watched(files, **settings) as (broker, peer, _deliveries):
            moments = await send_timers(broker, peer, 45, 46, 70, 12)
            await trio.sleep(30)
            assert broker.store.max_offset(TIMER_TOPIC, 0) > 4
        files.remove(WHEEL)
        files.remove_tree(DIRECTORY)
        async with open_watched(files, **settings) as (broker, _peer, _deliveries):
            await trio.sleep(60)
            assert sorted(moment for moment, _time in bodies_and_times(broker)) == sorted(moments)


async def test_a_killed_process_delivers_what_was_pending(autojump_clock: MockClock) -> None:
    files, clock = FaultyFileSystem(), TrioClock()
    with trio.fail_after(1000):
        async with open_watched(files, clock=clock, **SMALL) as (broker, peer, _deliveries):
            moments = await send_timers(broker, peer, 1, 20, 21)
            await trio.sleep(5)
            moments += await send_timers(broker, peer, 10, 30)
            files.halt()
        async with open_watched(files.kill(), clock=clock, **SMALL) as (broker, _peer, _deliveries):
            await trio.sleep(40)
            found = bodies_and_times(broker)
            assert sorted(moment for moment, _time in found) == sorted(moments)
            assert all(moment <= time <= moment + 1001 for moment, time in found)


async def test_a_record_torn_in_its_last_bytes_is_written_anew(autojump_clock: MockClock) -> None:
    """By the hash of its topic alone it differs from what it should be; its timer comes
    once, and the log says what is true again.
    """
    files, clock = MemoryFileSystem(1 << 30, write_through=True), TrioClock()
    with trio.fail_after(1000):
        async with open_watched(files, clock=clock, **SMALL) as (broker, peer, _deliveries):
            moments = await send_timers(broker, peer, 20, 21, 22)
            await trio.sleep(8)
        path = f"{DIRECTORY}/{0:020d}"
        before = files.open(path).pread(3 * RECORD_SIZE, 0)
        assert before[3 * RECORD_SIZE - 9]
        files.open(path).pwrite(bytes(9), 3 * RECORD_SIZE - 9)
        async with open_watched(files, clock=clock, **SMALL) as (broker, _peer, _deliveries):
            await trio.sleep(40)
            assert sorted(moment for moment, _time in bodies_and_times(broker)) == sorted(moments)
            last = RECORD.unpack(files.open(path).pread(RECORD_SIZE, 2 * RECORD_SIZE))
            assert last[5:] == RECORD.unpack(before[2 * RECORD_SIZE :])[5:]


async def test_a_clock_that_was_set_back_loses_and_doubles_nothing(
    autojump_clock: MockClock,
) -> None:
    """The checkpoint is of the future then; slots that come again were delivered, new
    timers for them come.
    """
    files = MemoryFileSystem(1 << 30, write_through=True)
    with trio.fail_after(20_000):
        async with open_watched(files, clock=TrioClock(), **SMALL) as (broker, peer, _deliveries):
            before = await send_timers(broker, peer, 10, 3000, 9000)
            await trio.sleep(5000)
        async with open_watched(files, clock=TrioClock(), **SMALL) as (broker, peer, _deliveries):
            assert read_checkpoint(files).last_read_time <= broker.core.clock.now_ms()
            after = await send_timers(broker, peer, 10, 3000)
            await trio.sleep(10_000)
            assert sorted(moment for moment, _time in bodies_and_times(broker)) == sorted(
                before + after
            )


async def test_a_checkpoint_of_more_than_the_queue_holds(autojump_clock: MockClock) -> None:
    """After a power cut that took messages which were not flushed."""
    files, clock = MemoryFileSystem(1 << 30, write_through=True), TrioClock()
    with trio.fail_after(1000):
        async with open_watched(files, clock=clock, **SMALL) as (broker, peer, _deliveries):
            await send_timers(broker, peer, 1)
            await trio.sleep(3)
        old = read_checkpoint(files)
        write_checkpoint(
            files, TimerCheckpoint(old.last_read_time, old.log_flushed + 5200, 500, 500)
        )
        async with open_watched(files, clock=clock, **SMALL) as (broker, peer, _deliveries):
            moments = await send_timers(broker, peer, 2, 5)
            await trio.sleep(10)
            assert {moment for moment, _time in bodies_and_times(broker)} >= set(moments)


POISON = {
    "no time": "REAL_TOPIC\x01orders\x02REAL_QID\x010\x02",
    "no number": "TIMER_OUT_MS\x01soon\x02REAL_TOPIC\x01orders\x02REAL_QID\x010\x02",
    (
        "a huge time"
    ): "TIMER_OUT_MS\x019223372036854775807\x02REAL_TOPIC\x01orders\x02REAL_QID\x010\x02",
    (
        "more than 64 bits"
    ): "TIMER_OUT_MS\x0199999999999999999999\x02REAL_TOPIC\x01orders\x02REAL_QID\x010\x02",
    "a time before all": "TIMER_OUT_MS\x01-5\x02REAL_TOPIC\x01orders\x02",
    "no topic": "TIMER_OUT_MS\x01{out}\x02",
    "a huge queue": "TIMER_OUT_MS\x01{out}\x02REAL_TOPIC\x01orders\x02REAL_QID\x0199999999999\x02",
    "a negative queue": "TIMER_OUT_MS\x01{out}\x02REAL_TOPIC\x01orders\x02REAL_QID\x01-1\x02",
    "no queue": "TIMER_OUT_MS\x01{out}\x02REAL_TOPIC\x01orders\x02REAL_QID\x01x\x02",
    (
        "round for ever"
    ): f"TIMER_OUT_MS\x01{{out}}\x02REAL_TOPIC\x01{TIMER_TOPIC}\x02REAL_QID\x010\x02",
    "another directory": "TIMER_OUT_MS\x01{out}\x02REAL_TOPIC\x01../../x\x02REAL_QID\x010\x02",
    "a long topic": f"TIMER_OUT_MS\x01{{out}}\x02REAL_TOPIC\x01{'t' * 3000}\x02REAL_QID\x010\x02",
    ("a deletion of nothing"): (
        "TIMER_OUT_MS\x01{out}\x02REAL_TOPIC\x01orders\x02REAL_QID\x010\x02"
        "TIMER_DEL_UNIQKEY\x01nobody\x02"
    ),
    (
        "turns without number"
    ): "TIMER_OUT_MS\x01{out}\x02REAL_TOPIC\x01../\x02REAL_QID\x010\x02TIMER_ROLL_TIMES\x01x\x02",
}


@pytest.mark.parametrize("kind", POISON)
async def test_poison_in_the_timer_topic_disturbs_nobody(
    kind: str, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    """Sent past the checks; also when the broker starts again, and in the wheel's own
    slot of another timer.
    """
    caplog.set_level(logging.CRITICAL)
    files, clock = MemoryFileSystem(1 << 30, write_through=True), TrioClock()
    with trio.fail_after(1000):
        async with open_watched(files, clock=clock) as (broker, peer, _deliveries):
            now = clock.now_ms()
            moments = await send_timers(broker, peer, 5, 20)
            for out in (moments[0] // 1000 * 1000, now + 8000, now - 5000):
                text = POISON[kind].replace("{out}", str(out))
                assert broker.store.put(MessageToStore(TIMER_TOPIC, 0, b"0", text)).ok
                assert broker.store.put(MessageToStore(TIMER_TOPIC, 3, b"0", text)).ok
            moments += await send_timers(broker, peer, 5, 20)
            await trio.sleep(10)
            assert len(bodies_and_times(broker)) == 2
        async with open_watched(files, clock=clock) as (broker, peer, _deliveries):
            moments += await send_timers(broker, peer, 5)
            await trio.sleep(30)
            found = bodies_and_times(broker)
            assert sorted(moment for moment, _time in found) == sorted(moments)
            assert all(time >= moment for moment, time in found)
            assert broker.store.max_offset(TIMER_TOPIC, 0) < 20


@pytest.mark.parametrize("free", [0, 40, 100, 200])
async def test_timers_whose_properties_fill_the_limit_are_not_lost(
    free: int, autojump_clock: MockClock
) -> None:
    """The traces of the wheel are left out where they do not fit any more, also on
    another turn.
    """
    with trio.fail_after(1000):
        async with open_watched(timer_roll_window_slot=10) as (broker, _peer, _deliveries):
            moment = broker.core.clock.now_ms() + 25_000
            text = f"TIMER_DELIVER_MS\x01{moment}\x02LONG\x01\x02"
            added = len(f"TIMER_OUT_MS\x01{moment}\x02REAL_TOPIC\x01orders\x02REAL_QID\x010\x02")
            text = text.replace("LONG\x01", "LONG\x01" + "x" * (32767 - len(text) - added - free))
            assert broker.parts.timers.intake.put(
                MessageToStore("orders", 0, b"%d" % moment, text)
            ).ok
            await trio.sleep(30)
            [(found, time)] = bodies_and_times(broker)
            assert found == moment <= time


async def test_a_full_memory_delays_timers_and_loses_none(autojump_clock: MockClock) -> None:
    files, clock = MemoryFileSystem(3 << 20, write_through=True), TrioClock()
    with trio.fail_after(1000):
        async with open_watched(files, clock=clock, mapped_file_size_commit_log=1 << 20) as (
            broker,
            peer,
            _deliveries,
        ):
            moments = await send_timers(broker, peer, 5, 6)
            files.limit_bytes = files.used_bytes
            broker.store._log.limit = broker.store._log.position
            await trio.sleep(20)
            assert bodies_and_times(broker) == []
            files.limit_bytes = 1 << 30
            await trio.sleep(2)
            assert [moment for moment, _time in bodies_and_times(broker)] == moments


@pytest.mark.parametrize(
    "damage",
    [
        {"last_read_time": 2**63 - 1},
        {"last_read_time": 2**63 - 1, "queue_offset": 2**63 - 1, "log_flushed": 2**63 - 1},
        {"queue_offset": -5},
        {"log_flushed": -1},
    ],
)
async def test_a_checkpoint_that_cannot_be_loses_and_doubles_nothing(
    damage: dict[str, int], autojump_clock: MockClock
) -> None:
    files, clock = MemoryFileSystem(1 << 30, write_through=True), TrioClock()
    with trio.fail_after(1000):
        async with open_watched(files, clock=clock, **SMALL) as (broker, peer, _deliveries):
            moments = await send_timers(broker, peer, 2, 20, 20, 21, 40)
            await trio.sleep(8)
        write_checkpoint(files, attrs.evolve(read_checkpoint(files), **damage))
        async with open_watched(files, clock=clock, **SMALL) as (broker, peer, _deliveries):
            moments += await send_timers(broker, peer, 10)
            await trio.sleep(60)
            assert sorted(moment for moment, _time in bodies_and_times(broker)) == sorted(moments)


@pytest.mark.parametrize("field", [0, 1, 4], ids=["size", "previous", "delay"])
async def test_a_damaged_record_costs_itself_alone_and_is_told(
    field: int, autojump_clock: MockClock
) -> None:
    files, clock = MemoryFileSystem(1 << 30, write_through=True), TrioClock()
    with trio.fail_after(1000):
        async with open_watched(files, clock=clock, **SMALL) as (broker, peer, _deliveries):
            due = broker.core.clock.now_ms() + 20_000
            for number in range(6):
                text = f"TIMER_DELIVER_MS\x01{due}\x02"
                await peer.send("orders", b"%d" % number, properties=text)
            await trio.sleep(8)
        path, at = f"{DIRECTORY}/{0:020d}", 3 * RECORD_SIZE
        fields = list(RECORD.unpack(files.open(path).pread(RECORD_SIZE, at)))
        fields[field] = 2**31 - 1
        files.open(path).pwrite(RECORD.pack(*fields), at)
        async with open_watched(files, clock=clock, **SMALL) as (broker, _peer, _deliveries):
            await trio.sleep(60)
            bodies = [body for body, _time in bodies_and_times(broker)]
            assert bodies == [0, 1, 2, 4, 5]
            assert any(
                f"is broken at {at}; 3 timers of this moment" in reason
                for reason in broker.health().reasons
            )
