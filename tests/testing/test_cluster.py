"""Clusters under test: masters, slaves, a name server, in virtual time."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import trio

from rocketmq_sdk import ConsumeFrom, Message, Producer, PushConsumer
from rocketmq_sdk.errors import ConfigurationError
from rocketmq_sdk.testing import TestCluster, UnhitFaultError, WaitTimeoutError
from support.consuming import Collector, texts

if TYPE_CHECKING:
    from trio.testing import MockClock


async def send(cluster: TestCluster, *bodies: str) -> None:
    async with Producer("shop", namesrv=cluster.party("shop")) as producer:
        for body in bodies:
            await producer.send(Message("orders", body.encode()), timeout=30)


async def test_masters_share_a_topic(autojump_clock: MockClock) -> None:
    got = Collector()
    async with TestCluster(masters=2) as cluster:
        await cluster.seed(topics={"orders": 2})
        async with PushConsumer(
            "billing",
            namesrv=cluster,
            subscriptions={"orders": "*"},
            listener=got,
            consume_from=ConsumeFrom.FIRST_OFFSET,
        ):
            await send(cluster, *map(str, range(8)))
            await cluster.wait.stored("orders", 8)
            await cluster.wait.lag("billing", "orders", within=100)
        assert {len(broker.sent("orders")) for broker in cluster.masters} == {4}
        assert sorted(got.bodies) == list("01234567")
        assert len(cluster.requests("send", topic="orders", group="shop")) == 8
        assert "--- broker-b" in cluster.report()
        for group, topic in (("biling", None), ("billing", "order")):
            with pytest.raises(WaitTimeoutError, match="no members and no offsets"):
                await cluster.wait.lag(group, topic, within=1)
        with pytest.raises(WaitTimeoutError, match="they hold 8"):
            await cluster.wait.stored("orders", 9, within=1)


async def test_sends_go_to_the_master_that_lives(autojump_clock: MockClock) -> None:
    async with TestCluster(masters=2) as cluster:
        await cluster.seed(topics={"orders": 2})
        await cluster.brokers["broker-a"].kill()
        await send(cluster, "1", "2", "3")
        assert len(cluster.sent("orders")) == 3
        await cluster.brokers["broker-a"].start()
        await cluster.brokers["broker-b"].stop()
        await send(cluster, "4")
        assert texts(cluster.brokers["broker-a"].sent("orders")) == ["4"]


async def test_slaves_copy_their_master_and_catch_up_after_a_cut(
    autojump_clock: MockClock,
) -> None:
    async with TestCluster(masters=1, slaves=2) as cluster:
        assert list(cluster.brokers) == ["broker-a", "broker-a-slave-1", "broker-a-slave-2"]
        await cluster.seed(topics={"orders": 1})
        await send(cluster, "1")
        await cluster.wait.copied(within=100)
        cut = cluster.network.cut("broker-a", "broker-a-slave-2")
        await send(cluster, "2")
        with pytest.raises(WaitTimeoutError, match="broker-a-slave-2 have not"):
            await cluster.wait.copied(within=3)
        assert texts(cluster.brokers["broker-a-slave-1"].sent("orders")) == ["1", "2"]
        cut.heal()
        await cluster.wait.copied(within=200)
        assert texts(cluster.brokers["broker-a-slave-2"].sent("orders")) == ["1", "2"]


async def test_faults_of_one_broker_and_of_any(autojump_clock: MockClock) -> None:
    async with TestCluster(masters=2) as cluster:
        await cluster.seed(topics={"orders": 1})
        one = cluster.faults.on("send", broker="broker-b").refuse()
        await send(cluster, "1", "2")
        assert len(cluster.brokers["broker-a"].sent("orders")) == 2
        one.lift()
        any_ = cluster.faults.on("send", times=2).refuse()
        await send(cluster, "3")
        assert any_.hits == 2
        with pytest.raises(ConfigurationError, match="no broker 'broker-c'"):
            cluster.faults.on("send", broker="broker-c")


async def test_a_fault_that_met_nothing_fails_the_test(autojump_clock: MockClock) -> None:
    async def unhit() -> None:
        async with TestCluster() as cluster:
            cluster.faults.on("send").refuse()

    with pytest.raises(UnhitFaultError):
        await unhit()


async def test_a_cluster_has_limits() -> None:
    for masters, slaves in ((0, 0), (27, 0), (1, 27)):
        with pytest.raises(ConfigurationError, match="is not possible"):
            TestCluster(masters, slaves)
    await trio.lowlevel.checkpoint()


async def test_a_master_with_slaves_stops_and_starts(autojump_clock: MockClock) -> None:
    async with TestCluster(masters=1, slaves=1) as cluster:
        await cluster.seed(topics={"orders": 1})
        await send(cluster, "1")
        with trio.fail_after(60):
            await cluster.brokers["broker-a"].restart()
        await send(cluster, "2")
        await cluster.wait.copied(within=100)
        assert texts(cluster.brokers["broker-a-slave-1"].sent("orders")) == ["1", "2"]
        with trio.fail_after(60):
            await cluster.brokers["broker-a"].kill()
            await trio.sleep(40)  # slaves ask a master that is away: nothing is asked over TCP


async def test_a_seed_is_for_all_masters(autojump_clock: MockClock) -> None:
    async with TestCluster(masters=2) as cluster:
        await cluster.seed(
            topics={"orders": 2},
            messages={"orders": [{"body": "1", "queue": 1}, "2"]},
            offsets={"billing": {"orders": [0, 7]}},
        )
        found = {message.body: message for message in cluster.sent("orders")}
        assert set(found) == {b"1", b"2"}
        assert found[b"1"].queue_id == 1
        for broker in cluster.masters:
            assert broker.wait.seen.committed("billing", "orders") == {0: 0, 1: 7}
        with pytest.raises(ConfigurationError, match="'orders' has no queue 2"):
            await cluster.seed(messages={"orders": [{"body": "3", "queue": 2}]})
        with pytest.raises(ConfigurationError, match="1 offsets were given for the 2 queues"):
            await cluster.seed(offsets={"billing": {"orders": [0]}})


async def test_the_lag_is_that_of_all_masters(autojump_clock: MockClock) -> None:
    """One that was started again may not know what a group consumes."""
    async with TestCluster(masters=2) as cluster:
        await cluster.seed(topics={"orders": 1})
        await send(cluster, *"1234")
        first, second = cluster.masters
        held = second.wait.seen.stored("orders")
        assert held
        await first.seed(offsets={"billing": {"orders": first.wait.seen.stored("orders")}})
        for topic in (None, "orders"):
            with pytest.raises(WaitTimeoutError, match=f"but it is {held} behind"):
                await cluster.wait.lag("billing", topic, within=1)
        await second.seed(offsets={"billing": {"orders": held}})
        await cluster.wait.lag("billing")
