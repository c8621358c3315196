"""What requests carry: bodies, batches, one-way messages; and what is refused
before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import trio

from rocketmq_sdk.errors import ConfigurationError, ConnectError, SendTimeout
from rocketmq_sdk.model.message import Message
from rocketmq_sdk.model.properties import decode_properties
from rocketmq_sdk.producer.outgoing import MAX_PROPERTIES
from rocketmq_sdk.protocol.batch_codec import decode_batch
from rocketmq_sdk.protocol.compression import decompress
from support.peers import open_cluster
from support.producing import Running, message

if TYPE_CHECKING:
    from trio.testing import MockClock


async def test_large_bodies_are_compressed(autojump_clock: MockClock) -> None:
    async with open_cluster(brokers=1) as cluster, Running(cluster) as producer:
        with trio.fail_after(10):
            await producer.send(message(b"x" * 4095))
            await producer.send(message(b"x" * 4096))
        (_, small, small_header), (_, large, large_header) = cluster.brokers[0].sends
    assert small.body == b"x" * 4095
    assert small_header.sys_flag == 0
    assert large_header.sys_flag == 0x301
    assert decompress(large.body, large_header.sys_flag) == b"x" * 4096


@pytest.mark.parametrize(("name", "bits"), [("lz4", 0x101), ("zstd", 0x201)])
async def test_other_compressions(name: str, bits: int, autojump_clock: MockClock) -> None:
    async with (
        open_cluster(brokers=1) as cluster,
        Running(cluster, compression=name, compress_over=10) as producer,
    ):
        with trio.fail_after(10):
            await producer.send(message(b"y" * 100))
        _, request, header = cluster.brokers[0].sends[0]
    assert header.sys_flag == bits
    assert decompress(request.body, bits) == b"y" * 100


@pytest.mark.parametrize("body", [b"", b"x" * 101])
async def test_bodies_of_a_wrong_size_are_refused(body: bytes, autojump_clock: MockClock) -> None:
    async with (
        open_cluster(brokers=1) as cluster,
        Running(cluster, max_message_size=100) as producer,
    ):
        for send in (producer.send, producer.send_oneway):
            with trio.fail_after(10), pytest.raises(ConfigurationError, match="body"):
                await send(message(body))
        with pytest.raises(ConfigurationError):
            producer.submit(message(body))
        assert cluster.brokers[0].sends == []


@pytest.mark.parametrize("topic", ["", "SCHEDULE_TOPIC_XXXX", "has blank", "x" * 128])
async def test_topics_that_nobody_may_send_to(topic: str, autojump_clock: MockClock) -> None:
    async with open_cluster() as cluster, Running(cluster) as producer:
        with trio.fail_after(10), pytest.raises(ConfigurationError):
            await producer.send(Message(topic, b"x"))


async def test_batches(autojump_clock: MockClock) -> None:
    async with open_cluster(brokers=1) as cluster, Running(cluster) as producer:
        with trio.fail_after(10):
            result = await producer.send_batch(
                [message(b"one", tags="a", flag=3), message(b"two", keys="k")]
            )
        _, request, header = cluster.brokers[0].sends[0]
    assert request.code == 320
    assert header.batch
    assert header.sys_flag == 0
    items = decode_batch(request.body)
    assert [(flag, body) for flag, body, _ in items] == [(3, b"one"), (0, b"two")]
    inner = [decode_properties(properties.decode())["UNIQ_KEY"] for _, _, properties in items]
    assert result.message_id == ",".join(inner)
    outer = decode_properties(header.properties or "")
    assert outer["WAIT"] == "true"
    assert outer["UNIQ_KEY"] not in inner


async def test_an_inner_batch_has_one_id(autojump_clock: MockClock) -> None:
    async with open_cluster(brokers=1) as cluster, Running(cluster) as producer:
        broker = cluster.brokers[0]
        broker.script = [
            lambda _channel, _request: broker.answer(
                broker.sends[-1][2], batchUniqId="ONE", MSG_REGION="r", TRACE_ON="false"
            )
        ]
        with trio.fail_after(10):
            result = await producer.send_batch([message(b"one"), message(b"two")])
    assert (result.message_id, result.region_id, result.trace_on) == ("ONE", "r", False)


@pytest.mark.parametrize(
    "messages",
    [
        [],
        [message(), Message("other", b"x")],
        [message(), message(wait_store_ok=False)],
        [message(delay_level=3)],
        [message(deliver_at=1_900_000_000_000)],
        [Message("%RETRY%g", b"x")],
        [message(b"x" * 60), message(b"x" * 60)],
    ],
)
async def test_batches_that_are_refused(messages: list[Message], autojump_clock: MockClock) -> None:
    async with (
        open_cluster(brokers=1) as cluster,
        Running(cluster, max_message_size=100) as producer,
    ):
        with trio.fail_after(10), pytest.raises(ConfigurationError):
            await producer.send_batch(messages)


async def test_oneway(autojump_clock: MockClock) -> None:
    async with open_cluster() as cluster, Running(cluster) as producer:
        with trio.fail_after(10):
            for _ in range(4):
                await producer.send_oneway(message())
            await producer.send_oneway(message(), key="k")
            while sum(len(broker.sends) for broker in cluster.brokers) < 5:
                await trio.sleep(0.01)
        assert all(
            request.is_oneway for broker in cluster.brokers for _, request, _ in broker.sends
        )
        await cluster.brokers[0].stop()
        await cluster.brokers[1].stop()
        with trio.fail_after(10), pytest.raises((ConnectError, SendTimeout)):
            await producer.send_oneway(message())
        cluster.name_servers[0].silent = True
        with pytest.raises(SendTimeout) as caught:
            await producer.send_oneway(Message("unknown", b"x"), timeout=10)
        assert not caught.value.outcome_unknown


@pytest.mark.parametrize("character", ["a", "é", "漢", "😀"])
async def test_properties_are_counted_in_bytes_as_the_store_does(
    character: str, autojump_clock: MockClock
) -> None:
    width = len(character.encode())
    async with open_cluster(brokers=1) as cluster, Running(cluster) as producer:
        with trio.fail_after(10):
            await producer.send(message(properties={"p": "x"}))
            room = MAX_PROPERTIES + 1 - len(cluster.brokers[0].sends[0][2].properties or "")
            await producer.send(message(properties={"p": character * (room // width)}))
            with pytest.raises(ConfigurationError, match=r"properties have 327\d\d bytes"):
                await producer.send(message(properties={"p": character * (room // width + 1)}))
        assert len(cluster.brokers[0].sends) == 2
