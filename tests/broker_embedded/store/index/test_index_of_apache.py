"""The key index of directories written by Apache's broker, and files of ours compared
with Apache's byte for byte.
"""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Any

import pytest

from rocketmq_sdk.broker_embedded.store.files.memory_files import MemoryFileSystem
from rocketmq_sdk.broker_embedded.store.files.os_files import OsFileSystem
from rocketmq_sdk.broker_embedded.store.log.record import properties_of
from rocketmq_sdk.errors import StoreCorruptError
from rocketmq_sdk.protocol.message_codec import decode_message
from support.store import config_for, expected, message, open_store, unpack

if TYPE_CHECKING:
    from pathlib import Path

    from rocketmq_sdk.broker_embedded.store.message_store import MessageStore

pytestmark = pytest.mark.real_time
BLANK_MAGIC = bytes.fromhex("cbd43194")

CASES = {
    "plain": "plain",
    "kitchen-sink": "kitchen-sink",
    "killed": "killed",
    "killed-noindex": "killed-noindex.full",
    "torn": "torn",
    "long-topic": "long-topic",
    "master": "master",
}


async def complete(store: MessageStore) -> None:
    """Wait until nothing is missing: a stop builds no longer than a second."""
    assert await store._index.wait_complete(60)


async def check_key_queries(store: MessageStore, expectation: dict[str, Any]) -> int:
    """Every recorded lookup gives the recorded positions in the recorded order."""
    await complete(store)
    for query in expectation["key_queries"]:
        result = await store.query(
            query["topic"], query["key"], query["maxNum"], query["begin"], query["end"]
        )
        assert result.physical_offsets == query["physical_offsets"], query
        assert [
            decode_message(record, inflate=False).commit_log_offset for record in result.records
        ] == query["physical_offsets"]
    return len(expectation["key_queries"])


def index_files(root: Path) -> list[bytes]:
    """The contents of the index files in order."""
    return [path.read_bytes() for path in sorted((root / "index").iterdir())]


@pytest.mark.parametrize("name", CASES)
async def test_lookups(name: str, tmp_path: Path) -> None:
    """Lookups by key are answered as by Apache's store, on the first opening and on the
    second.
    """
    expectation = expected(CASES[name])
    root = unpack(name, tmp_path)
    for _round in range(2):
        async with open_store(OsFileSystem(root), config_for(expectation)) as store:
            assert await check_key_queries(store, expectation)


@pytest.mark.parametrize("name", ["plain", "kitchen-sink", "master"])
async def test_an_index_taken_away_comes_back_byte_for_byte(name: str, tmp_path: Path) -> None:
    """Built again from the log of a clean directory: the files that Apache wrote,
    except for their names.
    """
    expectation = expected(name)
    root = unpack(name, tmp_path)
    wanted = index_files(root)
    shutil.rmtree(root / "index")
    async with open_store(OsFileSystem(root), config_for(expectation)) as store:
        assert await check_key_queries(store, expectation)
    found = index_files(root)
    assert len(found) == len(wanted)
    for ours, theirs in zip(found, wanted, strict=True):
        assert ours == theirs


@pytest.mark.parametrize("name", ["killed", "torn"])
async def test_an_index_completed_after_a_kill_equals_one_built_anew(
    name: str, tmp_path: Path
) -> None:
    """Whatever files Apache's kill left behind, no entry is missing and none is there
    twice.
    """
    expectation = expected(name)
    contents: list[list[bytes]] = []
    for case in ("completed", "anew"):
        root = unpack(name, tmp_path / case)
        if case == "anew":
            shutil.rmtree(root / "index")
        async with open_store(OsFileSystem(root), config_for(expectation)) as store:
            await complete(store)
        contents.append(index_files(root))
    assert contents[0] == contents[1]


async def test_messages_put_here_are_indexed_as_by_apache(tmp_path: Path) -> None:
    """The messages of a recorded directory put into a new store: files equal to
    Apache's but for positions and times.
    """
    expectation = expected("plain")
    config = config_for(expectation)
    root = unpack("plain", tmp_path)
    theirs = [entries_of(data, config.max_hash_slot_num) for data in index_files(root)]
    records: list[bytes] = []
    async with open_store(OsFileSystem(root), config) as store:
        position = 0
        while position < store.max_physical_offset:
            record = store.record_at(position)
            if record is None or record[4:8] == BLANK_MAGIC:
                position += (
                    config.mapped_file_size_commit_log
                    - position % config.mapped_file_size_commit_log
                )
                continue
            records.append(record)
            position += len(record)
    ours = tmp_path / "ours"
    async with open_store(OsFileSystem(ours), config) as store:
        for record in records:
            decoded = decode_message(record, inflate=False)
            item = message(decoded.topic, decoded.queue_id)
            item.properties = properties_of(record)
            assert store.put(item).ok
    assert [entries_of(data, config.max_hash_slot_num) for data in index_files(ours)] == theirs


def entries_of(data: bytes, slots: int) -> list[tuple[bytes, bytes]]:
    """Slots, and hash and previous entry of each entry."""
    start = 40 + slots * 4
    return [(data[40:start], b"")] + [
        (data[at : at + 4], data[at + 16 : at + 20]) for at in range(start, len(data), 20)
    ]


async def test_a_wrong_size_is_refused_by_name(tmp_path: Path) -> None:
    """The number of slots belongs to the directory."""
    expectation = expected("plain")
    root = unpack("plain", tmp_path)
    (root / "index" / "20261121051713859").write_bytes(bytes(8441))
    with pytest.raises(
        StoreCorruptError, match=r"index/20261121051713859 has 8441 bytes.*maxHashSlotNum.*8440"
    ):
        async with open_store(OsFileSystem(root), config_for(expectation)):
            pass


async def test_default_sizes_cost_what_is_used(tmp_path: Path) -> None:
    """A file of 420 MB takes little space, on disk and of the limit of a store in
    memory.
    """
    config = config_for(expected("plain")).__class__(mapped_file_size_commit_log=131072)
    async with open_store(OsFileSystem(tmp_path / "store"), config) as store:
        assert store.put(message()).ok
    (file,) = (tmp_path / "store" / "index").iterdir()
    assert file.stat().st_size == 420_000_040
    assert file.stat().st_blocks * 512 < 300_000
    files = MemoryFileSystem(16 * 1024 * 1024)
    async with open_store(files, config) as store:
        used = files.used_bytes
        assert store.put(message()).ok
        await store.flush()
        assert len((await store.query("TopicA", "U1", 32)).records) == 1
        assert files.used_bytes - used < 2_000_000
