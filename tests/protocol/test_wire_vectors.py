"""Conversations between Apache's clients and servers, frame by frame."""

from __future__ import annotations

import gzip
import json
from typing import TYPE_CHECKING, Any

import pytest

from rocketmq_sdk.errors import FieldError, RemoteProtocolError
from rocketmq_sdk.protocol.bodies.admin import KVTable
from rocketmq_sdk.protocol.bodies.connections import (
    ConsumeMessageDirectlyResult,
    ConsumerConnection,
    ConsumerRunningInfo,
    GroupList,
)
from rocketmq_sdk.protocol.bodies.groups import SubscriptionGroupConfig, SubscriptionGroupWrapper
from rocketmq_sdk.protocol.bodies.members import (
    ConsumerList,
    HeartbeatData,
    LockBatchRequestBody,
    QueryAssignmentRequestBody,
    QueryAssignmentResponseBody,
    SetMessageRequestModeRequestBody,
)
from rocketmq_sdk.protocol.bodies.offsets import (
    ConsumerOffsetSerializeWrapper,
    DelayOffsetSerializeWrapper,
)
from rocketmq_sdk.protocol.bodies.pop import BatchAckMessageRequestBody
from rocketmq_sdk.protocol.bodies.progress import ConsumeStats, TopicStatsTable
from rocketmq_sdk.protocol.bodies.registration import RegisterBrokerBody
from rocketmq_sdk.protocol.bodies.routes import ClusterInfo, TopicRouteData
from rocketmq_sdk.protocol.bodies.topics import TopicConfigSerializeWrapper, TopicList
from rocketmq_sdk.protocol.connection import Connection
from rocketmq_sdk.protocol.frame import decode_frame, encode_frame
from rocketmq_sdk.protocol.headers import (
    connections,
    groups,
    kv,
    members,
    offsets,
    pop,
    progress,
    pull,
    registration,
    routes,
    send,
    topics,
    transactions,
)
from rocketmq_sdk.protocol.json.dialect import decode_json
from support.paths import VECTORS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rocketmq_sdk.protocol.body import Body
    from rocketmq_sdk.protocol.command import Command
    from rocketmq_sdk.protocol.header import Header

FILES = sorted(
    name
    for name, state in json.loads((VECTORS / "MANIFEST.json").read_text())["wire"].items()
    if state == "in"
)
REQUEST_HEADERS: dict[int, type[Header]] = {
    10: send.SendMessageRequestHeader,
    11: pull.PullMessageRequestHeader,
    14: offsets.QueryConsumerOffsetRequestHeader,
    15: offsets.UpdateConsumerOffsetRequestHeader,
    17: topics.CreateTopicRequestHeader,
    29: offsets.SearchOffsetRequestHeader,
    30: offsets.GetMaxOffsetRequestHeader,
    31: offsets.GetMinOffsetRequestHeader,
    32: offsets.GetEarliestMsgStoretimeRequestHeader,
    34: members.HeartbeatRequestHeader,
    35: members.UnregisterClientRequestHeader,
    36: send.ConsumerSendMsgBackRequestHeader,
    37: transactions.EndTransactionRequestHeader,
    38: members.GetConsumerListByGroupRequestHeader,
    40: members.NotifyConsumerIdsChangedRequestHeader,
    100: kv.PutKVConfigRequestHeader,
    101: kv.GetKVConfigRequestHeader,
    102: kv.DeleteKVConfigRequestHeader,
    103: registration.RegisterBrokerRequestHeader,
    104: registration.UnRegisterBrokerRequestHeader,
    105: routes.GetRouteInfoRequestHeader,
    202: progress.GetTopicStatsInfoRequestHeader,
    203: connections.GetConsumerConnectionListRequestHeader,
    207: groups.DeleteSubscriptionGroupRequestHeader,
    208: progress.GetConsumeStatsRequestHeader,
    215: topics.DeleteTopicRequestHeader,
    222: offsets.ResetOffsetRequestHeader,
    300: connections.QueryTopicConsumeByWhoRequestHeader,
    310: send.SendMessageRequestHeaderV2,
    320: send.SendMessageRequestHeaderV2,
    322: registration.QueryDataVersionRequestHeader,
    351: topics.GetTopicConfigRequestHeader,
    200050: pop.PopMessageRequestHeader,
    200051: pop.AckMessageRequestHeader,
    200052: pop.PeekMessageRequestHeader,
    200053: pop.ChangeInvisibleTimeRequestHeader,
    200054: pop.NotificationRequestHeader,
    200055: pop.PollingInfoRequestHeader,
}
RESPONSE_HEADERS: dict[int, type[Header]] = {
    11: pull.PullMessageResponseHeader,
    14: offsets.QueryConsumerOffsetResponseHeader,
    29: offsets.SearchOffsetResponseHeader,
    30: offsets.GetMaxOffsetResponseHeader,
    310: send.SendMessageResponseHeader,
    320: send.SendMessageResponseHeader,
    200050: pop.PopMessageResponseHeader,
    200052: pop.PopMessageResponseHeader,
    200053: pop.ChangeInvisibleTimeResponseHeader,
    200054: pop.NotificationResponseHeader,
    200055: pop.PollingInfoResponseHeader,
}
REQUEST_BODIES: dict[int, type[Body]] = {
    34: HeartbeatData,
    41: LockBatchRequestBody,
    103: RegisterBrokerBody,
    200: SubscriptionGroupConfig,
    400: QueryAssignmentRequestBody,
    401: SetMessageRequestModeRequestBody,
    200151: BatchAckMessageRequestBody,
}
RESPONSE_BODIES: dict[int, type[Body]] = {
    21: TopicConfigSerializeWrapper,
    28: KVTable,
    38: ConsumerList,
    43: ConsumerOffsetSerializeWrapper,
    45: DelayOffsetSerializeWrapper,
    105: TopicRouteData,
    106: ClusterInfo,
    201: SubscriptionGroupWrapper,
    202: TopicStatsTable,
    203: ConsumerConnection,
    206: TopicList,
    208: ConsumeStats,
    300: GroupList,
    307: ConsumerRunningInfo,
    309: ConsumeMessageDirectlyResult,
    400: QueryAssignmentResponseBody,
}
# Headers that hooks and other layers add to the declared ones.
ADDED = {"ReqT", "AccessKey", "Signature", "MSG_REGION", "TRACE_ON"}


def frames(name: str) -> Iterator[dict[str, Any]]:
    data = (VECTORS / "wire" / name).read_bytes()
    text = gzip.decompress(data) if name.endswith(".gz") else data
    return (entry for entry in map(json.loads, text.splitlines()) if "frame" in entry)


@pytest.mark.parametrize("name", FILES)
def test_every_frame_is_decoded_and_encoded_again(name: str, json_mode: str) -> None:
    count = 0
    for entry in frames(name):
        frame = bytes.fromhex(entry["frame"])
        command = decode_frame(frame[4:])
        assert (command.opaque, command.flag, command.encoding.name) == (
            entry["opaque"],
            entry["flag"],
            entry["serialize"],
        )
        assert command.code == entry["code"]
        assert decode_frame(encode_frame(command)[4:]) == command
        count += 1
    assert count > 0


@pytest.mark.parametrize("name", FILES)
def test_each_direction_of_a_connection_is_one_stream(name: str) -> None:
    streams: dict[tuple[str, str], list[bytes]] = {}
    for entry in frames(name):
        streams.setdefault((entry["conn"], entry["dir"]), []).append(bytes.fromhex(entry["frame"]))
    for parts in streams.values():
        stream = b"".join(parts)
        connection = Connection()
        commands: list[Command] = []
        for start in range(0, len(stream), 1000):
            commands += connection.receive_commands(stream[start : start + 1000])
        assert commands == [decode_frame(part[4:]) for part in parts]
        assert connection.receive_commands(b"") == []


def conversations(name: str) -> Iterator[tuple[Command, int]]:
    """Each command with the request code that it asks or answers."""
    asked: dict[tuple[str, bool, int], int] = {}
    for entry in frames(name):
        command = decode_frame(bytes.fromhex(entry["frame"])[4:])
        upwards = entry["dir"] == "c2s"
        if command.is_response:
            yield command, asked.get((entry["conn"], not upwards, command.opaque), -1)
        else:
            asked[entry["conn"], upwards, command.opaque] = command.code
            yield command, command.code


@pytest.mark.parametrize("name", [name for name in FILES if not name.startswith("errors")])
def test_headers_are_read_and_written_again(name: str) -> None:
    for command, code in conversations(name):
        cls = (RESPONSE_HEADERS if command.is_response else REQUEST_HEADERS).get(code)
        if cls is None or (
            command.is_response and "queueOffset" not in command.ext_fields and code in (310, 320)
        ):
            continue
        if command.is_response and not command.ext_fields:
            continue
        ext = {field: value for field, value in command.ext_fields.items() if field not in ADDED}
        assert cls.from_ext(command.ext_fields).to_ext() == ext


def test_headers_of_wrong_requests_are_refused_or_carried() -> None:
    refused = 0
    for name in (name for name in FILES if name.startswith("errors")):
        for command, code in conversations(name):
            cls = REQUEST_HEADERS.get(code)
            if cls is not None and not command.is_response:
                try:
                    cls.from_ext(command.ext_fields)
                except FieldError:
                    refused += 1
    assert refused > 10


def same_but_for_order(value: object) -> object:
    if isinstance(value, dict):
        return {key: same_but_for_order(item) for key, item in value.items()}
    return (
        sorted((same_but_for_order(item) for item in value), key=str)
        if isinstance(value, list)
        else value
    )


@pytest.mark.parametrize("name", FILES)
def test_bodies_are_read_and_written_again(name: str) -> None:
    for command, code in conversations(name):
        cls = (RESPONSE_BODIES if command.is_response else REQUEST_BODIES).get(code)
        if cls is None or not command.body or (command.is_response and command.code != 0):
            continue
        try:
            body = cls.decode(command.body)
        except RemoteProtocolError:
            assert name.startswith("errors")
            assert not command.is_response
            continue
        assert cls.decode(body.encode()) == body
        recorded, written = decode_json(command.body), decode_json(body.encode())
        assert isinstance(recorded, dict)
        assert isinstance(written, dict)
        missing = {
            member: item
            for member, item in recorded.items()
            if same_but_for_order(written.get(member)) != same_but_for_order(item)
        }
        assert missing == {}, (cls.__name__, code)
