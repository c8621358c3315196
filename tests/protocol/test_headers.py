"""Declared headers against every header class of Apache RocketMQ."""

from __future__ import annotations

import gzip
import importlib
import json
import pkgutil
from typing import Any

import pytest

import rocketmq_sdk.protocol.headers
from rocketmq_sdk.errors import FieldError
from rocketmq_sdk.model.enums import BoundaryType
from rocketmq_sdk.protocol.header import (
    Header,
    RpcRequestHeader,
    TopicQueueRequestHeader,
    TopicRequestHeader,
    header_fields,
)
from rocketmq_sdk.protocol.headers.offsets import SearchOffsetRequestHeader
from rocketmq_sdk.protocol.headers.pull import PullMessageRequestHeader, PullMessageResponseHeader
from rocketmq_sdk.protocol.headers.send import (
    SendMessageRequestHeader,
    SendMessageRequestHeaderV2,
    SendMessageResponseHeader,
)
from support.paths import CODEC_VECTORS

KINDS = {
    "String": "text",
    "Integer": "int",
    "int": "int",
    "Long": "long",
    "long": "long",
    "Boolean": "bool",
    "boolean": "bool",
    "BoundaryType": "boundary",
}
BASES: dict[str, type[Header]] = {
    "RpcRequestHeader": RpcRequestHeader,
    "TopicRequestHeader": TopicRequestHeader,
    "TopicQueueRequestHeader": TopicQueueRequestHeader,
    "Object": Header,
}
# Raft and replication between controllers: no client, broker, name server or mqadmin of
# this package speaks to one.
CONTROLLER = {
    "AlterSyncStateSetRequestHeader",
    "AlterSyncStateSetResponseHeader",
    "ApplyBrokerIdRequestHeader",
    "ApplyBrokerIdResponseHeader",
    "CleanControllerBrokerDataRequestHeader",
    "ElectMasterRequestHeader",
    "ElectMasterResponseHeader",
    "GetMetaDataResponseHeader",
    "GetNextBrokerIdRequestHeader",
    "GetNextBrokerIdResponseHeader",
    "GetReplicaInfoRequestHeader",
    "GetReplicaInfoResponseHeader",
    "NotifyBrokerRoleChangedRequestHeader",
    "RegisterBrokerToControllerRequestHeader",
    "RegisterBrokerToControllerResponseHeader",
}
# Marked as required, but Apache's processors serve requests without them.
NEW_IN_5_5 = {
    "ChangeInvisibleTimeRequestHeader": {"suspend"},
    "NotificationRequestHeader": {"expType", "exp"},
}
"""Fields of release 5.5.0; the vectors are of 5.4.0."""
SERVED_WITHOUT = {
    ("GetAllTopicConfigRequestHeader", "topicSeq"),
    ("GetAllSubscriptionGroupRequestHeader", "groupSeq"),
    ("CreateTopicRequestHeader", "topic"),
    ("DeleteTopicRequestHeader", "topic"),
    ("GetRouteInfoRequestHeader", "topic"),
}
CHECKED = {"topicFilterType": "MULTI_TAG", "commitOrRollback": "8"}


def declared() -> dict[str, type[Header]]:
    found: dict[str, type[Header]] = {}
    for module in pkgutil.iter_modules(rocketmq_sdk.protocol.headers.__path__):
        names = vars(importlib.import_module(f"rocketmq_sdk.protocol.headers.{module.name}"))
        found.update(
            {
                name: cls
                for name, cls in names.items()
                if isinstance(cls, type) and issubclass(cls, Header) and cls not in BASES.values()
            }
        )
    return found


HEADERS = declared()
OWN: set[str] = set()
"""Headers that Apache does not have."""
ENTRIES: list[dict[str, Any]] = json.loads((CODEC_VECTORS / "remoting_headers.json").read_text())
DECLARED = [entry for entry in ENTRIES if entry["header"] in HEADERS]


def name_of(entry: dict[str, Any]) -> str:
    return str(entry["header"])


def test_all_headers_are_declared_except_those_of_controllers() -> None:
    assert {entry["header"] for entry in ENTRIES} - HEADERS.keys() == CONTROLLER
    assert HEADERS.keys() - {entry["header"] for entry in ENTRIES} == OWN


@pytest.mark.parametrize("entry", DECLARED, ids=name_of)
def test_names_types_and_required_marks(entry: dict[str, Any]) -> None:
    cls = HEADERS[entry["header"]]
    fields = {field.name: field for field in header_fields(cls)}
    assert fields.keys() == {field["name"] for field in entry["fields"]} | NEW_IN_5_5.get(
        entry["header"], set()
    )
    assert issubclass(cls, BASES[entry["base"]])
    for field in entry["fields"]:
        name = field["name"]
        assert fields[name].kind == KINDS[field["type"]], name
        required = (
            field["not_null"]
            and name not in entry["ext_defaults_JSON"]
            and (entry["header"], name) not in SERVED_WITHOUT
        )
        assert fields[name].required == required, name


@pytest.mark.parametrize("entry", DECLARED, ids=name_of)
def test_filled_headers_are_read_and_written_in_both_encodings(entry: dict[str, Any]) -> None:
    cls = HEADERS[entry["header"]]
    for filled in (entry["ext_all_filled_JSON"], entry["ext_all_filled_ROCKETMQ"] or {}):
        ext = {
            name: CHECKED.get(name, value) for name, value in filled.items() if value is not None
        }
        assert cls.from_ext(ext).to_ext() == ext
        assert cls.from_ext({**ext, "unknown": "x", "Signature": "s"}).to_ext() == ext


@pytest.mark.parametrize("entry", DECLARED, ids=name_of)
def test_defaults_are_written_as_apache_writes_them(entry: dict[str, Any]) -> None:
    cls = HEADERS[entry["header"]]
    fills: dict[str, Any] = {
        "text": "x",
        "int": 7,
        "long": 8,
        "bool": True,
        "boundary": BoundaryType.UPPER,
    }
    required = {
        field.attribute: fills[field.kind] for field in header_fields(cls) if field.required
    }
    named = {field.name for field in header_fields(cls) if field.required}
    named |= {name for header, name in SERVED_WITHOUT if header == entry["header"]}
    written = cls(**required).to_ext()
    assert {name: value for name, value in written.items() if name not in named} == entry[
        "ext_defaults_JSON"
    ]


@pytest.mark.parametrize(
    "entry",
    json.loads((CODEC_VECTORS / "remoting_header_decode.json").read_text()),
    ids=lambda entry: str(entry["ext"])[:60],
)
def test_ext_fields_are_judged_as_apache_does_or_stricter(entry: dict[str, Any]) -> None:
    cls = HEADERS[entry["header"]]
    missing = [
        field.name
        for field in header_fields(cls)
        if field.required and field.name not in entry["ext"]
    ]
    if "error" in entry["decoded"] or missing:
        with pytest.raises(FieldError, match=entry["header"]):
            cls.from_ext(entry["ext"])
        return
    decoded = cls.from_ext(entry["ext"])
    for field in header_fields(cls):
        value = getattr(decoded, field.attribute)
        assert (value.value if isinstance(value, BoundaryType) else value) == entry["decoded"][
            field.name
        ]


def test_headers_of_5_3_3_are_the_same_but_for_fields_that_came_later() -> None:
    current = {entry["header"]: entry for entry in ENTRIES}
    later = []
    for entry in json.loads(
        gzip.decompress((CODEC_VECTORS / "5.3.3" / "remoting_headers.json.gz").read_bytes())
    ):
        fields = {field["name"]: field for field in entry["fields"]}
        now = {field["name"]: field for field in current[entry["header"]]["fields"]}
        assert fields.keys() <= now.keys()
        later += [name for name in now if name not in fields]
        if entry["header"] in HEADERS:
            ext = {
                name: CHECKED.get(name, value)
                for name, value in entry["ext_all_filled_JSON"].items()
            }
            if now.keys() == fields.keys():
                assert HEADERS[entry["header"]].from_ext(ext).to_ext() == ext
    assert sorted(later) == ["indexType", "lastKey", "totalTopicNum"]


SEND = {
    "a": "g",
    "b": "t",
    "c": "TBW102",
    "d": "4",
    "e": "3",
    "f": "0",
    "g": "1700000000000",
    "h": "0",
}
PULL = {
    "consumerGroup": "g",
    "topic": "t",
    "queueId": "0",
    "queueOffset": "1",
    "maxMsgNums": "32",
    "sysFlag": "2",
    "commitOffset": "0",
    "suspendTimeoutMillis": "15000",
    "subVersion": "1",
}
PULLED = {"suggestWhichBrokerId": "0", "nextBeginOffset": "7", "minOffset": "0", "maxOffset": "9"}
SENT = {"msgId": "M", "queueId": "3", "queueOffset": "12"}
HOT: list[tuple[type[Header], dict[str, str]]] = [
    (SendMessageRequestHeaderV2, SEND),
    (PullMessageRequestHeader, PULL),
    (PullMessageResponseHeader, PULLED),
    (SendMessageResponseHeader, SENT),
]


@pytest.mark.parametrize(("cls", "ext"), HOT)
def test_straight_codecs_agree_with_the_table(cls: type[Header], ext: dict[str, str]) -> None:
    def by_table(fields: dict[str, str]) -> object:
        try:
            return Header.from_ext.__func__(cls, fields)  # type: ignore[attr-defined]
        except FieldError as error:
            return str(error)

    def by_code(fields: dict[str, str]) -> object:
        try:
            return cls.from_ext(fields)
        except FieldError as error:
            return str(error)

    assert isinstance(by_code(ext), cls)
    texts = [
        "",
        "x",
        "-1",
        "+1",
        " 1",
        "1_0",
        "1.5",
        "2147483647",
        "2147483648",
        "-2147483648",
        "-2147483649",
        "9223372036854775807",
    ]
    texts += ["9223372036854775808", "9" * 5000, "TRUE", "false", "٣", "²"]
    for field in header_fields(cls):
        assert by_code(
            {name: text for name, text in ext.items() if name != field.name}
        ) == by_table({name: text for name, text in ext.items() if name != field.name})
        for text in texts:
            fields = {**ext, field.name: text}
            decoded = by_code(fields)
            assert decoded == by_table(fields), (field.name, text)
            if isinstance(decoded, Header):
                assert decoded.to_ext() == Header.to_ext(decoded)


def test_errors_name_header_field_and_value() -> None:
    with pytest.raises(
        FieldError, match=r"SendMessageRequestHeaderV2: the field e is '1\.5', not a 32-bit number"
    ):
        SendMessageRequestHeaderV2.from_ext({**SEND, "e": "1.5"})
    with pytest.raises(
        FieldError, match="SendMessageRequestHeader: the field producerGroup is missing"
    ):
        SendMessageRequestHeader.from_ext({})


def test_v2_has_the_attributes_of_v1_under_short_names() -> None:
    values: dict[str, Any] = {
        "producer_group": "g",
        "topic": "t",
        "default_topic": "TBW102",
        "default_topic_queue_nums": 4,
        "queue_id": -1,
        "sys_flag": 0,
        "born_timestamp": 1,
        "flag": 2,
        "properties": "p",
        "reconsume_times": 0,
        "unit_mode": False,
        "batch": True,
        "max_reconsume_times": 16,
        "bname": "b",
    }
    long, short = SendMessageRequestHeader(**values), SendMessageRequestHeaderV2(**values)
    assert set(long.to_ext().values()) == set(short.to_ext().values())
    assert set(short.to_ext()) == set("abcdefghijklmn")
    again = SendMessageRequestHeaderV2.from_ext(short.to_ext())
    assert all(getattr(again, name) == value for name, value in values.items())


def test_boundary_types_are_written_in_capitals() -> None:
    header = SearchOffsetRequestHeader(
        topic="T", queue_id=1, timestamp=2, boundary_type=BoundaryType.UPPER
    )
    assert header.to_ext()["boundaryType"] == "UPPER"
