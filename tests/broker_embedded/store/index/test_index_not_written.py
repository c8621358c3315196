"""An index whose files cannot be written or synced: messages are taken all the same,
little waits in memory, it is told, and what is missing is built when that works again.
"""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING

import pytest
import trio

from rocketmq_sdk.broker_embedded.store.index import service
from rocketmq_sdk.broker_embedded.store_tool.report import FileSystemReader
from rocketmq_sdk.broker_embedded.store_tool.verify import verify
from rocketmq_sdk.errors import StoreError
from rocketmq_sdk.protocol.batch_codec import encode_batch
from rocketmq_sdk.testing.faults import Operation
from rocketmq_sdk.testing.faulty_files import FaultyFileSystem
from support.broker import open_on, send_request
from support.store import message, open_store, small_config

if TYPE_CHECKING:
    from trio.testing import MockClock

    from rocketmq_sdk.broker_embedded.store.message_store import MessageStore

CONFIG = small_config(
    mapped_file_size_commit_log=65_536,
    max_hash_slot_num=50,
    max_index_num=200,
    flush_interval_consume_queue=20,
    flush_consume_queue_thorough_interval=400,
)
FAILING = {
    "writes": (Operation.WRITE, "index/*"),
    "full disk": (Operation.WRITE, "index/*"),
    "new files": (Operation.CREATE, "index/*"),
    "sizes": (Operation.TRUNCATE, "index/*"),
    "syncs": (Operation.SYNC, "index/*"),
    "syncs of the directory": (Operation.SYNC_DIRECTORY, "index"),
}
LIMIT = 100


@pytest.fixture
def low_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "_MOST_NOTED", LIMIT)
    monkeypatch.setattr(service, "_MOST_UNWRITTEN_BYTES", 50 * LIMIT)


def put(store: MessageStore, number: int) -> None:
    assert store.put(message(properties={"KEYS": f"k{number} also{number}"})).ok


def put_batch(store: MessageStore, first: int, count: int) -> None:
    items = [
        (0, b"x", b"KEYS\x01k%d also%d\x02" % (number, number))
        for number in range(first, first + count)
    ]
    assert store.put_batch(message(body=encode_batch(items))).ok


async def wrong(store: MessageStore, count: int) -> list[str]:
    """The keys by which not exactly one message is found."""
    keys = [f"{('k', 'also')[number % 2]}{number}" for number in range(0, count, 3)]
    return [key for key in keys if len((await store.query("TopicA", key, 9)).records) != 1]


@pytest.mark.parametrize("what", FAILING)
@pytest.mark.parametrize(("times", "batches"), [(1, False), (None, False), (None, True)])
async def test_little_waits_in_memory_and_the_rest_is_built_when_it_heals(
    what: str, times: int | None, batches: bool, low_limits: None, autojump_clock: MockClock
) -> None:
    operation, path = FAILING[what]
    code = errno.ENOSPC if what == "full disk" else errno.EIO
    files = FaultyFileSystem(1)
    async with open_store(files, CONFIG) as store:
        for number in range(40):
            put(store, number)
        await store.flush()
        bad = files.faults.fail(operation, path, times=times, code=code)
        count = 40
        while count < 600:
            if batches:
                put_batch(store, count, 10)
                count += 10
            else:
                put(store, count)
                count += 1
            if not count % 50:
                await trio.sleep(0.1)
                index = store._index
                assert index.pending <= LIMIT + 50
                waiting = [file for file in index.files if file.changed]
                assert sum(file.unwritten_bytes for file in waiting) <= 50 * LIMIT + 100 * 40
        if times is None:
            assert any("not indexed" in trouble for trouble in store.troubles())
            assert store.statistics()["indexed_offset"] < store.max_physical_offset
            assert store.writable
            with pytest.raises(StoreError):
                await store.query("TopicA", "k599", 9)
        bad.lift()
        assert bad.hits >= 1
        with trio.fail_after(120):
            await store.wait_indexed()
            while [*store.troubles()]:
                await trio.sleep(0.1)
        assert store.statistics()["indexed_offset"] == store.max_physical_offset
        assert await wrong(store, count) == []
        put(store, count)
    assert not files.exists("abort")
    left = files.power_cut(1)
    assert verify(FileSystemReader(left)).findings == []
    async with open_store(left, CONFIG) as store:
        assert await wrong(store, count + 1) == []


@pytest.mark.parametrize("what", ["writes", "syncs"])
async def test_a_stop_without_a_written_index_is_no_clean_one(
    what: str, low_limits: None, autojump_clock: MockClock
) -> None:
    files = FaultyFileSystem(1)
    async with open_store(files, CONFIG) as store:
        files.faults.fail(*FAILING[what])
        for number in range(300):
            put(store, number)
            await trio.sleep(0.01)
    assert files.exists("abort")
    files.faults.clear()
    async with open_store(files.power_cut(1), CONFIG) as store:
        assert await wrong(store, 300) == []


async def test_without_another_message_it_heals_as_well(autojump_clock: MockClock) -> None:
    files = FaultyFileSystem(1)
    async with open_store(files, CONFIG) as store:
        bad = files.faults.fail(Operation.WRITE, "index/*")
        put(store, 0)
        await trio.sleep(5)
        assert [*store.troubles()]
        bad.lift()
        await trio.sleep(5)
        assert not [*store.troubles()]


async def test_the_health_of_a_broker_tells_it(autojump_clock: MockClock) -> None:
    files = FaultyFileSystem(1)
    async with open_on(files) as (broker, peer):
        bad = files.faults.fail(Operation.CREATE, "index/*")
        assert (await peer.ask(send_request("T", b"x", properties="KEYS\x01k\x02"))).code == 0
        await trio.sleep(3)
        assert any("not indexed" in reason for reason in broker.health().reasons)
        bad.lift()
        await trio.sleep(3)
        assert not broker.health().reasons
