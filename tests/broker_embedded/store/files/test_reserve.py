"""The space that is kept for small files: taken at once, given back and taken again."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING

import pytest

from rocketmq_sdk.broker_embedded.store.files.os_files import OsFile, OsFileSystem
from rocketmq_sdk.broker_embedded.store.files.reserve import SpaceReserve, write_small
from rocketmq_sdk.errors import StoreFullError
from rocketmq_sdk.testing.faults import Operation
from rocketmq_sdk.testing.faulty_files import FaultyFileSystem

if TYPE_CHECKING:
    from pathlib import Path

KIB = 1024
WANTED = 1024 * KIB
DISK = 1 << 26
STEP = 16 * KIB


@pytest.mark.parametrize("by_zeros", [False, True])
def test_a_disk_with_space_gives_it_at_once(
    by_zeros: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each step would be paid by every start in a new directory."""
    calls = []
    allocate = OsFile.allocate

    def counting(file: OsFile, offset: int, length: int) -> None:
        calls.append((offset, length))
        allocate(file, offset, length)

    monkeypatch.setattr(OsFile, "allocate", counting)
    files = OsFileSystem(tmp_path)
    if by_zeros:
        files.allocate_by_zeros()
    reserve = SpaceReserve(files, WANTED)
    reserve.fill()
    reserve.fill()
    assert calls == [(0, WANTED)]
    found = (tmp_path / "reserve").stat()
    assert found.st_size == WANTED
    assert found.st_blocks * 512 >= WANTED
    files.unlock()


@pytest.mark.parametrize("free", range(8 * KIB, 1100 * KIB, 60 * KIB))
def test_a_disk_with_less_gives_all_but_a_step_and_no_page_is_lost(free: int) -> None:
    files = FaultyFileSystem(page_size=512, limit_bytes=DISK)
    files.create("other", 0).allocate(0, DISK - free)
    reserve = SpaceReserve(files, WANTED)
    reserve.fill()
    held = reserve.held
    assert held == min(WANTED, free // STEP * STEP)
    assert files.used_bytes == DISK - free + held
    if held:
        files.limit_bytes = files.used_bytes
        write_small(files, "offsets.json", b"x" * 2000)
        assert held - 48 * KIB < reserve.held < held
    files.limit_bytes = 2 * DISK
    reserve.fill()
    assert reserve.held == WANTED


def test_a_disk_that_is_full_for_one_call_is_asked_for_half() -> None:
    files = FaultyFileSystem(page_size=512)
    files.faults.fail(Operation.ALLOCATE, "reserve", code=errno.ENOSPC, times=3)
    reserve = SpaceReserve(files, WANTED)
    reserve.fill()
    assert reserve.held == WANTED


def test_without_any_space_small_files_say_so() -> None:
    files = FaultyFileSystem(page_size=512)
    files.faults.fail(Operation.ALLOCATE, "reserve", code=errno.ENOSPC)
    reserve = SpaceReserve(files, WANTED)
    reserve.fill()
    assert reserve.held == 0
    files.limit_bytes = files.used_bytes
    with pytest.raises(StoreFullError, match=r"offsets\.json"):
        write_small(files, "offsets.json", b"x" * 2000)
