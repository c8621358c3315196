"""Well-formed frames with hostile contents: each is answered in words for the peer, and
a well-behaved client beside it does not notice.
"""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING

import pytest
import trio

from rocketmq_sdk.codes import RequestCode, ResponseCode
from rocketmq_sdk.protocol.batch_codec import encode_batch
from rocketmq_sdk.protocol.command import Command
from rocketmq_sdk.protocol.frame import encode_frame
from support.broker import heartbeat, pull_request, send_request, subscription
from support.hostile import assert_quiet, assert_sensible, good_client, raw_client, resident_bytes
from support.processes import BrokerProcess, broker_process

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.real_time

MEBIBYTE = 1024 * 1024
NUMBERS = (
    None,
    "",
    "x",
    "1.5",
    "-1",
    str(2**31),
    str(2**40),
    str(2**62),
    str(2**63),
    "9" * 5000,
    "\0",
    "-" + str(2**70),
)


@pytest.fixture(scope="module")
def broker() -> Iterator[BrokerProcess]:
    with broker_process(messageDelayLevel="1s 2s") as process:
        yield process
        assert process.process is not None
        assert process.process.poll() is None
        assert_quiet(process.log)


async def ask_all(
    broker: BrokerProcess, commands: list[Command], server: str = "address"
) -> list[int]:
    """The codes of the answers, asked one after the other beside the well-behaved
    client; the broker's own requests are passed over.
    """
    codes: list[int] = []
    async with good_client(broker.address), raw_client(getattr(broker, server)) as client:
        for command in commands:
            answer = await client.ask(command)
            while answer is not None and not answer.is_response:
                answer = await client.answer()
            codes.append(
                assert_sensible(
                    answer, (command, str(command.ext_fields)[:200], command.body[:100])
                ).code
            )
    return codes


def altered(command: Command, name: str, value: str | None) -> Command:
    """The command with one field changed, or without it."""
    ext = dict(command.ext_fields)
    if value is None:
        ext.pop(name, None)
    else:
        ext[name] = value
    return Command(command.code, ext_fields=ext, body=command.body)


async def test_fields_of_sends(broker: BrokerProcess) -> None:
    commands = [
        altered(send_request("Fields", b"x"), name, value)
        for name in "abcdefghijkl"
        for value in NUMBERS
    ]
    commands += [
        altered(send_request(f"New{number}", b"x"), "d", value)
        for number, value in enumerate(NUMBERS)
    ]
    await ask_all(broker, commands)


async def test_fields_of_pulls(broker: BrokerProcess) -> None:
    pull = pull_request("PullFields", 0)
    commands = [send_request("PullFields", b"x")]
    commands += [
        altered(pull, name, value)
        for name in pull.ext_fields
        if name != "suspendTimeoutMillis"
        for value in NUMBERS
    ]
    await ask_all(broker, commands)


async def test_what_is_missing_or_out_of_range_is_refused(broker: BrokerProcess) -> None:
    codes = await ask_all(
        broker,
        [
            send_request("Range", b"x"),
            altered(send_request("Range", b"x"), "e", str(2**40)),
            send_request("Range", b"x", queue_id=-1),
            altered(send_request("Range", b"x"), "f", str(2**40)),
            altered(send_request("Range", b"x"), "g", None),
            pull_request("Range", 0, queue_id=-1),
            pull_request("Range", -1),
            pull_request("Range", 2**63 - 1),
            pull_request("Range", 0, max_msg_nums=2**31 - 1),
            pull_request("Range", 0, max_msg_nums=-1),
            pull_request("Range", 0, expression="x" * 5_000_000),
        ],
    )
    assert codes == [
        ResponseCode.SUCCESS,
        ResponseCode.INVALID_PARAMETER,
        ResponseCode.SUCCESS,
        ResponseCode.SYSTEM_ERROR,
        ResponseCode.SYSTEM_ERROR,
        ResponseCode.INVALID_PARAMETER,
        ResponseCode.PULL_OFFSET_MOVED,
        ResponseCode.PULL_OFFSET_MOVED,
        ResponseCode.SUCCESS,
        ResponseCode.SUCCESS,
        ResponseCode.INVALID_PARAMETER,
    ]


@pytest.mark.parametrize(
    "topic",
    [
        "../x",
        ".",
        "..",
        "a/b",
        "",
        " ",
        "t" * 300,
        "t" * 128,
        "ü",
        "a\0b",
        "%RETRY%../x",
        "%RETRY%" + "g" * 300,
    ],
)
async def test_topics_that_are_no_names(broker: BrokerProcess, topic: str) -> None:
    send, batch, pull = await ask_all(
        broker,
        [
            send_request(topic, b"x"),
            send_request(topic, encode_batch([(0, b"x", b"")]), batch=True),
            pull_request(topic, 0),
        ],
    )
    assert send == batch == ResponseCode.INVALID_PARAMETER
    assert pull == ResponseCode.TOPIC_NOT_EXIST


async def test_groups_that_are_no_names(broker: BrokerProcess) -> None:
    groups = ["../x", ".", "a/b", "", " ", "g" * 300, "g@h", "a\0b"]
    codes = await ask_all(
        broker,
        [
            send_request("Groups", b"x"),
            *(pull_request("Groups", 0, group=group) for group in groups),
        ],
    )
    assert codes[1:] == [ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST] * len(groups)


PROPERTIES = {
    "200000 characters": ("a" * 200_000, ResponseCode.MESSAGE_ILLEGAL),
    "40000 bytes": ("k\x01" + "v" * 40_000 + "\x02", ResponseCode.MESSAGE_ILLEGAL),
    "no separators": ("abc", ResponseCode.SUCCESS),
    "only separators": ("\x01\x02" * 100, ResponseCode.SUCCESS),
    "delay of a word": ("DELAY\x01x\x02", ResponseCode.SYSTEM_ERROR),
    "delay of 5000 digits": ("DELAY\x01" + "9" * 5000 + "\x02", ResponseCode.SYSTEM_ERROR),
    "delay below 0": ("DELAY\x01-5\x02", ResponseCode.SUCCESS),
    "delay beyond all levels": ("DELAY\x012147483648000\x02", ResponseCode.SUCCESS),
    "timer of a word": ("TIMER_DELIVER_MS\x01x\x02", ResponseCode.MESSAGE_ILLEGAL),
    "priority of 5000 digits": (
        "_SYS_MSG_PRIORITY_\x01" + "9" * 5000 + "\x02",
        ResponseCode.SUCCESS,
    ),
    "what the broker sets": (
        "MSG_REGION\x01a\x02POP_CK\x01b\x02CLUSTER\x01c\x02TRACE_ON\x01d\x02",
        ResponseCode.SUCCESS,
    ),
    "30000 characters of tags": ("TAGS\x01" + "t" * 30_000 + "\x02", ResponseCode.SUCCESS),
}


@pytest.mark.parametrize("name", PROPERTIES)
async def test_hostile_properties(broker: BrokerProcess, name: str) -> None:
    text, expected = PROPERTIES[name]
    assert await ask_all(broker, [send_request("Properties", b"x", properties=text)]) == [expected]


async def test_torn_batches(broker: BrokerProcess) -> None:
    whole = encode_batch([(0, b"one", b"k\x01v\x02")] * 3)
    torn = [whole[:length] for length in range(1, len(whole)) if length % (len(whole) // 3)]
    torn += [
        whole + b"\0",
        b"\0" * 100,
        b"\xff" * 100,
        b"\x80\0\0\0" * 10,
        b"\x7f\xff\xff\xff" * 10,
    ]
    codes = await ask_all(
        broker,
        [
            send_request("Torn", whole, batch=True),
            *(send_request("Torn", body, batch=True) for body in torn),
        ],
    )
    assert codes == [ResponseCode.SUCCESS, *[ResponseCode.SYSTEM_ERROR] * len(torn)]
    assert await ask_all(
        broker, [Command(RequestCode.GET_MAX_OFFSET, ext_fields={"topic": "Torn", "queueId": "0"})]
    ) == [0]


BODIES = [
    b"",
    b"\xff\xfe",
    b"{",
    b"[]",
    b"null",
    b'"x"',
    b"{}",
    b"[" * 100_000,
    b'{"a":' * 100_000,
    b'{"clientID":1,"consumerDataSet":1,"producerDataSet":"x"}',
    b'{"clientID":{},"consumerDataSet":[1,null,[]],"producerDataSet":[1,null]}',
    b'{"clientID":"c","consumerDataSet":[{"groupName":null,"subscriptionDataSet":[null]}],"producerDataSet":[{"groupName":5},{}]}',
    b'{"clientID":"c","consumerDataSet":[{"groupName":"../x","consumeType":"z","messageModel":7,"subscriptionDataSet":[{"codeSet":["x",1e99]}]}]}',
    b'{"clientID":"c","heartbeatFingerprint":"x","withoutSub":"maybe","consumerDataSet":[{}]}',
    b'{"consumerGroup":5,"clientId":null,"mqSet":[1,{"topic":null},{"topic":"T","brokerName":5,"queueId":"x"}]}',
    b'{"consumerGroup":"g","clientId":"c","mqSet":[{"topic":"T","brokerName":"b","queueId":99999999999}]}',
    b'{"mqSet":[{"$ref":"$"}]}',
    b'{"mqSet":{"$ref":"$.mqSet"}}',
    b'{"a":{"$ref":"$.b[' + b"9" * 5000 + b']"},"b":[1]}',
    b'{"topicConfigSerializeWrapper":{"topicConfigTable":{"T":null,"U":5}},"filterServerList":[5]}',
    b'{"a":' + b"9" * 5000 + b"}",
    b"brokerPermission=zz",
    b"messageDelayLevel=1x 2",
    b"maxMessageSize=-1",
    b"flushDiskType=ZZ",
    b"=\n=\n",
    b"\\u12",
]


@pytest.mark.parametrize(
    "code",
    [
        RequestCode.HEART_BEAT,
        RequestCode.CHECK_CLIENT_CONFIG,
        RequestCode.LOCK_BATCH_MQ,
        RequestCode.UNLOCK_BATCH_MQ,
        RequestCode.UPDATE_BROKER_CONFIG,
        RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
        RequestCode.UPDATE_AND_CREATE_TOPIC,
        RequestCode.UPDATE_CONSUMER_OFFSET,
        RequestCode.QUERY_CONSUMER_OFFSET,
        RequestCode.SEARCH_OFFSET_BY_TIMESTAMP,
        RequestCode.CONSUMER_SEND_MSG_BACK,
        RequestCode.END_TRANSACTION,
        RequestCode.POP_MESSAGE,
        RequestCode.ACK_MESSAGE,
        RequestCode.CHANGE_MESSAGE_INVISIBLETIME,
    ],
)
async def test_garbage_bodies_at_the_broker(broker: BrokerProcess, code: RequestCode) -> None:
    await ask_all(
        broker,
        [
            Command(code, ext_fields=ext, body=body)
            for ext in ({}, {"group": "g", "topic": "T"})
            for body in BODIES
        ],
    )


async def test_garbage_registrations_at_the_name_server(broker: BrokerProcess) -> None:
    fields = {
        "brokerName": "bad",
        "brokerAddr": "garbage",
        "clusterName": "c",
        "haServerAddr": "x",
        "brokerId": "1",
        "bodyCrc32": "0",
    }
    bodies = [*BODIES, zlib.compress(b"\0" * 100_000_000)]
    commands = [
        Command(
            RequestCode.REGISTER_BROKER, ext_fields={**fields, "compressed": compressed}, body=body
        )
        for compressed in ("true", "false")
        for body in bodies
    ]
    await ask_all(broker, commands, "namesrv")
    assert broker.process is not None
    assert resident_bytes(broker.process.pid) < 500 * MEBIBYTE
    bad_crc = Command(
        RequestCode.REGISTER_BROKER, ext_fields={**fields, "bodyCrc32": "5"}, body=b"{}"
    )
    assert await ask_all(broker, [bad_crc], "namesrv") == [ResponseCode.SYSTEM_ERROR]


async def test_positions_that_do_not_exist(broker: BrokerProcess) -> None:
    positions = (-1, 1, 7, 2**31, 2**62, 2**63 - 1)
    fields = {"group": "Back", "delayLevel": "0", "originTopic": "x"}
    back = [
        Command(RequestCode.CONSUMER_SEND_MSG_BACK, ext_fields={**fields, "offset": str(offset)})
        for offset in positions
    ]
    codes = await ask_all(
        broker, [send_request("Back", b"x"), pull_request("Back", 0, group="Back"), *back]
    )
    assert codes[2:] == [ResponseCode.SYSTEM_ERROR] * len(positions)
    place = {"consumerGroup": "Back", "topic": "Back", "queueId": "0"}
    commits = [
        Command(
            RequestCode.UPDATE_CONSUMER_OFFSET, ext_fields={**place, "commitOffset": str(offset)}
        )
        for offset in positions
    ]
    await ask_all(broker, [*commits, Command(RequestCode.QUERY_CONSUMER_OFFSET, ext_fields=place)])


async def pipeline(broker: BrokerProcess, commands: list[Command], answers: int) -> float:
    """Ask everything at once beside the well-behaved client; the seconds of its slowest
    send.
    """
    async with (
        good_client(broker.address) as good,
        raw_client(broker.address) as client,
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(client.send, b"".join([encode_frame(command) for command in commands]))
        while answers:
            answer = await client.answer()
            assert answer is not None
            answers -= answer.is_response
        with trio.fail_after(60):
            while not good.sent:
                await trio.sleep(0.01)
        return good.slowest


async def test_one_client_makes_many_topics_and_groups(broker: BrokerProcess) -> None:
    many = 400
    topics = [send_request(f"Many{number}", b"x") for number in range(many)]
    groups = [pull_request("Many1", 0, group=f"Many{number}") for number in range(many)]
    members = [
        heartbeat("client", f"Members{number}", subscription("Many1"))
        for number in range(many // 4)
    ]
    for commands in (topics, groups, members):
        assert await pipeline(broker, commands, len(commands)) < 3.0


async def test_one_heartbeat_names_many_groups(broker: BrokerProcess) -> None:
    groups = b",".join(
        b'{"groupName":"Beat%d","subscriptionDataSet":[{"topic":"T","subString":"*"}]}' % number
        for number in range(500)
    )
    beat = Command(
        RequestCode.HEART_BEAT, body=b'{"clientID":"c","consumerDataSet":[' + groups + b"]}"
    )
    assert await pipeline(broker, [beat], 1) < 3.0
