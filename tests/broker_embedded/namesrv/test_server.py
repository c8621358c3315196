"""The name server: what its requests do, and what time and closing connections do to
it.
"""

from __future__ import annotations

import zlib
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest
import trio
import trio.testing

from rocketmq_sdk.broker_embedded.namesrv.config import NamesrvConfig
from rocketmq_sdk.broker_embedded.namesrv.registration import (
    NEVER_MS,
    OWN_BROKER,
    BrokerRegistration,
)
from rocketmq_sdk.broker_embedded.namesrv.server import NameServer, dialled_address
from rocketmq_sdk.clock import TrioClock
from rocketmq_sdk.codes import RequestCode
from rocketmq_sdk.errors import StoreCorruptError
from rocketmq_sdk.protocol.bodies.admin import KVTable
from rocketmq_sdk.protocol.bodies.registration import RegisterBrokerBody
from rocketmq_sdk.protocol.bodies.routes import decode_route
from rocketmq_sdk.protocol.bodies.topics import (
    DataVersion,
    TopicConfig,
    TopicConfigSerializeWrapper,
)
from rocketmq_sdk.protocol.command import Command
from rocketmq_sdk.protocol.headers import kv as kv_headers
from rocketmq_sdk.protocol.headers import registration as headers
from rocketmq_sdk.protocol.headers import routes as route_headers
from rocketmq_sdk.protocol.headers.routes import GetRouteInfoRequestHeader
from support.administration import FakeChannel, FixedClock, TableInMemory, at_once

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

VERSION = DataVersion(0, 5, 1)


def ask(
    namesrv: NameServer,
    code: int,
    header: object = None,
    body: bytes = b"",
    channel: FakeChannel | None = None,
) -> Command:
    request = Command.request(code, header, body=body)  # type: ignore[arg-type]
    answer = namesrv.handler(channel or FakeChannel(), request)
    if callable(answer):
        answer = at_once(answer)
    assert isinstance(answer, Command)
    return answer


def register(
    namesrv: NameServer,
    channel: FakeChannel | None = None,
    *,
    timeout: int | None = None,
    compressed: bool = False,
    crc: int | None = None,
) -> Command:
    table = {name: TopicConfig(name) for name in ("T", "U")}
    registration = RegisterBrokerBody(TopicConfigSerializeWrapper(table, VERSION))
    body = registration.encode_compressed() if compressed else registration.encode()
    header = headers.RegisterBrokerRequestHeader(
        broker_name="a",
        broker_addr="10.0.0.1:1",
        cluster_name="c",
        ha_server_addr="10.0.0.1:2",
        broker_id=0,
        heartbeat_timeout_millis=timeout,
        compressed=compressed,
        body_crc32=zlib.crc32(body) & 0x7FFFFFFF if crc is None else crc,
    )
    return ask(namesrv, RequestCode.REGISTER_BROKER, header, body, channel)


@asynccontextmanager
async def running(namesrv: NameServer) -> AsyncIterator[None]:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(namesrv.run)
        yield
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("compressed", [False, True])
def test_a_registration_in_both_forms(compressed: bool) -> None:
    namesrv = NameServer(FixedClock())
    assert register(namesrv, compressed=compressed).code == 0
    assert sorted(namesrv.table.queues.topics()) == ["T", "U"]


def test_a_registration_with_a_wrong_checksum() -> None:
    namesrv = NameServer(FixedClock())
    assert register(namesrv, crc=1).code == 1
    assert namesrv.table.queues.topics() == []
    assert register(namesrv, crc=0).code == 0


def test_a_broken_compressed_registration_is_an_answer() -> None:
    namesrv = NameServer(FixedClock())
    header = headers.RegisterBrokerRequestHeader(
        broker_name="a",
        broker_addr="x:1",
        cluster_name="c",
        ha_server_addr="",
        broker_id=0,
        compressed=True,
    )
    assert ask(namesrv, RequestCode.REGISTER_BROKER, header, b"\x00garbage").code == 1


def test_data_versions_are_compared_by_all_members() -> None:
    namesrv = NameServer(FixedClock())
    header = headers.QueryDataVersionRequestHeader(
        broker_name="a", broker_addr="10.0.0.1:1", cluster_name="c", broker_id=0
    )

    def changed(version: DataVersion) -> str:
        return ask(namesrv, RequestCode.QUERY_DATA_VERSION, header, version.encode()).ext_fields[
            "changed"
        ]

    assert changed(VERSION) == "true"
    register(namesrv)
    assert changed(VERSION) == "false"
    assert changed(DataVersion(0, 6, 1)) == "true"
    assert (
        DataVersion.decode(
            ask(namesrv, RequestCode.QUERY_DATA_VERSION, header, VERSION.encode()).body
        )
        == VERSION
    )


def test_order_configuration_goes_to_brokers_and_clients() -> None:
    namesrv = NameServer(FixedClock(), config=NamesrvConfig(order_message_enable=True))
    header = kv_headers.PutKVConfigRequestHeader(
        namespace="ORDER_TOPIC_CONFIG", key="T", value="a:4"
    )
    assert ask(namesrv, RequestCode.PUT_KV_CONFIG, header).code == 0
    assert KVTable.decode(register(namesrv).body).table == {"T": "a:4"}
    route = decode_route(
        ask(namesrv, RequestCode.GET_ROUTEINFO_BY_TOPIC, GetRouteInfoRequestHeader(topic="T")).body
    )
    assert route.order_topic_conf == "a:4"


def test_a_route_is_told_as_it_is_now() -> None:
    namesrv = NameServer(FixedClock())
    register(namesrv)

    def told() -> set[int]:
        header = GetRouteInfoRequestHeader(topic="T")
        route = decode_route(ask(namesrv, RequestCode.GET_ROUTEINFO_BY_TOPIC, header).body)
        return {each.perm for each in route.queue_datas}

    assert (told(), told()) == ({6}, {6})
    wipe = route_headers.WipeWritePermOfBrokerRequestHeader(broker_name="a")
    assert ask(namesrv, RequestCode.WIPE_WRITE_PERM_OF_BROKER, wipe).code == 0
    assert told() == {4}
    add = route_headers.AddWritePermOfBrokerRequestHeader(broker_name="a")
    assert ask(namesrv, RequestCode.ADD_WRITE_PERM_OF_BROKER, add).code == 0
    assert told() == {6}


def test_the_key_value_table_outlives_the_name_server() -> None:
    file = TableInMemory()
    namesrv = NameServer(FixedClock(), kv_file=file)
    ask(
        namesrv,
        RequestCode.PUT_KV_CONFIG,
        kv_headers.PutKVConfigRequestHeader(namespace="n", key="k", value="v"),
    )
    assert file.load() == {"configTable": {"n": {"k": "v"}}}
    again = NameServer(FixedClock(), kv_file=file)
    assert ask(
        again,
        RequestCode.GET_KV_CONFIG,
        kv_headers.GetKVConfigRequestHeader(namespace="n", key="k"),
    ).ext_fields == {"value": "v"}
    ask(
        again,
        RequestCode.DELETE_KV_CONFIG,
        kv_headers.DeleteKVConfigRequestHeader(namespace="n", key="k"),
    )
    assert (
        ask(
            again,
            RequestCode.GET_KV_CONFIG,
            kv_headers.GetKVConfigRequestHeader(namespace="n", key="k"),
        ).code
        == 22
    )
    assert file.load() == {"configTable": {"n": {}}}
    with pytest.raises(StoreCorruptError, match=r"kvConfig\.json"):
        NameServer(FixedClock(), kv_file=TableInMemory({"configTable": [1]}))


def test_settings_over_the_wire() -> None:
    namesrv = NameServer(FixedClock())
    assert (
        ask(
            namesrv,
            RequestCode.UPDATE_NAMESRV_CONFIG,
            body=b"enableAllTopicList=false\nbindAddress=::\n",
        ).code
        == 0
    )
    refused = ask(namesrv, RequestCode.UPDATE_NAMESRV_CONFIG, body=b"what=ever\n")
    assert (refused.code, refused.remark) == (1, "the name server has no setting what")
    assert ask(namesrv, RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER).code == 1
    assert (
        ask(namesrv, RequestCode.UPDATE_NAMESRV_CONFIG, body=b"enableAllTopicList=maybe").code == 1
    )
    assert ask(namesrv, RequestCode.UPDATE_NAMESRV_CONFIG, body=b"kvConfigPath=/x").code == 16
    assert ask(namesrv, RequestCode.UPDATE_NAMESRV_CONFIG, body=b"").code == 1
    lines = ask(namesrv, RequestCode.GET_NAMESRV_CONFIG).body.decode().splitlines()
    assert "enableAllTopicList=false" in lines
    assert "bindAddress=::" in lines


def test_not_ready_at_first_when_told_so() -> None:
    clock = FixedClock()
    namesrv = NameServer(clock, config=NamesrvConfig(need_wait_for_service=True))
    register(namesrv)
    assert (
        ask(namesrv, RequestCode.GET_ROUTEINFO_BY_TOPIC, GetRouteInfoRequestHeader(topic="T")).code
        == 1
    )
    clock.time_ms += 45_000
    assert (
        ask(namesrv, RequestCode.GET_ROUTEINFO_BY_TOPIC, GetRouteInfoRequestHeader(topic="T")).code
        == 0
    )


def test_unknown_codes_and_missing_fields() -> None:
    namesrv = NameServer(FixedClock())
    answer = ask(namesrv, 4711)
    assert (answer.code, answer.remark) == (3, " request type 4711 not supported")
    assert ask(namesrv, RequestCode.UNREGISTER_BROKER).code == 1
    missing = ask(
        namesrv, RequestCode.GET_ROUTEINFO_BY_TOPIC, GetRouteInfoRequestHeader(topic="Nowhere")
    )
    assert missing.code == 17
    assert "Nowhere" in (missing.remark or "")


@pytest.mark.parametrize(
    ("dialled", "told"),
    [
        ("10.1.1.1:9876", "10.1.1.1:10911"),
        ("[::1]:9876", "[::1]:10911"),
        ("broker.example:1", "broker.example:10911"),
        ("memory", "here:1"),
    ],
)
def test_the_own_broker_is_where_the_client_dialled(dialled: str, told: str) -> None:
    namesrv = NameServer(FixedClock(), own_address=dialled_address(lambda: 10911, "here:1"))
    namesrv.register(
        BrokerRegistration(
            cluster="c",
            address=OWN_BROKER,
            broker_name="a",
            heartbeat_timeout_ms=NEVER_MS,
            topics={"T": TopicConfig("T"), "U": TopicConfig("U")},
        )
    )
    channel = FakeChannel(local_address=dialled)
    answer = ask(
        namesrv,
        RequestCode.GET_ROUTEINFO_BY_TOPIC,
        GetRouteInfoRequestHeader(topic="T"),
        channel=channel,
    )
    assert decode_route(answer.body).broker_datas[0].broker_addrs == {0: told}


async def test_silent_brokers_leave_the_routes(autojump_clock: trio.testing.MockClock) -> None:
    namesrv = NameServer(TrioClock())
    channel = FakeChannel()
    with trio.fail_after(600):
        async with running(namesrv):
            register(namesrv, channel, timeout=30_000)
            await trio.sleep(29.9)
            assert namesrv.table.route("T") is not None
            register(namesrv, channel, timeout=30_000)
            await trio.sleep(29.9)
            assert namesrv.table.route("T") is not None
            await trio.sleep(0.2)
            assert namesrv.table.route("T") is None
            assert channel.closed


async def test_a_later_registration_with_a_shorter_timeout_is_not_overslept(
    autojump_clock: trio.testing.MockClock,
) -> None:
    namesrv = NameServer(TrioClock())
    with trio.fail_after(600):
        async with running(namesrv):
            namesrv.register(
                BrokerRegistration(
                    cluster="c",
                    address="own",
                    broker_name="own",
                    heartbeat_timeout_ms=NEVER_MS,
                    topics={"A": TopicConfig("A"), "B": TopicConfig("B")},
                )
            )
            await trio.sleep(100)
            register(namesrv, timeout=1000)
            await trio.sleep(1.1)
            assert namesrv.table.route("T") is None
            assert namesrv.table.route("A") is not None


def test_the_end_of_a_connection_takes_its_broker_out() -> None:
    namesrv = NameServer(FixedClock())
    channel = FakeChannel()
    register(namesrv, channel)
    register(namesrv, channel)
    assert len(channel.on_close) == 1
    channel.abort("gone")
    assert namesrv.table.route("T") is None


class SteppedClock(FixedClock):
    """A wall clock that NTP moves; the monotonic one does not care."""

    def __init__(self) -> None:
        super().__init__()
        self.seconds = 50.0

    def monotonic(self) -> float:
        return self.seconds


async def test_a_step_of_the_wall_clock_gives_up_nobody(
    autojump_clock: trio.testing.MockClock,
) -> None:
    clock = SteppedClock()
    namesrv = NameServer(clock)
    with trio.fail_after(300):
        async with trio.open_nursery() as nursery:
            register(namesrv)
            for step in (24 * 3_600_000, -48 * 3_600_000):
                clock.time_ms += step
                nursery.start_soon(namesrv.run)
                await trio.testing.wait_all_tasks_blocked()
                assert namesrv.table.route("T") is not None
            nursery.cancel_scope.cancel()
        async with trio.open_nursery() as nursery:
            clock.seconds += 121
            nursery.start_soon(namesrv.run)
            await trio.testing.wait_all_tasks_blocked()
            assert namesrv.table.route("T") is None
            nursery.cancel_scope.cancel()
