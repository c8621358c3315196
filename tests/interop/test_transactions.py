"""Transactions and requests, both ways: Apache's producers at our broker, ours at
Apache's; checks, a producer that never answers, replies.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import trio

from rocketmq_sdk import (
    Admin,
    ConsumeFrom,
    Message,
    Producer,
    PushConsumer,
    ReceivedMessage,
    RequestTimeoutError,
    TransactionProducer,
    TransactionState,
    reply_message,
)
from support import java
from support.processes import BrokerProcess, broker_process
from support.waiting import unique, until

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.both_releases


@pytest.fixture(scope="module", params=["JSON", "ROCKETMQ"])
def driver(request: pytest.FixtureRequest) -> Iterator[java.Driver]:
    """Apache's transactional producer."""
    found = java.Driver(request.param, program="Transactions")
    yield found
    found.close()


@pytest.fixture(scope="module")
def broker() -> Iterator[BrokerProcess]:
    with broker_process(transactionTimeOut="1000", transactionCheckInterval="1500") as process:
        yield process


class Seen:
    """What a consumer of ours has seen of a topic."""

    def __init__(self) -> None:
        self.messages: list[ReceivedMessage] = []

    async def __call__(self, message: ReceivedMessage) -> None:
        self.messages.append(message)

    @property
    def bodies(self) -> list[bytes]:
        return sorted(message.body for message in self.messages)


def consumer(namesrv: str, topic: str, seen: Seen) -> PushConsumer:
    return PushConsumer(
        unique("cg"),
        namesrv=namesrv,
        subscriptions={topic: "*"},
        listener=seen,
        consume_from=ConsumeFrom.FIRST_OFFSET,
    )


async def test_java_transactions_end_at_our_broker(
    driver: java.Driver, broker: BrokerProcess
) -> None:
    topic, group, seen = unique("tx"), unique("pg"), Seen()
    producer = unique("p")
    await driver.do(
        "producer", id=producer, group=group, namesrv=broker.namesrv, answer="COMMIT_MESSAGE"
    )
    sent = await driver.do(
        "transaction", id=producer, topic=topic, key="k1", body="committed", local="COMMIT_MESSAGE"
    )
    assert (sent["status"], sent["state"]) == ("SEND_OK", "COMMIT_MESSAGE")
    await driver.do(
        "transaction",
        id=producer,
        topic=topic,
        key="k2",
        body="rolled back",
        local="ROLLBACK_MESSAGE",
    )
    await driver.do(
        "transaction", id=producer, topic=topic, key="k3", body="checked", local="UNKNOW"
    )
    async with consumer(broker.namesrv, topic, seen):
        await until(lambda: len(seen.messages) >= 2)
        await trio.sleep(2)
    asked = await driver.do("checked", id=producer)
    await driver.do("stop", id=producer)
    assert seen.bodies == [b"checked", b"committed"]
    assert [found["body"] for found in asked] == ["checked"]
    assert (asked[0]["topic"], asked[0]["keys"]) == (topic, "k3")
    first = next(message for message in seen.messages if message.body == b"committed")
    assert (first.message_id, first.tags, first.keys) == (sent["msgId"], "TagT", ("k1",))
    assert sent["transactionId"] == sent["msgId"]


async def test_a_java_producer_that_never_answers_is_helped_by_another_of_its_group(
    broker: BrokerProcess,
) -> None:
    topic, group, seen = unique("silent"), unique("pg"), Seen()
    first, second = java.Driver(program="Transactions"), java.Driver(program="Transactions")
    try:
        await first.do("producer", id="silent", group=group, namesrv=broker.namesrv, answer="NEVER")
        await first.do(
            "transaction", id="silent", topic=topic, key="k", body="left open", local="UNKNOW"
        )
        await until(lambda: first.perform({"do": "checked", "id": "silent"}), 120)
        await second.do(
            "producer", id="helper", group=group, namesrv=broker.namesrv, answer="COMMIT_MESSAGE"
        )
        # A producer is known to a broker by a heartbeat, and sends one to those whose
        # topics it uses.
        await second.do(
            "transaction", id="helper", topic=topic, key="k", body="its own", local="COMMIT_MESSAGE"
        )
        async with consumer(broker.namesrv, topic, seen):
            await until(lambda: len(seen.messages) >= 2, 120)
            await trio.sleep(3)
        helped = await second.do("checked", id="helper")
    finally:
        first.kill()
        first.close()
        second.close()
    assert seen.bodies == [b"its own", b"left open"]
    assert "left open" in {found["body"] for found in helped}


async def test_our_transactions_end_at_apaches_broker(apache: java.ApacheCluster) -> None:
    topic, seen = unique("tx"), Seen()
    asked: list[ReceivedMessage] = []

    async def checker(message: ReceivedMessage) -> TransactionState:
        asked.append(message)
        return TransactionState.COMMIT if message.keys == ("k3",) else TransactionState.ROLLBACK

    async with TransactionProducer(
        unique("pg"), checker, namesrv=apache.namesrv, send_timeout=20
    ) as producer:
        async with producer.transaction(Message(topic, b"committed", keys=["k1"])) as transaction:
            pass
        assert transaction.confirmed
        with pytest.raises(KeyError):
            async with producer.transaction(Message(topic, b"rolled back", keys=["k2"])):
                raise KeyError
        async with producer.transaction(
            Message(topic, b"checked" * 1000, keys=["k3"])
        ) as transaction:
            transaction.unknown()
        async with consumer(apache.namesrv, topic, seen):
            await until(lambda: len(set(seen.bodies)) >= 2, 120)
    assert set(seen.bodies) == {b"committed", b"checked" * 1000}
    assert b"checked" * 1000 in {message.body for message in asked}
    assert {message.topic for message in asked} == {topic}


@pytest.mark.parametrize("where", ["ours", "Apache's"])
async def test_a_java_request_is_answered_by_our_consumer(
    where: str, driver: java.Driver, broker: BrokerProcess, apache: java.ApacheCluster
) -> None:
    namesrv = broker.namesrv if where == "ours" else apache.namesrv
    topic, asking = unique("rpc"), unique("p")
    async with Producer(unique("pg"), namesrv=namesrv) as producer:
        await Admin(client=producer.client).topics.create(topic)

        async def listener(message: ReceivedMessage) -> None:
            await producer.send(reply_message(message, b"reply to " + message.body))

        async with PushConsumer(
            unique("cg"), namesrv=namesrv, subscriptions={topic: "*"}, listener=listener
        ):
            await driver.do(
                "producer", id=asking, group=unique("pg"), namesrv=namesrv, answer="UNKNOW"
            )
            answer = await driver.do(
                "request", id=asking, topic=topic, body="question", timeout=60_000
            )
            await driver.do("stop", id=asking)
    assert answer["body"] == "reply to question"


@pytest.mark.parametrize("where", ["ours", "Apache's"])
async def test_our_request_is_answered_by_a_java_consumer(
    where: str, driver: java.Driver, broker: BrokerProcess, apache: java.ApacheCluster
) -> None:
    namesrv = broker.namesrv if where == "ours" else apache.namesrv
    topic, replier = unique("rpc"), unique("r")
    async with Producer(unique("pg"), namesrv=namesrv) as producer:
        await Admin(client=producer.client).topics.create(topic)
        await driver.do("replier", id=replier, group=unique("cg"), topic=topic, namesrv=namesrv)
        reply = await producer.request(Message(topic, b"question"), timeout=60)
        await driver.do("stop", id=replier)
        assert reply.body == b"reply to question"
        with pytest.raises(RequestTimeoutError):
            await producer.request(Message(topic, b"nobody is left"), timeout=1)
