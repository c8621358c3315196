"""Calls that concern two brokers of which one hangs: the other has its part at once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import trio

from rocketmq_sdk import (
    Admin,
    Client,
    ConsumeFrom,
    LitePullConsumer,
    Message,
    MessageQueue,
    Producer,
    PullConsumer,
    ReceivedMessage,
    RequestTimeoutError,
    SimpleConsumer,
)
from support.two_brokers import TwoBrokers, open_two_brokers

if TYPE_CHECKING:
    from trio.testing import MockClock

TOPIC = "orders"
QUEUES = [MessageQueue(TOPIC, f"b{number}", 0) for number in range(2)]


async def filled(cluster: TwoBrokers, client: Client, count: int = 4) -> None:
    """Both brokers have messages."""
    async with Producer("shop", client=client) as producer:
        for queue in QUEUES:
            for number in range(count):
                await producer.send(Message(TOPIC, b"%d" % number), queue=queue)


@pytest.mark.parametrize("hung", [0, 1])
async def test_commits_reach_the_broker_that_answers_at_once(
    autojump_clock: MockClock, hung: int
) -> None:
    async with open_two_brokers(TOPIC, 4) as cluster, Client(cluster.way()[0]) as client:
        await filled(cluster, client)
        async with LitePullConsumer("billing", client=client, auto_commit=False) as consumer:
            queues = await consumer.message_queues(TOPIC)
            assert len(queues) == 8
            await consumer.assign(queues)
            seen: list[float] = []
            cluster.on_commit = lambda *_what: seen.append(trio.current_time())
            cluster.brokers[hung].hang()
            began = trio.current_time()
            with pytest.raises(RequestTimeoutError):
                await consumer.commit(dict.fromkeys(queues, 1))
            assert len(seen) == 4
            assert max(seen) - began < 0.1
            assert trio.current_time() - began < 4  # not once for each queue
            cluster.brokers[hung].recover()


@pytest.mark.parametrize("hung", [0, 1])
async def test_acknowledgements_reach_the_broker_that_answers_at_once(
    autojump_clock: MockClock, hung: int
) -> None:
    async with open_two_brokers(TOPIC, 1) as cluster, Client(cluster.way()[0]) as client:
        await filled(cluster, client)
        async with SimpleConsumer(
            "billing",
            client=client,
            subscriptions={TOPIC: "*"},
            consume_from=ConsumeFrom.FIRST_OFFSET,
        ) as consumer:
            messages = []
            while len(messages) < 8:
                messages += await consumer.receive(32, invisible_duration=120)
            cluster.brokers[hung].hang()
            began = trio.current_time()

            async def acknowledge() -> None:
                with pytest.raises(RequestTimeoutError):
                    await consumer.batch_ack(messages)

            async with trio.open_nursery() as nursery:
                nursery.start_soon(acknowledge)
                await trio.sleep(0.1)
                assert consumer.statistics().consumed == 4
                for message in messages:  # another call waits for the one under way
                    at_hung = message.broker_name == f"b{hung}"
                    assert (message.receipt.busy is not None) == at_hung
            assert trio.current_time() - began < 4
            cluster.brokers[hung].recover()
            left = [message for message in messages if message.receipt.is_good]
            assert {message.broker_name for message in left} == {f"b{hung}"}
            await consumer.batch_ack(left)
            assert consumer.statistics().consumed == 8


async def test_messages_are_sent_back_to_the_broker_that_answers(
    autojump_clock: MockClock,
) -> None:
    async with open_two_brokers(TOPIC, 1) as cluster, Client(cluster.way()[0]) as client:
        await filled(cluster, client, 1)
        async with PullConsumer("audit", client=client) as consumer:
            messages: list[ReceivedMessage] = []
            for queue in QUEUES:
                messages += (await consumer.pull(queue, 0)).messages
            cluster.brokers[0].hang()
            with pytest.raises(RequestTimeoutError):
                await consumer.send_back(messages, delay_level=1)
            cluster.brokers[0].recover()
            waiting = [
                life.broker.store.max_offset("SCHEDULE_TOPIC_XXXX", 0)
                for life in cluster.brokers
                if life.broker is not None
            ]
            assert waiting == [0, 1]


async def test_a_member_without_a_group_takes_the_queues_of_the_broker_that_answers(
    autojump_clock: MockClock,
) -> None:
    async with (
        open_two_brokers(TOPIC, 2) as cluster,
        Client(cluster.way()[0]) as client,
        LitePullConsumer("billing", client=client) as consumer,
    ):
        queues = await consumer.message_queues(TOPIC)
        cluster.brokers[0].hang()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(consumer.assign, queues)
            await trio.sleep(0.5)
            assert {queue.broker_name for queue in consumer.assignment()} == {"b1"}
            nursery.cancel_scope.cancel()
        cluster.brokers[0].recover()


async def test_an_administrator_changes_the_brokers_that_answer(
    autojump_clock: MockClock,
) -> None:
    async with open_two_brokers(TOPIC, 2) as cluster, Client(cluster.way()[0]) as client:
        admin = Admin(client=client)
        cluster.brokers[0].hang()
        calls: list[Any] = [
            lambda: admin.topics.create("refunds", queues=2),
            lambda: admin.groups.create("billing"),
            lambda: admin.groups.reset_offsets("billing", TOPIC),
        ]
        for call in calls:
            began = trio.current_time()
            with pytest.raises(RequestTimeoutError):
                await call()
            assert trio.current_time() - began < 4
        [_, other] = [life.broker for life in cluster.brokers]
        assert other is not None
        assert other.core.topics.get("refunds") is not None
        assert other.core.groups.get("billing") is not None
        cluster.brokers[0].recover()
        await admin.topics.create("refunds", queues=2)
        assert await admin.groups.names() == ["billing"]
