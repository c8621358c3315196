"""Revival on disks that fail to read or are slow."""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio

from rocketmq_sdk.broker_embedded.store.messages import MessageToStore
from rocketmq_sdk.clock import TrioClock
from rocketmq_sdk.protocol.bodies.pop_records import PopCheckPoint
from rocketmq_sdk.protocol.subscription import tags_code
from rocketmq_sdk.testing.faults import Operation
from support.bad_disk import LOG, break_record, disk_of, open_on_disk, push_out
from support.popping import Popper, make_topic
from support.transactions import bodies_in

if TYPE_CHECKING:
    from trio.testing import MockClock

    from rocketmq_sdk.broker_embedded.broker import EmbeddedBroker

REVIVE = "rmq_sys_REVIVE_LOG_DefaultCluster"


def put_checkpoint(broker: EmbeddedBroker, offset: int, queue_id: int = 0) -> None:
    """One of a message, as the wheel delivers it, due in four seconds."""
    now = broker.core.clock.now_ms()
    checkpoint = PopCheckPoint("T", "G", 0, offset, now, 4000, 1, [0], broker_name="broker-a")
    assert broker.store.put(
        MessageToStore(
            REVIVE, queue_id, checkpoint.encode(), "TAGS\x01ck\x02", tags_code=tags_code("ck")
        )
    ).ok


async def test_an_unreadable_checkpoint_holds_up_no_other_queue_and_its_own_not_for_long(
    autojump_clock: MockClock,
) -> None:
    clock = TrioClock()
    async with open_on_disk(clock=clock) as (broker, peer, _deliveries):
        await make_topic(peer, "T", 1)
        for number in range(4):
            await peer.send("T", b"%d" % number)
        broker.core.groups.get("G")
        for offset, queue_id in ((0, 0), (1, 0), (2, 0), (3, 1)):
            put_checkpoint(broker, offset, queue_id)
        await push_out(peer)
        files, bad = disk_of(broker), break_record(broker, REVIVE, 0, 1)
    async with open_on_disk(files, clock=clock) as (broker, peer, _deliveries):
        await trio.sleep(12)
        assert bodies_in(broker, "%RETRY%G_T") == [b"3"], "acks may be behind it"
        await trio.sleep(30)
        assert sorted(bodies_in(broker, "%RETRY%G_T")) == [b"0", b"2", b"3"]
        assert broker.store.unreadable.count == 1
        hits = bad.hits
        await trio.sleep(600)
        assert bad.hits == hits
        assert bad.on_loop == 0


async def test_an_unreadable_message_is_tried_some_times_and_not_for_ever(
    autojump_clock: MockClock,
) -> None:
    async with open_on_disk() as (broker, peer, _deliveries):
        await make_topic(peer, "T", 1)
        for number in range(3):
            await peer.send("T", b"%d" % number)
        popper = Popper(peer, "T")
        assert len((await popper.pop()).messages) == 3
        await push_out(peer)
        bad = break_record(broker, "T", 0, 1)
        await trio.sleep(20)
        assert bodies_in(broker, "%RETRY%PopGroup_T") == [b"0", b"2"]
        await trio.sleep(3600)
        assert broker.store.unreadable.count == 1
        hits, puts = bad.hits, broker.store.statistics()["puts"]
        await trio.sleep(4 * 3600)
        assert (bad.hits, broker.store.statistics()["puts"]) == (hits, puts)


async def test_messages_of_a_disk_that_gives_nothing_for_a_while_come_back(
    autojump_clock: MockClock,
) -> None:
    async with open_on_disk() as (broker, peer, _deliveries):
        await make_topic(peer, "T", 1)
        for number in range(20):
            await peer.send("T", b"%d" % number)
        assert len((await Popper(peer, "T").pop()).messages) == 20
        await push_out(peer)
        bad = disk_of(broker).faults.fail(Operation.READ, LOG)
        await trio.sleep(900)
        assert broker.store.unreadable.count == 0
        bad.lift()
        await trio.sleep(7200)
        assert len(bodies_in(broker, "%RETRY%PopGroup_T")) == 20


async def test_a_slow_disk_stops_nobody(autojump_clock: MockClock) -> None:
    async with open_on_disk() as (broker, peer, _deliveries):
        await make_topic(peer, "T", 1)
        for number in range(30):
            await peer.send("T", b"%d" % number)
        assert len((await Popper(peer, "T").pop()).messages) == 30
        await push_out(peer)
        slow = disk_of(broker).faults.slow(Operation.READ, delay=0.005)
        await trio.sleep(30)
        slow.lift()
        assert len(bodies_in(broker, "%RETRY%PopGroup_T")) == 30
        assert slow.hits >= 3
        assert slow.on_loop == 0
