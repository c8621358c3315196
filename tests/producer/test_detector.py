"""Fault avoidance at work, and the detector that ends it."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest
import trio

from rocketmq_sdk.codes import RequestCode
from rocketmq_sdk.model.message import Message
from rocketmq_sdk.producer.producer import Producer
from rocketmq_sdk.protocol.command import Command
from rocketmq_sdk.testing.interception import intercept, unanswered
from support.peers import SILENT, Cluster, open_cluster

if TYPE_CHECKING:
    from trio.testing import MockClock


async def send_many(producer: Producer, count: int) -> set[str]:
    return {(await producer.send(Message("t", b"x"))).queue.broker_name for _ in range(count)}


def answering_offsets(cluster: Cluster) -> list[str]:
    """Let the brokers answer probes; gives the names of those that were asked,
    growing.
    """
    asked: list[str] = []
    for broker in cluster.brokers:

        def answer(*_: Any, name: str = broker.name) -> Command:
            asked.append(name)
            return Command(0, flag=1, ext_fields={"offset": "1"})

        broker.dispatcher.replace(RequestCode.GET_MAX_OFFSET, answer)
    return asked


@pytest.mark.parametrize(("profile", "away"), [("today", 10), ("classic", 600)])
async def test_a_broker_that_fails_is_left_alone_for_a_time(
    profile: Any, away: float, autojump_clock: MockClock
) -> None:
    async with (
        open_cluster() as cluster,
        cluster.client() as client,
        Producer("pg", client=client, fault_profile=profile) as producer,
    ):
        with trio.fail_after(2000):
            assert await send_many(producer, 8) == {"b0", "b1"}
            # code 13 is not retried: the producer only learns from it
            cluster.brokers[0].script = [14] * 3
            await send_many(producer, 8)
            cluster.brokers[0].script = []
            assert await send_many(producer, 8) == {"b1"}
            await trio.sleep(away + 1)
            assert await send_many(producer, 8) == {"b0", "b1"}


async def test_without_a_profile_nothing_is_left_alone(autojump_clock: MockClock) -> None:
    async with (
        open_cluster() as cluster,
        cluster.client() as client,
        Producer("pg", client=client) as producer,
    ):
        with trio.fail_after(100):
            cluster.brokers[0].script = [14] * 3
            await send_many(producer, 8)
            assert await send_many(producer, 8) == {"b0", "b1"}


async def test_slow_answers_count(autojump_clock: MockClock) -> None:
    async with (
        open_cluster() as cluster,
        cluster.client() as client,
        Producer("pg", client=client, fault_profile="today") as producer,
    ):
        slow = cluster.brokers[0]

        async def late() -> Any:
            await trio.sleep(0.6)
            return slow.answer(slow.sends[-1][2])

        with trio.fail_after(100):
            slow.script = [lambda _channel, _request: late]
            assert await send_many(producer, 8) == {"b0", "b1"}
            count = len(slow.sends)
            assert await send_many(producer, 8) == {"b1"}
            await trio.sleep(2)
            assert await send_many(producer, 8) == {"b0", "b1"}
        assert len(slow.sends) > count


async def test_the_detector_probes_until_the_broker_answers(autojump_clock: MockClock) -> None:
    async with (
        open_cluster() as cluster,
        cluster.client() as client,
        Producer(
            "pg", client=client, fault_profile="today", detector=True, send_timeout_per_attempt=0.2
        ) as producer,
    ):
        asked = answering_offsets(cluster)
        broker = cluster.brokers[0]
        probes = intercept(broker.dispatcher, RequestCode.GET_MAX_OFFSET, by=unanswered)
        tolerance = producer._strategy.tolerance
        with trio.fail_after(200):
            broker.script = [SILENT] * 2
            await send_many(producer, 8)
            assert not tolerance.is_reachable("b0")
            await trio.sleep(10)
            assert not tolerance.is_reachable("b0")
            probes.restore()
            await trio.sleep(10)
            assert tolerance.is_reachable("b0")
        assert "b0" in asked


async def test_the_detector_forgets_brokers_without_an_address(autojump_clock: MockClock) -> None:
    async with (
        open_cluster() as cluster,
        cluster.client() as client,
        Producer("pg", client=client, fault_profile="today", detector=True) as producer,
    ):
        answering_offsets(cluster)
        tolerance = producer._strategy.tolerance
        tolerance.update_fault_item("gone", 1, 0, reachable=False, now=0)
        with trio.fail_after(100):
            await producer.send(Message("t", b"x"))
            await trio.sleep(10)
        assert "gone" not in {item.name for item in tolerance.items}


@pytest.mark.parametrize("profile", ["unanswered", "today"])
@pytest.mark.parametrize("interval", [0.5, 7.0])
async def test_a_given_interval_and_time_of_probes_hold(
    profile: Any, interval: float, autojump_clock: MockClock
) -> None:
    moments: list[float] = []
    async with (
        open_cluster() as cluster,
        cluster.client() as client,
        Producer(
            "pg",
            client=client,
            fault_profile=profile,
            detector=True,
            detect_interval=interval,
            detect_timeout=0.1,
            send_timeout_per_attempt=0.3,
        ) as producer,
    ):
        broker = cluster.brokers[0]

        def silent(*_: Any) -> Any:
            moments.append(trio.current_time())
            return trio.sleep_forever

        broker.dispatcher.replace(RequestCode.GET_MAX_OFFSET, silent)
        with trio.fail_after(200):
            broker.script = [SILENT] * 2
            await send_many(producer, 8)
            await trio.sleep(30)
    assert len(moments) > 2
    gaps = [later - earlier for earlier, later in pairwise(moments)]
    assert interval <= min(gaps)
    assert max(gaps) <= interval + 3.2  # it looks every three seconds
    if interval < 1:
        assert max(gaps) < 1
