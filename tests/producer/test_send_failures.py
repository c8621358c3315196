"""Brokers and name servers that do not answer, are cut off, are gone or move, in
virtual time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import trio

from rocketmq_sdk.errors import (
    BrokerError,
    ClosedError,
    ConnectError,
    FieldError,
    LocalProtocolError,
    RemoteProtocolError,
    RequestTimeoutError,
    RocketMQError,
    RouteError,
    SendTimeout,
    TooManyRequestsError,
    broker_error,
)
from rocketmq_sdk.model.enums import SendStatus
from rocketmq_sdk.producer.outcome import final_error
from rocketmq_sdk.protocol.command import Command
from rocketmq_sdk.remoting.stream import StreamChannel
from support.peers import SILENT, open_cluster
from support.producing import Running, message

if TYPE_CHECKING:
    from trio.testing import MockClock

    from rocketmq_sdk.remoting.channel import PendingCall


async def test_no_answer_uses_up_the_budget(autojump_clock: MockClock) -> None:
    async with open_cluster() as cluster, Running(cluster) as producer:
        for broker in cluster.brokers:
            broker.script = [SILENT] * 3
        await producer.publish_queues("t")
        began = trio.current_time()
        with trio.fail_after(10), pytest.raises(SendTimeout) as caught:
            await producer.send(message())
        assert trio.current_time() - began == pytest.approx(3.0)
        assert [len(broker.sends) for broker in cluster.brokers] == [1, 1]
    assert caught.value.outcome_unknown


async def test_the_only_broker_has_the_whole_budget(autojump_clock: MockClock) -> None:
    async with open_cluster(brokers=1) as cluster, Running(cluster) as producer:
        cluster.brokers[0].script = [SILENT] * 3
        await producer.publish_queues("t")
        with trio.fail_after(10), pytest.raises(SendTimeout):
            await producer.send(message())
        assert len(cluster.brokers[0].sends) == 1


async def test_a_limit_for_each_attempt_leaves_time_for_others(autojump_clock: MockClock) -> None:
    async with (
        open_cluster() as cluster,
        Running(cluster, send_timeout_per_attempt=0.5) as producer,
    ):
        await producer.publish_queues("t")
        for broker in cluster.brokers:
            broker.script = [SILENT]
        began = trio.current_time()
        with trio.fail_after(10):
            result = await producer.send(message())
        assert trio.current_time() - began == pytest.approx(1.0)
    assert result.status is SendStatus.SEND_OK


async def test_the_budget_is_shared_by_all_attempts(autojump_clock: MockClock) -> None:
    async with open_cluster() as cluster, Running(cluster, send_timeout_per_attempt=2) as producer:
        await producer.publish_queues("t")
        for broker in cluster.brokers:
            broker.script = [SILENT] * 3
        began = trio.current_time()
        with trio.fail_after(10), pytest.raises(SendTimeout) as caught:
            await producer.send(message(), timeout=3)
        assert trio.current_time() - began == pytest.approx(3.0)
        assert sum(len(broker.sends) for broker in cluster.brokers) == 2
    assert caught.value.outcome_unknown


async def test_a_connection_that_ends_is_an_unknown_outcome_and_a_retry(
    autojump_clock: MockClock,
) -> None:
    async with open_cluster() as cluster, Running(cluster) as producer:
        for broker in cluster.brokers:
            broker.script = [lambda channel, _request: channel.abort("as the script wants it")]
        with trio.fail_after(10):
            result = await producer.send(message())
    assert result.status is SendStatus.SEND_OK


async def test_all_connections_end(autojump_clock: MockClock) -> None:
    async with open_cluster() as cluster, Running(cluster) as producer:
        for broker in cluster.brokers:
            broker.script = [lambda channel, _request: channel.abort("as the script wants it")] * 3
        with trio.fail_after(10), pytest.raises(ConnectError) as caught:
            await producer.send(message())
        assert sum(len(broker.sends) for broker in cluster.brokers) == 3
    assert caught.value.outcome_unknown


async def test_a_broker_that_is_not_there_is_passed_over(autojump_clock: MockClock) -> None:
    async with open_cluster() as cluster, Running(cluster) as producer:
        await cluster.brokers[0].stop()
        with trio.fail_after(30):
            results = [await producer.send(message()) for _ in range(6)]
    assert {result.queue.broker_name for result in results} == {"b1"}


async def test_nothing_written_is_no_unknown_outcome(autojump_clock: MockClock) -> None:
    async with open_cluster(brokers=1) as cluster, Running(cluster) as producer:
        await cluster.brokers[0].stop()
        with trio.fail_after(30), pytest.raises((ConnectError, SendTimeout)) as caught:
            await producer.send(message())
    assert not caught.value.outcome_unknown


async def test_a_broker_that_moves_is_found_within_one_send(autojump_clock: MockClock) -> None:
    async with open_cluster(brokers=1) as cluster, Running(cluster) as producer:
        broker = cluster.brokers[0]
        with trio.fail_after(30):
            await producer.send(message())
            await broker.stop()
            await broker.start("10.0.0.77:10911")
            cluster.route("t")
            result = await producer.send(message())
    assert result.queue_offset == 1


async def test_a_broker_that_restarts_is_used_again(autojump_clock: MockClock) -> None:
    async with open_cluster(brokers=1) as cluster, Running(cluster) as producer:
        broker = cluster.brokers[0]
        with trio.fail_after(30):
            await producer.send(message())
            await broker.stop()
            with pytest.raises((ConnectError, SendTimeout)):
                await producer.send(message())
            await broker.start()
            await trio.sleep(1)
            assert (await producer.send(message())).status is SendStatus.SEND_OK


async def test_a_missing_route_fails_at_once_and_the_next_send_asks_again(
    autojump_clock: MockClock,
) -> None:
    async with open_cluster(topics=()) as cluster, Running(cluster) as producer:
        with trio.fail_after(30):
            with pytest.raises(RouteError) as caught:
                await producer.send(message())
            assert not caught.value.outcome_unknown
            cluster.route("t")
            assert (await producer.send(message())).status is SendStatus.SEND_OK


async def test_a_topic_without_writable_queues(autojump_clock: MockClock) -> None:
    async with open_cluster() as cluster, Running(cluster) as producer:
        cluster.route("t", perm=4)
        with trio.fail_after(30), pytest.raises(RouteError, match="written"):
            await producer.send(message())


async def test_a_silent_name_server_costs_the_senders_time_only(autojump_clock: MockClock) -> None:
    async with open_cluster() as cluster, Running(cluster) as producer:
        cluster.name_servers[0].silent = True
        began = trio.current_time()
        with trio.fail_after(30), pytest.raises(SendTimeout) as caught:
            await producer.send(message(), timeout=0.5)
        assert trio.current_time() - began == pytest.approx(0.5)
        assert not caught.value.outcome_unknown
        with trio.fail_after(30), pytest.raises(SendTimeout):
            await producer.send(message(), timeout=60)
        cluster.name_servers[0].silent = False
        with trio.fail_after(30):
            await producer.send(message())


async def test_a_broken_answer_is_an_error_that_may_be_stored(autojump_clock: MockClock) -> None:
    async with open_cluster(brokers=1) as cluster, Running(cluster) as producer:
        cluster.brokers[0].script = [lambda _channel, _request: Command.response()]
        with trio.fail_after(10), pytest.raises(FieldError) as caught:
            await producer.send(message())
    assert caught.value.outcome_unknown


async def test_every_last_error_tells_that_an_earlier_attempt_may_be_stored(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    submit = StreamChannel.submit
    written = 0

    def refuse_the_second(channel: StreamChannel, command: Command, *arguments: Any) -> PendingCall:
        nonlocal written
        if command.code == 310:
            written += 1
            if written > 1:
                raise TooManyRequestsError("no room, says the test")
        return submit(channel, command, *arguments)

    async with (
        open_cluster(brokers=1) as cluster,
        Running(cluster, send_timeout_per_attempt=0.5) as producer,
    ):
        await producer.publish_queues("t")
        cluster.brokers[0].script = [SILENT]
        monkeypatch.setattr(StreamChannel, "submit", refuse_the_second)
        with trio.fail_after(10), pytest.raises(TooManyRequestsError) as caught:
            await producer.send(message())
        assert len(cluster.brokers[0].sends) == 1
    assert caught.value.outcome_unknown


async def test_messages_that_share_a_failure_have_errors_of_their_own(
    autojump_clock: MockClock,
) -> None:
    async with open_cluster(topics=()) as cluster, Running(cluster) as producer:
        handles = [producer.submit(message()) for _ in range(2)]
        with trio.fail_after(10):
            errors = []
            for handle in handles:
                with pytest.raises(RouteError) as caught:
                    await handle
                errors.append(caught.value)
    assert errors[0] is not errors[1]
    assert str(errors[0]) == str(errors[1])


@pytest.mark.parametrize(
    "error",
    [
        RouteError("x"),
        TooManyRequestsError("x"),
        ClosedError("x"),
        BrokerError(14, "x", address="a:1", topic="t"),
        broker_error(17, "x"),
        ConnectError("x", address="a:1"),
        RequestTimeoutError("x", outcome_unknown=False),
        SendTimeout("x", address="a:1"),
        RemoteProtocolError("x"),
        LocalProtocolError("x"),
        FieldError("x"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_a_final_error_keeps_its_nature_and_speaks_for_all_attempts(error: RocketMQError) -> None:
    error.__cause__ = KeyError("the cause")
    before = error.outcome_unknown
    final = final_error(error, unknown=True)
    assert final.outcome_unknown
    assert error.outcome_unknown == before
    assert str(final) == str(error)
    assert isinstance(final, type(error))
    assert final.args == error.args
    assert {
        name: value for name, value in vars(error).items() if name != "outcome_unknown"
    }.items() <= vars(final).items()
    assert final.__cause__ is error.__cause__  # the chain does not say it twice
    assert not final_error(RouteError("x"), unknown=False).outcome_unknown


@pytest.mark.parametrize("when", ["route known", "route missing"])
async def test_an_interceptor_that_raises_ends_the_message_and_nothing_else(
    when: str, autojump_clock: MockClock
) -> None:
    class Refusing:
        def before(self, command: Command, address: str | None) -> None:
            del address
            if command.code == 310:
                raise ValueError("the interceptor's")

        def after(self, command: Command, response: Command, address: str | None) -> None:
            del command, response, address

    async with open_cluster() as cluster:
        running = Running(cluster)
        began = 0.0
        async with running as producer:
            if when == "route known":
                await producer.send(message())
            running.client.remoting.interceptors.append(Refusing())
            for _ in range(2):
                with trio.fail_after(5), pytest.raises(ValueError, match="the interceptor's"):
                    await producer.send(message())
            with pytest.raises(ValueError, match="the interceptor's"):
                await producer.send_oneway(message())
            assert producer.in_flight == 0
            running.client.remoting.interceptors.clear()
            with trio.fail_after(5):
                await producer.send(message())
            began = trio.current_time()
        assert trio.current_time() - began < 1


async def test_a_broker_that_asks_to_go_away_is_connected_anew_once_for_all_messages(
    autojump_clock: MockClock,
) -> None:
    async with open_cluster(brokers=1) as cluster:
        running = Running(cluster)
        async with running as producer:
            broker = cluster.brokers[0]
            await producer.send(message())
            remoting = running.client.remoting
            old = remoting.channel_nowait(broker.address)
            opened: list[Any] = []
            remoting.on_connect.append(lambda _address, channel: opened.append(channel))

            async def late() -> Command:
                await trio.sleep(1)  # by then the others have gone to the new connection
                return Command.response(1500, remark="go away")

            broker.script = [1500, lambda _channel, _request: late] + [1500] * 8
            handles = [producer.submit(message(b"%d" % number)) for number in range(10)]
            with trio.fail_after(10):
                await producer.flush()
                assert all(handle.result is not None for handle in handles)
                assert old is not None
                await old.wait_closed()
            assert len(opened) == 1
            assert remoting.channel_nowait(broker.address) is opened[0]
