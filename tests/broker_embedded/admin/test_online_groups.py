"""Progress and offsets of groups that are online: which topics are left out."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from rocketmq_sdk.codes import RequestCode
from rocketmq_sdk.protocol.bodies.progress import ConsumeStats
from support.broker import heartbeat, open_broker, subscription

if TYPE_CHECKING:
    from rocketmq_sdk.protocol.bodies.members import SubscriptionData


@pytest.mark.parametrize(
    ("subscriptions", "shown"),
    [((), {"T"}), ((subscription("T"),), {"T"}), ((subscription("U"),), set())],
)
async def test_a_topic_is_left_out_when_the_group_subscribes_to_others_only(
    subscriptions: tuple[SubscriptionData, ...], shown: set[str]
) -> None:
    async with open_broker() as (broker, peer):
        await peer.send("T", b"1")
        await peer.ask(heartbeat("c", "G", *subscriptions))
        broker.core.offsets.commit("G", "T", 0, 1)
        answer = await peer.ask(RequestCode.GET_CONSUME_STATS, consumerGroup="G")
        stats = ConsumeStats.decode(answer.body)
        assert {queue.topic for queue in stats.offset_table} == shown
        await peer.ask(
            RequestCode.CLONE_GROUP_OFFSET,
            srcGroup="G",
            destGroup="H",
            offline="false",
        )
        assert set(broker.core.offsets.topics_of("H")) == shown
