"""What a failed write of the log leaves is gone before another record stands there."""

from __future__ import annotations

import errno
from contextlib import suppress
from random import Random
from typing import TYPE_CHECKING

import pytest
import trio

from rocketmq_sdk.broker_embedded.store.config import FlushDiskType
from rocketmq_sdk.broker_embedded.store.flush.log_flusher import WRITE_AGAIN_SECONDS
from rocketmq_sdk.errors import StoreError
from rocketmq_sdk.testing.faults import Operation
from rocketmq_sdk.testing.faulty_files import FaultyFileSystem
from support.store import message, open_store, small_config
from support.waiting import until

if TYPE_CHECKING:
    from trio.testing import MockClock

LOG = f"commitlog/{0:020d}"


@pytest.mark.parametrize("together", [False, True])
async def test_a_death_in_a_write_after_failed_ones_mixes_no_two_records(
    together: bool, autojump_clock: MockClock
) -> None:
    """No check sum covers the properties, so a mixture would be served."""
    config = small_config(
        mapped_file_size_commit_log=65_536, flush_disk_type=FlushDiskType.ASYNC_FLUSH
    )
    torn = 0
    for seed in range(60):
        generator = Random(seed)
        files = FaultyFileSystem(seed)
        tried: list[bytes] = []
        files.on_write = lambda path, data, _offset, tried=tried: (
            tried.append(data) if path == LOG else None
        )
        async with open_store(files, config) as store:
            assert store.put(message(body=b"first")).ok
            begin = store.max_physical_offset
            for number in range(4):
                await until(lambda: store.writable)
                body = b"%d " % number * generator.choice([1, 40, 9000])
                with files.faults.fail(Operation.WRITE, "commitlog/*", times=1):
                    assert not store.put(message(body=body, properties={"KEYS": f"key{number}"})).ok
            tried.clear()
            files.cut_at = files.operations + generator.choice([1, 2, 3])
            await trio.sleep(WRITE_AGAIN_SECONDS + 0.01)
            if together:
                store.begin()
            store.put(message(body=b"last", properties={"KEYS": "the last one, and no other"}))
            if together:
                with suppress(StoreError):
                    store.end()
        found = (files.kill().read(LOG) or b"")[begin:].rstrip(b"\0")
        if tried and tried[-1].strip(b"\0"):  # it died in the write of the record
            torn += 1
            assert tried[-1].startswith(found), (seed, found, tried[-1])
    assert torn > 10


async def test_a_shorter_record_is_followed_by_zeros(autojump_clock: MockClock) -> None:
    """Not by the end of a longer one, in which a sender may have put a whole record."""
    files = FaultyFileSystem(1)
    async with open_store(files, small_config(mapped_file_size_commit_log=65_536)) as store:
        assert store.put(message(body=b"first")).ok
        for _ in range(8):
            with files.faults.fail(Operation.WRITE, "commitlog/*", times=1):
                assert not store.put(message(body=b"long " * 500)).ok
            await until(lambda: store.writable)
        result = store.put(message(body=b"short"))
        assert result.ok
        end = result.physical_offset + result.size
        assert not (files.read(LOG) or b"")[end:].strip(b"\0")


@pytest.mark.parametrize(
    ("operation", "path", "code", "times"),
    [
        (Operation.CREATE, LOG, errno.EIO, 1),
        (Operation.ALLOCATE, LOG, errno.ENOSPC, 2),  # for many records, then for one
        (Operation.ALLOCATE, LOG, errno.EIO, 1),
        (Operation.SYNC, LOG, errno.EIO, 1),
        (Operation.SYNC_DIRECTORY, "commitlog", errno.EIO, 1),
    ],
)
async def test_a_log_that_could_not_begin_at_once_begins_durably(
    operation: Operation, path: str, code: int, times: int, autojump_clock: MockClock
) -> None:
    """No power cut leaves an index or queues that tell of a log without one."""
    for seed in range(20):
        files = FaultyFileSystem(seed)
        config = small_config(flush_disk_type=FlushDiskType.ASYNC_FLUSH)
        async with open_store(files, config) as store:
            with files.faults.fail(operation, path, code=code, times=times) as fault:
                assert not store.put(message(body=b"refused")).ok
            assert fault.hits == times
            await until(lambda: store.writable and store.put(message(properties={"KEYS": "k"})).ok)
            files.sync_directory("index")
            cut = files.power_cut(seed)
        assert cut.file_sizes("commitlog")
        async with open_store(cut, config) as again:
            assert again.writable
