"""The position of Apache 5.5 in the checkpoint: below it every queue is complete."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import trio

from rocketmq_sdk.broker_embedded.store.files.checkpoint import SIZE, Checkpoint
from rocketmq_sdk.broker_embedded.store.files.memory_files import MemoryFileSystem
from rocketmq_sdk.broker_embedded.store.messages import PutStatus
from rocketmq_sdk.broker_embedded.store_tool.report import FileSystemReader
from rocketmq_sdk.broker_embedded.store_tool.verify import verify
from rocketmq_sdk.errors import StoreError, StoreFullError
from rocketmq_sdk.testing.faults import Operation
from rocketmq_sdk.testing.faulty_files import FaultyFileSystem
from support.store import bodies, message, open_store, small_config

if TYPE_CHECKING:
    from trio.testing import MockClock

    from rocketmq_sdk.broker_embedded.store.files.file_system import FileSystem


def position(files: FileSystem) -> int:
    data = files.read("checkpoint")
    assert data is not None
    assert len(data) == SIZE
    return int.from_bytes(data[40:48])


async def test_a_complete_flush_names_the_end_of_what_was_dispatched() -> None:
    files = MemoryFileSystem(write_through=True)
    async with open_store(files) as store:
        for number in range(30):
            assert store.put(message(queue_id=number % 4)).ok
        end = store.max_physical_offset
        await store.flush()
        assert position(files) == end
        assert store.put(message()).ok
        assert position(files) == end
    assert position(files) == store.max_physical_offset


@pytest.mark.parametrize("clean", [True, False])
async def test_a_start_vouches_for_nothing_before_its_first_flush(clean: bool) -> None:
    files = MemoryFileSystem(write_through=True)
    async with open_store(files) as store:
        assert store.put(message()).ok
    assert position(files)
    if not clean:
        files.write("abort", b"")
    async with open_store(files) as store:
        assert position(files) == 0
        await store.flush()
        assert position(files) == store.max_physical_offset


async def test_the_removal_of_a_topic_takes_it_back() -> None:
    files = MemoryFileSystem(write_through=True)
    async with open_store(files) as store:
        assert store.put(message()).ok
        await store.flush()
        await store.delete_topic("TopicA")
        assert position(files) == 0


async def test_a_removal_waits_beside_the_loop_for_a_checkpoint_under_way(
    autojump_clock: MockClock,
) -> None:
    """Which would bring the position back otherwise."""
    files = FaultyFileSystem(blocking=True)
    async with open_store(files) as store:
        assert store.put(message()).ok
        await store.flush()
        assert store.put(message()).ok
        slow = files.faults.slow(Operation.SYNC, "*", delay=1.0)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(store.flush)
            while not slow.paths["checkpoint.new"]:
                await trio.sleep(0.1)
            began, turns = trio.current_time(), 0
            async with trio.open_nursery() as waiting:

                @waiting.start_soon
                async def count() -> None:
                    nonlocal turns
                    while True:
                        turns += 1
                        refused = store.put(message()).status
                        assert refused is PutStatus.SERVICE_NOT_AVAILABLE
                        assert store.put(message("TopicB")).ok
                        await trio.sleep(0.1)

                await store.delete_topic("TopicA")
                waiting.cancel_scope.cancel()
            assert trio.current_time() - began > 1
            assert turns > 10
        assert slow.on_loop == 0
        assert position(files) == 0
        assert store.put(message(body=b"new")).ok
        assert bodies(store) == [b"new"]


async def test_a_topic_that_cannot_be_noted_as_deleted_stays(autojump_clock: MockClock) -> None:
    for path in ("checkpoint.new", "config/deletedTopics.json.new"):
        files = FaultyFileSystem(blocking=True)
        async with open_store(files) as store:
            assert store.put(message(body=b"1")).ok
            await store.flush()
            with files.faults.fail(Operation.SYNC, path), pytest.raises(StoreError):
                await store.delete_topic("TopicA")
            assert store.put(message(body=b"2")).ok
            assert bodies(store) == [b"1", b"2"]
            await store.delete_topic("TopicA")
            assert position(files) == 0
            files.halt()
        async with open_store(files.kill()) as store:
            assert store.topics() == set()


async def test_a_topic_whose_messages_keep_coming_from_a_master_stays(
    autojump_clock: MockClock,
) -> None:
    async with open_store(FaultyFileSystem(blocking=True)) as source:
        for number in range(200):
            assert source.put(message(body=b"%d" % number)).ok
        log = await source.log_bytes(0, source.max_physical_offset)
        sizes = [int.from_bytes(log[:4])] * 0
        at = 0
        while at < len(log):
            sizes.append(int.from_bytes(log[at : at + 4]))
            at += sizes[-1]
    files = FaultyFileSystem(blocking=True)
    async with open_store(files) as store, trio.open_nursery() as nursery:
        store.become_slave()
        store.append_bytes(0, log[: sizes[0]])
        slow = files.faults.slow(Operation.SYNC, "*", delay=0.1)

        @nursery.start_soon
        async def replicate() -> None:
            end = sizes[0]
            for size in sizes[1:]:
                store.append_bytes(end, log[end : end + size])
                end += size
                await trio.sleep(0.1)

        with pytest.raises(StoreError, match="TopicA is not deleted: its messages keep coming"):
            await store.delete_topic("TopicA")
        nursery.cancel_scope.cancel()
        slow.lift()
        kept = len(bodies(store))
        assert kept > 5
        files.halt()
    async with open_store(files.kill()) as store:
        assert len(bodies(store)) == kept


def test_a_full_disk_keeps_no_position(monkeypatch: pytest.MonkeyPatch) -> None:
    files = MemoryFileSystem()
    checkpoint = Checkpoint(files)
    checkpoint.logics_physical_offset = 1000
    checkpoint.write(checkpoint.encode())

    def full(_path: str, _data: bytes, *, private: bool = False) -> None:
        raise StoreFullError("full")

    monkeypatch.setattr(files, "write", full)
    checkpoint.forget_position()
    assert files.read("checkpoint") is None


def test_a_checkpoint_of_an_older_release_has_no_position() -> None:
    files = MemoryFileSystem()
    files.write("checkpoint", (5).to_bytes(8) * 5)
    checkpoint = Checkpoint(files)
    checkpoint.load()
    assert checkpoint.physic_timestamp == 5
    assert checkpoint.logics_physical_offset == 0


async def test_verify_finds_a_position_behind_the_log() -> None:
    files = MemoryFileSystem(write_through=True)
    async with open_store(files, small_config()) as store:
        assert store.put(message()).ok
    assert verify(FileSystemReader(files)).findings == []
    data = bytearray(files.read("checkpoint") or b"")
    data[40:48] = (1 << 40).to_bytes(8)
    files.write("checkpoint", bytes(data))
    findings = verify(FileSystemReader(files)).findings
    assert [(finding.path, finding.offset, finding.kind) for finding in findings] == [
        ("checkpoint", 40, "checkpoint")
    ]
