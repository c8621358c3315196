"""A simple consumer and a broker that gives no answer."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import trio

from rocketmq_sdk import (
    ConsumeFrom,
    EmbeddedBroker,
    Message,
    MessageQueue,
    Producer,
    SimpleConsumer,
)
from rocketmq_sdk.client.api.topics import create_topic
from rocketmq_sdk.client.runtime import Client
from rocketmq_sdk.codes import RequestCode
from rocketmq_sdk.consumer.simple.hung_places import HungPlaces
from rocketmq_sdk.errors import BusyError, RequestTimeoutError
from rocketmq_sdk.protocol.bodies.topics import TopicConfig
from rocketmq_sdk.testing.interception import intercept, unanswered
from support.two_brokers import open_two_brokers

if TYPE_CHECKING:
    from trio.testing import MockClock


class Brokers:
    """Places whose pops take a time, and may fail."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.error: Exception | None = None
        self.probes = 0
        self.returned = 0
        self.hung: HungPlaces[str, str] = HungPlaces(self.probe, self.back)

    async def pop(self) -> str:
        await trio.sleep(self.seconds)
        if self.error is not None:
            raise self.error
        return "messages"

    async def probe(self, _place: str) -> None:
        self.probes += 1
        if self.error is not None:
            raise self.error

    def back(self) -> None:
        self.returned += 1


async def test_a_late_answer_is_kept_for_the_next_receive(
    autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    brokers = Brokers()
    hung = brokers.hung
    hung.nursery = nursery
    assert await hung.pop("a", brokers.pop) == "messages"
    brokers.seconds = 2
    began = trio.current_time()
    with pytest.raises(RequestTimeoutError):
        await hung.pop("a", brokers.pop)
    assert trio.current_time() - began == pytest.approx(0.5)
    assert list(hung.apart) == ["a"]
    await trio.sleep(2)
    assert list(hung.arrived) == [("a", "messages")]
    assert not hung.apart
    assert brokers.returned == 1
    assert not brokers.probes


@pytest.mark.parametrize("cancelled_after", [0.1, 0.3])
async def test_a_cancelled_receive_loses_no_answer(
    autojump_clock: MockClock, nursery: trio.Nursery, cancelled_after: float
) -> None:
    """Nor does one that is cancelled in the pass of the loop that brings the answer."""
    brokers = Brokers()
    brokers.hung.nursery = nursery
    brokers.seconds = 0.3
    with trio.move_on_after(cancelled_after) as scope:
        await brokers.hung.pop("a", brokers.pop)
    await trio.sleep(1)
    if not scope.cancelled_caught:
        return  # the answer was first
    assert list(brokers.hung.arrived) == [("a", "messages")]


async def test_a_place_without_answer_is_probed_until_it_is_back(
    autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    brokers = Brokers()
    hung = brokers.hung
    hung.nursery = nursery
    brokers.error = RequestTimeoutError("no answer")
    for _ in range(3):  # at once, by several receives
        with pytest.raises(RequestTimeoutError):
            await hung.pop("a", brokers.pop)
    await trio.sleep(10)
    assert list(hung.apart) == ["a"]
    assert 9 <= brokers.probes <= 10
    brokers.error = None
    await trio.sleep(1.1)
    assert not hung.apart
    assert brokers.returned == 1
    assert await hung.pop("a", brokers.pop) == "messages"


async def test_a_refusal_sets_nothing_apart(
    autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    brokers = Brokers()
    brokers.hung.nursery = nursery
    brokers.error = BusyError(2)
    with pytest.raises(BusyError):
        await brokers.hung.pop("a", brokers.pop)
    assert not brokers.hung.apart


async def test_many_hung_places_cost_no_more_than_two_moments(
    autojump_clock: MockClock,
) -> None:
    topics = [f"t{number}" for number in range(6)]
    async with open_two_brokers(topics[0], 1) as cluster, Client(cluster.way()[0]) as client:
        for topic in topics[1:]:
            await cluster.create_topic(topic, 1)
        async with (
            Producer("pg", client=client) as producer,
            SimpleConsumer(
                "g",
                client=client,
                subscriptions=dict.fromkeys(topics, "*"),
                consume_from=ConsumeFrom.FIRST_OFFSET,
            ) as consumer,
        ):
            assert await consumer.receive(1, await_duration=1) == []
            for topic in topics:
                await producer.send(Message(topic, b"x"), queue=MessageQueue(topic, "b1", 0))
            for hung in range(2):  # it hangs a second time
                cluster.brokers[0].hang()
                began, got = trio.current_time(), set()
                while len(got) < len(topics):
                    got |= {message.topic for message in await consumer.receive(1, 10)}
                assert trio.current_time() - began < 1.2
                cluster.brokers[0].recover()
                await trio.sleep(12)  # it answers probes, and messages come again
                assert consumer.health(), hung


@pytest.mark.real_time
async def test_the_other_broker_is_read_at_full_rate() -> None:
    async with EmbeddedBroker(listen=0, namesrv_listen=0) as first:
        namesrv = first.namesrv_address
        assert namesrv is not None
        async with (
            EmbeddedBroker(listen=0, namesrv_addr=namesrv, broker_name="broker-b") as second,
            Client(namesrv) as client,
            Producer("pg", client=client) as producer,
            SimpleConsumer(
                "g", client=client, subscriptions={"t": "*"}, consume_from=ConsumeFrom.FIRST_OFFSET
            ) as consumer,
        ):
            for broker in (first, second):
                assert broker.address is not None
                await create_topic(
                    client, broker.address, TopicConfig("t", read_queue_nums=1, write_queue_nums=1)
                )
            with trio.fail_after(60):
                while len((await client.route("t", refresh=True)).broker_datas) < 2:
                    await trio.sleep(0.02)
            [queue] = [
                queue
                for queue in await producer.publish_queues("t")
                if queue.broker_name == "broker-a"
            ]
            for number in range(60):
                await producer.send(Message("t", b"%d" % number), queue=queue)
            with intercept(second, *RequestCode, by=unanswered):
                began = trio.current_time()
                found: list[bytes] = []
                while len(found) < 60:
                    found += [message.body for message in await consumer.receive(4)]
                assert sorted(map(int, found)) == list(range(60))
                assert trio.current_time() - began < 30  # 45 s if each second one waited
            [other] = [
                queue
                for queue in await producer.publish_queues("t")
                if queue.broker_name == "broker-b"
            ]
            await producer.send(Message("t", b"again"), queue=other)
            with trio.fail_after(60):
                [again] = await consumer.receive(await_duration=20)
            assert again.body == b"again"
