"""What is wrong with a broker that goes on all the same, in words."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest
import trio

from rocketmq_sdk.broker_embedded.store.files.memory_files import MemoryFileSystem
from rocketmq_sdk.errors import StoreFullError
from rocketmq_sdk.testing.faults import Operation
from rocketmq_sdk.testing.faulty_files import FaultyFile, FaultyFileSystem
from support.broker import open_on, send_request

if TYPE_CHECKING:
    from trio.testing import MockClock


@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
async def test_a_sync_that_does_not_end_is_told_with_what_a_power_cut_would_lose(
    flush: str, autojump_clock: MockClock
) -> None:
    files = FaultyFileSystem()
    async with open_on(files, flush_disk_type=flush) as (broker, peer):
        await peer.send("orders", b"1")
        await trio.sleep(2)
        assert broker.health().reasons == ()
        files.faults.slow(Operation.SYNC, "commitlog/*", delay=30, times=1)
        request = send_request("orders", b"x" * 1000, queue_id=0)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(peer.ask, request)
            await trio.sleep(18)  # without SYNC_FLUSH the sync begins within ten seconds
            (reason,) = broker.health().reasons
            assert broker.health().taking_messages
            assert reason.startswith("a sync of the log goes on for ")
            assert 1000 < int(reason.split()[-4]) < 2000
        await trio.sleep(40)
        assert broker.health().reasons == ()


@pytest.mark.real_time
@pytest.mark.parametrize(("step", "told"), [(86_400, "forward by 86,4"), (-7200, "back by 7,")])
async def test_a_clock_that_was_set_since_the_start_is_told(
    step: int, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = time.time
    async with open_on(MemoryFileSystem()) as (broker, _peer):
        assert broker.health().reasons == ()
        with monkeypatch.context() as patch:
            patch.setattr(time, "time", lambda: now() + step)
            (reason,) = broker.health().reasons
            assert told in reason
            assert "start it again" in reason
        assert broker.health().reasons == ()


async def test_timers_that_are_late_are_told(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    files, full, pwrite = FaultyFileSystem(), False, FaultyFile.pwrite

    def fail(self: FaultyFile, data: bytes, offset: int) -> None:
        if full and self.path.startswith("commitlog"):
            raise StoreFullError(f"{self.path}: no space to write")
        pwrite(self, data, offset)

    monkeypatch.setattr(FaultyFile, "pwrite", fail)
    async with open_on(files) as (broker, peer):
        now = broker.core.clock.now_ms()
        for due in (5000, 8000):  # the first one is in the log, though not on the disk
            await peer.send("orders", b"1", properties=f"TIMER_DELIVER_MS\x01{now + due}\x02")
        await trio.sleep(3)
        full = True
        await trio.sleep(30)
        health = broker.health()
        assert not health
        assert "no space" in health.reasons[0]
        assert any("the timer service waits: messages come 2" in text for text in health.reasons), (
            health
        )
        full = False
        await trio.sleep(10)
        assert broker.health().reasons == ()
