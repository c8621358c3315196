"""Messages held to the type of their topic, by producers that want it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import trio

from rocketmq_sdk.broker_embedded.broker import EmbeddedBroker
from rocketmq_sdk.errors import ConfigurationError
from rocketmq_sdk.model.enums import TransactionState
from rocketmq_sdk.model.message import Message, ReceivedMessage
from rocketmq_sdk.producer.message_type import message_type
from rocketmq_sdk.producer.producer import Producer
from rocketmq_sdk.producer.transaction import TransactionProducer
from rocketmq_sdk.protocol.bodies.topics import TopicConfig

if TYPE_CHECKING:
    from trio.testing import MockClock

KINDS: dict[str, dict[str, Any]] = {
    "NORMAL": {},
    "FIFO": {"sharding_key": "k"},
    "DELAY": {"delay_level": 3},
    "PRIORITY": {"priority": 1},
}


def topics(broker: EmbeddedBroker) -> None:
    for kind in (*KINDS, "TRANSACTION", "MIXED", "UNSPECIFIED"):
        broker.core.topics.put(TopicConfig(f"t-{kind}", 2, 2, attributes={"message.type": kind}))
    broker.core.topics.put(TopicConfig("t-plain", 2, 2))


@pytest.mark.parametrize(("kind", "options"), KINDS.items())
async def test_each_type_fits_its_own_topic_and_those_that_take_all(
    kind: str, options: dict[str, Any], autojump_clock: MockClock
) -> None:
    with trio.fail_after(60):
        async with (
            EmbeddedBroker() as broker,
            Producer("PG", namesrv=broker, check_message_type=True) as producer,
        ):
            topics(broker)
            for topic in (f"t-{kind}", "t-MIXED", "t-UNSPECIFIED", "t-plain", "t-created-now"):
                message = Message(topic, b"x", **options)
                assert message_type(message) == kind
                await producer.send(message)
                assert (await producer.submit(message)).queue.topic == topic
            for other in {*KINDS, "TRANSACTION"} - {kind}:
                message = Message(f"t-{other}", b"x", **options)
                for send in (producer.send, producer.send_oneway, producer.request):
                    with pytest.raises(ConfigurationError, match=f"for messages of type {other}"):
                        await send(message)
                with pytest.raises(ConfigurationError, match=f"is of type {kind}"):
                    producer.submit(message)


async def test_transactions_have_a_type_of_their_own(autojump_clock: MockClock) -> None:
    async def checker(_message: ReceivedMessage) -> TransactionState:
        return TransactionState.UNKNOWN

    with trio.fail_after(60):
        async with (
            EmbeddedBroker() as broker,
            TransactionProducer("PG", checker, namesrv=broker, check_message_type=True) as producer,
        ):
            topics(broker)
            async with producer.transaction(Message("t-TRANSACTION", b"x")):
                pass
            with pytest.raises(ConfigurationError, match="is of type TRANSACTION"):
                async with producer.transaction(Message("t-NORMAL", b"x")):
                    raise AssertionError("the block must not run")


async def test_submit_needs_to_know_the_type(autojump_clock: MockClock) -> None:
    with trio.fail_after(60):
        async with (
            EmbeddedBroker() as broker,
            Producer("PG", namesrv=broker, check_message_type=True) as producer,
        ):
            topics(broker)
            with pytest.raises(ConfigurationError, match="learn_topic_type"):
                producer.submit(Message("t-FIFO", b"x", sharding_key="k"))
            await producer.learn_topic_type("t-FIFO")
            await producer.submit(Message("t-FIFO", b"x", sharding_key="k"))


async def test_nothing_is_checked_unasked(autojump_clock: MockClock) -> None:
    with trio.fail_after(60):
        async with EmbeddedBroker() as broker, Producer("PG", namesrv=broker) as producer:
            topics(broker)
            await producer.learn_topic_type("t-FIFO")
            await producer.send(Message("t-FIFO", b"x"))
            await producer.send(Message("t-PRIORITY", b"x", delay_level=1))


async def test_a_priority_is_the_queue(autojump_clock: MockClock) -> None:
    with trio.fail_after(60):
        async with EmbeddedBroker() as broker, Producer("PG", namesrv=broker) as producer:
            broker.core.topics.put(TopicConfig("p", 4, 4, attributes={"message.type": "PRIORITY"}))
            results = [
                await producer.send(Message("p", b"x", priority=priority))
                for priority in (0, 1, 3, 9)
            ]
            assert [result.queue.queue_id for result in results] == [0, 1, 3, 3]


@pytest.mark.parametrize("bad", [-1, 1 << 31, "1", 1.0, True])
def test_bad_priorities_are_refused(bad: Any) -> None:
    with pytest.raises(ConfigurationError, match="priority"):
        Message("p", b"x", priority=bad)
