"""Lite pull, pull and simple consumers on bad days: brokers that restart or answer
nonsense, and cancellation at any moment.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import trio

from rocketmq_sdk.broker_embedded.broker import EmbeddedBroker
from rocketmq_sdk.client.runtime import Client
from rocketmq_sdk.codes import RequestCode
from rocketmq_sdk.consumer.lite_pull.consumer import LitePullConsumer
from rocketmq_sdk.consumer.lite_pull.pull_consumer import PullConsumer
from rocketmq_sdk.consumer.push.consumer import PushConsumer
from rocketmq_sdk.consumer.simple.consumer import SimpleConsumer
from rocketmq_sdk.errors import RocketMQError
from rocketmq_sdk.model.enums import ConsumeFrom
from rocketmq_sdk.model.queue import MessageQueue
from rocketmq_sdk.protocol.command import Command
from rocketmq_sdk.testing.interception import intercept
from support.consuming import Collector, Switch, committed, open_sender
from support.waiting import until

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from trio.testing import MockClock

    from rocketmq_sdk.model.received import ReceivedMessage
    from rocketmq_sdk.remoting.channel import Channel, Handler

SHARED: dict[str, Any] = {
    "subscriptions": {"orders": "*"},
    "consume_from": ConsumeFrom.FIRST_OFFSET,
}
GARBAGE = [
    Command.response(body=b"garbage"),
    Command.response(body=bytes(200)),
    Command.response(body=b"\xff" * 91),
    Command(
        0,
        flag=1,
        ext_fields={
            "nextBeginOffset": "x",
            "popTime": "x",
            "invisibleTime": "-",
            "startOffsetInfo": "1 2",
            "offset": "none",
        },
    ),
    Command(
        0,
        flag=1,
        ext_fields={
            "nextBeginOffset": "-5",
            "minOffset": "-1",
            "maxOffset": "-9",
            "msgOffsetInfo": ";;",
            "reviveQid": "9" * 30,
        },
    ),
    Command(-77, flag=1, remark="?"),
]


def answer_garbage(broker: EmbeddedBroker, *codes: int) -> list[int]:
    """Let each request of these codes be answered once by each piece of garbage, then
    as it should be; counts what is left.
    """
    left = [len(codes) * len(GARBAGE)]
    for code in codes:
        pieces = list(GARBAGE)

        def garble(
            channel: Channel, request: Command, serve: Handler, pieces: list[Command] = pieces
        ) -> Any:
            if not pieces:
                return serve(channel, request)
            left[0] -= 1
            piece = pieces.pop()
            return Command(
                piece.code,
                flag=1,
                remark=piece.remark,
                ext_fields=dict(piece.ext_fields),
                body=piece.body,
            )

        intercept(broker, code, by=garble)
    return left


async def test_a_lite_pull_consumer_gets_over_garbage(autojump_clock: MockClock) -> None:
    async with EmbeddedBroker() as broker, open_sender(broker) as sender:
        await sender.create_topic("orders", 1)
        await sender.send("orders", *map(str, range(20)), queue=0)
        codes = (
            RequestCode.LITE_PULL_MESSAGE,
            RequestCode.QUERY_CONSUMER_OFFSET,
            RequestCode.GET_CONSUMER_LIST_BY_GROUP,
        )
        left = answer_garbage(broker, *codes)
        async with LitePullConsumer("billing", namesrv=broker, **SHARED) as consumer:
            found: list[bytes] = []
            with trio.fail_after(600):
                while len(set(found)) < 20:
                    found += [message.body for message in await consumer.poll()]
        assert left == [0]


def _records(body: bytes) -> list[bytes]:
    records, position = [], 0
    while position < len(body):
        size = int.from_bytes(body[position : position + 4], "big")
        records.append(body[position : position + size])
        position += size
    return records


def _moved(record: bytes, by: int) -> bytes:
    """A record with another queue offset."""
    offset = int.from_bytes(record[20:28], "big") + by
    return record[:20] + offset.to_bytes(8, "big") + record[28:]


FAR = str(2**63 - 1)
BAD_PULLS: list[Callable[[bytes, dict[str, str]], bytes]] = [
    lambda body, _fields: b"",
    lambda body, _fields: body * 3,
    lambda body, _fields: b"".join(reversed(_records(body))),
    lambda body, fields: fields.update(nextBeginOffset="-1") or body,
    lambda body, fields: fields.update(nextBeginOffset="0", maxOffset="0") or body,
    lambda body, fields: fields.update(nextBeginOffset=FAR) or body,
    lambda body, fields: fields.update(nextBeginOffset=FAR, maxOffset=FAR) or body,
    lambda body, fields: fields.update(nextBeginOffset="41") or body,
    lambda body, fields: fields.update(maxOffset="1") or body,
    lambda body, _fields: b"".join(_moved(record, 10_000) for record in _records(body)),
]
"""Answers to pulls that have lost their messages, repeat or shuffle them, lead back, or
behind the end.
"""


@pytest.mark.parametrize("kind", ["push", "orderly", "lite"])
async def test_what_a_pull_brings_twice_or_in_disorder_is_consumed_once_and_in_order(
    kind: str, autojump_clock: MockClock
) -> None:
    found: list[int] = []
    left = list(BAD_PULLS)

    def spoil(channel: Channel, request: Command, serve: Handler) -> Any:
        answer = serve(channel, request)
        if isinstance(answer, Command) and answer.body and left:
            fields = dict(answer.ext_fields)
            body = left.pop(0)(bytes(answer.body), fields)
            return Command(answer.code, flag=1, ext_fields=fields, body=body)
        return answer

    async def listener(message: ReceivedMessage) -> None:
        await trio.sleep(0.5)
        found.append(message.offset)
        assert committed(broker, "billing", "orders", 1)[0] <= 40

    async with EmbeddedBroker() as broker, open_sender(broker) as sender:
        await sender.create_topic("orders", 1)
        await sender.send("orders", *map(str, range(40)), queue=0)
        intercept(broker, RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE, by=spoil)
        with trio.fail_after(600):
            if kind == "lite":
                async with LitePullConsumer(
                    "billing", namesrv=broker, pull_batch_size=4, **SHARED
                ) as consumer:
                    async for message in consumer:
                        await listener(message)
                        consumer.done(message)
                        if len(found) == 40:
                            break
            else:
                async with PushConsumer(
                    "billing",
                    namesrv=broker,
                    listener=listener,
                    orderly=kind == "orderly",
                    pull_batch_size=4,
                    **SHARED,
                ):
                    await until(lambda: len(found) == 40)
        assert not left
        assert committed(broker, "billing", "orders", 1) == [40]
    assert (sorted(found) if kind == "push" else found) == list(range(40))


@pytest.mark.parametrize("code", [0, 19, 20, 21])
async def test_a_broker_that_leads_nowhere_is_asked_again_in_peace_and_named(
    code: int, autojump_clock: MockClock
) -> None:
    pulls = 0

    def lead_away(channel: Channel, request: Command, serve: Handler) -> Any:
        nonlocal pulls
        topic, answer = request.ext_fields["topic"], serve(channel, request)
        if topic != "orders":
            return answer
        pulls += 1
        ends = {"nextBeginOffset": FAR, "minOffset": "0", "maxOffset": FAR}
        fields = {"suggestWhichBrokerId": "0", **ends}
        body = answer.body if isinstance(answer, Command) else b""
        return Command(code, flag=1, ext_fields=fields, body=body)

    collector = Collector()
    async with EmbeddedBroker() as broker, open_sender(broker) as sender:
        await sender.create_topic("orders", 1)
        await sender.send("orders", *map(str, range(5)), queue=0)
        spoiled = intercept(broker, RequestCode.PULL_MESSAGE, by=lead_away)
        async with PushConsumer(
            "billing", namesrv=broker, listener=collector, **SHARED
        ) as consumer:
            await trio.sleep(60)
            assert not collector.messages
            assert f"has its end at {FAR}, and no queue goes further" in str(consumer.health())
            assert pulls <= 62
            assert committed(broker, "billing", "orders", 1)[0] <= 0
            spoiled.restore()
            await until(lambda: len(collector.messages) == 5)


async def test_a_simple_consumer_gets_over_garbage(autojump_clock: MockClock) -> None:
    async with EmbeddedBroker() as broker, open_sender(broker) as sender:
        await sender.create_topic("orders", 1)
        await sender.send("orders", *map(str, range(20)), queue=0)
        codes = (
            RequestCode.POP_MESSAGE,
            RequestCode.ACK_MESSAGE,
            RequestCode.BATCH_ACK_MESSAGE,
            RequestCode.CHANGE_MESSAGE_INVISIBLETIME,
        )
        left = answer_garbage(broker, *codes)
        done: set[bytes] = set()
        async with SimpleConsumer("billing", namesrv=broker, **SHARED) as consumer:
            with trio.fail_after(3600):
                while len(done) < 20:
                    try:
                        messages = await consumer.receive(4, 10)
                    except RocketMQError:
                        continue
                    for message in messages:
                        try:
                            await consumer.change_invisible_duration(message, 20)
                            await consumer.ack(message)
                            await consumer.batch_ack([message])
                        except RocketMQError:
                            if not message.receipt.is_good:
                                done.add(message.body)
        assert left[0] < len(codes) * len(GARBAGE)


async def test_a_pull_consumer_names_garbage(autojump_clock: MockClock) -> None:
    async with (
        EmbeddedBroker() as broker,
        open_sender(broker) as sender,
        PullConsumer("audit", namesrv=broker) as consumer,
    ):
        await sender.create_topic("orders", 1)
        await sender.send("orders", "x", queue=0)
        queue = MessageQueue("orders", "broker-a", 0)
        left = answer_garbage(broker, RequestCode.PULL_MESSAGE)
        refused = 0
        while left[0]:
            try:
                await consumer.pull(queue, 0)
            except RocketMQError:
                refused += 1
        assert refused >= 4
        assert [message.body for message in (await consumer.pull(queue, 0)).messages] == [b"x"]


@pytest.mark.parametrize("kind", [LitePullConsumer, SimpleConsumer])
async def test_consumption_goes_on_behind_a_restart_of_the_broker(
    kind: type[Any], autojump_clock: MockClock, tmp_path: Path
) -> None:
    switch = Switch(None)
    seen: list[bytes] = []
    async with trio.open_nursery() as nursery:
        consumer: Any = None
        for life in range(3):
            async with EmbeddedBroker(tmp_path) as broker, open_sender(broker) as sender:
                await sender.create_topic("orders")
                await sender.send("orders", *(f"{life} {number}" for number in range(30)))
                switch.connect(broker)
                if consumer is None:

                    async def consume(task_status: trio.TaskStatus[Any]) -> None:
                        async with (
                            Client(switch) as client,
                            kind("billing", client=client, **SHARED) as consumer,
                        ):
                            task_status.started(consumer)
                            async for message in consumer:
                                seen.append(message.body)
                                if isinstance(consumer, SimpleConsumer):
                                    await consumer.ack(message)

                    consumer = await nursery.start(consume)
                with trio.fail_after(600):
                    while len(set(seen)) < 30 * (life + 1):
                        await trio.sleep(1)
                await trio.sleep(6)
                switch.cut()
        nursery.cancel_scope.cancel()
    assert len(seen) == 90


@pytest.mark.parametrize("kind", [LitePullConsumer, SimpleConsumer, PullConsumer])
async def test_cancelled_at_any_moment_a_consumer_leaves_nothing_behind(
    kind: type[Any], autojump_clock: MockClock
) -> None:
    options = {} if kind is PullConsumer else SHARED
    async with EmbeddedBroker() as broker, open_sender(broker) as sender:
        await sender.create_topic("orders")
        await sender.send("orders", *map(str, range(10)))
        with trio.fail_after(600):
            for steps in range(36):
                with trio.CancelScope() as scope:
                    async with trio.open_nursery() as nursery:

                        async def cancel(
                            scope: trio.CancelScope = scope, steps: int = steps
                        ) -> None:
                            for _ in range(steps):
                                await trio.lowlevel.checkpoint()
                            scope.cancel()

                        nursery.start_soon(cancel)
                        async with kind("billing", namesrv=broker, **options) as consumer:
                            if kind is LitePullConsumer:
                                await consumer.poll(1)
                            elif kind is SimpleConsumer:
                                await consumer.receive(1, 10, 1)
                await trio.sleep(1)
                assert not broker.parts.members.consumers.client_ids("billing"), (
                    f"cancelled after {steps} steps"
                )
