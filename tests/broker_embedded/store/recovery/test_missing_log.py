"""A store whose log is somewhere else."""

from __future__ import annotations

import contextlib
import shutil
from functools import partial
from typing import TYPE_CHECKING

import pytest
import trio

from rocketmq_sdk.broker_embedded.store.config import FlushDiskType
from rocketmq_sdk.broker_embedded.store.files.os_files import OsFileSystem
from rocketmq_sdk.broker_embedded.store.log.place import open_files
from rocketmq_sdk.broker_embedded.store_tool.repair import repair_directory
from rocketmq_sdk.broker_embedded.store_tool.verify import verify_directory
from rocketmq_sdk.errors import StoreCorruptError, StoreError
from rocketmq_sdk.testing.faulty_files import FaultyFileSystem
from support.store import bodies, message, open_store, small_config

if TYPE_CHECKING:
    from pathlib import Path

    from rocketmq_sdk.broker_embedded.store_tool.log import LogRecord

CONFIG = small_config(max_hash_slot_num=100, max_index_num=400)
WANTED = [b"%03d" % number * 30 for number in range(100)]


async def fill(root: Path, commit_log: Path | None = None) -> None:
    async with open_store(open_files(root, commit_log), CONFIG) as store:
        for body in WANTED:
            assert store.put(message(body=body, properties={"KEYS": "key"})).ok


def contents(root: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(root)): path.read_bytes()
        for path in root.rglob("*")
        if path.is_file() and path.name != "lock"
    }


@pytest.mark.real_time
@pytest.mark.parametrize("keep", ["consumequeue", "checkpoint", "cleanStop.json", "index", None])
@pytest.mark.parametrize("empty", [True, False])
async def test_a_start_without_the_log_refuses_and_destroys_nothing(
    keep: str | None, empty: bool, tmp_path: Path
) -> None:
    root = tmp_path / "store"
    await fill(root)
    (root / "commitlog").rename(tmp_path / "elsewhere")
    if empty:
        (root / "commitlog").mkdir()  # where a disk is mounted
    for path in root.iterdir():
        if keep is not None and path.name != keep:
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    before = contents(root)
    for _ in range(2):
        with pytest.raises(StoreCorruptError, match=r"no log in commitlog.*storePathCommitLog"):
            async with open_store(OsFileSystem(root), CONFIG):
                pass
    if keep in ("consumequeue", None):
        with pytest.raises(StoreCorruptError, match="no log in commitlog"):
            repair_directory(root, print)
    assert contents(root) == before
    if keep is None:
        async with open_store(open_files(root, tmp_path / "elsewhere"), CONFIG) as store:
            assert bodies(store) == WANTED


@pytest.mark.real_time
async def test_a_store_that_never_had_a_message_needs_no_log(tmp_path: Path) -> None:
    for _ in range(3):
        async with open_store(OsFileSystem(tmp_path)) as store:
            assert store.started_clean
            store.files.write("config/topics.json", b"{}")
            await store.flush()


@pytest.mark.parametrize("flush", FlushDiskType)
async def test_a_power_cut_at_the_first_messages_never_looks_like_a_lost_log(
    flush: FlushDiskType, autojump_clock: object
) -> None:
    config = small_config(flush_disk_type=flush, flush_interval_consume_queue=100)
    for cut_at in range(1, 90):
        files = FaultyFileSystem(cut_at)
        files.cut_at = cut_at
        with contextlib.suppress(StoreError):
            async with open_store(files, config) as store:
                for number in range(3):
                    store.put(message(queue_id=number))
                    await trio.sleep(0.3)
        for seed in (cut_at % 3, 3):
            async with open_store(files.power_cut(seed), config) as store:
                assert all(len(bodies(store, queue_id=queue)) <= 1 for queue in range(3))


async def test_a_power_cut_after_a_kill_at_the_first_message_is_no_lost_log(
    autojump_clock: object,
) -> None:
    """What the killed process made is not durable; the next one relies on it. The power
    is cut when queues are durable and the log need not be.
    """
    config = small_config(flush_interval_consume_queue=100, flush_consume_queue_least_pages=0)
    unit = f"consumequeue/TopicA/0/{0:020d}"
    for cut_at in range(5, 15):
        files = FaultyFileSystem(cut_at)
        files.cut_at = cut_at
        with contextlib.suppress(StoreError):
            async with open_store(files, config) as store:
                store.put(message())
        files.kill()
        files.on_step = partial(_halt_when_durable, files, unit)
        with contextlib.suppress(StoreError):
            async with open_store(files, config) as store:
                assert store.put(message()).ok
                await trio.sleep(1)
        assert files.dead
        for seed in range(7):
            async with open_store(files.power_cut(seed), config) as store:
                assert len(bodies(store)) <= 2


def _halt_when_durable(files: FaultyFileSystem, path: str) -> None:
    if files.is_durable(path, 0, 20):
        files.halt()


@pytest.mark.real_time
async def test_the_log_may_be_elsewhere(tmp_path: Path) -> None:
    root, log = tmp_path / "store", tmp_path / "disk" / "log"
    await fill(root, log)
    assert not (root / "commitlog").exists()
    seen: list[LogRecord] = []
    assert verify_directory(root, on_record=seen.append, commit_log=log).findings == []
    assert len(seen) == len(WANTED)
    (root / "abort").touch()
    shutil.rmtree(root / "consumequeue")
    job = repair_directory(root, print, commit_log=log, queue_file_size=200)
    await job.run()
    async with open_store(open_files(root, log), CONFIG) as store:
        assert bodies(store) == WANTED
        assert 0 < store.used_ratio() <= 1
        found = await store.query("TopicA", "key", 10)
        assert len(found.records) == 10
    assert verify_directory(root, commit_log=log).findings == []


@pytest.mark.real_time
async def test_what_stood_behind_damage_stays_on_the_disk_of_the_log(tmp_path: Path) -> None:
    root, log = tmp_path / "store", tmp_path / "disk"
    await fill(root, log)
    first = log / f"{0:020d}"
    data = bytearray(first.read_bytes())
    data[300:340] = b"\xff" * 40
    first.write_bytes(data)
    (root / "abort").touch()
    async with open_store(open_files(root, log), CONFIG) as store:
        assert store.max_physical_offset < 340
        for body in WANTED:
            assert store.put(message(body=body)).ok
    assert not (root / "setaside").exists()
    held = b"".join(path.read_bytes() for path in (log / "setaside").rglob("*") if path.is_file())
    assert all(body in held for body in WANTED[3:])
    async with open_store(open_files(root, log), CONFIG) as store:
        assert bodies(store)[-100:] == WANTED


@pytest.mark.real_time
async def test_the_place_below_the_root_is_no_other_place(tmp_path: Path) -> None:
    await fill(tmp_path, tmp_path / "commitlog")
    async with open_store(OsFileSystem(tmp_path), CONFIG) as store:
        assert bodies(store) == WANTED
