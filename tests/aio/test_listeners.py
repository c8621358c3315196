"""Listeners and other functions of the user's, called from trio, run in the user's
loop.
"""

from __future__ import annotations

import asyncio
import contextvars
import functools
import threading
from typing import TYPE_CHECKING

import pytest

from rocketmq_sdk import (
    AssignmentChange,
    ConfigurationError,
    ConsumeFrom,
    ConsumeLater,
    Message,
    ReceivedMessage,
    TransactionState,
)
from rocketmq_sdk.aio import (
    EmbeddedBroker,
    LitePullConsumer,
    Producer,
    PushConsumer,
    TransactionProducer,
)
from support.asyncio_run import run

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

pytestmark = pytest.mark.real_time

FIRST = ConsumeFrom.FIRST_OFFSET
TOPICS = {"orders": "*"}


async def until(condition: Callable[[], object]) -> None:
    """Wait until something is true."""
    while not condition():
        await asyncio.sleep(0.005)


def test_an_async_listener_runs_in_the_loop_of_the_user() -> None:
    async def main() -> None:
        loop, seen = asyncio.get_running_loop(), list[ReceivedMessage]()

        async def listener(message: ReceivedMessage) -> None:
            assert asyncio.get_running_loop() is loop
            async with asyncio.timeout(60), asyncio.TaskGroup() as group:
                group.create_task(asyncio.sleep(0.001))
            seen.append(message)

        async with (
            EmbeddedBroker() as broker,
            Producer("shop", namesrv=broker) as producer,
            PushConsumer(
                "g", namesrv=broker, subscriptions=TOPICS, listener=listener, consume_from=FIRST
            ) as consumer,
        ):
            for number in range(50):
                await producer.send(Message("orders", b"%d" % number))
            await until(lambda: len(seen) == 50)
            await until(lambda: consumer.statistics().consumed == 50)
        assert {message.body for message in seen} == {b"%d" % number for number in range(50)}

    run(main)


def test_a_plain_listener_runs_in_a_thread_and_may_return_a_coroutine() -> None:
    async def main() -> None:
        threads, seen = set[int](), list[bytes]()

        def plain(message: ReceivedMessage) -> None:
            threads.add(threading.get_ident())
            seen.append(message.body)

        async def more(word: bytes, message: ReceivedMessage) -> None:
            await asyncio.sleep(0)
            seen.append(word)

        async with EmbeddedBroker() as broker, Producer("shop", namesrv=broker) as producer:
            await producer.send(Message("orders", b"1"))
            for group, listener in (
                ("plain", plain),
                ("lambda", lambda message: more(b"lambda", message)),
                ("partial", functools.partial(more, b"partial")),
            ):
                before = len(seen)
                async with PushConsumer(
                    group,
                    namesrv=broker,
                    subscriptions=TOPICS,
                    listener=listener,
                    consume_from=FIRST,
                ):
                    await until(lambda before=before: len(seen) > before)
        assert seen == [b"1", b"lambda", b"partial"]
        assert threading.get_ident() not in threads

    run(main)


def test_a_failed_message_comes_again() -> None:
    async def main() -> None:
        seen: list[int] = []

        async def listener(message: ReceivedMessage) -> None:
            seen.append(message.reconsume_times)
            if len(seen) == 1:
                raise ConsumeLater(delay_level=1)

        async with EmbeddedBroker() as broker, Producer("shop", namesrv=broker) as producer:
            await producer.send(Message("orders", b"1"))
            async with PushConsumer(
                "g", namesrv=broker, subscriptions=TOPICS, listener=listener, consume_from=FIRST
            ):
                await until(lambda: len(seen) == 2)
        assert seen == [0, 1]

    run(main)


def test_messages_that_are_handed_over_together_end_each_by_itself() -> None:
    """A listener that does not wait gets several messages as one change to the loop."""
    variable: contextvars.ContextVar[int] = contextvars.ContextVar("variable", default=-1)

    async def main() -> None:
        go_on, seen = asyncio.Event(), list[int]()

        async def listener(message: ReceivedMessage) -> None:
            number = int(message.body)
            assert variable.get() == -1
            variable.set(number)
            if number == 177:
                async with asyncio.timeout(60):
                    await go_on.wait()
            if message.reconsume_times == 0 and number == 201:
                raise ConsumeLater(delay_level=1)
            if message.reconsume_times == 0 and number == 202:
                raise asyncio.CancelledError
            assert variable.get() == number
            seen.append(number)

        async with EmbeddedBroker() as broker, Producer("shop", namesrv=broker) as producer:
            for number in range(400):
                producer.submit(Message("orders", b"%d" % number))
            await producer.flush()
            async with PushConsumer(
                "g",
                namesrv=broker,
                subscriptions=TOPICS,
                listener=listener,
                consume_from=FIRST,
                concurrency=3,
            ) as consumer:
                await until(lambda: consumer.statistics().consumed >= 397)
                assert consumer.statistics().failed == 2
                assert 177 not in seen
                go_on.set()
                await until(lambda: {177, 201} <= set(seen))
        assert sorted([*{*seen, 202}]) == list(range(400))
        assert len(seen) == len(set(seen))

    run(main)


def test_a_listener_that_takes_too_long_is_cancelled_and_another_call_goes_on() -> None:
    async def main() -> None:
        ended: list[str] = []

        async def listener(message: ReceivedMessage) -> None:
            if message.reconsume_times == 0:
                try:
                    await asyncio.sleep(60)
                except asyncio.CancelledError:
                    ended.append("cancelled")
                    raise
            task = asyncio.current_task()
            assert task is not None
            assert task.cancelling() == 0
            ended.append("done")

        async with EmbeddedBroker() as broker, Producer("shop", namesrv=broker) as producer:
            await producer.send(Message("orders", b"1"))
            async with PushConsumer(
                "g",
                namesrv=broker,
                subscriptions=TOPICS,
                listener=listener,
                consume_from=FIRST,
                consume_timeout=0.2,
                concurrency=1,
            ) as consumer:
                await until(lambda: ended == ["cancelled"])
                await producer.send(Message("orders", b"2"))
                assert consumer.statistics().timed_out <= 1
                await until(lambda: consumer.statistics().timed_out >= 1)

    run(main)


def test_leaving_by_an_error_cancels_a_running_listener() -> None:
    async def main() -> None:
        ended: list[str] = []

        async def listener(_message: ReceivedMessage) -> None:
            ended.append("began")
            try:
                await asyncio.sleep(60)
            finally:
                ended.append("ended")

        async with EmbeddedBroker() as broker, Producer("shop", namesrv=broker) as producer:
            await producer.send(Message("orders", b"1"))
            with pytest.raises(ValueError, match="mine"):  # noqa: PT012
                async with PushConsumer(
                    "g", namesrv=broker, subscriptions=TOPICS, listener=listener, consume_from=FIRST
                ):
                    await until(lambda: ended)
                    raise ValueError("mine")
            assert ended == ["began", "ended"]

    run(main)


def test_a_listener_that_awaits_something_cancelled_has_failed() -> None:
    async def main() -> None:
        seen: list[int] = []

        async def listener(message: ReceivedMessage) -> None:
            seen.append(message.reconsume_times)
            cancelled = asyncio.get_running_loop().create_future()
            cancelled.cancel()
            await cancelled

        async with EmbeddedBroker() as broker, Producer("shop", namesrv=broker) as producer:
            await producer.send(Message("orders", b"1"))
            async with PushConsumer(
                "g", namesrv=broker, subscriptions=TOPICS, listener=listener, consume_from=FIRST
            ) as consumer:
                await until(lambda: consumer.statistics().failed == 1)
                assert consumer.health()

    run(main)


def test_context_variables_of_the_caller_reach_what_is_called() -> None:
    variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable")

    async def main() -> None:
        seen = []

        def select(queues: object, message: object, key: object) -> object:
            seen.append(variable.get())
            return queues[0]  # type: ignore[index]

        variable.set("mine")
        async with EmbeddedBroker() as broker, Producer("shop", namesrv=broker) as producer:
            await producer.send(Message("orders", b"1"), selector=select)  # type: ignore[arg-type]
            assert seen == ["mine"]

    run(main)


def test_assignment_changes_are_told_in_the_loop() -> None:
    async def main() -> None:
        changes: list[AssignmentChange] = []

        async def changed(change: AssignmentChange) -> None:
            await asyncio.sleep(0)
            changes.append(change)

        async with EmbeddedBroker() as broker, Producer("shop", namesrv=broker) as producer:
            await producer.send(Message("orders", b"1"))
            async with LitePullConsumer(
                "g", namesrv=broker, subscriptions=TOPICS, on_assignment_change=changed
            ):
                await until(lambda: changes)
        assert changes[0].added

    run(main)


def test_checkers_and_local_work_run_in_the_loop() -> None:
    async def main() -> None:
        asked: list[bytes] = []

        async def checker(message: ReceivedMessage) -> TransactionState:
            await asyncio.sleep(0)
            asked.append(message.body)
            return TransactionState.COMMIT

        async def work(transaction: object) -> TransactionState:
            await asyncio.sleep(0)
            return TransactionState.UNKNOWN

        with pytest.raises(ConfigurationError, match="no async function"):
            TransactionProducer("shop", lambda_free, namesrv="127.0.0.1:1")  # type: ignore[arg-type]
        settings = {"transaction_check_interval": 50, "transaction_time_out": 50}
        async with (
            EmbeddedBroker(**settings) as broker,
            TransactionProducer("shop", checker, namesrv=broker) as producer,
        ):
            result = await producer.send_in_transaction(Message("orders", b"1"), work)
            assert result.state is TransactionState.UNKNOWN
            await until(lambda: asked)

    run(main)


def lambda_free(message: object) -> TransactionState:
    """A plain function, which no checker may be."""
    raise AssertionError(message)


def test_polls_of_several_tasks_and_what_they_have_done() -> None:
    async def main() -> None:
        async with EmbeddedBroker() as broker, Producer("shop", namesrv=broker) as producer:
            for number in range(40):
                await producer.send(Message("orders", b"%d" % number))
            async with LitePullConsumer(
                "g", namesrv=broker, subscriptions=TOPICS, consume_from=FIRST, polled_is_done=True
            ) as consumer:
                bodies: list[bytes] = []

                async def read() -> None:
                    while len(bodies) < 40:
                        polled = await consumer.poll(0.05, max_messages=3)
                        bodies.extend(message.body for message in polled)

                await asyncio.gather(read(), read(), read())
                assert sorted(map(int, bodies)) == list(range(40))
                with pytest.raises(TimeoutError):
                    async with asyncio.timeout(0.02):
                        await consumer.poll(30)
                await consumer.commit()
                committed = [
                    await consumer.committed(queue) for queue in sorted(consumer.assignment())
                ]
                assert sum(filter(None, committed)) == 40

    run(main)


def test_an_iteration_ends_with_the_block() -> None:
    async def main() -> None:
        async with EmbeddedBroker() as broker, Producer("shop", namesrv=broker) as producer:
            await producer.send(Message("orders", b"1"))
            consumer = LitePullConsumer(
                "g", namesrv=broker, subscriptions=TOPICS, consume_from=FIRST
            )
            async with consumer:
                async for message in consumer:
                    assert message.body == b"1"
                    break
            assert [message async for message in consumer] == []

    run(main)


def test_async_generators_that_begin_in_a_listener_are_of_the_loop() -> None:
    """trio closes its own when it ends, and may not run what waits in asyncio."""
    closed, left = list[str](), list[object]()

    async def numbers(name: str) -> AsyncIterator[int]:
        try:
            yield 1
            yield 2
        finally:
            await asyncio.sleep(0)
            closed.append(name)

    async def listener(message: ReceivedMessage) -> None:
        own = numbers(message.body.decode())
        assert await anext(own) == 1
        left.append(own)

    async def main() -> None:
        async with (
            EmbeddedBroker() as broker,
            Producer("shop", namesrv=broker) as producer,
            PushConsumer(
                "g", namesrv=broker, subscriptions=TOPICS, listener=listener, consume_from=FIRST
            ),
        ):
            await producer.send(Message("orders", b"kept"))
            await until(lambda: left)
            await producer.send(Message("orders", b"collected"))
            await until(lambda: len(left) == 2)
            left.pop()
            await until(lambda: closed)
        assert closed == ["collected"]

    run(main)
    assert closed == ["collected", "kept"]
