"""Our lite pull consumer and Apache's in one group, on both brokers: they agree on the
queues and take over each other's offsets.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import trio

from rocketmq_sdk import Admin, ConsumeFrom, LitePullConsumer, Message, Producer, PullConsumer
from support import java
from support.processes import broker_process
from support.waiting import unique

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="module")
def consumers() -> Iterator[java.Driver]:
    """Apache's lite pull consumer."""
    driver = java.Driver(program="Consumers")
    yield driver
    driver.close()


@pytest.fixture(params=["apache", "ours"], scope="module")
def namesrv(request: pytest.FixtureRequest) -> Iterator[str]:
    """A name server of each kind, with its broker."""
    if request.param == "apache":
        yield request.getfixturevalue("apache").namesrv
    else:
        with broker_process() as broker:
            yield broker.namesrv


async def send(producer: Producer, topic: str, numbers: range) -> None:
    for start in range(numbers.start, numbers.stop, 20):
        await producer.send_batch(
            [
                Message(topic, b"%d" % number)
                for number in range(start, min(start + 20, numbers.stop))
            ]
        )


async def test_a_group_of_both_shares_the_queues_and_loses_nothing(
    namesrv: str, consumers: java.Driver
) -> None:
    topic, group = unique("lite"), unique("cg")
    ours: list[bytes] = []
    theirs: list[dict[str, Any]] = []
    async with Producer(unique("pg"), namesrv=namesrv) as producer:
        await Admin(client=producer.client).topics.create(topic, queues=4)
        await consumers.do("lite", id=group, group=group, topic=topic, namesrv=namesrv)
        options = {
            "consume_from": ConsumeFrom.FIRST_OFFSET,
            "auto_commit_interval": 1,
            "polled_is_done": True,
        }
        async with LitePullConsumer(
            group, namesrv=namesrv, subscriptions={topic: "*"}, **options
        ) as consumer:  # type: ignore[arg-type]
            with trio.fail_after(60):
                while True:
                    java_queues = set(await consumers.do("assignment", id=group))
                    our_queues = {queue.queue_id for queue in consumer.assignment()}
                    if len(our_queues) == len(java_queues) == 2 and our_queues | java_queues == {
                        0,
                        1,
                        2,
                        3,
                    }:
                        break
                    ours += [message.body for message in await consumer.poll(0.1)]
            await send(producer, topic, range(400))
            with trio.fail_after(60):
                while len({*ours, *(message["body"].encode() for message in theirs)}) < 400:
                    ours += [message.body for message in await consumer.poll(0.1)]
                    theirs = await consumers.do("received", id=group)
            assert len(ours) + len(theirs) == 400
            # Apache's member leaves: ours goes on exactly where it stopped.
            await consumers.do("stop", id=group)
            await send(producer, topic, range(400, 600))
            with trio.fail_after(60):
                while len(ours) < 600 - len(theirs):
                    ours += [message.body for message in await consumer.poll(0.1)]
            assert len(consumer.assignment()) == 4
        assert sorted(map(int, [*ours, *(message["body"] for message in theirs)])) == list(
            range(600)
        )
        # And the other way round.
        await send(producer, topic, range(600, 700))
        await consumers.do("lite", id=group, group=group, topic=topic, namesrv=namesrv)
        with trio.fail_after(60):
            while len(theirs := await consumers.do("received", id=group)) < 100:
                await trio.sleep(0.1)
        assert sorted(int(message["body"]) for message in theirs) == list(range(600, 700))
        await consumers.do("stop", id=group)


async def test_our_pull_consumer_reads_what_the_group_has_committed(
    namesrv: str, consumers: java.Driver
) -> None:
    topic, group = unique("pull"), unique("cg")
    async with Producer(unique("pg"), namesrv=namesrv) as producer:
        await Admin(client=producer.client).topics.create(topic, queues=1)
        await send(producer, topic, range(60))
    async with PullConsumer(group, namesrv=namesrv) as consumer:
        [queue] = await consumer.message_queues(topic)
        result = await consumer.pull(queue, 40)
        assert [message.body for message in result.messages] == [
            b"%d" % number for number in range(40, 60)
        ]
        await consumer.commit(queue, 45)
    await consumers.do("lite", id=group, group=group, topic=topic, namesrv=namesrv)
    with trio.fail_after(60):
        while len(theirs := await consumers.do("received", id=group)) < 15:
            await trio.sleep(0.1)
    await consumers.do("stop", id=group)
    assert [int(message["body"]) for message in theirs] == list(range(45, 60))
    async with PullConsumer(group, namesrv=namesrv) as consumer:
        assert await consumer.committed(queue) == 60
