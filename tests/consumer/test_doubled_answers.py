"""A broker whose answers come twice: the second copy belongs to no request any more,
and changes nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import trio

from rocketmq_sdk.broker_embedded.broker import EmbeddedBroker
from rocketmq_sdk.codes import RequestCode
from rocketmq_sdk.consumer.lite_pull.consumer import LitePullConsumer
from rocketmq_sdk.consumer.simple.consumer import SimpleConsumer
from rocketmq_sdk.model.enums import ConsumeFrom
from rocketmq_sdk.protocol.command import Command
from rocketmq_sdk.testing.interception import intercept
from support.consuming import committed, open_sender

if TYPE_CHECKING:
    from trio.testing import MockClock

    from rocketmq_sdk.remoting.channel import Channel, Handler

SHARED: dict[str, Any] = {
    "subscriptions": {"orders": "*"},
    "consume_from": ConsumeFrom.FIRST_OFFSET,
}


def answer_twice(broker: EmbeddedBroker, *codes: int) -> list[int]:
    """Let each answer to requests of these codes, also one that comes late, be followed
    by a copy; collects the codes of what was doubled.
    """
    doubled: list[int] = []

    def double(channel: Any, request: Command, answer: Command) -> None:
        doubled.append(request.code)
        copy = Command(
            answer.code,
            flag=1,
            remark=answer.remark,
            ext_fields=dict(answer.ext_fields),
            body=bytes(answer.body),
        )
        type(channel)._answer(channel, request, copy)

    def watch(channel: Any) -> None:
        """Double what is answered later."""
        if "_answer" not in vars(channel):

            def answer_later(request: Command, answer: Command) -> None:
                type(channel)._answer(channel, request, answer)
                if request.code in codes:
                    double(channel, request, answer)

            channel._answer = answer_later

    def serve_and_double(channel: Channel, request: Command, serve: Handler) -> Any:
        watch(channel)
        answer = serve(channel, request)
        if isinstance(answer, Command):
            double(channel, request, answer)
        return answer

    intercept(broker, *codes, by=serve_and_double)
    return doubled


async def test_a_simple_consumer_gets_each_message_once(autojump_clock: MockClock) -> None:
    codes = (
        RequestCode.POP_MESSAGE,
        RequestCode.ACK_MESSAGE,
        RequestCode.BATCH_ACK_MESSAGE,
        RequestCode.CHANGE_MESSAGE_INVISIBLETIME,
    )
    async with EmbeddedBroker() as broker, open_sender(broker) as sender:
        await sender.create_topic("orders", 2)
        doubled = answer_twice(broker, *codes)
        found: list[bytes] = []
        async with (
            SimpleConsumer("billing", namesrv=broker, **SHARED) as consumer,
            trio.open_nursery() as nursery,
        ):

            async def send_slowly() -> None:
                for number in range(30):
                    await sender.send("orders", str(number), queue=number % 2)
                    await trio.sleep(1)

            nursery.start_soon(send_slowly)
            with trio.fail_after(3600):
                while len(set(found)) < 30:
                    messages = await consumer.receive(4, 30, 5)
                    found += [message.body for message in messages]
                    for message in messages:
                        await consumer.change_invisible_duration(message, 20)
                    if messages:
                        await consumer.ack(messages[0])
                        await consumer.batch_ack(messages[1:])
            for _ in range(3):
                found += [
                    message.body for message in await consumer.receive(4, 30, 30)
                ]  # nothing comes back
        assert sorted(map(int, found)) == list(range(30))
        assert {
            RequestCode.POP_MESSAGE,
            RequestCode.ACK_MESSAGE,
            RequestCode.CHANGE_MESSAGE_INVISIBLETIME,
        } <= set(doubled)


async def test_a_lite_pull_consumer_gets_each_message_once_and_commits_them(
    autojump_clock: MockClock,
) -> None:
    codes = (
        RequestCode.LITE_PULL_MESSAGE,
        RequestCode.PULL_MESSAGE,
        RequestCode.QUERY_CONSUMER_OFFSET,
        RequestCode.GET_CONSUMER_LIST_BY_GROUP,
    )
    async with EmbeddedBroker() as broker, open_sender(broker) as sender:
        await sender.create_topic("orders", 2)
        doubled = answer_twice(broker, *codes)
        found: list[bytes] = []
        async with LitePullConsumer(
            "billing", namesrv=broker, polled_is_done=True, **SHARED
        ) as consumer:
            for number in range(30):
                await sender.send("orders", str(number), queue=number % 2)
                with trio.fail_after(600):
                    while len(found) <= number:  # most pulls are held, and answered late
                        found += [message.body for message in await consumer.poll(1)]
            assert await consumer.poll(60) == []
        assert [int(body) for body in found] == list(range(30))
        assert committed(broker, "billing", "orders", 2) == [15, 15]
        assert RequestCode.LITE_PULL_MESSAGE in doubled or RequestCode.PULL_MESSAGE in doubled
