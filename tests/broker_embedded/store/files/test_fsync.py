"""Which call makes bytes durable on which system; there is no macOS here, so a stand-in
counts the calls.
"""

from __future__ import annotations

import os
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest

from rocketmq_sdk.broker_embedded.store.files.fsync import make_sync, sync_descriptor

if TYPE_CHECKING:
    from pathlib import Path


def test_data_are_synced_without_the_times_of_the_file() -> None:
    calls: list[str] = []
    system = SimpleNamespace(
        fdatasync=lambda _fd: calls.append("fdatasync"), fsync=lambda _fd: calls.append("fsync")
    )
    make_sync(system, SimpleNamespace())(3)
    assert calls == ["fdatasync"]


def test_without_fdatasync_everything_is_synced() -> None:
    calls: list[int] = []
    make_sync(SimpleNamespace(fsync=calls.append), None)(3)
    assert calls == [3]


def test_a_drive_is_asked_to_empty_its_cache_where_that_can_be_asked() -> None:
    calls: list[tuple[int, int]] = []
    control = SimpleNamespace(F_FULLFSYNC=51, fcntl=lambda fd, what: calls.append((fd, what)))
    make_sync(SimpleNamespace(), control)(3)
    assert calls == [(3, 51)]


def test_a_file_system_that_cannot_do_that_gets_an_ordinary_sync() -> None:
    calls: list[int] = []

    def refuse(_fd: int, _what: int) -> None:
        raise OSError("not supported")

    make_sync(SimpleNamespace(fsync=calls.append), SimpleNamespace(F_FULLFSYNC=51, fcntl=refuse))(3)
    assert calls == [3]


@pytest.mark.real_time
def test_this_system_can_do_it(tmp_path: Path) -> None:
    path = tmp_path / "file"
    with path.open("wb") as file:
        file.write(b"x")
        file.flush()
        sync_descriptor(file.fileno())
    with pytest.raises(OSError, match="Bad file"):
        sync_descriptor(os.open(path, os.O_RDONLY) + 1000)
