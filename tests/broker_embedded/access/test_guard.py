"""What stands around the decisions: white lists, remembered decisions, large bodies,
the audit, and messages that are named by their place.
"""

from __future__ import annotations

import logging
import pickle
from typing import TYPE_CHECKING, Any

import pytest
import trio

from rocketmq_sdk.broker_embedded import needs
from rocketmq_sdk.broker_embedded.access.guard import Guard
from rocketmq_sdk.broker_embedded.broker import EmbeddedBroker
from rocketmq_sdk.broker_embedded.request import Request
from rocketmq_sdk.broker_embedded.settings.config import BrokerConfig
from rocketmq_sdk.codes import RequestCode
from rocketmq_sdk.errors import ConfigurationError
from rocketmq_sdk.model.enums import ConsumeFrom, ConsumeType, MessageModel
from rocketmq_sdk.model.route import split_address
from rocketmq_sdk.protocol.bodies.admin import KVTable
from rocketmq_sdk.protocol.bodies.members import ConsumerData, HeartbeatData
from rocketmq_sdk.protocol.bodies.topics import TopicConfig
from rocketmq_sdk.protocol.command import Command
from rocketmq_sdk.protocol.frame import decode_frame, encode_frame
from rocketmq_sdk.protocol.message_codec import decode_messages
from rocketmq_sdk.protocol.subscription import build_subscription
from rocketmq_sdk.remoting.dispatch import Dispatcher
from rocketmq_sdk.transport.tcp import open_tcp_stream
from support.access import ADMIN, ON, SECRET, SignedPeer, add_user, signed
from support.broker import connect, open_broker, pull_request, send_request
from support.chunks import exchange
from support.transactions import COMMIT, end_request, half_request, ops

if TYPE_CHECKING:
    from pathlib import Path

    from trio.testing import MockClock

    from rocketmq_sdk.broker_embedded.access.table import AccessTable

DENIED, REMARK = 16, "User:bob has no permission to access {} from 127.0.0.1, no matched policies."


def said(answer: Command) -> tuple[int, str | None]:
    return int(answer.code), answer.remark


def table_of(broker: EmbeddedBroker) -> AccessTable:
    return broker.parts.access.table


async def test_nothing_is_in_front_of_the_dispatcher_where_it_is_off(
    autojump_clock: MockClock,
) -> None:
    async with EmbeddedBroker() as broker:
        for server in (broker.server, broker.vip_server, broker.namesrv_server):
            assert isinstance(server._handler, Dispatcher)
    async with EmbeddedBroker(**ON) as broker:
        for server in (broker.server, broker.vip_server, broker.namesrv_server):
            assert isinstance(server._handler, Guard)


async def test_a_row_without_needs_does_not_start(autojump_clock: MockClock) -> None:
    async with EmbeddedBroker(**ON) as broker:
        access: Any = broker.parts.access
        bad: Any = None
        row = Request(RequestCode.GET_KV_CONFIG, lambda: None, bad)
        with pytest.raises(TypeError, match="GET_KV_CONFIG"):
            access.guarded(Dispatcher(), Dispatcher(), [row])


async def test_a_handler_without_a_row_is_for_super_users(autojump_clock: MockClock) -> None:
    async with open_broker(**ON) as (broker, peer):
        await add_user(table_of(broker), "bob", ("*", "All", "Allow"))
        broker.handler.replace(99, lambda _channel, _command: Command.response())
        assert (await SignedPeer(peer, "bob").ask(99)).code == DENIED
        assert (await SignedPeer(peer).ask(99)).code == 0


async def test_authentication_alone(autojump_clock: MockClock) -> None:
    settings = {**ON, "authorization_enabled": False}
    async with open_broker(**settings) as (broker, peer):
        await add_user(table_of(broker), "bob")
        assert (await SignedPeer(peer, "bob").ask(RequestCode.GET_BROKER_CONFIG)).code == 0
        answer = await peer.ask(RequestCode.GET_BROKER_CONFIG)
        assert said(answer) == (DENIED, "username cannot be null.")


async def test_white_lists(autojump_clock: MockClock) -> None:
    settings = {**ON, "authentication_whitelist": "26, 28", "authorization_whitelist": "28,106"}
    async with open_broker(**settings) as (broker, peer):
        await add_user(table_of(broker), "bob")
        bob = SignedPeer(peer, "bob")
        assert (await bob.ask(RequestCode.GET_BROKER_RUNTIME_INFO)).code == 0
        assert (await bob.ask(RequestCode.GET_BROKER_CONFIG)).code == DENIED
        # Nobody needs a signature for 26 and 28, and nobody a permission for 28.
        assert (await peer.ask(RequestCode.GET_BROKER_RUNTIME_INFO)).code == 0
        failed = "Authorization failed. Please verify your access rights and try again."
        assert said(await peer.ask(RequestCode.GET_BROKER_CONFIG)) == (DENIED, failed)
        # A name without its signature is nobody's.
        request = Command(RequestCode.GET_BROKER_CONFIG, ext_fields={"AccessKey": ADMIN})
        assert said(await peer.ask(request)) == (DENIED, failed)
        request = signed(Command(RequestCode.GET_BROKER_CONFIG), ADMIN, "wrong")
        assert said(await peer.ask(request)) == (DENIED, failed)
        assert (await SignedPeer(peer).ask(RequestCode.GET_BROKER_CONFIG)).code == 0


async def test_clients_up_to_4_9_3_do_not_sign_the_mark_of_unique_queries(
    autojump_clock: MockClock,
) -> None:
    async with open_broker(**ON) as (_broker, peer):
        for version, code in ((399, 0), (400, DENIED)):
            request = signed(Command(RequestCode.GET_BROKER_CONFIG, version=version))
            request.ext_fields["_UNIQUE_KEY_QUERY"] = "true"
            assert (await peer.ask(request)).code == code


async def test_the_vip_port_is_guarded(autojump_clock: MockClock) -> None:
    async with EmbeddedBroker(**ON) as broker, trio.open_nursery() as nursery:
        peer = await connect(broker, nursery)
        vip = await broker.vip_server.local(peer.handle, nursery)
        answer = await vip.call(Command(RequestCode.GET_BROKER_CONFIG), 5)
        assert said(answer) == (DENIED, "username cannot be null.")
        nursery.cancel_scope.cancel()


async def test_decisions_are_remembered_within_bounds(autojump_clock: MockClock) -> None:
    """And by resource: what one topic allowed says nothing of the next."""
    async with open_broker(**ON) as (broker, peer):
        await add_user(table_of(broker), "bob", ("Topic:a1*", "Get", "Allow"))
        bob = SignedPeer(peer, "bob")
        for number in range(3000):
            name = f"a{number}"
            answer = await bob.ask(RequestCode.GET_TOPIC_CONFIG, topic=name)
            allowed = name.startswith("a1")
            assert (answer.code == DENIED) is not allowed, name
        channel: Any = peer.channel
        session = channel.peer.attributes["access"]
        assert len(session.decisions) <= 1024


def heartbeat(groups: int, topics: int) -> bytes:
    data = tuple(
        ConsumerData(
            f"group{number}",
            ConsumeType.CONSUME_PASSIVELY,
            MessageModel.CLUSTERING,
            ConsumeFrom.LAST_OFFSET,
            tuple(
                build_subscription(f"topic{number}", "*", sub_version=1) for number in range(topics)
            ),
        )
        for number in range(groups)
    )
    return HeartbeatData("client", (), data).encode()


@pytest.mark.parametrize("groups", [1, 40])
async def test_bodies_of_every_size_are_looked_into(groups: int) -> None:
    """Large ones in a thread, as those that are served."""
    async with open_broker(**ON) as (broker, peer):
        await add_user(
            table_of(broker), "bob", ("Group:group*", "Sub", "Allow"), ("Topic:*", "Sub", "Allow")
        )
        request = Command(RequestCode.HEART_BEAT, body=heartbeat(groups, 20))
        assert (len(request.body) > 32 * 1024) is (groups > 1)
        assert (await SignedPeer(peer, "bob").ask(request)).code == 0
        await add_user(table_of(broker), "bob", (f"Group:group{groups - 1}", "Sub", "Deny"))
        request = Command(RequestCode.HEART_BEAT, body=heartbeat(groups, 20))
        answer = await SignedPeer(peer, "bob").ask(request)
        assert answer.code == DENIED
        assert f"Group:group{groups - 1}" in (answer.remark or "")


async def test_a_body_that_cannot_be_read_is_refused(autojump_clock: MockClock) -> None:
    async with open_broker(**ON) as (broker, peer):
        await add_user(table_of(broker), "bob", ("*", "All", "Allow"))
        for body in (b"", b"{", b"[]", b'{"clientID":5,"consumerDataSet":7}'):
            request = Command(RequestCode.HEART_BEAT, body=body)
            answer = await SignedPeer(peer, "bob").ask(request)
            assert said(answer) == (DENIED, "parse authorization context error."), body
        request = Command(RequestCode.HEART_BEAT, body=b"{" + b" " * 2_000_000)
        assert (await SignedPeer(peer, "bob").ask(request)).code == 29


async def test_one_way_requests_are_checked(autojump_clock: MockClock) -> None:
    async with open_broker(**ON) as (broker, peer):
        request = send_request("topic", b"secretly")
        peer.channel.send_oneway(request)
        peer.channel.send_oneway(signed(send_request("topic", b"openly")))
        await trio.sleep(1)
        assert broker.core.stats.put_messages == 1


@pytest.mark.real_time
async def test_sends_that_arrive_together_are_let_in_one_by_one(tmp_path: Path) -> None:
    """In the order in which they came; what is refused does not end the rest."""
    async with EmbeddedBroker(tmp_path, listen=0, **ON) as broker:
        for topic in ("mine", "theirs"):
            broker.core.topics.put(TopicConfig(topic, 1, 1))
        await add_user(table_of(broker), "bob", ("Topic:mine", "Pub", "Allow"))
        assert broker.address is not None
        frames, wanted = b"", []
        for number in range(120):
            topic, secret = "theirs" if number % 10 == 3 else "mine", "bob"
            if number % 10 == 7:
                secret = "guessed"
            sent = send_request(
                topic,
                b"%d" % number,
                properties=f"UNIQ_KEY\x01{number:032X}\x02",
                reconsume_times=0,
                batch=False,
            )
            request = signed(sent, "bob", secret)
            request.opaque = number
            frames += encode_frame(request)
            wanted.append(DENIED if number % 10 in (3, 7) else 0)
        stream = await open_tcp_stream(*split_address(broker.address))
        async with stream:
            await stream.send_all(frames)
            reader = FrameReader(stream)
            with trio.fail_after(60):
                answers = [await reader.next() for _ in wanted]
        served = [answer.code for answer in sorted(answers, key=lambda one: one.opaque)]
        assert served == wanted
        assert broker.store.max_offset("mine", 0) == 96
        assert broker.store.max_offset("theirs", 0) == 0
        counters = broker.parts.access.audit.counters
        assert (counters["authenticated"], counters["allowed"]) == (108, 96)
        assert (counters["denied"], counters["notAuthenticated"]) == (12, 12)


async def test_ends_of_transactions_that_arrive_together_are_let_in_one_by_one(
    autojump_clock: MockClock,
) -> None:
    """Whoever names a topic that he may publish to ends no transaction of another."""
    async with open_broker(**ON) as (broker, peer):
        await add_user(table_of(broker), "bob", ("Topic:mine", "Pub", "Allow"))
        for topic in ("mine", "theirs"):  # an end of a queue without messages goes alone
            broker.core.topics.put(TopicConfig(topic, 1, 1))
            first = await peer.ask(signed(half_request(topic, b"0", unique="first")))
            assert (await peer.ask(signed(end_request(first, COMMIT, topic=topic)))).code == 0
        ends, wanted = [], []
        for number in range(60):
            half = "theirs" if number % 10 in (3, 5) else "mine"
            unique = f"U{number}"
            answer = await peer.ask(signed(half_request(half, b"%d" % number, unique=unique)))
            named = "theirs" if number % 10 == 3 else "mine"
            secret = "guessed" if number % 10 == 7 else "bob"
            end = signed(end_request(answer, COMMIT, topic=named), "bob", secret)
            end.opaque = number
            ends.append(end)
            wanted.append({3: DENIED, 5: 1, 7: DENIED}.get(number % 10, 0))
        answers = await exchange(broker, [ends])
        assert [decode_frame(answers[number][4:]).code for number in range(60)] == wanted
        assert broker.store.max_offset("mine", 0) == 1 + 42
        assert broker.store.max_offset("theirs", 0) == 1
        assert len(broker.parts.transactions.table) == 18
        assert len(ops(broker)) < 2 + 42  # some were served together


@pytest.mark.parametrize(("user", "secret"), [(ADMIN, SECRET), ("bob", "bob")])
async def test_requests_that_arrive_together_are_recorded_as_those_that_come_alone(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture, user: str, secret: str
) -> None:
    caplog.set_level(logging.DEBUG, "rocketmq_sdk.audit")
    found = []
    for size in (1, 5):
        caplog.clear()
        async with open_broker(**ON) as (broker, _peer):
            broker.core.topics.put(TopicConfig("mine", 1, 1))
            await add_user(table_of(broker), "bob", ("Topic:mine", "Pub", "Allow"))
            sends = [
                send_request(
                    "mine",
                    b"x",
                    properties=f"UNIQ_KEY\x01{number:032X}\x02",
                    reconsume_times=0,
                    batch=False,
                )
                for number in range(5)
            ]
            requests = [signed(one, user, secret) for one in sends]
            for opaque, request in enumerate(requests):
                request.opaque = opaque
            chunks = [requests[first : first + size] for first in range(0, 5, size)]
            await exchange(broker, chunks)
            users = [record.__dict__["audit_user"] for record in caplog.records]
            found.append((dict(broker.parts.access.audit.counters), users))
    assert found[0] == found[1]
    assert found[0][0]["authenticated"] == len(found[0][1]) == 5


class FrameReader:
    """Frames out of a stream."""

    def __init__(self, stream: trio.abc.ReceiveStream) -> None:
        self._stream = stream
        self._data = b""

    async def _take(self, size: int) -> bytes:
        while len(self._data) < size:
            self._data += await self._stream.receive_some()
        taken, self._data = self._data[:size], self._data[size:]
        return taken

    async def next(self) -> Command:
        size = int.from_bytes(await self._take(4), "big")
        return decode_frame(await self._take(size))


async def test_decisions_are_not_those_of_another_connection_or_another_life(
    autojump_clock: MockClock,
) -> None:
    """A channel that the guard has not seen has no decisions."""
    async with open_broker(**ON) as (broker, peer), trio.open_nursery() as nursery:
        await add_user(table_of(broker), "bob", ("Topic:a", "Get", "Allow"))
        other = await connect(broker, nursery)
        for connection in (peer, other):
            bob = SignedPeer(connection, "bob")
            answer = await bob.ask(RequestCode.GET_TOPIC_CONFIG, topic="a")
            assert answer.code != DENIED
        nursery.cancel_scope.cancel()


# Retry topics


async def test_the_retry_topic_of_another_group_needs_that_group(
    autojump_clock: MockClock,
) -> None:
    async with open_broker(**ON) as (broker, peer):
        await add_user(table_of(broker), "bob", ("Group:mine", "Sub", "Allow"))
        bob = SignedPeer(peer, "bob")
        answer = await bob.ask(pull_request("%RETRY%mine", 0, group="mine"))
        assert answer.code != DENIED
        answer = await bob.ask(pull_request("%RETRY%theirs", 0, group="mine"))
        assert said(answer) == (DENIED, REMARK.format("Group:theirs"))
        # A pop retry topic holds messages of the topic in its name.
        answer = await bob.ask(pull_request("%RETRY%mine_orders", 0, group="mine"))
        assert said(answer) == (DENIED, REMARK.format("Topic:orders"))
        answer = await bob.ask(pull_request("%RETRY%mine+orders", 0, group="mine"))
        assert said(answer) == (DENIED, REMARK.format("Topic:orders"))


async def test_sends_into_a_retry_topic_need_the_group(autojump_clock: MockClock) -> None:
    async with open_broker(**ON) as (broker, peer):
        await add_user(table_of(broker), "bob", ("Topic:*", "Pub", "Allow"))
        bob = SignedPeer(peer, "bob")
        answer = await bob.ask(send_request("%RETRY%group", b"x", producer_group="group2"))
        assert said(answer) == (DENIED, REMARK.format("Group:group"))
        await add_user(table_of(broker), "bob", ("Group:group", "Sub", "Allow"))
        answer = await bob.ask(send_request("%RETRY%group", b"x"))
        assert answer.code != DENIED


# Messages that are named by their place


async def test_nobody_reads_a_topic_by_naming_another(autojump_clock: MockClock) -> None:
    """By the message's place, by sending it back, by a key with the same hash."""
    async with open_broker(**ON) as (broker, peer):
        await add_user(
            table_of(broker),
            "bob",
            ("Topic:mine", "All", "Allow"),
            ("Topic:FB", "All", "Allow"),
            ("Group:mine", "All", "Allow"),
        )
        admin, bob = SignedPeer(peer), SignedPeer(peer, "bob")
        sent = await admin.ask(send_request("secret", b"a secret", properties="KEYS\x01k\x02"))
        assert sent.code == 0
        (stored,) = decode_messages((await admin.ask(pull_request("secret", 0))).body)
        offset = stored.commit_log_offset
        answer = await admin.ask(RequestCode.VIEW_MESSAGE_BY_ID, topic="secret", offset=offset)
        assert answer.code == 0
        assert (await bob.ask(RequestCode.VIEW_MESSAGE_BY_ID, offset=offset)).code == DENIED
        answer = await bob.ask(RequestCode.VIEW_MESSAGE_BY_ID, topic="mine", offset=offset)
        assert (answer.code, answer.body) == (1, b"")
        back = {"offset": offset, "group": "mine", "delayLevel": 0}
        for named in ({}, {"originTopic": "mine"}, {"originTopic": "%RETRY%mine"}):
            answer = await bob.ask(RequestCode.CONSUMER_SEND_MSG_BACK, **back, **named)
            assert said(answer) == (1, f"look message by offset failed, {offset}")
        answer = await bob.ask(RequestCode.CONSUMER_SEND_MSG_BACK, **back, originTopic="secret")
        assert said(answer) == (DENIED, REMARK.format("Topic:secret"))
        answer = await admin.ask(RequestCode.CONSUMER_SEND_MSG_BACK, **back, originTopic="secret")
        assert answer.code == 0


async def test_keys_with_the_hash_of_another_topics_key(autojump_clock: MockClock) -> None:
    """`Aa` and `BB` have one hash in Java."""
    span = {"maxNum": 32, "beginTimestamp": 0, "endTimestamp": 1 << 50}
    async with open_broker(**ON) as (broker, peer):
        await add_user(table_of(broker), "bob", ("Topic:BB", "Get", "Allow"))
        admin, bob = SignedPeer(peer), SignedPeer(peer, "bob")
        await admin.ask(send_request("Aa", b"a secret", properties="KEYS\x01k\x02"))
        await trio.sleep(2)
        answer = await admin.ask(RequestCode.QUERY_MESSAGE, topic="Aa", key="k", **span)
        assert len(decode_messages(answer.body)) == 1
        answer = await bob.ask(RequestCode.QUERY_MESSAGE, topic="BB", key="k", **span)
        assert answer.body == b""


async def test_messages_that_were_put_aside_are_those_of_their_topic(
    autojump_clock: MockClock,
) -> None:
    async with open_broker(**ON) as (broker, peer):
        await add_user(
            table_of(broker), "bob", ("Topic:mine", "All", "Allow"), ("Group:CG", "Sub", "Allow")
        )
        bob = SignedPeer(peer, "bob")
        await bob.ask(send_request("mine", b"x"))
        (first,) = decode_messages((await bob.ask(pull_request("mine", 0))).body)
        back = {"group": "CG", "delayLevel": 1, "originTopic": "mine"}
        answer = await bob.ask(
            RequestCode.CONSUMER_SEND_MSG_BACK, offset=first.commit_log_offset, **back
        )
        assert answer.code == 0, answer
        await trio.sleep(3)
        (again,) = decode_messages((await bob.ask(pull_request("%RETRY%CG", 0))).body)
        answer = await bob.ask(
            RequestCode.VIEW_MESSAGE_BY_ID, topic="mine", offset=again.commit_log_offset
        )
        assert answer.code == 0
        answer = await bob.ask(
            RequestCode.CONSUMER_SEND_MSG_BACK, offset=again.commit_log_offset, **back
        )
        assert answer.code == 0


async def test_replies_may_go_to_the_reply_topic_only(autojump_clock: MockClock) -> None:
    """Any replier may answer; the request is no way into other topics."""
    async with open_broker(**ON) as (broker, peer):
        await add_user(table_of(broker), "bob")
        bob = SignedPeer(peer, "bob")
        request = send_request("DefaultCluster_REPLY_TOPIC", b"reply")
        request.code = RequestCode.SEND_REPLY_MESSAGE_V2
        assert (await bob.ask(request)).code != DENIED
        request = send_request("orders", b"reply")
        request.code = RequestCode.SEND_REPLY_MESSAGE_V2
        assert said(await bob.ask(request)) == (DENIED, REMARK.format("Topic:orders"))


# Secrets and the audit


async def test_secrets_are_shown_nowhere(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    inner = '{"accessKey":"inner","secretKey":"the inner secret"}'
    settings = {**ON, "inner_client_authentication_credentials": inner}
    caplog.set_level(logging.DEBUG)
    async with open_broker(**settings) as (broker, peer):
        admin = SignedPeer(peer)
        shown = [
            (await admin.ask(RequestCode.GET_BROKER_CONFIG)).body.decode(),
            (await admin.ask(RequestCode.GET_BROKER_RUNTIME_INFO)).body.decode(),
            repr(broker),
            repr(broker.config),
            str(broker.config.export()),
            broker.config.to_properties(),
            repr(table_of(broker).users),
            repr(table_of(broker).users[ADMIN].info()),
            repr(broker.credentials),
            str(broker.health()),
        ]
        await SignedPeer(peer, secret="wrong").ask(RequestCode.GET_BROKER_CONFIG)
        body = b'initAuthenticationUser={"username":"a","password":"b"}'
        answer = await admin.ask(Command(RequestCode.UPDATE_BROKER_CONFIG, body=body))
        assert said(answer) == (16, "Can not update config in black list.")
        signature = signed(Command(RequestCode.GET_BROKER_CONFIG)).ext_fields["Signature"]
    shown += [f"{record.getMessage()} {record.__dict__}" for record in caplog.records]
    for text in shown:
        for secret in (SECRET, "the inner secret", signature):
            assert secret not in text


@pytest.mark.parametrize(
    "text",
    ["", "{}", "[]", "name:password", '{"username":"u"}', '{"username":"u","password":" "}'],
)
async def test_keys_that_are_none_are_refused_without_being_shown(text: str) -> None:
    for name, setting in (
        ("initAuthenticationUser", "init_authentication_user"),
        ("innerClientAuthenticationCredentials", "inner_client_authentication_credentials"),
    ):
        settings: dict[str, Any] = {**ON, setting: text}
        if not text:
            continue
        with pytest.raises(ConfigurationError) as error:
            async with EmbeddedBroker(**settings):
                pass
        assert name in str(error.value)
        if len(text) > 3:
            assert text not in str(error.value)


def test_a_bad_setting_does_not_show_a_secret_beside_it() -> None:
    with pytest.raises(ConfigurationError) as error:
        BrokerConfig.from_properties(
            'initAuthenticationUser={"username":"u","password":"hush"}\ndefaultTopicQueueNums=0\n'
        )
    assert "hush" not in str(error.value)
    assert "initAuthenticationUser" in str(error.value)


async def test_the_audit(autojump_clock: MockClock, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "rocketmq_sdk.audit")
    async with open_broker(**ON) as (broker, peer):
        await add_user(table_of(broker), "bob")
        bob = SignedPeer(peer, "bob")
        for _ in range(50):
            await bob.ask(RequestCode.GET_BROKER_CONFIG)
        (record,) = [one for one in caplog.records if one.name == "rocketmq_sdk.audit"]
        fields: Any = record
        assert (fields.audit_stage, fields.audit_user) == ("denied", "bob")
        assert (fields.audit_request, fields.audit_source) == (26, "127.0.0.1:0")
        assert "Cluster:DefaultCluster" in fields.audit_reason
        pickle.dumps(record.__dict__)
        await trio.sleep(2)
        await bob.ask(RequestCode.GET_BROKER_CONFIG)
        last: Any = caplog.records[-1]
        assert last.audit_left_out == 49
        counters = broker.parts.access.audit.counters
        assert (counters["denied"], counters["authenticated"]) == (51, 51)
        answer = await SignedPeer(peer).ask(RequestCode.GET_BROKER_RUNTIME_INFO)
        shown = KVTable.decode(answer.body).table
        assert shown["accessRequestsDenied"] == "51"
        assert shown["accessRequestsNotAuthenticated"] == "0"
        caplog.set_level(logging.DEBUG, "rocketmq_sdk.audit")
        await SignedPeer(peer).ask(RequestCode.GET_BROKER_CONFIG)
        allowed: Any = caplog.records[-1]
        assert (allowed.audit_stage, allowed.audit_user) == ("allowed", ADMIN)


def test_every_rule_says_what_it_is() -> None:
    rule = needs.topic_and_group(needs.Action.GET, topics=("topicList", ";"))
    assert rule.text == "Group `consumerGroup`, Topic `topic`, Topics `topicList`: Get"
    assert rule.fields == ("topic", "consumerGroup", "topicList")
