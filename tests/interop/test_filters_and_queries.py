"""SQL92 subscriptions, queries and message traces, between this implementation and
Apache's, in both directions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import trio

from rocketmq_sdk.admin.client import Admin
from rocketmq_sdk.consumer.push.consumer import PushConsumer
from rocketmq_sdk.errors import BrokerError, NotFoundError
from rocketmq_sdk.model.enums import ConsumeFrom, ExpressionType
from rocketmq_sdk.model.message import Message
from rocketmq_sdk.producer.producer import Producer
from rocketmq_sdk.protocol.trace import ConsumeResult
from support import java
from support.processes import BrokerProcess, broker_process
from support.programs import ProgramError
from support.waiting import unique, until

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from rocketmq_sdk.admin.trace import MessageTrace
    from rocketmq_sdk.model.received import ReceivedMessage

SQL = "region = 'eu' AND price BETWEEN 3 AND 7 OR TAGS = 'always' AND NOT (price IS NULL)"
MESSAGES = [
    ("no region", "a", {"price": "5"}),
    ("dear", "a", {"region": "eu", "price": "9"}),
    ("fits", "a", {"region": "eu", "price": "5"}),
    ("no number", "a", {"region": "eu", "price": "much"}),
    ("always", "always", {"price": "100"}),
    ("without a price", "always", {"region": "us"}),
    ("last", "a", {"region": "eu", "price": "7"}),
]
WANTED = ["always", "fits", "last"]


@pytest.fixture(scope="module")
def broker() -> Iterator[BrokerProcess]:
    with broker_process() as process:
        yield process


@pytest.fixture(scope="module")
def mqadmin() -> Iterator[java.Driver]:
    driver = java.Driver(program="MqAdmin")
    yield driver
    driver.close()


@pytest.fixture(params=["ours", "apache"])
def namesrv(request: pytest.FixtureRequest) -> str:
    """The name server of our broker, and of Apache's."""
    cluster = request.getfixturevalue("broker" if request.param == "ours" else "apache")
    return str(cluster.namesrv)


async def polled(
    ask: Callable[[], Awaitable[Any]], enough: Callable[[Any], bool], seconds: float = 60
) -> Any:
    """Ask again and again until the answer is enough."""
    with trio.fail_after(seconds):
        while True:
            try:
                answer = await ask()
            except NotFoundError:
                answer = None
            if answer is not None and enough(answer):
                return answer
            await trio.sleep(0.2)


async def send_all(namesrv: str, topic: str) -> None:
    async with Producer(unique("pg"), namesrv=namesrv) as producer:
        for body, tag, properties in MESSAGES:
            await producer.send(Message(topic, body.encode(), tags=tag, properties=properties))


async def test_a_java_consumer_with_sql92(json_driver: java.Driver, namesrv: str) -> None:
    topic, consumer = unique("sql"), unique("c")
    await send_all(namesrv, topic)
    await json_driver.do(
        "consumer", id=consumer, group=unique("cg"), topic=topic, sql=SQL, namesrv=namesrv
    )
    seen = await polled(
        lambda: json_driver.do("received", id=consumer),
        lambda messages: len(messages) >= len(WANTED),
    )
    await json_driver.do("stop", id=consumer)
    assert sorted(message["body"] for message in seen) == WANTED


async def test_our_consumer_with_sql92(namesrv: str) -> None:
    topic, seen = unique("sql"), list[str]()

    async def listener(message: ReceivedMessage) -> None:
        seen.append(message.body.decode())

    await send_all(namesrv, topic)
    subscriptions = {topic: (SQL, ExpressionType.SQL92)}
    async with PushConsumer(
        unique("cg"),
        namesrv=namesrv,
        subscriptions=subscriptions,
        listener=listener,
        consume_from=ConsumeFrom.FIRST_OFFSET,
    ):
        await until(lambda: len(seen) >= len(WANTED))
    assert sorted(seen) == WANTED


async def test_a_java_consumer_with_an_error_in_its_expression_is_refused_with_the_reason(
    json_driver: java.Driver, broker: BrokerProcess
) -> None:
    topic = unique("sql")
    await send_all(broker.namesrv, topic)
    with pytest.raises(ProgramError, match="at position 5: '=' stands where a value"):
        await json_driver.do(
            "consumer",
            id=unique("c"),
            group=unique("cg"),
            topic=topic,
            sql="a = = 1",
            namesrv=broker.namesrv,
        )


async def test_our_queries(json_driver: java.Driver, namesrv: str) -> None:
    topic, producer = unique("query"), unique("p")
    await json_driver.do("producer", id=producer, group=unique("pg"), namesrv=namesrv)
    sent = []
    for number in range(4):
        parts = {"body": f"body {number}", "keys": f"all k{number}", "tags": f"t{number % 2}"}
        sent.append(await json_driver.do("send", id=producer, topic=topic, **parts))
    await json_driver.do("stop", id=producer)
    async with Admin(namesrv=namesrv) as admin:
        # The index is built behind the answer of a send.
        found = await polled(
            lambda: admin.messages.by_key(topic, "all"), lambda messages: len(messages) == 4
        )
        assert [message.body.decode() for message in found] == [
            f"body {number}" for number in range(4)
        ]
        assert [message.body for message in await admin.messages.by_key(topic, "k2")] == [b"body 2"]
        assert [message.body for message in await admin.messages.by_tag(topic, "t1")] == [
            b"body 1",
            b"body 3",
        ]
        for number, result in enumerate(sent):
            for message in (
                await admin.messages.by_unique_id(topic, result["msgId"]),
                await admin.messages.by_offset_id(result["offsetMsgId"]),
                await admin.messages.by_id(topic, result["offsetMsgId"]),
            ):
                assert (message.body.decode(), message.message_id) == (
                    f"body {number}",
                    result["msgId"],
                )
        assert [message.body.decode() async for message in admin.messages.in_time(topic, None)] == [
            f"body {number}" for number in range(4)
        ]
        assert [
            step.offset_message_id
            for step in await admin.messages.stored_copies(topic, sent[0]["msgId"])
        ] == [sent[0]["offsetMsgId"]]
        with pytest.raises(NotFoundError):
            await admin.messages.by_unique_id(topic, "0" * 32)
        with pytest.raises(BrokerError):
            await admin.messages.by_offset_id(sent[0]["offsetMsgId"][:-4] + "FFFF", topic=topic)


async def test_queries_of_mqadmin(mqadmin: java.Driver, broker: BrokerProcess) -> None:
    topic = unique("query")
    async with Producer(unique("pg"), namesrv=broker.namesrv) as producer:
        sent = await producer.send(Message(topic, b"look at me", keys=["findme"], tags="paid"))

    async def run(command: str, *args: str) -> str:
        printed: str = await mqadmin.do(
            "run", args=[command, "-n", broker.namesrv, "-t", topic, *args]
        )
        return printed

    for command, args in (
        ("queryMsgByKey", ("-k", "findme")),
        ("queryMsgByKey", ("-k", "paid", "-p", "T")),
        ("queryMsgByUniqueKey", ("-i", sent.message_id)),
        ("queryMsgById", ("-i", sent.offset_message_id)),
        (
            "queryMsgByOffset",
            (
                "-b",
                sent.queue.broker_name,
                "-i",
                str(sent.queue.queue_id),
                "-o",
                str(sent.queue_offset),
            ),
        ),
    ):
        assert sent.message_id in await run(command, *args), command


def complete(trace: MessageTrace) -> bool:
    return (
        bool(trace.published)
        and bool(trace.consumptions)
        and trace.consumptions[0].result is not None
    )


async def test_traces_of_java_are_read_by_ours(json_driver: java.Driver, namesrv: str) -> None:
    topic, producer, consumer, group = unique("trace"), unique("p"), unique("c"), unique("cg")
    await json_driver.do("producer", id=producer, group="traced", namesrv=namesrv, trace=True)
    await json_driver.do(
        "consumer", id=consumer, group=group, topic=topic, namesrv=namesrv, trace=True
    )
    sent = await json_driver.do(
        "send", id=producer, topic=topic, body="trace me", keys="k1 k2", tags="paid"
    )
    async with Admin(namesrv=namesrv) as admin:
        trace = await polled(lambda: admin.messages.trace(sent["msgId"]), complete, 100)
    await json_driver.do("stop", id=producer)
    await json_driver.do("stop", id=consumer)
    (published,) = trace.published
    assert (published.group, published.topic, published.tags, published.keys) == (
        "traced",
        topic,
        "paid",
        "k1 k2",
    )
    assert (published.offset_message_id, published.body_length, published.success) == (
        sent["offsetMsgId"],
        8,
        True,
    )
    (consumption,) = trace.consumptions
    assert (consumption.group, consumption.retries, consumption.result) == (
        group,
        0,
        ConsumeResult.SUCCESS,
    )
    assert [step.topic for step in trace.copies] == [topic]


async def test_our_traces_in_mqadmin(mqadmin: java.Driver, namesrv: str) -> None:
    topic, group, seen = unique("trace"), unique("cg"), list[bytes]()

    async def listener(message: ReceivedMessage) -> None:
        seen.append(message.body)

    async with (
        Producer("shop", namesrv=namesrv, enable_trace=True) as producer,
        PushConsumer(
            group,
            namesrv=namesrv,
            subscriptions={topic: "*"},
            listener=listener,
            consume_from=ConsumeFrom.FIRST_OFFSET,
            enable_trace=True,
        ),
    ):
        sent = await producer.send(Message(topic, b"trace me", keys=["k1"], tags="paid"))
        await until(lambda: bool(seen))

    async def printed() -> Any:
        return await mqadmin.do(
            "run", args=["queryMsgTraceById", "-n", namesrv, "-i", sent.message_id]
        )

    text = await polled(printed, lambda text: "Sub" in text and "Pub" in text, 100)
    rows = [line.split() for line in text.splitlines() if line.startswith(("Pub", "Sub"))]
    kinds = {row[0] for row in rows}
    assert kinds == {"Pub", "Sub"}
    assert any("shop" in row for row in rows if row[0] == "Pub")
    assert any(group in row for row in rows if row[0] == "Sub")
    assert all("success" in row for row in rows)
