"""What a producer says of its brokers, name servers and topics."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import trio

from rocketmq_sdk import ConnectError, EmbeddedBroker, Message, Producer, RouteError, SendTimeout
from rocketmq_sdk.producer.health import ProducerHealth
from support.peers import SILENT, open_cluster
from support.waiting import until

if TYPE_CHECKING:
    from trio.testing import MockClock

MESSAGE = Message("t", b"x")


async def test_without_troubles_it_is_sending(autojump_clock: MockClock) -> None:
    async with EmbeddedBroker() as broker:
        producer = Producer("shop", namesrv=broker)
        assert str(producer.health()).startswith("not sending: it is not open")
        async with producer:
            assert producer.health() == ProducerHealth(True)
            await producer.send(MESSAGE)
            assert str(producer.health()) == "sending"
        assert not producer.health()


async def test_one_broker_that_is_gone_is_named_and_the_other_goes_on(
    autojump_clock: MockClock,
) -> None:
    async with (
        open_cluster() as cluster,
        cluster.client() as client,
        Producer("shop", client=client) as producer,
    ):
        for _ in range(4):
            await producer.send(MESSAGE)
        await cluster.brokers[0].stop()
        for _ in range(4):
            await producer.send(MESSAGE)
        health = producer.health()
        assert health
        (reason,) = health.reasons
        assert reason.startswith("b0 at 10.0.0.0:10911 is left out: ")
        await cluster.brokers[1].stop()
        await trio.sleep(61)  # heartbeats tell of it, without a send
        health = producer.health()
        assert not health
        assert [reason.split()[0] for reason in health.reasons] == ["b0", "b1"]
        for broker in cluster.brokers:
            await broker.start()
        await until(lambda: producer.health() == ProducerHealth(True), 90)


async def test_a_broker_that_does_not_answer_is_named_until_it_does(
    autojump_clock: MockClock,
) -> None:
    async with (
        open_cluster(brokers=1) as cluster,
        cluster.client() as client,
        Producer("shop", client=client, retry_times=0, send_timeout=1) as producer,
    ):
        cluster.brokers[0].script = [SILENT]
        with pytest.raises(SendTimeout):
            await producer.send(MESSAGE)
        assert not producer.health()
        assert "b0 at 10.0.0.0:10911 is left out" in str(producer.health())
        await producer.send(MESSAGE)
        assert producer.health() == ProducerHealth(True)


async def test_each_name_server_is_named_as_long_as_it_is_silent(
    autojump_clock: MockClock,
) -> None:
    async with (
        open_cluster(name_servers=2) as cluster,
        cluster.client() as client,
        Producer("shop", client=client) as producer,
    ):
        await producer.send(MESSAGE)
        one, other = cluster.name_servers
        await one.stop()
        await trio.sleep(61)
        if producer.health().reasons == ():  # the other one was asked all the time
            one, other = other, one
            await other.start()
            await one.stop()
            await trio.sleep(61)
        health = producer.health()
        assert health
        (reason,) = health.reasons
        assert reason.startswith(f"the name server {one.address} did not answer")
        await one.start()
        await until(lambda: producer.health() == ProducerHealth(True), 90)
        await one.stop()
        await other.stop()
        await trio.sleep(90)
        health = producer.health()
        assert health  # the routes are known
        assert "the route of topic t cannot be asked for, the last one known is used" in str(health)
        assert all(server.address in str(health) for server in (one, other))


async def test_topics_without_a_route_and_a_full_room_are_named(autojump_clock: MockClock) -> None:
    async with (
        open_cluster(brokers=1) as cluster,
        cluster.client() as client,
        Producer("shop", client=client, max_in_flight=1) as producer,
    ):
        with pytest.raises(RouteError):
            await producer.send(Message("unknown", b"x"))
        assert not producer.health()
        assert "no name server knows a writable queue of topic unknown" in str(producer.health())
        cluster.brokers[0].script = [SILENT]
        handle = producer.submit(MESSAGE)
        assert "1 messages with 1 bytes are under way, the limit" in str(producer.health())
        with pytest.raises(SendTimeout):
            await handle


async def test_before_the_first_send_a_name_server_has_to_answer(
    autojump_clock: MockClock,
) -> None:
    async with (
        open_cluster() as cluster,
        cluster.client() as client,
        Producer("shop", client=client) as producer,
    ):
        await cluster.name_servers[0].stop()
        with pytest.raises(ConnectError, match=r"10\.0\.1\.0"):
            await producer.publish_queues("t")
        assert not producer.health()
        assert "the name server 10.0.1.0:9876 did not answer" in str(producer.health())
