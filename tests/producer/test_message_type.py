"""Messages held to the type of their topic, by producers that want it."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest
import trio

from rocketmq_sdk.broker_embedded.broker import EmbeddedBroker
from rocketmq_sdk.codes import RequestCode
from rocketmq_sdk.errors import ConfigurationError, RequestTimeoutError, SendTimeout
from rocketmq_sdk.model.enums import TransactionState
from rocketmq_sdk.model.message import Message
from rocketmq_sdk.producer.message_type import message_type
from rocketmq_sdk.producer.producer import Producer
from rocketmq_sdk.producer.transaction import TransactionProducer
from rocketmq_sdk.protocol.bodies.topics import TopicConfig
from rocketmq_sdk.testing.interception import intercept, unanswered
from support.two_brokers import open_two_brokers

if TYPE_CHECKING:
    from trio.testing import MockClock

    from rocketmq_sdk.model.received import ReceivedMessage

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


@pytest.mark.parametrize("hung", [1, 2])
async def test_brokers_that_do_not_tell_a_type_cost_no_more_than_the_time_of_a_send(
    autojump_clock: MockClock, hung: int
) -> None:
    """With another broker that tells it, a moment; and nothing was sent."""
    async with (
        open_two_brokers("t", 1) as cluster,
        Producer("PG", namesrv=cluster.way()[0], check_message_type=True) as producer,
    ):
        first = (await producer.publish_queues("t"))[0].broker_name
        for life in cluster.brokers:
            if hung == 2 or life.name == first:
                assert life.broker is not None
                intercept(life.broker, RequestCode.GET_TOPIC_CONFIG, by=unanswered)
        message = Message("t", b"x")
        for send in (
            producer.send,
            producer.request,
            lambda one, timeout: producer.send_batch([one], timeout=timeout),
            producer.send_oneway,
        ):
            began = trio.current_time()
            if hung == 1:
                with suppress(RequestTimeoutError):  # nobody replies
                    await send(message, timeout=2)
            else:
                with pytest.raises(SendTimeout) as caught:
                    await send(message, timeout=2)
                assert not caught.value.outcome_unknown
            assert trio.current_time() - began <= 2.2
        await trio.sleep(1)  # for the one-way message
        stored = sum(len(life.stored("t", 0)) for life in cluster.brokers)
        assert stored == (4 if hung == 1 else 0)


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
