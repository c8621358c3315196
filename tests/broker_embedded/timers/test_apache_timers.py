"""Timers of directories that Apache's broker wrote: the same bytes from the same
messages, and pending timers taken over.
"""

from __future__ import annotations

import shutil
import tarfile
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest
import trio

from rocketmq_sdk.broker_embedded.store.config import StoreConfig
from rocketmq_sdk.broker_embedded.store.files.memory_files import MemoryFileSystem
from rocketmq_sdk.broker_embedded.store.files.os_files import OsFileSystem
from rocketmq_sdk.broker_embedded.timers.checkpoint import PATH as CHECKPOINT
from rocketmq_sdk.broker_embedded.timers.checkpoint import read_checkpoint
from rocketmq_sdk.broker_embedded.timers.log import DIRECTORY, TimerLog
from rocketmq_sdk.broker_embedded.timers.timer_store import Entry, TimerStore
from rocketmq_sdk.broker_embedded.timers.wheel import PATH as WHEEL
from rocketmq_sdk.broker_embedded.timers.wheel import SLOT
from rocketmq_sdk.clock import TrioClock
from rocketmq_sdk.model.properties import KEYS, property_in_text
from rocketmq_sdk.names import TIMER_TOPIC
from rocketmq_sdk.protocol.message_codec import decode_message
from support.paths import STORE_VECTORS
from support.store import config_for, expected, open_store, unpack
from support.timers import open_watched

if TYPE_CHECKING:
    from pathlib import Path

    from trio.testing import MockClock

    from rocketmq_sdk.broker_embedded.store.messages import Arrival
    from rocketmq_sdk.broker_embedded.timers.record import TimerRecord

HOUR_AHEAD, DAY_AHEAD = 1_795_242_461_000, 1_795_325_261_000
"""Slots of two timers of `kitchen-sink`."""
NAMES = [
    name
    for name in ("kitchen-sink", "kitchen-sink-5.3.3")
    if (STORE_VECTORS / f"{name}.tar.gz").exists()
]


class SetClock(TrioClock):
    """A wall clock that is set."""

    def __init__(self, now_ms: int = 0) -> None:
        super().__init__()
        self.now_ms()  # the epoch is fixed at the first look
        self.set_to(now_ms)

    def set_to(self, now_ms: int) -> None:
        self._epoch = now_ms / 1000 - trio.current_time()


def timer_log_size(directory: Path) -> int:
    return next((directory / DIRECTORY).iterdir()).stat().st_size


def with_timer_files(name: str, path: Path) -> Path:
    """A recorded directory with its wheel."""
    directory = unpack(name, path)
    with (
        tarfile.open(STORE_VECTORS / f"{name}.tar.gz") as archive,
        (directory / WHEEL).open("wb") as target,
    ):
        member = archive.extractfile("store/timerwheel")
        assert member is not None
        shutil.copyfileobj(member, target)
    return directory


def in_memory(directory: Path) -> MemoryFileSystem:
    """A copy of a directory for virtual time."""
    files = MemoryFileSystem(1 << 30, write_through=True)
    for path in directory.rglob("*"):
        if path.is_file():
            data = path.read_bytes()
            file = files.create(str(path.relative_to(directory)), len(data))
            for at in range(0, len(data), 65_536):
                if any(data[at : at + 65_536]):
                    file.pwrite(data[at : at + 65_536], at)
    return files


def records_of(directory: Path) -> list[tuple[int, TimerRecord]]:
    log = TimerLog(OsFileSystem(directory), timer_log_size(directory))
    log.chain.load()
    found = list(log.scan(0))
    log.close()
    return found


def used_slots(files: MemoryFileSystem | OsFileSystem) -> dict[int, tuple[int, ...]]:
    content = files.read(WHEEL)
    assert content is not None
    return {at: slot for at, slot in enumerate(SLOT.iter_unpack(content)) if any(slot)}


@pytest.mark.real_time
@pytest.mark.parametrize("name", NAMES)
async def test_the_same_messages_give_the_same_bytes(name: str, tmp_path: Path) -> None:
    directory = with_timer_files(name, tmp_path)
    records = records_of(directory)
    assert len(records) >= 13
    files = MemoryFileSystem(1 << 30, write_through=True)
    clock = SetClock(records[0][1].write_time)
    async with open_store(OsFileSystem(directory), config_for(expected(name))) as store:
        config = StoreConfig(mapped_file_size_timer_log=timer_log_size(directory))
        timers = TimerStore(
            cast("Any", SimpleNamespace(config=config, files=files, needs=None)), clock
        )
        by_position = {
            unit[0]: offset
            for offset in range(store.max_offset(TIMER_TOPIC, 0))
            if (unit := store.queue_unit(TIMER_TOPIC, 0, offset))
        }
        for _position, record in records:
            clock.set_to(record.write_time + 1)
            data = store.record_at(record.physical_offset, record.message_size)
            assert data is not None
            message = decode_message(data, inflate=False)
            text = message.properties_bytes.decode()
            offset = by_position[record.physical_offset]
            assert (
                timers.enter(
                    offset,
                    record.physical_offset,
                    record.message_size,
                    text,
                    message.store_timestamp,
                )
                is Entry.ENTERED
            )
    timers.log.write_out()
    timers.wheel.write_pages(timers.wheel.take_dirty())
    for path in sorted((directory / DIRECTORY).iterdir()):
        assert files.read(f"{DIRECTORY}/{path.name}") == path.read_bytes(), path.name
    assert used_slots(files) == used_slots(OsFileSystem(directory))


@pytest.mark.real_time
@pytest.mark.parametrize("name", NAMES)
def test_the_checkpoint_is_read(name: str, tmp_path: Path) -> None:
    directory = unpack(name, tmp_path)
    checkpoint = read_checkpoint(OsFileSystem(directory))
    wanted = expected(name)["timer_checkpoint"]
    assert checkpoint.last_read_time == wanted["lastReadTimeMs"]
    assert checkpoint.log_flushed == wanted["lastTimerLogFlushPos"]
    assert (checkpoint.queue_offset, checkpoint.master_queue_offset) == (
        wanted["lastTimerQueueOffset"],
        wanted["masterTimerQueueOffset"],
    )
    assert checkpoint.encode() == (directory / CHECKPOINT).read_bytes()[:56]


LOSSES = {
    "nothing": (),
    "the wheel": (WHEEL,),
    "the log": ("log",),
    "wheel and log": (WHEEL, "log"),
    "the last file of the log": ("last",),
}


@pytest.mark.parametrize("lost", LOSSES)
async def test_pending_timers_of_apache_come_in_time(
    lost: str, tmp_path: Path, autojump_clock: MockClock
) -> None:
    """An hour ahead: delivered; two hours ahead: taken back; the others still wait.
    Also when wheel or log are lost.
    """
    directory = with_timer_files("kitchen-sink", tmp_path)
    for what in LOSSES[lost]:
        parts = (
            sorted((directory / DIRECTORY).iterdir())
            if what in ("log", "last")
            else [directory / what]
        )
        for path in parts[-1:] if what == "last" else parts:
            path.unlink()
    base = config_for(expected("kitchen-sink"))
    names = (
        "mapped_file_size_commit_log",
        "mapped_file_size_consume_queue",
        "max_hash_slot_num",
        "max_index_num",
    )
    start = expected("kitchen-sink")["timer_checkpoint"]["lastReadTimeMs"] + 5000
    settings: dict[str, Any] = {
        **{name: getattr(base, name) for name in names},
        "mapped_file_size_timer_log": 520,
        "clock": SetClock(start),
    }
    came: list[tuple[str | None, int]] = []

    def note(arrival: Arrival) -> None:
        if arrival.topic == "KDelay" and "TIMER_OUT_MS" in arrival.properties:
            came.append((property_in_text(arrival.properties, KEYS), arrival.store_timestamp))

    with trio.fail_after(20_000):
        async with open_watched(in_memory(directory), **settings) as (broker, _peer, _deliveries):
            broker.store.arrivals.append(note)
            await trio.sleep((HOUR_AHEAD - start) / 1000 + 3700)
            [(key, time)] = came
            assert key == "tk3600"
            assert HOUR_AHEAD + 1000 <= time <= HOUR_AHEAD + 1010
            assert broker.parts.timers.service.timers.next_slot == DAY_AHEAD
