"""The official gRPC clients for Java and Python on our broker, through Apache's proxy
in cluster mode: each kind of message, simple and push consumers. The proxy is of the
run's release; every night there is a run with each.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import attrs
import pytest
import trio

from rocketmq_sdk import Admin, ConsumeFrom, Message, Producer, PushConsumer, ReceivedMessage
from rocketmq_sdk.protocol.bodies.groups import SubscriptionGroupConfig
from support import java
from support.grpc_clients import LANGUAGES, NotToBeHadError, apache_proxy, grpc_client
from support.processes import BrokerProcess, broker_process
from support.programs import ProgramError
from support.waiting import unique, until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from support.programs import Program


@pytest.fixture(scope="module")
def broker() -> Iterator[BrokerProcess]:
    """Ours, which soon asks for the ends of transactions."""
    with broker_process(transactionTimeOut="1000", transactionCheckInterval="1500") as process:
        yield process


@attrs.frozen
class Door:
    """A proxy before our broker."""

    endpoints: str
    namesrv: str

    async def topic(self, kind: str) -> str:
        """A new topic for messages of a type."""
        name = unique(kind.lower())
        async with Admin(namesrv=self.namesrv) as admin:
            await admin.topics.create(name, queues=2, attributes={"message.type": kind})
        return name

    async def producer(self, client: Program, *topics: str) -> str:
        name = unique("p")
        await client.do("producer", id=name, endpoints=self.endpoints, topics=topics)
        return name

    async def simple(self, client: Program, group: str, topic: str, **options: Any) -> str:
        name = unique("c")
        known = {"endpoints": self.endpoints, "group": group, "topic": topic, "await": 1}
        await client.do("simple", id=name, **known, **options)
        return name


@pytest.fixture(scope="module")
def door(
    broker: BrokerProcess,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Door]:
    directory = tmp_path_factory.mktemp("proxy")
    with apache_proxy(directory, broker.namesrv, java.VERSION) as endpoints:
        yield Door(endpoints, broker.namesrv)


@pytest.fixture(scope="module", params=LANGUAGES)
def client(request: pytest.FixtureRequest) -> Iterator[Program]:
    try:
        program = grpc_client(request.param)
    except NotToBeHadError as reason:
        pytest.skip(str(reason))
    yield program
    program.close()


async def received(
    client: Program,
    consumer: str,
    enough: Callable[[list[dict[str, Any]]], bool],
    seconds: int = 60,
    *,
    ack: bool = True,
) -> list[dict[str, Any]]:
    """What a simple consumer gets until it is enough, acknowledged if wanted."""
    messages: list[dict[str, Any]] = []
    with trio.fail_after(90):
        while not enough(messages):
            try:
                found = await client.do("receive", id=consumer, count=16, seconds=seconds)
            except ProgramError as error:
                # The Python client does not wait until the proxy has its settings.
                if '"settings" is null' not in str(error):
                    raise
                await trio.sleep(0.1)
                continue
            messages += found
            for message in found if ack else ():
                await client.do("ack", id=consumer, number=message["number"])
    return messages


def bodies(messages: list[dict[str, Any]]) -> list[str]:
    return [message["body"] for message in messages]


async def test_a_message_goes_to_grpc_clients_and_to_ours_with_all_it_has(
    door: Door, client: Program
) -> None:
    """The group is new: code 352, with which the proxy asks for it, makes it."""
    topic = await door.topic("NORMAL")
    producer = await door.producer(client, topic)
    sent = await client.do(
        "send",
        id=producer,
        topic=topic,
        body="sync ü€😀",
        tag="a",
        key="k1",
        properties={"color": "rød"},
    )
    await client.do("send", id=producer, topic=topic, body="other", tag="b")
    seen: list[ReceivedMessage] = []

    async def listener(message: ReceivedMessage) -> None:
        seen.append(message)

    async with PushConsumer(
        unique("cg"),
        namesrv=door.namesrv,
        subscriptions={topic: "*"},
        listener=listener,
        consume_from=ConsumeFrom.FIRST_OFFSET,
    ):
        await until(lambda: len(seen) >= 2)
    async with Producer(unique("pg"), namesrv=door.namesrv) as ours:
        result = await ours.send(
            Message(topic, b"ours", tags="a", keys=["k2"], properties={"size": "9"})
        )
    consumer = await door.simple(client, unique("cg"), topic, tag="a")
    messages = {
        message["body"]: message
        for message in await received(client, consumer, lambda found: len(found) >= 2)
    }
    await client.do("stop", id=consumer)
    await client.do("stop", id=producer)
    first = next(message for message in seen if message.tags == "a")
    assert (first.body.decode(), first.keys, first.properties["color"], first.message_id) == (
        "sync ü€😀",
        ("k1",),
        "rød",
        sent["message_id"],
    )
    assert messages.keys() == {"sync ü€😀", "ours"}
    theirs, own = messages["sync ü€😀"], messages["ours"]
    assert (theirs["keys"], theirs["tag"], theirs["message_id"], theirs["attempt"]) == (
        ["k1"],
        "a",
        sent["message_id"],
        1,
    )
    assert theirs["properties"]["color"] == "rød"
    assert (own["keys"], own["properties"]["size"]) == (["k2"], "9")
    assert own["message_id"] == result.message_id


async def test_what_is_not_acknowledged_comes_again_when_the_changed_time_is_over(
    door: Door, client: Program
) -> None:
    topic, group = await door.topic("NORMAL"), unique("cg")
    producer = await door.producer(client, topic)
    for number in range(3):
        await client.do("send", id=producer, topic=topic, body=str(number))
    consumer = await door.simple(client, group, topic)
    # Long enough that nothing comes again by itself.
    messages = await received(client, consumer, lambda found: len(found) >= 3, 300, ack=False)
    by_body = {message["body"]: message for message in messages}
    await client.do("ack", id=consumer, number=by_body["0"]["number"])
    await client.do("ack", id=consumer, number=by_body["1"]["number"])
    await client.do("change", id=consumer, number=by_body["2"]["number"], seconds=2)
    again = await received(client, consumer, bool, 300)
    await client.do("stop", id=consumer)
    await client.do("stop", id=producer)
    assert [(message["body"], message["attempt"]) for message in again] == [("2", 2)]
    async with Admin(namesrv=door.namesrv) as admin:
        with trio.fail_after(60):
            while (await admin.groups.progress(group)).lag:
                await trio.sleep(0.2)


async def test_messages_of_a_group_come_in_order(door: Door, client: Program) -> None:
    topic, group = await door.topic("FIFO"), unique("cg")
    config = SubscriptionGroupConfig(group, consume_message_orderly=True)
    async with Admin(namesrv=door.namesrv) as admin:
        await admin.groups.create(config)
    producer = await door.producer(client, topic)
    for number in range(12):
        body, family = f"{number % 3}-{number // 3}", f"family {number % 3}"
        await client.do("send", id=producer, topic=topic, body=body, message_group=family)
    consumer = await door.simple(client, group, topic)
    messages = await received(client, consumer, lambda found: len(found) >= 12)
    await client.do("stop", id=consumer)
    await client.do("stop", id=producer)
    assert len(messages) == 12
    for family in range(3):
        of_family = [body for body in bodies(messages) if body.startswith(f"{family}-")]
        assert of_family == [f"{family}-{number}" for number in range(4)]
    assert {message["message_group"] for message in messages} == {
        f"family {family}" for family in range(3)
    }


async def test_a_delayed_message_comes_in_time_and_can_be_taken_back(
    door: Door, client: Program
) -> None:
    topic = await door.topic("DELAY")
    producer = await door.producer(client, topic)
    consumer = await door.simple(client, unique("cg"), topic)
    due = (round(time.time()) + 3) * 1000
    gone = await client.do(
        "send", id=producer, topic=topic, body="taken back", deliver_at=due - 1000
    )
    await client.do("send", id=producer, topic=topic, body="delayed", deliver_at=due)
    recalled = await client.do("recall", id=producer, topic=topic, handle=gone["recall_handle"])
    messages = await received(client, consumer, bool)
    came = time.time() * 1000
    await client.do("stop", id=consumer)
    await client.do("stop", id=producer)
    assert bodies(messages) == ["delayed"]
    assert came >= due
    assert recalled == gone["message_id"]


async def test_transactions_end_as_their_producer_says(door: Door, client: Program) -> None:
    topic = await door.topic("TRANSACTION")
    producer = await door.producer(client, topic)
    consumer = await door.simple(client, unique("cg"), topic)
    # The producer is known to the broker when one of its checks comes back.
    for outcome in ("rollback", "commit", "leave"):
        await client.do("send", id=producer, topic=topic, body=outcome, transaction=outcome)
    messages = await received(client, consumer, lambda found: len(found) >= 2)
    asked = await client.do("seen", id=producer)
    await client.do("stop", id=consumer)
    await client.do("stop", id=producer)
    assert sorted(bodies(messages)) == ["commit", "leave"]
    assert bodies(asked) == ["leave"]


async def test_a_push_consumer_gets_everything_and_what_failed_once_more(
    door: Door, client: Program
) -> None:
    topic, consumer = await door.topic("NORMAL"), unique("c")
    await client.do("push", id=consumer, endpoints=door.endpoints, group=unique("cg"), topic=topic)
    producer = await door.producer(client, topic)
    for number in range(20):
        await client.do("send", id=producer, topic=topic, body=f"{number}")
    await client.do("send", id=producer, topic=topic, body="fails once")
    wanted = {"fails once", *map(str, range(20))}
    seen: list[dict[str, Any]] = []
    with trio.fail_after(90):
        while set(bodies(seen)) < wanted or bodies(seen).count("fails once") < 2:
            await trio.sleep(0.2)
            seen = await client.do("seen", id=consumer)
    await client.do("stop", id=consumer)
    await client.do("stop", id=producer)
    assert len(seen) == 22
    assert [m["attempt"] for m in seen if m["body"] == "fails once"] == [1, 2]
