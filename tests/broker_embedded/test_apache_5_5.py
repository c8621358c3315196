"""What clients, tools, proxies and directories of Apache RocketMQ 5.5 bring along.

A broker of 5.4's level must not stumble over it.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
import trio
import trio.testing

from rocketmq_sdk import Message
from rocketmq_sdk.codes import RequestCode, ResponseCode
from rocketmq_sdk.errors import ConfigurationError
from rocketmq_sdk.protocol.command import Command
from support.broker import open_broker, pull_request
from support.popping import Popper, make_topic

if TYPE_CHECKING:
    from pathlib import Path

    from trio.testing import MockClock

LITE_CODES = range(200070, 200080)


@pytest.mark.parametrize("code", LITE_CODES)
async def test_requests_of_lite_topics_are_refused_by_name(
    code: int, autojump_clock: MockClock
) -> None:
    async with open_broker() as (_, peer):
        answer = await peer.ask(Command(code, ext_fields={"topic": "T", "group": "g"}))
        assert answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
        assert RequestCode(code).name in (answer.remark or "")
        assert "lite topics" in (answer.remark or "")


def test_codes_of_quotas_have_names() -> None:
    assert ResponseCode(2017).name == "LMQ_QUOTA_EXCEEDED"
    assert ResponseCode(2018).name == "LITE_SUBSCRIPTION_QUOTA_EXCEEDED"


def test_the_property_of_lite_topics_is_reserved() -> None:
    with pytest.raises(ConfigurationError, match="__LITE_TOPIC"):
        Message("T", b"x", properties={"__LITE_TOPIC": "chat"})


@pytest.mark.parametrize("group", ["never-seen", "CID_RMQ_SYS_TRANS", "%RETRY%x"])
async def test_every_group_has_a_configuration(group: str, autojump_clock: MockClock) -> None:
    """A 5.5 proxy registers no consumer of a group that the broker does not know."""
    async with open_broker() as (_, peer):
        answer = await peer.ask(RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG, group=group)
        assert answer.code == 0, answer.remark
        assert json.loads(answer.body)["groupName"] == group


async def test_groups_that_nobody_may_make_are_unknown(autojump_clock: MockClock) -> None:
    async with open_broker(auto_create_subscription_group=False) as (_, peer):
        answer = await peer.ask(RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG, group="never-seen")
        assert answer.code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST


async def test_a_heartbeat_of_a_lite_consumer_is_taken(autojump_clock: MockClock) -> None:
    async with open_broker() as (broker, peer):
        data = {
            "clientID": "lite",
            "producerDataSet": [],
            "consumerDataSet": [
                {
                    "groupName": "g",
                    "consumeType": "CONSUME_PASSIVELY",
                    "messageModel": "LITE_SELECTIVE",
                    "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET",
                    "subscriptionDataSet": [],
                    "newMember": {"of": "5.6"},
                }
            ],
        }
        answer = await peer.ask(Command(RequestCode.HEART_BEAT, body=json.dumps(data).encode()))
        assert answer.code == 0, answer.remark
        answer = await peer.ask(RequestCode.GET_CONSUMER_CONNECTION_LIST, consumerGroup="g")
        assert answer.code == 0, answer.remark
        assert broker.parts.members.consumers.group("g") is not None


TOPIC = {
    "attributes": {"message.type": "LITE", "lite.topic.expiration": "60"},
    "order": False,
    "perm": 6,
    "readQueueNums": 4,
    "topicFilterType": "SINGLE_TAG",
    "topicName": "parent",
    "topicSysFlag": 0,
    "writeQueueNums": 4,
}
GROUP = {
    "attributes": {"lite.bind.topic": "parent", "lite.sub.model": "Exclusive"},
    "consumeEnable": True,
    "groupName": "lite-group",
    "retryMaxTimes": 16,
}
VERSION = {"counter": 3, "stateVersion": 0, "timestamp": 1}


async def test_a_directory_with_lite_topics_keeps_what_they_need(tmp_path: Path) -> None:
    config = trio.Path(tmp_path / "config")
    await config.mkdir()
    lite = {"offsetTable": {"%LMQ%$parent$chat@lite-group": {"0": 5}}, "dataVersion": VERSION}
    files: dict[str, dict[str, Any]] = {
        "topics.json": {"topicConfigTable": {"parent": TOPIC}, "dataVersion": VERSION},
        "subscriptionGroup.json": {
            "subscriptionGroupTable": {"lite-group": GROUP},
            "forbiddenTable": {},
            "dataVersion": VERSION,
        },
        "lmqConsumerOffset.json": lite,
        "consumerOffset.json": lite,
    }
    for name, content in files.items():
        await (config / name).write_text(json.dumps(content))
    await trio.Path(tmp_path / "consumequeue_rocksdb").mkdir()
    for _ in range(2):
        async with open_broker(tmp_path) as (_broker, peer):
            await peer.send("parent", b"x", properties="__LITE_TOPIC\x01chat\x02")
            await peer.send("other", b"x")
            answer = await peer.ask(RequestCode.GET_TOPIC_CONFIG, topic="parent")
            assert json.loads(answer.body)["attributes"] == TOPIC["attributes"]
            answer = await peer.ask(RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG, group="lite-group")
            assert json.loads(answer.body)["attributes"] == GROUP["attributes"]
    topics = json.loads(await (config / "topics.json").read_text())
    assert topics["topicConfigTable"]["parent"]["attributes"] == TOPIC["attributes"]
    assert json.loads(await (config / "lmqConsumerOffset.json").read_text()) == lite
    offsets = json.loads(await (config / "consumerOffset.json").read_text())
    assert offsets["offsetTable"].items() >= lite["offsetTable"].items()


async def test_topics_of_the_type_are_refused(autojump_clock: MockClock) -> None:
    async with open_broker() as (_, peer):
        answer = await peer.ask(
            RequestCode.UPDATE_AND_CREATE_TOPIC,
            topic="parent",
            defaultTopic="TBW102",
            readQueueNums=4,
            writeQueueNums=4,
            perm=6,
            topicFilterType="SINGLE_TAG",
            topicSysFlag=0,
            order="false",
            attributes="+message.type=LITE",
        )
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert "LITE asks for lite topics" in (answer.remark or "")


class MoreFields(Popper):
    """Sends more fields than this release knows."""

    more: dict[str, str] = {}  # noqa: RUF012

    async def call_broker(self, _broker_name: str, command: Command, *rest: Any, **how: Any) -> Any:
        command.ext_fields.update(self.more)
        return await super().call_broker(_broker_name, command, *rest, **how)


async def test_fields_that_5_5_adds_are_accepted(autojump_clock: MockClock) -> None:
    async with open_broker() as (_, peer):
        await make_topic(peer, "T", queues=1)
        for number in range(2):
            await peer.send("T", bytes([number]))
        request = pull_request("T", 0)
        request.ext_fields["liteTopic"] = ""
        assert (await peer.ask(request)).code == 0
        popper = MoreFields(peer, "T")
        first, second = (await popper.pop()).handles
        popper.more = {"suspend": "true", "liteTopic": ""}
        await popper.change(first, 30_000)
        await popper.ack(second)
        fields = {"topic": "T", "queueId": 0, "timestamp": 0, "liteTopic": ""}
        assert (await peer.ask(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, **fields)).code == 0


@pytest.mark.parametrize("kind", ["TAG", "SQL92"])
async def test_a_notification_waits_for_what_its_filter_wants(
    kind: str, autojump_clock: MockClock
) -> None:
    wanted = {"exp_type": kind, "exp": "red" if kind == "TAG" else "a = 1"}
    async with open_broker() as (_, peer):
        await make_topic(peer, "T", queues=1)
        popper = Popper(peer, "T")
        found: list[float] = []

        async def ask() -> None:
            assert await popper.has_messages(hold=20, **wanted)
            found.append(trio.current_time() - begin)

        begin = trio.current_time()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask)
            await trio.sleep(1)
            await peer.send("T", b"no", tag="blue", properties="a\x012\x02")
            await trio.sleep(1)
            assert found == []
            await peer.send("T", b"yes", tag="red", properties="a\x011\x02")
        assert found == [pytest.approx(2, abs=0.1)]


async def test_a_notification_looks_behind_what_it_does_not_want(
    autojump_clock: MockClock,
) -> None:
    """Apache's looks at 32 messages, and does not tell of one behind them."""
    async with open_broker() as (_, peer):
        await make_topic(peer, "T", queues=1)
        popper = Popper(peer, "T")
        for _ in range(50):
            await peer.send("T", b"no", tag="blue")
        assert await popper.has_messages()
        red = {"exp_type": "TAG", "exp": "red || green"}
        assert not await popper.has_messages(**red)
        await peer.send("T", b"yes", tag="red")
        assert await popper.has_messages(**red)
        assert not await popper.has_messages(exp_type="TAG", exp="white")
        for _ in range(14):
            await peer.send("T", b"no", tag="blue")
        assert await popper.has_messages(exp_type="TAG", exp="white"), "too many to look at each"


async def test_a_notification_with_a_bad_expression_is_refused(autojump_clock: MockClock) -> None:
    async with open_broker() as (_, peer):
        await make_topic(peer, "T", queues=1)
        fields = {
            "consumerGroup": "g",
            "topic": "T",
            "queueId": -1,
            "expType": "SQL92",
            "exp": "a =",
        }
        answer = await peer.ask(RequestCode.NOTIFICATION, pollTime=0, bornTime=0, **fields)
        assert answer.code == ResponseCode.SUBSCRIPTION_PARSE_FAILED
