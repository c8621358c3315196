"""What Apache's tools ask name servers and brokers and are answered, held against ours.

Mask: opaque, language, version, encoding and remarks are not compared; lists of names
are compared as sets; versions of tables, rates and what a store would know are left out
where named below.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from rocketmq_sdk.codes import RequestCode
from rocketmq_sdk.protocol.json.dialect import decode_json, encode_json
from support.administration import Scene, body_of, conversation, without

if TYPE_CHECKING:
    from rocketmq_sdk.protocol.command import Command

VARIANTS = ["json", "rocketmq", "json-5.3.3"]
# Kept by 5.4.0 for RocksDB only; not made here. The other way round, 5.3.3 does not
# make them either.
ROCKSDB_TOPICS = {"RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC", "RMQ_SYS_ROCKSDB_TRANS_OP_HALF_TOPIC"}
MASKED = {
    RequestCode.GET_TOPIC_STATS_INFO: ("topicPutTps",),
    RequestCode.GET_CONSUME_STATS: ("consumeTps", "brokerOffset", "lastTimestamp", "pullOffset"),
    # Apache notes topics of groups as they commit; ours are derived from the table.
    # Readers ignore them.
    RequestCode.GET_ALL_CONSUMER_OFFSET: ("dataVersion", "groupTopicMap"),
    RequestCode.GET_ALL_TOPIC_CONFIG: ("mappingDataVersion", "dataVersion"),
    RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: ("forbiddenTable", "dataVersion"),
}


def compare(request: Command, answer: Command, expected: Command) -> None:
    mask = MASKED.get(RequestCode(request.code), ())
    assert answer.code == expected.code, (request, answer.remark)
    assert answer.ext_fields == expected.ext_fields, request
    assert without(body_of(answer), *mask) == without(body_of(expected), *mask), request


@pytest.mark.parametrize("variant", VARIANTS)
def test_topic_administration(variant: str) -> None:
    scene = Scene()
    served = 0
    for connection, request, expected in conversation(f"topic_admin.{variant}.jsonl"):
        compare(request, scene.ask(request, namesrv=connection.startswith("ns")), expected)
        served += 1
    assert served >= 20
    assert scene.topics.get("W_new") is None
    attributed = scene.topics.get("W_attr")
    assert attributed is not None
    assert attributed.attributes == {"message.type": "FIFO"}


@pytest.mark.parametrize("variant", VARIANTS)
def test_writes(variant: str) -> None:
    scene = Scene()
    codes = {17, 25, 26, 200, 207, 215, 100, 101, 102, 219, 318}
    served: set[int] = set()
    for connection, request, expected in conversation(f"admin_writes.{variant}.jsonl"):
        if variant.endswith("5.3.3") and b"bad group!" in request.body:
            continue  # 5.3.3 takes a group name that 5.4.0 and this broker refuse
        if request.code in codes and request.code != RequestCode.GET_BROKER_CONFIG:
            answer = scene.ask(request, namesrv=connection.startswith("ns"))
            if b"noSuchKey" in request.body:
                # Apache answers with success and ignores the name; here it is refused.
                assert (answer.code, expected.code) == (1, 0)
            else:
                compare(request, answer, expected)
            served.add(request.code)
    assert {25, 200, 207, 100, 101, 102, 219, 318} <= served


@pytest.mark.parametrize("variant", ["json", "rocketmq"])
def test_reads_of_a_recorded_state(variant: str) -> None:
    """The tables that the recorded broker dumped are put under ours, so that all reads
    of them can be compared.
    """
    frames = list(conversation(f"admin_reads.{variant}.jsonl.gz"))
    dumps: dict[int, Any] = {
        request.code: decode_json(expected.body)
        for _, request, expected in frames
        if request.code in (21, 201, 43)
    }
    topics = dumps[21]["topicConfigTable"]
    for name in ROCKSDB_TOPICS:
        topics.pop(name)
    files = {
        "topics": {"topicConfigTable": topics, "dataVersion": dumps[21]["dataVersion"]},
        "groups": dumps[201],
        "offsets": dumps[43],
    }
    scene = Scene(files=files)
    codes = {
        21,
        43,
        105,
        106,
        201,
        203,
        206,
        208,
        224,
        300,
        304,
        305,
        311,
        312,
        313,
        343,
        345,
        351,
        352,
        353,
        901,
    }
    served: set[int] = set()
    for connection, request, expected in frames:
        if request.code not in codes or request.ext_fields.get("topic") in ROCKSDB_TOPICS:
            continue
        if request.code == RequestCode.GET_CONSUMER_CONNECTION_LIST and expected.code == 0:
            continue
        answer = scene.ask(request, namesrv=connection.startswith("ns"))
        if request.code in (21, 206, 224, 305):
            _drop_rocksdb(expected)
            _drop_rocksdb(answer)
        compare(request, answer, expected)
        served.add(request.code)
    assert served >= codes - {203}


def _drop_rocksdb(command: Command) -> None:
    value: Any = decode_json(command.body)
    if "topicList" in value:
        value["topicList"] = [name for name in value["topicList"] if name not in ROCKSDB_TOPICS]
    else:
        table = value["topicConfigTable"] = {
            name: topic
            for name, topic in value["topicConfigTable"].items()
            if name not in ROCKSDB_TOPICS
        }
        command.ext_fields["totalTopicNum"] = str(len(table))
    command.body = encode_json(value)
