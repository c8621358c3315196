"""Single damaged fields and strange things in a directory: what they cost, and what
they must not cost.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from rocketmq_sdk.broker_embedded.store.files.memory_files import MemoryFileSystem
from rocketmq_sdk.broker_embedded.store.files.os_files import OsFileSystem
from rocketmq_sdk.broker_embedded.store_tool.repair import repair_directory
from rocketmq_sdk.broker_embedded.store_tool.verify import verify_directory
from rocketmq_sdk.errors import StoreCorruptError, StoreError
from rocketmq_sdk.names import SCHEDULE_TOPIC
from support.store import bodies, message, open_store, small_config

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.real_time
FIRST_FILE = f"commitlog/{0:020d}"


async def write(root: Path, topic: str = "TopicA", **fields: object) -> None:
    async with open_store(OsFileSystem(root), small_config()) as store:
        for number in range(5):
            assert store.put(message(topic, body=b"body %d" % number, **fields)).ok


def change(path: Path, offset: int, data: bytes) -> None:
    content = bytearray(path.read_bytes())
    content[offset : offset + len(data)] = data
    path.write_bytes(content)


def forget_queues(root: Path) -> None:
    files = OsFileSystem(root)
    files.remove_tree("consumequeue")
    files.remove_tree("index")
    (root / "abort").touch()


@pytest.mark.parametrize("claimed", [1, 5, 1000, 1 << 40])
async def test_a_flipped_queue_offset_of_a_first_record_costs_no_other_record(
    claimed: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    await write(tmp_path)
    forget_queues(tmp_path)
    change(tmp_path / FIRST_FILE, 20, claimed.to_bytes(8))
    async with open_store(OsFileSystem(tmp_path), small_config()) as store:
        assert bodies(store)[-4:] == [b"body %d" % number for number in range(1, 5)]
        assert store.max_offset("TopicA", 0) == 5
    assert "TopicA queue 0" in caplog.text


async def test_a_store_time_of_the_future_is_named_and_not_believed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    await write(tmp_path)
    (tmp_path / "abort").touch()
    change(tmp_path / FIRST_FILE, 56, (1 << 60).to_bytes(8))
    async with open_store(OsFileSystem(tmp_path), small_config()) as store:
        assert store.put(message()).store_timestamp < 1 << 50
    assert f"the record at 0 says that it was stored at {1 << 60}" in caplog.text


async def test_a_checkpoint_of_the_future_vouches_for_nothing(tmp_path: Path) -> None:
    await write(tmp_path)
    forget_queues(tmp_path)
    (tmp_path / "checkpoint").write_bytes((1 << 60).to_bytes(8) * 3 + bytes(4096 - 24))
    async with open_store(OsFileSystem(tmp_path), small_config()) as store:
        assert len(bodies(store)) == 5
        assert store.put(message()).store_timestamp < 1 << 50


@pytest.mark.parametrize(
    "properties",
    [
        {"DELAY": "9" * 3000},
        {"DELAY": "\u0663"},
        {"DELAY": "-1"},
        {"INNER_NUM": "x", "KEYS": "\x00 \x00"},
    ],
)
async def test_poison_properties_do_not_keep_a_store_from_opening(
    properties: dict[str, str], tmp_path: Path
) -> None:
    for topic in (SCHEDULE_TOPIC, "TopicA"):
        await write(tmp_path, topic, properties=properties)
    forget_queues(tmp_path)
    change(tmp_path / FIRST_FILE, 56, ((1 << 63) - 2).to_bytes(8))
    async with open_store(OsFileSystem(tmp_path), small_config()) as store:
        assert store.max_offset("TopicA", 0) == 5
        assert store.put(message()).ok


@pytest.mark.parametrize(
    "path",
    [
        f"commitlog/{4096:020d}",
        f"consumequeue/TopicA/0/{200:020d}",
        "index/20260101000000000",
        "config/topics.json",
    ],
)
async def test_a_pipe_in_the_place_of_a_file_is_named_and_nobody_waits_for_it(
    path: str, tmp_path: Path
) -> None:
    await write(tmp_path)
    (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
    os.mkfifo(tmp_path / path)
    with pytest.raises(StoreError, match=path):
        async with open_store(OsFileSystem(tmp_path), small_config()) as store:
            store.files.file_sizes("config")
    assert path in {finding.path for finding in verify_directory(tmp_path).findings}


async def test_a_link_that_leads_nowhere_is_named(tmp_path: Path) -> None:
    await write(tmp_path)
    (tmp_path / "commitlog" / f"{4096:020d}").symlink_to(tmp_path / "nowhere")
    with pytest.raises(StoreCorruptError, match=f"commitlog/{4096:020d} is no regular file"):
        async with open_store(OsFileSystem(tmp_path), small_config()):
            pass


@pytest.mark.parametrize(
    "parent",
    ["commitlog", "consumequeue", "consumequeue/TopicA/0", "consumequeue_ext/TopicA/0", "index"],
)
async def test_a_link_to_itself_stops_neither_verify_nor_a_start_without_a_word(
    parent: str, tmp_path: Path
) -> None:
    await write(tmp_path)
    (tmp_path / parent).mkdir(parents=True, exist_ok=True)
    (tmp_path / parent / "00000000000000000000loop").symlink_to("00000000000000000000loop")
    findings = [finding.path for finding in verify_directory(tmp_path).findings]
    if parent == "consumequeue":
        async with open_store(OsFileSystem(tmp_path), small_config()) as store:
            assert len(bodies(store)) == 5
    else:
        assert findings == (
            [f"{parent}/00000000000000000000loop"] if parent != "index" else findings
        )
        with pytest.raises(StoreError, match=f"{parent}/00000000000000000000loop"):
            async with open_store(OsFileSystem(tmp_path), small_config()):
                pass


@pytest.mark.parametrize("damage", ["cut", "longer", "pipe"])
async def test_verify_names_an_extension_that_no_start_opens_and_repair_builds_the_queue(
    damage: str, tmp_path: Path
) -> None:
    config = small_config(enable_consume_queue_ext=True, mapped_file_size_consume_queue_ext=1024)
    async with open_store(OsFileSystem(tmp_path), config) as store:
        for number in range(15):
            assert store.put(message("TopicA", number % 3, body=b"body %d" % number, tag="T")).ok
    path = f"consumequeue_ext/TopicA/1/{0:020d}"
    if damage == "pipe":
        (tmp_path / path).unlink()
        os.mkfifo(tmp_path / path)
    else:
        os.truncate(tmp_path / path, 1000 if damage == "cut" else 1100)
    with pytest.raises(StoreCorruptError, match=path):
        async with open_store(OsFileSystem(tmp_path), config):
            pass
    (tmp_path / "abort").unlink(missing_ok=True)
    assert {finding.path for finding in verify_directory(tmp_path).findings} == {path}
    await repair_directory(tmp_path, print).run()
    assert verify_directory(tmp_path).findings == []
    async with open_store(OsFileSystem(tmp_path), config) as store:
        assert len(bodies(store, queue_id=0)) == len(bodies(store, queue_id=1)) == 5
        assert store.queue_unit("TopicA", 1, 4)[2] == message(tag="T").tags_code  # type: ignore[index]


async def test_a_linked_directory_is_as_good_as_a_directory(tmp_path: Path) -> None:
    await write(tmp_path / "store")
    (tmp_path / "store" / "commitlog").rename(tmp_path / "elsewhere")
    (tmp_path / "store" / "commitlog").symlink_to(tmp_path / "elsewhere")
    async with open_store(OsFileSystem(tmp_path / "store"), small_config()) as store:
        assert len(bodies(store)) == 5


async def test_a_long_start_tells_how_far_it_is() -> None:
    files = MemoryFileSystem(write_through=True)
    async with open_store(files) as store:
        for _ in range(100):
            store.put(message(body=bytes(300)))
        end = store.max_physical_offset
    files.write("abort", b"")
    told: list[tuple[int, int]] = []
    store = open_store(files)
    store.on_recovery = lambda done, total: told.append((done, total))
    async with store:
        assert not store.started_clean
    assert told[-1][0] == end
    assert all(0 <= done <= total for done, total in told)
    assert told == sorted(told)


@pytest.mark.parametrize("directory", ["index", "commitlog", "consumequeue"])
async def test_a_directory_that_is_a_link_to_nothing_is_named_at_the_start(
    directory: str, tmp_path: Path
) -> None:
    """Not later by every attempt to write into it; with the directory that the link
    names the store opens.
    """
    root = tmp_path / "store"
    root.mkdir()
    (root / directory).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(StoreCorruptError, match=f"{directory} is a link that leads nowhere"):
        async with open_store(OsFileSystem(root)):
            pass
    (tmp_path / "elsewhere").mkdir()
    async with open_store(OsFileSystem(root)) as store:
        assert store.put(message()).ok
        await store.flush()
        assert bodies(store) == [b"hello"]
