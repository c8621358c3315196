"""Batch consume queues: batches that stay one record, and what becomes of them when the
process ends, the queue is lost or the log is cut.
"""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING

import pytest
import trio

from rocketmq_sdk.broker_embedded.store.config import FlushDiskType
from rocketmq_sdk.broker_embedded.store.files.config_file import ConfigFile
from rocketmq_sdk.broker_embedded.store.files.memory_files import MemoryFileSystem
from rocketmq_sdk.broker_embedded.store.files.os_files import OsFileSystem
from rocketmq_sdk.broker_embedded.store.messages import (
    GetStatus,
    MessageToStore,
    PutResult,
    PutStatus,
)
from rocketmq_sdk.broker_embedded.store_tool.report import FileSystemReader
from rocketmq_sdk.broker_embedded.store_tool.verify import verify, verify_directory
from rocketmq_sdk.errors import StoreError
from rocketmq_sdk.model.enums import BoundaryType
from rocketmq_sdk.protocol.batch_codec import encode_batch
from rocketmq_sdk.protocol.flags import SysFlag
from rocketmq_sdk.protocol.message_codec import decode_messages
from rocketmq_sdk.testing.faults import Operation
from rocketmq_sdk.testing.faulty_files import FaultyFileSystem
from support.store import message, open_store, small_config

if TYPE_CHECKING:
    from pathlib import Path

    from trio.testing import MockClock

    from rocketmq_sdk.broker_embedded.store.config import StoreConfig
    from rocketmq_sdk.broker_embedded.store.message_store import MessageStore

INNER = SysFlag.INNER_BATCH | SysFlag.NEED_UNWRAP
TOPIC = "Batches"


def batch_config(**settings: object) -> StoreConfig:
    return small_config(mapper_file_size_batch_consume_queue=46 * 4, **settings)


def inner_batch(count: int, name: str = "b") -> MessageToStore:
    body = encode_batch([(0, f"{name}-{index}".encode(), b"") for index in range(count)])
    return message(TOPIC, 0, body, sys_flag=INNER, properties={"INNER_NUM": str(count)})


def open_with_batches(
    files: MemoryFileSystem | OsFileSystem, config: StoreConfig | None = None
) -> MessageStore:
    store = open_store(files, config or batch_config())
    store.ask_for_batch_topics({TOPIC}.__contains__)
    return store


def all_bodies(store: MessageStore) -> list[bytes]:
    found: list[bytes] = []
    offset = store.min_offset(TOPIC, 0)
    while offset < store.max_offset(TOPIC, 0):
        result = store.get(TOPIC, 0, offset, 32)
        assert result.status is GetStatus.FOUND
        messages = decode_messages(result.body)
        assert [item.offset for item in messages] == list(range(offset, offset + len(messages)))
        assert result.count == len(messages)
        found += [item.body for item in messages]
        offset = result.next_begin_offset
    return found


def fill(store: MessageStore) -> list[bytes]:
    """Batches and single messages in turn, over several files of units."""
    wanted: list[bytes] = []
    for number in range(1, 11):
        count = number % 4
        if count:
            put = store.put(inner_batch(count, f"b{number}"))
            wanted += [f"b{number}-{index}".encode() for index in range(count)]
        else:
            put = store.put(message(TOPIC, 0, b"single"))
            wanted.append(b"single")
        assert put.ok
        assert (put.count, put.queue_offset) == (count or 1, len(wanted) - (count or 1))
    return wanted


async def test_batches_and_single_messages_share_the_numbers_of_a_queue(
    autojump_clock: MockClock,
) -> None:
    files = MemoryFileSystem(write_through=True)
    async with open_with_batches(files) as store:
        wanted = fill(store)
        assert all_bodies(store) == wanted
        assert store.max_offset(TOPIC, 0) == len(wanted)
    assert verify(FileSystemReader(files)).findings == []
    async with open_with_batches(files) as store:
        assert all_bodies(store) == wanted
        assert store.put(inner_batch(2)).queue_offset == len(wanted)


async def test_a_read_from_the_middle_of_a_batch_gives_the_whole_batch(
    autojump_clock: MockClock,
) -> None:
    async with open_with_batches(MemoryFileSystem(write_through=True)) as store:
        store.put(inner_batch(5))
        result = store.get(TOPIC, 0, 3, 32)
        assert [item.offset for item in decode_messages(result.body)] == [0, 1, 2, 3, 4]
        assert (result.next_begin_offset, result.count) == (5, 5)


async def test_an_answer_ends_in_front_of_a_batch_that_is_too_much(
    autojump_clock: MockClock,
) -> None:
    async with open_with_batches(MemoryFileSystem(write_through=True)) as store:
        for _ in range(3):
            store.put(inner_batch(3))
        assert store.get(TOPIC, 0, 0, 5).count == 3
        assert store.get(TOPIC, 0, 0, 6).count == 6
        assert store.get(TOPIC, 0, 0, 1).count == 3


async def test_a_batch_that_the_log_does_not_have_is_not_read(autojump_clock: MockClock) -> None:
    files = FaultyFileSystem()
    async with open_with_batches(files) as store:
        store.put(inner_batch(3))
        full = files.faults.fail(Operation.WRITE, "commitlog/*", code=errno.ENOSPC)
        store.begin()
        assert store.put(inner_batch(2)).ok
        with pytest.raises(StoreError):
            store.end()
        assert (store.max_offset(TOPIC, 0), store.get(TOPIC, 0, 0, 32).count) == (3, 3)
        assert store.get(TOPIC, 0, 3, 32).status is GetStatus.OFFSET_OVERFLOW_ONE
        full.lift()
        await trio.sleep(1)
        assert (store.max_offset(TOPIC, 0), store.get(TOPIC, 0, 0, 32).count) == (5, 5)


async def test_queues_that_were_lost_are_built_again(tmp_path: Path) -> None:
    root = tmp_path / "store"
    async with open_with_batches(OsFileSystem(root)) as store:
        wanted = fill(store)
    ConfigFile(OsFileSystem(root), "topics.json").store(
        {"topicConfigTable": {TOPIC: {"attributes": {"queue.type": "BatchCQ"}}}}
    )
    before = {
        path.name: path.read_bytes()
        for path in (root / "batchconsumequeue" / TOPIC / "0").iterdir()
    }
    OsFileSystem(root).remove_tree("batchconsumequeue")
    assert {finding.kind for finding in verify_directory(root).findings} == {"missing"}
    async with open_store(OsFileSystem(root), batch_config()) as store:
        assert all_bodies(store) == wanted
    assert {
        path.name: path.read_bytes()
        for path in (root / "batchconsumequeue" / TOPIC / "0").iterdir()
    } == before


@pytest.mark.parametrize("at", [0, 9, 13, 27, 33, 37])
async def test_a_flipped_bit_of_a_unit_is_named(at: int, tmp_path: Path) -> None:
    root = tmp_path / "store"
    async with open_with_batches(OsFileSystem(root)) as store:
        fill(store)
    path = root / "batchconsumequeue" / TOPIC / "0" / f"{0:020d}"
    data = bytearray(path.read_bytes())
    data[46 + at] ^= 1
    path.write_bytes(data)
    (finding, *_rest) = verify_directory(root).findings
    assert finding.path == f"batchconsumequeue/{TOPIC}/0/{0:020d}"
    assert 46 <= finding.offset <= 46 + at


async def test_a_batch_does_not_go_into_an_ordinary_queue(autojump_clock: MockClock) -> None:
    async with open_store(MemoryFileSystem(write_through=True)) as store:
        assert store.put(inner_batch(2)).status is PutStatus.MESSAGE_ILLEGAL
        assert store.max_physical_offset == 0


@pytest.mark.parametrize(
    "properties",
    [{}, {"INNER_NUM": "0"}, {"INNER_NUM": "many"}, {"INNER_NUM": "40000"}, {"INNER_NUM": "-1"}],
)
async def test_a_batch_without_a_number_that_can_be_is_refused(
    properties: dict[str, str], autojump_clock: MockClock
) -> None:
    async with open_with_batches(MemoryFileSystem(write_through=True)) as store:
        assert (
            store.put(message(TOPIC, 0, b"x", sys_flag=INNER, properties=properties)).status
            is PutStatus.MESSAGE_ILLEGAL
        )


async def test_under_synchronous_flush_a_batch_can_be_read_behind_its_sync(
    autojump_clock: MockClock,
) -> None:
    async with open_with_batches(
        MemoryFileSystem(), batch_config(flush_disk_type=FlushDiskType.SYNC_FLUSH)
    ) as store:
        put: PutResult = store.put(inner_batch(3))
        assert store.max_offset(TOPIC, 0) == 0
        assert await store.wait_durable(put) is PutStatus.PUT_OK
        assert (store.max_offset(TOPIC, 0), store.put(inner_batch(2)).queue_offset) == (3, 3)


async def test_the_topic_can_be_deleted_and_begins_again(autojump_clock: MockClock) -> None:
    files = MemoryFileSystem(write_through=True)
    async with open_with_batches(files) as store:
        fill(store)
        await store.delete_topic(TOPIC)
        assert not files.exists(f"batchconsumequeue/{TOPIC}")
        assert store.put(inner_batch(2)).queue_offset == 0
    async with open_with_batches(files) as store:
        assert store.max_offset(TOPIC, 0) == 2


async def test_old_batches_leave_with_their_log_files(autojump_clock: MockClock) -> None:
    files = MemoryFileSystem(write_through=True)
    async with open_with_batches(
        files, batch_config(file_reserved_time=0, clean_resource_interval=10)
    ) as store:
        for _ in range(60):
            store.put(inner_batch(3))
        await trio.sleep(20)  # until they are durable
        store.retention.clean_now()
        with trio.fail_after(3600):
            while store.min_physical_offset == 0:
                await trio.sleep(1)
        low = store.min_offset(TOPIC, 0)
        assert low > 0
        assert low % 3 == 0
        assert store.get(TOPIC, 0, low - 1, 32).status is GetStatus.OFFSET_TOO_SMALL
        assert store.get(TOPIC, 0, low, 32).status is GetStatus.FOUND
        assert store.offset_by_time(TOPIC, 0, 0, BoundaryType.LOWER) == low
