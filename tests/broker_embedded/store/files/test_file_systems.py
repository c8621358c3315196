"""The two file systems behave alike, and configuration files survive crashes."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st

from rocketmq_sdk.broker_embedded.store.files.anonymous_memory import joined
from rocketmq_sdk.broker_embedded.store.files.config_file import ConfigFile
from rocketmq_sdk.broker_embedded.store.files.memory_files import CHUNK, MemoryFileSystem
from rocketmq_sdk.broker_embedded.store.files.os_files import OsFileSystem
from rocketmq_sdk.broker_embedded.store.queues.unit_chain import PRE_BLANK, UNIT, valid_units
from rocketmq_sdk.errors import StoreCorruptError, StoreError, StoreFullError

if TYPE_CHECKING:
    from rocketmq_sdk.broker_embedded.store.files.file_system import FileSystem

LONG = st.integers(-(2**63), 2**63 - 1)


@pytest.fixture(params=["memory", "disk"])
def files(request: pytest.FixtureRequest, tmp_path: Path) -> FileSystem:
    return (
        OsFileSystem(tmp_path / "root", max_descriptors=4)
        if request.param == "disk"
        else MemoryFileSystem()
    )


@pytest.mark.real_time
@pytest.mark.parametrize("doing", ["open", "close"])
def test_a_file_that_takes_long_to_open_or_close_holds_no_other_up(
    doing: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = OsFileSystem(tmp_path)
    slow, other = files.create("slow", 10), files.create("other", 10)
    slow.pread(1, 0)
    other.pread(1, 0)
    entered, release = threading.Event(), threading.Event()
    real = getattr(os, doing)

    def hang(*arguments: object) -> object:
        if threading.current_thread() is thread:
            entered.set()
            assert release.wait(30)
        return real(*arguments)

    def use_slow() -> None:
        slow.close()
        assert slow.pread(1, 0) == b"\0"

    thread = threading.Thread(target=use_slow)
    monkeypatch.setattr(os, doing, hang)
    thread.start()
    assert entered.wait(30)
    assert other.pread(1, 0) == b"\0"
    release.set()
    thread.join(30)
    assert not thread.is_alive()


@pytest.mark.parametrize("directory", ["a/b", "commitlog/b"])
def test_a_file(files: FileSystem, directory: str) -> None:
    """Sparse, sized, written at any place."""
    file = files.create(f"{directory}/0", 1_000_000)
    assert (file.size(), file.pread(10, 999_995), file.pread(10, 1_000_000)) == (
        1_000_000,
        bytes(5),
        b"",
    )
    file.pwrite(b"x" * 600_000, 100_000)
    file.pwrite(memoryview(b"yy"), 0)
    assert file.pread(3, 0) == b"yy\0"
    assert file.pread(700_000, 50_000) == bytes(50_000) + b"x" * 600_000 + bytes(50_000)
    ranges = list(file.data_ranges(0, 1_000_000))
    assert sum(high - low for low, high in ranges) < 1_000_000
    assert any(low <= 100_000 and high >= 700_000 for low, high in ranges) or len(ranges) > 1
    file.truncate(300_000)
    file.truncate(400_000)
    assert file.pread(200_000, 250_000) == b"x" * 50_000 + bytes(100_000)
    assert files.file_sizes(directory) == [("0", 400_000)]
    assert files.directory_names(directory[:-2]) == ["b"]
    file.sync()
    file.close()
    assert files.open(f"{directory}/0").pread(2, 0) == b"yy"
    file.remove()
    file.sync()
    assert not files.exists(f"{directory}/0")


@given(
    st.sampled_from(["commitlog/0", "consumequeue/0"]),
    st.lists(
        st.tuples(st.booleans(), st.integers(0, 3 * CHUNK), st.integers(0, CHUNK + 9)), max_size=12
    ),
)
@settings(max_examples=25, deadline=None)
def test_a_file_in_memory_is_as_one_piece(path: str, steps: list[tuple[bool, int, int]]) -> None:
    files, model = MemoryFileSystem(1 << 30), bytearray()
    file = files.open(path)
    for number, (write, offset, length) in enumerate(steps):
        if write:
            data = bytes([1 + number]) * length
            file.pwrite(data, offset)
            if data:
                model.extend(bytes(max(0, offset + length - len(model))))
                model[offset : offset + length] = data
        else:
            file.truncate(offset)
            model = model[:offset].ljust(offset, b"\0")
        assert file.size() == len(model)
    assert file.pread(1 << 30, 0) == model
    present = bytearray(len(model))
    for low, high in file.data_ranges(0, len(model)):
        present[low:high] = model[low:high]
    assert present == model
    file.remove()
    assert files.used_bytes == 0


def test_the_log_in_memory_goes_back_to_the_system() -> None:
    """With gaps between its pieces, and beside other memory of the process."""

    def resident() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * 4096

    files, before, beside = MemoryFileSystem(1 << 30), resident(), []
    for number in range(200):
        files.open(f"commitlog/{number}").pwrite(bytes(CHUNK), 0)
        beside.append(bytes(3000 + number))
    assert resident() > before + 150 * CHUNK
    for number in range(0, 200, 2):
        files.remove(f"commitlog/{number}")
    kept = joined([bytes(1000)] * 1000, 1_000_000)
    assert (len(kept), kept[999_990:]) == (1_000_000, bytes(10))
    del kept
    assert resident() < before + 120 * CHUNK


def test_small_files(files: FileSystem) -> None:
    """Read, replaced, renamed over another, removed."""
    assert files.read("config/x") is None
    files.write("config/x", b"one and more")
    files.write("config/x", b"two")
    files.write("config/y", b"three")
    files.rename("config/x", "config/y")
    assert (files.read("config/x"), files.read("config/y")) == (None, b"two")
    files.sync_directory("config")
    files.remove("config/y")
    files.remove("config/y")
    files.write("deep/er/file", b"1")
    files.remove_tree("deep")
    files.remove_tree("deep")
    assert not files.exists("deep/er/file")
    with pytest.raises(StoreError):
        files.rename("missing", "other")


def test_more_files_than_descriptors(tmp_path: Path) -> None:
    """Descriptors are shared; a held file keeps its own."""
    before = len(list(Path("/proc/self/fd").iterdir()))
    files = OsFileSystem(tmp_path, max_descriptors=4)
    held = files.open("held")
    held.hold()
    handles = [files.open(f"{index}") for index in range(50)]
    for _round in range(2):
        for index, handle in enumerate(handles):
            handle.pwrite(b"%d" % index, 0)
        held.pwrite(b"h", 0)
    assert [handle.pread(9, 0) for handle in handles] == [b"%d" % index for index in range(50)]
    assert len(list(Path("/proc/self/fd").iterdir())) < before + 10
    files.unlock()


def test_memory_is_counted() -> None:
    """Reserved and written bytes count once; removing gives them back; a refused write
    changes nothing.
    """
    files = MemoryFileSystem(100_000)
    file = files.create("log", 1 << 30)
    file.allocate(0, 60_000)
    file.pwrite(b"x" * 50_000, 0)
    assert files.used_bytes == 60_000
    with pytest.raises(StoreFullError, match="60000 of 100000"):
        file.allocate(60_000, 60_000)
    other = files.open("other")
    other.pwrite(b"y" * 40_000, 0)
    with pytest.raises(StoreFullError):
        other.pwrite(b"y" * 10, 39_995)
    assert other.size() == 40_000
    other.pwrite(b"z" * 10, 39_990)
    files.remove("log")
    assert files.used_bytes == 40_000
    other.truncate(10_000)
    assert files.used_bytes == 10_000
    for _round in range(20):
        files.write("config/x", b"c" * 20_000)
    assert files.used_bytes == 30_000


def test_config_files(files: FileSystem) -> None:
    """The value comes back; a lost or broken file is replaced by the one before; both
    broken is an error.
    """
    config = ConfigFile(files, "topics.json")
    assert config.load() is None
    config.store({"n": 1, "table": {"1": [True, None, "ä"]}})
    assert ConfigFile(files, "topics.json").load() == {"n": 1, "table": {"1": [True, None, "ä"]}}
    config.store({"n": 2})
    assert config.load() == {"n": 2}
    files.write("config/topics.json", b'{"n": ')
    assert config.load() == {"n": 1, "table": {"1": [True, None, "ä"]}}
    config.store({"n": 3})
    files.remove("config/topics.json")
    assert config.load() == {"n": 1, "table": {"1": [True, None, "ä"]}}
    files.write("config/topics.json", b'{0:1,1:{"a":2}}')
    assert config.load() == {"0": 1, "1": {"a": 2}}
    files.write("config/topics.json", b"nonsense")
    files.write("config/topics.json.bak", b"nonsense")
    with pytest.raises(StoreCorruptError, match=r"topics\.json"):
        config.load()


async def test_config_files_saved_in_order(files: FileSystem) -> None:
    """Concurrent saves end with the last one, and the one before as its copy."""
    config = ConfigFile(files, "x.json")
    async with trio.open_nursery() as nursery:
        for number in range(5):
            nursery.start_soon(config.save, {"n": number})
    final = config.load()
    files.remove("config/x.json")
    assert config.load() != final


@settings(deadline=None, max_examples=100)
@given(
    st.lists(st.tuples(LONG, st.integers(-5, 2**31 - 1), LONG), max_size=50), st.binary(max_size=19)
)
def test_valid_units(units: list[tuple[int, int, int]], rest: bytes) -> None:
    """The column test equals the plain loop."""
    data = b"".join(UNIT.pack(*unit) for unit in units) + rest
    expected = next(
        (index for index, (position, size, _code) in enumerate(units) if position < 0 or size <= 0),
        len(units),
    )
    assert valid_units(data, 20) == expected
    assert valid_units(PRE_BLANK * 3 + bytes(40), 20) == 3
