"""The send loop against scripted brokers, in virtual time: which outcome leads to which
next step.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import trio

from rocketmq_sdk.errors import BrokerError, MessageIllegalError
from rocketmq_sdk.model.enums import SendStatus
from rocketmq_sdk.model.properties import decode_properties
from rocketmq_sdk.model.queue import MessageQueue
from support.peers import open_cluster
from support.producing import Running, message

if TYPE_CHECKING:
    from trio.testing import MockClock

RETRYABLE = (1, 2, 14, 16, 17, 204, 205, 215, 1500)


async def test_a_message_carries_what_apaches_client_sends(autojump_clock: MockClock) -> None:
    async with open_cluster(brokers=1) as cluster, Running(cluster) as producer:
        with trio.fail_after(10):
            result = await producer.send(
                message(tags="a", keys=["k1", "k2"], properties={"p": "v"}, flag=7)
            )
        _, request, header = cluster.brokers[0].sends[0]
    assert request.code == 310
    assert request.body == b"body"
    assert (
        header.producer_group,
        header.topic,
        header.default_topic,
        header.default_topic_queue_nums,
    ) == ("pg", "t", "TBW102", 4)
    assert (
        header.sys_flag,
        header.flag,
        header.reconsume_times,
        header.unit_mode,
        header.batch,
        header.bname,
    ) == (0, 7, 0, False, False, "b0")
    properties = decode_properties(header.properties or "")
    assert properties == {
        "UNIQ_KEY": result.message_id,
        "p": "v",
        "KEYS": "k1 k2",
        "WAIT": "true",
        "TAGS": "a",
    }
    assert result.status is SendStatus.SEND_OK
    assert result.queue == MessageQueue("t", "b0", header.queue_id)
    assert result.queue_offset == 0
    assert result.region_id == "DefaultRegion"
    assert result.trace_on


@pytest.mark.parametrize("code", RETRYABLE)
async def test_codes_worth_a_retry_go_to_the_other_broker_with_the_same_id(
    code: int, autojump_clock: MockClock
) -> None:
    async with open_cluster() as cluster, Running(cluster) as producer:
        first, second = cluster.brokers
        first.script = [code] * 3
        second.script = [0]
        with trio.fail_after(10):
            while not first.sends:
                result = await producer.send(message())
        ids = {
            decode_properties(header.properties or "")["UNIQ_KEY"]
            for _, _, header in (first.sends[-1], second.sends[-1])
        }
    assert result.queue.broker_name == "b1"
    assert ids == {result.message_id}


async def test_three_attempts_alternate_between_brokers_and_end_with_the_last_error(
    autojump_clock: MockClock,
) -> None:
    async with open_cluster() as cluster, Running(cluster) as producer:
        for broker in cluster.brokers:
            broker.script = [14] * 9
        with trio.fail_after(10), pytest.raises(BrokerError) as caught:
            await producer.send(message())
        asked = sorted(len(broker.sends) for broker in cluster.brokers)
    assert caught.value.code == 14
    assert caught.value.retryable
    assert not caught.value.outcome_unknown
    assert asked == [1, 2]


async def test_other_codes_are_not_retried(autojump_clock: MockClock) -> None:
    async with open_cluster() as cluster, Running(cluster) as producer:
        for broker in cluster.brokers:
            broker.script = [13] * 3
        with trio.fail_after(10), pytest.raises(MessageIllegalError) as caught:
            await producer.send(message())
        assert sum(len(broker.sends) for broker in cluster.brokers) == 1
    assert caught.value.topic == "t"
    assert caught.value.address in {broker.address for broker in cluster.brokers}


async def test_own_retry_codes(autojump_clock: MockClock) -> None:
    async with (
        open_cluster() as cluster,
        Running(cluster, retry_response_codes=[13], retry_times=1) as producer,
    ):
        for broker in cluster.brokers:
            broker.script = [13]
        with trio.fail_after(10), pytest.raises(MessageIllegalError):
            await producer.send(message())
        assert [len(broker.sends) for broker in cluster.brokers] == [1, 1]


@pytest.mark.parametrize(
    ("code", "status"),
    [(10, "FLUSH_DISK_TIMEOUT"), (11, "SLAVE_NOT_AVAILABLE"), (12, "FLUSH_SLAVE_TIMEOUT")],
)
async def test_a_status_that_is_not_ok_is_returned(
    code: int, status: str, autojump_clock: MockClock
) -> None:
    async with open_cluster() as cluster, Running(cluster) as producer:
        for broker in cluster.brokers:
            broker.script = [code]
        with trio.fail_after(10):
            result = await producer.send(message())
        assert sum(len(broker.sends) for broker in cluster.brokers) == 1
    assert result.status is SendStatus[status]


async def test_another_broker_when_not_store_ok(autojump_clock: MockClock) -> None:
    async with (
        open_cluster() as cluster,
        Running(cluster, retry_another_broker_when_not_store_ok=True) as producer,
    ):
        for broker in cluster.brokers:
            broker.script = [12]
        with trio.fail_after(10):
            result = await producer.send(message())
        assert result.status is SendStatus.SEND_OK
        assert sorted(len(broker.sends) for broker in cluster.brokers) == [1, 2]


async def test_an_earlier_stored_result_wins_over_a_later_refusal(
    autojump_clock: MockClock,
) -> None:
    async with (
        open_cluster() as cluster,
        Running(cluster, retry_another_broker_when_not_store_ok=True, retry_times=1) as producer,
    ):
        steps = [12, 13]
        for broker in cluster.brokers:
            broker.script = [
                lambda _channel, request, broker=broker: broker.answer(
                    broker.sends[-1][2], steps.pop(0)
                )
            ] * 2
        with trio.fail_after(10):
            result = await producer.send(message())
    assert result.status is SendStatus.FLUSH_SLAVE_TIMEOUT
    assert steps == []


async def test_order_is_kept_over_a_missing_route_and_connection(autojump_clock: MockClock) -> None:
    async with open_cluster(brokers=1, queues=1) as cluster, Running(cluster) as producer:
        for number in range(20):
            producer.submit(message(b"%d" % number))
            if number % 3 == 0:
                await trio.lowlevel.checkpoint()
        with trio.fail_after(10):
            await producer.flush()
        assert [int(request.body) for _, request, _ in cluster.brokers[0].sends] == list(range(20))
