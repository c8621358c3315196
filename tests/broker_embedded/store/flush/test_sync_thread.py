"""SYNC_FLUSH on a disk: the thread that syncs, what it covers, how it fails and ends;
who is told without a task.
"""

from __future__ import annotations

import threading
from functools import partial
from typing import TYPE_CHECKING

import pytest
import trio
import trio.testing

from rocketmq_sdk.broker_embedded.store.config import FlushDiskType
from rocketmq_sdk.broker_embedded.store.files.memory_files import MemoryFileSystem
from rocketmq_sdk.broker_embedded.store.files.os_files import OsFileSystem
from rocketmq_sdk.broker_embedded.store.flush.durable_waiters import DurableWaiters
from rocketmq_sdk.broker_embedded.store.flush.sync_thread import SyncRound, SyncThread
from rocketmq_sdk.broker_embedded.store.messages import PutResult, PutStatus
from rocketmq_sdk.clock import TrioClock
from rocketmq_sdk.errors import StoreError
from support.disk import Disk
from support.store import bodies, message, open_store, small_config
from support.waiting import until

if TYPE_CHECKING:
    from pathlib import Path

SYNC = small_config(mapped_file_size_commit_log=1 << 20, flush_disk_type=FlushDiskType.SYNC_FLUSH)
PATIENCE = 60
NAME = "rocketmq log sync"


soon = partial(until, seconds=PATIENCE, step=0.002)


class Gate:
    """Stands in for the syncs of the log's thread: counts, waits, fails."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.open = threading.Event()
        self.open.set()
        self.threads: list[int] = []
        self.failure: BaseException | None = None
        self.running = self.most = 0
        sync_descriptor = OsFileSystem.sync_descriptor

        def sync(files: OsFileSystem, descriptor: int) -> None:
            if threading.current_thread().name != NAME:  # the queues, the next file
                sync_descriptor(files, descriptor)
                return
            self.threads.append(threading.get_ident())
            self.running += 1
            self.most = max(self.most, self.running)
            try:
                assert self.open.wait(PATIENCE)
                if self.failure is not None:
                    raise self.failure
                sync_descriptor(files, descriptor)
            finally:
                self.running -= 1

        monkeypatch.setattr(OsFileSystem, "sync_descriptor", sync)


@pytest.mark.real_time
async def test_one_thread_syncs_and_a_round_covers_what_waited(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = Gate(monkeypatch)
    told: list[tuple[int, PutStatus, bool, bool, int]] = []
    with trio.fail_after(PATIENCE):
        async with open_store(OsFileSystem(tmp_path), SYNC) as store:
            gate.open.clear()
            gate.threads.clear()

            def put(number: int) -> PutResult:
                result = store.put(message())

                def tell(status: PutStatus) -> None:
                    durable = store.flushed.value >= result.physical_offset + result.size
                    visible = store.max_offset("TopicA", 0) > result.queue_offset
                    told.append((number, status, durable, visible, threading.get_ident()))

                store.when_durable(result, tell)
                return result

            store.begin()
            put(0)
            store.end()
            await soon(lambda: len(gate.threads) == 1)
            for number in range(1, 40):
                store.begin()
                put(number)
                store.end()
            assert told == []
            assert len(gate.threads) == 1
            gate.open.set()
            await soon(lambda: len(told) == 40)
            assert told == [
                (number, PutStatus.PUT_OK, True, True, threading.get_ident())
                for number in range(40)
            ]
            assert len(gate.threads) == 2
            assert len(set(gate.threads)) == 1
            # outside of a turn, with a task that waits
            assert await store.wait_durable(store.put(message())) is PutStatus.PUT_OK
            assert len(set(gate.threads)) == 1
            late = store.put(message())
            await store.flush()
            assert store.flushed.value == late.physical_offset + late.size
            answers: list[PutStatus] = []
            store.when_durable(late, answers.append)
            assert answers == [PutStatus.PUT_OK]
            assert gate.most == 1
    assert NAME not in {thread.name for thread in threading.enumerate()}
    async with open_store(OsFileSystem(tmp_path), SYNC) as store:
        assert store.started_clean
        assert len(bodies(store)) == 42


@pytest.mark.real_time
@pytest.mark.parametrize("in_turn", [False, True])
async def test_a_failed_sync_of_the_thread_ends_writing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, in_turn: bool
) -> None:
    """Everybody who waits is refused, nothing more is synced, what is unsure is noted
    for the next start.
    """
    gate = Gate(monkeypatch)
    told: list[PutStatus] = []
    with trio.fail_after(PATIENCE):
        async with open_store(OsFileSystem(tmp_path), SYNC) as store:
            assert await store.wait_durable(store.put(message(body=b"good"))) is PutStatus.PUT_OK
            gate.failure = StoreError("commitlog: cannot sync (Input/output error)")
            if in_turn:
                store.begin()
            bad = store.put(message(body=b"bad"))
            store.when_durable(bad, told.append)
            if in_turn:
                store.end()
            assert await store.wait_durable(bad) is PutStatus.SERVICE_NOT_AVAILABLE
            assert told == [PutStatus.SERVICE_NOT_AVAILABLE]
            gate.failure = None
            syncs = len(gate.threads)
            assert store.put(message()).status is PutStatus.SERVICE_NOT_AVAILABLE
            store.when_durable(bad, told.append)
            assert told == [PutStatus.SERVICE_NOT_AVAILABLE] * 2
            assert bodies(store) == [b"good"]
            await soon(lambda: any(path.name.startswith("unsynced") for path in tmp_path.iterdir()))
            assert len(gate.threads) == syncs
            with pytest.raises(StoreError, match="Input/output"):
                await store.flush()
    assert (tmp_path / "abort").exists()


@pytest.mark.real_time
async def test_an_error_behind_a_sync_is_raised_by_the_store(tmp_path: Path) -> None:
    """What goes wrong in the loop's callback neither ends trio nor is lost."""

    def broken(_status: PutStatus) -> None:
        raise ValueError("a bug")

    async def live() -> None:
        async with open_store(OsFileSystem(tmp_path), SYNC) as store:
            store.when_durable(store.put(message()), broken)
            await trio.sleep_forever()

    with trio.fail_after(PATIENCE), pytest.raises(ValueError, match="a bug"):
        await live()


@pytest.mark.real_time
async def test_the_newest_round_stands_for_those_before_it() -> None:
    ran: list[int] = []
    done: list[tuple[int, BaseException | None]] = []
    begun, go = threading.Event(), threading.Event()

    def job(number: int) -> SyncRound:
        def sync() -> None:
            ran.append(number)
            begun.set()
            assert go.wait(PATIENCE)
            if number == 9:
                raise StoreError("nine")

        return SyncRound(number, 0, sync)

    with trio.fail_after(PATIENCE):
        thread = SyncThread(
            MemoryFileSystem(), lambda sync_round, error: done.append((sync_round.target, error))
        )
        thread.submit(job(1))
        await soon(begun.is_set)
        for number in (2, 3, 4):
            thread.submit(job(number))
        go.set()
        await soon(lambda: len(done) == 2)
        assert ran == [1, 4]
        thread.submit(job(9))
        await soon(lambda: len(done) == 3)
        thread.submit(job(10))
        await thread.aclose()
        await trio.testing.wait_all_tasks_blocked()
    assert ran == [1, 4, 9]
    assert [target for target, _error in done] == [1, 4, 9]
    assert isinstance(done[2][1], StoreError)


async def test_one_timer_serves_all_waiters(autojump_clock: trio.testing.MockClock) -> None:
    """Each is told once: in time, too late at its own deadline, or that it never will
    be.
    """
    told: list[tuple[str, PutStatus, float]] = []
    waiters = DurableWaiters(TrioClock(), 5)

    def ask(name: str, position: int) -> None:
        waiters.add(
            position, lambda status: told.append((name, status, trio.current_time() - start))
        )

    async with trio.open_nursery() as nursery:
        start = trio.current_time()
        nursery.start_soon(waiters.run)
        await trio.sleep(100)
        ask("a", 10)
        await trio.sleep(1)
        ask("b", 20)
        await trio.sleep(1)
        ask("c", 30)
        waiters.reached(9)
        assert told == []
        waiters.reached(10)
        assert told == [("a", PutStatus.PUT_OK, 102)]
        await trio.sleep(3.5)
        assert told[1:] == []
        await trio.sleep(0.6)
        assert [told[1][:2], told[1][2]] == [
            ("b", PutStatus.FLUSH_DISK_TIMEOUT),
            pytest.approx(106),
        ]
        ask("d", 40)
        await trio.sleep(10)
        assert [(name, status) for name, status, _time in told[2:]] == [
            ("c", PutStatus.FLUSH_DISK_TIMEOUT),
            ("d", PutStatus.FLUSH_DISK_TIMEOUT),
        ]
        assert [time for _name, _status, time in told[2:]] == [
            pytest.approx(107),
            pytest.approx(111.1),
        ]
        ask("e", 50)
        waiters.fail()
        assert told[-1][:2] == ("e", PutStatus.SERVICE_NOT_AVAILABLE)
        assert len(waiters) == 0
        nursery.cancel_scope.cancel()


async def test_a_sender_without_a_task_is_told_of_a_slow_disk(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """The same way on files in memory: FLUSH_DISK_TIMEOUT at its time, and once
    only.
    """
    disk = Disk()
    told: list[tuple[PutStatus, float]] = []
    async with open_store(disk, SYNC) as store:
        disk.delay = 60
        start = trio.current_time()
        store.when_durable(
            store.put(message()), lambda status: told.append((status, trio.current_time() - start))
        )
        await trio.sleep(80)
        assert told == [(PutStatus.FLUSH_DISK_TIMEOUT, pytest.approx(5))]
        disk.delay = 1
        result = store.put(message())
        store.when_durable(
            result, lambda status: told.append((status, trio.current_time() - start))
        )
        await trio.sleep(5)
        assert told[1] == (PutStatus.PUT_OK, pytest.approx(81))
        disk.delay = 0
