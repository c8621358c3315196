"""Two brokers, one of which is in trouble: what senders notice of it."""

from __future__ import annotations

import logging
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
import trio

from rocketmq_sdk.broker_embedded.broker import EmbeddedBroker
from rocketmq_sdk.codes import RequestCode, ResponseCode
from rocketmq_sdk.errors import (
    BusyError,
    ConnectError,
    NotPermittedError,
    RocketMQError,
    SendTimeout,
    TopicNotFoundError,
)
from rocketmq_sdk.producer.producer import Producer
from rocketmq_sdk.protocol.command import Command
from support.peers import SILENT, Cluster, open_cluster
from support.producing import Running, message

if TYPE_CHECKING:
    from trio.testing import MockClock


def hang(cluster: Cluster, number: int) -> None:
    """A broker takes what comes and answers nothing."""
    dispatcher = cluster.brokers[number].dispatcher
    for code in (RequestCode.SEND_MESSAGE_V2, RequestCode.GET_MAX_OFFSET, RequestCode.HEART_BEAT):
        dispatcher.replace(code, lambda *_: None)


async def send_one_after_another(
    producer: Producer, count: int, pause: float = 0.0, **options: Any
) -> tuple[Counter[str], list[float]]:
    """The outcomes and the seconds that each took."""
    outcomes: Counter[str] = Counter()
    times: list[float] = []
    for _ in range(count):
        began = trio.current_time()
        try:
            outcomes[(await producer.send(message(), **options)).queue.broker_name] += 1
        except RocketMQError as error:
            outcomes[type(error).__name__] += 1
        times.append(trio.current_time() - began)
        await trio.sleep(pause)
    return outcomes, sorted(times)


@pytest.mark.parametrize("trouble", ["hung", "unreachable", "killed"])
@pytest.mark.parametrize("known_before", [True, False])
async def test_no_send_fails_while_another_broker_is_well(
    autojump_clock: MockClock, trouble: str, known_before: bool
) -> None:
    async with open_cluster() as cluster, Running(cluster) as producer:
        if known_before:
            assert set((await send_one_after_another(producer, 8))[0]) == {"b0", "b1"}
        broken = cluster.brokers[0]
        if trouble == "hung":
            hang(cluster, 0)
        else:
            await broken.stop()
            if trouble == "unreachable":
                cluster.holes.add(broken.address)
        outcomes, times = await send_one_after_another(producer, 60, 0.1)
        assert outcomes == {"b1": 60}
        assert times[-1] <= 1.51
        assert times[-2] == 0.0


@pytest.mark.parametrize("trouble", ["hung", "unreachable"])
async def test_many_at_once_fail_over_together(autojump_clock: MockClock, trouble: str) -> None:
    async with open_cluster() as cluster, Running(cluster) as producer:
        await send_one_after_another(producer, 8)
        if trouble == "hung":
            hang(cluster, 0)
        else:
            await cluster.brokers[0].stop()
            cluster.holes.add(cluster.brokers[0].address)
        handles = [producer.submit(message()) for _ in range(500)]
        began = trio.current_time()
        for handle in handles:
            assert (await handle).queue.broker_name == "b1"
        assert trio.current_time() - began <= 1.51


@pytest.mark.parametrize("detector", [None, False])
async def test_a_broker_that_answers_again_is_used_again(
    autojump_clock: MockClock, detector: bool | None
) -> None:
    async with open_cluster() as cluster, Running(cluster, detector=detector) as producer:
        await send_one_after_another(producer, 8)
        broken = cluster.brokers[0]
        await broken.stop()
        assert set((await send_one_after_another(producer, 8))[0]) == {"b1"}
        await broken.start()
        broken.dispatcher.replace(RequestCode.GET_MAX_OFFSET, lambda *_: Command.response(1))
        await trio.sleep(3 if detector is None else 11)
        assert set((await send_one_after_another(producer, 8))[0]) == {"b0", "b1"}


async def test_when_all_are_in_trouble_all_are_tried(autojump_clock: MockClock) -> None:
    async with open_cluster() as cluster, Running(cluster) as producer:
        await send_one_after_another(producer, 4)
        for number in range(2):
            hang(cluster, number)
        with pytest.raises(SendTimeout):
            await producer.send(message())
        for broker in cluster.brokers:
            broker.dispatcher.replace(RequestCode.SEND_MESSAGE_V2, broker._send)
        assert sum((await send_one_after_another(producer, 8))[0].values()) == 8
        assert (await send_one_after_another(producer, 8))[1][-1] == 0.0


async def test_a_short_timeout_sets_no_broker_apart(autojump_clock: MockClock) -> None:
    async with open_cluster() as cluster, Running(cluster) as producer:
        await send_one_after_another(producer, 4)
        for broker in cluster.brokers:
            broker.script = [SILENT]
        await send_one_after_another(producer, 2, timeout=0.01)
        assert not producer._strategy.active


async def test_the_limit_of_an_attempt_includes_connecting(autojump_clock: MockClock) -> None:
    async with (
        open_cluster() as cluster,
        Running(
            cluster, send_timeout_per_attempt=0.5, send_timeout=5, fault_profile=None
        ) as producer,
    ):
        await cluster.brokers[0].stop()
        cluster.holes.add(cluster.brokers[0].address)
        outcomes, times = await send_one_after_another(producer, 20)
        assert outcomes == {"b1": 20}
        assert times[-1] == pytest.approx(0.5)


async def test_a_chosen_queue_has_the_whole_time(autojump_clock: MockClock) -> None:
    async with open_cluster() as cluster, Running(cluster) as producer:
        await producer.publish_queues("t")
        for broker in cluster.brokers:
            broker.script = [SILENT]
        began = trio.current_time()
        with pytest.raises(SendTimeout):
            await producer.send(message(), key="k")
        assert trio.current_time() - began == pytest.approx(3)


async def test_a_refusal_of_permission_is_tried_elsewhere_and_is_final(
    autojump_clock: MockClock,
) -> None:
    async with open_cluster() as cluster, Running(cluster) as producer:
        await producer.publish_queues("t")
        for broker in cluster.brokers:
            broker.script = [ResponseCode.NO_PERMISSION]
        # one for each broker, then a third attempt
        result = await producer.send(message())
        assert result.queue.broker_name in ("b0", "b1")
        for broker in cluster.brokers:
            broker.script = [ResponseCode.NO_PERMISSION] * 3
        with pytest.raises(NotPermittedError) as caught:
            await producer.send(message())
        assert not caught.value.retryable


async def test_trying_until_the_deadline(autojump_clock: MockClock) -> None:
    async with (
        open_cluster(brokers=1) as cluster,
        Running(cluster, retry_until_deadline=True, send_timeout=30) as producer,
        trio.open_nursery() as nursery,
    ):
        broker = cluster.brokers[0]
        await producer.send(message())
        await broker.stop()

        async def come_back() -> None:
            await trio.sleep(10)
            await broker.start()

        nursery.start_soon(come_back)
        async with trio.open_nursery() as sends:
            for aim in ({}, {"key": "k"}):
                sends.start_soon(lambda aim=aim: producer.send(message(), **aim))
        assert trio.current_time() == pytest.approx(10.5, abs=1)
        assert producer.in_flight == 0


async def test_trying_until_the_deadline_ends_with_it(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "rocketmq_sdk.producer")
    async with (
        open_cluster(brokers=1) as cluster,
        Running(cluster, retry_until_deadline=True) as producer,
    ):
        await producer.publish_queues("t")
        cluster.brokers[0].script = [ResponseCode.SYSTEM_BUSY] * 99
        began = trio.current_time()
        with pytest.raises(SendTimeout) as caught:
            await producer.send(message())
        assert trio.current_time() - began == pytest.approx(3, abs=0.1)
        reason = caught.value.__cause__
        assert isinstance(reason, BusyError)
        assert str(caught.value).endswith(f"it is not stored; its last attempt: {reason}")
        assert reason.__cause__ is None
        assert 4 <= len(cluster.brokers[0].sends) <= 20
    lines = [record for record in caplog.records if "attempt" in record.getMessage()]
    assert len(lines) == len(cluster.brokers[0].sends)
    assert all(record.exc_info is None for record in lines)
    assert "\n" not in lines[0].getMessage()


@pytest.mark.parametrize("way", ["send", "submit", "send_batch"])
async def test_trying_until_the_deadline_tells_of_a_missing_route(
    way: str, autojump_clock: MockClock
) -> None:
    async with (
        EmbeddedBroker(auto_create_topic_enable="false") as broker,
        Producer("pg", namesrv=broker, retry_until_deadline=True, send_timeout=1) as producer,
    ):
        given: Any = [message()] if way == "send_batch" else message()
        with pytest.raises(SendTimeout) as caught:
            await getattr(producer, way)(given)
    reason = caught.value.__cause__
    assert isinstance(reason, TopicNotFoundError)
    assert reason.__cause__ is None
    assert str(caught.value).endswith(f"it is not stored; its last attempt: {reason}")


async def test_trying_until_the_deadline_does_not_spin_on_a_refusal(
    autojump_clock: MockClock,
) -> None:
    async with (
        open_cluster(brokers=1) as cluster,
        Running(cluster, retry_until_deadline=True) as producer,
    ):
        await producer.publish_queues("t")
        cluster.brokers[0].script = [ResponseCode.NO_PERMISSION] * 99
        with pytest.raises(NotPermittedError):
            await producer.send(message())
        assert len(cluster.brokers[0].sends) == 3


async def test_a_topic_that_appears_in_time_is_waited_for(autojump_clock: MockClock) -> None:
    async with (
        open_cluster(brokers=1) as cluster,
        Running(cluster, retry_until_deadline=True, send_timeout=20) as producer,
        trio.open_nursery() as nursery,
    ):
        route = cluster.routes.pop("t")

        async def appear() -> None:
            await trio.sleep(5)
            cluster.routes["t"] = route

        nursery.start_soon(appear)
        await producer.send(message())
        assert trio.current_time() == pytest.approx(6, abs=1.1)


@pytest.mark.parametrize("reachable", [True, False])
async def test_one_way_messages_avoid_a_broker_that_is_away(
    autojump_clock: MockClock, reachable: bool
) -> None:
    failed = 0
    async with open_cluster() as cluster, Running(cluster) as producer:
        await producer.warm_up("t")
        await cluster.brokers[0].stop()
        if not reachable:
            cluster.holes.add(cluster.brokers[0].address)
        for _ in range(60):
            try:
                await producer.send_oneway(message())
            except (ConnectError, SendTimeout):
                failed += 1
            await trio.sleep(0.05)
    assert failed <= 3
