"""The example of the documentation, and what the file system promises."""

from __future__ import annotations

import contextlib
import errno
import time
from typing import TYPE_CHECKING

import pytest
import trio

from rocketmq_sdk.broker_embedded.store.config import FlushDiskType
from rocketmq_sdk.broker_embedded.store.message_store import MessageStore
from rocketmq_sdk.broker_embedded.store.messages import PutStatus
from rocketmq_sdk.clock import TrioClock
from rocketmq_sdk.errors import StoreError, StoreFullError
from rocketmq_sdk.testing.faults import Operation
from rocketmq_sdk.testing.faulty_device import PowerCutError
from rocketmq_sdk.testing.faulty_files import FaultyFileSystem
from support.store import STORE_HOST, message, small_config

if TYPE_CHECKING:
    from collections.abc import Callable

    from trio.testing import MockClock


@pytest.mark.parametrize("cut", [20, 60, 150])
@pytest.mark.parametrize("seed", range(4))
async def test_what_was_acknowledged_survives_the_cut(
    seed: int, cut: int, autojump_clock: MockClock
) -> None:
    config = small_config(flush_disk_type=FlushDiskType.SYNC_FLUSH)
    files = FaultyFileSystem(seed)
    files.cut_at = cut
    kept = []
    with trio.fail_after(60), contextlib.suppress(StoreError):
        async with MessageStore(config, files, TrioClock(), STORE_HOST) as store:
            while True:
                result = store.put(message("orders", body=b"%d" % len(kept)))
                if await store.wait_durable(result) is not PutStatus.PUT_OK:
                    break
                kept.append(result)
    assert files.dead
    found = files.power_cut(seed)
    with trio.fail_after(60):
        async with MessageStore(config, found, TrioClock(), STORE_HOST) as store:
            assert store.max_offset("orders", 0) >= len(kept)


def test_synced_bytes_survive_and_others_depend_on_the_seed() -> None:
    files = FaultyFileSystem(1)
    file = files.open("notes/first")
    file.pwrite(b"kept", 0)
    file.sync()
    files.sync_directory("notes")
    files.sync_directory(".")
    file.pwrite(b"more", 4096)
    left = {files.power_cut(seed).read("notes/first") for seed in range(50)}
    assert left == {
        b"kept",
        b"kept" + bytes(4092) + b"more",
        b"kept" + bytes(4096),
    }


def test_after_the_cut_nothing_works_until_somebody_starts_again() -> None:
    files = FaultyFileSystem()
    files.write("note", b"x")
    files.halt()
    with pytest.raises(PowerCutError):
        files.write("note", b"y")
    assert files.kill().read("note") == b"x"
    files.write("note", b"y")


class TestFaults:
    """Single operations that fail, end early or take their time."""

    @pytest.mark.parametrize(
        ("operation", "path", "attempt"),
        [
            (Operation.READ, "d/file", lambda files: files.open("d/file").pread(4, 0)),
            (Operation.READ, "d/file", lambda files: files.read("d/file")),
            (Operation.WRITE, "d/file", lambda files: files.open("d/file").pwrite(b"x", 0)),
            (Operation.WRITE, "d/file", lambda files: files.write("d/file", b"x")),
            (Operation.ALLOCATE, "d/file", lambda files: files.open("d/file").allocate(0, 9)),
            (Operation.TRUNCATE, "d/file", lambda files: files.open("d/file").truncate(0)),
            (Operation.SYNC, "d/file", lambda files: files.open("d/file").sync()),
            (Operation.SYNC_DIRECTORY, "d", lambda files: files.sync_directory("d")),
            (Operation.CREATE, "d/new", lambda files: files.create("d/new", 10)),
            (Operation.RENAME, "d/file", lambda files: files.rename("d/file", "d/other")),
            (Operation.REMOVE, "d/file", lambda files: files.remove("d/file")),
            (Operation.REMOVE, "d/file", lambda files: files.remove_tree("d")),
            (Operation.LIST, "d", lambda files: files.file_sizes("d")),
            (Operation.LIST, "d", lambda files: files.directory_names("d")),
        ],
    )
    def test_an_operation_fails_once_or_until_it_is_lifted(
        self, operation: Operation, path: str, attempt: Callable[[FaultyFileSystem], object]
    ) -> None:
        files = FaultyFileSystem()
        files.write("d/file", b"content")
        elsewhere = files.faults.fail(operation, "e*")
        with files.faults.fail(operation, path) as fault:
            for _ in range(3):
                with pytest.raises(StoreError, match=rf"{path}: cannot .*Input/output error"):
                    attempt(files)
        assert (fault.hits, fault.paths, elsewhere.hits) == (3, {path: 3}, 0)
        assert operation is Operation.WRITE or files.read("d/file") == b"content"
        full = files.faults.fail(operation, path, times=1, code=errno.ENOSPC)
        with pytest.raises(StoreFullError):
            attempt(files)
        attempt(files)
        assert full.hits == 1

    def test_only_a_part_of_a_file_cannot_be_read(self) -> None:
        files = FaultyFileSystem()
        files.write("log/0", bytes(10_000))
        files.write("log/1", bytes(10_000))
        bad = files.faults.fail(Operation.READ, "log/1", at=range(4096, 8192))
        for file, offset in (("log/0", 4096), ("log/1", 0), ("log/1", 8192)):
            assert len(files.open(file).pread(1000, offset)) == 1000
        for offset, size in ((4095, 2), (8191, 1), (0, 10_000), (5000, 10)):
            with pytest.raises(StoreError):
                files.open("log/1").pread(size, offset)
            assert files.open("log/1").pread_nowait(size, offset) is None
        with pytest.raises(StoreError):
            files.read("log/1")
        assert bad.hits == 5
        with pytest.raises(ValueError, match="no range of bytes to sync"):
            files.faults.fail(Operation.SYNC, at=range(3))

    def test_reads_end_early(self) -> None:
        files = FaultyFileSystem()
        files.write("log/0", b"0123456789")
        with files.faults.shorten("log/0", at=range(4, 10)):
            assert files.open("log/0").pread(8, 1) == b"123"
            assert files.open("log/0").pread(3, 6) == b""
            assert files.open("log/0").pread(4, 0) == b"0123"
            assert files.open("log/0").pread_nowait(8, 1) is None
        with files.faults.shorten("*", times=1):
            assert files.read("log/0") == b""
            assert files.read("log/0") == b"0123456789"

    def test_the_first_operations_pass(self) -> None:
        files = FaultyFileSystem()
        files.write("file", b"x")
        fault = files.faults.fail(Operation.READ, after=2, times=2)
        outcomes = []
        for _ in range(6):
            try:
                outcomes.append(files.read("file"))
            except StoreError:
                outcomes.append(None)
        assert outcomes == [b"x", b"x", None, None, b"x", b"x"]
        assert fault.hits == 2

    def test_a_write_that_fails_may_have_written_a_part(self) -> None:
        found = set()
        for seed in range(40):
            files = FaultyFileSystem(seed)
            files.open("file").pwrite(b"old!", 0)
            files.faults.fail(Operation.WRITE, times=1)
            with pytest.raises(StoreError):
                files.open("file").pwrite(b"NEW!", 0)
            found.add(files.read("file"))
        assert found == {b"old!", b"Nld!", b"NEd!", b"NEW!"}

    def test_the_same_disk_has_the_same_faults(self) -> None:
        files = FaultyFileSystem()
        files.write("file", b"x")
        files.sync_directory(".")
        bad = files.faults.fail(Operation.READ)
        for after in (files.power_cut(1), files.kill()):
            with pytest.raises(StoreError):
                after.read("file")
        assert bad.hits == 2
        bad.lift()
        bad.lift()
        assert after.read("file") == b"x"

    async def test_slow_operations_in_threads_let_others_go_on(
        self, autojump_clock: MockClock
    ) -> None:
        """Four at a time; a cancelled one is waited for."""
        files = FaultyFileSystem()
        files.write("file", b"x")
        slow = files.faults.slow(Operation.READ, delay=2)
        ticks = []

        async def tick() -> None:
            while True:
                await trio.sleep(1)
                ticks.append(trio.current_time())

        began = trio.current_time()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(tick)
            async with trio.open_nursery() as readers:
                for _ in range(8):
                    readers.start_soon(files.run, lambda: files.read("file"))
            assert trio.current_time() - began == 4
            with trio.move_on_after(0.5):
                await files.run(lambda: files.read("file"))
            assert trio.current_time() - began == 6
            nursery.cancel_scope.cancel()
        assert len(ticks) in (5, 6)
        assert (slow.hits, slow.on_loop) == (9, 0)

    async def test_slow_operations_elsewhere_hold_up_the_loop(
        self, autojump_clock: MockClock
    ) -> None:
        files = FaultyFileSystem()
        files.write("file", b"x")
        slow = files.faults.slow(Operation.READ, delay=2)
        began = trio.current_time()
        assert files.open("file").pread_nowait(1, 0) is None
        assert files.read("file") == b"x"
        assert trio.current_time() - began == 2
        assert (slow.hits, slow.on_loop) == (1, 1)

    @pytest.mark.real_time
    def test_slow_operations_without_a_loop_take_real_time(self) -> None:
        files = FaultyFileSystem()
        files.write("file", b"x")
        files.faults.slow(Operation.SYNC, delay=0.05)
        began = time.perf_counter()
        files.open("file").sync()
        assert time.perf_counter() - began >= 0.05


def test_what_is_durable_is_left_after_every_power_cut_and_the_rest_is_not() -> None:
    files = FaultyFileSystem(page_size=512)
    file = files.create("a/one", 4096)
    file.pwrite(b"x" * 700, 0)
    assert not files.is_durable("a/one", 0, 700)
    file.sync()
    assert not files.is_durable("a/one", 0, 700), "its name is not"
    files.sync_directory("a")
    assert not files.is_durable("a/one", 0, 700), "the name of its directory is not"
    files.sync_directory(".")
    assert files.is_durable("a/one", 0, 4096)
    file.pwrite(b"y" * 10, 600)
    assert files.is_durable("a/one", 0, 600)
    assert not files.is_durable("a/one", 590, 20)
    assert files.is_durable("a/one", 610, 3000)
    file.truncate(1000)
    assert not files.is_durable("a/one", 0, 1001)
    assert files.is_durable("a/one", 0, 600)
    files.rename("a/one", "a/two")
    assert not files.is_durable("a/two", 0, 600)
    assert not files.is_durable("a/one", 0, 600)
    files.sync_directory("a")
    assert files.is_durable("a/two", 0, 600)
    files.remove("a/two")
    assert not files.is_durable("a/two", 0, 600)
