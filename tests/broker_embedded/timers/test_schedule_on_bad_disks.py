"""Delay levels on disks that fail to read, read short, are slow or lose power."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import trio

from rocketmq_sdk.broker_embedded.store.following.unreadable import FILE_NAME
from rocketmq_sdk.broker_embedded.store_tool.report import FileSystemReader
from rocketmq_sdk.broker_embedded.store_tool.verify import verify
from rocketmq_sdk.codes import RequestCode
from rocketmq_sdk.names import SCHEDULE_TOPIC
from rocketmq_sdk.protocol.bodies.admin import KVTable
from rocketmq_sdk.testing.faults import Operation
from support.bad_disk import LOG, break_record, disk_of, open_on_disk, push_out, record_of

if TYPE_CHECKING:
    from trio.testing import MockClock

    from support.broker import Peer

TRIES_SECONDS = 16


async def send(peer: Peer, level: int, *bodies: str) -> None:
    for body in bodies:
        await peer.send("orders", body.encode(), properties=f"DELAY\x01{level}\x02")


async def delivered(peer: Peer) -> list[str]:
    return [message.body.decode() for message in await peer.pull("orders")]


async def test_an_unreadable_message_is_set_aside_and_those_behind_it_come(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with open_on_disk() as (broker, peer, _deliveries):
        await send(peer, 2, "0", "1", "2", "3")
        await send(peer, 3, "other level")
        await push_out(peer)
        bad = break_record(broker, SCHEDULE_TOPIC, 1, 1)
        await trio.sleep(12)
        assert await delivered(peer) == ["0", "other level"]
        assert "message 1 of queue 1 of SCHEDULE_TOPIC_XXXX" in str(broker.health())
        assert broker.store.unreadable.count == 0
        await trio.sleep(TRIES_SECONDS)
        assert await delivered(peer) == ["0", "other level", "2", "3"]
        assert broker.store.unreadable.count == 1
        assert caplog.text.count("is set aside") == 1
        assert "1 records could not be read and are set aside" in str(broker.health())
        assert broker.health().taking_messages
        hits = bad.hits
        await trio.sleep(3600)
        assert bad.hits == hits, "it is read again although it was set aside"
        assert bad.on_loop == 0
        files = disk_of(broker)
        assert b'"queueOffset":1' in (files.read(f"config/{FILE_NAME}") or b"").replace(b" ", b"")
        assert len(await delivered(peer)) == 4
        info = KVTable.decode((await peer.ask(RequestCode.GET_BROKER_RUNTIME_INFO)).body)
        assert info.table["embeddedBrokerUnreadableRecords"] == "1"
    found = verify(FileSystemReader(files)).findings
    assert {finding.kind for finding in found} >= {"read", "set_aside"}
    [told] = [finding for finding in found if finding.kind == "set_aside"]
    assert f"message 1 of queue 1 of {SCHEDULE_TOPIC}" in told.problem
    async with open_on_disk(files) as (broker, peer, _deliveries):
        await trio.sleep(60)
        assert await delivered(peer) == ["0", "other level", "2", "3"]


@pytest.mark.parametrize("short", [False, True])
async def test_what_can_be_read_at_a_later_try_comes_once_and_in_order(
    autojump_clock: MockClock, short: bool
) -> None:
    async with open_on_disk() as (broker, peer, _deliveries):
        await send(peer, 2, "0", "1", "2")
        await push_out(peer)
        place, faults = record_of(broker, SCHEDULE_TOPIC, 1, 1), disk_of(broker).faults
        bad = faults.shorten(LOG, at=place) if short else faults.fail(Operation.READ, LOG, at=place)
        await trio.sleep(9)
        bad.lift()
        await trio.sleep(30)
        assert await delivered(peer) == ["0", "1", "2"]
        assert broker.store.unreadable.count == 0
        assert broker.health().reasons == ()


async def test_nothing_is_set_aside_while_the_disk_gives_nothing(
    autojump_clock: MockClock,
) -> None:
    async with open_on_disk() as (broker, peer, _deliveries):
        await send(peer, 2, *map(str, range(5)))
        await push_out(peer)
        bad = disk_of(broker).faults.fail(Operation.READ, LOG)
        await trio.sleep(3600)
        assert await broker_is_alive(peer)
        assert broker.store.unreadable.count == 0
        assert bad.hits < 5000
        assert not broker.health().services[0].last_error
        bad.lift()
        await trio.sleep(31)
        assert await delivered(peer) == list("01234")
        assert broker.health().reasons == ()


async def broker_is_alive(peer: Peer) -> bool:
    answer = await peer.send("filler", b"alive")
    return answer.code == 0


async def test_an_unreadable_part_of_the_queue_costs_its_messages_only(
    autojump_clock: MockClock,
) -> None:
    async with open_on_disk() as (broker, peer, _deliveries):
        await send(peer, 2, *map(str, range(5)))
        files = disk_of(broker)
    async with open_on_disk(files) as (broker, peer, _deliveries):
        files.faults.fail(Operation.READ, f"consumequeue/{SCHEDULE_TOPIC}/1/*", at=range(60, 80))
        await trio.sleep(60)
        assert await delivered(peer) == ["0", "1", "2", "4"]
        assert broker.store.unreadable.count == 1


async def test_a_slow_disk_keeps_no_sender_waiting(autojump_clock: MockClock) -> None:
    async with open_on_disk() as (broker, peer, _deliveries):
        await send(peer, 2, *map(str, range(300)))
        await push_out(peer)
        slow = disk_of(broker).faults.slow(Operation.READ, delay=0.005)
        await trio.sleep(4.9)
        longest = 0.0
        while broker.store.max_offset("orders", 0) < 300:
            began = trio.current_time()
            await peer.send("others", b"x")
            longest = max(longest, trio.current_time() - began)
            await trio.sleep(0.001)
        assert slow.hits >= 3
        assert slow.on_loop == 0
        assert longest < 0.003


async def test_a_slow_level_keeps_no_other_one_waiting(autojump_clock: MockClock) -> None:
    async with open_on_disk() as (broker, peer, deliveries):
        await send(peer, 3, "old")
        await push_out(peer)
        await trio.sleep(5.5)
        place = record_of(broker, SCHEDULE_TOPIC, 2, 0)
        disk_of(broker).faults.slow(Operation.READ, LOG, at=place, delay=20)
        began = broker.core.clock.now_ms()
        await send(peer, 2, "fresh")
        await trio.sleep(40)
        assert deliveries.times[0] - began == pytest.approx(5000, abs=5)
        assert await delivered(peer) == ["fresh", "old"]
