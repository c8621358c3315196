"""Directories written by Apache's broker, opened by this store, compared with what
Apache's own store says about them.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import pytest

from rocketmq_sdk.broker_embedded.store.config import StoreConfig
from rocketmq_sdk.broker_embedded.store.files.os_files import OsFileSystem
from rocketmq_sdk.errors import StoreCorruptError
from rocketmq_sdk.model.enums import BoundaryType
from rocketmq_sdk.protocol.message_codec import decode_message, decode_messages
from support.paths import STORE_VECTORS
from support.store import config_for, expected, open_store, unpack

if TYPE_CHECKING:
    from pathlib import Path

    from rocketmq_sdk.broker_embedded.store.message_store import MessageStore

pytestmark = pytest.mark.real_time

CASES = {
    "plain": "plain",
    "killed": "killed",
    "killed-noindex": "killed-noindex.full",
    "torn": "torn",
    "long-topic": "long-topic",
    "master": "master",
    "slave": "slave",
    "kitchen-sink": "kitchen-sink",
    "kitchen-sink-5.3.3": "kitchen-sink-5.3.3",
    "batch-cq": "batch-cq",
}


def check_queues(store: MessageStore, expectation: dict[str, Any]) -> int:
    """Every queue and every message."""
    count = 0
    for queue in expectation["queues"]:
        topic, queue_id = queue["topic"], queue["queueId"]
        assert (store.min_offset(topic, queue_id), store.max_offset(topic, queue_id)) == (
            queue["minOffset"],
            queue["maxOffset"],
        ), topic
        for item in queue["messages"]:
            offset = item["queueOffset"]
            unit = store.queue_unit(topic, queue_id, offset)
            assert unit == (item["physicalOffset"], item["size"], item["tagsCode"]), (
                topic,
                queue_id,
                offset,
            )
            record = store.record_at(item["physicalOffset"])
            assert record is not None
            assert len(record) == item["size"]
            decoded = decode_message(record, inflate=False)
            assert (decoded.topic, decoded.queue_id, decoded.offset, decoded.body_crc) == (
                topic,
                queue_id,
                offset,
                item["bodyCrc"],
            )
            assert store.store_time_at(topic, queue_id, offset) == item["storeTimestamp"]
            assert record[4:8].hex() == item["magic"]
            count += 1
        if queue["messages"]:
            assert (
                store.store_time_at(topic, queue_id, queue["minOffset"])
                == queue["earliest_store_time"]
            )
    return count


def check_gets(store: MessageStore, expectation: dict[str, Any]) -> None:
    """Each queue read from its start to its end through `get`."""
    for queue in expectation["queues"]:
        offset = queue["minOffset"]
        seen: list[tuple[int, int]] = []
        while offset < queue["maxOffset"]:
            result = store.get(queue["topic"], queue["queueId"], offset, 32)
            seen += [
                (item.offset, item.commit_log_offset)
                for item in decode_messages(result.body, inflate=False, unwrap=False)
            ]
            offset = result.next_begin_offset
        assert seen == [(item["queueOffset"], item["physicalOffset"]) for item in queue["messages"]]


@pytest.mark.parametrize("name", CASES)
async def test_open_and_read_everything(name: str, tmp_path: Path) -> None:
    """Offsets, positions, sizes, tags codes, CRCs, times: all as Apache reads them, on
    the first opening and on the second.
    """
    expectation = expected(CASES[name])
    root = unpack(name, tmp_path)
    # Of the last message 5.3.3 has no index entry for its tag; it is made at the first
    # opening.
    rewritten = expectation["abort_file_present_before"] or name.endswith("5.3.3")
    foreign = ("rocksdbstore", "config") if rewritten else ("index", "rocksdbstore", "config")
    others = {
        path: path.read_bytes()
        for part in foreign
        for path in (root / part).rglob("*")
        if path.is_file()
    }
    assert others
    for _round in range(2):
        async with open_store(OsFileSystem(root), config_for(expectation)) as store:
            assert store.max_physical_offset == expectation["max_physical_offset_after_recovery"]
            assert store.min_physical_offset == expectation["min_physical_offset"]
            assert store.topics() == {queue["topic"] for queue in expectation["queues"]}
            assert check_queues(store, expectation) == expectation["messages_in_queues"]
            check_gets(store, expectation)
            for search in expectation["search_by_time"]:
                boundary = BoundaryType[search["boundary"]]
                assert (
                    store.offset_by_time(
                        search["topic"], search["queueId"], search["timestamp"], boundary
                    )
                    == search["offset"]
                ), search
    assert not (root / "abort").exists()
    assert {path: path.read_bytes() for path in others} == others


@pytest.mark.parametrize("name", ["plain", "long-topic", "batch-cq"])
async def test_opening_and_closing_changes_no_byte_of_log_and_queues(
    name: str, tmp_path: Path
) -> None:
    """A directory that was stopped cleanly is left as it was."""
    expectation = expected(name)
    root = unpack(name, tmp_path)
    parts = ("commitlog", "consumequeue", "batchconsumequeue")
    kept = {
        path: path.read_bytes()
        for part in parts
        for path in (root / part).rglob("*")
        if path.is_file()
    }
    async with open_store(OsFileSystem(root), config_for(expectation)):
        pass
    assert {
        path: path.read_bytes()
        for part in parts
        for path in (root / part).rglob("*")
        if path.is_file()
    } == kept


@pytest.mark.parametrize(
    ("name", "part"), [("plain", "consumequeue"), ("batch-cq", "batchconsumequeue")]
)
async def test_queues_built_again_are_those_that_apache_wrote(
    name: str, part: str, tmp_path: Path
) -> None:
    """With the queues taken away from a clean directory every queue file comes back
    byte for byte.
    """
    expectation = expected(name)
    root = unpack(name, tmp_path)
    wanted = {
        path.relative_to(root): path.read_bytes()
        for path in (root / part).rglob("*")
        if path.is_file()
    }
    (root / part).rename(tmp_path / "away")
    async with open_store(OsFileSystem(root), config_for(expectation)) as store:
        check_queues(store, expectation)
    assert {
        path.relative_to(root): path.read_bytes()
        for path in (root / part).rglob("*")
        if path.is_file()
    } == wanted


VARIANTS: list[dict[str, Any]] = json.loads((STORE_VECTORS / "torn-variants.json").read_text())


@pytest.mark.parametrize("variant", VARIANTS, ids=[str(variant["name"]) for variant in VARIANTS])
async def test_damaged_ends(variant: dict[str, Any], tmp_path: Path) -> None:
    """Six ways to damage the end of a log: what Apache keeps and drops."""
    expectation = expected("killed")
    root = unpack("killed", tmp_path)
    for patch in variant["patches"]:
        path = root.parent / patch["file"]
        data = bytearray(path.read_bytes())
        before, after = bytes.fromhex(patch["before"]), bytes.fromhex(patch["after"])
        assert data[patch["offset"] : patch["offset"] + len(before)] == before
        data[patch["offset"] : patch["offset"] + len(after)] = after
        path.write_bytes(data)
    async with open_store(OsFileSystem(root), config_for(expectation)) as store:
        assert store.max_physical_offset == variant["max_physical_offset_after_recovery"]
        bounds = {
            f"{topic}-{queue_id}": [
                store.min_offset(topic, queue_id),
                store.max_offset(topic, queue_id),
            ]
            for topic in store.topics()
            for queue_id in store.queue_ids(topic)
        }
        assert bounds == variant["queue_min_max"]
    log = b"".join(path.read_bytes() for path in sorted((root / "commitlog").iterdir()))
    assert not log[variant["max_physical_offset_after_recovery"] :].strip(b"\0")


async def test_wrong_size_is_refused_with_the_setting_named(tmp_path: Path) -> None:
    """Files of another size than configured: refused, nothing changed."""
    root = unpack("long-topic", tmp_path)
    with pytest.raises(StoreCorruptError, match=re.escape("mappedFileSizeCommitLog is 1073741824")):
        async with open_store(OsFileSystem(root), StoreConfig()):
            pass
    async with open_store(OsFileSystem(root), config_for(expected("long-topic"))):
        pass
