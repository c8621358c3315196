"""What becomes durable when, in virtual time."""

from __future__ import annotations

import os
import struct
import threading
from typing import TYPE_CHECKING

import pytest
import trio
import trio.testing

from rocketmq_sdk.broker_embedded.store.config import FlushDiskType
from rocketmq_sdk.broker_embedded.store.files.os_files import OsFileSystem
from rocketmq_sdk.broker_embedded.store.messages import Arrival, GetStatus, PutStatus
from rocketmq_sdk.errors import StoreError
from rocketmq_sdk.protocol.batch_codec import encode_batch
from rocketmq_sdk.testing.faulty_files import FaultyFileSystem
from support.broker import open_on
from support.disk import Disk
from support.store import bodies, message, open_store, small_config

if TYPE_CHECKING:
    from pathlib import Path

SYNC = small_config(flush_disk_type=FlushDiskType.SYNC_FLUSH)


async def test_sync_flush_shares_rounds(autojump_clock: trio.testing.MockClock) -> None:
    """Messages that arrive while a sync runs share the next one, and nobody is told
    before theirs.
    """
    disk = Disk()
    heard: list[Arrival] = []
    async with open_store(disk, SYNC) as store:
        assert store.needs_wait
        store.arrivals.append(heard.append)
        disk.delay, disk.waits = 0.010, 0
        statuses: list[tuple[float, PutStatus]] = []

        async def send(count: int) -> None:
            for _ in range(count):
                result = store.put(message())
                assert result.status is PutStatus.PUT_OK
                assert store.flushed.value < result.physical_offset + result.size
                status = await store.wait_durable(result, wait_store_ok=True)
                assert store.flushed.value >= result.physical_offset + result.size
                assert any(arrival.queue_offset == result.queue_offset for arrival in heard)
                statuses.append((trio.current_time(), status))

        with trio.fail_after(5):
            async with trio.open_nursery() as nursery:
                for _ in range(50):
                    nursery.start_soon(send, 4)
        assert len(statuses) == 200
        assert {status for _time, status in statuses} == {PutStatus.PUT_OK}
        assert disk.waits <= 10
        assert [arrival.queue_offset for arrival in heard] == list(range(200))


async def test_the_first_message_of_an_idle_broker_is_soon_durable(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """It waits for no other messages: the last sync of everything is long ago."""
    async with open_on(FaultyFileSystem()) as (broker, _peer):
        store = broker.core.store
        await trio.sleep(3600)
        assert store.put(message()).ok
        before = store.files.read("checkpoint")
        await trio.sleep(2)
        assert store.flushed.value == store.max_physical_offset
        assert store.files.read("checkpoint") != before


async def test_under_sync_flush_a_message_is_visible_when_it_is_durable(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """Queue bounds, reads and arrivals wait; offsets are given out at once; single
    messages and batches alike.
    """
    disk = Disk()
    heard: list[Arrival] = []
    async with open_store(disk, SYNC) as store:
        store.arrivals.append(heard.append)
        disk.delay = 1
        first = store.put(message())
        batch = store.put_batch(message(body=encode_batch([(0, b"a", b""), (0, b"b", b"")])))
        last = store.put(message())
        assert [first.queue_offset, batch.queue_offset, last.queue_offset] == [0, 1, 3]
        assert (store.max_offset("TopicA", 0), store.dispatched.value, heard) == (0, 0, [])
        assert store.get("TopicA", 0, 0, 32).status is GetStatus.NO_MESSAGE_IN_QUEUE
        assert await store.wait_durable(last, wait_store_ok=False) is PutStatus.PUT_OK
        assert heard == []
        with trio.fail_after(10):
            assert await store.wait_durable(last) is PutStatus.PUT_OK
        assert store.max_offset("TopicA", 0) == 4
        assert [arrival.queue_offset for arrival in heard] == [0, 1, 2, 3]
        assert store.dispatched.value == store.max_physical_offset
        disk.delay = 0
    async with open_store(disk, SYNC) as store:
        assert len(bodies(store)) == 4


async def test_a_sync_that_takes_too_long(autojump_clock: trio.testing.MockClock) -> None:
    """FLUSH_DISK_TIMEOUT after the configured time; the message is stored all the
    same.
    """
    disk = Disk()
    async with open_store(disk, SYNC) as store:
        disk.delay = 60
        start = trio.current_time()
        with trio.fail_after(30):
            assert await store.wait_durable(store.put(message())) is PutStatus.FLUSH_DISK_TIMEOUT
        assert trio.current_time() - start == pytest.approx(5)
        disk.delay = 0


@pytest.mark.parametrize("flush", list(FlushDiskType))
async def test_nothing_is_acknowledged_after_a_failed_sync(
    flush: FlushDiskType, autojump_clock: trio.testing.MockClock
) -> None:
    """The waiting sender is refused, later ones at once, the reason is given; the stop
    does not count as clean.
    """
    disk = Disk()
    with trio.fail_after(100):
        async with open_store(
            disk, small_config(flush_disk_type=flush, flush_commit_log_least_pages=0)
        ) as store:
            good = store.put(message(body=b"good"))
            await store.wait_durable(good)
            await store.flush()
            disk.failure = StoreError("commitlog: cannot sync (Input/output error)")
            bad = store.put(message(body=b"bad"))
            assert bad.ok
            if flush is FlushDiskType.SYNC_FLUSH:
                assert await store.wait_durable(bad) is PutStatus.SERVICE_NOT_AVAILABLE
                assert bodies(store) == [b"good"]
            else:
                await trio.sleep(20)
            assert not store.writable
            assert "Input/output error" in (store.failure or "")
            disk.failure = None
            await trio.sleep(20)
            assert store.put(message()).status is PutStatus.SERVICE_NOT_AVAILABLE
            assert (
                store.put_batch(message(body=encode_batch([(0, b"a", b"")]))).status
                is PutStatus.SERVICE_NOT_AVAILABLE
            )
            with pytest.raises(StoreError, match="Input/output"):
                await store.flush()
            if flush is FlushDiskType.SYNC_FLUSH:
                assert await store.wait_durable(bad) is PutStatus.SERVICE_NOT_AVAILABLE
        assert disk.exists("abort")


async def test_async_flush_by_interval(autojump_clock: trio.testing.MockClock) -> None:
    """Every 500 ms when 4 pages gathered, everything after 10 s; an idle store wakes
    nobody.
    """
    disk = Disk()
    async with open_store(disk, small_config(mapped_file_size_commit_log=1 << 20)) as store:
        assert not store.needs_wait
        small = store.put(message())
        assert await store.wait_durable(small) is PutStatus.PUT_OK
        await trio.sleep(2)
        assert store.flushed.value == 0
        store.put(message(body=b"x" * 17_000))
        end = store.max_physical_offset
        await trio.sleep(1.1)
        assert store.flushed.value == end
        store.put(message())
        await trio.sleep(1.1)
        assert store.flushed.value == end
        with trio.fail_after(11):
            assert await store.flushed.wait_reached(store.max_physical_offset)
        disk.waits = 0
        await trio.sleep(70)
        waits = disk.waits
        await trio.sleep(80_000)
        assert disk.waits == waits


async def test_checkpoint(autojump_clock: trio.testing.MockClock) -> None:
    """Written when everything was synced, with the store times of the last messages;
    Apache's layout and length.
    """
    disk = Disk()
    async with open_store(disk) as store:
        result = store.put(message())
        assert disk.read("checkpoint") is None
        await trio.sleep(62)
        data = disk.read("checkpoint")
        assert data is not None
        assert len(data) == 4096
        assert struct.unpack_from(">qq", data) == (result.store_timestamp, result.store_timestamp)
        later = store.put(message())
    data = disk.read("checkpoint")
    assert data is not None
    assert struct.unpack_from(">qqqqq", data) == (
        later.store_timestamp,
        later.store_timestamp,
        0,
        0,
        0,
    )
    # Since Apache 5.5.0: up to which position the queues are complete.
    assert struct.unpack_from(">q", data, 40) == (2 * later.physical_offset,)
    assert not data[48:].strip(b"\0")


async def test_units_without_a_place_stop_writes_until_there_is_one(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """A queue that cannot be written refuses puts and keeps its units; when there is
    space again all goes on.
    """
    disk = Disk()
    async with open_store(disk) as store:
        assert store.put(message(body=b"0")).ok
        limit, disk.limit_bytes = disk.limit_bytes, 0
        await trio.sleep(1.5)
        assert store.put(message()).status is PutStatus.SERVICE_NOT_AVAILABLE
        assert "full" in (store.failure or "")
        assert bodies(store) == [b"0"]
        disk.limit_bytes = limit
        await trio.sleep(1.5)
        assert store.failure is None
        assert store.put(message(body=b"1")).ok
    async with open_store(disk) as store:
        assert bodies(store) == [b"0", b"1"]


async def test_appends_of_a_turn_are_handed_over_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between `begin` and `end` one write carries all messages, and it is done when
    `end` returns; before and behind it each has its own.
    """
    calls: list[int] = []
    pwrite = os.pwrite

    def count(descriptor: int, data: bytes, offset: int) -> int:
        calls.append(len(data))
        return pwrite(descriptor, data, offset)

    files = OsFileSystem(tmp_path)
    async with open_store(files, small_config(mapped_file_size_commit_log=1 << 20)) as store:
        store.put(message())
        monkeypatch.setattr(os, "pwrite", count)
        store.begin()
        results = [store.put(message()) for _ in range(20)]
        assert calls == []
        assert store.record_at(results[-1].physical_offset) is not None
        store.end()
        assert calls == [sum(result.size for result in results)]
        written = files.read("commitlog/00000000000000000000")
        last = store.put(message())
        assert calls[1:] == [last.size]
        assert written is not None
        assert written[results[0].physical_offset :][: calls[0]] == b"".join(
            store.record_at(r.physical_offset) or b"" for r in results
        )


async def test_a_turn_whose_write_fails_is_told_and_ends_the_taking_of_messages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_store(
        OsFileSystem(tmp_path), small_config(mapped_file_size_commit_log=1 << 20)
    ) as store:
        store.put(message())
        store.begin()
        assert store.put(message()).ok

        def fail(_descriptor: int, _data: bytes, _offset: int) -> int:
            raise OSError(5, "Input/output error")

        with monkeypatch.context() as patch:
            patch.setattr(os, "pwrite", fail)
            with pytest.raises(StoreError):
                store.end()
        assert not store.put(message()).ok


@pytest.mark.real_time
async def test_syncs_run_in_threads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Never on the loop: it answers while a sync hangs."""
    main = threading.get_ident()
    seen: set[int] = set()
    release = threading.Event()

    def hang(_files: OsFileSystem, _descriptor: int) -> None:
        seen.add(threading.get_ident())
        release.wait(10)

    with trio.fail_after(60):
        async with open_store(OsFileSystem(tmp_path), SYNC) as store:
            # The very first file of a log is synced where it is made.
            assert await store.wait_durable(store.put(message())) is PutStatus.PUT_OK
            flushed = store.flushed.value
            monkeypatch.setattr(OsFileSystem, "sync_descriptor", hang)
            result = store.put(message())
            while not seen:
                await trio.sleep(0.001)
            assert store.put(message()).ok
            assert store.flushed.value == flushed
            release.set()
            assert await store.wait_durable(result) is PutStatus.PUT_OK
    assert main not in seen


async def test_a_log_that_begins_behind_zero_without_a_file_is_flushed(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """As that of a new slave, between the first word of its master and the first
    file.
    """
    disk = Disk()
    async with open_store(disk, SYNC) as store:
        store._log.start_at(8192)
        await store.flush()
        assert store.flushed.value == 8192
        result = store.put(message())
        assert result.physical_offset == 8192
        assert await store.wait_durable(result) is PutStatus.PUT_OK
    async with open_store(disk, SYNC) as store:
        assert store.min_physical_offset == 8192
        assert bodies(store) == [b"hello"]
