"""What Apache's brokers ask a name server and are answered, held against ours.

Mask: opaque, language, version, encoding and remarks of successes are not compared;
lists of names are compared as sets.
"""

from __future__ import annotations

import pytest

from rocketmq_sdk.broker_embedded.namesrv.server import NameServer
from rocketmq_sdk.codes import RequestCode
from rocketmq_sdk.protocol.command import Command
from rocketmq_sdk.protocol.headers.routes import GetRouteInfoRequestHeader
from rocketmq_sdk.protocol.json.dialect import decode_json
from support.administration import FakeChannel, FixedClock, body_of, conversation

VARIANTS = ["json", "rocketmq", "json-5.3.3"]


@pytest.mark.parametrize("variant", VARIANTS)
def test_registrations(variant: str) -> None:
    namesrv = NameServer(FixedClock())
    channels: dict[str, FakeChannel] = {}
    count = 0
    for connection, request, expected in conversation(f"broker_register.{variant}.jsonl"):
        answer = namesrv.handler(channels.setdefault(connection, FakeChannel()), request)
        assert isinstance(answer, Command)
        assert (answer.code, answer.ext_fields, body_of(answer)) == (
            expected.code,
            expected.ext_fields,
            body_of(expected),
        ), request
        count += 1
    assert count >= 2
    route = namesrv.table.route("TBW102")
    assert route is not None
    assert [(data.broker_name, data.write_queue_nums, data.perm) for data in route.queue_datas] == [
        ("broker-a", 8, 7)
    ]
    for channel in channels.values():
        channel.abort("gone")
    assert namesrv.table.route("TBW102") is None


@pytest.mark.parametrize("variant", VARIANTS)
def test_unregistrations(variant: str) -> None:
    namesrv = NameServer(FixedClock())
    for _, request, _ in conversation(f"broker_register.{variant}.jsonl"):
        namesrv.handler(FakeChannel(), request)
    assert namesrv.table.brokers.cluster_info().broker_addr_table
    codes = set()
    for _, request, expected in conversation(f"broker_unregister.{variant}.jsonl"):
        answer = namesrv.handler(FakeChannel(), request)
        assert isinstance(answer, Command)
        assert (answer.code, answer.ext_fields, body_of(answer)) == (
            expected.code,
            expected.ext_fields,
            body_of(expected),
        ), request
        codes.add(request.code)
    assert RequestCode.UNREGISTER_BROKER in codes
    assert not namesrv.table.brokers.cluster_info().broker_addr_table


@pytest.mark.parametrize(
    ("version", "strict", "text"),
    [(317, False, b'{0:"'), (317, True, b'{"0":"'), (401, False, b'{"0":"'), (400, False, b'{0:"')],
)
def test_route_json_follows_the_peer(version: int, strict: bool, text: bytes) -> None:
    namesrv = NameServer(FixedClock())
    for _, request, _ in conversation("broker_register.json.jsonl"):
        namesrv.handler(FakeChannel(), request)
    request = Command.request(
        105, GetRouteInfoRequestHeader(topic="TBW102", accept_standard_json_only=strict or None)
    )
    request.version = version
    answer = namesrv.handler(FakeChannel(), request)
    assert isinstance(answer, Command)
    assert text in answer.body
    assert decode_json(answer.body)


def test_cluster_information_is_always_in_the_dialect() -> None:
    namesrv = NameServer(FixedClock())
    for _, request, _ in conversation("broker_register.json.jsonl"):
        namesrv.handler(FakeChannel(), request)
    request = Command.request(RequestCode.GET_BROKER_CLUSTER_INFO)
    request.version = 493
    answer = namesrv.handler(FakeChannel(), request)
    assert isinstance(answer, Command)
    assert b'"brokerAddrs":{0:"127.0.0.1:21911"}' in answer.body
