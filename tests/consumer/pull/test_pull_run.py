"""Pulls of one queue that leave together: what a backlog is read by, whatever their
answers are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import trio

from rocketmq_sdk import (
    ConsumeFrom,
    LitePullConsumer,
    Message,
    MessageQueue,
    Producer,
    PushConsumer,
    ReceivedMessage,
)
from rocketmq_sdk.codes import RequestCode, ResponseCode
from rocketmq_sdk.consumer.pull.pull_run import MOST
from rocketmq_sdk.protocol.command import Command
from rocketmq_sdk.protocol.flags import PullSysFlag
from rocketmq_sdk.testing import TestBroker
from rocketmq_sdk.testing.interception import intercept
from support.consuming import Collector, committed
from support.waiting import until

if TYPE_CHECKING:
    from trio.testing import MockClock

    from rocketmq_sdk.remoting.channel import Channel, Handler

BACKLOG = 700
FROM_THE_FIRST: dict[str, Any] = {
    "subscriptions": {"orders": "*"},
    "consume_from": ConsumeFrom.FIRST_OFFSET,
}


async def fill(broker: TestBroker, count: int = BACKLOG) -> None:
    """Store messages whose bodies are their offsets in the only queue of `orders`."""
    await broker.seed(topics={"orders": 1}, messages={"orders": [str(n) for n in range(count)]})


async def test_a_backlog_is_pulled_by_runs_and_its_end_one_by_one(
    autojump_clock: MockClock, collector: Collector
) -> None:
    async with TestBroker() as broker:
        await fill(broker)
        embedded = broker.embedded
        with intercept(embedded, RequestCode.PULL_MESSAGE) as pulls:
            async with PushConsumer(
                "billing", namesrv=broker.party("one"), listener=collector, **FROM_THE_FIRST
            ):
                await until(lambda: len(collector.messages) == BACKLOG, 5)
                await broker.seed(messages={"orders": ["late"]})
                await until(lambda: len(collector.messages) == BACKLOG + 1, 5)
            assert collector.bodies == [*map(str, range(BACKLOG)), "late"]
            assert committed(embedded, "billing", "orders", 1) == [BACKLOG + 1]
        fields = [
            request.ext_fields
            for request in pulls.requests
            if request.ext_fields["topic"] == "orders"
        ]
        offsets = [int(each["queueOffset"]) for each in fields]
        assert offsets == [*range(0, BACKLOG, 32), BACKLOG, BACKLOG + 1]
        flags = [int(each["sysFlag"]) for each in fields]
        at_once = [not flag & PullSysFlag.SUSPEND for flag in flags]
        # One alone, runs of what is there for certain, the rest alone.
        assert at_once == [False, *[True] * (BACKLOG // 32 - 1), *[False] * 3]
        commits = [int(each["commitOffset"]) for each in fields if int(each["sysFlag"]) & 1]
        assert commits == sorted(commits)
        assert len(commits) <= 2 + len(fields) // (MOST - 1)  # one of a run at most


@pytest.mark.parametrize("orderly", [False, True])
@pytest.mark.parametrize(
    "trouble", ["refused", "busy", "short", "silence", "moved", "cut", "go away", "no body"]
)
async def test_whatever_answers_a_pull_of_a_run_nothing_is_lost_or_doubled(
    autojump_clock: MockClock, collector: Collector, trouble: str, orderly: bool
) -> None:
    troubled: list[int] = []
    seen = 0

    def serve_badly(channel: Channel, request: Command, serve: Handler) -> Any:
        nonlocal seen
        if request.ext_fields["topic"] != "orders":
            return serve(channel, request)
        seen += 1
        if seen % 4 != 3 or len(troubled) == 5:
            return serve(channel, request)
        troubled.append(int(request.ext_fields["queueOffset"]))
        if trouble == "short":
            request.ext_fields["maxMsgNums"] = "7"
        elif trouble == "silence":
            return trio.sleep_forever
        elif trouble == "cut":
            channel.abort("as the test wants it")  # type: ignore[attr-defined]
        elif trouble != "moved":
            code = {
                "refused": ResponseCode.SYSTEM_ERROR,
                "busy": ResponseCode.FLOW_CONTROL,
                "go away": ResponseCode.GO_AWAY,
                "no body": ResponseCode.SUCCESS,
            }[trouble]
            return Command.response(code, remark="as the test wants it")
        answer = serve(channel, request)
        assert isinstance(answer, Command)
        if trouble == "moved":
            answer.code, answer.body = ResponseCode.PULL_OFFSET_MOVED, b""
            answer.ext_fields["nextBeginOffset"] = request.ext_fields["queueOffset"]
        return answer

    async with TestBroker() as broker:
        await fill(broker)
        with intercept(broker.embedded, RequestCode.PULL_MESSAGE, by=serve_badly):
            async with PushConsumer(
                "billing",
                namesrv=broker.party("one"),
                listener=collector,
                orderly=orderly,
                **FROM_THE_FIRST,
            ):
                await until(lambda: len(collector.messages) >= BACKLOG, 600)
                await trio.sleep(60)
        assert len(troubled) == 5
        assert collector.bodies == [*map(str, range(BACKLOG))]
        assert committed(broker.embedded, "billing", "orders", 1) == [BACKLOG]


@pytest.mark.parametrize("how", ["cancelled", "interrupted", "interrupted in the listener"])
async def test_the_end_of_a_consumer_in_the_middle_of_a_run(
    autojump_clock: MockClock, collector: Collector, how: str
) -> None:
    """Some answers of the run are here, others come too late. Its client lives on."""
    got: list[int] = []
    served = 0
    go_on = trio.Event()

    async def listener(message: ReceivedMessage) -> None:
        got.append(int(message.body))
        if how == "interrupted in the listener" and len(got) == 6 * 32:
            raise KeyboardInterrupt

    def serve_late(channel: Channel, request: Command, serve: Handler) -> Any:
        nonlocal served
        served += request.ext_fields["topic"] == "orders"
        if served <= 6:  # one alone, a run, and one of the next run
            return serve(channel, request)

        async def answer() -> Any:
            await go_on.wait()
            return serve(channel, request)

        return answer

    async with TestBroker() as broker, Producer("shop", namesrv=broker.party("one")) as producer:
        await fill(broker)

        async def consume() -> None:
            async with PushConsumer(
                "billing", client=producer.client, listener=listener, **FROM_THE_FIRST
            ):
                await until(lambda: len(got) == 6 * 32, 5)
                if how == "interrupted":
                    raise KeyboardInterrupt
                scope.cancel()
                await trio.sleep_forever()

        with intercept(broker.embedded, RequestCode.PULL_MESSAGE, by=serve_late):
            with trio.CancelScope() as scope:
                if how == "cancelled":
                    await consume()
                else:
                    with pytest.raises(KeyboardInterrupt):
                        await consume()
            (channel,) = (
                channel
                for address, channel in producer.client.remoting.channels().items()
                if address is not None
            )
            assert served > 6
            assert channel.statistics().in_flight == 0
            go_on.set()
            await until(lambda: channel.statistics().late_answers >= served - 6, 5)
        (done,) = committed(broker.embedded, "billing", "orders", 1)
        assert got == [*range(6 * 32)]
        assert done == 6 * 32 - (how == "interrupted in the listener")
        async with PushConsumer(
            "billing", client=producer.client, listener=collector, **FROM_THE_FIRST
        ):
            await until(lambda: len(collector.messages) >= BACKLOG - done, 60)
        assert collector.bodies == [*map(str, range(done, BACKLOG))]


async def test_a_listener_begins_before_the_next_pull_leaves(autojump_clock: MockClock) -> None:
    pulled: list[int] = []

    async def listener(_message: ReceivedMessage) -> None:
        pulled.append(count())

    def count() -> int:
        return sum(each.ext_fields["topic"] == "orders" for each in pulls.requests)

    async with TestBroker() as broker, Producer("shop", namesrv=broker.party("one")) as producer:
        await fill(broker, 0)
        with intercept(broker.embedded, RequestCode.PULL_MESSAGE) as pulls:
            async with PushConsumer(
                "billing", client=producer.client, listener=listener, **FROM_THE_FIRST
            ):
                for number in range(10):
                    await trio.sleep(1)
                    before = count()
                    await producer.send(Message("orders", b"x"))
                    await until(lambda number=number: len(pulled) > number, 5)
                    assert pulled[-1] == before
                    await trio.sleep(1)
                    assert count() == before + 1


async def test_a_run_keeps_below_the_limits_of_the_queue(autojump_clock: MockClock) -> None:
    most: list[int] = []
    go_on = trio.Event()

    async def listener(_messages: object) -> None:
        most.append(consumer.statistics().cached_messages)
        await go_on.wait()

    async with TestBroker() as broker:
        await fill(broker)
        async with PushConsumer(
            "billing",
            namesrv=broker.party("one"),
            listener=listener,
            pull_threshold_for_queue=200,
            concurrency=1,
            **FROM_THE_FIRST,
        ) as consumer:
            await trio.sleep(30)
            held = consumer.statistics().cached_messages
            # As with one pull at a time: one more than the limit allows, at most.
            assert 200 < held <= 200 + 32
            go_on.set()
            await until(lambda: len(most) == BACKLOG, 60)
            assert max(most) <= 200 + 32


async def test_what_a_filter_chooses_from_is_pulled_one_by_one(
    autojump_clock: MockClock, collector: Collector
) -> None:
    async with TestBroker() as broker:
        odd = [{"body": str(n), "tags": "odd" if n % 2 else "even"} for n in range(400)]
        await broker.seed(topics={"orders": 1}, messages={"orders": odd})
        with intercept(broker.embedded, RequestCode.PULL_MESSAGE) as pulls:
            async with PushConsumer(
                "billing",
                namesrv=broker.party("one"),
                listener=collector,
                subscriptions={"orders": "odd"},
                consume_from=ConsumeFrom.FIRST_OFFSET,
            ):
                await until(lambda: len(collector.messages) == 200, 5)
        assert all(
            int(request.ext_fields["sysFlag"]) & PullSysFlag.SUSPEND for request in pulls.requests
        )


async def test_a_seek_drops_the_answers_of_a_run(autojump_clock: MockClock) -> None:
    """They arrive in the same turn of the loop as the seek, or later."""
    async with TestBroker() as broker:
        await fill(broker)
        broker.network.slow(broker.address, 0.01)
        async with LitePullConsumer(
            "billing", namesrv=broker.party("one"), **FROM_THE_FIRST
        ) as consumer:
            first = await consumer.poll(5)
            assert first
            (queue,) = consumer.assignment() if callable(consumer.assignment) else ()
            assert isinstance(queue, MessageQueue)
            for turn in range(30):
                target = (turn * 23) % 400
                await trio.sleep(turn % 7 * 0.005)
                await consumer.seek(queue, target)
                found: list[int] = []
                while len(found) < 40:
                    found += [int(message.body) for message in await consumer.poll(5)]
                assert found == [*range(target, target + len(found))]
