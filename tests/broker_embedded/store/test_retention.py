"""Old files go by age, hour and space; queues and index follow; a full disk refuses
messages.

Under virtual time, with a disk that says what it is told.
"""

from __future__ import annotations

import errno
import os
from datetime import datetime
from typing import TYPE_CHECKING

import attrs
import pytest
import trio
import trio.testing

from rocketmq_sdk.broker_embedded.store.config import StoreConfig
from rocketmq_sdk.broker_embedded.store.files.memory_files import MemoryFileSystem
from rocketmq_sdk.broker_embedded.store.files.os_files import OsFileSystem
from rocketmq_sdk.broker_embedded.store.messages import GetStatus, PutStatus
from rocketmq_sdk.broker_embedded.store.retention import RetentionPolicy
from rocketmq_sdk.clock import TrioClock
from rocketmq_sdk.errors import StoreError
from rocketmq_sdk.testing.faults import Operation
from rocketmq_sdk.testing.faulty_files import FaultyFileSystem
from support.broker import open_on
from support.store import bodies, message, open_store, small_config

if TYPE_CHECKING:
    from pathlib import Path

    from rocketmq_sdk.broker_embedded.store.files.file_system import FileSystem
    from rocketmq_sdk.broker_embedded.store.message_store import MessageStore

HOUR = 3_600_000
NIGHT = int(datetime(2026, 3, 10, 4, 30).timestamp() * 1000)
NOON = int(datetime(2026, 3, 10, 12, 0).timestamp() * 1000)
INDEX = {"max_hash_slot_num": 10, "max_index_num": 10}


class TestPolicy:
    """Decisions."""

    def test_age_counts_at_the_hour(self) -> None:
        """72 hours, at four in the morning."""
        policy = RetentionPolicy(StoreConfig())
        ages = [100, 80, 72, 71, 10]
        assert policy.decide(NIGHT, 0.1, [NIGHT - age * HOUR for age in ages]) == (3, False)
        assert policy.decide(NOON, 0.1, [NOON - age * HOUR for age in ages]) == (0, False)
        assert policy.decide(NOON, 0.1, [NOON - age * HOUR for age in ages], manual=True) == (
            3,
            False,
        )
        two = RetentionPolicy(StoreConfig(delete_when="23; 12", file_reserved_time=1))
        assert two.decide(NOON, 0.1, [NOON - age * HOUR for age in ages]) == (5, False)

    def test_a_young_file_stops(self) -> None:
        """The log has no gaps: what is behind a young file stays."""
        policy = RetentionPolicy(StoreConfig())
        assert policy.decide(NIGHT, 0.1, [NIGHT, NIGHT - 100 * HOUR]) == (0, False)

    @pytest.mark.parametrize(
        ("ratio", "expected"),
        [
            (0.75, (0, False)),
            (0.76, (1, False)),
            (0.85, (1, False)),
            (0.86, (3, False)),
            (0.9, (3, False)),
            (0.91, (3, True)),
        ],
    )
    def test_space(self, ratio: float, expected: tuple[int, bool]) -> None:
        """Above 75 % old ones at any hour, above 85 % any, above 90 % no messages."""
        written = [NOON - 100 * HOUR, NOON - HOUR, NOON]
        assert RetentionPolicy(StoreConfig()).decide(NOON, ratio, written) == expected
        patient = RetentionPolicy(StoreConfig(clean_file_forcibly_enable=False)).decide(
            NOON, ratio, written
        )
        assert patient == (min(expected[0], 1), expected[1])

    def test_bounds_and_batch(self) -> None:
        """Settings beyond Apache's bounds count as the bound; at most ten files in one
        round.
        """
        policy = RetentionPolicy(
            StoreConfig(disk_space_warning_level_ratio=99, disk_space_clean_forcibly_ratio=99)
        )
        assert policy.decide(NOON, 0.91, [NOON] * 25) == (10, True)

    def test_next_due(self) -> None:
        """The hour at or behind the age."""
        policy = RetentionPolicy(StoreConfig(file_reserved_time=2))
        four = int(datetime(2026, 3, 11, 4, 0).timestamp() * 1000)
        assert policy.next_due(NOON, NOON) == four
        assert policy.next_due(NIGHT, NIGHT - 5 * HOUR) == NIGHT
        assert RetentionPolicy(StoreConfig(delete_when="")).next_due(NOON, 0) is None

    @pytest.mark.parametrize("text", ["24", "x", "4,5", "-1"])
    def test_hours_are_checked(self, text: str) -> None:
        """By name."""
        with pytest.raises(ValueError, match="delete_when"):
            StoreConfig(delete_when=text)


def fill(store: MessageStore, count: int, size: int = 300) -> None:
    """Messages in two queues: one that goes on and one that ends."""
    for number in range(count):
        assert store.put(
            message(body=b"%d" % number + bytes(size), properties={"KEYS": f"k{number}"})
        ).ok
        if number < 3:
            assert store.put(message("Ended", body=b"%d" % number)).ok


async def check_consistent(store: MessageStore) -> None:
    """What is left can be read, looked up and is numbered as before."""
    minimum = store.min_offset("TopicA", 0)
    left = [int(body.rstrip(b"\0")) for body in bodies(store)]
    assert left == list(range(minimum, store.max_offset("TopicA", 0)))
    assert store.get("TopicA", 0, minimum - 1, 1).status in (GetStatus.OFFSET_TOO_SMALL,)
    result = await store.query("TopicA", f"k{left[0]}", 32)
    assert any(b"%d" % left[0] in record for record in result.records)
    assert all(position >= store.min_physical_offset for position in result.physical_offsets)
    if minimum:
        assert store.min_offset("Ended", 0) == store.max_offset("Ended", 0) == 3


@pytest.mark.parametrize("kind", ["memory", "faulty"])
async def test_age(kind: str, autojump_clock: trio.testing.MockClock) -> None:
    """After three days, at four o'clock, all files but the last go, ten each ten
    seconds, with queue and index files; nothing before.
    """
    clock = TrioClock()
    files: FileSystem = (
        FaultyFileSystem(now_ms=clock.now_ms)
        if kind == "faulty"
        else MemoryFileSystem(write_through=True)
    )
    config = small_config(**INDEX)
    async with open_store(files, config, clock) as store:
        fill(store, 150)
        count = len(files.file_sizes("commitlog"))
        await store.flush()
        index_count = len(files.file_sizes("index"))
        assert count > 12
        await trio.sleep(71.9 * 3600)
        assert len(files.file_sizes("commitlog")) == count
        with trio.fail_after(26 * 3600):
            while store.statistics()["log_files"] == count:
                await trio.sleep(1)
            assert datetime.fromtimestamp(clock.now_ms() // 1000).hour == 4
            while store.statistics()["log_files"] > 1:
                await trio.sleep(1)
            assert datetime.fromtimestamp(clock.now_ms() // 1000).hour == 4
        await trio.sleep(5)
        assert len(files.file_sizes("index")) < index_count / 2
        assert len(files.file_sizes("consumequeue/TopicA/0")) <= 2
        assert store.min_physical_offset == int(files.file_sizes("commitlog")[0][0])
        await check_consistent(store)
        fill(store, 0)
        assert store.put(message(body=b"150")).queue_offset == 150
    async with open_store(files, config, clock) as store:
        await check_consistent(store)


@pytest.mark.parametrize(("days", "before"), [(-5, 0), (5, 30)])
async def test_a_system_clock_that_is_set_makes_no_file_old(
    days: int, before: int, autojump_clock: trio.testing.MockClock
) -> None:
    """Files written before and behind it stay for their time by the store's clock."""
    clock, step = TrioClock(), 0
    files = FaultyFileSystem(now_ms=lambda: clock.now_ms() + step)
    config = small_config(file_reserved_time=48, delete_when=";".join(map(str, range(24))))
    async with open_store(files, config, clock) as store:
        fill(store, before)
        await trio.sleep(3600)
        step = days * 24 * HOUR
        fill(store, 30)
        await store.flush()
        count = len(files.file_sizes("commitlog"))
        await trio.sleep(46 * 3600)
        assert len(files.file_sizes("commitlog")) == count
        await trio.sleep((max(0, -days) + 3) * 24 * 3600)  # some seem to be younger
        assert len(files.file_sizes("commitlog")) == 1


@pytest.mark.real_time
async def test_old_files_on_a_disk(tmp_path: Path) -> None:
    """The time that the file system has of a file counts."""
    root = tmp_path / "store"
    config = small_config(clean_resource_interval=20, delete_commit_log_files_interval=1, **INDEX)
    async with open_store(OsFileSystem(root), config) as store:
        fill(store, 150)
        await store.flush()
        logs = sorted((root / "commitlog").iterdir())
        index_count = len(list((root / "index").iterdir()))
        for path in logs[:12]:
            os.utime(path, (1_000_000_000, 1_000_000_000))
        store.retention.clean_now()
        with trio.fail_after(60):
            while (
                len(list((root / "commitlog").iterdir())) > len(logs) - 12
                or len(list((root / "index").iterdir())) > index_count - 20
            ):
                await trio.sleep(0.01)
            while (store.queue_unit("TopicA", 0, store.min_offset("TopicA", 0)) or (0,))[
                0
            ] < store.min_physical_offset:
                await trio.sleep(0.01)  # the queues follow the log
        assert sorted((root / "commitlog").iterdir()) == logs[12:]
        await check_consistent(store)
    async with open_store(OsFileSystem(root), config) as store:
        await check_consistent(store)


async def test_a_full_disk_refuses_until_there_is_space(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """Above 90 % messages are refused with SERVICE_NOT_AVAILABLE and the oldest files
    go; below, messages are taken again.
    """
    files = FaultyFileSystem()
    async with open_store(files, small_config(**INDEX)) as store:
        fill(store, 150)
        count = len(files.file_sizes("commitlog"))
        files.told_used_ratio = 0.95
        await trio.sleep(62)
        assert store.put(message()).status is PutStatus.SERVICE_NOT_AVAILABLE
        assert not store.writable
        assert "full" in (store.failure or "")
        assert len(files.file_sizes("commitlog")) == count - 10
        files.told_used_ratio = 0.88
        await trio.sleep(11)
        assert store.put(message(body=b"150")).ok
        await trio.sleep(30)
        assert len(files.file_sizes("commitlog")) == 1
        await check_consistent(store)


async def test_a_disk_that_is_full_is_told_by_a_broker_that_got_no_message(
    autojump_clock: trio.testing.MockClock,
) -> None:
    files = FaultyFileSystem()
    files.told_used_ratio = 0.95
    async with open_on(files) as (broker, _peer):
        assert broker.health()
        await trio.sleep(61)
        assert "nearly full" in str(broker.health())


@pytest.mark.parametrize("place", ["commitlog/*", "consumequeue/*", "index/*", "checkpoint*"])
async def test_whoever_finds_no_space_asks_for_it(
    place: str, autojump_clock: trio.testing.MockClock
) -> None:
    """In the first minute as well, and whoever is first: as long as queues cannot be
    written nothing is appended that would find none.
    """
    files = FaultyFileSystem()
    async with open_store(files, small_config(**INDEX)) as store:
        fill(store, 150)
        await store.flush()
        files.told_used_ratio = 0.95
        full = files.faults.fail(Operation.WRITE, place, code=errno.ENOSPC)
        store.put(message(body=b"150"))
        if place.startswith(("index", "checkpoint")):
            await store.flush()
        with trio.fail_after(5):
            while not store.min_physical_offset:
                await trio.sleep(0.1)
        assert not store.writable
        full.lift()
        files.told_used_ratio = 0.5
        with trio.fail_after(5):
            while not store.put(message(body=b"151")).ok:
                await trio.sleep(0.1)
        assert not list(store.troubles())
    assert not files.exists("abort")


async def test_a_store_without_a_disk_outlives_what_it_cannot_read(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """Retention looks again later, and goes on when the log can be read."""
    files = FaultyFileSystem()
    async with open_store(files, small_config(**INDEX)) as store:
        fill(store, 60)
    async with open_store(files, small_config(**INDEX)) as store:
        unreadable = files.faults.fail(Operation.READ, "commitlog/*")
        await trio.sleep(200)
        assert store.put(message(body=b"60")).ok
        unreadable.lift()
        await trio.sleep(100 * 3600)
        assert len(files.file_sizes("commitlog")) == 1
        await check_consistent(store)


async def test_files_being_read_are_kept(autojump_clock: trio.testing.MockClock) -> None:
    """A reader keeps its file and those behind it, but not for ever."""
    files = FaultyFileSystem()
    async with open_store(files, small_config(**INDEX)) as store:
        fill(store, 60)
        names = [name for name, _size in files.file_sizes("commitlog")]
        with store.reading(int(names[2]) + 5):
            files.told_used_ratio = 0.87
            await trio.sleep(100)
            assert [name for name, _size in files.file_sizes("commitlog")] == names[2:]
            await trio.sleep(150)
            assert len(files.file_sizes("commitlog")) == 1


async def test_asked_for(autojump_clock: trio.testing.MockClock) -> None:
    """Whoever asks gets the old files removed at once, whatever the hour; young ones
    stay.
    """
    files = MemoryFileSystem(write_through=True)
    async with open_store(files, small_config(delete_when="", **INDEX)) as store:
        fill(store, 60)
        store.retention.clean_now()
        await trio.sleep(5)
        count = len(files.file_sizes("commitlog"))
        assert count > 3
        await trio.sleep(80 * 3600)
        assert len(files.file_sizes("commitlog")) == count
        store.retention.clean_now()
        await trio.sleep(5)
        assert len(files.file_sizes("commitlog")) == 1


async def test_space_in_a_file_and_for_the_next_one(autojump_clock: trio.testing.MockClock) -> None:
    """No space for the next file and no space in this one have statuses of their
    own.
    """
    files = FaultyFileSystem()
    files.makes_ahead = False  # a file made ahead has its space
    async with open_store(
        files, small_config(mapped_file_size_commit_log=16384, allocation_step=4096, **INDEX)
    ) as store:
        assert store.put(message()).ok
        await store.flush()
        limit, files.limit_bytes = files.limit_bytes, 0
        while (result := store.put(message(body=bytes(500)))).ok:
            pass
        assert result.status is PutStatus.SERVICE_NOT_AVAILABLE
        files.limit_bytes = limit
        while store.max_physical_offset < 15_000:
            assert store.put(message(body=bytes(500))).ok
        files.limit_bytes = 0
        while (result := store.put(message(body=bytes(500)))).ok:
            pass
        assert result.status is PutStatus.CREATE_MAPPED_FILE_FAILED
        files.limit_bytes = limit
        assert store.put(message(body=bytes(500))).ok


async def test_other_settings_take_effect_at_once(autojump_clock: trio.testing.MockClock) -> None:
    config = small_config(file_reserved_time=72, delete_when="")
    async with open_store(config=config) as store:
        for number in range(60):
            store.put(message(body=b"x" * 300 + bytes([number])))
        await trio.sleep(7 * 3600)
        assert store.min_physical_offset == 0
        store.retention.configure(
            attrs.evolve(
                config,
                file_reserved_time=1,
                delete_when=";".join(f"{hour:02}" for hour in range(24)),
            )
        )
        with trio.fail_after(600):
            while store.min_physical_offset == 0:
                await trio.sleep(1)


@pytest.mark.parametrize("place", ["commitlog", "consumequeue/TopicA/0"])
async def test_a_file_that_cannot_be_removed_stays_and_is_tried_again(
    place: str,
    autojump_clock: trio.testing.MockClock,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """No gap arises, neither now nor at a start in between; once it can be removed,
    everything goes on.
    """
    files = FaultyFileSystem()
    config = small_config(**INDEX)
    remove = FaultyFileSystem.remove
    stubborn = {"00000000000000004096" if place == "commitlog" else "00000000000000000200"}

    def refuse(self: FaultyFileSystem, path: str) -> None:
        if path.rpartition("/")[2] in stubborn and path.startswith(place):
            raise StoreError(f"{path}: cannot remove (Operation not permitted)")
        remove(self, path)

    monkeypatch.setattr(FaultyFileSystem, "remove", refuse)
    async with open_store(files, config) as store:
        fill(store, 150)
        await store.flush()
        names = [name for name, _size in files.file_sizes(place)]
        assert stubborn < set(names)
        files.told_used_ratio = 0.87
        await trio.sleep(100)
        assert "Operation not permitted" in caplog.text
        left = [name for name, _size in files.file_sizes(place)]
        assert stubborn < set(left)
        assert left == names[names.index(left[0]) :]
        if place == "commitlog":
            assert store.min_physical_offset == 4096
            assert store.statistics()["log_files"] == len(left)
            assert store.record_at(4096) is not None
        else:
            assert store.min_physical_offset > 4096
        files.told_used_ratio = 0.5
        await store.flush()
    async with open_store(files, config) as store:
        await check_consistent(store)
        stubborn.clear()
        files.told_used_ratio = 0.87
        assert store.put(message(body=b"150", properties={"KEYS": "k150"})).ok
        await trio.sleep(300)
        assert len(files.file_sizes("commitlog")) == 1
        assert len(files.file_sizes(place)) < len(left)
        await check_consistent(store)


async def test_a_log_file_that_could_be_removed_after_all_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a disk, in the same life: refused once, then gone, and read in between."""
    config = small_config(file_reserved_time=1, delete_commit_log_files_interval=0, **INDEX)
    remove = OsFileSystem.remove
    refusals: list[str] = []

    def refuse(self: OsFileSystem, path: str) -> None:
        if path.startswith("commitlog/") and not refusals:
            refusals.append(path)
            raise StoreError(f"{path}: cannot remove (Device or resource busy)")
        remove(self, path)

    monkeypatch.setattr(OsFileSystem, "remove", refuse)
    async with open_store(OsFileSystem(tmp_path), config) as store:
        fill(store, 60)
        await store.flush()  # what is not durable yet keeps the file before it
        for path in (tmp_path / "commitlog").iterdir():
            os.utime(path, (1, 1))
        count = store.statistics()["log_files"]
        service = store.retention
        service._manual_rounds = 2
        await service.check()
        assert refusals == ["commitlog/00000000000000000000"]
        assert store.statistics()["log_files"] == count
        assert store.min_physical_offset == 0
        store._log._forget_hot()
        assert store.record_at(0) is not None
        await service.check()
        assert not (tmp_path / refusals[0]).exists()
        assert store.statistics()["log_files"] < count
        await check_consistent(store)
