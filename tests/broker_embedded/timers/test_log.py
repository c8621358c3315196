"""The timer log: records, files, and where it ends."""

from __future__ import annotations

import pytest

from rocketmq_sdk.broker_embedded.store.files.memory_files import MemoryFileSystem
from rocketmq_sdk.broker_embedded.timers.log import DIRECTORY, TimerLog
from rocketmq_sdk.broker_embedded.timers.record import (
    FILLER,
    FILLER_MAGIC,
    RECORD_SIZE,
    TimerRecord,
    encode_timer_record,
)
from rocketmq_sdk.errors import StoreCorruptError, StoreError
from rocketmq_sdk.testing.faults import Operation
from rocketmq_sdk.testing.faulty_files import FaultyFileSystem

NOW = 1_795_238_863_000


def record(number: int, previous: int = -1) -> bytes:
    return encode_timer_record(previous, 1, NOW, 5000, number * 100, 100, 7)


def filled(
    files: MemoryFileSystem | FaultyFileSystem, count: int, file_size: int = 520
) -> tuple[TimerLog, list[int]]:
    log = TimerLog(files, file_size)
    return log, [log.append(record(number)) for number in range(count)]


def test_nine_records_and_a_filler_fit_into_520_bytes() -> None:
    """As in the directory that Apache wrote with files of this size."""
    files = MemoryFileSystem()
    log, positions = filled(files, 12)
    assert positions == [*range(0, 468, 52), *range(520, 676, 52)]
    log.write_out()
    assert files.file_sizes(DIRECTORY) == [
        ("00000000000000000000", 520),
        ("00000000000000000520", 520),
    ]
    first = files.read(f"{DIRECTORY}/00000000000000000000")
    assert first is not None
    assert FILLER.unpack_from(first, 468) == (52, 0, FILLER_MAGIC)
    assert first[484:] == bytes(36)


@pytest.mark.parametrize("written", [True, False])
def test_records_are_read_from_memory_and_from_files(written: bool) -> None:
    log, positions = filled(MemoryFileSystem(), 30)
    if written:
        log.write_out()
    for number, position in enumerate(positions):
        found = log.record(position)
        assert found == TimerRecord(52, -1, 1, NOW, 5000, number * 100, 100, 7, 0)
        assert found.slot_time == NOW + 5000
    for nowhere in (-52, 468, 494, log.end, log.end - 51):
        assert log.record(nowhere) is None


def test_a_scan_ends_at_the_first_record_that_is_none() -> None:
    files = MemoryFileSystem()
    log, positions = filled(files, 30)
    log.write_out()
    assert [position for position, _record in log.scan(0)] == positions
    assert [position for position, _record in log.scan(positions[12])] == positions[12:]
    log.chain.files[1].write(positions[13], bytes(52))
    assert [position for position, _record in log.scan(0)] == positions[:13]


DAMAGE = {
    "size": 51,
    "magic": 16,
    "previous": 624,
    "physical_offset": -1,
    "message_size": 0,
    "delay": -1,
    "write_time": -1,
}


@pytest.mark.parametrize("name", DAMAGE)
def test_what_can_be_no_record(name: str) -> None:
    sound = TimerRecord(52, 520, 3, NOW, 5000, 100, 100, 7, 0)
    assert sound.is_sound(624)
    assert not sound._replace(**{name: DAMAGE[name]}).is_sound(624)


def test_the_last_record_in_front_of_an_end() -> None:
    log, positions = filled(MemoryFileSystem(), 20)
    assert log.last_position(log.end) == positions[-1]
    assert log.last_position(520) == positions[8]
    assert log.last_position(468) == positions[8]
    assert log.last_position(0) < 0


def test_what_is_behind_a_new_end_is_gone() -> None:
    files = MemoryFileSystem()
    log, positions = filled(files, 30)
    log.write_out()
    log.start_at(positions[13])
    assert [name for name, _size in files.file_sizes(DIRECTORY)] == [
        "00000000000000000000",
        "00000000000000000520",
    ]
    assert log.append(record(99)) == positions[13]
    log.write_out()
    again = TimerLog(files, 520)
    again.chain.load()
    assert [found.physical_offset for _position, found in again.scan(0)] == [
        *range(0, 1300, 100),
        9900,
    ]


def test_files_of_another_size_are_refused_by_name() -> None:
    files = MemoryFileSystem()
    filled(files, 3)[0].write_out()
    with pytest.raises(
        StoreCorruptError, match=r"timerlog/0+ has 520 bytes, but mappedFileSizeTimerLog is 1040"
    ):
        TimerLog(files, 1040).chain.load()


def test_old_files_go_with_their_messages() -> None:
    log, _positions = filled(MemoryFileSystem(), 30)
    log.write_out()
    assert log.take_expired(10_000) == []
    log.synced = log.end
    assert log.take_expired(800) == []
    assert [file.start for file in log.take_expired(801)] == [0]
    assert log.record(0) is None
    assert [file.start for file in log.take_expired(1 << 40)] == [520, 1040]
    assert len(log.chain.files) == 1


def test_bytes_that_a_failed_sync_forgot_are_written_again() -> None:
    files = FaultyFileSystem(1, page_size=512)
    log, positions = filled(files, 5)
    log.write_out()
    files.faults.fail(Operation.SYNC, times=1)
    _target, sync = log.prepare_sync()
    with pytest.raises(StoreError):
        sync()
    log.doubtful = True
    log.write_out()
    log.synced, sync = log.prepare_sync()
    sync()
    for seed in range(20):
        left = TimerLog(files.power_cut(seed), 520)
        left.chain.load()
        assert [position for position, _record in left.scan(0)] == positions


def test_a_full_disk_keeps_records_in_memory() -> None:
    files = MemoryFileSystem(limit_bytes=100)
    log, positions = filled(files, 30)
    with pytest.raises(StoreError):
        log.write_out()
    assert log.record(positions[29]) is not None
    files.limit_bytes = 1 << 20
    log.write_out()
    assert len(list(log.scan(0))) == 30
    assert log.unwritten == 0
    assert log.end > RECORD_SIZE * 30
