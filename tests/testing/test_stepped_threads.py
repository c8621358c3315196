"""Threads that take turns with the loop."""

from __future__ import annotations

import threading
from contextlib import suppress
from queue import Empty
from typing import TYPE_CHECKING

import pytest
import trio

from rocketmq_sdk.broker_embedded.store.config import StoreConfig
from rocketmq_sdk.broker_embedded.store.message_store import MessageStore
from rocketmq_sdk.errors import StoreError
from rocketmq_sdk.testing.faults import Operation
from rocketmq_sdk.testing.faulty_files import FaultyFileSystem
from rocketmq_sdk.testing.simulation.seeded import seeded
from rocketmq_sdk.testing.stepped_threads import Abandoned, SteppedThread
from support.greenlet_turns import greenlets
from support.seeded import VirtualClock
from support.store import STORE_HOST, message

if TYPE_CHECKING:
    from trio.testing import MockClock

    from rocketmq_sdk.broker_embedded.store.files.file_system import Mailbox


def test_a_thread_runs_only_when_it_may() -> None:
    steps: list[str] = []

    def work() -> int:
        steps.append("first")
        thread.pause()
        steps.append("second")
        thread.pause(2.5)
        return 7

    thread = SteppedThread("test", work)
    assert steps == []
    assert thread.advance() == 0.0
    assert steps == ["first"]
    assert thread.advance() == 2.5
    assert not thread.ended
    thread.advance()
    assert (thread.ended, thread.result()) == (True, 7)


def test_what_a_thread_raises_is_raised_and_an_abandoned_one_ends() -> None:
    def fails() -> None:
        raise StoreError("bad")

    thread = SteppedThread("test", fails)
    thread.advance()
    with pytest.raises(StoreError, match="bad"):
        thread.result()
    never = SteppedThread("test never", lambda: never.pause())
    never.advance()
    never.abandon()
    with pytest.raises(Abandoned):
        never.result()
    SteppedThread("test unused", fails).abandon()
    with greenlets():
        never = SteppedThread("test never", lambda: never.pause())
        never.advance()
        never.abandon()
        SteppedThread("test unused", fails).abandon()
    with pytest.raises(Abandoned):
        never.result()
    assert not [each for each in threading.enumerate() if each.name.startswith("test")]


async def story(seed: int) -> list[str]:
    """What a thread and a task do, in the order in which they do it."""
    files = FaultyFileSystem(seed)
    order: list[str] = []

    def operation() -> None:
        for number in range(4):
            files.write(f"file{number}", b"x")
            order.append(f"thread {number}")

    async def task() -> None:
        for number in range(12):
            order.append(f"task {number}")
            await trio.lowlevel.checkpoint()

    with seeded(seed):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(task)
            nursery.start_soon(files.run, operation)
    return order


async def test_a_seed_chooses_how_threads_and_tasks_interleave() -> None:
    orders = [await story(seed) for seed in range(20)]
    assert [await story(seed) for seed in range(20)] == orders
    assert len({tuple(order) for order in orders}) > 10
    with greenlets():
        assert [await story(seed) for seed in range(20)] == orders


async def test_greenlets_do_to_a_store_what_threads_do(autojump_clock: MockClock) -> None:
    """Each byte, in the same order; the crash suite takes greenlets."""

    async def written(seed: int) -> list[tuple[str, bytes, int]]:
        files, log = FaultyFileSystem(seed, blocking=True), list[tuple[str, bytes, int]]()
        files.on_write = lambda path, data, offset: log.append((path, data, offset))
        files.cut_at = 150
        with seeded(seed), suppress(StoreError):
            async with MessageStore(StoreConfig(), files, VirtualClock(), STORE_HOST) as store:
                for number in range(100):
                    await store.wait_durable(store.put(message(body=b"%d" % number)))
                    await store.flush()
        log.append(("operations", b"", files.operations))
        return log

    for seed in range(3):
        by_threads = await written(seed)
        assert by_threads[-1] == ("operations", b"", 150)
        with greenlets():
            assert await written(seed) == by_threads


async def test_a_long_thread_is_handed_work_until_it_ends(autojump_clock: MockClock) -> None:
    files = FaultyFileSystem(1)
    files.write("file", b"x")
    files.faults.slow(Operation.READ, delay=1)
    found: list[object] = []

    def work(mailbox: Mailbox) -> None:
        while "end" not in found:
            found.append(mailbox.get())
            files.read("file")
            try:
                found.append(mailbox.get_nowait())
            except Empty:
                found.append("nothing")

    mailbox, join = files.start_thread("worker", work)
    await trio.sleep(5)
    mailbox.put("a")
    await trio.sleep(0.5)
    assert found == ["a"]
    mailbox.put("b")
    await trio.sleep(5)
    assert found == ["a", "b"]
    mailbox.put("c")
    mailbox.put("end")
    began = trio.current_time()
    with trio.move_on_after(0.1):
        await join()
    assert found == ["a", "b", "c", "end"]
    assert trio.current_time() - began == 1
