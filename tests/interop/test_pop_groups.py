"""Apache's POP consumer and our simple consumer in one group, on both brokers: together
they get everything, and each message goes to one of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import trio

from rocketmq_sdk import Admin, ConsumeFrom, Message, Producer, SimpleConsumer
from support import java
from support.processes import broker_process
from support.waiting import unique

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.both_releases


@pytest.fixture(params=["apache", "ours"])
def addresses(request: pytest.FixtureRequest) -> Iterator[tuple[str, str]]:
    """Name server and broker of each kind."""
    if request.param == "apache":
        cluster = request.getfixturevalue("apache")
        yield cluster.namesrv, cluster.broker
    else:
        with broker_process() as broker:
            yield broker.namesrv, broker.address


async def test_a_group_of_both_shares_the_messages(addresses: tuple[str, str]) -> None:
    namesrv, broker = addresses
    topic, group = unique("pop"), unique("cg")
    driver = java.Driver(program="Consumers")
    ours: list[int] = []
    theirs: list[dict[str, Any]] = []
    try:
        async with Producer(unique("pg"), namesrv=namesrv) as producer:
            await Admin(client=producer.client).topics.create(topic, queues=2)
            options = {"consume_from": ConsumeFrom.FIRST_OFFSET, "await_duration": 0.5}
            async with SimpleConsumer(
                group, namesrv=namesrv, subscriptions={topic: "*"}, **options
            ) as consumer:  # type: ignore[arg-type]
                assert await consumer.receive() == []  # the broker knows the group
                await driver.do(
                    "pop", id="c", group=group, topic=topic, namesrv=namesrv, broker=broker
                )
                sent = 0
                with trio.fail_after(120):
                    while not (ours and theirs) or len(ours) + len(theirs) < sent or sent < 400:
                        if sent < 400 or not (ours and theirs):
                            await producer.send_batch(
                                [
                                    Message(topic, b"%d" % number)
                                    for number in range(sent, sent + 10)
                                ]
                            )
                            sent += 10
                        messages = await consumer.receive(4)
                        ours += [int(message.body) for message in messages]
                        await consumer.batch_ack(messages)
                        theirs = await driver.do("received", id="c")
                assert sorted([*ours, *(int(message["body"]) for message in theirs)]) == list(
                    range(sent)
                )
                # What ours does not acknowledge goes to Apache's when its time is over.
                await driver.do("stop", id="c")
                await producer.send(Message(topic, b"-1"))
                with trio.fail_after(60):
                    while not (messages := await consumer.receive(1, 10)):
                        pass
                await consumer.change_invisible_duration(messages[0], 1)
            await driver.do("pop", id="d", group=group, topic=topic, namesrv=namesrv, broker=broker)
            with trio.fail_after(60):
                while not (theirs := await driver.do("received", id="d")):
                    await trio.sleep(0.2)
            assert [(message["body"], message["times"]) for message in theirs] == [("-1", 1)]
    finally:
        driver.close()
