"""Our own clients and brokers with access control on: users with the permissions that
they need and no more.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
import trio

from rocketmq_sdk import (
    Admin,
    ConsumeFrom,
    Credentials,
    EmbeddedBroker,
    LitePullConsumer,
    Message,
    Producer,
    PushConsumer,
    SimpleConsumer,
    TransactionProducer,
    TransactionState,
)
from rocketmq_sdk.broker_embedded.replication.slave import SlaveState
from rocketmq_sdk.codes import RequestCode
from rocketmq_sdk.errors import BrokerError, ConfigurationError, NotFoundError, NotPermittedError
from rocketmq_sdk.protocol.bodies.topics import TopicConfig
from rocketmq_sdk.protocol.command import Command
from support.access import ADMIN, ON, SECRET, SignedPeer, add_user
from support.broker import connect, pull_request
from support.waiting import until

if TYPE_CHECKING:
    from trio.testing import MockClock

    from rocketmq_sdk.model.received import ReceivedMessage

WRITER, READER = Credentials("writer", "writer"), Credentials("reader", "reader")
INNER = json.dumps({"accessKey": "inner", "secretKey": "the secret of the brokers"})


async def add_people(broker: EmbeddedBroker) -> None:
    """A writer who may write `orders`, a reader who may read it with his group."""
    broker.core.topics.put(TopicConfig("orders", 2, 2))
    table = broker.parts.access.table
    await add_user(table, "writer", ("Topic:orders", "Pub", "Allow"))
    await add_user(
        table, "reader", ("Topic:orders", "Sub", "Allow"), ("Group:readers", "Sub", "Allow")
    )


async def test_a_writer_and_readers_of_every_kind(autojump_clock: MockClock) -> None:
    got: list[bytes] = []

    async def listener(message: ReceivedMessage) -> None:
        got.append(message.body)

    async with EmbeddedBroker(**ON) as broker:
        await add_people(broker)
        async with Producer("PG", namesrv=broker, credentials=WRITER) as producer:
            for number in range(3):
                await producer.send(Message("orders", b"%d" % number))
            await producer.send_batch([Message("orders", b"3"), Message("orders", b"4")])
            with pytest.raises((NotPermittedError, BrokerError)) as error:
                await producer.send(Message("invoices", b"x"))
            assert "User:writer has no permission to access Topic:invoices" in str(error.value)
        async with PushConsumer(
            "readers",
            subscriptions={"orders": "*"},
            listener=listener,
            consume_from=ConsumeFrom.FIRST_OFFSET,
            namesrv=broker,
            credentials=READER,
        ):
            with trio.fail_after(60):
                while len(got) < 5:
                    await trio.sleep(0.1)
        assert sorted(got) == [b"0", b"1", b"2", b"3", b"4"]
        offsets = broker.core.offsets
        assert sum(offsets.query("readers", "orders", queue) for queue in range(2)) == 5


async def test_a_lite_pull_consumer(autojump_clock: MockClock) -> None:
    async with EmbeddedBroker(**ON) as broker:
        await add_people(broker)
        async with Producer("PG", namesrv=broker, credentials=WRITER) as producer:
            await producer.send(Message("orders", b"one"))
        async with LitePullConsumer(
            "readers", subscriptions={"orders": "*"}, namesrv=broker, credentials=READER
        ) as consumer:
            with trio.fail_after(60):
                while not (messages := await consumer.poll(1)):
                    pass
        assert [message.body for message in messages] == [b"one"]


async def test_a_simple_consumer(autojump_clock: MockClock) -> None:
    async with EmbeddedBroker(**ON) as broker:
        await add_people(broker)
        async with Producer("PG", namesrv=broker, credentials=WRITER) as producer:
            await producer.send(Message("orders", b"one"))
        async with SimpleConsumer(
            "readers", subscriptions={"orders": "*"}, namesrv=broker, credentials=READER
        ) as consumer:
            with trio.fail_after(60):
                while not (messages := await consumer.receive(8, 30)):
                    pass
            await consumer.ack(messages[0])
        assert [message.body for message in messages] == [b"one"]


async def test_transactions(autojump_clock: MockClock) -> None:
    async def check(_message: ReceivedMessage) -> TransactionState:
        return TransactionState.COMMIT

    async with EmbeddedBroker(**ON) as broker, trio.open_nursery() as nursery:
        await add_people(broker)
        async with (
            TransactionProducer("PG", check, namesrv=broker, credentials=WRITER) as producer,
            producer.transaction(Message("orders", b"one")),
        ):
            pass
        peer = await connect(broker, nursery)
        answers = [
            await SignedPeer(peer).ask(pull_request("orders", 0, queue_id=queue))
            for queue in range(2)
        ]
        assert sorted(answer.code for answer in answers) == [0, 19]
        nursery.cancel_scope.cancel()


async def test_somebody_without_keys_gets_nothing(autojump_clock: MockClock) -> None:
    async with EmbeddedBroker(**ON) as broker:
        await add_people(broker)
        async with Producer("PG", namesrv=broker) as producer:
            with pytest.raises(BrokerError, match="username cannot be null"):
                await producer.send(Message("orders", b"x"))
        wrong = Credentials("writer", "guessed")
        async with Producer("PG", namesrv=broker, credentials=wrong) as producer:
            with pytest.raises(BrokerError, match="check signature failed"):
                await producer.send(Message("orders", b"x"))
        assert broker.core.stats.put_messages == 0


async def test_users_and_policies_by_admin(autojump_clock: MockClock) -> None:
    async with (
        EmbeddedBroker(**ON) as broker,
        Admin(namesrv=broker, credentials=broker.credentials) as admin,
    ):
        await admin.users.create("bob", "pw")
        with pytest.raises(NotPermittedError, match="The user is existed"):
            await admin.users.create("bob", "pw")
        await admin.users.update("bob", user_status="disable")
        bob = await admin.users.get("bob")
        assert bob is not None
        assert (bob.password, bob.user_type, bob.user_status) == ("pw", "Normal", "disable")
        assert "pw" not in repr(bob)
        assert await admin.users.get("eve") is None
        assert [user.username for user in await admin.users.list()] == [ADMIN, "bob"]
        assert [user.username for user in await admin.users.list("bo")] == ["bob"]
        await admin.acls.create(
            "bob", ["Topic:a", "Topic:b*"], ["Pub", "Sub"], source_ips=["127.0.0.0/8"]
        )
        await admin.acls.update("User:bob", ["*"], ["Get"], policy_type="Default")
        acl = await admin.acls.get("bob")
        assert acl is not None
        assert [
            (policy.policy_type, entry.resource, entry.actions, entry.source_ips)
            for policy in acl.policies
            for entry in policy.entries
        ] == [
            ("Custom", "Topic:a", ("Pub", "Sub"), ("127.0.0.0/8",)),
            ("Custom", "Topic:b*", ("Pub", "Sub"), ("127.0.0.0/8",)),
            ("Default", "*", ("Get",), None),
        ]
        assert await admin.acls.list("bob") == [acl]
        assert await admin.acls.list(resource="Group") == []
        await admin.acls.delete("bob", "Topic:a")
        await admin.acls.delete("bob", "*", policy_type="Default")
        (left,) = await admin.acls.list()
        assert [entry.resource for entry in left.policies[0].entries] == ["Topic:b*"]
        await admin.acls.delete("bob")
        assert await admin.acls.get("bob") is None
        await admin.users.delete("bob")
        with pytest.raises(NotPermittedError, match="The subject is not exist"):
            await admin.acls.get("bob")
        with pytest.raises(ConfigurationError, match="either"):
            await admin.users.get("bob", address="127.0.0.1:1", cluster="c")
        with pytest.raises(ConfigurationError, match="no broker"):
            await admin.users.get("bob", cluster="elsewhere")


@pytest.mark.real_time
async def test_users_are_copied_to_another_broker() -> None:
    async with (
        EmbeddedBroker(listen=0, namesrv_listen=0, **ON) as one,
        EmbeddedBroker(listen=0, **ON) as other,
        Admin(namesrv=one, credentials=one.credentials) as admin,
    ):
        assert one.address is not None
        assert other.address is not None
        await admin.users.create("bob", "pw")
        await admin.acls.create("bob", ["Topic:a"], ["Pub"])
        await admin.users.copy(one.address, other.address, ["bob"])
        await admin.acls.copy(one.address, other.address, ["bob"])
        await admin.users.copy(one.address, other.address)
        theirs, ours = other.parts.access.table, one.parts.access.table
        assert (theirs.users, theirs.acls) == (ours.users, ours.acls)
        with pytest.raises(NotFoundError, match="eve"):
            await admin.users.copy(one.address, other.address, ["eve"])
        with pytest.raises(NotFoundError, match="eve"):
            await admin.acls.copy(one.address, other.address, ["eve"])


@pytest.mark.real_time
async def test_a_slave_and_a_second_master_at_a_guarded_name_server() -> None:
    """They sign what they ask; without keys nobody registers."""
    sizes: dict[str, Any] = {"mapped_file_size_commit_log": 65536, "memory_limit": 64 << 20}
    on = {**ON, **sizes, "inner_client_authentication_credentials": INNER}
    async with EmbeddedBroker(
        listen=0,
        namesrv_listen=0,
        broker_role="SYNC_MASTER",
        total_replicas=2,
        in_sync_replicas=2,
        slave_timeout=30_000,
        **on,
    ) as master:
        await add_people(master)
        slave_settings: dict[str, Any] = {
            "broker_role": "SLAVE",
            "broker_id": 1,
            "namesrv_addr": master.namesrv_address,
            "slave_read_enable": True,
        }
        async with (
            EmbeddedBroker(listen=0, **slave_settings, **on) as slave,
            EmbeddedBroker(
                listen=0, broker_name="broker-b", namesrv_addr=master.namesrv_address, **on
            ),
            EmbeddedBroker(
                listen=0, broker_name="stranger", namesrv_addr=master.namesrv_address, **sizes
            ),
            Producer("PG", namesrv=master.namesrv_address, credentials=WRITER) as producer,
        ):
            follower = slave.parts.replication.slave
            assert follower is not None
            await until(lambda: follower.state is SlaveState.FOLLOWING)
            await producer.send(Message("orders", b"one"))
            await until(lambda: slave.core.topics.get("orders") is not None)
            async with Admin(
                namesrv=master.namesrv_address, credentials=Credentials(ADMIN, SECRET)
            ) as admin:
                found = {
                    (broker.name, broker.broker_id) for broker in await admin.cluster.brokers()
                }
            assert found == {("broker-a", 0), ("broker-a", 1), ("broker-b", 0)}


async def test_the_name_server_tells_routes_of_ones_own_topics_only(
    autojump_clock: MockClock,
) -> None:
    async with EmbeddedBroker(**ON) as broker, trio.open_nursery() as nursery:
        await add_people(broker)
        broker.core.topics.put(TopicConfig("secret", 2, 2))
        broker.parts.registration.service.register_own()
        reader = SignedPeer(await connect(broker, nursery, namesrv=True), "reader")
        route = RequestCode.GET_ROUTEINFO_BY_TOPIC
        assert (await reader.ask(route, topic="orders")).code == 0
        assert (await reader.ask(route, topic="secret")).code == 16
        assert (await reader.ask(route, topic="%RETRY%readers")).code != 16
        assert (await reader.ask(route, topic="%RETRY%others")).code == 16
        assert (await reader.ask(route, topic="TBW102")).code == 0
        assert (await reader.ask(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)).code == 16
        assert (await reader.peer.ask(Command(route, ext_fields={"topic": "orders"}))).code == 16
        nursery.cancel_scope.cancel()
