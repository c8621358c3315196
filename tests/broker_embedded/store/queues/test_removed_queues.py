"""The files of a deleted topic go beside the loop, and after a crash as well."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import pytest
import trio
import trio.testing

from rocketmq_sdk.broker_embedded.store.files.memory_files import MemoryFileSystem
from rocketmq_sdk.broker_embedded.store.files.os_files import OsFileSystem
from rocketmq_sdk.broker_embedded.store_tool.report import FileSystemReader
from rocketmq_sdk.broker_embedded.store_tool.verify import verify
from rocketmq_sdk.errors import StoreError
from rocketmq_sdk.testing.faults import Operation
from rocketmq_sdk.testing.faulty_files import FaultyFileSystem
from support.store import bodies, message, open_store, small_config

if TYPE_CHECKING:
    from pathlib import Path

    from rocketmq_sdk.broker_embedded.store.files.file_system import FileSystem
    from rocketmq_sdk.broker_embedded.store.message_store import MessageStore

QUEUES = 8
CONFIG = small_config(enable_consume_queue_ext=True, mapped_file_size_consume_queue_ext=1024)
PARENTS = ("consumequeue", "consumequeue_ext")


def fill(store: MessageStore, topic: str) -> None:
    for number in range(3 * QUEUES):
        assert store.put(message(topic, number % QUEUES, b"%d" % number, tag="T")).ok


def left(files: FileSystem) -> list[str]:
    return [name for parent in PARENTS for name in files.directory_names(parent) if name[0] == "~"]


async def all_removed(files: FileSystem) -> None:
    with trio.fail_after(60):
        while left(files):
            await trio.sleep(0.01)


async def test_nothing_is_put_into_a_topic_until_its_last_deletion_ended(
    autojump_clock: object,
) -> None:
    files = FaultyFileSystem(blocking=True)
    ended: list[int] = []
    async with open_store(files, CONFIG) as store:

        async def delete() -> None:
            await store.delete_topic("Gone")
            ended.append(1)

        fill(store, "Gone")
        await store.flush()
        files.faults.slow(Operation.SYNC, "*", delay=0.1)
        async with trio.open_nursery() as nursery:
            for _ in range(3):
                nursery.start_soon(delete)
            await trio.sleep(0.01)
            while len(ended) < 3:
                assert not store.put(message("Gone", 0, b"too early")).ok
                await trio.sleep(0.01)
        assert store.put(message("Gone", 0, b"new")).ok
        assert bodies(store, "Gone") == [b"new"]


async def test_the_loop_removes_no_file(autojump_clock: object) -> None:
    files = FaultyFileSystem(blocking=True)
    async with open_store(files, CONFIG) as store:
        fill(store, "Gone")
        fill(store, "Stays")
        await store.flush()
        with files.faults.slow(Operation.REMOVE, "*", delay=0.1) as removals:
            await store.delete_topic("Gone")
            assert not removals.on_loop
            assert store.topics() == {"Stays"}
            assert left(files)
            fill(store, "Gone")
            await store.flush()
            await all_removed(files)
            assert removals.hits >= QUEUES
            assert not removals.on_loop
        assert bodies(store, "Gone", 1) == [b"1", b"9", b"17"]
    assert verify(FileSystemReader(files)).findings == []


@pytest.mark.parametrize("end", ["kill", "power cut"])
async def test_a_crash_anywhere_brings_nothing_back_and_leaves_nothing(
    end: str, autojump_clock: object
) -> None:
    for cut_at in range(0, 60, 5):
        files, deleted = FaultyFileSystem(cut_at), False
        with contextlib.suppress(StoreError):
            async with open_store(files, CONFIG) as store:
                fill(store, "Gone")
                fill(store, "Stays")
                await store.flush()
                files.cut_at = files.operations + 1 + cut_at
                await store.delete_topic("Gone")
                deleted = True
                with trio.move_on_after(1):
                    await all_removed(files)
                files.halt()
        for seed in range(2):
            found = files.kill() if end == "kill" else files.power_cut(seed)
            async with open_store(found, CONFIG) as store:
                assert len(bodies(store, "Stays", 1)) == 3
                kept = {len(bodies(store, "Gone", number)) for number in range(QUEUES)}
                assert kept == {0} or (kept == {3} and not deleted)
                await all_removed(found)
                fill(store, "Gone")
            assert verify(FileSystemReader(found)).findings == []
            if end == "kill":
                break


@pytest.mark.real_time
async def test_a_directory_of_the_disk_that_a_stop_left_goes_at_the_next_start(
    tmp_path: Path,
) -> None:
    files = OsFileSystem(tmp_path)
    async with open_store(files, CONFIG) as store:
        fill(store, "Gone")
        await store.flush()
        await store.delete_topic("Gone")
    for parent in PARENTS:
        (tmp_path / parent / "~removed.7" / "0").mkdir(parents=True)
        (tmp_path / parent / "~removed.7" / "0" / ("0" * 20)).write_bytes(b"x")
    assert verify(FileSystemReader(files)).findings == []
    async with open_store(OsFileSystem(tmp_path), CONFIG) as store:
        assert store.topics() == set()
        await all_removed(files)
        assert not (tmp_path / "consumequeue" / "Gone").exists()


async def test_a_disk_that_does_not_rename_removes_at_once() -> None:
    files = FaultyFileSystem()
    async with open_store(files, CONFIG) as store:
        fill(store, "Gone")
        await store.flush()
        files.faults.fail(Operation.RENAME, "consumequeue*/Gone")
        await store.delete_topic("Gone")
        assert not any(files.directory_names(parent) for parent in PARENTS)


async def test_what_cannot_be_removed_is_tried_again(
    autojump_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    files = FaultyFileSystem()
    async with open_store(files, CONFIG) as store:
        fill(store, "Gone")
        await store.flush()
        files.faults.fail(Operation.REMOVE, "consumequeue*", times=3)
        await store.delete_topic("Gone")
        with trio.fail_after(600):
            while left(files):
                await trio.sleep(1)
        assert store.put(message()).ok
    assert caplog.text.count("queues of a deleted topic stay for now") == 1


async def test_memory_gives_the_bytes_back() -> None:
    files = MemoryFileSystem()
    async with open_store(files, CONFIG) as store:
        fill(store, "Gone")
        await store.flush()
        used = files.used_bytes
        await store.delete_topic("Gone")
        await trio.testing.wait_all_tasks_blocked()
        assert not left(files)
        assert not any(name.startswith("consumequeue") for name in files._files)
        assert used - files.used_bytes >= 3 * QUEUES * 20
