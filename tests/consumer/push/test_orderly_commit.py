"""Queues in order whose listener commits and rolls back by itself, in virtual time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import trio

from rocketmq_sdk import (
    ConfigurationError,
    ConsumeFrom,
    ConsumeLater,
    ConsumeOrderlyStatus,
    EmbeddedBroker,
    MessageModel,
    PushConsumer,
    RejectMessage,
)
from rocketmq_sdk.codes import RequestCode
from rocketmq_sdk.consumer.config import PushConfig
from rocketmq_sdk.names import dead_letter_topic
from rocketmq_sdk.protocol.command import Command
from rocketmq_sdk.protocol.headers.connections import ConsumeMessageDirectlyResultRequestHeader
from support.consuming import committed, open_sender
from support.waiting import until

if TYPE_CHECKING:
    from pathlib import Path

    from trio.testing import MockClock

    from rocketmq_sdk import ReceivedMessage

COMMIT, ROLLBACK = ConsumeOrderlyStatus.COMMIT, ConsumeOrderlyStatus.ROLLBACK


class Deciding:
    """A listener with a script for each body; a step is an answer or an exception."""

    def __init__(self, **script: list[object]) -> None:
        self.script = script
        self.seen: list[tuple[str, int]] = []
        self.times: list[float] = []

    @property
    def bodies(self) -> str:
        return "".join(body for body, _attempt in self.seen)

    async def __call__(self, message: ReceivedMessage) -> Any:
        body = message.body.decode()
        self.seen.append((body, message.reconsume_times))
        self.times.append(trio.current_time())
        steps = self.script.get(body)
        answer = steps.pop(0) if steps else None
        if isinstance(answer, Exception):
            raise answer
        return answer


def deciding(broker: EmbeddedBroker, listener: Any, **options: Any) -> PushConsumer:
    options = {"orderly": True, "auto_commit": False, **options}
    return PushConsumer(
        "billing", namesrv=broker, subscriptions={"orders": "*"}, listener=listener, **options
    )


async def test_a_commit_is_for_all_since_the_last_one(autojump_clock: MockClock) -> None:
    listener = Deciding(b=[COMMIT])
    async with EmbeddedBroker() as broker, open_sender(broker) as sender:
        await sender.create_topic("orders", 1)
        await sender.send("orders", "a", queue=0)
        async with deciding(broker, listener) as consumer:
            await until(lambda: listener.bodies == "a")
            await trio.sleep(11)
            assert committed(broker, "billing", "orders", 1) == [0]
            assert consumer.statistics().in_flight == 0
            await sender.send("orders", "b", "c", queue=0)
            await until(lambda: listener.bodies == "abc")
            await trio.sleep(6)
            assert committed(broker, "billing", "orders", 1) == [2]
            assert consumer.statistics().consumed == 3
            assert consumer.statistics().cached_messages == 1
        assert committed(broker, "billing", "orders", 1) == [2]
        again = Deciding(c=[COMMIT])
        async with deciding(broker, again):
            await until(lambda: again.bodies == "c")  # it was open when the block was left
        assert committed(broker, "billing", "orders", 1) == [3]


async def test_a_rollback_brings_all_again_after_a_pause(autojump_clock: MockClock) -> None:
    listener = Deciding(c=[ROLLBACK, COMMIT])
    async with EmbeddedBroker() as broker, open_sender(broker) as sender:
        await sender.create_topic("orders", 2)
        await sender.send("orders", "a", "b", "c", "d", queue=0)
        async with deciding(broker, listener, suspend_current_queue_time=2) as consumer:
            await until(lambda: len(listener.seen) == 7)
            assert listener.bodies == "abcabcd"
            assert {attempt for _body, attempt in listener.seen} == {0}
            assert listener.times[3] - listener.times[2] == pytest.approx(2)
            assert consumer.statistics().failed == 1
            await trio.sleep(6)
            assert committed(broker, "billing", "orders", 1) == [3]


async def test_queues_decide_each_for_itself(autojump_clock: MockClock) -> None:
    listener = Deciding(b=[COMMIT], y=[ROLLBACK])
    async with EmbeddedBroker() as broker, open_sender(broker) as sender:
        await sender.create_topic("orders", 2)
        await sender.send("orders", "a", "b", queue=0)
        await sender.send("orders", "x", "y", queue=1)
        async with deciding(broker, listener, suspend_current_queue_time=30):
            await until(lambda: len(listener.seen) == 4)
            await trio.sleep(6)
            assert committed(broker, "billing", "orders", 2) == [2, 0]
            await until(lambda: len(listener.seen) == 6, 60)
            assert listener.bodies[4:] == "xy"


async def test_a_failure_keeps_what_is_open(autojump_clock: MockClock) -> None:
    listener = Deciding(b=[ValueError("as the test wants it"), ConsumeLater()], c=[COMMIT])
    async with EmbeddedBroker() as broker, open_sender(broker) as sender:
        await sender.create_topic("orders", 1)
        await sender.send("orders", "a", "b", "c", queue=0)
        async with deciding(broker, listener):
            await until(lambda: len(listener.seen) == 5)
            assert listener.seen == [("a", 0), ("b", 0), ("b", 1), ("b", 2), ("c", 0)]
        assert committed(broker, "billing", "orders", 1) == [3]


async def test_what_is_given_up_waits_for_older_ones_only(autojump_clock: MockClock) -> None:
    listener = Deciding(b=[RejectMessage()], c=[None, COMMIT])
    async with EmbeddedBroker() as broker, open_sender(broker) as sender:
        await sender.create_topic("orders", 1)
        await sender.send("orders", "a", "b", "c", queue=0)
        async with deciding(broker, listener):
            await until(lambda: listener.bodies == "abc")
            await trio.sleep(6)
            assert committed(broker, "billing", "orders", 1) == [0]
            assert broker.store.max_offset(dead_letter_topic("billing"), 0) == 1


@pytest.mark.parametrize("how", ["rejected", "failed too often"])
async def test_a_rollback_does_not_bring_a_dead_letter_again(
    autojump_clock: MockClock, how: str
) -> None:
    refuse = RejectMessage() if how == "rejected" else ValueError("as the test wants it")
    listener = Deciding(b=[refuse], c=[ROLLBACK, None], d=[COMMIT])
    async with EmbeddedBroker() as broker, open_sender(broker) as sender:
        await sender.create_topic("orders", 1)
        await sender.send("orders", "a", "b", "c", "d", queue=0)
        async with deciding(broker, listener, max_reconsume_times=0):
            await until(lambda: listener.bodies == "abcacd")
            await trio.sleep(6)
            assert committed(broker, "billing", "orders", 1) == [4]
        assert listener.bodies == "abcacd"
        assert broker.store.max_offset(dead_letter_topic("billing"), 0) == 1


async def test_a_dead_letter_with_nothing_open_before_it_is_passed_at_once(
    autojump_clock: MockClock,
) -> None:
    listener = Deciding(a=[RejectMessage()], b=[ROLLBACK, None])
    async with EmbeddedBroker() as broker, open_sender(broker) as sender:
        await sender.create_topic("orders", 1)
        await sender.send("orders", "a", "b", queue=0)
        async with deciding(broker, listener):
            await until(lambda: listener.bodies == "abb")
            await trio.sleep(6)
            assert committed(broker, "billing", "orders", 1) == [1]
        async with deciding(broker, listener):  # the next owner begins behind it
            await until(lambda: listener.bodies == "abbb")
        assert broker.store.max_offset(dead_letter_topic("billing"), 0) == 1


async def test_a_part_of_a_batch_is_rejected_and_the_rest_rolled_back(
    autojump_clock: MockClock,
) -> None:
    seen: list[list[bytes]] = []

    async def listener(messages: list[ReceivedMessage]) -> ConsumeOrderlyStatus | None:
        seen.append([message.body for message in messages])
        if len(seen) == 1:
            raise RejectMessage(messages=messages[1:2])
        return ROLLBACK if len(seen) == 2 else COMMIT

    async with EmbeddedBroker() as broker, open_sender(broker) as sender:
        await sender.create_topic("orders", 1)
        await sender.send("orders", "a", "b", "c", "d", "e", queue=0)
        async with deciding(broker, listener, batch=3):
            await until(lambda: len(seen) == 4)
            await trio.sleep(6)
            assert committed(broker, "billing", "orders", 1) == [5]
    assert seen == [[b"a", b"b", b"c"], [b"d", b"e"], [b"a", b"c", b"d"], [b"e"]]


async def test_batches_and_plain_functions_decide_too(autojump_clock: MockClock) -> None:
    seen: list[list[bytes]] = []

    async def listener(messages: list[ReceivedMessage]) -> ConsumeOrderlyStatus | None:
        seen.append([message.body for message in messages])
        return None if len(seen) == 1 else ROLLBACK if len(seen) == 2 else COMMIT

    async with EmbeddedBroker() as broker, open_sender(broker) as sender:
        await sender.create_topic("orders", 1)
        await sender.send("orders", *"abcd", queue=0)
        async with deciding(broker, listener, batch=2):
            await until(lambda: len(seen) == 4)
        assert seen == [[b"a", b"b"], [b"c", b"d"], [b"a", b"b"], [b"c", b"d"]]
        assert committed(broker, "billing", "orders", 1) == [4]


@pytest.mark.real_time
async def test_a_plain_function_decides() -> None:
    seen: list[bytes] = []

    def listener(message: ReceivedMessage) -> ConsumeOrderlyStatus | None:
        seen.append(message.body)
        return COMMIT if message.body == b"b" else None

    async with EmbeddedBroker() as broker, open_sender(broker) as sender:
        await sender.create_topic("orders", 1)
        await sender.send("orders", *"abc", queue=0)
        async with deciding(broker, listener):
            with trio.fail_after(60):
                while len(seen) < 3:
                    await trio.sleep(0.01)
        assert committed(broker, "billing", "orders", 1) == [2]


async def test_the_next_owner_gets_what_was_open(autojump_clock: MockClock) -> None:
    one, other = Deciding(b=[COMMIT]), Deciding(d=[COMMIT])
    async with EmbeddedBroker() as broker, open_sender(broker) as sender:
        await sender.create_topic("orders", 1)
        await sender.send("orders", *"abcd", queue=0)
        leaving = trio.Event()

        async def first(task_status: trio.TaskStatus[None]) -> None:
            async with deciding(broker, one):
                await until(lambda: one.bodies == "abcd")
                task_status.started()
                await leaving.wait()

        async with trio.open_nursery() as nursery:
            await nursery.start(first)
            async with deciding(broker, other):
                leaving.set()
                await until(lambda: other.bodies == "cd", 100)
        assert committed(broker, "billing", "orders", 1) == [4]


async def test_who_never_commits_is_told_why_nothing_comes(autojump_clock: MockClock) -> None:
    listener = Deciding()
    async with EmbeddedBroker() as broker, open_sender(broker) as sender:
        await sender.create_topic("orders", 1)
        await sender.send("orders", *map(str, range(10, 50)), queue=0)
        async with deciding(
            broker, listener, pull_threshold_for_queue=8, pull_batch_size=4
        ) as consumer:
            await trio.sleep(60)
            assert 8 <= len(listener.seen) < 16
            assert "messages that the listener has not committed" in str(consumer.health())


@pytest.mark.parametrize(
    ("options", "answer", "text"),
    [
        ({}, True, "COMMIT, ConsumeOrderlyStatus.ROLLBACK, or None"),
        ({"auto_commit": True}, COMMIT, "make it with orderly=True, auto_commit=False"),
        ({"auto_commit": True, "orderly": False}, ROLLBACK, "auto_commit=False"),
    ],
)
async def test_other_answers_are_refused(
    autojump_clock: MockClock, options: dict[str, Any], answer: object, text: str
) -> None:
    async with EmbeddedBroker() as broker, open_sender(broker) as sender:
        await sender.create_topic("orders", 1)
        await sender.send("orders", "a", queue=0)
        with pytest.raises(ConfigurationError, match=text):
            async with deciding(broker, Deciding(a=[answer]), **options):
                await trio.sleep(10)


def test_only_in_order_is_there_something_to_commit() -> None:
    with pytest.raises(ConfigurationError, match="auto_commit=False needs orderly=True"):
        PushConfig(auto_commit=False)


async def test_broadcasting_members_decide_for_themselves(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    listener = Deciding(b=[COMMIT])
    options: dict[str, Any] = {
        "message_model": MessageModel.BROADCASTING,
        "local_offset_store_dir": tmp_path,
        "consume_from": ConsumeFrom.FIRST_OFFSET,
    }
    async with EmbeddedBroker() as broker, open_sender(broker) as sender:
        await sender.create_topic("orders", 1)
        await sender.send("orders", *"abc", queue=0)
        async with deciding(broker, listener, **options):
            await until(lambda: listener.bodies == "abc")
        again = Deciding()
        async with deciding(broker, again, **options):
            await until(lambda: again.bodies == "c")


async def test_an_administrator_is_told_what_the_listener_decided(
    autojump_clock: MockClock,
) -> None:
    listener = Deciding(a=[None, COMMIT, ROLLBACK])
    async with EmbeddedBroker() as broker, open_sender(broker) as sender:
        await sender.create_topic("orders", 1)
        await sender.send("orders", "a", queue=0)
        async with deciding(broker, listener) as consumer:
            await until(lambda: listener.seen)
            client = consumer._arguments.client
            (queue,) = [queue for queue in consumer.statistics().queues if queue.topic == "orders"]
            stored = await consumer.messages.at(queue, 0)
            header = ConsumeMessageDirectlyResultRequestHeader(
                consumer_group="billing",
                client_id=client.client_id,
                msg_id=stored.offset_message_id,
                topic="orders",
            )
            answers = [
                await client.call_broker(
                    "broker-a", Command.request(RequestCode.CONSUME_MESSAGE_DIRECTLY, header)
                )
                for _ in range(2)
            ]
            assert [b"CR_COMMIT" in answers[0].body, b"CR_ROLLBACK" in answers[1].body] == [
                True,
                True,
            ]
