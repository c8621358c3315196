"""A program that uses every kind of call of the doors, for the type checker: users who
check strictly see no `Any`, and mistakes are found.

`mypy --strict` checks it with all of `tests/support`.
"""

from __future__ import annotations

from collections.abc import Mapping  # noqa: TC003 - as users write it
from concurrent.futures import Future  # noqa: TC003 - as users write it
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from typing import assert_type

from rocketmq_sdk import aio, sync
from rocketmq_sdk.aio import (
    AccumulatedHandle,
    ConsumerHealth,
    Message,
    MessageQueue,
    PoppedMessage,
    PullResult,
    ReceivedMessage,
    SendHandle,
    SendResult,
    Transaction,
    TransactionResult,
    TransactionState,
)


async def on_message(message: ReceivedMessage) -> None:
    """A listener."""
    assert_type(message.body, bytes)


def plain(message: ReceivedMessage) -> None:
    """A listener that runs in a thread."""
    assert_type(message.topic, str)


async def on_messages(messages: list[ReceivedMessage]) -> None:
    """A listener of batches."""
    assert_type(messages[0], ReceivedMessage)


async def checker(message: ReceivedMessage) -> TransactionState:
    """A checker of transactions."""
    return TransactionState.COMMIT if message.keys else TransactionState.UNKNOWN


async def work(transaction: Transaction) -> TransactionState | None:
    """Local work."""
    assert_type(transaction.message_id, str)
    return None


async def produce(broker: aio.EmbeddedBroker) -> None:
    """Every kind of sending."""
    async with aio.Producer("shop", namesrv=broker, send_timeout=3.0) as producer:
        assert_type(producer, aio.Producer)
        message = Message("orders", b"1")
        assert_type(await producer.send(message), SendResult)
        handle = producer.submit(message)
        assert_type(handle, SendHandle | AccumulatedHandle)
        assert_type(await handle, SendResult)
        assert_type(await producer.send_batch([message]), SendResult)
        assert_type(await producer.request(message, timeout=1), ReceivedMessage)
        assert_type(producer.in_flight, int)
        assert_type(await producer.messages.by_key("orders", "k"), list[ReceivedMessage])
        async for found in producer.messages.in_time("orders", 0):
            assert_type(found, ReceivedMessage)
        assert_type(producer.client, aio.Client)
        await producer.send(message, timeout="soon")  # type: ignore[arg-type]
    async with aio.TransactionProducer("shop", checker, namesrv=broker) as transactional:
        block = transactional.transaction(message)
        assert_type(block, AbstractAsyncContextManager[Transaction])
        async with block as transaction:
            assert_type(transaction, Transaction)
        result = await transactional.send_in_transaction(message, work)
        assert_type(result, TransactionResult)
        assert_type(await transactional.send(message), SendResult)


async def consume(broker: aio.EmbeddedBroker) -> None:
    """Every kind of consumer."""
    topics: Mapping[str, str] = {"orders": "*"}
    async with (
        aio.Client(broker) as client,
        aio.PushConsumer("a", client=client, subscriptions=topics, listener=on_message) as push,
        aio.PushConsumer("b", client=client, subscriptions=topics, listener=plain),
        aio.PushConsumer("c", client=client, subscriptions=topics, listener=on_messages, batch=8),
        aio.SimpleConsumer("d", client=client, subscriptions=topics) as simple,
        aio.LitePullConsumer("e", client=client, subscriptions=topics) as lite,
        aio.PullConsumer("f", client=client) as pull,
    ):
        assert_type(push.health(), ConsumerHealth)
        assert_type(await push.group_lag(), dict[MessageQueue, int])
        for popped in await simple.receive(max_messages=8):
            assert_type(popped, PoppedMessage)
            async with simple.processing(popped) as again:
                assert_type(again, PoppedMessage)
        async for popped in simple:
            await simple.ack(popped)
        assert_type(await lite.poll(1.0), list[ReceivedMessage])
        async for received in lite:
            assert_type(received, ReceivedMessage)
        [queue] = await pull.message_queues("orders")
        assert_type(queue, MessageQueue)
        assert_type(await pull.pull(queue, 0), PullResult)


async def administrate(broker: aio.EmbeddedBroker) -> None:
    """Administration, and the broker itself."""
    async with aio.Admin(namesrv=broker) as admin:
        await admin.topics.create("orders", queues=4)
        assert_type(await admin.topics.names(), list[str])
        assert_type((await admin.groups.progress("a")).lag, int)
        assert_type(broker.address, str | None)
        await admin.topics.create(7)  # type: ignore[arg-type]


def sync_checker(message: ReceivedMessage) -> TransactionState:
    """A checker for threads."""
    return TransactionState.COMMIT if message.keys else TransactionState.UNKNOWN


def in_threads() -> None:
    """The same without async."""
    message = Message("orders", b"1")
    with (
        sync.EmbeddedBroker() as broker,
        sync.Producer("shop", namesrv=broker, send_timeout=3.0) as producer,
        sync.TransactionProducer("shop2", sync_checker, namesrv=broker) as transactional,
        sync.PushConsumer("a", namesrv=broker, subscriptions={"t": "*"}, listener=plain) as push,
        sync.SimpleConsumer("b", namesrv=broker, subscriptions={"t": "*"}) as simple,
        sync.LitePullConsumer("c", namesrv=broker, subscriptions={"t": "*"}) as lite,
        sync.Admin(namesrv=broker) as admin,
    ):
        assert_type(producer, sync.Producer)
        assert_type(producer.send(message), SendResult)
        handle = producer.submit(message)
        assert_type(handle, sync.SendHandle)
        future: Future[SendResult] = handle
        assert_type(future.result(), SendResult)
        assert_type(
            transactional.transaction(message), AbstractContextManager[Transaction, bool | None]
        )
        assert_type(push.health(), ConsumerHealth)
        for popped in simple:
            assert_type(popped, PoppedMessage)
        for received in lite:
            assert_type(received, ReceivedMessage)
        assert_type(admin.topics.names(), list[str])
        push.join()
        producer.send(message, timeout="soon")  # type: ignore[arg-type]
        sync.PushConsumer("d", subscriptions={"t": "*"}, listener=on_message)  # type: ignore[arg-type]
