"""Push consumers in POP mode: ours on Apache's broker, and a group of Apache's and ours
on both brokers. Request 401 tells a broker the mode.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import trio

from rocketmq_sdk import Admin, ConsumeFrom, Message, Producer, PushConsumer, ReceivedMessage
from rocketmq_sdk.client.api.members import get_all_message_request_modes, set_message_request_mode
from rocketmq_sdk.protocol.bodies.members import MessageRequestMode
from support.processes import broker_process
from support.waiting import unique, until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from support import java


@pytest.fixture
def at_apache(apache: java.ApacheCluster) -> tuple[str, str]:
    """Name server and broker of Apache's cluster."""
    return apache.namesrv, apache.broker


@pytest.fixture(params=["apache", "ours"])
def addresses(request: pytest.FixtureRequest) -> Iterator[tuple[str, str]]:
    """Name server and broker of each kind."""
    if request.param == "apache":
        yield request.getfixturevalue("at_apache")
    else:
        with broker_process() as broker:
            yield broker.namesrv, broker.address


def popping(
    group: str, topic: str, namesrv: str, listener: object, **options: object
) -> PushConsumer:
    return PushConsumer(
        group,
        namesrv=namesrv,
        subscriptions={topic: "*"},
        listener=listener,  # type: ignore[arg-type]  # a coroutine function
        client_rebalance=False,
        consume_from=ConsumeFrom.FIRST_OFFSET,
        rebalance_interval=1,
        **options,  # type: ignore[arg-type]  # settings of the tests
    )


async def test_our_push_consumer_pops_from_apaches_broker_and_failures_come_again(
    at_apache: tuple[str, str],
) -> None:
    namesrv, broker = at_apache
    topic, group = unique("popped"), unique("cg")
    seen: list[tuple[str, int]] = []

    async def listener(message: ReceivedMessage) -> None:
        body = message.body.decode()
        seen.append((body, message.reconsume_times))
        if body == "fails once" and message.reconsume_times == 0:
            raise ValueError("as the test wants it")

    async with Producer(unique("pg"), namesrv=namesrv) as producer:
        await Admin(client=producer.client).topics.create(topic, queues=2)
        await set_message_request_mode(
            producer.client, broker, topic, group, MessageRequestMode.POP
        )
        modes = await get_all_message_request_modes(producer.client, broker)
        assert modes[topic][group].mode is MessageRequestMode.POP
        async with popping(group, topic, namesrv, listener) as consumer:
            for number in range(50):
                producer.submit(Message(topic, b"%d" % number))
            producer.submit(Message(topic, b"fails once"))
            await producer.flush()
            await until(
                lambda: {body for body, _times in seen} == {"fails once", *map(str, range(50))}, 120
            )
            # Popped, not pulled: no queue of the topic is this member's own.
            assert not [queue for queue in consumer.statistics().queues if queue.topic == topic]
            await until(lambda: ("fails once", 1) in seen, 120)
    assert seen.index(("fails once", 0)) < seen.index(("fails once", 1))


async def test_what_failed_while_it_was_popped_comes_again_when_the_group_pulls(
    addresses: tuple[str, str],
) -> None:
    namesrv, broker = addresses
    topic, group = unique("switched"), unique("cg")
    seen: list[tuple[str, str, int]] = []

    async def listener(message: ReceivedMessage) -> None:
        seen.append((message.body.decode(), message.topic, message.reconsume_times))
        if message.reconsume_times == 0:
            raise ValueError("as the test wants it")

    async with Producer(unique("pg"), namesrv=namesrv) as producer:
        await Admin(client=producer.client).topics.create(topic, queues=2)
        await set_message_request_mode(
            producer.client, broker, topic, group, MessageRequestMode.POP
        )
        async with popping(
            group, topic, namesrv, listener, poll_name_server_interval=1
        ) as consumer:
            await producer.send(Message(topic, b"a"))
            await until(lambda: len(seen) == 1, 120)
            await set_message_request_mode(
                producer.client, broker, topic, group, MessageRequestMode.PULL
            )
            await until(lambda: len(seen) == 2, 120)
            assert any(queue.topic == topic for queue in consumer.statistics().queues)
    assert [(body, of) for body, of, _times in seen] == [("a", topic)] * 2
    assert seen[1][2] in (1, 2)  # 2 if the machine stood still for the invisible time


async def test_a_group_of_apaches_push_consumer_and_ours_pops_together(
    addresses: tuple[str, str], consumers_driver: java.Driver
) -> None:
    namesrv, broker = addresses
    topic, group = unique("popped"), unique("cg")
    ours: list[int] = []
    theirs: list[dict[str, Any]] = []
    member = unique("member")

    async def listener(message: ReceivedMessage) -> None:
        ours.append(int(message.body))

    async with Producer(unique("pg"), namesrv=namesrv) as producer:
        await Admin(client=producer.client).topics.create(topic, queues=4)
        await consumers_driver.do(
            "pop", id=member, group=group, topic=topic, namesrv=namesrv, broker=broker
        )
        sent = 0
        async with popping(group, topic, namesrv, listener):
            with trio.fail_after(120):
                while (
                    not (ours and theirs)
                    or len({*ours, *(int(seen["body"]) for seen in theirs)}) < sent
                ):
                    if not (ours and theirs) or sent < 200:
                        await producer.send_batch(
                            [Message(topic, b"%d" % number) for number in range(sent, sent + 10)]
                        )
                        sent += 10
                    await trio.sleep(0.02)
                    theirs = await consumers_driver.do("received", id=member)
        assert set(ours) | {int(seen["body"]) for seen in theirs} == set(range(sent))
        # Ours has left: Apache's gets everything.
        await producer.send_batch(
            [Message(topic, b"%d" % number) for number in range(sent, sent + 20)]
        )
        with trio.fail_after(120):
            while not set(range(sent, sent + 20)) <= {int(seen["body"]) for seen in theirs}:
                await trio.sleep(0.1)
                theirs = await consumers_driver.do("received", id=member)
        await consumers_driver.do("stop", id=member)
