"""The producer and the embedded broker: in process, with and without the codec, and
over a memory network.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import trio
import trio.lowlevel

from rocketmq_sdk.admin.client import Admin
from rocketmq_sdk.broker_embedded.broker import EmbeddedBroker
from rocketmq_sdk.client.api.offsets import max_offset
from rocketmq_sdk.client.runtime import Client
from rocketmq_sdk.errors import BrokerError, ConfigurationError, TopicNotFoundError
from rocketmq_sdk.model.enums import SendStatus
from rocketmq_sdk.model.message import Message
from rocketmq_sdk.producer.producer import Producer
from rocketmq_sdk.protocol.flags import HeaderEncoding

if TYPE_CHECKING:
    from trio.testing import MockClock


async def stored(producer: Producer, topic: str) -> int:
    return sum(
        [
            await max_offset(producer.client, queue.broker_name, topic, queue.queue_id)
            for queue in await producer.publish_queues(topic)
        ]
    )


@pytest.mark.parametrize("encoding", list(HeaderEncoding))
async def test_every_kind_of_send(encoding: HeaderEncoding, autojump_clock: MockClock) -> None:
    async with (
        EmbeddedBroker() as broker,
        Producer("pg", namesrv=broker, header_encoding=encoding) as producer,
    ):
        with trio.fail_after(30):
            await Admin(client=producer.client).topics.create("t", queues=3)
            assert len(await producer.publish_queues("t")) == 3
            first = await producer.send(Message("t", b"one", tags="a"))
            assert first.status is SendStatus.SEND_OK
            second = await producer.send(Message("t", b"two"), queue=first.queue)
            assert second.queue == first.queue
            assert second.queue_offset == first.queue_offset + 1
            handles = [producer.submit(Message("t", b"x" * 5000)) for _ in range(10)]
            assert len({(await handle).message_id for handle in handles}) == 10
            batch = await producer.send_batch(
                [Message("t", b"b%d" % number) for number in range(5)]
            )
            assert len(batch.message_id.split(",")) == len(batch.offset_message_id.split(",")) == 5
            await producer.send_oneway(Message("t", b"last"))
            while await stored(producer, "t") < 18:
                await trio.sleep(0.01)
            assert await stored(producer, "t") == 18


async def test_a_topic_is_created_by_sending(autojump_clock: MockClock) -> None:
    async with EmbeddedBroker() as broker, Producer("pg", namesrv=broker) as producer:
        with trio.fail_after(30):
            for _ in range(8):
                await producer.send(Message("new", b"x"))
            await trio.sleep(3)
            assert await stored(producer, "new") == 8
            assert producer.client.routes.get("new") is not None
            assert len(await producer.publish_queues("new")) == 4


async def test_a_topic_that_may_not_be_created(autojump_clock: MockClock) -> None:
    async with (
        EmbeddedBroker(auto_create_topic_enable=False) as broker,
        Producer("pg", namesrv=broker) as producer,
    ):
        with trio.fail_after(30), pytest.raises((TopicNotFoundError, BrokerError)):
            await producer.send(Message("new", b"x"))


async def test_several_members_share_a_client(autojump_clock: MockClock) -> None:
    async with EmbeddedBroker() as broker, Client(broker) as client:
        async with Producer("one", client=client) as one, Producer("two", client=client) as two:
            with trio.fail_after(30):
                results = [
                    await producer.send(Message("t", b"x"))
                    for producer in (one, two)
                    for _ in range(4)
                ]
        assert len({result.offset_message_id for result in results}) == 8
        assert len({result.message_id for result in results}) == 8


async def test_many_tasks_and_a_small_limit(autojump_clock: MockClock) -> None:
    async with (
        EmbeddedBroker() as broker,
        Producer("pg", namesrv=broker, max_in_flight=4) as producer,
    ):
        results: list[Any] = []

        async def sender() -> None:
            results.extend([await producer.send(Message("t", b"x")) for _ in range(20)])

        with trio.fail_after(30):
            async with trio.open_nursery() as nursery:
                for _ in range(20):
                    nursery.start_soon(sender)
            assert len({result.message_id for result in results}) == 400
            assert await stored(producer, "t") == 400


@pytest.mark.real_time
async def test_over_tcp() -> None:
    async with EmbeddedBroker(listen="127.0.0.1:0", namesrv_listen="127.0.0.1:0") as broker:
        assert broker.namesrv_address is not None
        async with Producer("pg", namesrv=broker.namesrv_address) as producer:
            with trio.fail_after(60):
                handles = [producer.submit(Message("t", b"%d" % number)) for number in range(1000)]
                await producer.flush()
                assert {(await handle).status for handle in handles} == {SendStatus.SEND_OK}
                await trio.lowlevel.checkpoint()
                assert await stored(producer, "t") == 1000


async def test_flush_tells_of_a_refusal_that_comes_while_it_waits(
    autojump_clock: MockClock,
) -> None:
    async with EmbeddedBroker() as broker, Producer("pg", namesrv=broker) as producer:
        with trio.fail_after(30):
            refused = producer.submit(
                Message("orders", b"x", properties={"p": "v" * 32000, "q": "w" * 700})
            )
            assert not refused.done
            with pytest.raises(BrokerError):
                await producer.flush()
            await producer.flush()


@pytest.mark.parametrize("given", ["orders", b"x", None, ["orders"]])
async def test_what_is_no_message_is_refused(given: Any) -> None:
    async with EmbeddedBroker() as broker, Producer("shop", namesrv=broker) as producer:
        with pytest.raises(ConfigurationError, match="is no Message; send Message"):
            await producer.send(given)
        with pytest.raises(ConfigurationError, match="is no Message; send Message"):
            producer.submit(given)
