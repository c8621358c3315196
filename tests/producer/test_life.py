"""How a producer starts and ends: gracefully, in a hurry, twice."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import trio

from rocketmq_sdk.errors import ClosedError, ConfigurationError
from rocketmq_sdk.producer.producer import Producer
from support.peers import SILENT, Cluster, open_cluster
from support.producing import Running, message

if TYPE_CHECKING:
    from trio.testing import MockClock


async def test_leaving_waits_for_messages_under_way(autojump_clock: MockClock) -> None:
    async with open_cluster() as cluster:
        async with Running(cluster) as producer:
            handles = [producer.submit(message()) for _ in range(20)]
        assert all(handle.result is not None for handle in handles)
        assert {
            fields.get("producerGroup")
            for broker in cluster.brokers
            for fields in broker.unregistered
        } == {"pg"}
        with pytest.raises(ClosedError):
            producer.submit(message())
        with pytest.raises(ClosedError):
            await producer.send(message())


async def test_leaving_by_an_error_is_quick_and_tells_what_is_unknown(
    autojump_clock: MockClock,
) -> None:
    handles: list[Any] = []

    async def body(cluster: Cluster) -> None:
        async with Running(cluster) as producer:
            handles.append(producer.submit(message(), timeout=100))
            await trio.sleep(1)
            raise ZeroDivisionError

    async with open_cluster(brokers=1) as cluster:
        cluster.brokers[0].script = [SILENT]
        began = trio.current_time()
        with pytest.raises(ZeroDivisionError):
            await body(cluster)
        assert trio.current_time() - began <= 3.0
        with pytest.raises(ClosedError) as caught:
            await handles[0]
    assert caught.value.outcome_unknown


async def test_closing_wakes_senders_that_wait_for_room_or_an_answer(
    autojump_clock: MockClock,
) -> None:
    errors: list[Exception] = []

    async def sender(producer: Producer) -> None:
        try:
            await producer.send(message(), timeout=100)
        except ClosedError as error:
            errors.append(error)

    async with open_cluster(brokers=1) as cluster, trio.open_nursery() as nursery:
        cluster.brokers[0].script = [SILENT] * 3
        async with Running(cluster, max_in_flight=1) as producer:
            for _ in range(3):
                nursery.start_soon(sender, producer)
            await trio.sleep(1)
        with trio.fail_after(5):
            while len(errors) < 3:
                await trio.sleep(0.01)
        assert sorted(error.outcome_unknown for error in errors) == [False, False, True]  # type: ignore[attr-defined]


async def test_leaving_normally_is_bounded(autojump_clock: MockClock) -> None:
    async with open_cluster(brokers=1) as cluster:
        cluster.brokers[0].script = [SILENT]
        async with Running(cluster) as producer:
            handle = producer.submit(message(), timeout=100)
            await trio.sleep(1)
            began = trio.current_time()
        assert 9.0 <= trio.current_time() - began <= 13.0
        with pytest.raises(ClosedError):
            await handle


async def test_a_producer_that_is_not_open(autojump_clock: MockClock) -> None:
    producer = Producer("pg", namesrv="10.0.1.0:9876", client_ip="10.0.9.9")
    with pytest.raises(ClosedError):
        producer.submit(message())
    with pytest.raises(ClosedError):
        await producer.send(message())


async def test_one_group_once_for_each_client(autojump_clock: MockClock) -> None:
    async with open_cluster() as cluster, cluster.client() as client, Producer("pg", client=client):
        with pytest.raises(ConfigurationError, match="already"):
            await Producer("pg", client=client).__aenter__()
        async with Producer("other", client=client):
            pass
