"""Apache's Java producer and push consumer against our broker over TCP, in both
header encodings.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import trio

from rocketmq_sdk import ConsumeFrom, Message, Producer, PushConsumer, ReceivedMessage
from rocketmq_sdk.protocol.compression import CompressionType
from support.processes import BrokerProcess, broker_process
from support.waiting import unique, until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from support import java

pytestmark = pytest.mark.both_releases

SHORT_LEVELS = "1s 2s 1s 1s 2s 3s 4s 5s 6s 7s 8s 9s 10s 20s 30s 40s 50s 60s"


@pytest.fixture(scope="module")
def broker() -> Iterator[BrokerProcess]:
    with broker_process(messageDelayLevel=SHORT_LEVELS) as process:
        yield process


@pytest.fixture(
    params=[
        pytest.param(encoding, marks=pytest.mark.xdist_group(f"Java's client, {encoding}"))
        for encoding in ("json", "binary")
    ]
)
def driver(request: pytest.FixtureRequest) -> java.Driver:
    """Apache's client with each encoding; they need not wait for each other."""
    found: java.Driver = request.getfixturevalue(f"{request.param}_driver")
    return found


async def received(
    driver: java.Driver, consumer: str, enough: Callable[[list[dict[str, Any]]], bool]
) -> list[dict[str, Any]]:
    """Poll what a Java consumer has received until it is enough."""
    messages: list[dict[str, Any]] = []
    with trio.move_on_after(60):
        while not enough(messages):
            await trio.sleep(0.1)
            messages = await driver.do("received", id=consumer)
    return messages


async def test_sends_of_every_kind_reach_a_java_consumer(
    driver: java.Driver, broker: BrokerProcess
) -> None:
    topic, producer, consumer = unique("kinds"), unique("p"), unique("c")
    await driver.do("producer", id=producer, group=unique("pg"), namesrv=broker.namesrv)
    sent = await driver.do(
        "send",
        id=producer,
        topic=topic,
        body="sync ü€😀",
        tags="a",
        keys="k1 k2",
        properties={"color": "rød"},
        flag=7,
    )
    assert sent["status"] == "SEND_OK"
    assert sent["transactionId"] == sent["msgId"]
    await driver.do("send", id=producer, topic=topic, body="async", how="async")
    await driver.do("send", id=producer, topic=topic, body="oneway", how="oneway")
    to_queue = await driver.do(
        "send",
        id=producer,
        topic=topic,
        body="queue",
        how="queue",
        broker=sent["broker"],
        queue_id=2,
    )
    assert to_queue["queueId"] == 2
    by_key = [
        await driver.do(
            "send", id=producer, topic=topic, body=f"key{n}", how="selector", key="customer 9"
        )
        for n in range(3)
    ]
    assert len({answer["queueId"] for answer in by_key}) == 1
    offsets = [answer["queueOffset"] for answer in by_key]
    assert offsets == list(range(offsets[0], offsets[0] + 3))
    batch = await driver.do(
        "send",
        id=producer,
        how="batch",
        messages=[{"topic": topic, "body": f"batch{n}", "tags": "b"} for n in range(5)],
    )
    assert len(batch["msgId"].split(",")) == 5
    big = "compressed " * 2000
    await driver.do("send", id=producer, topic=topic, body=big)
    await driver.do("send", id=producer, topic=topic, body="delayed", delay_level=2)

    await driver.do(
        "consumer", id=consumer, group=unique("cg"), topic=topic, namesrv=broker.namesrv
    )
    expected = {
        "sync ü€😀",
        "async",
        "oneway",
        "queue",
        "key0",
        "key1",
        "key2",
        big,
        "delayed",
        *(f"batch{n}" for n in range(5)),
    }
    messages = await received(
        driver, consumer, lambda seen: len({m["body"] for m in seen}) >= len(expected)
    )
    await driver.do("stop", id=consumer)
    await driver.do("stop", id=producer)
    assert {m["body"] for m in messages} == expected
    assert len(messages) == len(expected)
    first = next(m for m in messages if m["body"] == "sync ü€😀")
    assert first["tags"] == "a"
    assert first["keys"] == "k1 k2"
    assert first["flag"] == 7
    assert first["properties"]["color"] == "rød"
    assert first["msgId"] == sent["msgId"]
    assert first["topic"] == topic
    delayed = next(m for m in messages if m["body"] == "delayed")
    assert 2000 <= delayed["storeTimestamp"] - delayed["bornTimestamp"] < 6000


@pytest.mark.parametrize("compression", ["ZLIB", "LZ4", "ZSTD"])
@pytest.mark.parametrize("where", ["ours", "Apache's"])
async def test_what_either_client_compresses_the_other_reads(
    json_driver: java.Driver,
    broker: BrokerProcess,
    apache: java.ApacheCluster,
    compression: str,
    where: str,
) -> None:
    namesrv = broker.namesrv if where == "ours" else apache.namesrv
    topic, theirs, consumer = unique("compressed"), unique("p"), unique("c")
    bodies = {
        client: f"compressed by {client} with {compression} " * 1000
        for client in ("Java", "Python")
    }
    seen: list[ReceivedMessage] = []

    async def listener(message: ReceivedMessage) -> None:
        seen.append(message)

    await json_driver.do(
        "producer", id=theirs, group=unique("pg"), namesrv=namesrv, compression=compression
    )
    await json_driver.do("send", id=theirs, topic=topic, body=bodies["Java"])
    async with Producer(
        unique("pg"), namesrv=namesrv, compression=CompressionType.of(compression)
    ) as producer:
        await producer.send(Message(topic, bodies["Python"].encode()))
    await json_driver.do("consumer", id=consumer, group=unique("cg"), topic=topic, namesrv=namesrv)
    first = ConsumeFrom.FIRST_OFFSET
    async with PushConsumer(
        unique("cg"),
        namesrv=namesrv,
        subscriptions={topic: "*"},
        listener=listener,
        consume_from=first,
    ):
        await until(lambda: len(seen) >= 2)
    messages = await received(json_driver, consumer, lambda found: len(found) >= 2)
    await json_driver.do("stop", id=consumer)
    await json_driver.do("stop", id=theirs)
    assert {message["body"] for message in messages} == set(bodies.values())
    assert {message.body.decode() for message in seen} == set(bodies.values())
    # What is stored is small, and says by whose method.
    assert all(message.store_size < 2000 for message in seen)
    assert {message.sys_flag & 0x700 for message in seen} == {
        CompressionType.of(compression).sys_flag_bits
    }


async def test_tags_select_at_the_broker(driver: java.Driver, broker: BrokerProcess) -> None:
    topic, producer, consumer = unique("tags"), unique("p"), unique("c")
    await driver.do("producer", id=producer, group=unique("pg"), namesrv=broker.namesrv)
    for tag in ("red", "green", "blue", "red"):
        await driver.do("send", id=producer, topic=topic, body=tag, tags=tag)
    await driver.do(
        "consumer",
        id=consumer,
        group=unique("cg"),
        topic=topic,
        tags="red || blue",
        namesrv=broker.namesrv,
    )
    messages = await received(driver, consumer, lambda seen: len(seen) >= 3)
    await driver.do("stop", id=consumer)
    await driver.do("stop", id=producer)
    assert sorted(m["body"] for m in messages) == ["blue", "red", "red"]


async def test_failed_messages_are_retried_and_end_in_the_dead_letter_topic(
    driver: java.Driver, broker: BrokerProcess
) -> None:
    topic, producer, consumer, dead = unique("retry"), unique("p"), unique("c"), unique("d")
    group = unique("cg")
    await driver.do("producer", id=producer, group=unique("pg"), namesrv=broker.namesrv)
    await driver.do("send", id=producer, topic=topic, body="bad 1")
    await driver.do("send", id=producer, topic=topic, body="good")
    await driver.do(
        "consumer",
        id=consumer,
        group=group,
        topic=topic,
        namesrv=broker.namesrv,
        fail_prefix="bad",
        max_reconsume=2,
    )
    await received(driver, consumer, lambda seen: sum(m["body"] == "bad 1" for m in seen) >= 3)
    await driver.do(
        "consumer", id=dead, group=unique("dlq"), topic=f"%DLQ%{group}", namesrv=broker.namesrv
    )
    letters = await received(driver, dead, lambda seen: len(seen) >= 1)
    messages = await driver.do("received", id=consumer)
    for name in (consumer, dead, producer):
        await driver.do("stop", id=name)
    bad = [m for m in messages if m["body"] == "bad 1"]
    assert [m["reconsumeTimes"] for m in bad] == [0, 1, 2]
    assert {m["topic"] for m in bad} == {topic}
    assert [m["body"] for m in letters] == ["bad 1"]
    assert letters[0]["properties"]["RETRY_TOPIC"] == topic


async def test_many_messages_in_flight(driver: java.Driver, broker: BrokerProcess) -> None:
    topic, producer, consumer = unique("many"), unique("p"), unique("c")
    await driver.do("producer", id=producer, group=unique("pg"), namesrv=broker.namesrv)
    await driver.do(
        "consumer", id=consumer, group=unique("cg"), topic=topic, namesrv=broker.namesrv
    )
    outcome = await driver.do(
        "send_many", id=producer, topic=topic, count=5000, in_flight=256, prefix="m"
    )
    assert outcome["failed"] == 0
    messages = await received(driver, consumer, lambda seen: len(seen) >= 5000)
    await driver.do("stop", id=consumer)
    await driver.do("stop", id=producer)
    assert sorted(m["body"] for m in messages) == sorted(f"m{n}" for n in range(5000))
