"""Traces of messages: records of producers and consumers over an embedded broker, put
together again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import trio

from rocketmq_sdk.admin.client import Admin
from rocketmq_sdk.admin.stored_copy import CopyKind
from rocketmq_sdk.admin.track import Track
from rocketmq_sdk.broker_embedded.broker import EmbeddedBroker
from rocketmq_sdk.client.runtime import Client
from rocketmq_sdk.client.trace import MAX_MESSAGE, MAX_WAITING, TraceDispatcher
from rocketmq_sdk.consumer.outcome import ConsumeLater
from rocketmq_sdk.consumer.push.consumer import PushConsumer
from rocketmq_sdk.errors import ConfigurationError, NotFoundError
from rocketmq_sdk.model.enums import TransactionState
from rocketmq_sdk.model.message import Message
from rocketmq_sdk.producer.producer import Producer
from rocketmq_sdk.producer.transaction import TransactionProducer
from rocketmq_sdk.protocol.trace import ConsumeResult, MessageType, Published
from support.waiting import until

if TYPE_CHECKING:
    from trio.testing import MockClock

LIMIT = 3600


async def test_the_trace_of_a_message_that_failed_twice(autojump_clock: MockClock) -> None:
    attempts: list[int] = []

    async def listener(message: object) -> None:
        attempts.append(1)
        await trio.sleep(0.25)
        if len(attempts) == 1:
            raise ValueError("not now")
        if len(attempts) == 2:
            raise ConsumeLater(delay_level=1)

    with trio.fail_after(LIMIT):
        async with EmbeddedBroker() as broker, Admin(namesrv=broker) as admin:
            async with Producer("shop", namesrv=broker, enable_trace=True) as producer:
                await Admin(client=producer.client).topics.create("orders", queues=1)
                async with PushConsumer(
                    "billing",
                    namesrv=broker,
                    subscriptions={"orders": "*"},
                    listener=listener,
                    enable_trace=True,
                ):
                    sent = await producer.send(
                        Message("orders", b"bananas", tags="paid", keys=["42", "eu"])
                    )
                    await until(lambda: len(attempts) == 3, LIMIT)
                    await trio.sleep(1)
            trace = await admin.messages.trace(sent.message_id)
            (published,) = trace.published
            assert (published.group, published.topic) == ("shop", "orders")
            assert (published.tags, published.keys) == ("paid", "42 eu")
            assert (published.body_length, published.message_type) == (7, MessageType.NORMAL)
            assert published.success is True
            assert (published.store_host, published.offset_message_id) == (
                broker.core.address(),
                sent.offset_message_id,
            )
            assert [
                (each.group, each.retries, each.result, each.cost) for each in trace.consumptions
            ] == [
                ("billing", 0, ConsumeResult.EXCEPTION, 250),
                ("billing", 1, ConsumeResult.FAILED, 250),
                ("billing", 2, ConsumeResult.SUCCESS, 250),
            ]
            assert trace.groups() == {"billing": True}
            assert [step.kind for step in trace.copies if step.kind is not CopyKind.DELAYED] == [
                CopyKind.TOPIC,
                CopyKind.RETRY,
                CopyKind.RETRY,
            ]
            (same,) = await admin.messages.traces("42")
            assert (same.message_id, same.published, same.consumptions) == (
                sent.message_id,
                trace.published,
                trace.consumptions,
            )
            with pytest.raises(NotFoundError, match="nobody tells anything"):
                await admin.messages.trace("0" * 32, topic="orders")


async def test_a_message_without_traces_has_its_copies(autojump_clock: MockClock) -> None:
    async with (
        EmbeddedBroker() as broker,
        Producer("shop", namesrv=broker) as producer,
        Admin(namesrv=broker) as admin,
    ):
        sent = await producer.send(Message("orders", b"x"))
        trace = await admin.messages.trace(sent.message_id, topic="orders")
        assert trace.published == ()
        assert [step.kind for step in trace.copies] == [CopyKind.TOPIC]


async def test_without_a_trace_topic_there_are_the_copies(autojump_clock: MockClock) -> None:
    async with (
        EmbeddedBroker(trace_topic_enable=False) as broker,
        Producer("shop", namesrv=broker) as producer,
        Admin(namesrv=broker) as admin,
    ):
        sent = await producer.send(Message("orders", b"x"))
        assert len((await admin.messages.trace(sent.message_id, topic="orders")).copies) == 1
        assert await admin.messages.traces("42") == []


async def test_kinds_of_sends(autojump_clock: MockClock) -> None:
    with trio.fail_after(LIMIT):
        async with EmbeddedBroker() as broker, Admin(namesrv=broker) as admin:
            async with Producer("shop", namesrv=broker, enable_trace=True) as producer:
                delayed = await producer.send(Message("orders", b"x", delay_level=1))
                batch = await producer.send_batch(
                    [Message("orders", b"1", keys=["a"]), Message("orders", b"2", keys=["b"])]
                )
                big = await producer.send(Message("orders", b"x" * 10_000))
            assert (await admin.messages.trace(delayed.message_id)).published[
                0
            ].message_type is MessageType.DELAY
            for message_id in batch.message_id.split(","):
                (published,) = (await admin.messages.trace(message_id)).published
                assert published.message_id == batch.message_id
            assert (await admin.messages.trace(big.message_id)).published[0].body_length < 10_000


async def test_transactions(autojump_clock: MockClock) -> None:
    async def checker(_message: object) -> TransactionState:
        return TransactionState.ROLLBACK

    with trio.fail_after(LIMIT):
        async with (
            EmbeddedBroker(transaction_time_out=2000, transaction_check_interval=2000) as broker,
            Admin(namesrv=broker) as admin,
        ):
            async with TransactionProducer(
                "shop", namesrv=broker, checker=checker, enable_trace=True
            ) as producer:
                await Admin(client=producer.client).topics.create("orders")
                async with producer.transaction(
                    Message("orders", b"kept", keys=["42"], tags="paid")
                ) as kept:
                    pass
                async with producer.transaction(Message("orders", b"open")) as left:
                    left.unknown()
                await trio.sleep(60)
            trace = await admin.messages.trace(kept.message_id)
            assert trace.published[0].message_type is MessageType.TRANSACTION_HALF
            (ended,) = trace.transactions
            assert (ended.state, ended.tags, ended.keys, ended.from_check) == (
                "COMMIT_MESSAGE",
                "paid",
                "42",
                False,
            )
            assert ended.transaction_id == kept.transaction_id
            assert [step.kind for step in trace.copies] == [CopyKind.PREPARED, CopyKind.TOPIC]
            states = [
                (each.state, each.from_check)
                for each in (await admin.messages.trace(left.message_id)).transactions
            ]
            assert states == [("UNKNOW", False), ("ROLLBACK_MESSAGE", True)]


async def test_a_broker_that_wants_no_traces_gets_none(autojump_clock: MockClock) -> None:
    with trio.fail_after(LIMIT):
        async with EmbeddedBroker(trace_on=False) as broker, Admin(namesrv=broker) as admin:
            async with Producer("shop", namesrv=broker, enable_trace=True) as producer:
                sent = await producer.send(Message("orders", b"x"))
            with pytest.raises(NotFoundError):
                await admin.messages.trace(sent.message_id)


async def test_the_trace_topic_may_be_another_one(autojump_clock: MockClock) -> None:
    with trio.fail_after(LIMIT):
        async with EmbeddedBroker() as broker:
            async with Producer(
                "shop", namesrv=broker, enable_trace=True, trace_topic="our_traces"
            ) as producer:
                sent = await producer.send(Message("orders", b"x"))
                own = await producer.send(Message("our_traces", b"not traced itself"))
            async with Admin(namesrv=broker, trace_topic="our_traces") as admin:
                assert (await admin.messages.trace(sent.message_id)).published
                assert await admin.messages.traces(own.message_id) == []


async def test_events_are_sent_together_and_after_five_seconds(autojump_clock: MockClock) -> None:
    with trio.fail_after(LIMIT):
        async with (
            EmbeddedBroker() as broker,
            Producer("shop", namesrv=broker, enable_trace=True, trace_msg_batch_num=4) as producer,
        ):

            def stored() -> int:
                return broker.store.max_offset("RMQ_SYS_TRACE_TOPIC", 0)

            for number in range(8):
                await producer.send(Message("orders", b"%d" % number))
            await until(lambda: stored() == 2, 4, 0.01)
            await producer.send(Message("orders", b"alone"))
            await trio.sleep(4)
            assert stored() == 2
            await trio.sleep(2)
            assert stored() == 3


async def test_traces_never_fail_what_they_tell_of(autojump_clock: MockClock) -> None:
    """There is no trace topic, and none may be made."""
    with trio.fail_after(LIMIT):
        async with EmbeddedBroker(
            trace_topic_enable=False, auto_create_topic_enable=False
        ) as broker:
            async with Producer("shop", namesrv=broker) as helper:
                await Admin(client=helper.client).topics.create("orders")
            async with Producer("shop", namesrv=broker, enable_trace=True) as producer:
                await producer.send(Message("orders", b"x"))
            assert producer._trace is not None
            assert producer._trace.dropped == 1


async def test_a_full_queue_drops_and_counts(autojump_clock: MockClock) -> None:
    async with EmbeddedBroker() as broker, Client(broker) as client:
        dispatcher = TraceDispatcher(client, "shop", "PRODUCE")
        record = Published(time=1, group="shop", topic="orders", message_id="id")
        taken = [dispatcher.append("orders", record) for _ in range(MAX_WAITING + 3)]
        assert taken == [True] * MAX_WAITING + [False] * 3
        assert dispatcher.dropped == 3
        await dispatcher.aclose()
        assert dispatcher.sent >= MAX_WAITING / 20


async def test_a_trace_message_keeps_its_limit(autojump_clock: MockClock) -> None:
    async with EmbeddedBroker() as broker, Client(broker) as client:
        dispatcher = TraceDispatcher(client, "shop", "PRODUCE")
        for number in range(10):
            dispatcher.append(
                "orders",
                Published(
                    time=1,
                    group="shop",
                    topic="orders",
                    message_id=f"id{number}",
                    tags="x" * 40_000,
                ),
            )
        await dispatcher.flush()
        assert dispatcher.sent == 4
        assert dispatcher.sent * 3 * 40_000 < 4 * MAX_MESSAGE


@pytest.mark.parametrize(
    ("name", "value"), [("trace_topic", "bad topic"), ("trace_msg_batch_num", 0)]
)
def test_settings_are_checked(name: str, value: object) -> None:
    with pytest.raises(ConfigurationError, match=name):
        Producer("shop", namesrv="127.0.0.1:1", **{name: value})  # type: ignore[arg-type]


async def test_names_of_a_namespace_are_those_that_users_write(autojump_clock: MockClock) -> None:
    seen: list[str] = []

    async def listener(message: object) -> None:
        seen.append(message.topic)  # type: ignore[attr-defined]

    with trio.fail_after(LIMIT):
        async with EmbeddedBroker() as broker, Admin(namesrv=broker, namespace="shop") as admin:
            async with Producer(
                "pg", namesrv=broker, namespace="shop", enable_trace=True
            ) as producer:
                await Admin(client=producer.client).topics.create("orders", queues=1)
                async with PushConsumer(
                    "billing",
                    namesrv=broker,
                    namespace="shop",
                    subscriptions={"orders": "*"},
                    listener=listener,
                    enable_trace=True,
                ):
                    sent = await producer.send(Message("orders", b"x", keys=["42"], tags="paid"))
                    await until(lambda: bool(seen))
                    message = await admin.messages.by_unique_id("orders", sent.message_id)
                    await trio.sleep(10)
                    assert await admin.messages.track(message) == {"billing": Track.CONSUMED}
            assert set(broker.store.topics()) >= {"shop%orders", "RMQ_SYS_TRACE_TOPIC"}
            assert message.topic == "orders"
            assert [found.topic for found in await admin.messages.by_key("orders", "42")] == [
                "orders"
            ]
            assert [found.topic async for found in admin.messages.in_time("orders", None)] == [
                "orders"
            ]
            assert (
                await admin.messages.by_offset_id(sent.offset_message_id, topic="orders")
            ).topic == "orders"
            trace = await admin.messages.trace(sent.message_id)
            assert (trace.topic, trace.published[0].group, trace.groups()) == (
                "orders",
                "pg",
                {"billing": True},
            )
            assert [(step.topic, step.queue.topic) for step in trace.copies] == [
                ("orders", "shop%orders")
            ]
