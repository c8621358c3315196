"""What walks lists and tables lets the others have their turn."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
import trio
import trio.lowlevel

from rocketmq_sdk.broker_embedded.slices import LARGE, SLICE, answer_of, slices
from rocketmq_sdk.codes import RequestCode, ResponseCode
from rocketmq_sdk.model.enums import ConsumeFrom, ConsumeType, MessageModel
from rocketmq_sdk.protocol.bodies.members import ConsumerData, HeartbeatData
from rocketmq_sdk.protocol.bodies.topics import TopicConfig, TopicList
from rocketmq_sdk.protocol.command import Command
from rocketmq_sdk.protocol.message_codec import decode_messages
from rocketmq_sdk.protocol.subscription import SQL92, build_subscription
from support.broker import connect, open_broker, pull_request
from support.turns import counted_turns
from support.waiting import until

if TYPE_CHECKING:
    from trio.testing import MockClock

    from support.broker import Peer


async def turns_during(peer: Peer, command: Command) -> tuple[Command, int]:
    """The answer, and how often others had their turn before it came."""
    async with counted_turns() as turns:
        answer = await peer.ask(command)
    return answer, turns()


async def test_slices_hold_everything_once(autojump_clock: MockClock) -> None:
    for count in (0, 1, 255, 256, 257, 1000):
        parts = [list(part) async for part in slices(range(count))]
        assert [item for part in parts for item in part] == list(range(count))
        assert all(len(part) <= 256 for part in parts)


@pytest.mark.real_time
async def test_large_answers_are_those_of_small_ones() -> None:
    names = tuple(f"t{number}" for number in range(LARGE + 1))
    small, large = answer_of(TopicList(names), 1), answer_of(TopicList(names), LARGE + 1)
    assert isinstance(small, Command)
    assert not isinstance(large, Command)
    answer = await large()
    assert answer is not None
    assert answer.body == small.body


@pytest.mark.real_time
@pytest.mark.parametrize(
    "code",
    [
        RequestCode.GET_TOPIC_STATS_INFO,
        RequestCode.GET_CONSUME_STATS,
        RequestCode.QUERY_CONSUME_TIME_SPAN,
        RequestCode.GET_BROKER_CONSUME_STATS,
        RequestCode.INVOKE_BROKER_TO_RESET_OFFSET,
    ],
)
async def test_a_topic_of_very_many_queues(code: RequestCode) -> None:
    async with open_broker() as (broker, peer):
        broker.core.topics.put(TopicConfig("big", 8000, 8000))
        await peer.ask(pull_request("big", 0, group="G"))
        broker.core.offsets.commit("G", "big", 7, 1)
        fields = {"topic": "big", "group": "G", "consumerGroup": "G", "isOrder": "false"}
        fields |= {"timestamp": "-1", "isForce": "true"}
        answer, turns = await turns_during(peer, Command(code, ext_fields=fields))
        assert answer.code == ResponseCode.SUCCESS
        assert turns > 20
        assert b"7999" in answer.body


@pytest.mark.parametrize("code", [RequestCode.POP_MESSAGE, RequestCode.PEEK_MESSAGE])
async def test_a_pop_of_very_many_queues(code: RequestCode, autojump_clock: MockClock) -> None:
    queues = 20_000
    async with open_broker() as (broker, peer):
        broker.core.topics.put(TopicConfig("wide", queues, queues))
        broker.core.groups.get("CG")
        await peer.send("wide", b"one", queue_id=queues - 1)
        fields = {"topic": "wide", "consumerGroup": "CG", "queueId": "-1", "maxMsgNums": "32"}
        fields |= {"invisibleTime": "1000", "pollTime": "0", "bornTime": "0", "initMode": "0"}
        answer, turns = await turns_during(peer, Command(code, ext_fields=fields))
        assert answer.code == ResponseCode.SUCCESS
        assert [message.body for message in decode_messages(answer.body)] == [b"one"]
        assert turns > queues // SLICE


@pytest.mark.parametrize("code", [RequestCode.POP_MESSAGE, RequestCode.NOTIFICATION])
async def test_what_comes_while_a_pop_looks_at_very_many_queues_is_not_lost(
    code: RequestCode, autojump_clock: MockClock
) -> None:
    queues = 20_000
    async with open_broker() as (broker, peer), trio.open_nursery() as nursery:
        broker.core.topics.put(TopicConfig("wide", queues, queues))
        broker.core.groups.get("CG")
        broker.parts.pop._popper._draw = lambda: 0
        fields = {"topic": "wide", "consumerGroup": "CG", "queueId": "-1", "maxMsgNums": "32"}
        fields |= {"invisibleTime": "1000", "pollTime": "20000", "bornTime": "0", "initMode": "0"}
        answers: list[Command] = []

        @nursery.start_soon
        async def pop() -> None:
            answers.append(await peer.ask(Command(code, ext_fields=fields)))

        for _ in range(30):
            await trio.lowlevel.checkpoint()
        assert not answers
        first = queues - 1 if code == RequestCode.POP_MESSAGE else 0
        await peer.send("wide", b"in the first queue", queue_id=first)
        began = trio.current_time()
        while not answers:
            await trio.sleep(0.1)
            assert trio.current_time() - began < 5
        assert answers[0].code == ResponseCode.SUCCESS
        assert answers[0].ext_fields.get("hasMsg", "true") == "true"


def large_heartbeat(groups: int, **more: object) -> Command:
    members = [
        {"groupName": f"g{number}", "subscriptionDataSet": [{"topic": "T", "subString": "*"}]}
        for number in range(groups)
    ]
    body = {"clientID": "c", "consumerDataSet": members, **more}
    return Command(RequestCode.HEART_BEAT, body=json.dumps(body).encode())


@pytest.mark.real_time
@pytest.mark.parametrize("more", [{}, {"heartbeatFingerprint": 5}])
async def test_a_heartbeat_of_very_many_groups(more: dict[str, object]) -> None:
    async with open_broker() as (broker, peer):
        answer, turns = await turns_during(peer, large_heartbeat(1000, **more))
        assert answer.code == ResponseCode.SUCCESS
        assert turns > 3
        consumers = broker.parts.members.consumers
        for number in (0, 255, 256, 999):
            group = consumers.group(f"g{number}")
            assert group is not None
            assert "T" in group.subscriptions
            assert broker.core.topics.get(f"%RETRY%g{number}") is not None


@pytest.mark.real_time
async def test_a_large_heartbeat_of_a_closing_connection_leaves_no_member() -> None:
    async with open_broker() as (broker, peer):
        pending = peer.channel.submit(large_heartbeat(2000), 30.0)
        consumers = broker.parts.members.consumers
        with trio.fail_after(60):
            while consumers.group("g0") is None:
                await trio.lowlevel.checkpoint()
        await peer.channel.aclose()
        assert pending.done
        await trio.sleep(0.1)
        await until(lambda: all(consumers.group(f"g{n}") is None for n in range(2000)))


async def test_one_message_that_wakes_thousands(autojump_clock: MockClock) -> None:
    """All of them are answered with it; others have their turn meanwhile."""
    async with open_broker() as (broker, peer):
        await peer.send("T", b"first")
        many = 5000
        waiting = [peer.channel.submit(pull_request("T", 1, hold=60), 120.0) for _ in range(many)]
        await trio.testing.wait_all_tasks_blocked()
        assert broker.parts.pull.held.held == many
        await peer.send("T", b"second")
        assert broker.parts.pull.held.held == many  # the send did not wait for its readers
        turns = 0
        while not all(call.done for call in waiting):
            turns += 1
            await trio.lowlevel.checkpoint()
        assert turns > many / 100
        assert {call.response.code for call in waiting if call.response} == {ResponseCode.SUCCESS}
        assert broker.parts.pull.held.held == 0


async def test_closing_while_thousands_are_being_woken(autojump_clock: MockClock) -> None:
    async with open_broker() as (broker, peer):
        await peer.send("T", b"first")
        waiting = [peer.channel.submit(pull_request("T", 1, hold=60), 120.0) for _ in range(3000)]
        await trio.testing.wait_all_tasks_blocked()
        await peer.send("T", b"second")
        broker.parts.pull.held.release_all()
        await trio.testing.wait_all_tasks_blocked()
        assert all(call.done for call in waiting)


async def test_long_expressions_of_a_heartbeat_are_compiled_beside_the_loop(
    autojump_clock: MockClock,
) -> None:
    count = 4
    long = " AND ".join(f"name <> 'no {number}'" for number in range(300))
    async with open_broker() as (broker, peer), trio.open_nursery() as nursery:
        client = await connect(broker, nursery)
        await peer.send("T", b"yes", properties="name\x01yes\x02", queue_id=0)
        await peer.send("T", b"no", properties="name\x01no 7\x02", queue_id=0)
        groups = tuple(
            ConsumerData(
                f"G{number}",
                ConsumeType.CONSUME_PASSIVELY,
                MessageModel.CLUSTERING,
                ConsumeFrom.LAST_OFFSET,
                (build_subscription("T", f"{long} AND {number} = {number}", SQL92, sub_version=1),),
            )
            for number in range(count)
        )
        body = HeartbeatData("client", (), groups).encode()
        answer, turns = await turns_during(client, Command(RequestCode.HEART_BEAT, body=body))
        assert answer.code == 0
        assert turns > count
        for number in range(count):
            found = await client.pull("T", 0, group=f"G{number}", expression=None, sub_version=1)
            assert [message.body for message in found] == [b"yes"]
        nursery.cancel_scope.cancel()
