"""The trio thread of a process: results, errors, interruptions, feeds, forks, and what
it keeps.
"""

from __future__ import annotations

import os
import threading
import time
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest
import trio

from rocketmq_sdk.errors import RequestTimeoutError
from rocketmq_sdk.spark.cluster import bridge

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from trio.testing import MockClock

pytestmark = pytest.mark.real_time


async def name_of_the_thread() -> str:
    await trio.lowlevel.checkpoint()
    return threading.current_thread().name


def test_functions_run_in_one_thread_of_the_process() -> None:
    assert {bridge.run(name_of_the_thread) for _ in range(3)} == {"rocketmq-trio"}
    assert [thread.name for thread in threading.enumerate()].count("rocketmq-trio") == 1


def test_errors_reach_the_caller_as_themselves() -> None:
    async def fail() -> None:
        raise LookupError("no such thing")

    with pytest.raises(LookupError, match="no such thing"):
        bridge.run(fail)


def test_a_timeout_cancels_the_function() -> None:
    cancelled = threading.Event()

    async def wait() -> None:
        try:
            await trio.sleep_forever()
        finally:
            cancelled.set()

    with pytest.raises(RequestTimeoutError, match="wait took longer than"):
        bridge.run(wait, timeout=0.05)
    assert cancelled.wait(10)


def test_threads_do_not_wait_for_each_other() -> None:
    first, second = threading.Event(), threading.Event()

    async def meet(mine: threading.Event, other: threading.Event) -> None:
        mine.set()
        while not other.is_set():
            await trio.sleep(0.001)

    thread = threading.Thread(target=bridge.run, args=(meet, first, second))
    thread.start()
    bridge.run(meet, second, first, timeout=30)
    thread.join(30)
    assert not thread.is_alive()


async def numbers(put: Callable[[int], Awaitable[None]], count: int, ends: list[str]) -> None:
    try:
        for number in range(count):
            await put(number)
    finally:
        ends.append("ended")


def test_a_feed_gives_everything_in_order() -> None:
    ends: list[str] = []
    with bridge.Feed[int](numbers, 100, ends, ahead=3) as feed:
        assert list(feed) == list(range(100))
    assert ends == ["ended"]


def test_leaving_a_feed_early_ends_its_producer() -> None:
    ends: list[str] = []
    with bridge.Feed[int](numbers, 100, ends) as feed:
        assert next(iter(feed)) == 0
    assert ends == ["ended"]


def test_an_error_comes_behind_the_items_before_it() -> None:
    async def two_and_an_error(put: Callable[[int], Awaitable[None]]) -> None:
        await put(1)
        await put(2)
        raise LookupError("the third")

    got: list[int] = []
    with pytest.raises(LookupError, match="the third"), bridge.Feed[int](two_and_an_error) as feed:
        got.extend(feed)
    assert got == [1, 2]


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_process_has_a_thread_of_its_own() -> None:
    """Spark's daemon forks; a child must not wait for a thread that only the parent
    has.
    """
    bridge.run(name_of_the_thread)
    read, write = os.pipe()
    child = os.fork()
    if child == 0:  # nothing of the test's may run in the child
        try:
            os.write(write, bridge.run(name_of_the_thread).encode())
        finally:
            os._exit(0)
    os.close(write)
    with os.fdopen(read) as answer:
        assert answer.read() == "rocketmq-trio"
    os.waitpid(child, 0)


def test_an_interruption_cancels_the_function(monkeypatch: pytest.MonkeyPatch) -> None:
    cancelled = threading.Event()

    async def wait() -> None:
        try:
            await trio.sleep_forever()
        finally:
            cancelled.set()

    def interrupted(_future: object, _timeout: float | None = None) -> None:
        time.sleep(0)
        raise KeyboardInterrupt

    monkeypatch.setattr("concurrent.futures.Future.result", interrupted)
    with pytest.raises(KeyboardInterrupt):
        bridge.run(wait)
    monkeypatch.undo()
    assert cancelled.wait(30)


class Opened:
    """Resources that were opened and closed."""

    def __init__(self) -> None:
        self.opened: list[str] = []
        self.closed: list[str] = []

    def opener(self, name: str) -> Callable[[], object]:
        @asynccontextmanager
        async def open_one() -> AsyncIterator[str]:
            self.opened.append(name)
            yield name
            self.closed.append(name)

        return open_one


async def test_a_resource_is_opened_once_and_closed_when_idle(autojump_clock: MockClock) -> None:
    made = Opened()
    async with trio.open_nursery() as nursery:
        cache = bridge.Cache(nursery)
        nursery.start_soon(cache.close_idle)
        for _ in range(3):
            async with cache.lease("a", made.opener("a")) as value:  # type: ignore[arg-type]
                assert value == "a"
                await trio.sleep(2 * bridge.IDLE_SECONDS)
        assert (made.opened, made.closed, len(cache)) == (["a"], [], 1)
        await trio.sleep(1.5 * bridge.IDLE_SECONDS)
        assert (made.closed, len(cache)) == (["a"], 0)
        nursery.cancel_scope.cancel()


async def test_no_more_are_kept_than_the_cache_holds(autojump_clock: MockClock) -> None:
    made = Opened()
    async with trio.open_nursery() as nursery:
        cache = bridge.Cache(nursery)
        for number in range(bridge.MOST_CACHED + 2):
            async with cache.lease(number, made.opener(str(number))):  # type: ignore[arg-type]
                await trio.sleep(1)
        await trio.testing.wait_all_tasks_blocked()
        assert (made.closed, len(cache)) == (["0", "1"], bridge.MOST_CACHED)
        nursery.cancel_scope.cancel()


async def test_what_could_not_be_opened_is_tried_again(autojump_clock: MockClock) -> None:
    tries: list[int] = []

    @asynccontextmanager
    async def opener() -> AsyncIterator[str]:
        tries.append(len(tries))
        if len(tries) == 1:
            raise LookupError("not yet")
        yield "there"

    async with trio.open_nursery() as nursery:
        cache = bridge.Cache(nursery)
        with pytest.raises(LookupError):
            async with cache.lease("a", opener):
                pass
        async with cache.lease("a", opener) as value:
            assert value == "there"
        nursery.cancel_scope.cancel()
