"""Requests that waited too long: refused with Apache's code and text, by the limit of
their kind.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import trio

from rocketmq_sdk.broker_embedded.broker import EmbeddedBroker
from rocketmq_sdk.broker_embedded.fast_failure import FastFailure
from rocketmq_sdk.broker_embedded.settings.config import BrokerConfig, LiveConfig
from rocketmq_sdk.codes import RequestCode, ResponseCode
from rocketmq_sdk.errors import broker_error
from rocketmq_sdk.protocol.command import Command
from rocketmq_sdk.protocol.connection import Connection
from rocketmq_sdk.protocol.frame import encode_frame
from rocketmq_sdk.testing.interception import Interceptor, intercept
from rocketmq_sdk.transport.memory import MemoryNetwork
from support.broker import send_request

if TYPE_CHECKING:
    from trio.testing import MockClock

    from rocketmq_sdk.broker_embedded.request import Request
    from rocketmq_sdk.remoting.channel import Channel, Continuation, Handler

LIMITS = {
    RequestCode.SEND_MESSAGE_V2: 0.2,
    RequestCode.SEND_BATCH_MESSAGE: 0.2,
    RequestCode.CONSUMER_SEND_MSG_BACK: 0.2,
    RequestCode.PULL_MESSAGE: 5.0,
    RequestCode.POP_MESSAGE: 5.0,
    RequestCode.LITE_PULL_MESSAGE: 5.0,
    RequestCode.HEART_BEAT: 31.0,
    RequestCode.END_TRANSACTION: 3.0,
    RequestCode.ACK_MESSAGE: 3.0,
    RequestCode.GET_BROKER_RUNTIME_INFO: 5.0,
}
NEVER_REFUSED = (
    RequestCode.QUERY_MESSAGE,
    RequestCode.VIEW_MESSAGE_BY_ID,
    RequestCode.UNREGISTER_CLIENT,
    RequestCode.CHECK_CLIENT_CONFIG,
    RequestCode.GET_CONSUMER_LIST_BY_GROUP,
    RequestCode.UPDATE_CONSUMER_OFFSET,
    RequestCode.QUERY_CONSUMER_OFFSET,
    RequestCode.QUERY_ASSIGNMENT,
    RequestCode.SET_MESSAGE_REQUEST_MODE,
    RequestCode.SEND_REPLY_MESSAGE,
    RequestCode.SEND_REPLY_MESSAGE_V2,
)


@pytest.fixture
async def rows() -> tuple[Request, ...]:
    async with EmbeddedBroker() as broker:
        return broker.requests


@pytest.mark.parametrize(("code", "limit"), LIMITS.items())
async def test_each_kind_has_apaches_limit(
    autojump_clock: MockClock, rows: tuple[Request, ...], code: RequestCode, limit: float
) -> None:
    judge = FastFailure(LiveConfig(BrokerConfig()), lambda: rows)
    assert judge(Command.request(code), limit - 0.001, 7) is None
    answer = judge(Command.request(code), limit + 0.0001, 7)
    assert answer is not None
    assert answer.code == ResponseCode.SYSTEM_BUSY
    period = int(limit * 1000)
    assert answer.remark == (
        "[TIMEOUT_CLEAN_QUEUE]broker busy, start flow control for a while, period in queue: "
        f"{period}ms, size of queue: 7"
    )
    assert judge.failed == 1


@pytest.mark.parametrize("code", NEVER_REFUSED)
async def test_what_nobody_cleans_in_apaches_broker_is_never_refused(
    autojump_clock: MockClock, rows: tuple[Request, ...], code: RequestCode
) -> None:
    judge = FastFailure(LiveConfig(BrokerConfig()), lambda: rows)
    assert judge(Command.request(code), 1000.0, 0) is None


async def test_it_can_be_switched_off_and_changed_while_the_broker_runs(
    autojump_clock: MockClock, rows: tuple[Request, ...]
) -> None:
    live = LiveConfig(BrokerConfig())
    judge = FastFailure(live, lambda: rows)
    live.update({"waitTimeMillsInSendQueue": "1000"}, 0)
    assert judge(Command.request(RequestCode.SEND_MESSAGE), 0.9, 0) is None
    assert judge(Command.request(RequestCode.SEND_MESSAGE), 1.1, 0) is not None
    live.update({"brokerFastFailureEnable": "false"}, 0)
    assert judge(Command.request(RequestCode.SEND_MESSAGE), 1.1, 0) is None


async def sends_in_one_chunk(
    count: int, seconds_each: float, clock: MockClock, **settings: Any
) -> list[Command]:
    """Send requests at once to a broker that takes its time for each; the answers."""
    network = MemoryNetwork()
    answers: list[Command] = []
    async with EmbeddedBroker(**settings) as broker, trio.open_nursery() as nursery:
        await nursery.start(broker.server.serve, [network.listen("127.0.0.1:10911")])
        intercept(broker, RequestCode.SEND_MESSAGE_V2, by=_slowed(clock, seconds_each))
        stream = await network.connect("127.0.0.1:10911")
        frames = []
        for number in range(count):
            request = send_request("orders", b"x")
            request.opaque = number
            frames.append(encode_frame(request))
        await stream.send_all(b"".join(frames))
        engine = Connection()
        with trio.fail_after(1000):
            while len(answers) < count:
                answers += engine.receive_commands(bytes(await stream.receive_some()))
        judge = broker.server._overdue
        assert isinstance(judge, FastFailure)
        assert judge.failed == [answer.code for answer in answers].count(ResponseCode.SYSTEM_BUSY)
        nursery.cancel_scope.cancel()
    return answers


def _slowed(clock: MockClock, seconds: float) -> Interceptor:
    def slow(channel: Channel, request: Command, serve: Handler) -> Command | Continuation | None:
        clock.jump(seconds)
        return serve(channel, request)

    return slow


async def test_sends_behind_slow_ones_are_refused(autojump_clock: MockClock) -> None:
    """20 ms each: the first ten are served, those that waited for 200 ms are not, and
    nothing of them is stored.
    """
    answers = await sends_in_one_chunk(40, 0.02, autojump_clock)
    codes = [answer.code for answer in sorted(answers, key=lambda answer: answer.opaque)]
    assert codes[:10] == [0] * 10
    assert codes[-20:] == [ResponseCode.SYSTEM_BUSY] * 20
    assert all(
        "[TIMEOUT_CLEAN_QUEUE]broker busy" in (answer.remark or "")
        for answer in answers
        if answer.code
    )


async def test_one_long_pause_refuses_nobody(autojump_clock: MockClock) -> None:
    """As a machine makes that stands still for a moment."""
    answers = await sends_in_one_chunk(7, 0.06, autojump_clock)
    assert [answer.code for answer in answers] == [0] * 7


async def test_without_fast_failure_all_are_served(autojump_clock: MockClock) -> None:
    answers = await sends_in_one_chunk(40, 0.02, autojump_clock, broker_fast_failure_enable=False)
    assert {answer.code for answer in answers} == {0}


def test_clients_may_try_again() -> None:
    assert broker_error(ResponseCode.SYSTEM_BUSY, "[TIMEOUT_CLEAN_QUEUE]broker busy").retryable
