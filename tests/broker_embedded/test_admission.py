"""What is admitted of a request: sizes, lengths, ranges, nesting, texts.

The rows and the header and body classes say it, one mechanism judges it.
"""

from __future__ import annotations

import json
import threading
import tracemalloc
import zlib
from struct import pack
from typing import TYPE_CHECKING, cast

import pytest
import trio

from rocketmq_sdk.broker_embedded.broker import EmbeddedBroker
from rocketmq_sdk.broker_embedded.needs import AUTHENTICATED
from rocketmq_sdk.broker_embedded.request import WHOLE_FRAME, Request, handlers_of
from rocketmq_sdk.codes import RequestCode, ResponseCode
from rocketmq_sdk.protocol.bodies.members import HeartbeatData
from rocketmq_sdk.protocol.command import Command
from rocketmq_sdk.protocol.flags import HeaderEncoding
from rocketmq_sdk.protocol.json.dialect import decode_json
from rocketmq_sdk.remoting.budget import MemoryBudget
from support.broker import connect, heartbeat, open_broker, pull_request, send_request, subscription

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rocketmq_sdk.remoting.channel import Channel


async def ask(command: Command, *, name_server: bool = False) -> Command:
    """The answer to one request, which a second and ordinary one proves harmless."""
    async with open_broker() as (broker, good), trio.open_nursery() as nursery:
        peer = await connect(broker, nursery, namesrv=name_server)
        answer = await peer.ask(command)
        await good.send("Good", b"x")
        nursery.cancel_scope.cancel()
    return answer


def assert_refused(answer: Command, *parts: str) -> None:
    """The answer names what was not admitted."""
    assert answer.code == ResponseCode.INVALID_PARAMETER
    for part in parts:
        assert part in (answer.remark or "")
    assert len(answer.remark or "") < 400


def body(members: object) -> bytes:
    return json.dumps(members).encode()


GROUP = {"consumerGroup": "G", "topic": "T", "queueId": "0"}


@pytest.mark.parametrize(
    ("code", "fields", "data", "named"),
    [
        pytest.param(
            RequestCode.UPDATE_CONSUMER_OFFSET,
            {**GROUP, "commitOffset": "1", "consumerGroup": "g" * 5000},
            b"",
            ("UpdateConsumerOffsetRequestHeader", "consumerGroup", "5000", "4096"),
            id="a text of a header",
        ),
        pytest.param(
            RequestCode.POP_MESSAGE,
            {**GROUP, "attemptId": "a" * 100_000, "pollTime": "0"},
            b"",
            ("PopMessageRequestHeader", "attemptId", "100000", "4096"),
            id="a text of a header that is read by hand",
        ),
        pytest.param(
            RequestCode.UPDATE_AND_CREATE_TOPIC,
            {
                "topic": "New",
                "defaultTopic": "TBW102",
                "readQueueNums": "70000",
                "writeQueueNums": "1",
                "perm": "6",
                "topicFilterType": "SINGLE_TAG",
            },
            b"",
            ("CreateTopicRequestHeader", "readQueueNums", "70000", "0 to 65536"),
            id="a number of a header",
        ),
        pytest.param(
            RequestCode.UPDATE_AND_CREATE_TOPIC_LIST,
            {},
            body({"topicConfigList": [{"topicName": "A"}, {"topicName": "B", "perm": -1}]}),
            ("TopicConfig", "perm", "-1", "0 to 15"),
            id="a number inside a list of a body",
        ),
        pytest.param(
            RequestCode.HEART_BEAT,
            {},
            body({"clientID": "c", "producerDataSet": [{"groupName": "p"}] * 5000}),
            ("HeartbeatData", "producerDataSet", "5000", "4096"),
            id="a list of a body",
        ),
        pytest.param(
            RequestCode.LOCK_BATCH_MQ,
            {},
            body({"clientId": "c", "consumerGroup": "g", "mqSet": [{"queueId": 1}] * 20_000}),
            ("LockBatchRequestBody", "mqSet", "20000", "16384"),
            id="a list with a limit of its own",
        ),
        pytest.param(
            RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
            {},
            body({"groupName": "g", "extra": json.loads("[" * 60 + "]" * 60)}),
            ("SubscriptionGroupConfig", "extra", "nested deeper than 32"),
            id="nesting",
        ),
        pytest.param(
            RequestCode.HEART_BEAT,
            {},
            b" " * 1_100_000,
            ("HEART_BEAT", "1100000 bytes", "1048576"),
            id="a body",
        ),
        pytest.param(
            RequestCode.ACK_MESSAGE,
            {},
            b" " * 1_100_000,
            ("ACK_MESSAGE", "1100000 bytes", "1048576"),
            id="a body that nobody reads",
        ),
    ],
)
async def test_what_is_over_a_limit_is_refused_by_name(
    code: RequestCode, fields: Mapping[str, str], data: bytes, named: tuple[str, ...]
) -> None:
    assert_refused(await ask(Command(code, ext_fields=dict(fields), body=data)), *named)


async def test_the_name_server_admits_by_the_same_rules() -> None:
    fields = {"namespace": "n", "key": "k", "value": "v" * 70_000}
    answer = await ask(Command(RequestCode.PUT_KV_CONFIG, ext_fields=fields), name_server=True)
    assert_refused(answer, "PutKVConfigRequestHeader", "value", "70000", "65536")


@pytest.mark.parametrize(("topics", "strict"), [(400, True), (100, False), (10, False)])
async def test_a_large_body_is_decoded_beside_the_loop_and_served_as_others(
    topics: int, strict: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: list[str] = []
    decode = HeartbeatData.decode

    def noted(data: bytes, *, tolerated: int) -> HeartbeatData:
        threads.append(threading.current_thread().name)
        return decode(data, tolerated=tolerated)

    monkeypatch.setattr(HeartbeatData, "decode", noted)
    async with open_broker() as (broker, peer):
        beat = heartbeat("client", "Large", *(subscription(f"T{each}") for each in range(topics)))
        if not strict:
            beat.body = beat.body.replace(b'"', b"'")
        assert (len(beat.body) > 32 * 1024) is strict
        assert (await peer.ask(beat)).code == ResponseCode.SUCCESS
        group = broker.parts.members.consumers.group("Large")
        assert group is not None
        assert len(group.subscriptions) == topics
    # What is not strict JSON is looked at on the loop, and read there if it is small.
    main, last = threading.main_thread().name, threads[-1]
    assert threads[:-1] == ([] if strict or topics < 20 else [main])
    assert (last == main) is (topics < 20)


async def test_acks_that_are_not_strict_json_are_read_up_to_a_bound() -> None:
    async with open_broker() as (_broker, peer):
        for entries, code in ((1, ResponseCode.NO_MESSAGE), (5000, ResponseCode.SYSTEM_ERROR)):
            body = b"{'acks':{},'more':[%s]}" % b",".join([b"1"] * entries)
            answer = await peer.ask(Command(RequestCode.BATCH_ACK_MESSAGE, body=body))
            assert answer.code == code
        assert "not strict JSON" in (answer.remark or "")


async def test_what_a_large_body_takes_counts_while_it_is_decoded() -> None:
    budget, counted = MemoryBudget(1 << 30), list[int]()

    def read(command: Command, *_header: object) -> object:
        counted.append(budget.used)
        return decode_json(command.body)

    row = Request(
        RequestCode.REGISTER_BROKER,
        lambda _value: Command.response(),
        AUTHENTICATED,
        read_body=read,
        unpacked=lambda command: 100_000 if command.flag else 0,
    )
    handler = handlers_of([row], memory=budget)[row.code]
    channel = cast("Channel", None)
    data = b"[" + b"{}," * 20_000 + b"{}]"

    async def answer(command: Command) -> Command:
        later = handler(channel, command)
        assert later is not None
        assert not isinstance(later, Command)
        found = await later()
        assert found is not None
        return found

    tracemalloc.start()
    assert (await answer(Command(row.code, body=data))).code == ResponseCode.SUCCESS
    took = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert took <= counted[0] <= 2 * took
    assert budget.used == 0
    assert (await answer(Command(row.code, flag=1, body=b"[]"))).code == ResponseCode.SUCCESS
    assert counted[1] == 800_000
    assert budget.used == 0


async def test_a_small_registration_that_inflates_is_decoded_beside_the_loop() -> None:
    """A bomb of a few KiB costs no turn of the loop, and has a limit of topics."""
    topics = b"".join(pack(">i", 10) + b"t%05x 1 1" % number for number in range(300_000))
    data = zlib.compress(pack(">i", 2) + b"{}" + pack(">i", 300_000) + topics)
    bomb = zlib.compress(bytes(15_000_000))
    fields = {
        "brokerName": "a",
        "brokerAddr": "10.0.0.1:1",
        "clusterName": "c",
        "haServerAddr": "10.0.0.1:2",
        "brokerId": "0",
        "compressed": "true",
        "bodyCrc32": "0",
    }
    async with open_broker() as (broker, _good), trio.open_nursery() as nursery:
        peer = await connect(broker, nursery, namesrv=True)
        for made, named in ((data, "300000 topics"), (bomb, "")):
            command = Command(RequestCode.REGISTER_BROKER, ext_fields=fields, body=made)
            command.version = 500
            refused = await peer.ask(command)
            assert refused.code != ResponseCode.SUCCESS
            assert named in (refused.remark or "")
        assert broker.namesrv.table.queues.topics() != []  # the own broker's
        nursery.cancel_scope.cancel()


async def test_every_row_says_how_large_its_body_may_be() -> None:
    async with EmbeddedBroker() as broker:
        for row in (*broker.requests, *broker.namesrv.requests):
            assert 0 < row.body_limit <= WHOLE_FRAME


@pytest.mark.parametrize("encoding", list(HeaderEncoding))
@pytest.mark.parametrize("lone", ["\ud800", "a\udfffb", "\udc00\ud800"])
async def test_half_a_surrogate_pair_is_a_question_mark_everywhere(
    lone: str, encoding: HeaderEncoding
) -> None:
    """As Apache writes it, over a stream and inside a process."""
    async with open_broker() as (broker, _peer), trio.open_nursery() as nursery:
        for through_codec in (False, True):
            peer = await connect(broker, nursery, namesrv=True, through_codec=through_codec)
            fields = {"namespace": "n", "key": "k", "value": lone}
            put = Command(RequestCode.PUT_KV_CONFIG, ext_fields=fields, encoding=encoding)
            assert (await peer.ask(put)).code == ResponseCode.SUCCESS
            assert broker.namesrv.kv.get("n", "k") == lone.encode("utf-8", "replace").decode()
        nursery.cancel_scope.cancel()


async def test_half_a_surrogate_pair_in_a_body_is_a_question_mark() -> None:
    async with open_broker() as (broker, peer):
        data = b'{"groupName":"g","note":"\\ud800","\\udc00":[{"\\ud83d":"\\ud83d\\ude00"}]}'
        update = Command(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=data)
        assert (await peer.ask(update)).code == ResponseCode.SUCCESS
        found = broker.core.groups.find_existing("g")
        assert found is not None
        assert found.extra == {"note": "?", "?": [{"?": "\U0001f600"}]}


async def test_long_expressions_are_refused_and_shorter_ones_are_not() -> None:
    async with open_broker() as (_broker, peer):
        await peer.ask(send_request("T", b"x"))
        short = await peer.ask(pull_request("T", 0, expression="a || " * 1000 + "b"))
        assert short.code == ResponseCode.PULL_RETRY_IMMEDIATELY
        long = await peer.ask(pull_request("T", 0, expression="a" * 70_000))
        assert_refused(long, "PullMessageRequestHeader", "subscription", "70000", "65536")
