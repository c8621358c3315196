"""What pops and acks leave in the broker's statistics."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from rocketmq_sdk.broker_embedded.tables.stats import GroupAction
from rocketmq_sdk.codes import RequestCode
from support.broker import open_broker
from support.popping import Popper, make_topic

if TYPE_CHECKING:
    from trio.testing import MockClock

    from rocketmq_sdk.broker_embedded.broker import EmbeddedBroker


def counted(broker: EmbeddedBroker, action: GroupAction) -> int:
    counts = broker.core.stats.groups["T", "PopGroup"].actions.get(action)
    return 0 if counts is None else counts.messages


@pytest.mark.parametrize("merge", [False, True])
async def test_acks_and_checkpoints_are_counted(autojump_clock: MockClock, merge: bool) -> None:
    async with open_broker(enable_pop_buffer_merge=merge) as (broker, peer):
        await make_topic(peer, "T", 1)
        for number in range(6):
            await peer.send("T", b"%d" % number)
        popper = Popper(peer, "T")
        handles = []
        for _ in range(2):
            popped = await popper.pop(max_msg_nums=3)
            handles += popped.handles
        assert counted(broker, GroupAction.CHECK_OUT) == 2
        await popper.ack(handles[0])
        assert counted(broker, GroupAction.ACKNOWLEDGE) == 1
        await popper.ack_all(handles[1:5])
        assert counted(broker, GroupAction.ACKNOWLEDGE) == 5
        await popper.change(handles[5], 20_000)
        assert counted(broker, GroupAction.CHECK_OUT) == 3
        assert counted(broker, GroupAction.ACKNOWLEDGE) == 6


async def test_acks_in_order_are_counted(autojump_clock: MockClock) -> None:
    async with open_broker() as (broker, peer):
        await make_topic(peer, "T", 1)
        for number in range(2):
            await peer.send("T", b"%d" % number)
        popper = Popper(peer, "T", order=True)
        for handle in (await popper.pop()).handles:
            await popper.ack(handle)
        assert counted(broker, GroupAction.ACKNOWLEDGE) == 2


async def test_peeks_count_as_gets(autojump_clock: MockClock) -> None:
    async with open_broker() as (broker, peer):
        await make_topic(peer, "T", 1)
        await peer.send("T", b"x")
        fields = {"consumerGroup": "PopGroup", "topic": "T", "queueId": 0, "maxMsgNums": 8}
        assert (await peer.ask(RequestCode.PEEK_MESSAGE, **fields)).code == 0
        assert broker.core.stats.groups["T", "PopGroup"].messages == 1
