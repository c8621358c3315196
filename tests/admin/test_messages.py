"""Messages found by everything that names them, over an embedded broker; their
trails.
"""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
import trio

from rocketmq_sdk.admin.client import Admin
from rocketmq_sdk.admin.stored_copy import CopyKind
from rocketmq_sdk.admin.track import Track
from rocketmq_sdk.broker_embedded.broker import EmbeddedBroker
from rocketmq_sdk.consumer.lite_pull.consumer import LitePullConsumer
from rocketmq_sdk.consumer.lite_pull.pull_consumer import PullConsumer
from rocketmq_sdk.consumer.outcome import RejectMessage
from rocketmq_sdk.consumer.push.consumer import PushConsumer
from rocketmq_sdk.consumer.simple.consumer import SimpleConsumer
from rocketmq_sdk.errors import ClosedError, ConfigurationError, NotFoundError, TopicNotFoundError
from rocketmq_sdk.model.enums import ConsumeFrom
from rocketmq_sdk.model.message import Message
from rocketmq_sdk.model.queue import MessageQueue
from rocketmq_sdk.producer.producer import Producer
from support.consuming import Collector
from support.waiting import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from trio.testing import MockClock


@asynccontextmanager
async def shop() -> AsyncIterator[tuple[EmbeddedBroker, Producer, Admin]]:
    with trio.fail_after(3600):
        async with (
            EmbeddedBroker() as broker,
            Producer("shop", namesrv=broker) as producer,
            Admin(namesrv=broker) as admin,
        ):
            await Admin(client=producer.client).topics.create("orders", queues=2)
            yield broker, producer, admin


async def test_by_either_id(autojump_clock: MockClock) -> None:
    async with shop() as (_broker, producer, admin):
        sent = await producer.send(Message("orders", b"x", keys=["42"]))
        for found in (
            await admin.messages.by_unique_id("orders", sent.message_id),
            await admin.messages.by_offset_id(sent.offset_message_id),
            await admin.messages.by_offset_id(sent.offset_message_id, topic="orders"),
            await admin.messages.by_id("orders", sent.message_id),
            await admin.messages.by_id("orders", sent.offset_message_id),
            await producer.messages.by_unique_id("orders", sent.message_id),
        ):
            assert (found.body, found.message_id, found.offset_message_id) == (
                b"x",
                sent.message_id,
                sent.offset_message_id,
            )


async def test_every_kind_of_member_asks(autojump_clock: MockClock) -> None:
    async with shop() as (broker, producer, admin):
        sent = await producer.send(Message("orders", b"x"))
        wanted = {"orders": "*"}
        async with (
            PushConsumer(
                "push", namesrv=broker, subscriptions=wanted, listener=Collector()
            ) as push,
            SimpleConsumer("simple", namesrv=broker, subscriptions=wanted) as simple,
            LitePullConsumer("lite", namesrv=broker, subscriptions=wanted) as lite,
            PullConsumer("pull", namesrv=broker) as pull,
        ):
            for member in (producer, push, simple, lite, pull, admin):
                assert (await member.messages.by_unique_id("orders", sent.message_id)).body == b"x"  # type: ignore[attr-defined]


async def test_ids_of_nothing(autojump_clock: MockClock) -> None:
    async with shop() as (_broker, producer, admin):
        sent = await producer.send(Message("orders", b"x"))
        with pytest.raises(NotFoundError, match="no message of the topic has the unique id"):
            await admin.messages.by_unique_id("orders", "0" * 32)
        with pytest.raises(NotFoundError):
            await admin.messages.by_id("orders", "no hexadecimal text")
        beside = sent.offset_message_id[:-2] + f"{int(sent.offset_message_id[-2:], 16) + 7:02X}"
        with pytest.raises(NotFoundError, match=beside):
            await admin.messages.by_offset_id(beside)
        with pytest.raises(ConfigurationError, match="hexadecimal"):
            await admin.messages.by_offset_id("no hexadecimal text")
        with pytest.raises(TopicNotFoundError):
            await admin.messages.by_unique_id("nothing", sent.message_id)


async def test_by_key_and_tag_within_a_time(autojump_clock: MockClock) -> None:
    async with shop() as (broker, producer, admin):
        times = []
        for number in range(5):
            await producer.send(
                Message(
                    "orders",
                    b"%d" % number,
                    keys=["all", str(number)],
                    tags="paid" if number % 2 else "open",
                )
            )
            times.append(broker.core.clock.now_ms())
            await trio.sleep(10)
        assert [message.body for message in await admin.messages.by_key("orders", "all")] == [
            b"0",
            b"1",
            b"2",
            b"3",
            b"4",
        ]
        assert [message.body for message in await admin.messages.by_key("orders", "3")] == [b"3"]
        assert [
            message.body for message in await admin.messages.by_key("orders", "all", limit=2)
        ] == [b"3", b"4"]
        within = await admin.messages.by_key(
            "orders", "all", begin=times[1] - 100, end=times[3] + 100
        )
        assert [message.body for message in within] == [b"1", b"2", b"3"]
        assert [message.body for message in await admin.messages.by_tag("orders", "paid")] == [
            b"1",
            b"3",
        ]
        assert await admin.messages.by_key("orders", "absent") == []
        with pytest.raises(ConfigurationError, match="empty key"):
            await admin.messages.by_key("orders", "")
        with pytest.raises(ConfigurationError, match="limit is 0"):
            await admin.messages.by_key("orders", "all", limit=0)


async def test_neighbours_with_the_same_hash_are_left_out(autojump_clock: MockClock) -> None:
    async with shop() as (_broker, producer, admin):
        # "Aa" and "BB" have the same hash in Java.
        await producer.send(Message("orders", b"one", keys=["Aa"]))
        await producer.send(Message("orders", b"other", keys=["BB"]))
        assert [message.body for message in await admin.messages.by_key("orders", "Aa")] == [b"one"]
        assert [message.body for message in await admin.messages.by_key("orders", "BB")] == [
            b"other"
        ]


async def test_by_place(autojump_clock: MockClock) -> None:
    async with shop() as (_broker, producer, admin):
        queue = (await admin.messages.queues("orders"))[0]
        for number in range(70):
            await producer.send(Message("orders", b"%d" % number), queue=queue)
        assert (await admin.messages.at(queue, 33)).body == b"33"
        assert [
            message.offset for message in await admin.messages.from_offset(queue, 10, 50)
        ] == list(range(10, 60))
        assert [
            message.offset for message in await admin.messages.from_offset(queue, 60, 50)
        ] == list(range(60, 70))
        for offset in (70, 1000):
            with pytest.raises(NotFoundError, match=f"no message at offset {offset}"):
                await admin.messages.at(queue, offset)
        with pytest.raises(NotFoundError):
            await admin.messages.at(MessageQueue("orders", queue.broker_name, 1), 0)


async def test_by_time_in_the_order_of_their_store_times(autojump_clock: MockClock) -> None:
    async with shop() as (broker, producer, admin):
        queues = await admin.messages.queues("orders")
        times = []
        for number in range(100):
            await producer.send(Message("orders", b"%d" % number), queue=queues[number * 7 % 3 % 2])
            times.append(broker.core.clock.now_ms())
            await trio.sleep(1)
        every = [int(message.body) async for message in admin.messages.in_time("orders", None)]
        assert every == list(range(100))
        some = [
            int(message.body)
            async for message in admin.messages.in_time("orders", times[20] - 100, times[80] + 100)
        ]
        assert some == list(range(20, 81))


async def test_the_copies_of_a_message_that_was_delayed_retried_and_given_up(
    autojump_clock: MockClock,
) -> None:
    attempts: list[int] = []

    async def listener(message: object) -> None:
        attempts.append(message.reconsume_times)  # type: ignore[attr-defined]
        if len(attempts) < 3:
            raise ValueError("not now")
        raise RejectMessage

    async with shop() as (broker, producer, admin):
        async with PushConsumer(
            "billing", namesrv=broker, subscriptions={"orders": "*"}, listener=listener
        ):
            sent = await producer.send(Message("orders", b"x", keys=["42"], delay_level=2))
            await until(lambda: len(attempts) == 3, 600)
            await until(lambda: broker.store.max_offset("%DLQ%billing", 0) == 1)
        copies = await admin.messages.stored_copies("orders", sent.message_id)
    kinds = [(step.kind, step.group, step.retries) for step in copies]
    assert kinds == [
        (CopyKind.DELAYED, None, 0),
        (CopyKind.TOPIC, None, 0),
        (CopyKind.DELAYED, "billing", 1),
        (CopyKind.RETRY, "billing", 1),
        (CopyKind.DELAYED, "billing", 2),
        (CopyKind.RETRY, "billing", 2),
        (CopyKind.DEAD, "billing", 3),
    ]
    assert {step.topic for step in copies} == {"orders"}
    assert [step.delay_level for step in copies[:6]] == [2, 2, 3, 3, 4, 4]
    assert copies[0].target == "orders"
    assert {step.origin_message_id for step in copies[2:]} == {copies[1].offset_message_id}


async def test_the_track_of_a_message_through_groups(autojump_clock: MockClock) -> None:
    async def listener(message: object) -> None:
        if message.body == b"hangs":  # type: ignore[attr-defined]
            await trio.sleep(1000)

    async def reads(message: object) -> None:
        """Done at once, and in the loop's own time: a thread would need real time."""

    async with shop() as (broker, producer, admin):
        queue = (await admin.messages.queues("orders"))[0]
        from_first: dict[str, Any] = {"namesrv": broker, "consume_from": ConsumeFrom.FIRST_OFFSET}
        async with (
            PushConsumer("takes", **from_first, subscriptions={"orders": "*"}, listener=reads),
            PushConsumer(
                "filters", **from_first, subscriptions={"orders": "other"}, listener=reads
            ),
            PushConsumer(
                "hangs",
                **from_first,
                subscriptions={"orders": "*"},
                listener=listener,
                pull_batch_size=1,
            ),
        ):
            first = await producer.send(Message("orders", b"hangs", tags="paid"), queue=queue)
            async with PushConsumer(
                "leaves", **from_first, subscriptions={"orders": "*"}, listener=reads
            ):
                await trio.sleep(30)
            message = await admin.messages.by_unique_id("orders", first.message_id)
            assert await admin.messages.track(message) == {
                "takes": Track.CONSUMED,
                "filters": Track.CONSUMED_BUT_FILTERED,
                "hangs": Track.NOT_CONSUMED_YET,
                "leaves": Track.NOT_ONLINE,
            }


async def test_an_admin_may_share_a_client_and_is_entered_once(autojump_clock: MockClock) -> None:
    async with EmbeddedBroker() as broker, Producer("shop", namesrv=broker) as producer:
        async with Admin(client=producer.client) as admin:
            sent = await producer.send(Message("orders", b"x"))
            assert (await admin.messages.by_unique_id("orders", sent.message_id)).body == b"x"
        assert producer.client.running
        with pytest.raises(ClosedError):
            async with admin:
                raise AssertionError("entered twice")
    with pytest.raises(ConfigurationError, match="client="):
        Admin(client=producer.client, namesrv=broker)
    with pytest.raises(ConfigurationError, match="nonsense"):
        Admin(namesrv=broker, nonsense=1)  # type: ignore[call-arg]
