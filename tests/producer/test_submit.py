"""Handles: messages without a waiter, with several, with one that is cancelled; and the
limits of what is under way.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import trio

from rocketmq_sdk.errors import (
    ClosedError,
    ConfigurationError,
    MessageIllegalError,
    SendTimeout,
    TooManyRequestsError,
    WrongTypeError,
)
from rocketmq_sdk.model.enums import SendStatus
from rocketmq_sdk.producer.under_way import REMEMBERED_FAILURES
from rocketmq_sdk.protocol.batch_codec import decode_batch
from support.peers import SILENT, open_cluster
from support.producing import Running, message

if TYPE_CHECKING:
    from trio.testing import MockClock


async def test_submitted_messages_need_no_waiter(autojump_clock: MockClock) -> None:
    async with open_cluster() as cluster, Running(cluster) as producer:
        cluster.brokers[0].script = [14, 14]
        handles = [producer.submit(message(b"%d" % number)) for number in range(10)]
        assert not any(handle.done for handle in handles)
        with trio.fail_after(10):
            await producer.flush()
        assert all(handle.done for handle in handles)
        assert producer.in_flight == 0
        results = [await handle for handle in handles]
    assert {result.message_id for result in results} == {handle.message_id for handle in handles}


@pytest.mark.parametrize("auto_batch", [False, True])
@pytest.mark.parametrize("count", [1, 3])
async def test_leaving_tells_of_failures_that_nobody_has_seen(
    count: int, auto_batch: bool, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with (
        open_cluster(brokers=1) as cluster,
        Running(cluster, auto_batch=auto_batch) as producer,
    ):
        cluster.brokers[0].script = [13] * 9
        with pytest.raises(MessageIllegalError):
            await producer.submit(message())
        for _ in range(count):
            producer.submit(message())
    [said] = [record for record in caplog.records if "was closed" in record.getMessage()]
    text = said.getMessage()
    if count == 1:
        assert "1 submitted message has failed and nobody has awaited it; the message" in text
    else:
        assert "3 submitted messages have failed and nobody has awaited them; the first" in text
    assert "to topic 't': answered MESSAGE_ILLEGAL (13)" in text


async def test_leaving_counts_the_messages_of_a_batch(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with open_cluster(brokers=1) as cluster, Running(cluster) as producer:
        cluster.brokers[0].script = [13] * 9
        producer.submit_batch([message()] * 5)
    assert "5 submitted messages have failed" in caplog.text


async def test_leaving_says_when_more_have_failed_than_are_remembered(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    count = REMEMBERED_FAILURES + 5
    async with open_cluster(brokers=1) as cluster, Running(cluster) as producer:
        cluster.brokers[0].script = [13] * count
        for _ in range(count):
            producer.submit(message())
    assert f"at least {REMEMBERED_FAILURES} submitted messages have failed" in caplog.text


async def test_flush_raises_what_nobody_has_awaited(autojump_clock: MockClock) -> None:
    async with open_cluster() as cluster, Running(cluster) as producer:
        for broker in cluster.brokers:
            broker.script = [13] * 2
        handles = [producer.submit(message()) for _ in range(4)]
        with trio.fail_after(10):
            for handle in handles:
                with pytest.raises(MessageIllegalError):
                    await handle
            await producer.flush()
            for broker in cluster.brokers:
                broker.script = [13] * 2
            for _ in range(4):
                producer.submit(message())
            with pytest.raises(MessageIllegalError):
                await producer.flush()
            await producer.flush()


async def test_several_tasks_may_wait_for_one_message(autojump_clock: MockClock) -> None:
    async with open_cluster(brokers=1) as cluster, Running(cluster) as producer:
        handle = producer.submit(message())
        seen: list[str] = []

        async def wait() -> None:
            seen.append((await handle.wait()).message_id)

        with trio.fail_after(10):
            async with trio.open_nursery() as nursery:
                for _ in range(3):
                    nursery.start_soon(wait)
            await wait()
    assert seen == [handle.message_id] * 4


async def test_cancelling_a_waiter_leaves_the_message_under_way(autojump_clock: MockClock) -> None:
    async with open_cluster(brokers=1) as cluster, Running(cluster) as producer:
        broker = cluster.brokers[0]

        async def late() -> Any:
            await trio.sleep(1)
            return broker.answer(broker.sends[-1][2])

        broker.script = [lambda _channel, _request: late]
        handle = producer.submit(message())
        with trio.move_on_after(0.5) as scope:
            await handle
        assert scope.cancelled_caught
        with trio.fail_after(10):
            assert (await handle).status is SendStatus.SEND_OK


async def test_cancelling_send_gives_the_message_up(autojump_clock: MockClock) -> None:
    async with open_cluster(brokers=1) as cluster, Running(cluster) as producer:
        broker = cluster.brokers[0]
        broker.script = [SILENT]
        with trio.move_on_after(0.5) as scope:
            await producer.send(message())
        assert scope.cancelled_caught
        assert producer.in_flight == 0
        with trio.fail_after(10):
            await trio.sleep(5)
            assert len(broker.sends) == 1
            await producer.flush()
            assert (await producer.send(message())).status is SendStatus.SEND_OK


async def test_over_the_limit_submit_raises_and_send_waits(autojump_clock: MockClock) -> None:
    async with open_cluster(brokers=1) as cluster, Running(cluster, max_in_flight=2) as producer:
        broker = cluster.brokers[0]

        async def late() -> Any:
            await trio.sleep(1)
            return broker.answer(broker.sends[-1][2])

        broker.script = [lambda _channel, _request: late] * 2
        await producer.publish_queues("t")
        began = trio.current_time()
        producer.submit(message())
        producer.submit(message())
        with pytest.raises(TooManyRequestsError):
            producer.submit(message())
        with trio.fail_after(10):
            with pytest.raises(SendTimeout) as caught:
                await producer.send(message(), timeout=0.5)
            assert not caught.value.outcome_unknown
            await producer.send(message())
        assert trio.current_time() - began == pytest.approx(1.0)


async def test_the_limit_of_bytes_lets_one_message_through(autojump_clock: MockClock) -> None:
    async with (
        open_cluster(brokers=1) as cluster,
        Running(cluster, max_in_flight_bytes=10) as producer,
    ):
        producer.submit(message(b"x" * 50))
        with pytest.raises(TooManyRequestsError):
            producer.submit(message(b"x"))
        with trio.fail_after(10):
            await producer.send(message(b"x" * 20))


async def test_batches_under_way_together(autojump_clock: MockClock) -> None:
    async with (
        open_cluster() as cluster,
        Running(cluster, max_in_flight=3, retry_times=1) as producer,
    ):
        for broker in cluster.brokers:
            broker.script = [14]
        batches = [[message(b"%d %d" % (one, k)) for k in range(3)] for one in range(3)]
        handles = [producer.submit_batch(batch) for batch in batches]
        assert not any(handle.done for handle in handles)
        assert producer.in_flight == 3
        with pytest.raises(TooManyRequestsError):
            producer.submit_batch(batches[0])
        results = [await handle for handle in handles]
        assert [result.message_id for result in results] == [one.message_id for one in handles]
        sent = {
            tuple(body for _flag, body, _properties in decode_batch(request.body))
            for broker in cluster.brokers
            for _moment, request, _header in broker.sends
        }
        assert sent == {tuple(one.body for one in batch) for batch in batches}
        mixed = [message(sharding_key="a"), message(sharding_key="b")]
        for wrong in ([], [message(delay_level=1)], mixed):
            with pytest.raises(ConfigurationError):
                producer.submit_batch(wrong)
        with pytest.raises(WrongTypeError):
            producer.submit_batch("ab")  # type: ignore[arg-type]
        assert producer.in_flight == 0
    with pytest.raises(ClosedError):
        producer.submit_batch(batches[0])
