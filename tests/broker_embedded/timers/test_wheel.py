"""The timer wheel: slots, pages, and its file."""

from __future__ import annotations

import pytest

from rocketmq_sdk.broker_embedded.store.files.memory_files import MemoryFileSystem
from rocketmq_sdk.broker_embedded.timers.wheel import (
    PATH,
    SLOT,
    SLOTS,
    WHEEL_SIZE,
    Slot,
    TimerWheel,
)
from rocketmq_sdk.errors import StoreCorruptError

NOW = 1_795_238_863_000
TURN = SLOTS * 1000


def written(wheel: TimerWheel) -> None:
    wheel.write_pages(wheel.take_dirty())


def test_a_slot_belongs_to_one_time() -> None:
    wheel = TimerWheel(MemoryFileSystem(), 1000)
    assert wheel.get(NOW) is None
    wheel.put(NOW, 0, 52, 2)
    assert wheel.get(NOW) == wheel.get(NOW + 999) == Slot(NOW, 0, 52, 2)
    assert wheel.get(NOW + 1000) is None
    assert wheel.get(NOW + TURN) is None
    assert wheel.occupant(NOW + TURN) == Slot(NOW, 0, 52, 2)
    wheel.put(NOW + TURN, 104, 104, 1)
    assert wheel.get(NOW) is None
    wheel.clear(NOW + TURN)
    assert wheel.occupant(NOW) is None


def test_the_file_is_apaches() -> None:
    files = MemoryFileSystem()
    wheel = TimerWheel(files, 1000)
    wheel.put(NOW, 0, 52, -3)
    assert not files.exists(PATH)
    written(wheel)
    content = files.read(PATH)
    assert content is not None
    assert len(content) == WHEEL_SIZE == 38_707_200
    at = NOW // 1000 % SLOTS * 32
    assert SLOT.unpack_from(content, at) == (NOW // 1000, 0, 52, -3, 0)
    assert content.count(0) == WHEEL_SIZE - sum(byte != 0 for byte in content[at : at + 32])


def test_only_changed_pages_are_written_and_neighbours_as_one() -> None:
    wheel = TimerWheel(MemoryFileSystem(), 1000)
    start = NOW // 128_000 * 128_000
    for time in (start, start + 127_000, start + 128_000, start + 999_000):
        wheel.put(time, 0, 0, 1)
    taken = wheel.take_dirty()
    assert [len(data) for _offset, data in taken] == [8192, 4096]
    assert not wheel.dirty
    wheel.give_back(taken)
    assert [(offset, len(data)) for offset, data in wheel.take_dirty()] == [
        (offset, len(data)) for offset, data in taken
    ]
    wheel.touch(start + 5000)
    assert [len(data) for _offset, data in wheel.take_dirty()] == [4096]


def test_what_was_written_is_read_again() -> None:
    files = MemoryFileSystem()
    wheel = TimerWheel(files, 1000)
    assert not wheel.load()
    times = [NOW, NOW + 5_000, NOW + 400_000_000, NOW + TURN - 1000]
    for position, time in enumerate(times):
        wheel.put(time, 52 * position, 52 * position, 1)
    written(wheel)
    again = TimerWheel(files, 1000)
    assert again.load()
    assert sorted(again.slots(NOW)) == [
        Slot(time, 52 * position, 52 * position, 1) for position, time in enumerate(times)
    ]
    assert {slot.time for slot in again.slots(NOW + 1000)} == set(times[1:])


def test_a_precision_of_its_own() -> None:
    wheel = TimerWheel(MemoryFileSystem(), 200)
    wheel.put(NOW + 200, 0, 0, 1)
    assert wheel.get(NOW) is None
    assert wheel.get(NOW + 399) == Slot(NOW + 200, 0, 0, 1)


@pytest.mark.parametrize("size", [1, WHEEL_SIZE - 32, WHEEL_SIZE + 1])
def test_a_wrong_length_is_refused_by_name(size: int) -> None:
    files = MemoryFileSystem()
    files.create(PATH, size)
    with pytest.raises(StoreCorruptError, match=f"timerwheel has {size} bytes"):
        TimerWheel(files, 1000).load()


def test_an_empty_file_is_none() -> None:
    """As a power cut leaves a new one."""
    files = MemoryFileSystem()
    files.create(PATH, 0)
    wheel = TimerWheel(files, 1000)
    assert not wheel.load()
    wheel.put(NOW, 0, 0, 1)
    written(wheel)
    assert files.open(PATH).size() == WHEEL_SIZE
