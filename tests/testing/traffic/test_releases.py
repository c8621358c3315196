"""Clients at brokers of older releases, as test brokers emulate them."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
import trio

from rocketmq_sdk import (
    Admin,
    Client,
    ConsumeFrom,
    LitePullConsumer,
    Message,
    NotSupportedError,
    Producer,
    PushConsumer,
    SimpleConsumer,
)
from rocketmq_sdk.codes import RequestCode
from rocketmq_sdk.errors import BrokerError, ConfigurationError, broker_error
from rocketmq_sdk.releases import FIRST_SERVED
from rocketmq_sdk.testing import TestBroker, TestCluster
from rocketmq_sdk.testing.traffic.releases import Release
from support.consuming import Collector

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from trio.testing import MockClock

RELEASES = ["4.9.7", "5.1.0", "5.3.3"]
GROUP: dict[str, Any] = {
    "subscriptions": {"orders": "*"},
    "consume_from": ConsumeFrom.FIRST_OFFSET,
}


@asynccontextmanager
async def broker_of(release: str) -> AsyncIterator[TestBroker]:
    async with TestBroker(emulate=release) as broker:
        await broker.seed(messages={"orders": ["1", "2", "3"]})
        with trio.fail_after(300):
            yield broker


def unsupported(broker: TestBroker) -> set[str]:
    """The requests that the broker did not know."""
    return {seen.name for seen in broker.seen if seen.answer == 3}


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize(
    "options", [{}, {"orderly": True}, {"client_rebalance": False}, {"use_heartbeat_v2": True}]
)
async def test_push_consumers_work(
    release: str, options: dict[str, Any], autojump_clock: MockClock
) -> None:
    got = Collector()
    async with (
        broker_of(release) as broker,
        PushConsumer("billing", namesrv=broker, listener=got, **GROUP, **options) as consumer,
        Producer("shop", namesrv=broker) as producer,
    ):
        await broker.wait.until(lambda: len(got.bodies) == 3, "all")
        await trio.sleep(40)  # another heartbeat, another rebalance
        await producer.send(Message("orders", b"4"))
        await broker.wait.until(lambda: len(got.bodies) == 4, "one more")
        assert consumer.health().consuming
        wanted = {"QUERY_ASSIGNMENT"} if options == {"client_rebalance": False} else set()
        if release == "4.9.7":
            assert unsupported(broker) == wanted | {"GET_SUBSCRIPTIONGROUP_CONFIG"}
        else:
            assert unsupported(broker) == set()


@pytest.mark.parametrize("release", RELEASES)
async def test_lite_pull_falls_back_to_the_pull_of_all(
    release: str, autojump_clock: MockClock
) -> None:
    async with (
        broker_of(release) as broker,
        LitePullConsumer("lite", namesrv=broker, **GROUP) as consumer,
    ):
        got: list[bytes] = []
        while len(got) < 3:
            got += [message.body for message in await consumer.poll(5)]
        assert sorted(got) == [b"1", b"2", b"3"]
        assert broker.seen.counts["PULL_MESSAGE"] == 0 or release == "4.9.7"


async def test_acknowledgements_go_one_by_one_before_5_1_3(autojump_clock: MockClock) -> None:
    for release, together in (("5.1.2", False), ("5.1.3", True)):
        async with (
            broker_of(release) as broker,
            SimpleConsumer("simple", namesrv=broker, **GROUP) as consumer,
        ):
            messages = []
            while len(messages) < 3:
                messages += await consumer.receive(3, 30, 5)
            await consumer.batch_ack(messages)
            assert bool(broker.seen.counts["ACK_MESSAGE"]) is not together
            await trio.sleep(60)
            assert await consumer.receive(3, 30, 1) == []


async def test_an_error_says_since_when_brokers_serve_it(autojump_clock: MockClock) -> None:
    async with (
        broker_of("4.9.7") as broker,
        SimpleConsumer("simple", namesrv=broker, **GROUP) as consumer,
        Admin(namesrv=broker) as admin,
    ):
        with pytest.raises(NotSupportedError, match=r"serve POP_MESSAGE since RocketMQ 5\.0\.0"):
            await consumer.receive(3, 30, 1)
        with pytest.raises(NotSupportedError, match=r"AUTH_LIST_USER since RocketMQ 5\.3\.0"):
            await admin.users.list()


@pytest.mark.parametrize(("release", "kept"), [("4.9.7", False), ("5.0.0", True)])
async def test_timers_came_with_5_0(release: str, kept: bool, autojump_clock: MockClock) -> None:
    async with TestBroker(emulate=release) as broker, Producer("shop", namesrv=broker) as producer:
        await producer.send(Message("orders", b"timer", delay=60))
        await producer.send_batch([Message("orders", b"plain"), Message("orders", b"too")])
        await producer.send(Message("orders", b"level", delay_level=5))
        now = {message.body for message in broker.sent("orders")}
        assert now == {b"plain", b"too"} if kept else {b"plain", b"too", b"timer"}
        await broker.wait.settled(within=100)
        assert len(broker.sent("orders")) == 4
        if not kept:  # what is emulated may change
            await broker.emulate("5.1.0")
            await producer.send(Message("orders", b"later", delay=60))
            assert len(broker.sent("orders")) == 4


def test_other_remarks_say_nothing_more() -> None:
    error: BrokerError = broker_error(3, "something else")
    assert str(error).endswith("something else")
    assert "since" not in str(broker_error(3, " request type 310 not supported"))
    assert "since" not in str(broker_error(3))


async def test_the_version_is_in_answers(autojump_clock: MockClock) -> None:
    got = Collector()
    async with (
        TestCluster(masters=1, emulate="5.1.4") as cluster,
        Client(cluster) as client,
        PushConsumer("billing", client=client, listener=got, **GROUP),
    ):
        await cluster.seed(messages={"orders": ["1"]})
        await cluster.wait.lag("billing", "orders", within=100)
        await trio.sleep(40)
        address = cluster.masters[0].own_address
        assert client.brokers.version(address) == 441


def test_releases_count_as_apache_does() -> None:
    for text, ordinal in (("4.9.0", 393), ("4.9.8", 409), ("5.0.0", 413), ("5.4.0", 493)):
        assert Release(text).ordinal == ordinal
        assert str(Release(text)) == text
    assert not Release("5.1.2").serves(RequestCode.BATCH_ACK_MESSAGE)
    assert Release("5.1.3").serves(RequestCode.BATCH_ACK_MESSAGE)
    assert all(Release("5.4.0").serves(code) for code in FIRST_SERVED)


@pytest.mark.parametrize("text", ["4.8.0", "4.10.0", "6.0.0", "5", "new", "5.-1.0", "5.4.1"])
def test_other_releases_are_refused(text: str) -> None:
    with pytest.raises(ConfigurationError, match="cannot be emulated; give one from"):
        TestBroker(emulate=text)
