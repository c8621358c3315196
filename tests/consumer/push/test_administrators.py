"""What administrators ask of running consumers, through a broker: reset of offsets,
progress, running info, consume one message now.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import trio

from rocketmq_sdk.broker_embedded.broker import EmbeddedBroker
from rocketmq_sdk.codes import RequestCode, ResponseCode
from rocketmq_sdk.consumer import failures
from rocketmq_sdk.consumer.outcome import ConsumeLater
from rocketmq_sdk.consumer.push.consumer import PushConsumer
from rocketmq_sdk.errors import RequestTimeoutError
from rocketmq_sdk.protocol.bodies.connections import (
    ConsumeMessageDirectlyResult,
    ConsumeResult,
    ConsumerRunningInfo,
)
from rocketmq_sdk.protocol.bodies.offsets import GetConsumerStatusBody, ResetOffsetBody
from rocketmq_sdk.protocol.command import Command
from rocketmq_sdk.protocol.headers.connections import (
    ConsumeMessageDirectlyResultRequestHeader,
    GetConsumerRunningInfoRequestHeader,
)
from rocketmq_sdk.protocol.headers.offsets import (
    GetConsumerStatusRequestHeader,
    ResetOffsetRequestHeader,
)
from support.consuming import Collector, Sender, committed, open_sender
from support.waiting import until

if TYPE_CHECKING:
    from trio.testing import MockClock

    from rocketmq_sdk.model.received import ReceivedMessage
    from rocketmq_sdk.protocol.header import Header


def billing(broker: EmbeddedBroker, listener: object, **options: object) -> PushConsumer:
    return PushConsumer(
        "billing", namesrv=broker, subscriptions={"orders": "*"}, listener=listener, **options
    )  # type: ignore[arg-type]  # any


async def ask(sender: Sender, code: RequestCode, header: Header) -> Command:
    address = await sender._broker()
    return await sender.client.call_address(address, Command.request(code, header), 20)


def client_id(broker: EmbeddedBroker) -> str:
    return broker.parts.members.consumers.client_ids("billing")[0]


@pytest.mark.parametrize("server_side", [True, False])
@pytest.mark.parametrize("orderly", [False, True])
async def test_a_reset_is_obeyed_at_once(
    autojump_clock: MockClock, server_side: bool, orderly: bool
) -> None:
    listener = Collector()
    async with (
        EmbeddedBroker(use_server_side_reset_offset=server_side) as broker,
        open_sender(broker) as sender,
    ):
        await sender.create_topic("orders", 2)
        await sender.send("orders", *map(str, range(20)), queues=2)
        async with billing(broker, listener, orderly=orderly):
            await until(lambda: len(listener.messages) == 20)
            await trio.sleep(6)
            asked = trio.current_time()
            answer = await ask(
                sender,
                RequestCode.INVOKE_BROKER_TO_RESET_OFFSET,
                ResetOffsetRequestHeader(
                    group="billing", topic="orders", timestamp=0, is_force=True
                ),
            )
            assert answer.code == 0, answer.remark
            assert set(ResetOffsetBody.decode(answer.body).offset_table.values()) == {0}
            await until(lambda: len(listener.messages) == 40, 30)
            assert trio.current_time() - asked < 2
            # To the end, while nothing is left: nothing comes again.
            to_the_end = ResetOffsetRequestHeader(
                group="billing", topic="orders", timestamp=-1, is_force=True
            )
            await ask(sender, RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, to_the_end)
            await trio.sleep(30)
        assert len(listener.messages) == 40
        assert sum(committed(broker, "billing", "orders", 2)) == 20


async def test_one_queue_is_reset_to_an_offset_within_its_bounds(autojump_clock: MockClock) -> None:
    listener = Collector()
    async with EmbeddedBroker() as broker, open_sender(broker) as sender:
        await sender.create_topic("orders", 2)
        await sender.send("orders", *map(str, range(10)), queue=1)
        async with billing(broker, listener):
            await until(lambda: len(listener.messages) == 10)
            reset = RequestCode.INVOKE_BROKER_TO_RESET_OFFSET
            answer = await ask(
                sender,
                reset,
                ResetOffsetRequestHeader(
                    group="billing", topic="orders", queue_id=1, offset=8, timestamp=0
                ),
            )
            assert list(ResetOffsetBody.decode(answer.body).offset_table.values()) == [8]
            await until(lambda: len(listener.messages) == 12)
            assert listener.bodies[-2:] == ["8", "9"]
            for header, code in (
                (
                    ResetOffsetRequestHeader(
                        group="billing", topic="orders", queue_id=1, offset=12, timestamp=0
                    ),
                    ResponseCode.SYSTEM_ERROR,
                ),
                (
                    ResetOffsetRequestHeader(group="billing", topic="nowhere", timestamp=0),
                    ResponseCode.TOPIC_NOT_EXIST,
                ),
                (
                    ResetOffsetRequestHeader(group="nobody", topic="orders", timestamp=0),
                    ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
                ),
            ):
                assert (await ask(sender, reset, header)).code == code


async def test_clients_that_should_reset_must_be_there(autojump_clock: MockClock) -> None:
    async with (
        EmbeddedBroker(use_server_side_reset_offset=False) as broker,
        open_sender(broker) as sender,
    ):
        await sender.create_topic("orders", 1)
        header = ResetOffsetRequestHeader(group="billing", topic="orders", timestamp=0)
        answer = await ask(sender, RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, header)
        assert answer.code == ResponseCode.SYSTEM_ERROR
        broker.core.offsets.commit("billing", "orders", 0, 0)
        answer = await ask(sender, RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, header)
        assert answer.code == ResponseCode.CONSUMER_NOT_ONLINE
        assert "billing" in (answer.remark or "")


async def test_the_progress_of_members_is_asked_from_them(autojump_clock: MockClock) -> None:
    listener = Collector()
    async with EmbeddedBroker() as broker, open_sender(broker) as sender:
        await sender.create_topic("orders", 2)
        header = GetConsumerStatusRequestHeader(topic="orders", group="billing")
        assert (
            await ask(sender, RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS, header)
        ).code == ResponseCode.SYSTEM_ERROR
        async with billing(broker, listener):
            await sender.send("orders", *"abc", queue=1)
            await until(lambda: len(listener.messages) == 3)
            answer = await ask(sender, RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS, header)
            table = GetConsumerStatusBody.decode(answer.body).consumer_table
            assert {
                queue.queue_id: offset for queue, offset in table[client_id(broker)].items()
            } == {0: 0, 1: 3}
            header.client_addr = "somebody else"
            answer = await ask(sender, RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS, header)
            assert GetConsumerStatusBody.decode(answer.body).consumer_table == {}


async def test_running_info_tells_what_the_consumer_does(autojump_clock: MockClock) -> None:
    listener = Collector()
    async with EmbeddedBroker() as broker, open_sender(broker) as sender:
        await sender.create_topic("orders", 2)
        async with billing(broker, listener, orderly=True, batch=1):
            await trio.sleep(11)
            await sender.send("orders", *"abc", queue=1)
            await until(lambda: len(listener.messages) == 3)
            header = GetConsumerRunningInfoRequestHeader(
                consumer_group="billing", client_id=client_id(broker), jstack_enable=True
            )
            answer = await ask(sender, RequestCode.GET_CONSUMER_RUNNING_INFO, header)
            assert answer.code == 0, answer.remark
            info = ConsumerRunningInfo.decode(answer.body)
            assert {subscription.topic for subscription in info.subscription_set} == {
                "orders",
                "%RETRY%billing",
            }
            progress = {
                queue.queue_id: entry
                for queue, entry in info.mq_table.items()
                if queue.topic == "orders"
            }
            assert [progress[number].commit_offset for number in (0, 1)] == [0, 3]
            assert all(
                entry.locked and entry.last_lock_timestamp > 0 and entry.last_pull_timestamp > 0
                for entry in progress.values()
            )
            assert info.status_table["orders"].consume_ok_tps > 0
            assert info.properties["PROP_CONSUMEORDERLY"] == "true"
            assert info.jstack is not None
            assert info.jstack.startswith("thread ")
            header.client_id = "nobody"
            answer = await ask(sender, RequestCode.GET_CONSUMER_RUNNING_INFO, header)
            assert answer.code == ResponseCode.SYSTEM_ERROR
            assert "not online" in (answer.remark or "")


@pytest.mark.parametrize("batch", [1, 8])
async def test_a_stored_message_is_consumed_directly(
    autojump_clock: MockClock, batch: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[ReceivedMessage] = []
    told: list[str] = []
    monkeypatch.setattr(failures, "watchers", [lambda _what, error: told.append(repr(error))])

    async def listener(given: ReceivedMessage | list[ReceivedMessage]) -> None:
        messages = given if isinstance(given, list) else [given]
        assert isinstance(given, list) is (batch > 1)
        seen.extend(messages)
        if len(seen) == 3:
            raise ConsumeLater
        if len(seen) == 4:
            raise ValueError("as the test wants it")
        if len(seen) == 5:
            await trio.sleep(60)

    async with EmbeddedBroker() as broker, open_sender(broker) as sender:
        await sender.create_topic("orders", 1)
        async with billing(broker, listener, batch=batch):
            await sender.send("orders", "a", queue=0)
            await until(lambda: seen)
            results = []
            for _ in range(4):
                header = ConsumeMessageDirectlyResultRequestHeader(
                    consumer_group="billing",
                    client_id=client_id(broker),
                    msg_id=seen[0].offset_message_id,
                    topic="orders",
                )
                answer = await ask(sender, RequestCode.CONSUME_MESSAGE_DIRECTLY, header)
                assert answer.code == 0, answer.remark
                results.append(ConsumeMessageDirectlyResult.decode(answer.body))
            kinds = [result.consume_result for result in results]
            assert kinds == [
                ConsumeResult.SUCCESS,
                ConsumeResult.LATER,
                ConsumeResult.THROW_EXCEPTION,
                ConsumeResult.THROW_EXCEPTION,
            ]
            assert "as the test wants it" in (results[2].remark or "")
            assert "9 s" in (results[3].remark or "")
            assert results[3].spent_time_mills >= 9000
            for wrong in ("not hexadecimal", "7F" * 16):
                header.msg_id = wrong
                assert (
                    await ask(sender, RequestCode.CONSUME_MESSAGE_DIRECTLY, header)
                ).code == ResponseCode.SYSTEM_ERROR
        assert committed(broker, "billing", "orders", 1) == [1]
    assert {message.body for message in seen} == {b"a"}
    assert len(seen) == 5
    assert told[0] == "ValueError('as the test wants it')"
    assert len(told) == 2  # the other one took too long


async def test_a_consumer_that_does_not_answer_is_a_timeout(autojump_clock: MockClock) -> None:
    async with (
        EmbeddedBroker() as broker,
        open_sender(broker) as sender,
        billing(broker, Collector()),
    ):
        await sender.create_topic("orders", 1)
        await until(lambda: broker.parts.members.consumers.client_ids("billing"))
        name = client_id(broker)
        member = broker.parts.members.consumers.group("billing")
        assert member is not None
        entry = member.find(name)
        assert entry is not None

        async def silent(_command: Command, timeout: float) -> Command:
            await trio.sleep(timeout)
            raise RequestTimeoutError("no answer")

        entry.channel.call = silent  # type: ignore[method-assign]  # a client that is stuck
        header = GetConsumerRunningInfoRequestHeader(consumer_group="billing", client_id=name)
        answer = await ask(sender, RequestCode.GET_CONSUMER_RUNNING_INFO, header)
        assert answer.code == ResponseCode.CONSUME_MSG_TIMEOUT
