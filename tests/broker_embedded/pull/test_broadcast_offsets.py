"""Broadcasting clients that come through a proxy, or change between a proxy and the
broker, are told where to begin.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import trio

from rocketmq_sdk.model.enums import MessageModel, RequestSource
from rocketmq_sdk.protocol.bodies.groups import SubscriptionGroupConfig
from support.broker import Peer, heartbeat, open_broker, pull_request, subscription

if TYPE_CHECKING:
    from pathlib import Path

    from trio.testing import MockClock

    from rocketmq_sdk.broker_embedded.broker import EmbeddedBroker
    from rocketmq_sdk.protocol.command import Command

MOVED = 21


async def through_proxy(peer: Peer, client_id: str, offset: int, **fields: Any) -> Command:
    return await peer.ask(
        pull_request(
            "news",
            offset,
            request_source=RequestSource.PROXY_FOR_BROADCAST,
            proxy_froward_client_id=client_id,
            **fields,
        )
    )


async def directly(peer: Peer, offset: int, **fields: Any) -> Command:
    return await peer.ask(pull_request("news", offset, expression=None, sub_version=1, **fields))


async def join(peer: Peer, client_id: str, model: MessageModel = MessageModel.BROADCASTING) -> None:
    assert (await peer.ask(heartbeat(client_id, "CG", subscription("news"), model=model))).code == 0


def start_of(answer: Command) -> int:
    """Where an answer sends the client that was told to begin elsewhere."""
    assert (answer.code, answer.remark, answer.body) == (MOVED, "OFFSET_RESET", b"")
    return int(answer.ext_fields["nextBeginOffset"])


def lowest(broker: EmbeddedBroker, queue_id: int = 0) -> int:
    return broker.core.offsets.query("CG@broadcast", "news", queue_id)


async def send(peer: Peer, count: int) -> None:
    for _ in range(count):
        await peer.send("news", b"x")


async def test_a_proxy_without_an_offset_begins_at_the_first_message_and_its_own_offsets_are_right(
    autojump_clock: MockClock,
) -> None:
    async with open_broker() as (_broker, peer):
        await send(peer, 3)
        assert start_of(await through_proxy(peer, "c1", -1)) == 0
        assert (await through_proxy(peer, "c1", 0)).code == 0
        assert (await through_proxy(peer, "c1", 2)).ext_fields["nextBeginOffset"] == "3"
        assert (
            start_of(await through_proxy(peer, "c1", -1)) == 2
        )  # what was asked for last may not have arrived


async def test_a_newcomer_begins_where_the_slowest_of_its_group_is(
    autojump_clock: MockClock,
) -> None:
    async with open_broker() as (broker, peer):
        await send(peer, 9)
        for client_id, offset in (("c1", 7), ("c2", 4)):
            assert (await through_proxy(peer, client_id, offset)).code == 0
        await trio.sleep(6)
        assert lowest(broker) == 4
        assert start_of(await through_proxy(peer, "c3", -1)) == 4
        assert start_of(await through_proxy(peer, "c1", -1)) == 7


async def test_a_client_that_changes_between_proxy_and_broker_goes_on_in_every_queue(
    autojump_clock: MockClock,
) -> None:
    async with open_broker() as (_broker, peer):
        for queue_id in (0, 1):
            for _ in range(5):
                await peer.send("news", b"x", queue_id=queue_id)
        await join(peer, "c1")
        for queue_id in (0, 1):
            assert (await through_proxy(peer, "c1", 3, queue_id=queue_id)).code == 0
        for queue_id in (0, 1):
            assert start_of(await directly(peer, 0, queue_id=queue_id)) == 3
            assert (await directly(peer, 3, queue_id=queue_id)).code == 0
        assert start_of(await through_proxy(peer, "c1", 0)) == 3


async def test_a_client_that_always_comes_directly_begins_where_it_likes(
    autojump_clock: MockClock,
) -> None:
    async with open_broker() as (broker, peer):
        await send(peer, 5)
        await join(peer, "c1")
        for offset in (4, 0, 2):
            assert (await directly(peer, offset)).code == 0
        assert broker.parts.pull.broadcast_offsets.known("news", "CG") == {"c1"}


async def test_clustering_groups_are_left_alone(autojump_clock: MockClock) -> None:
    async with open_broker() as (broker, peer):
        await send(peer, 5)
        await join(peer, "c1", MessageModel.CLUSTERING)
        assert (await directly(peer, 2)).code == 0
        assert (
            await peer.ask(
                pull_request(
                    "news",
                    2,
                    request_source=RequestSource.PROXY_FOR_STREAM,
                    proxy_froward_client_id="c1",
                )
            )
        ).code == 0
        assert broker.parts.pull.broadcast_offsets.known("news", "CG") == set()


async def test_a_client_that_is_gone_is_forgotten_after_two_minutes_and_a_connected_one_after_five(
    autojump_clock: MockClock,
) -> None:
    async with open_broker(channel_expired_timeout=3_600_000) as (broker, peer):
        await send(peer, 5)
        await join(peer, "here")
        assert (await directly(peer, 4)).code == 0
        assert (await through_proxy(peer, "gone", 1)).code == 0
        offsets = broker.parts.pull.broadcast_offsets
        await trio.sleep(110)
        assert (offsets.known("news", "CG"), lowest(broker)) == ({"here", "gone"}, 1)
        await trio.sleep(20)
        assert (offsets.known("news", "CG"), lowest(broker)) == ({"here"}, 4)
        await trio.sleep(160)
        assert offsets.known("news", "CG") == {"here"}
        await trio.sleep(20)
        assert (offsets.known("news", "CG"), lowest(broker)) == (set(), 4)


async def test_times_are_settings(autojump_clock: MockClock) -> None:
    async with open_broker(
        broadcast_offset_expire_second=10, broadcast_offset_expire_max_second=20
    ) as (broker, peer):
        await send(peer, 1)
        await join(peer, "here")
        await directly(peer, 0)
        await through_proxy(peer, "gone", 0)
        await trio.sleep(16)
        assert broker.parts.pull.broadcast_offsets.known("news", "CG") == {"here"}
        await trio.sleep(10)
        assert broker.parts.pull.broadcast_offsets.known("news", "CG") == set()


async def test_the_lowest_offset_is_kept_across_a_restart(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    async with open_broker(tmp_path / "store") as (_broker, peer):
        await send(peer, 5)
        await through_proxy(peer, "c1", 3)
    async with open_broker(tmp_path / "store") as (broker, peer):
        assert lowest(broker) == 3
        assert start_of(await through_proxy(peer, "c1", -1)) == 3


async def test_nothing_is_noted_with_the_setting_off(autojump_clock: MockClock) -> None:
    async with open_broker(enable_broadcast_offset_store=False) as (broker, peer):
        await send(peer, 5)
        await through_proxy(peer, "c1", 3)
        assert (await through_proxy(peer, "c1", -1)).remark == "OFFSET_TOO_SMALL"
        assert broker.parts.pull.broadcast_offsets.known("news", "CG") == set()


@pytest.mark.parametrize("what", ["group", "topic"])
async def test_deleted_groups_and_topics_are_forgotten(
    autojump_clock: MockClock, what: str
) -> None:
    async with open_broker() as (broker, peer):
        await send(peer, 5)
        broker.core.groups.update(SubscriptionGroupConfig("CG"))
        await through_proxy(peer, "c1", 3)
        await trio.sleep(6)
        if what == "group":
            answer = await peer.ask(207, groupName="CG", cleanOffset="true")
        else:
            answer = await peer.ask(215, topic="news")
        assert answer.code == 0, answer
        await trio.sleep(6)
        assert (broker.parts.pull.broadcast_offsets.known("news", "CG"), lowest(broker)) == (
            set(),
            -1,
        )


async def test_a_pull_of_a_proxy_that_names_no_client_is_an_ordinary_one(
    autojump_clock: MockClock,
) -> None:
    async with open_broker() as (broker, peer):
        await send(peer, 2)
        assert (
            await peer.ask(
                pull_request("news", 0, request_source=RequestSource.PROXY_FOR_BROADCAST)
            )
        ).code == 0
        assert broker.parts.pull.broadcast_offsets.known("news", "CG") == set()
