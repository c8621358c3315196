"""Membership of consumers and producers: who is told what, and when a client is gone."""

import trio
import trio.testing
from trio.testing import MockClock

from rocketmq_sdk.codes import RequestCode, ResponseCode
from rocketmq_sdk.model.enums import MessageModel
from rocketmq_sdk.protocol.bodies.groups import ConsumerList
from rocketmq_sdk.protocol.bodies.heartbeat import HeartbeatData
from rocketmq_sdk.protocol.command import Command
from support.broker import Peer, connect, heartbeat, open_broker, subscription


async def told(peer: Peer) -> int:
    """How many notices of changed members came since the last look."""
    await trio.testing.wait_all_tasks_blocked()
    notices, peer.requests = peer.requests, []
    assert all(notice.code == RequestCode.NOTIFY_CONSUMER_IDS_CHANGED and notice.is_oneway for notice in notices)
    return len(notices)


async def test_joining_and_leaving_is_told_to_all(autojump_clock: MockClock) -> None:
    with trio.fail_after(60):
        async with open_broker() as (broker, one), trio.open_nursery() as nursery:
            two = await connect(broker, nursery)
            answer = await one.ask(heartbeat("c1", "CG", subscription("orders")))
            assert answer.ext_fields == {"IS_SUPPORT_HEART_BEAT_V2": "true", "IS_SUB_CHANGE": "true"}
            assert await told(one) == 1
            await one.ask(heartbeat("c1", "CG", subscription("orders")))
            assert await told(one) == 0
            await two.ask(heartbeat("c2", "CG", subscription("orders")))
            assert (await told(one), await told(two)) == (1, 1)
            body = (await one.ask(RequestCode.GET_CONSUMER_LIST_BY_GROUP, consumerGroup="CG")).body
            assert ConsumerList.decode(body).consumer_id_list == ("c1", "c2")
            await two.ask(RequestCode.UNREGISTER_CLIENT, clientID="c2", consumerGroup="CG")
            assert (await told(one), await told(two)) == (1, 0)
            await two.ask(heartbeat("c2", "CG", subscription("orders")))
            await told(one)
            await two.channel.aclose()
            assert await told(one) == 1
            assert broker.context.consumers.client_ids("CG") == ["c1"]


async def test_changed_topics_are_told_and_the_newer_version_wins(autojump_clock: MockClock) -> None:
    with trio.fail_after(60):
        async with open_broker() as (broker, peer):
            consumers = broker.context.consumers
            await peer.ask(heartbeat("c1", "CG", subscription("a", "A", 5)))
            await told(peer)
            await peer.ask(heartbeat("c1", "CG", subscription("a", "B", 6)))
            assert await told(peer) == 0
            await peer.ask(heartbeat("c1", "CG", subscription("a", "C", 4)))
            found = consumers.subscription("CG", "a")
            assert found is not None
            assert found.sub_string == "B"
            await peer.ask(heartbeat("c1", "CG", subscription("b")))
            assert await told(peer) == 1
            assert consumers.subscription("CG", "a") is None
            assert consumers.topic_consumers("b") == {"CG"}


async def test_broadcasting_groups_are_told_nothing(autojump_clock: MockClock) -> None:
    with trio.fail_after(60):
        async with open_broker() as (_broker, peer):
            await peer.ask(heartbeat("c1", "CG", subscription("a"), model=MessageModel.BROADCASTING))
            assert await told(peer) == 0


async def test_a_heartbeat_makes_the_retry_topic(autojump_clock: MockClock) -> None:
    with trio.fail_after(60):
        async with open_broker() as (broker, peer):
            await peer.ask(heartbeat("c1", "CG", subscription("a")))
            topic = broker.context.topics.get("%RETRY%CG")
            assert topic is not None
            assert (topic.read_queue_nums, topic.perm) == (1, 6)


async def test_silent_clients_are_forgotten_after_120_seconds(autojump_clock: MockClock) -> None:
    with trio.fail_after(600):
        async with open_broker() as (broker, one), trio.open_nursery() as nursery:
            two = await connect(broker, nursery)
            await one.ask(heartbeat("c1", "CG", subscription("a")))
            await two.ask(heartbeat("c2", "CG", subscription("a")))
            for _ in range(4):
                await trio.sleep(30)
                await one.ask(heartbeat("c1", "CG", subscription("a")))
            await told(one)
            await trio.sleep(11)
            assert broker.context.consumers.client_ids("CG") == ["c1"]
            assert two.channel.closed
            assert await told(one) == 1


async def test_producers(autojump_clock: MockClock) -> None:
    with trio.fail_after(60):
        async with open_broker() as (broker, one), trio.open_nursery() as nursery:
            two = await connect(broker, nursery)
            producers = broker.context.producers
            for number, peer in enumerate((one, two)):
                body = HeartbeatData(f"p{number}", ("PG", "CLIENT_INNER_PRODUCER")).encode()
                assert (await peer.ask(Command.request(RequestCode.HEART_BEAT, body=body))).code == 0
            assert [client.client_id for client in producers.members("PG")] == ["p0", "p1"]
            assert {producers.available_channel("PG") for _ in range(4)} == {client.channel for client in producers.members("PG")}
            assert producers.channel_of("p1") is not None
            await two.channel.aclose()
            await trio.testing.wait_all_tasks_blocked()
            assert [client.client_id for client in producers.members("PG")] == ["p0"]
            assert producers.channel_of("p1") is None
            await one.ask(RequestCode.UNREGISTER_CLIENT, clientID="p0", producerGroup="PG")
            assert producers.members("PG") == []
            assert producers.available_channel("PG") is None
            assert producers.channel_of("p0") is not None
            await one.ask(RequestCode.UNREGISTER_CLIENT, clientID="p0", producerGroup="CLIENT_INNER_PRODUCER")
            assert producers.channel_of("p0") is None


async def test_heartbeats_without_subscriptions(autojump_clock: MockClock) -> None:
    with trio.fail_after(60):
        async with open_broker() as (broker, peer):
            short = heartbeat("c1", "CG", heartbeat_fingerprint=7, without_sub=True)
            assert (await peer.ask(short)).ext_fields["IS_SUB_CHANGE"] == "true"
            full = heartbeat("c1", "CG", subscription("a"), heartbeat_fingerprint=7)
            assert (await peer.ask(full)).ext_fields["IS_SUB_CHANGE"] == "false"
            short = heartbeat("c1", "CG", heartbeat_fingerprint=7, without_sub=True)
            assert (await peer.ask(short)).ext_fields["IS_SUB_CHANGE"] == "false"
            assert broker.context.consumers.subscription("CG", "a") is not None
            other = heartbeat("c1", "CG", heartbeat_fingerprint=8, without_sub=True)
            assert (await peer.ask(other)).ext_fields["IS_SUB_CHANGE"] == "true"


async def test_broken_heartbeats(autojump_clock: MockClock) -> None:
    with trio.fail_after(60):
        async with open_broker() as (_broker, peer):
            for body in (b"", b"{not json", b"[]"):
                assert (await peer.ask(Command(RequestCode.HEART_BEAT, body=body))).code == ResponseCode.SYSTEM_ERROR
            await peer.send("a", b"still served")


async def test_groups_that_may_not_be_made_are_skipped(autojump_clock: MockClock) -> None:
    with trio.fail_after(60):
        async with open_broker(auto_create_subscription_group=False) as (broker, peer):
            assert (await peer.ask(heartbeat("c1", "CG", subscription("a")))).code == 0
            assert broker.context.consumers.group("CG") is None
            answer = await peer.ask(RequestCode.GET_CONSUMER_LIST_BY_GROUP, consumerGroup="CG")
            assert (answer.code, answer.remark) == (1, "no consumer for this group, CG")
