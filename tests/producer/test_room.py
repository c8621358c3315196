"""Room for messages under way: senders that wait for it have it in turn, and none is
lost.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import pytest
import trio

from rocketmq_sdk.errors import ConfigurationError, SendTimeout, TooManyRequestsError
from support.peers import SILENT, open_cluster
from support.producing import Running, message, slow

if TYPE_CHECKING:
    from trio.testing import MockClock


@pytest.mark.parametrize("auto_batch", [False, True])
async def test_to_wait_for_room_counts_as_time_of_the_message(
    autojump_clock: MockClock, auto_batch: bool
) -> None:
    async with (
        open_cluster(brokers=1) as cluster,
        Running(cluster, max_in_flight=1, auto_batch=auto_batch) as producer,
    ):
        await producer.publish_queues("t")
        cluster.brokers[0].script = [SILENT] * 9
        first = producer.submit(message())
        await trio.sleep(2)
        began = trio.current_time()
        with pytest.raises(SendTimeout) as caught:
            await producer.send(message())  # it has room after one second, and is not answered
        assert first.done
        assert trio.current_time() - began == pytest.approx(3, abs=0.2)
        assert caught.value.outcome_unknown
        with trio.fail_after(10):
            while producer.in_flight:
                await trio.sleep(0.1)


async def test_what_is_in_a_batch_that_has_left_may_be_stored_when_its_time_is_up(
    autojump_clock: MockClock,
) -> None:
    async with (
        open_cluster(brokers=1) as cluster,
        Running(cluster, max_in_flight=1, auto_batch=True, retry_until_deadline=True) as producer,
    ):
        await producer.publish_queues("t")
        broker = cluster.brokers[0]
        broker.script = [SILENT]
        producer.submit(message())
        await trio.sleep(2)
        await broker.stop()
        with pytest.raises(SendTimeout) as caught:
            await producer.send(message(b"late"))  # it has room after one second
        assert caught.value.outcome_unknown
        # Its batch rests between two attempts, and whether it leaves once more at the
        # moment in which its time is up is open.
        await broker.start()
        with pytest.raises(SendTimeout):
            await producer.flush()  # the first one
        assert producer.in_flight == 0


async def test_a_woken_sender_that_fails_leaves_its_room_to_the_next(
    autojump_clock: MockClock,
) -> None:
    outcomes: list[str] = []
    async with (
        open_cluster(brokers=1) as cluster,
        Running(cluster, max_in_flight=1) as producer,
        trio.open_nursery() as nursery,
    ):
        await producer.publish_queues("t")
        await producer.send(message())
        cluster.brokers[0].script = [slow(cluster.brokers[0], 0.1)]
        first = producer.submit(message())

        async def refused() -> None:
            with pytest.raises(ConfigurationError):
                await producer.send(message(b""))
            outcomes.append("refused")

        async def good() -> None:
            await producer.send(message())
            outcomes.append("good")

        nursery.start_soon(refused)
        await trio.sleep(0.01)
        nursery.start_soon(good)
        await first
        await trio.sleep(0.01)
        assert outcomes == ["refused", "good"]
        assert producer.in_flight == 0


async def test_a_big_message_gives_way_to_all_that_fit(autojump_clock: MockClock) -> None:
    async with (
        open_cluster(brokers=1) as cluster,
        Running(cluster, max_in_flight_bytes=1_000_000, compress_over=10**9) as producer,
    ):
        broker = cluster.brokers[0]
        await producer.send(message())
        broker.script = [slow(broker, 0.02) for _ in range(301)]
        producer.submit(message(b"x" * 1_000_000))
        with pytest.raises(TooManyRequestsError):
            producer.submit(message())
        began = trio.current_time()
        async with trio.open_nursery() as nursery:
            for _ in range(300):
                nursery.start_soon(producer.send, message(b"s" * 100))
        assert trio.current_time() - began == pytest.approx(0.04, abs=0.01)
        assert producer.in_flight == 0


async def test_nobody_overtakes_a_sender_that_waits(autojump_clock: MockClock) -> None:
    order: list[int] = []
    async with (
        open_cluster(brokers=1) as cluster,
        Running(cluster, max_in_flight_bytes=1000, compress_over=10**9) as producer,
        trio.open_nursery() as nursery,
    ):
        broker = cluster.brokers[0]
        await producer.send(message())
        broker.script = [slow(broker, 0.1) for _ in range(5)]
        producer.submit(message(b"x" * 600))

        async def send(size: int) -> None:
            await producer.send(message(b"y" * size))
            order.append(size)

        nursery.start_soon(send, 950)  # must wait for the first to end
        await trio.sleep(0.01)
        nursery.start_soon(send, 100)  # would fit beside the first
        await trio.sleep(0.01)
        with pytest.raises(TooManyRequestsError):
            producer.submit(message(b"z" * 100))
        await trio.sleep(0.3)
        assert len(broker.sends) == 4
        assert [len(request.body) for _, request, _ in broker.sends][1:] == [600, 950, 100]


@pytest.mark.parametrize("moment", ["waiting", "woken"])
async def test_a_cancelled_sender_leaves_its_place(autojump_clock: MockClock, moment: str) -> None:
    async with (
        open_cluster(brokers=1) as cluster,
        Running(cluster, max_in_flight=1) as producer,
        trio.open_nursery() as nursery,
    ):
        broker = cluster.brokers[0]
        await producer.send(message())
        broker.script = [slow(broker, 0.1), slow(broker, 0.1)]
        scope = trio.CancelScope()
        first = producer.submit(message())

        async def cancelled() -> None:
            with scope:
                await producer.send(message())
            assert scope.cancelled_caught

        nursery.start_soon(cancelled)
        await trio.sleep(0.01)
        if moment == "woken":
            await first.settled()
        scope.cancel()
        await producer.send(message())
        await producer.flush()
        assert producer.in_flight == 0
        assert producer._under_way.bytes == 0


async def test_waiting_for_room_ends_with_the_time_of_the_send(autojump_clock: MockClock) -> None:
    async with (
        open_cluster(brokers=1) as cluster,
        Running(cluster, max_in_flight=1) as producer,
    ):
        cluster.brokers[0].script = [SILENT]
        await producer.publish_queues("t")
        handle = producer.submit(message(), timeout=20)
        with pytest.raises(SendTimeout) as caught:
            await producer.send(message())
        assert not caught.value.outcome_unknown
        with pytest.raises(SendTimeout):
            await handle
        await producer.send(message())
        assert producer.in_flight == 0


async def test_messages_that_gather_count_as_under_way(autojump_clock: MockClock) -> None:
    async with (
        open_cluster(brokers=1) as cluster,
        Running(cluster, auto_batch=True, max_in_flight=10) as producer,
    ):
        handles = [producer.submit(message()) for _ in range(10)]
        assert producer.in_flight == 10
        with pytest.raises(TooManyRequestsError):
            producer.submit(message())
        await producer.flush()
        assert all(handle.done for handle in handles)
        assert producer.in_flight == 0


async def test_bodies_that_are_compressed_in_threads_keep_within_the_limits(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def in_thread(work: Any, *arguments: Any) -> Any:
        await trio.sleep(0.1)
        return work(*arguments)

    monkeypatch.setattr(trio.to_thread, "run_sync", in_thread)
    size, most = 300_000, 0
    async with (
        open_cluster(brokers=1) as cluster,
        Running(cluster, max_in_flight_bytes=4 * size + 99) as producer,
    ):
        await producer.publish_queues("t")
        cluster.brokers[0].script = [slow(cluster.brokers[0], 0.1)] * 20
        async with trio.open_nursery() as nursery:
            for _ in range(20):
                nursery.start_soon(producer.send, message(random.randbytes(size)))
            while len(nursery.child_tasks) > 0:
                await trio.sleep(0.01)
                most = max(most, producer.in_flight)
        assert most == 4
        assert producer.in_flight == producer._under_way.bytes == 0
