"""JSON bodies against what Apache RocketMQ prints and reads."""

from __future__ import annotations

import gzip
import importlib
import json
import pkgutil
import tracemalloc
import zlib
from typing import Any

import attrs
import pytest

import rocketmq_sdk.protocol.bodies
from rocketmq_sdk.errors import FieldError, RemoteProtocolError
from rocketmq_sdk.model.enums import ConsumeFrom, ConsumeType, MessageModel
from rocketmq_sdk.model.queue import MessageQueue
from rocketmq_sdk.model.route import BrokerData, QueueData, TopicRoute
from rocketmq_sdk.protocol.bodies.groups import SubscriptionGroupConfig
from rocketmq_sdk.protocol.bodies.members import (
    ConsumerData,
    HeartbeatData,
    LockBatchRequestBody,
    LockBatchResponseBody,
)
from rocketmq_sdk.protocol.bodies.offsets import ResetOffsetBody
from rocketmq_sdk.protocol.bodies.progress import ConsumeStats, TopicStatsTable
from rocketmq_sdk.protocol.bodies.registration import INFLATED_MAX, RegisterBrokerBody
from rocketmq_sdk.protocol.bodies.routes import ClusterInfo, decode_route, encode_route
from rocketmq_sdk.protocol.bodies.topics import (
    DataVersion,
    TopicConfig,
    TopicConfigSerializeWrapper,
    TopicList,
)
from rocketmq_sdk.protocol.body import Body
from rocketmq_sdk.protocol.frame import DEFAULT_MAX_FRAME
from rocketmq_sdk.protocol.json.dialect import decode_json
from rocketmq_sdk.protocol.subscription import SubscriptionData
from support.paths import CODEC_VECTORS


def declared() -> dict[str, type[Body]]:
    found: dict[str, type[Body]] = {}
    for module in pkgutil.iter_modules(rocketmq_sdk.protocol.bodies.__path__):
        names = vars(importlib.import_module(f"rocketmq_sdk.protocol.bodies.{module.name}"))
        found.update(
            {
                name: cls
                for name, cls in names.items()
                if isinstance(cls, type) and issubclass(cls, Body) and cls is not Body
            }
        )
    # One class serves both forms of the table: the mapping members are optional.
    return {**found, "TopicConfigAndMappingSerializeWrapper": found["TopicConfigSerializeWrapper"]}


BODIES = declared()
ALL: list[dict[str, Any]] = json.loads((CODEC_VECTORS / "json_bodies.json").read_text())
PRINTED = [entry for entry in ALL if entry.get("class") in BODIES]
OLD: list[dict[str, Any]] = [
    entry
    for entry in json.loads(
        gzip.decompress((CODEC_VECTORS / "5.3.3" / "json_bodies.json.gz").read_bytes())
    )
    if entry.get("class") in BODIES
]
# Members that are written although Apache leaves them out: an empty table or text means
# the same to every reader as a missing one.
WRITTEN_TOO: dict[str, dict[str, object]] = {
    "empty ClusterInfo": {"brokerAddrTable": {}, "clusterAddrTable": {}},
    "empty HeartbeatData": {"clientID": ""},
}


def raw(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass").replace(b"\xed\xa0\x80", b"?")


def sets_sorted(value: object) -> object:
    """Java's order of sets and maps is no part of the format."""
    if isinstance(value, dict):
        return {name: sets_sorted(item) for name, item in value.items()}
    return (
        sorted((sets_sorted(item) for item in value), key=str) if isinstance(value, list) else value
    )


def test_all_recorded_bodies_are_declared() -> None:
    assert {entry["class"] for entry in ALL if "class" in entry} - BODIES.keys() == {"JSONObject"}


@pytest.mark.parametrize("form", ["json", "pretty"])
@pytest.mark.parametrize("entry", PRINTED, ids=lambda entry: entry["name"])
def test_bodies_are_read_and_written_like_apaches(
    entry: dict[str, Any], form: str, json_mode: str
) -> None:
    cls = BODIES[entry["class"]]
    data = raw(entry[form])
    body = cls.decode(data)
    assert cls.decode(body.encode()) == body
    recorded = decode_json(data)
    assert isinstance(recorded, dict)
    assert sets_sorted(decode_json(body.encode())) == sets_sorted(
        {**recorded, **WRITTEN_TOO.get(entry["name"], {})}
    )


@pytest.mark.parametrize("form", ["json", "pretty"])
@pytest.mark.parametrize("entry", OLD, ids=lambda entry: entry["name"])
def test_bodies_of_5_3_3_say_the_same(entry: dict[str, Any], form: str) -> None:
    cls = BODIES[entry["class"]]
    now = next(current for current in PRINTED if current["name"] == entry["name"])
    new, old = cls.decode(raw(now["json"])), cls.decode(raw(entry[form]))
    if entry["name"] == "SubscriptionGroupWrapper":
        # The member came with 5.4.
        old = attrs.evolve(old, forbidden_table={"g": {"T": 4}})  # type: ignore[misc]
    assert old == new


def test_dialect_bodies_are_byte_for_byte_apaches_when_no_set_is_inside() -> None:
    same = [
        entry
        for entry in PRINTED
        if BODIES[entry["class"]].decode(raw(entry["json"])).encode() == raw(entry["json"])
    ]
    names = {entry["name"] for entry in same}
    assert len(same) > 40
    assert {
        "TopicRouteData",
        "ConsumeStats",
        "ConsumerRunningInfo",
        "HeartbeatData",
        "TopicConfig",
        "GetConsumerStatusBody broker",
    } <= names


DECODED: list[dict[str, Any]] = [
    entry
    for entry in json.loads((CODEC_VECTORS / "json_decode.json").read_text())
    if entry["class"] in BODIES
]


@pytest.mark.parametrize(
    "entry", DECODED, ids=lambda entry: f"{entry['class']}-{entry['input'][:50]!r}"
)
def test_texts_of_other_peers_are_read_like_apache_does_or_more_leniently(
    entry: dict[str, Any], json_mode: str
) -> None:
    body = BODIES[entry["class"]].decode(entry["input"].encode())
    if isinstance(entry["decoded_then_encoded"], dict):
        assert (
            '{\\"' in entry["input"]
        )  # keys that are texts: 5.4 refuses them, releases before wrote them
        return
    written, expected = (
        decode_json(body.encode()),
        decode_json(entry["decoded_then_encoded"].encode()),
    )
    assert isinstance(expected, dict)
    if entry["class"] == "HeartbeatData" and "clientID" not in entry["input"]:
        expected["clientID"] = ""
    if entry["class"] == "SubscriptionGroupConfig" and "unknown" in entry["input"]:
        expected["unknown"] = [1]
    for broker in expected.get("brokerDatas", []):
        broker.setdefault("cluster", "")
    assert sets_sorted(written) == sets_sorted(expected)


def test_object_keys_that_are_texts_are_queues_too() -> None:
    text = b'{"offsetTable":{"{\\"brokerName\\":\\"b\\",\\"queueId\\":1,\\"topic\\":\\"T\\"}":77}}'
    assert ResetOffsetBody.decode(text).offset_table == {MessageQueue("T", "b", 1): 77}


def route() -> TopicRoute:
    return TopicRoute(
        (QueueData("b", 4, 8, 6), QueueData("主", 1, 1, 4, 1)),
        (
            BrokerData("c", "b", {0: "1.1.1.1:10911", 4294967296: "x"}),
            BrokerData("c", "主", {2: "y"}, True, "z"),
        ),
        "b:4",
        {"1.1.1.1:10911": ["f"]},
    )


def test_routes_have_a_strict_form_and_the_dialect(json_mode: str) -> None:
    strict, dialect = encode_route(route(), strict=True), encode_route(route(), strict=False)
    assert json.loads(strict)["brokerDatas"][0]["brokerAddrs"] == {
        "0": "1.1.1.1:10911",
        "4294967296": "x",
    }
    assert b'"brokerAddrs":{0:"1.1.1.1:10911",4294967296:"x"}' in dialect
    assert decode_route(strict) == decode_route(dialect) == route()
    assert b" " not in strict + dialect


def test_the_example_route_of_the_specification() -> None:
    text = (
        b'{"brokerDatas":[{"brokerAddrs":{0:"1.1.1.1:10911"},"brokerName":"b","cluster":"c",'
        b'"enableActingMaster":false}],"filterServerTable":{},'
        b'"queueDatas":[{"brokerName":"b","perm":6,"readQueueNums":4,"topicSysFlag":0,'
        b'"writeQueueNums":4}]}'
    )
    decoded = decode_route(text)
    assert decoded == TopicRoute(
        (QueueData("b", 4, 4, 6),), (BrokerData("c", "b", {0: "1.1.1.1:10911"}),)
    )
    assert encode_route(decoded, strict=False) == text


def test_recorded_routes_in_both_forms() -> None:
    entries = [entry for entry in PRINTED if entry["class"] == "TopicRouteData"]
    assert len(entries) == 4
    for entry in entries:
        decoded = decode_route(raw(entry["standard"]))
        assert decoded == decode_route(raw(entry["json"]))
        if "topicQueueMappingByBroker" not in entry["json"]:
            assert encode_route(decoded, strict=True) == raw(entry["standard"])
            assert encode_route(decoded, strict=False) == raw(entry["json"])


def test_cluster_info_holds_the_models_broker_data() -> None:
    info = ClusterInfo({"b": BrokerData("c", "b", {0: "1:1"})}, {"c": ["b"]})
    assert ClusterInfo.decode(info.encode()) == info


def subscription(
    text: str, tags: frozenset[str], codes: frozenset[int], version: int = 1700000000123
) -> SubscriptionData:
    return SubscriptionData("T", text, tags, codes, version)


def heartbeat() -> HeartbeatData:
    consumer = ConsumerData(
        "cg",
        ConsumeType.CONSUME_PASSIVELY,
        MessageModel.CLUSTERING,
        ConsumeFrom.LAST_OFFSET,
        (subscription("TagA || TagB", frozenset({"TagA", "TagB"}), frozenset({2598919, 2598920})),),
    )
    return HeartbeatData("127.0.0.1@1234#987654321", ("pg",), (consumer,))


def test_the_recorded_heartbeat_and_its_fingerprint() -> None:
    entry = next(entry for entry in PRINTED if entry["name"] == "HeartbeatData")
    assert heartbeat() == HeartbeatData.decode(raw(entry["json"]))
    assert heartbeat().encode() == raw(entry["json"])
    fingerprint = next(
        entry
        for entry in ALL
        if entry["name"] == "heartbeat fingerprint of the HeartbeatData above"
    )
    assert heartbeat().fingerprint() == fingerprint["fingerprint"]
    assert (
        attrs.evolve(
            heartbeat(), client_id="other", without_sub=True, heartbeat_fingerprint=5
        ).fingerprint()
        == fingerprint["fingerprint"]
    )


def test_the_go_clients_code_set_and_odd_vocabulary_are_read() -> None:
    text = (
        b'{"clientID":"c","consumerDataSet":[{"groupName":"g","consumeType":"consume_passively",'
        b'"consumeFromWhere":"CONSUME_FROM_MIN_OFFSET",'
        b'"subscriptionDataSet":[{"topic":"T","subString":"a","tagsSet":["a"],"codeSet":["97"],'
        b'"subVersion":1700000000000000000}]}]}'
    )
    consumer = HeartbeatData.decode(text).consumer_data_set[0]
    assert consumer.consume_type is ConsumeType.CONSUME_PASSIVELY
    assert consumer.consume_from_where is None
    assert consumer.subscription_data_set[0].code_set == frozenset({97})


def test_locks_carry_sets_of_queues() -> None:
    queue = MessageQueue("T", "b", 0)
    request = LockBatchRequestBody("g", "c@1", (queue,))
    assert request.encode() == (
        b'{"clientId":"c@1","consumerGroup":"g","mqSet":[{"brokerName":"b","queueId":0,'
        b'"topic":"T"}],"onlyThisBroker":false}'
    )
    assert (
        LockBatchResponseBody((queue,)).encode()
        == b'{"lockOKMQSet":[{"brokerName":"b","queueId":0,"topic":"T"}]}'
    )


def test_the_example_of_object_keys_in_the_specification() -> None:
    text = (
        b'{"consumeTps":0.0,"offsetTable":{{"brokerName":"b","queueId":3,"topic":"T"}:'
        b'{"brokerOffset":9,"consumerOffset":5,"lastTimestamp":0,"pullOffset":7}}}'
    )
    assert ConsumeStats.decode(text).encode() == text


def test_missing_and_null_members_take_the_defaults() -> None:
    assert TopicStatsTable.decode(b"{}") == TopicStatsTable()
    assert TopicConfig.decode(b'{"topicName":"T","perm":null}') == TopicConfig("T")
    assert TopicList.decode(b'{"topicList":["a",null]}').topic_list == ("a",)
    assert TopicConfig.decode(b"{}").topic_name == ""
    first, second = TopicStatsTable.decode(b"{}"), TopicStatsTable.decode(b"{}")
    assert first.offset_table is not second.offset_table


@pytest.mark.parametrize(
    ("cls", "text"),
    [
        (TopicConfig, '{"perm":[]}'),
        (TopicConfig, '{"perm":2147483648}'),
        (TopicConfig, '{"perm":1.5}'),
        (TopicConfig, '{"perm":"x"}'),
        (TopicConfig, '{"attributes":[]}'),
        (TopicConfig, '{"order":{}}'),
        (TopicConfig, "[]"),
        (TopicConfig, "null"),
        (TopicList, '{"topicList":{}}'),
        (TopicList, '{"topicList":[[]]}'),
        (TopicStatsTable, '{"topicPutTps":"nan"}'),
        (TopicStatsTable, '{"offsetTable":{"x":{}}}'),
        (HeartbeatData, '{"producerDataSet":["p"]}'),
        (HeartbeatData, '{"consumerDataSet":[{"consumeType":5}]}'),
        (DataVersion, '{"counter":9223372036854775808}'),
        (ClusterInfo, '{"brokerAddrTable":{"b":{"brokerAddrs":{"x":"y"}}}}'),
    ],
)
def test_members_of_the_wrong_type_are_named(cls: type[Body], text: str, json_mode: str) -> None:
    with pytest.raises(FieldError):
        cls.decode(text.encode())


def test_unknown_members_of_a_group_are_kept() -> None:
    config = SubscriptionGroupConfig.decode(b'{"groupName":"g","later":{"a":[1]}}')
    assert config.extra == {"later": {"a": [1]}}
    assert SubscriptionGroupConfig.decode(config.encode()) == config
    assert SubscriptionGroupConfig.from_json(config.to_json()) == config


def test_the_compressed_registration_of_apache() -> None:
    entry = next(entry for entry in ALL if entry.get("compressed") is True)
    data = bytes.fromhex(entry["bytes"])
    assert zlib.crc32(data) & 0x7FFFFFFF == entry["crc32"]
    for version, name in (
        (401, "decoded_as_V4_9_4"),
        (413, "decoded_as_V5_0_0"),
        (473, "decoded_as_V5_3_0"),
    ):
        decoded = RegisterBrokerBody.decode_compressed(data, version)
        expected = RegisterBrokerBody.decode(raw(entry[name]))
        ours, theirs = (
            decoded.topic_config_serialize_wrapper,
            expected.topic_config_serialize_wrapper,
        )
        assert ours.data_version == theirs.data_version
        assert ours.topic_config_table == theirs.topic_config_table
        assert decoded.filter_server_list == expected.filter_server_list
        assert (
            RegisterBrokerBody.decode_compressed(decoded.encode_compressed(version), version)
            == decoded
        )
    assert (
        RegisterBrokerBody.decode_compressed(
            data
        ).topic_config_serialize_wrapper.topic_queue_mapping_info_map
        != {}
    )


def test_a_compressed_registration_inflates_to_no_more_than_a_frame_holds() -> None:
    bomb = zlib.compress(b"\0" * (INFLATED_MAX * 8))
    tracemalloc.start()
    try:
        with pytest.raises(RemoteProtocolError, match="too long"):
            RegisterBrokerBody.decode_compressed(bomb)
        _now, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert INFLATED_MAX <= DEFAULT_MAX_FRAME
    assert peak < 3 * INFLATED_MAX


def test_a_compressed_registration_of_very_many_topics_fits() -> None:
    table = {f"topic-{number}": TopicConfig(f"topic-{number}") for number in range(20_000)}
    body = RegisterBrokerBody(TopicConfigSerializeWrapper(table, DataVersion(1, 2, 3)))
    decoded = RegisterBrokerBody.decode_compressed(body.encode_compressed())
    assert decoded.topic_config_serialize_wrapper.topic_config_table == table


def test_the_plain_registration_of_apache() -> None:
    entry = next(entry for entry in ALL if entry.get("compressed") is False)
    data = bytes.fromhex(entry["bytes"])
    body = RegisterBrokerBody.decode(data)
    assert set(body.topic_config_serialize_wrapper.topic_config_table) == {"T", "主题-é😀"}
    assert RegisterBrokerBody.decode(body.encode()) == body


@pytest.mark.parametrize("cut", [0, 1, 10, 60])
def test_broken_compressed_registrations_are_refused(cut: int) -> None:
    wrapper = TopicConfigSerializeWrapper({"T": TopicConfig("T")}, DataVersion(1, 2, 3))
    data = RegisterBrokerBody(wrapper, ("f",)).encode_compressed()
    plain = zlib.decompress(data)
    with pytest.raises(RemoteProtocolError):
        RegisterBrokerBody.decode_compressed(data[:cut])
    with pytest.raises(RemoteProtocolError):
        RegisterBrokerBody.decode_compressed(zlib.compress(plain[:cut]))
    with pytest.raises(RemoteProtocolError):
        RegisterBrokerBody.decode_compressed(zlib.compress(b"\x7f" + plain))


def one_line_forms() -> list[dict[str, Any]]:
    return [
        entry
        for entry in json.loads((CODEC_VECTORS / "names_and_rules.json").read_text())
        if entry.get("kind") == "topic_config_decode"
    ]


@pytest.mark.parametrize("entry", one_line_forms(), ids=lambda entry: entry["text"])
def test_the_one_line_form_of_topics(entry: dict[str, Any]) -> None:
    if not entry["ok"]:
        with pytest.raises(FieldError):
            TopicConfig.decode_text(entry["text"])
        return
    config = TopicConfig.decode_text(entry["text"])
    assert (
        f"readQueueNums={config.read_queue_nums}, writeQueueNums={config.write_queue_nums}"
        in entry["result"]
    )
    assert config.attributes == entry["attributes"]
    assert TopicConfig.decode_text(config.encode_text()) == config


def test_the_one_line_form_of_the_specification() -> None:
    assert (
        TopicConfig("T", 8, 8, 6, attributes={"message.type": "FIFO"}).encode_text()
        == 'T 8 8 6 SINGLE_TAG {"message.type":"FIFO"}'
    )


def test_versions_step() -> None:
    assert DataVersion(0, 5, 7).next(9) == DataVersion(0, 9, 8)
