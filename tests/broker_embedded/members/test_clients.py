"""Membership of consumers and producers: who is told what, and when a client is
gone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio
import trio.testing

from rocketmq_sdk.broker_embedded.members.client_channel import ClientChannel
from rocketmq_sdk.broker_embedded.members.consumers import ConsumerManager
from rocketmq_sdk.codes import RequestCode, ResponseCode
from rocketmq_sdk.errors import ConnectError
from rocketmq_sdk.model.enums import MessageModel
from rocketmq_sdk.protocol.bodies.members import ConsumerData, ConsumerList, HeartbeatData
from rocketmq_sdk.protocol.command import Command
from support.administration import FakeChannel, FixedClock
from support.broker import Peer, connect, heartbeat, open_broker, subscription

if TYPE_CHECKING:
    import pytest
    from trio.testing import MockClock

    from rocketmq_sdk.remoting.channel import Channel


async def told(peer: Peer) -> int:
    """How many notices of changed members came since the last look."""
    await trio.testing.wait_all_tasks_blocked()
    notices, peer.requests = peer.requests, []
    assert all(
        notice.code == RequestCode.NOTIFY_CONSUMER_IDS_CHANGED and notice.is_oneway
        for notice in notices
    )
    return len(notices)


async def test_joining_and_leaving_is_told_to_all(autojump_clock: MockClock) -> None:
    with trio.fail_after(60):
        async with open_broker() as (broker, one), trio.open_nursery() as nursery:
            two = await connect(broker, nursery)
            answer = await one.ask(heartbeat("c1", "CG", subscription("orders")))
            assert answer.ext_fields == {
                "IS_SUPPORT_HEART_BEAT_V2": "true",
                "IS_SUB_CHANGE": "true",
            }
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
            assert broker.parts.members.consumers.client_ids("CG") == ["c1"]


async def test_changed_topics_are_told_and_the_newer_version_wins(
    autojump_clock: MockClock,
) -> None:
    with trio.fail_after(60):
        async with open_broker() as (broker, peer):
            consumers = broker.parts.members.consumers
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
            await peer.ask(
                heartbeat("c1", "CG", subscription("a"), model=MessageModel.BROADCASTING)
            )
            assert await told(peer) == 0


async def test_a_heartbeat_makes_the_retry_topic(autojump_clock: MockClock) -> None:
    with trio.fail_after(60):
        async with open_broker() as (broker, peer):
            await peer.ask(heartbeat("c1", "CG", subscription("a")))
            topic = broker.core.topics.get("%RETRY%CG")
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
            assert broker.parts.members.consumers.client_ids("CG") == ["c1"]
            assert two.channel.closed
            assert await told(one) == 1


async def test_producers(autojump_clock: MockClock) -> None:
    with trio.fail_after(60):
        async with open_broker() as (broker, one), trio.open_nursery() as nursery:
            two = await connect(broker, nursery)
            producers = broker.parts.members.producers
            for number, peer in enumerate((one, two)):
                body = HeartbeatData(f"p{number}", ("PG", "CLIENT_INNER_PRODUCER")).encode()
                assert (
                    await peer.ask(Command.request(RequestCode.HEART_BEAT, body=body))
                ).code == 0
            assert [client.client_id for client in producers.members("PG")] == ["p0", "p1"]
            assert {producers.available_channel("PG") for _ in range(4)} == {
                client.channel for client in producers.members("PG")
            }
            assert producers.channel_of("p1") is not None
            await two.channel.aclose()
            await trio.testing.wait_all_tasks_blocked()
            assert [client.client_id for client in producers.members("PG")] == ["p0"]
            assert producers.channel_of("p1") is None
            await one.ask(RequestCode.UNREGISTER_CLIENT, clientID="p0", producerGroup="PG")
            assert producers.members("PG") == []
            assert producers.available_channel("PG") is None
            assert producers.channel_of("p0") is not None
            await one.ask(
                RequestCode.UNREGISTER_CLIENT, clientID="p0", producerGroup="CLIENT_INNER_PRODUCER"
            )
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
            assert broker.parts.members.consumers.subscription("CG", "a") is not None
            other = heartbeat("c1", "CG", heartbeat_fingerprint=8, without_sub=True)
            assert (await peer.ask(other)).ext_fields["IS_SUB_CHANGE"] == "true"


async def test_broken_heartbeats(autojump_clock: MockClock) -> None:
    with trio.fail_after(60):
        async with open_broker() as (_broker, peer):
            for body in (b"", b"{not json", b"[]"):
                assert (
                    await peer.ask(Command(RequestCode.HEART_BEAT, body=body))
                ).code == ResponseCode.SYSTEM_ERROR
            await peer.send("a", b"still served")


async def test_groups_that_may_not_be_made_are_skipped(autojump_clock: MockClock) -> None:
    with trio.fail_after(60):
        async with open_broker(auto_create_subscription_group=False) as (broker, peer):
            assert (await peer.ask(heartbeat("c1", "CG", subscription("a")))).code == 0
            assert broker.parts.members.consumers.group("CG") is None
            answer = await peer.ask(RequestCode.GET_CONSUMER_LIST_BY_GROUP, consumerGroup="CG")
            assert (answer.code, answer.remark) == (1, "no consumer for this group, CG")


async def test_members_that_end_in_one_moment_leave_nobody_behind(
    autojump_clock: MockClock,
) -> None:
    with trio.fail_after(60):
        async with open_broker() as (broker, third), trio.open_nursery() as nursery:
            consumers = broker.parts.members.consumers
            first, second = await connect(broker, nursery), await connect(broker, nursery)
            for peer, client_id, groups in (
                (first, "A", ("g1", "g2")),
                (second, "B", ("g1", "g2")),
                (third, "C", ("g2",)),
            ):
                for group in groups:
                    await peer.ask(heartbeat(client_id, group, subscription("a")))
            assert (consumers.client_ids("g1"), consumers.client_ids("g2")) == (
                ["A", "B"],
                ["A", "B", "C"],
            )
            async with trio.open_nursery() as closing:
                closing.start_soon(first.channel.aclose)
                closing.start_soon(second.channel.aclose)
            await trio.testing.wait_all_tasks_blocked()
            assert (consumers.client_ids("g1"), consumers.client_ids("g2")) == ([], ["C"])


class ClosingChannel(FakeChannel):
    """A channel that is not closed yet and takes nothing any more."""

    def send_oneway(self, _command: Command) -> None:
        raise ConnectError("the channel is closing", address=self.remote_address)


def test_a_channel_that_takes_nothing_does_not_keep_others_from_leaving() -> None:
    clock = FixedClock()
    consumers = ConsumerManager(clock)
    channels = [ClosingChannel(), ClosingChannel()]
    groups = ["g1", "g2", "g3"]
    for channel in channels:
        for name in groups:
            client = ClientChannel(
                channel, str(channel.channel_id), None, 0, clock.monotonic(), clock.now_ms()
            )
            consumers.register(channel, client, _consumer(name))
    consumers.channel_closed(channels[0])
    assert [len(consumers.client_ids(name)) for name in groups] == [1, 1, 1]
    clock.time_ms += 200_000
    assert consumers.expire(120) == [channels[1]]
    assert list(consumers.groups()) == []


def _consumer(group: str) -> ConsumerData:
    return HeartbeatData.decode(heartbeat("c", group, subscription("a")).body).consumer_data_set[0]


async def test_a_table_that_fails_over_a_closed_channel_keeps_the_others_from_nothing(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(_channel: Channel) -> None:
        raise ZeroDivisionError("injected")

    with trio.fail_after(60):
        async with open_broker() as (broker, _one), trio.open_nursery() as nursery:
            peer = await connect(broker, nursery)
            await peer.ask(heartbeat("c1", "CG", subscription("a")))
            monkeypatch.setattr(
                broker.parts.pull.held.__class__,
                "channel_closed",
                lambda _self, channel: broken(channel),
            )
            await peer.channel.aclose()
            await trio.testing.wait_all_tasks_blocked()
            assert broker.parts.members.consumers.client_ids("CG") == []
            assert "PullPart failed over the closed channel" in caplog.text
            monkeypatch.undo()
