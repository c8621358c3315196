"""trio as the guest of a loop, watched by the loop or by trio's own thread."""

from __future__ import annotations

import asyncio
import gc
import sys
from typing import TYPE_CHECKING

import pytest
import trio

from rocketmq_sdk import ClosedError, Message
from rocketmq_sdk.aio import EmbeddedBroker, Producer, SimpleConsumer, guest
from rocketmq_sdk.testing import BlockingBroker, BrokerThread
from support.asyncio_run import run

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

pytestmark = pytest.mark.real_time


async def _life() -> None:
    """A broker on TCP, a send, a receive, a wait that ends by a deadline of trio's."""
    async with (
        EmbeddedBroker(listen=0, namesrv_listen=0) as broker,
        Producer("shop", namesrv=broker.namesrv_address) as producer,
        SimpleConsumer(
            "g", namesrv=broker.namesrv_address, subscriptions={"orders": "*"}
        ) as consumer,
    ):
        await producer.send(Message("orders", b"1"))
        messages = await consumer.receive(await_duration=5)
        while not messages:
            messages = await consumer.receive(await_duration=5)
        await consumer.ack(messages[0])
        assert await consumer.receive(await_duration=0.3) == []
        await asyncio.gather(*(producer.send(Message("orders", b"x")) for _ in range(200)))


def test_the_loop_watches_trio_itself() -> None:
    """It fails when trio's private parts have moved: then `_Watched` needs a look."""

    async def main() -> None:
        async with EmbeddedBroker() as broker:
            assert broker._run is not None
            assert broker._run._guest._watched is not None
            await _life()

    run(main)


def test_without_trios_private_parts_a_thread_of_trio_watches(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(guest, "_Watched", absent)

    async def main() -> None:
        async with EmbeddedBroker() as broker:
            assert broker._run is not None
            assert broker._run._guest._watched is None
            await _life()

    run(main)


def test_uvloop() -> None:
    uvloop = pytest.importorskip("uvloop")
    factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    for _ in range(2):
        run(_life, loop_factory=factory)


def test_trio_ends_when_the_last_block_does_and_begins_again() -> None:
    async def main() -> None:
        for _ in range(5):
            async with EmbeddedBroker() as broker, Producer("shop", namesrv=broker) as producer:
                await producer.send(Message("orders", b"1"))
            assert not trio.lowlevel.in_trio_run()

    run(main)


def test_an_error_that_ends_the_whole_run_is_told() -> None:
    told: list[object] = []

    async def main() -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _loop, context: told.append(context["exception"]))
        broker = await EmbeddedBroker().__aenter__()
        assert broker._run is not None

        async def broken() -> None:
            raise ValueError("broken")

        broker._run.nursery.start_soon(broken)
        with pytest.raises(asyncio.CancelledError) as caught:
            await asyncio.sleep(20)
        with pytest.raises(ClosedError, match="everything in its event loop"):
            await broker.__aexit__(asyncio.CancelledError, caught.value, None)

    asyncio.run(main())
    [group] = told
    assert isinstance(group, ExceptionGroup)
    assert not trio.lowlevel.in_trio_run()


def absent(*_: object) -> None:
    raise AttributeError("no such part")


@pytest.mark.parametrize("is_watched", [True, False])
def test_a_loop_that_runs_several_times_shuts_down_with_something_open(
    is_watched: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """asyncio takes what it believes to be its generators, and closes them."""
    if not is_watched:
        monkeypatch.setattr(guest, "_Watched", absent)
    closed: list[str] = []

    async def numbers() -> AsyncIterator[int]:
        try:
            yield 1
            yield 2
        finally:
            await asyncio.sleep(0)
            closed.append("the user's own")

    loop = asyncio.new_event_loop()
    try:
        with BrokerThread() as thread:
            address = BlockingBroker(thread).namesrv_address
            first, second = (Producer("shop", namesrv=address) for _ in range(2))
            loop.run_until_complete(first.__aenter__())
            loop.run_until_complete(second.__aenter__())
            own = numbers()

            async def begin() -> int:
                return await anext(own)

            assert loop.run_until_complete(begin()) == 1
            loop.run_until_complete(second.send(Message("orders", b"1")))
            loop.run_until_complete(loop.shutdown_asyncgens())
    finally:
        loop.close()
    assert closed == ["the user's own"]
    assert not trio.lowlevel.in_trio_run()
    assert sys.get_asyncgen_hooks() == (None, None)
    assert "2 objects of rocketmq_sdk.aio are open" in caplog.text
    gc.collect()  # what was not closed would be told as an error


def test_the_end_of_asyncio_run_closes_connections_of_what_is_open() -> None:
    tasks: list[asyncio.Task[object]] = []

    async def main() -> None:
        producer = await Producer("shop", namesrv=address).__aenter__()
        tasks.extend(
            asyncio.create_task(producer.send(Message("orders", b"%d" % n))) for n in range(200)
        )
        await asyncio.sleep(0.01)

    with BrokerThread() as thread:
        address = BlockingBroker(thread).namesrv_address
        for _ in range(3):
            asyncio.run(main())
            gc.collect()
    assert not trio.lowlevel.in_trio_run()
    assert sys.get_asyncgen_hooks() == (None, None)


def test_a_closed_loop_leaves_no_hooks_in_its_thread() -> None:
    loop = asyncio.new_event_loop()
    loop.run_until_complete(EmbeddedBroker().__aenter__())
    loop.close()
    run(_life)  # which ends the guest of the closed loop
    assert sys.get_asyncgen_hooks() == (None, None)
