"""Damage in the middle of a log: it ends there, and what is whole behind it is kept and
told.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import pytest

from rocketmq_sdk.broker_embedded.store.files.os_files import OsFileSystem
from rocketmq_sdk.broker_embedded.store_tool.verify import verify_directory
from support.store import bodies, message, open_store, small_config

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.real_time

COUNT = 40


async def write(root: Path) -> dict[int, bytes]:
    """A directory of several log files, not closed; gives the records by position."""
    records: dict[int, bytes] = {}
    async with open_store(
        OsFileSystem(root), small_config(flush_commit_log_least_pages=0)
    ) as store:
        for number in range(COUNT):
            put = store.put(message(body=b"%03d" % number * 100))
            record = store.record_at(put.physical_offset)
            assert record is not None
            records[put.physical_offset] = record
    (root / "abort").touch()
    assert len(list((root / "commitlog").iterdir())) > 3
    return records


def damage(root: Path, position: int) -> None:
    """Flip a bit in the body of a record."""
    path = root / "commitlog" / f"{position - position % 4096:020d}"
    data = bytearray(path.read_bytes())
    data[position % 4096 + 100] ^= 4
    path.write_bytes(data)


def kept(root: Path) -> bytes:
    """All bytes set aside."""
    return b"".join(
        path.read_bytes() for path in sorted((root / "setaside").rglob("*")) if path.is_file()
    )


@pytest.mark.parametrize("broken", [0, 5, 17, COUNT - 2])
async def test_whole_records_behind_the_damage_are_kept_and_told(
    broken: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    root = tmp_path / "store"
    records = await write(root)
    at = sorted(records)[broken]
    damage(root, at)
    behind = [record for position, record in records.items() if position > at]
    gaps = [finding for finding in verify_directory(root).findings if finding.kind == "gap"]
    assert [(finding.path, finding.offset) for finding in gaps] == [
        (f"commitlog/{at - at % 4096:020d}", at % 4096)
    ]
    assert f"{len(behind)} whole records" in gaps[0].problem
    with caplog.at_level(logging.WARNING):
        async with open_store(OsFileSystem(root), small_config()) as store:
            assert store.max_physical_offset == at
            assert bodies(store) == [b"%03d" % number * 100 for number in range(broken)]
            assert store.put(message(body=b"new")).physical_offset == at
    told = [record.getMessage() for record in caplog.records if "set aside" in record.getMessage()]
    assert len(told) == 1
    assert f"damaged at position {at}" in told[0]
    assert f"{len(behind)} whole records behind it" in told[0]
    held = kept(root)
    assert all(record in held for record in behind)
    assert verify_directory(root).findings == []


async def test_what_the_checkpoint_vouches_for_is_an_error(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    root = tmp_path / "store"
    records = await write(root)
    damage(root, sorted(records)[-3])
    checkpoint = root / "checkpoint"
    data = bytearray(checkpoint.read_bytes())
    last = int.from_bytes(records[max(records)][56:64])
    data[:16] = (last + 60_000).to_bytes(8) * 2
    checkpoint.write_bytes(data)
    with caplog.at_level(logging.WARNING):
        async with open_store(OsFileSystem(root), small_config()):
            pass
    assert [record.levelno for record in caplog.records if "set aside" in record.getMessage()] == [
        logging.ERROR
    ]


async def test_a_missing_file_costs_no_file_behind_it(tmp_path: Path) -> None:
    root = tmp_path / "store"
    records = await write(root)
    (root / "commitlog" / f"{4096:020d}").unlink()
    async with open_store(OsFileSystem(root), small_config()) as store:
        assert store.max_physical_offset == 4096
    held = kept(root)
    assert all(record in held for position, record in records.items() if position >= 8192)


async def test_an_end_that_was_torn_sets_nothing_aside(tmp_path: Path) -> None:
    root = tmp_path / "store"
    records = await write(root)
    damage(root, max(records))
    async with open_store(OsFileSystem(root), small_config()) as store:
        assert store.max_physical_offset == max(records)
    assert not (root / "setaside").exists()


async def test_a_second_damage_at_the_same_end_keeps_what_the_first_one_left(
    tmp_path: Path,
) -> None:
    root = tmp_path / "store"
    at = 300
    for life in range(3):
        async with open_store(OsFileSystem(root), small_config()) as store:
            for number in range(COUNT):
                assert store.put(message(body=b"life%d-%03d" % (life, number) * 20)).ok
        (root / "abort").touch()
        path = root / "commitlog" / f"{0:020d}"
        data = bytearray(path.read_bytes())
        data[at : at + 40] = b"\xff" * 40
        path.write_bytes(data)
    async with open_store(OsFileSystem(root), small_config()):
        pass
    held = kept(root)
    for life in range(3):
        assert all(b"life%d-%03d" % (life, number) in held for number in range(2, COUNT))


async def test_old_bytes_of_a_buffer_behind_the_end_are_no_messages(tmp_path: Path) -> None:
    """Apache 5.5 with `writeWithoutMmap` writes such bytes up to the end of a page."""
    root = tmp_path / "store"
    config = small_config(mapped_file_size_commit_log=65536)
    async with open_store(OsFileSystem(root), config) as store:
        for number in range(5):
            assert store.put(message(body=b"%03d" % number * 30)).ok
        end = store.max_physical_offset
    path = root / "commitlog" / f"{0:020d}"
    data = bytearray(path.read_bytes())
    data[end : 2 * end] = data[:end]
    path.write_bytes(data)
    (root / "abort").touch()
    async with open_store(OsFileSystem(root), config) as store:
        assert store.max_physical_offset == end
        assert len(bodies(store)) == 5
    assert not (root / "setaside").exists()
