"""The client runtime against scripted peers: name servers, heartbeats, what brokers
ask, life.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
import trio

import rocketmq_sdk
from rocketmq_sdk.client.api.offsets import max_offset
from rocketmq_sdk.client.callbacks import ConsumerCallbacks, ProducerCallbacks
from rocketmq_sdk.client.runtime import Client
from rocketmq_sdk.clock import SystemClock
from rocketmq_sdk.codes import RequestCode
from rocketmq_sdk.errors import (
    ClosedError,
    ConfigurationError,
    ConnectError,
    NotSupportedError,
    RequestTimeoutError,
    RouteError,
    TopicNotFoundError,
)
from rocketmq_sdk.model.enums import ConsumeFrom, ConsumeType, MessageModel
from rocketmq_sdk.model.queue import MessageQueue
from rocketmq_sdk.model.route import BrokerData, TopicRoute
from rocketmq_sdk.protocol.bodies.connections import (
    ConsumeMessageDirectlyResult,
    ConsumeResult,
    ConsumerRunningInfo,
)
from rocketmq_sdk.protocol.bodies.members import ConsumerData
from rocketmq_sdk.protocol.bodies.offsets import GetConsumerStatusBody, ResetOffsetBody
from rocketmq_sdk.protocol.command import Command
from rocketmq_sdk.protocol.headers.connections import (
    ConsumeMessageDirectlyResultRequestHeader,
    GetConsumerRunningInfoRequestHeader,
)
from rocketmq_sdk.protocol.headers.members import NotifyConsumerIdsChangedRequestHeader
from rocketmq_sdk.protocol.headers.offsets import (
    GetConsumerStatusRequestHeader,
    ResetOffsetRequestHeader,
)
from rocketmq_sdk.protocol.message_codec import encode_record
from rocketmq_sdk.protocol.subscription import build_subscription
from rocketmq_sdk.testing import TestBroker
from rocketmq_sdk.testing.interception import intercept
from support.peers import Cluster, open_cluster

if TYPE_CHECKING:
    from trio.testing import MockClock

    from rocketmq_sdk.model.received import ReceivedMessage

QUEUE = MessageQueue("t", "b0", 1)


class Consumer(ConsumerCallbacks):
    """Notes what it is told."""

    def __init__(self, group: str = "cg") -> None:
        self.group = group
        self.told: list[Any] = []

    def heartbeat_data(self) -> ConsumerData:
        subscription = build_subscription("t", "*", sub_version=1)
        return ConsumerData(
            self.group,
            ConsumeType.CONSUME_PASSIVELY,
            MessageModel.CLUSTERING,
            ConsumeFrom.LAST_OFFSET,
            (subscription,),
        )

    def on_ids_changed(self) -> None:
        self.told.append("ids")

    def on_route_changed(self, topic: str) -> None:
        self.told.append(("route", topic))

    def on_broker_connected(self, address: str) -> None:
        self.told.append(("connected", address))

    def on_reset_offsets(self, topic: str, offsets: dict[MessageQueue, int]) -> None:
        self.told.append(("reset", topic, offsets))

    def consumer_status(self, topic: str) -> dict[MessageQueue, int]:
        return {QUEUE: 5} if topic == "t" else {}

    def running_info(self, *, stacks: bool) -> ConsumerRunningInfo:
        return ConsumerRunningInfo(properties={"stacks": str(stacks)})

    def consume_directly(self, message: ReceivedMessage, broker_name: str | None) -> Any:
        async def run() -> ConsumeMessageDirectlyResult:
            await trio.sleep(0.1)
            return ConsumeMessageDirectlyResult(
                consume_result=ConsumeResult.SUCCESS, remark=f"{message.body!r} {broker_name}"
            )

        return run


class Producer(ProducerCallbacks):
    """A registered producer."""


# --- name servers


async def test_the_chosen_name_server_is_kept(autojump_clock: MockClock) -> None:
    async with open_cluster(name_servers=3) as cluster, cluster.client() as client:
        with trio.fail_after(30):
            for _ in range(6):
                await client.route("t", refresh=True)
    assert sorted(len(server.asked) for server in cluster.name_servers) == [0, 0, 6]


async def test_the_next_name_server_is_asked_within_the_same_query(
    autojump_clock: MockClock,
) -> None:
    async with open_cluster(name_servers=3) as cluster, cluster.client() as client:
        with trio.fail_after(60):
            await client.route("t")
            chosen = next(server for server in cluster.name_servers if server.asked)
            await chosen.stop()
            route = await client.route("t", refresh=True)
            assert route.queue_datas
            other = next(
                server for server in cluster.name_servers if server.asked and server is not chosen
            )
            other.silent = True
            began = trio.current_time()
            await client.route("t", refresh=True)
            assert trio.current_time() - began <= 3.0
        assert all(server.asked for server in cluster.name_servers)


async def test_a_query_whose_connection_ends_is_asked_once_more(
    autojump_clock: MockClock,
) -> None:
    """An old connection ends so when its name server was restarted."""
    async with TestBroker() as broker, Client(broker.party("shop")) as client:
        await broker.seed(topics=["orders"])
        with trio.fail_after(60):
            await client.routes.fetch("orders")
            with broker.faults.on("route", times=1).close_connection() as once:
                assert (await client.routes.fetch("orders")).queue_datas
            assert once.hits == 1
            always = broker.faults.on("route").close_connection()
            with pytest.raises(ConnectError):
                await client.routes.fetch("orders")
            assert always.hits == 2


async def test_no_name_server_answers(autojump_clock: MockClock) -> None:
    async with open_cluster(name_servers=2) as cluster, cluster.client() as client:
        for server in cluster.name_servers:
            await server.stop()
        with trio.fail_after(60), pytest.raises((ConnectError, RequestTimeoutError)):
            await client.route("t")


async def test_a_topic_that_nobody_knows(autojump_clock: MockClock) -> None:
    async with open_cluster() as cluster, cluster.client() as client:
        with trio.fail_after(60), pytest.raises(TopicNotFoundError) as caught:
            await client.route("nobody")
        assert isinstance(caught.value, RouteError)
        assert caught.value.topic == "nobody"


# --- heartbeats


def heartbeat(body: bytes) -> dict[str, Any]:
    decoded: dict[str, Any] = json.loads(body)
    return decoded


async def test_heartbeats_reach_masters_every_thirty_seconds(autojump_clock: MockClock) -> None:
    async with open_cluster(brokers=2) as cluster, cluster.client() as client:
        slave = cluster.brokers[1]
        cluster.routes["t"] = TopicRoute(
            cluster.routes["t"].queue_datas[:1],
            (BrokerData("c", "b0", {0: cluster.brokers[0].address, 1: slave.address}),),
        )
        client.register_producer("pg", Producer())
        client.routes.use("t")
        with trio.fail_after(200):
            await trio.sleep(65)
            # one on the opened connection, then one second after the start and every
            # thirty seconds
            assert len(cluster.brokers[0].heartbeats) in (3, 4)
            assert slave.heartbeats == []
            client.register_consumer("cg", Consumer())
            await client.heartbeat_now()
            assert len(slave.heartbeats) >= 1
        data = heartbeat(slave.heartbeats[-1])
    assert data["clientID"] == client.client_id
    assert data["producerDataSet"] == [{"groupName": "pg"}]
    assert [consumer["groupName"] for consumer in data["consumerDataSet"]] == ["cg"]
    assert data["consumerDataSet"][0]["subscriptionDataSet"][0]["topic"] == "t"


async def test_without_members_there_is_no_heartbeat(autojump_clock: MockClock) -> None:
    async with open_cluster(brokers=1) as cluster, cluster.client() as client:
        client.routes.use("t")
        with trio.fail_after(200):
            await trio.sleep(65)
        assert cluster.brokers[0].heartbeats == []


async def test_a_broker_hears_at_once_who_has_connected_again(autojump_clock: MockClock) -> None:
    async with open_cluster(brokers=1) as cluster, cluster.client() as client:
        broker = cluster.brokers[0]
        intercept(
            broker.dispatcher,
            RequestCode.GET_MAX_OFFSET,
            by=lambda *_: Command(0, flag=1, ext_fields={"offset": "7"}),
        )
        consumer = Consumer()
        client.register_consumer("cg", consumer)
        client.routes.use("t")
        with trio.fail_after(100):
            await trio.sleep(5)
            before = len(broker.heartbeats)
            assert consumer.told.count(("connected", broker.address)) == 1
            await broker.stop()
            await broker.start()
            assert await max_offset(client, "b0", "t", 0) == 7
            await trio.sleep(0.1)
            assert len(broker.heartbeats) == before + 1
            assert consumer.told.count(("connected", broker.address)) == 2


async def test_versions_are_remembered(autojump_clock: MockClock) -> None:
    async with open_cluster(brokers=1) as cluster, cluster.client() as client:
        broker = cluster.brokers[0]
        intercept(
            broker.dispatcher,
            RequestCode.HEART_BEAT,
            by=lambda *_: Command(0, flag=1, version=401),
        )
        client.register_producer("pg", Producer())
        client.routes.use("t")
        with trio.fail_after(100):
            await trio.sleep(1)
            assert client.brokers.version(broker.address) in (0, 401)
            await client.heartbeat_now()
        assert client.brokers.version(broker.address) == 401
        assert client.brokers.version("other:1") == 0


async def test_leaving_unregisters_at_connected_brokers_only(autojump_clock: MockClock) -> None:
    async with open_cluster(brokers=2) as cluster, cluster.client() as client:
        client.register_consumer("cg", Consumer())
        with trio.fail_after(100):
            await client.route("t")
            await client.call_address(cluster.brokers[0].address, Command(RequestCode.HEART_BEAT))
            await client.unregister_consumer("cg")
            await client.unregister_consumer("cg")
        assert [broker.unregistered for broker in cluster.brokers] == [
            [{"clientID": client.client_id, "consumerGroup": "cg"}],
            [],
        ]


# --- what brokers ask


async def ask(cluster: Cluster, client: Client, command: Command) -> Command:
    """Let the broker ask the client on the client's connection."""
    broker = cluster.brokers[0]
    await client.call_address(broker.address, Command(RequestCode.HEART_BEAT))
    (channel,) = broker.server.channels.values()
    if command.is_oneway:
        channel.send_oneway(command)
        await trio.sleep(1)
        return command
    return await channel.call(command, 5)


async def test_notices_of_members_and_offsets(autojump_clock: MockClock) -> None:
    async with open_cluster(brokers=1) as cluster, cluster.client() as client:
        consumer, other = Consumer(), Consumer("other")
        client.register_consumer("cg", consumer)
        client.register_consumer("other", other)
        with trio.fail_after(100):
            notice = NotifyConsumerIdsChangedRequestHeader(consumer_group="cg")
            await ask(
                cluster,
                client,
                Command.request(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, notice, oneway=True),
            )
            await ask(
                cluster,
                client,
                Command.request(
                    RequestCode.RESET_CONSUMER_CLIENT_OFFSET,
                    ResetOffsetRequestHeader(group="cg", topic="t", timestamp=1),
                    body=ResetOffsetBody({QUEUE: 9}).encode(),
                    oneway=True,
                ),
            )
        assert consumer.told == ["ids", ("reset", "t", {QUEUE: 9})]
        assert other.told == []


async def test_questions_about_consumers(autojump_clock: MockClock) -> None:
    record = encode_record(
        b"t",
        b"body",
        b"",
        queue_id=1,
        flag=0,
        queue_offset=2,
        physical_offset=3,
        sys_flag=0,
        born_timestamp=4,
        born_host=b"\x7f\0\0\1\0\0\0\1",
        store_timestamp=5,
        store_host=b"\x7f\0\0\1\0\0\0\2",
        reconsume_times=0,
        prepared_offset=0,
    )
    async with open_cluster(brokers=1) as cluster, cluster.client() as client:
        client.register_consumer("cg", Consumer())
        with trio.fail_after(100):
            status = await ask(
                cluster,
                client,
                Command.request(
                    RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT,
                    GetConsumerStatusRequestHeader(topic="t", group="cg"),
                ),
            )
            assert GetConsumerStatusBody.decode(status.body).message_queue_table == {QUEUE: 5}
            header = GetConsumerRunningInfoRequestHeader(
                consumer_group="cg", client_id="x", jstack_enable=True
            )
            info = await ask(
                cluster, client, Command.request(RequestCode.GET_CONSUMER_RUNNING_INFO, header)
            )
            assert ConsumerRunningInfo.decode(info.body).properties == {"stacks": "True"}
            direct = ConsumeMessageDirectlyResultRequestHeader(
                consumer_group="cg", broker_name="b0"
            )
            result = await ask(
                cluster,
                client,
                Command.request(RequestCode.CONSUME_MESSAGE_DIRECTLY, direct, body=record),
            )
            assert ConsumeMessageDirectlyResult.decode(result.body).remark == "b'body' b0"


@pytest.mark.parametrize(
    ("command", "code"),
    [
        (
            Command.request(
                RequestCode.GET_CONSUMER_RUNNING_INFO,
                GetConsumerRunningInfoRequestHeader(consumer_group="no", client_id="x"),
            ),
            1,
        ),
        (
            Command.request(
                RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT,
                GetConsumerStatusRequestHeader(topic="t", group="no"),
            ),
            0,
        ),
        (Command.request(RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT), 1),
        (Command(RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT), 0),
        (Command(RequestCode.PULL_MESSAGE), 3),
        (Command(9999), 3),
    ],
)
async def test_what_nobody_serves(command: Command, code: int, autojump_clock: MockClock) -> None:
    async with open_cluster(brokers=1) as cluster, cluster.client() as client:
        with trio.fail_after(100):
            assert (await ask(cluster, client, command)).code == code


# --- routes and life


async def test_members_hear_of_route_changes(autojump_clock: MockClock) -> None:
    async with open_cluster(brokers=1, topics=()) as cluster, cluster.client() as client:
        consumer = Consumer()
        client.register_consumer("cg", consumer)
        client.routes.use("t")
        with trio.fail_after(100):
            await trio.sleep(2)
            cluster.route("t")
            await trio.sleep(10)
        assert ("route", "t") in consumer.told
        assert client.broker_address("b0") == cluster.brokers[0].address


async def test_calls_by_name_need_a_route(autojump_clock: MockClock) -> None:
    async with open_cluster(brokers=1) as cluster, cluster.client() as client:
        with trio.fail_after(100), pytest.raises(RouteError, match="b0"):
            await max_offset(client, "b0", "t", 0)


async def test_a_client_runs_once_and_only_inside_its_block(autojump_clock: MockClock) -> None:
    async with open_cluster() as cluster:
        client = cluster.client()
        assert not client.running
        with pytest.raises(ClosedError):
            await client.call_address("h:1", Command(1))
        with pytest.raises(ClosedError):
            await client.call_name_server(Command(1))
        async with client:
            assert client.running
        assert not client.running
        with pytest.raises(ClosedError):
            await client.__aenter__()


async def test_the_bodys_error_comes_out_as_itself(autojump_clock: MockClock) -> None:
    async def body(cluster: Cluster) -> None:
        async with cluster.client() as client:
            client.routes.use("t")
            await trio.sleep(3)
            raise ZeroDivisionError

    async with open_cluster() as cluster:
        with pytest.raises(ZeroDivisionError):
            await body(cluster)


def test_identity() -> None:
    first, second = Client("127.0.0.1:9876"), Client("127.0.0.1:9876", unit_name="u")
    assert first.client_id.startswith("127.0.0.1@")
    assert second.client_id.endswith("@u")
    assert first.client_id != second.client_id
    assert (
        Client("h:1", client_ip="10.1.2.3", instance_name="DEFAULT").client_id == "10.1.2.3@DEFAULT"
    )
    message_id = Client("h:1", client_ip="fd00::2", clock=SystemClock()).ids.next_id()
    assert message_id.startswith("FD0000")
    assert len(message_id) == 56


@pytest.mark.parametrize(
    "options",
    [
        {"api_timeout": 0},
        {"client_ip": "host"},
        {"header_encoding": "XML"},
        {"heartbeat_broker_interval": "x"},
        {"unknown": 1},
    ],
)
def test_bad_settings(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError):
        Client("h:1", **options)


@pytest.mark.parametrize("namesrv", ["", "host", "h:1;x", [], 5])
def test_bad_name_servers(namesrv: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NAMESRV_ADDR", raising=False)
    with pytest.raises(ConfigurationError):
        Client(namesrv)


@pytest.mark.real_time
async def test_the_address_of_a_broker_is_no_name_server() -> None:
    async with (
        rocketmq_sdk.EmbeddedBroker(listen="127.0.0.1:0") as broker,
        rocketmq_sdk.Producer("shop", namesrv=broker.address) as producer,
    ):
        with pytest.raises(NotSupportedError, match="namesrv= is the address of a broker"):
            await producer.send(rocketmq_sdk.Message("orders", b"1"))
