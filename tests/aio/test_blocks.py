"""Blocks in asyncio: errors, cancellation, failures in the background, and loops."""

from __future__ import annotations

import asyncio
import gc
import logging
import threading
from typing import Any

import pytest
import trio

import rocketmq_sdk
from rocketmq_sdk import ClosedError, ConfigurationError, Message, RouteError, WrongRunError
from rocketmq_sdk.aio import (
    Admin,
    Client,
    EmbeddedBroker,
    LitePullConsumer,
    Producer,
    PushConsumer,
    SimpleConsumer,
)
from rocketmq_sdk.aio import run as runs
from rocketmq_sdk.testing import BrokerThread
from support.asyncio_run import run

pytestmark = pytest.mark.real_time


def test_a_send_and_all_that_is_open_ends_with_its_blocks() -> None:
    async def main() -> None:
        async with EmbeddedBroker() as broker, Producer("shop", namesrv=broker) as producer:
            result = await producer.send(Message("orders", b"1"))
            assert result.queue_offset == 0
            handle = producer.submit(Message("orders", b"2"))
            assert (await handle).message_id == handle.message_id
            assert handle.done
            assert producer.in_flight == 0
        assert not runs._runs
        with pytest.raises(ClosedError):
            await producer.send(Message("orders", b"3"))
        with pytest.raises(ClosedError):
            await broker.__aenter__()

    run(main)
    assert not trio.lowlevel.in_trio_run()


def test_an_error_of_the_block_is_the_one_that_comes_out() -> None:
    async def main() -> None:
        error = ValueError("mine")
        with pytest.raises(ValueError, match="mine") as caught:
            async with EmbeddedBroker(), Producer("shop", namesrv="127.0.0.1:1"):
                raise error
        assert caught.value is error
        group = ExceptionGroup("mine", [ValueError("inside")])
        with pytest.raises(ExceptionGroup) as several:
            async with EmbeddedBroker():
                raise group
        assert several.value is group

    run(main)


def test_what_entering_raises() -> None:
    async def main() -> None:
        async with EmbeddedBroker() as broker:
            async with Client(broker) as client, Producer("shop", client=client):
                with pytest.raises(ConfigurationError, match="already"):
                    await Producer("shop", client=client).__aenter__()
            with pytest.raises(ConfigurationError, match=r"rocketmq_sdk\.aio\.Client"):
                Producer("shop", client=rocketmq_sdk.Client(["127.0.0.1:1"]))  # type: ignore[arg-type]
            async with Producer("again", namesrv=broker) as producer:
                await producer.send(Message("orders", b"1"))

    run(main)


def test_a_timeout_ends_a_call_and_the_object_stays_usable() -> None:
    async def main() -> None:
        async with (
            EmbeddedBroker() as broker,
            Producer("shop", namesrv=broker) as producer,
            SimpleConsumer("g", namesrv=broker, subscriptions={"orders": "*"}) as consumer,
        ):
            await producer.send(Message("orders", b"0"))
            with pytest.raises(TimeoutError):  # noqa: PT012
                async with asyncio.timeout(0.05):
                    while True:
                        await consumer.receive(await_duration=20)
            await producer.send(Message("orders", b"1"))
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(asyncio.sleep(5), 0.01)
            assert consumer.health() is not None

    run(main)


def test_a_cancelled_send_is_given_up() -> None:
    async def main() -> None:
        async with (
            EmbeddedBroker(listen=0, namesrv_listen=0, auto_create_topic_enable="false") as broker,
            Producer("shop", namesrv=broker.namesrv_address, retry_until_deadline=True) as producer,
        ):
            sending = asyncio.create_task(producer.send(Message("absent", b"1"), timeout=20))
            while not producer.in_flight:
                await asyncio.sleep(0.001)
            sending.cancel()
            with pytest.raises(asyncio.CancelledError):
                await sending
            assert producer.in_flight == 0

    run(main)


def test_a_task_group_cancels_the_blocks_of_its_tasks() -> None:
    async def main() -> None:
        begun, ended = list[str](), list[str]()

        async with EmbeddedBroker() as broker:

            async def consume(group: str) -> None:
                try:
                    async with PushConsumer(
                        group,
                        namesrv=broker,
                        subscriptions={"orders": "*"},
                        listener=_nothing,
                    ):
                        begun.append(group)
                        await asyncio.sleep(60)
                finally:
                    ended.append(group)

            async def fail() -> None:
                while len(begun) < 2:
                    await asyncio.sleep(0.001)
                raise ValueError("one of them")

            with pytest.raises(ExceptionGroup) as caught:  # noqa: PT012
                async with asyncio.TaskGroup() as group:
                    group.create_task(consume("a"))
                    group.create_task(consume("b"))
                    group.create_task(fail())
            assert [type(error) for error in caught.value.exceptions] == [ValueError]
            assert sorted(ended) == ["a", "b"]

    run(main)


async def _nothing(_message: object) -> None:
    """A listener that takes all."""


def test_a_failure_in_the_background_cancels_the_block_and_comes_out_of_it() -> None:
    async def main() -> None:
        async def wrong(_message: object) -> str:
            return "done"

        async with EmbeddedBroker() as broker, Producer("shop", namesrv=broker) as producer:
            began = asyncio.get_running_loop().time()
            with pytest.raises(ConfigurationError, match="the listener"):  # noqa: PT012
                async with PushConsumer(
                    "g",
                    namesrv=broker,
                    subscriptions={"orders": "*"},
                    listener=wrong,  # type: ignore[arg-type]
                ):
                    await producer.send(Message("orders", b"1"))
                    await asyncio.sleep(30)
            assert asyncio.get_running_loop().time() - began < 20
            task = asyncio.current_task()
            assert task is not None
            assert task.cancelling() == 0
            await asyncio.sleep(0)  # no cancellation is left over

    run(main)


def test_a_failure_in_the_background_of_a_block_that_is_never_waiting() -> None:
    async def main() -> None:
        async def wrong(_message: object) -> str:
            return "done"

        async with EmbeddedBroker() as broker, Producer("shop", namesrv=broker) as producer:
            consumer = PushConsumer(
                "g",
                namesrv=broker,
                subscriptions={"orders": "*"},
                listener=wrong,  # type: ignore[arg-type]
            )
            await consumer.__aenter__()
            await producer.send(Message("orders", b"1"))
            with pytest.raises(asyncio.CancelledError):
                await asyncio.sleep(30)
            with pytest.raises(ConfigurationError, match="the listener returned"):
                await consumer.__aexit__(None, None, None)
            task = asyncio.current_task()
            assert task is not None
            assert task.cancelling() == 0

    run(main)


def test_a_block_may_be_left_by_another_task_than_the_one_that_entered() -> None:
    """As fixtures of pytest-asyncio do."""

    async def main() -> None:
        broker = EmbeddedBroker()
        await asyncio.create_task(broker.__aenter__())
        async with Producer("shop", namesrv=broker) as producer:
            await producer.send(Message("orders", b"1"))
        await asyncio.create_task(broker.__aexit__(None, None, None))

    run(main)


def test_several_loops_one_after_another() -> None:
    async def main() -> None:
        async with EmbeddedBroker() as broker, Producer("shop", namesrv=broker) as producer:
            await producer.send(Message("orders", b"1"))

    for _ in range(3):
        run(main)


def test_a_loop_that_runs_several_times() -> None:
    loop = asyncio.new_event_loop()
    try:
        broker = EmbeddedBroker()
        producer = Producer("shop", namesrv=broker)
        loop.run_until_complete(broker.__aenter__())
        loop.run_until_complete(producer.__aenter__())
        result = loop.run_until_complete(producer.send(Message("orders", b"1")))
        assert result.queue_offset == 0
        loop.run_until_complete(producer.__aexit__(None, None, None))
        loop.run_until_complete(broker.__aexit__(None, None, None))
        loop.run_until_complete(loop.shutdown_asyncgens())
    finally:
        loop.close()


def test_loops_of_several_threads_at_the_same_time() -> None:
    failures: list[BaseException] = []

    def in_thread() -> None:
        try:
            run(main)
        except BaseException as error:  # noqa: BLE001 - told below
            failures.append(error)

    async def main() -> None:
        async with EmbeddedBroker() as broker, Producer("shop", namesrv=broker) as producer:
            await asyncio.gather(*(producer.send(Message("orders", b"1")) for _ in range(100)))

    threads = [threading.Thread(target=in_thread) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_the_end_of_a_loop_cancels_what_is_open(caplog: pytest.LogCaptureFixture) -> None:
    seen: list[Any] = []

    async def holder(broker: EmbeddedBroker) -> None:
        try:
            async with LitePullConsumer(
                "g", namesrv=broker, subscriptions={"orders": "*"}
            ) as consumer:
                seen.append(consumer)
                await consumer.poll(60)
        except asyncio.CancelledError:
            seen.append("cancelled")
            raise

    async def main() -> None:
        broker = await EmbeddedBroker().__aenter__()
        seen.append(asyncio.create_task(holder(broker)))
        while len(seen) < 2:
            await asyncio.sleep(0.01)

    with caplog.at_level(logging.WARNING, "rocketmq_sdk.aio"):
        asyncio.run(main())
    assert seen[-1] == "cancelled"
    assert not trio.lowlevel.in_trio_run()
    assert "the event loop shuts down while 1 object" in caplog.text  # the broker's block
    gc.collect()


def test_the_end_of_a_loop_lets_cleanups_begin() -> None:
    """They begin generators, of which the loop warns, and here warnings are errors."""

    async def main(namesrv: str) -> None:
        producer = await Producer("shop", namesrv=namesrv).__aenter__()
        await producer.send(Message("orders", b"1"))

    with BrokerThread() as thread:
        asyncio.run(main(str(thread.broker.namesrv_address)))
        gc.collect()  # a socket that is open still, and a cleanup that failed, would tell


def test_a_closed_loop_leaves_its_thread_usable() -> None:
    loop = asyncio.new_event_loop()
    broker = EmbeddedBroker()
    loop.run_until_complete(broker.__aenter__())
    loop.close()

    async def main() -> None:
        async with EmbeddedBroker() as other, Producer("shop", namesrv=other) as producer:
            await producer.send(Message("orders", b"1"))

    run(main)
    assert not trio.lowlevel.in_trio_run()


def test_two_loops_of_one_thread_are_refused_by_name() -> None:
    loop = asyncio.new_event_loop()
    broker = EmbeddedBroker()
    loop.run_until_complete(broker.__aenter__())

    async def main() -> None:
        with pytest.raises(WrongRunError, match="another event loop of the thread"):
            await EmbeddedBroker().__aenter__()

    asyncio.run(main())
    loop.run_until_complete(broker.__aexit__(None, None, None))
    loop.close()


def test_wrong_places_are_refused_by_name() -> None:
    async def main() -> None:
        async with EmbeddedBroker() as broker, Producer("shop", namesrv=broker) as producer:

            def elsewhere() -> None:
                with pytest.raises(WrongRunError, match="another event loop"):
                    asyncio.run(producer.send(Message("orders", b"1")))

            await asyncio.to_thread(elsewhere)
            with pytest.raises(WrongRunError, match=r"rocketmq_sdk\.aio\.Producer"):
                await rocketmq_sdk.Producer("shop", namesrv="127.0.0.1:1").__aenter__()
            await producer.send(Message("orders", b"1"))

    run(main)

    async def on_trio() -> None:
        with pytest.raises(WrongRunError, match="rocketmq_sdk itself"):
            await EmbeddedBroker().__aenter__()

    trio.run(on_trio)


def test_an_admin_of_a_shared_client_need_not_be_entered() -> None:
    async def main() -> None:
        async with EmbeddedBroker() as broker, Client(broker) as client:
            admin = Admin(client=client)
            await admin.topics.create("orders")
            assert "orders" in await admin.topics.names()
            with pytest.raises(RouteError):
                await admin.topics.route("absent")
        with pytest.raises(ClosedError):
            await admin.topics.names()

    run(main)


def test_ten_thousand_sends_at_the_same_time_leave_nothing_behind() -> None:
    async def main() -> None:
        async with (
            EmbeddedBroker(listen=0, namesrv_listen=0, broker_fast_failure_enable=False) as broker,
            Producer("shop", namesrv=broker.namesrv_address, send_timeout=30) as producer,
        ):
            left = []
            for _ in range(2):
                results = await asyncio.gather(
                    *(producer.send(Message("orders", b"%d" % n)) for n in range(10_000))
                )
                assert len({result.message_id for result in results}) == 10_000
                del results
                gc.collect()
                left.append(len(gc.get_objects()))
            assert left[1] - left[0] < 5_000  # not one object for each message

    asyncio.run(main())
