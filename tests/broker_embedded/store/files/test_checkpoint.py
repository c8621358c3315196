"""The position of Apache 5.5 in the checkpoint: below it every queue is complete."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from rocketmq_sdk.broker_embedded.store.files.checkpoint import SIZE, Checkpoint
from rocketmq_sdk.broker_embedded.store.files.memory_files import MemoryFileSystem
from rocketmq_sdk.broker_embedded.store_tool.report import FileSystemReader
from rocketmq_sdk.broker_embedded.store_tool.verify import verify
from rocketmq_sdk.errors import StoreFullError
from support.store import message, open_store, small_config

if TYPE_CHECKING:
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
        store.delete_topic("TopicA")
        assert position(files) == 0


def test_a_write_that_waited_does_not_bring_a_forgotten_position_back() -> None:
    files = MemoryFileSystem()
    checkpoint = Checkpoint(files)
    checkpoint.physic_timestamp, checkpoint.logics_physical_offset = 7, 1000
    old = checkpoint.encode()
    checkpoint.write(old)
    assert position(files) == 1000
    checkpoint.forget_position()
    checkpoint.write(old)
    assert position(files) == 0
    again = Checkpoint(files)
    again.load()
    assert (again.physic_timestamp, again.logics_physical_offset) == (7, 0)


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
