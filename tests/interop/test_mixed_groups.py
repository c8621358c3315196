"""A consumer group of a Java and a Python member, on Apache's broker and on ours: they
share the queues, one dies, the other takes all.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import trio

from rocketmq_sdk import Admin, ConsumeFrom, Message, Producer, PushConsumer, ReceivedMessage
from support import java
from support.consumer_process import CONSUMER, lines_of
from support.processes import broker_process, python_process
from support.waiting import unique, until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(params=["apache", "ours"])
def namesrv(request: pytest.FixtureRequest) -> Iterator[str]:
    """A name server of each kind, with its broker."""
    if request.param == "apache":
        yield request.getfixturevalue("apache").namesrv
    else:
        with broker_process() as broker:
            yield broker.namesrv


@pytest.mark.parametrize("encoding", ["JSON", "ROCKETMQ"])
async def test_two_java_members_share_a_topic_of_our_broker_and_one_dies(encoding: str) -> None:
    topic, group = unique("javas"), unique("cg")
    first, second = java.Driver(encoding), java.Driver(encoding)
    try:
        with broker_process() as broker:
            async with Producer(unique("pg"), namesrv=broker.namesrv) as producer:
                await Admin(client=producer.client).topics.create(topic, queues=4)
                for driver in (first, second):
                    await driver.do(
                        "consumer", id="c", group=group, topic=topic, namesrv=broker.namesrv
                    )
                seen: list[list[dict[str, Any]]] = [[], []]
                sent = 0
                with trio.fail_after(90):
                    while not all(seen):  # until both have queues
                        producer.submit(Message(topic, f"m{sent}".encode()))
                        sent += 1
                        await trio.sleep(0.05)
                        seen = [await driver.do("received", id="c") for driver in (first, second)]
                    first.kill()
                    for _ in range(200):
                        producer.submit(Message(topic, f"m{sent}".encode()))
                        sent += 1
                    await producer.flush()
                    wanted = {f"m{number}" for number in range(sent)}
                    while not wanted <= {m["body"] for m in (*seen[0], *seen[1])}:
                        await trio.sleep(0.1)
                        seen[1] = await second.do("received", id="c")
    finally:
        first.close()
        second.close()


async def test_two_python_members_share_a_topic_and_one_is_killed(
    namesrv: str, tmp_path: Path
) -> None:
    topic, group = unique("pythons"), unique("cg")
    files = tmp_path / "first", tmp_path / "second"
    async with Producer(unique("pg"), namesrv=namesrv) as producer:
        await Admin(client=producer.client).topics.create(topic, queues=4)
        with (
            python_process(CONSUMER, namesrv, topic, str(files[0]), group) as victim,
            python_process(CONSUMER, namesrv, topic, str(files[1]), group),
        ):
            sent = 0
            with trio.fail_after(90):
                while not all(lines_of(file) for file in files):
                    producer.submit(Message(topic, b"%d" % sent))
                    sent += 1
                    await trio.sleep(0.02)
                victim.kill()
                victim.wait()
                for _ in range(1000):
                    producer.submit(Message(topic, b"%d" % sent))
                    sent += 1
                await producer.flush()
                wanted = {b"%d" % number for number in range(sent)}
                while not wanted <= {*lines_of(files[0]), *lines_of(files[1])}:
                    await trio.sleep(0.1)


@pytest.mark.parametrize("killed", ["java", "python"])
async def test_two_languages_share_a_group_and_one_dies(namesrv: str, killed: str) -> None:
    topic, group = unique("shared"), unique("cg")
    ours: list[str] = []

    async def listener(message: ReceivedMessage) -> None:
        ours.append(message.body.decode())

    peer = java.Driver()
    try:
        async with Producer(unique("pg"), namesrv=namesrv) as producer:
            await producer.send(Message(topic, b"begin"))
            await peer.do("consumer", id="c", group=group, topic=topic, namesrv=namesrv)
            first = ConsumeFrom.FIRST_OFFSET
            consumer = PushConsumer(
                group,
                namesrv=namesrv,
                subscriptions={topic: "*"},
                listener=listener,
                consume_from=first,
            )
            theirs: list[dict[str, Any]] = []
            async with consumer:
                await until(
                    lambda: (
                        0 < len([q for q in consumer.statistics().queues if q.topic == topic]) < 4
                    )
                )
                for number in range(400):
                    producer.submit(Message(topic, f"m{number}".encode()))
                await producer.flush()
                with trio.fail_after(60):
                    while (
                        len({*ours, *(m["body"] for m in theirs)}) < 401 or not ours or not theirs
                    ):
                        await trio.sleep(0.1)
                        theirs = await peer.do("received", id="c")
                if killed == "java":
                    peer.kill()
                    for number in range(400, 800):
                        producer.submit(Message(topic, f"m{number}".encode()))
                    await producer.flush()
                    await until(lambda: {f"m{number}" for number in range(400, 800)} <= set(ours))
            if killed == "python":
                for number in range(400, 800):
                    producer.submit(Message(topic, f"m{number}".encode()))
                await producer.flush()
                with trio.fail_after(60):
                    while not {f"m{number}" for number in range(400, 800)} <= {
                        m["body"] for m in theirs
                    }:
                        await trio.sleep(0.1)
                        theirs = await peer.do("received", id="c")
    finally:
        peer.close()
    everything = set(ours) | {m["body"] for m in theirs}
    assert everything >= {"begin", *(f"m{number}" for number in range(800))}
