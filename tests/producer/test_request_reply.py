"""Requests and replies: through our broker, with consumers that reply, too late, or not
at all.
"""

from __future__ import annotations

from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
import trio

from rocketmq_sdk.broker_embedded.broker import EmbeddedBroker
from rocketmq_sdk.codes import RequestCode
from rocketmq_sdk.consumer.push.consumer import PushConsumer
from rocketmq_sdk.errors import BrokerError, ConfigurationError, RequestTimeoutError
from rocketmq_sdk.model.message import Message
from rocketmq_sdk.model.properties import CORRELATION_ID, REPLY_TO_CLIENT
from rocketmq_sdk.producer.producer import Producer
from rocketmq_sdk.producer.request_reply import reply_message
from rocketmq_sdk.protocol.bodies.topics import TopicConfig
from rocketmq_sdk.protocol.message_codec import decode_message
from rocketmq_sdk.testing.interception import intercept
from support.transactions import bodies_in
from support.two_brokers import open_two_brokers

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from trio.testing import MockClock

    from rocketmq_sdk.model.received import ReceivedMessage
    from rocketmq_sdk.protocol.command import Command
    from rocketmq_sdk.remoting.channel import Channel, Handler


@asynccontextmanager
async def replier(
    broker: EmbeddedBroker, *, delay: float = 0.0, body: bytes | None = None
) -> AsyncIterator[list[ReceivedMessage]]:
    """A consumer that replies to what it gets."""
    asked: list[ReceivedMessage] = []
    async with Producer("PG_replier", namesrv=broker, instance_name="replier") as producer:

        async def listener(message: ReceivedMessage) -> None:
            asked.append(message)
            await trio.sleep(delay)
            await producer.send(
                reply_message(
                    message, body or b"reply to " + message.body, tags="R", properties={"a": "b"}
                )
            )

        async with PushConsumer(
            "CG",
            namesrv=broker,
            subscriptions={"rpc": "*"},
            listener=listener,
            instance_name="replier-c",
        ):
            await trio.sleep(2)
            yield asked


async def test_a_request_gets_its_reply(autojump_clock: MockClock) -> None:
    with trio.fail_after(120):
        async with EmbeddedBroker() as broker, Producer("PG", namesrv=broker) as producer:
            broker.core.topics.put(TopicConfig("rpc", 2, 2))
            async with replier(broker) as asked:
                reply = await producer.request(Message("rpc", b"question", keys=["k"]), timeout=8)
                assert (reply.body, reply.tags, reply.properties["a"], reply.topic) == (
                    b"reply to question",
                    "R",
                    "b",
                    "DefaultCluster_REPLY_TOPIC",
                )
                [request] = asked
                assert request.properties[REPLY_TO_CLIENT] == producer.client.client_id
                assert reply.properties[CORRELATION_ID] == request.properties[CORRELATION_ID]
                assert request.properties["TTL"] == "8000"
                assert {"PUSH_REPLY_TIME", "ARRIVE_TIME"} <= reply.properties.keys()
                await trio.sleep(1)  # it is stored when the requester has taken it
                assert bodies_in(broker, "DefaultCluster_REPLY_TOPIC") == [b"reply to question"]


async def test_requests_wait_for_room(autojump_clock: MockClock) -> None:
    most = 0
    with trio.fail_after(120):
        async with (
            EmbeddedBroker() as broker,
            Producer("PG", namesrv=broker, max_in_flight=2) as producer,
        ):
            broker.core.topics.put(TopicConfig("rpc", 4, 4))

            def slowly(channel: Channel, request: Command, serve: Handler) -> Any:
                async def later() -> Any:
                    nonlocal most
                    most = max(most, producer.in_flight)
                    await trio.sleep(1)
                    answer = serve(channel, request)
                    return await answer() if callable(answer) else answer

                return later

            async with replier(broker), trio.open_nursery() as nursery:
                intercept(broker, RequestCode.SEND_MESSAGE_V2, by=slowly)
                for number in range(6):
                    nursery.start_soon(
                        partial(producer.request, Message("rpc", b"%d" % number), timeout=30)
                    )
    assert most == 2


async def test_many_requests_at_a_time_get_their_own_replies(autojump_clock: MockClock) -> None:
    replies: dict[int, bytes] = {}
    with trio.fail_after(120):
        async with EmbeddedBroker() as broker, Producer("PG", namesrv=broker) as producer:
            broker.core.topics.put(TopicConfig("rpc", 4, 4))

            async def ask(number: int) -> None:
                replies[number] = (
                    await producer.request(Message("rpc", b"%d" % number), timeout=30)
                ).body

            async with replier(broker, delay=0.2), trio.open_nursery() as nursery:
                for number in range(50):
                    nursery.start_soon(ask, number)
    assert replies == {number: b"reply to %d" % number for number in range(50)}


async def test_no_reply_in_time(autojump_clock: MockClock) -> None:
    with trio.fail_after(120):
        async with EmbeddedBroker() as broker, Producer("PG", namesrv=broker) as producer:
            broker.core.topics.put(TopicConfig("rpc", 2, 2))
            async with replier(broker, delay=5) as asked:
                started = trio.current_time()
                with pytest.raises(RequestTimeoutError, match="no reply"):
                    await producer.request(Message("rpc", b"slow"), timeout=2)
                assert 2 <= trio.current_time() - started < 2.1
                await trio.sleep(10)
                assert len(asked) == 1
                assert len(producer._requests) == 0


async def test_a_cancelled_request_waits_no_more(autojump_clock: MockClock) -> None:
    with trio.fail_after(120):
        async with EmbeddedBroker() as broker, Producer("PG", namesrv=broker) as producer:
            broker.core.topics.put(TopicConfig("rpc", 2, 2))
            with trio.move_on_after(1) as scope:
                await producer.request(Message("rpc", b"?"), timeout=10)
            assert scope.cancelled_caught
            assert len(producer._requests) == 0


async def test_a_reply_to_a_client_that_is_gone_is_refused_and_stored(
    autojump_clock: MockClock,
) -> None:
    with trio.fail_after(120):
        async with (
            EmbeddedBroker() as broker,
            Producer("PG_replier", namesrv=broker, retry_times=0) as producer,
        ):
            broker.core.topics.put(TopicConfig("rpc", 1, 1))
            async with Producer("PG", namesrv=broker, instance_name="gone") as asker:
                with pytest.raises(RequestTimeoutError):
                    await asker.request(Message("rpc", b"?"), timeout=0.5)
            unit = broker.store.queue_unit("rpc", 0, 0)
            assert unit is not None
            record = broker.store.record_at(unit[0])
            assert record is not None
            with pytest.raises(BrokerError, match="not found") as caught:
                await producer.send(reply_message(decode_message(record), b"too late"))
            assert caught.value.code == 1
            assert bodies_in(broker, "DefaultCluster_REPLY_TOPIC") == [b"too late"]


async def test_replies_are_not_stored_when_that_is_off(autojump_clock: MockClock) -> None:
    with trio.fail_after(120):
        async with (
            EmbeddedBroker(store_reply_message_enable=False) as broker,
            Producer("PG", namesrv=broker) as producer,
        ):
            broker.core.topics.put(TopicConfig("rpc", 2, 2))
            async with replier(broker):
                assert (
                    await producer.request(Message("rpc", b"?"), timeout=8)
                ).body == b"reply to ?"
            assert bodies_in(broker, "DefaultCluster_REPLY_TOPIC") == []


async def test_big_replies_are_compressed_on_the_way(autojump_clock: MockClock) -> None:
    body = b"a long answer " * 1000
    with trio.fail_after(120):
        async with EmbeddedBroker() as broker, Producer("PG", namesrv=broker) as producer:
            broker.core.topics.put(TopicConfig("rpc", 2, 2))
            async with replier(broker, body=body):
                assert (await producer.request(Message("rpc", b"?"), timeout=8)).body == body


async def test_only_requests_can_be_replied_to(autojump_clock: MockClock) -> None:
    with trio.fail_after(120):
        async with EmbeddedBroker() as broker, Producer("PG", namesrv=broker) as producer:
            await producer.send(Message("plain", b"x"))
            got: list[ReceivedMessage] = []

            async def listener(message: ReceivedMessage) -> None:
                got.append(message)

            async with PushConsumer(
                "CG",
                namesrv=broker,
                subscriptions={"plain": "*"},
                listener=listener,
                instance_name="c",
            ):
                while not got:
                    await producer.send(Message("plain", b"x"))
                    await trio.sleep(1)
            with pytest.raises(ConfigurationError, match="no request"):
                reply_message(got[0], b"?")


async def test_a_reply_in_the_socket_counts_although_the_loop_was_blocked(
    autojump_clock: MockClock,
) -> None:
    """And a request has no settings but those of a send."""
    async with (
        open_two_brokers("rpc", 1) as cluster,
        Producer("PG", namesrv=cluster.way()[0]) as producer,
        Producer("PG_replier", namesrv=cluster.way()[0]) as replies,
    ):

        async def listener(message: ReceivedMessage) -> None:
            await replies.send(reply_message(message, b"here"))
            autojump_clock.jump(60)  # nobody runs, and the reply waits to be read

        async with PushConsumer(
            "CG", namesrv=cluster.way()[0], subscriptions={"rpc": "*"}, listener=listener
        ):
            await trio.sleep(2)
            reply = await producer.request(Message("rpc", b"x"), timeout=3)
            assert reply.body == b"here"
        unknown: Any = {"quue": None}
        with pytest.raises(ConfigurationError, match="did you mean queue"):
            await producer.request(Message("rpc", b"x"), **unknown)
