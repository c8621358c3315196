"""The same scenarios through three doors, over each connection: the same results, the
same errors.
"""

from __future__ import annotations

import ssl
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
import trustme

from rocketmq_sdk import (
    ClosedError,
    ConfigurationError,
    ConsumeFrom,
    ConsumeLater,
    FilterSyntaxError,
    GroupNotFoundError,
    Message,
    NotFoundError,
    ReceiptHandleError,
    ReceivedMessage,
    RequestTimeoutError,
    RocketMQError,
    RouteError,
    SendStatus,
    TransactionState,
    reply_message,
)
from rocketmq_sdk.testing import TestBroker
from support.doors import DOORS, DoorUnderTest

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine

pytestmark = pytest.mark.real_time
CONNECTIONS = (
    "in process",
    "memory network",
    "tcp",
    pytest.param("tls", marks=pytest.mark.slow),
)
FIRST = ConsumeFrom.FIRST_OFFSET
TOPICS = {"orders": "*"}
SCENARIOS: list[Callable[..., Coroutine[Any, Any, None]]] = []
Settings = dict[str, Any]


def scenario(
    function: Callable[..., Coroutine[Any, Any, None]],
) -> Callable[..., Coroutine[Any, Any, None]]:
    """Run a function through every door, over every connection."""
    SCENARIOS.append(function)
    return function


@asynccontextmanager
async def on_network(**settings: object) -> AsyncIterator[Settings]:
    """A broker on a network in memory, which belongs to the run that it is in."""
    async with TestBroker(**settings) as broker:
        yield {"namesrv": broker.party("shop")}


@asynccontextmanager
async def broker_of(
    door: DoorUnderTest, connection: str, **settings: object
) -> AsyncIterator[Settings]:
    """A broker, and how it is reached."""
    if connection == "memory network":
        async with door.within(lambda: on_network(**settings)) as at:
            yield at
        return
    if connection == "in process":
        async with door.EmbeddedBroker(**settings) as broker:
            yield {"namesrv": broker}
        return
    tls: tuple[ssl.SSLContext | None, ssl.SSLContext | None] = None, None
    if connection == "tls":
        authority = trustme.CA()
        tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH), ssl.create_default_context()
        assert tls[0] is not None
        assert tls[1] is not None
        authority.issue_cert("localhost", "127.0.0.1").configure_cert(tls[0])
        authority.configure_trust(tls[1])
    async with door.EmbeddedBroker(listen=0, namesrv_listen=0, tls=tls[0], **settings) as broker:
        yield {"namesrv": broker.namesrv_address, "tls": tls[1]}


async def error_of(awaitable: Any, kind: type[RocketMQError]) -> RocketMQError:
    """The error that something raises."""
    with pytest.raises(kind) as caught:
        await awaitable
    assert type(caught.value).__module__ == "rocketmq_sdk.errors"
    return caught.value


@scenario
async def sends(door: DoorUnderTest, connection: str) -> None:
    async with (
        broker_of(door, connection) as at,
        door.Producer("shop", **at) as producer,
    ):
        first = await producer.send(Message("orders", b"0", keys=["k"], tags="paid"))
        assert (first.status, first.queue_offset) == (SendStatus.SEND_OK, 0)
        handles = [producer.submit(Message("orders", b"%d" % n)) for n in range(1, 20)]
        results = [await door.result(handle) for handle in handles]
        assert [handle.message_id for handle in handles] == [r.message_id for r in results]
        batch = await producer.send_batch([Message("orders", b"b1"), Message("orders", b"b2")])
        assert len(batch.message_id.split(",")) == 2
        ordered = [await producer.send(Message("orders", b"o"), key="same") for _ in range(3)]
        assert len({result.queue for result in ordered}) == 1
        await producer.send_oneway(Message("orders", b"oneway"))
        await producer.flush()
        assert producer.in_flight == 0
        [found] = await producer.messages.by_key("orders", "k")
        assert (found.body, found.tags) == (b"0", "paid")
        assert (await producer.messages.by_id("orders", first.message_id)).body == b"0"
        stored: set[bytes] = set()
        while b"oneway" not in stored:
            stored = {m.body async for m in producer.messages.in_time("orders", 0)}
        assert {b"%d" % n for n in range(20)} | {b"b1", b"b2", b"o"} <= stored


@scenario
async def errors_of_sends(door: DoorUnderTest, connection: str) -> None:
    async with (
        broker_of(door, connection, auto_create_topic_enable="false", max_message_size=2000) as at,
        door.Producer("shop", send_timeout=2, **at) as producer,
        door.Admin(**at) as admin,
    ):
        await admin.topics.create("orders")
        await error_of(producer.send(Message("absent", b"1")), RouteError)
        await error_of(producer.send(Message("orders", b"")), ConfigurationError)
        await error_of(producer.send(Message("orders", b"1"), key=None), ConfigurationError)
        await error_of(door.result(producer.submit(Message("absent", b"1"))), RouteError)
        too_big = await error_of(producer.send(Message("orders", bytes(3000))), RocketMQError)
        assert not too_big.outcome_unknown
        await error_of(producer.recall("nonsense"), ConfigurationError)
        await error_of(producer.messages.by_id("orders", "0" * 32), NotFoundError)
        await error_of(admin.topics.route("absent"), RouteError)
        await error_of(admin.groups.config("absent"), GroupNotFoundError)
        closed = producer
    await error_of(closed.send(Message("orders", b"1")), ClosedError)


@scenario
async def consumption(door: DoorUnderTest, connection: str) -> None:
    seen: list[tuple[bytes, int]] = []

    def listener(message: ReceivedMessage) -> None:
        seen.append((message.body, message.reconsume_times))
        if message.body == b"3" and message.reconsume_times == 0:
            raise ConsumeLater(delay_level=1)

    async with broker_of(door, connection) as at, door.Producer("shop", **at) as producer:
        for number in range(6):
            await producer.send(Message("orders", b"%d" % number, tags="ab"[number % 2]))
        async with door.PushConsumer(
            "g",
            subscriptions={"orders": "b"},
            listener=door.function(listener),
            consume_from=FIRST,
            **at,
        ) as consumer:
            await door.until(lambda: len(seen) == 4)
            assert sorted(seen) == [(b"1", 0), (b"3", 0), (b"3", 1), (b"5", 0)]
            await door.until(lambda: consumer.statistics().consumed == 3)
            assert consumer.health().consuming
            consumer.suspend()
            consumer.resume()
            consumer.set_concurrency(3)
            with pytest.raises(ConfigurationError):
                consumer.set_concurrency(0)
            await consumer.subscribe("others", "*")
            await consumer.unsubscribe("others")
            await error_of(consumer.subscribe("orders", ("a >", "SQL92")), FilterSyntaxError)
            assert set((await consumer.group_lag()).values()) <= {0, 1, 2}
        await error_of(consumer.group_lag(), ClosedError)


@scenario
async def batches_and_wrong_answers(door: DoorUnderTest, connection: str) -> None:
    sizes: list[int] = []
    async with broker_of(door, connection) as at, door.Producer("shop", **at) as producer:
        handles = [
            producer.submit_batch([Message("orders", b"%d" % n) for n in range(5)]) for _ in "ab"
        ]
        results = [await door.result(handle) for handle in handles]
        assert [handle.message_id for handle in handles] == [r.message_id for r in results]
        await error_of(producer.send_batch([]), ConfigurationError)
        with pytest.raises(ConfigurationError):
            producer.submit_batch([])
        async with door.PushConsumer(
            "g",
            subscriptions=TOPICS,
            listener=door.function(lambda messages: sizes.append(len(messages))),
            consume_from=FIRST,
            batch=4,
            **at,
        ):
            await door.until(lambda: sum(sizes) == 10)
        assert max(sizes) == 4
        consumer = door.PushConsumer(
            "g2",
            subscriptions=TOPICS,
            listener=door.function(lambda _message: "done"),
            consume_from=FIRST,
            **at,
        )
        with pytest.raises(RocketMQError, match="the listener returned"):  # noqa: PT012
            async with consumer:
                await door.sleep(0)
                await door.until(lambda: not consumer.health().consuming)
        with pytest.raises(ClosedError, match="runs once"):
            await consumer.__aenter__()


@scenario
async def receipts(door: DoorUnderTest, connection: str) -> None:
    async with broker_of(door, connection) as at, door.Producer("shop", **at) as producer:
        await door.Admin(client=producer.client).topics.create("orders")
        async with door.SimpleConsumer("g", subscriptions=TOPICS, **at) as consumer:
            for number in range(3):
                await producer.send(Message("orders", b"%d" % number))
            taken: list[Any] = []
            while len(taken) < 3:
                taken += await consumer.receive(32, invisible_duration=30, await_duration=1)
            await consumer.ack(taken[0])
            await error_of(consumer.ack(taken[0]), ReceiptHandleError)
            async with consumer.processing(taken[1]):
                pass
            await consumer.change_invisible_duration(taken[2], 0)
            again = await consumer.receive(32, await_duration=5)
            while not again:
                again = await consumer.receive(32, await_duration=5)
            assert [(m.body, m.reconsume_times) for m in again] == [(taken[2].body, 1)]
            with pytest.raises(ValueError, match="mine"):
                async with consumer.processing(again[0]):
                    raise ValueError("mine")
            await error_of(consumer.receive(99), ConfigurationError)
            await producer.send(Message("orders", b"last"))
            async for message in consumer:
                await consumer.ack(message)
                assert message.body == b"last"
                break


@scenario
async def polls(door: DoorUnderTest, connection: str) -> None:
    async with (
        broker_of(door, connection) as at,
        door.Producer("shop", **at) as producer,
    ):
        for number in range(8):
            await producer.send(Message("orders", b"%d" % number))
        changes: list[Any] = []
        async with door.LitePullConsumer(
            "g",
            subscriptions=TOPICS,
            consume_from=FIRST,
            on_assignment_change=door.function(changes.append),
            **at,
        ) as consumer:
            bodies: list[bytes] = []
            while len(bodies) < 6:
                polled = await consumer.poll(1, max_messages=1)
                bodies += [message.body for message in polled]
                consumer.done(*polled)
            async for message in consumer:
                bodies.append(message.body)
                consumer.done(message)
                if len(bodies) >= 8:
                    break
            assert sorted(set(bodies)) == [b"%d" % number for number in range(8)]
            await consumer.commit()
            queues = sorted(consumer.assignment())
            assert sum([await consumer.committed(queue) or 0 for queue in queues]) == 8
            await consumer.seek_to_begin(queues[0])
            assert consumer.position(queues[0]) == 0
            consumer.pause(*queues)
            assert await consumer.poll(0.02) == []
            consumer.resume(*queues)
            await error_of(consumer.seek(queues[0], 10**6), ConfigurationError)
            await door.until(lambda: changes)
        assert changes[0].added
        async with door.PullConsumer("p", **at) as pull:
            queues = await pull.message_queues("orders")
            found = [await pull.pull(queue, 0) for queue in queues]
            assert sum(len(result.messages) for result in found) == 8


@scenario
async def transactions(door: DoorUnderTest, connection: str) -> None:
    asked: list[bytes] = []

    def checker(message: ReceivedMessage) -> TransactionState:
        asked.append(message.body)
        return TransactionState.COMMIT if message.body == b"2" else TransactionState.UNKNOWN

    settings = {"transaction_check_interval": 50, "transaction_time_out": 50}
    async with (
        broker_of(door, connection, **settings) as at,
        door.TransactionProducer("shop", door.function(checker), **at) as producer,
    ):
        async with producer.transaction(Message("orders", b"1")) as transaction:
            assert transaction.message_id
        assert transaction.confirmed
        with pytest.raises(ValueError, match="unsure"):
            async with producer.transaction(Message("orders", b"2")):
                raise ValueError("unsure")
        with pytest.raises(ValueError, match="sure"):
            async with producer.transaction(Message("orders", b"3"), rollback_on=ValueError):
                raise ValueError("sure")
        result = await producer.send_in_transaction(
            Message("orders", b"4"), door.function(lambda _transaction: TransactionState.ROLLBACK)
        )
        assert result.state is TransactionState.ROLLBACK
        await door.until(lambda: b"2" in asked)
        delayed = Message("orders", b"5", delay_level=1)
        with pytest.raises(ConfigurationError):
            await producer.transaction(delayed).__aenter__()
        stored: set[bytes] = set()
        while b"2" not in stored:
            await door.sleep(0.01)
            stored = {m.body async for m in producer.messages.in_time("orders", 0)}
        assert stored == {b"1", b"2"}


@scenario
async def requests(door: DoorUnderTest, connection: str) -> None:
    async with broker_of(door, connection) as at, door.Client(**at) as client:
        await door.Admin(client=client).topics.create("orders")
        async with (
            door.Producer("shop", client=client) as producer,
            door.SimpleConsumer("g", subscriptions=TOPICS, client=client) as consumer,
        ):
            await error_of(
                producer.request(Message("orders", b"?"), timeout=0.3), RequestTimeoutError
            )
            message = (await consumer.receive(await_duration=10))[0]
            with pytest.raises(ConfigurationError):
                reply_message(ReceivedMessage("orders", b"no request"), b"!")
            await producer.send(reply_message(message, b"!"))
        assert client.running


@scenario
async def administration(door: DoorUnderTest, connection: str) -> None:
    async with broker_of(door, connection) as at, door.Client(**at) as client:
        admin = door.Admin(client=client)
        await admin.topics.create("orders", queues=2)
        await admin.groups.create("g")
        assert {"orders"} <= set(await admin.topics.names())
        assert "g" in await admin.groups.names()
        assert len(await admin.cluster.brokers()) == 1
        async with admin.messages.follow("orders", begin=0) as messages:
            async with door.Producer("shop", client=client) as producer:
                await producer.send(Message("orders", b"1"))
            async for message in messages:
                assert message.body == b"1"
                break
        await admin.topics.delete("orders")
        await error_of(admin.topics.route("orders"), RouteError)


@pytest.mark.parametrize("connection", CONNECTIONS)
@pytest.mark.parametrize("door", DOORS, ids=[door.name for door in DOORS])
@pytest.mark.parametrize("scenario", SCENARIOS, ids=[one.__name__ for one in SCENARIOS])
def test_the_same_results_and_errors(
    scenario: Callable[..., Coroutine[Any, Any, None]], door: DoorUnderTest, connection: str
) -> None:
    door.run(scenario, connection)
