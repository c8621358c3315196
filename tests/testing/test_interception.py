"""Requests that a test watches, answers or lets fall."""

from __future__ import annotations

from copy import copy
from typing import TYPE_CHECKING, Any

import pytest
import trio

from rocketmq_sdk import Message, Producer
from rocketmq_sdk.broker_embedded.broker import EmbeddedBroker
from rocketmq_sdk.codes import RequestCode, ResponseCode
from rocketmq_sdk.errors import BrokerError, RequestTimeoutError
from rocketmq_sdk.protocol.batch_codec import encode_batch
from rocketmq_sdk.protocol.command import Command
from rocketmq_sdk.remoting.dispatch import Dispatcher
from rocketmq_sdk.remoting.source import TcpChannelSource
from rocketmq_sdk.testing import TestBroker
from rocketmq_sdk.testing.interception import intercept, refused, unanswered
from support.broker import connect, open_broker, send_request

if TYPE_CHECKING:
    from trio.testing import MockClock

    from rocketmq_sdk.remoting.channel import Channel, Handler

SEND, QUERY = RequestCode.SEND_MESSAGE_V2, RequestCode.GET_MAX_OFFSET


async def test_requests_are_counted_and_served(autojump_clock: MockClock) -> None:
    async with EmbeddedBroker() as broker, Producer("pg", namesrv=broker) as producer:
        with intercept(broker, SEND) as sends:
            for number in range(3):
                await producer.send(Message("orders", b"%d" % number))
        await producer.send(Message("orders", b"behind"))
    assert sends.counts == {SEND: 3}
    assert [request.body for request in sends.requests] == [b"0", b"1", b"2"]


async def test_an_interceptor_may_answer_at_once_later_or_never(autojump_clock: MockClock) -> None:
    def later(channel: Channel, request: Command, serve: Handler) -> Any:
        async def wait() -> Any:
            await trio.sleep(7)
            return serve(channel, request)

        return wait

    async with open_broker() as (broker, peer):
        with intercept(broker, SEND, by=refused(ResponseCode.NO_PERMISSION, "no")):
            answer = await peer.ask(SEND)
            assert (answer.code, answer.remark) == (ResponseCode.NO_PERMISSION, "no")
        with intercept(broker, SEND, by=later):
            began = trio.current_time()
            await peer.send("orders", b"x")
            assert trio.current_time() - began == 7
        with intercept(broker, SEND, by=unanswered), pytest.raises(RequestTimeoutError):
            await peer.ask(SEND, 3)
        await peer.send("orders", b"x")


async def test_errors_of_an_interceptor_are_answers_as_those_of_handlers_are() -> None:
    def fail(_channel: Channel, _request: Command, _serve: Handler) -> Command:
        raise BrokerError(ResponseCode.NO_PERMISSION, "not today")

    async with open_broker() as (broker, peer):
        with intercept(broker, SEND, by=fail):
            answer = await peer.ask(SEND)
        assert (answer.code, answer.remark) == (ResponseCode.NO_PERMISSION, "not today")


@pytest.mark.parametrize("first_ends_first", [True, False])
async def test_the_last_interception_is_asked_first_and_each_ends_alone(
    first_ends_first: bool,
) -> None:
    async with open_broker() as (broker, peer):
        below, above = intercept(broker, SEND), intercept(broker, SEND)
        await peer.send("orders", b"both")
        (below if first_ends_first else above).restore()
        await peer.send("orders", b"one")
        (above if first_ends_first else below).restore()
        await peer.send("orders", b"none")
        counts = (below.counts[SEND], above.counts[SEND])
        assert counts == ((1, 2) if first_ends_first else (2, 1))
        above.restore()


async def test_name_servers_and_codes_that_nobody_serves_are_intercepted_too() -> None:
    unknown = 54_321
    async with EmbeddedBroker() as broker, trio.open_nursery() as nursery:
        peer = await connect(broker, nursery, namesrv=True)
        with intercept(broker.namesrv, unknown, by=lambda *_: Command.response(0)) as seen:
            assert (await peer.ask(unknown)).code == 0
        with intercept(broker.namesrv, unknown):
            first = await peer.ask(unknown)
        answer = await peer.ask(unknown)
        assert (first.code, first.remark) == (answer.code, answer.remark)
        assert answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
        with intercept(broker.namesrv) as all_codes:
            await peer.ask(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)
        assert (len(seen.requests), len(all_codes.requests)) == (1, 1)
        nursery.cancel_scope.cancel()


async def test_a_request_that_is_held_can_still_be_read(autojump_clock: MockClock) -> None:
    """The broker empties what it holds, not what the test sees."""
    with trio.fail_after(100):
        async with EmbeddedBroker() as broker, trio.open_nursery() as nursery:
            peer = await connect(broker, nursery)
            broker.core.topics.create_on_send("orders", "TBW102", 4)
            with intercept(broker, RequestCode.PULL_MESSAGE) as pulls:
                answer = await peer.ask(
                    RequestCode.PULL_MESSAGE,
                    consumerGroup="CG",
                    topic="orders",
                    queueId="0",
                    queueOffset="0",
                    maxMsgNums="32",
                    sysFlag="6",
                    commitOffset="0",
                    suspendTimeoutMillis="1000",
                    subscription="*",
                    subVersion="0",
                )
            assert answer.code == ResponseCode.PULL_NOT_FOUND
            assert pulls.requests[0].ext_fields["topic"] == "orders"
            nursery.cancel_scope.cancel()


@pytest.mark.real_time
async def test_an_interceptor_sees_what_the_handler_that_it_calls_has_done() -> None:
    """Also of a batch, which goes into its queue later where nobody looks on."""
    code, ends = SEND, list[int]()
    request = send_request("orders", encode_batch([(0, b"a", b""), (0, b"b", b"")]), batch=True)

    def look(channel: Channel, request: Command, serve: Handler) -> Any:
        answer = serve(channel, request)
        store = (broker.embedded if isinstance(broker, TestBroker) else broker).store
        ends.append(store.max_offset("orders", 0))
        return answer

    for broker in (EmbeddedBroker(listen="127.0.0.1:0"), TestBroker(listen="127.0.0.1:0")):
        async with broker, trio.open_nursery() as nursery:
            channel = await TcpChannelSource().open_channel(broker.address, Dispatcher(), nursery)
            for _ in range(2):
                with (
                    broker.faults.on(code).call(look)
                    if isinstance(broker, TestBroker)
                    else intercept(broker, code, by=look)
                ):
                    await channel.call(copy(request), 60)
            nursery.cancel_scope.cancel()
    assert ends == [2, 4, 2, 4]
