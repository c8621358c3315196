"""Faces of a test broker in a thread."""

from __future__ import annotations

import asyncio
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING

import pytest

from rocketmq_sdk.testing import (
    AsyncioBroker,
    AsyncioCluster,
    BlockingBroker,
    BlockingCluster,
    BrokerThread,
    ClusterThread,
    WaitTimeoutError,
)
from rocketmq_sdk.testing.real import BlockingRealBroker, RealBroker

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

pytestmark = pytest.mark.real_time
LONG = 20.0


async def given_up(broker: AsyncioBroker) -> None:
    task = asyncio.create_task(broker.wait.stored("orders", within=LONG))
    await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def given_up_before_it_began(broker: AsyncioBroker) -> None:
    task = asyncio.create_task(broker.wait.stored("orders", within=LONG))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def overdue(broker: AsyncioBroker) -> None:
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(broker.wait.stored("orders", within=LONG), 0.01)


async def left_alone(broker: AsyncioBroker) -> None:
    waiting = asyncio.create_task(broker.wait.stored("orders", within=LONG))
    await asyncio.sleep(0.01)
    assert not waiting.done()


@pytest.mark.parametrize("way", [given_up, given_up_before_it_began, overdue, left_alone])
def test_a_wait_that_is_given_up_holds_up_nobody(
    way: Callable[[AsyncioBroker], Awaitable[None]],
) -> None:
    async def within_a_while(broker: AsyncioBroker) -> None:
        await way(broker)
        assert await broker.wait.dead_letter("billing", 0) == []  # it can be used again

    with BrokerThread() as thread:
        began = time.monotonic()
        asyncio.run(within_a_while(AsyncioBroker(thread)))
        assert time.monotonic() - began < LONG / 2


def test_a_wait_that_ends_in_time_tells_what_was_there() -> None:
    async def waits(broker: AsyncioBroker) -> None:
        with pytest.raises(WaitTimeoutError, match="there is no topic 'orders'"):
            await broker.wait.stored("orders", within=0.01)

    with BrokerThread() as thread:
        asyncio.run(waits(AsyncioBroker(thread)))


def test_what_needs_the_network_in_memory_is_told() -> None:
    with BrokerThread() as thread, ClusterThread(masters=1) as cluster:
        faces = (
            BlockingBroker(thread),
            AsyncioBroker(thread),
            BlockingCluster(cluster),
            AsyncioCluster(cluster),
        )
        for face in faces:
            for name in ("party", "network"):
                with pytest.raises(AttributeError, match="on trio: parties and cuts are of its"):
                    getattr(face, name)
            with pytest.raises(AttributeError, match=r"no attribute 'partie'$"):
                face.partie  # type: ignore[attr-defined]  # noqa: B018


def test_a_condition_of_plain_code_may_ask_the_broker() -> None:
    with BrokerThread() as thread:
        broker = BlockingBroker(thread)
        here: set[int] = set()

        def begun() -> bool:
            here.add(threading.get_ident())
            if broker.running:
                broker.kill()
                return False
            broker.sent("orders")  # does not hold while the broker is stopped
            return True

        with pytest.raises(WaitTimeoutError, match=r"waited 0\.05 s for a start, but <TestBroker"):
            broker.wait.until(begun, "a start", within=0.05)
        assert here == {threading.get_ident()}
        broker.start()
        broker.wait.until(lambda: broker.sent("orders") == [], "nothing")


async def asks_in_vain(broker: AsyncioBroker) -> None:
    await broker.kill()
    with pytest.raises(WaitTimeoutError, match=r"waited 0\.05 s for orders, but <TestBroker"):
        await broker.wait.until(lambda: broker.sent("orders"), "orders", within=0.05)


def test_a_condition_in_asyncio_does_not_hold_while_the_broker_is_stopped() -> None:
    with BrokerThread() as thread:
        asyncio.run(asks_in_vain(AsyncioBroker(thread)))


async def all_wait_for_one(broker: AsyncioBroker) -> None:
    """More than the loop's executor has threads."""
    loop = asyncio.get_running_loop()
    loop.set_default_executor(ThreadPoolExecutor(2))
    waits = [asyncio.create_task(broker.wait.stored("orders", within=LONG)) for _ in range(4)]
    await asyncio.sleep(0.05)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(broker.wait.stored("bills", within=LONG), 0.01)
    await broker.seed(messages={"orders": ["1"]})
    assert [len(found) for found in await asyncio.gather(*waits)] == [1, 1, 1, 1]


def test_waits_in_asyncio_leave_room_for_what_they_wait_for() -> None:
    with BrokerThread() as thread:
        began = time.monotonic()
        asyncio.run(all_wait_for_one(AsyncioBroker(thread)))
        assert time.monotonic() - began < LONG / 2


def test_ctrl_c_ends_a_wait_for_a_real_cluster() -> None:
    with BrokerThread() as thread:
        broker = BlockingRealBroker(RealBroker(BlockingBroker(thread).namesrv_address))
        interrupt = partial(signal.pthread_kill, threading.get_ident(), signal.SIGINT)
        began = time.monotonic()
        timer = threading.Timer(0.2, interrupt)
        timer.start()
        with pytest.raises(KeyboardInterrupt):
            broker.wait.stored("orders", within=LONG)
        timer.join()
        assert time.monotonic() - began < LONG / 2
