"""A lone sender of a door looks at the socket itself, and each of its sends ends.

Those of trio: `remoting/test_caller_stream.py`.
"""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import threading
import time
import warnings
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest

from rocketmq_sdk import (
    ConnectError,
    ConsumeFrom,
    Message,
    ReceivedMessage,
    SendTimeout,
    WrongRunError,
    aio,
    sync,
)
from rocketmq_sdk.remoting import caller_stream, served_stream
from rocketmq_sdk.remoting.caller_stream import CallerStream
from rocketmq_sdk.testing.threads import BlockingBroker, BrokerThread
from support.asyncio_run import run
from support.doors import DOORS, DoorUnderTest
from support.spinning import Hasty, Never, Patient
from support.waiting import plain_until

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator

pytestmark = pytest.mark.real_time
OTHERS = [door for door in DOORS if door.name != "trio"]


@pytest.fixture(scope="module")
def serving() -> Iterator[BlockingBroker]:
    with BrokerThread() as thread:
        yield BlockingBroker(thread)


@pytest.fixture
def broker(serving: BlockingBroker) -> Iterator[BlockingBroker]:
    serving.reset()
    yield serving
    if not serving.running:
        serving.start()


@pytest.fixture(params=[False, True], ids=["asleep", "spinning"], autouse=True)
def spinning(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether a lone sender looks for its answer for long, or never."""
    monkeypatch.setattr(caller_stream, "Spinning", Hasty if request.param else Never)
    return bool(request.param)


@pytest.fixture
def own_reads(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """One entry for each read by a caller instead of the reader."""
    reads, read = list[int](), CallerStream.read_now

    def counted(channel: CallerStream) -> bool:
        reads.append(channel.channel_id)
        return read(channel)

    monkeypatch.setattr(CallerStream, "read_now", counted)
    return reads


@pytest.fixture(params=OTHERS, ids=lambda door: door.name)
def door(request: pytest.FixtureRequest) -> DoorUnderTest:
    found: DoorUnderTest = request.param
    return found


def when_asked(broker: BlockingBroker, fault: Any, act: Callable[[], object]) -> threading.Thread:
    """A thread that does something when a request has met a fault."""

    def wait_and_act() -> None:
        plain_until(lambda: fault.hits)
        act()

    thread = threading.Thread(target=wait_and_act)
    thread.start()
    return thread


async def side_by_side(door: DoorUnderTest, *calls: Callable[[], Coroutine[Any, Any, Any]]) -> None:
    """Make calls at the same time."""
    if door.name == "aio":
        await asyncio.gather(*(call() for call in calls))
    else:

        def plain(call: Callable[[], Coroutine[Any, Any, Any]]) -> None:
            with suppress(StopIteration):
                call().send(None)

        with ThreadPoolExecutor(len(calls)) as pool:
            list(pool.map(plain, calls))


async def _each_end(door: DoorUnderTest, broker: BlockingBroker, spinning: bool) -> None:
    at = broker.namesrv_address
    async with door.Producer("shop", namesrv=at, retry_times=0, send_timeout=30) as producer:

        async def send(**how: Any) -> Any:
            return await producer.send(Message("orders", b"x"), key=1, **how)

        results = [await send() for _ in range(20)]
        assert [result.queue_offset for result in results] == list(range(20))
        with broker.faults.on("send", times=1).delay(0.02, served=True):
            assert (await send()).queue_offset == 20
        with (
            broker.faults.on("send", times=1).drop_answer(),
            pytest.raises(SendTimeout) as late,
        ):
            await send(timeout=0.1)
        assert late.value.outcome_unknown
        assert (await send()).queue_offset == 22
        with (
            broker.faults.on("send", times=1).close_connection(served=True),
            pytest.raises(ConnectError) as closed,
        ):
            await send()
        assert closed.value.outcome_unknown
        assert (await send()).queue_offset == 24
        with broker.faults.on("send").drop_request() as fault:
            thread = when_asked(broker, fault, broker.kill)
            with pytest.raises(ConnectError) as killed:
                await send()
            assert killed.value.outcome_unknown
            thread.join()
        assert producer.in_flight == 0
        broker.start()
        for _ in range(3):
            assert (await producer.send(Message("again", b"x"), timeout=60)).queue_offset >= 0


def test_answers_that_are_late_or_never_come_and_ends_of_the_connection(
    door: DoorUnderTest, broker: BlockingBroker, spinning: bool, own_reads: list[int]
) -> None:
    door.run(_each_end, broker, spinning)
    assert spinning == bool(own_reads)


async def _beside_others(door: DoorUnderTest, broker: BlockingBroker) -> None:
    at = broker.namesrv_address
    seen: list[bytes] = []

    def listener(message: ReceivedMessage) -> None:
        seen.append(message.body)

    async with (
        door.Client(at) as client,
        door.Producer("shop", client=client) as producer,
        door.Producer("other", namesrv=at) as other,
    ):

        async def send(by: Any, name: str) -> None:
            for number in range(40):
                await by.send(Message("orders", f"{name}{number}".encode()))

        await send(producer, "a")
        async with door.PushConsumer(
            "g",
            client=client,  # so that lone senders read what is for it
            subscriptions={"orders": "*"},
            listener=door.function(listener),
            consume_from=ConsumeFrom.FIRST_OFFSET,
        ):
            await side_by_side(
                door,
                lambda: send(producer, "b"),
                lambda: send(other, "c"),  # alone, too, at a connection of its own
                lambda: send(producer, "d"),  # sometimes alone
            )
            await send(producer, "e")
            await door.until(lambda: len(seen) == 200)
    assert len(set(seen)) == 200


def test_lone_senders_beside_each_other_and_beside_listeners(
    door: DoorUnderTest, broker: BlockingBroker
) -> None:
    door.run(_beside_others, broker)


async def _in_asyncio(broker: BlockingBroker, producer: aio.Producer) -> int:
    turns = 0
    fault = broker.faults.on("send", times=1).delay(0.05, served=True)
    sending = asyncio.create_task(producer.send(Message("orders", b"given up")))
    while not fault.hits:
        await asyncio.sleep(0)
        turns += 1
    sending.cancel()
    with pytest.raises(asyncio.CancelledError):
        await sending
    broker.faults.on("send", times=1).drop_answer()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await producer.send(Message("orders", b"given up"))
    return turns


class InterruptedByTestError(Exception):
    """What a handler of a signal raises."""


def _in_a_thread(broker: BlockingBroker, producer: sync.Producer) -> int:
    def handler(_number: int, _frame: object) -> None:
        raise InterruptedByTestError

    def kick() -> None:
        turns.append(1)
        os.kill(os.getpid(), signal.SIGUSR1)

    turns: list[int] = []
    before = signal.signal(signal.SIGUSR1, handler)
    try:
        fault = broker.faults.on("send", times=1).drop_answer()
        thread = when_asked(broker, fault, kick)
        with pytest.raises(InterruptedByTestError):
            producer.send(Message("orders", b"given up"), timeout=60)
        thread.join()
    finally:
        signal.signal(signal.SIGUSR1, before)
    return len(turns)


def test_a_sender_that_is_cancelled_at_the_socket_leaves_it_to_the_next(
    door: DoorUnderTest, broker: BlockingBroker
) -> None:
    async def scenario(door: DoorUnderTest) -> None:
        async with door.Producer("shop", namesrv=broker.namesrv_address) as producer:
            for _ in range(3):
                assert (await producer.send(Message("orders", b"1"))).queue_offset >= 0
                if door.name == "aio":
                    assert await _in_asyncio(broker, producer)
                else:
                    assert _in_a_thread(broker, producer.inner)
                await door.until(lambda: producer.in_flight == 0)

    door.run(scenario)


def test_a_loop_that_is_closed_while_one_waits_at_the_socket(broker: BlockingBroker) -> None:
    loop = asyncio.new_event_loop()
    producer = aio.Producer("shop", namesrv=broker.namesrv_address)
    loop.run_until_complete(producer.__aenter__())
    loop.run_until_complete(producer.send(Message("orders", b"1")))
    fault = broker.faults.on("send", times=1).drop_answer()
    sending = loop.create_task(producer.send(Message("orders", b"2")))
    while not fault.hits:
        loop.run_until_complete(asyncio.sleep(0))
    loop.set_exception_handler(lambda _loop, _context: None)  # a task is left pending
    loop.close()
    del sending, producer
    gc.collect()

    async def main() -> None:
        async with aio.Producer("shop", namesrv=broker.namesrv_address) as again:
            assert (await again.send(Message("orders", b"3"))).queue_offset >= 0

    run(main)
    gc.collect()


def test_a_sender_looks_while_the_run_is_busy_with_something_else(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(served_stream, "Spinning", Patient)  # so that trio never waits
    with (
        sync.EmbeddedBroker(listen="127.0.0.1:0", namesrv_listen="127.0.0.1:0") as broker,
        sync.Producer("shop", namesrv=broker.namesrv_address) as producer,
    ):
        for number in range(20):
            for _ in range(2):  # it is alone at the broker, which sees no answers meanwhile
                producer.send_oneway(Message("orders", b"1"))
            assert producer.send(Message("own", b"2"), key=1).queue_offset == number


@pytest.mark.parametrize("of_uvloop", [False, True])
def test_other_tasks_of_the_loop_have_their_turns(broker: BlockingBroker, of_uvloop: bool) -> None:
    async def main() -> None:
        async with aio.Producer("shop", namesrv=broker.namesrv_address) as producer:
            await producer.send(Message("orders", b"1"))
            turns = 0
            broker.faults.on("send", times=1).delay(0.05, served=True)
            sending = asyncio.create_task(producer.send(Message("orders", b"2")))
            while not sending.done():
                await asyncio.sleep(0)
                turns += 1
            assert turns > 10
            assert (await sending).message_id

    run(main, loop_factory=pytest.importorskip("uvloop").new_event_loop if of_uvloop else None)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_fork_between_lone_sends_leaves_the_connection_to_the_parent(
    broker: BlockingBroker,
) -> None:
    with sync.Producer("shop", namesrv=broker.namesrv_address) as producer:
        for _ in range(20):
            producer.send(Message("orders", b"1"))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            child = os.fork()
        if child == 0:  # pragma: no cover
            status = 1
            try:
                with pytest.raises(WrongRunError, match="forked"):
                    producer.send(Message("orders", b"2"))
                status = 7
            finally:
                os._exit(status)
        for _ in range(20):
            producer.send(Message("orders", b"3"))
        _, status = os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(status) == 7
        time.sleep(0.01)  # the keeper takes the turns back
        assert producer.submit(Message("orders", b"4")).result(60).queue_offset >= 0
