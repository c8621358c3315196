"""Transactions on disks that fail to read or are slow."""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio

from rocketmq_sdk.names import TRANSACTION_HALF_TOPIC
from rocketmq_sdk.testing.faults import Operation
from support.bad_disk import LOG, break_record, disk_of, open_on_disk, push_out
from support.transactions import COMMIT, begun, bodies_in, end_request, halves

if TYPE_CHECKING:
    import pytest
    from trio.testing import MockClock

    from rocketmq_sdk.broker_embedded.broker import EmbeddedBroker
    from rocketmq_sdk.protocol.command import Command
    from support.broker import Peer


async def begin(broker: EmbeddedBroker, peer: Peer, body: bytes) -> Command:
    return await begun(peer, body, born_timestamp=broker.core.clock.now_ms())


async def test_an_unreadable_half_message_is_set_aside_and_the_others_are_checked(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with open_on_disk() as (broker, peer, _deliveries):
        for body in (b"0", b"1", b"2"):
            await begin(broker, peer, body)
        await push_out(peer)
        table = broker.parts.transactions.table
        bad = break_record(broker, TRANSACTION_HALF_TOPIC, 0, 0)
        await trio.sleep(100)
        assert 0 in table.open_offsets()
        assert min(set(table.open_offsets()) - {0}) > 2, "the others were not appended again"
        assert "the check of transactions waits" in str(broker.health())
        await trio.sleep(300)
        assert broker.store.unreadable.count == 1
        assert caplog.text.count("is set aside") == 1
        assert len(table) == 2
        hits = bad.hits
        await trio.sleep(600)
        assert bad.hits == hits
        assert bad.on_loop == 0


async def test_nothing_is_given_up_while_the_disk_gives_nothing(
    autojump_clock: MockClock,
) -> None:
    async with open_on_disk() as (broker, peer, _deliveries):
        answers = [await begin(broker, peer, body) for body in (b"0", b"1")]
        await push_out(peer)
        bad = disk_of(broker).faults.fail(Operation.READ, LOG)
        await trio.sleep(1800)
        assert len(broker.parts.transactions.table) == 2
        assert broker.store.unreadable.count == 0
        bad.lift()
        for answer in answers:
            assert (await peer.ask(end_request(answer, COMMIT))).code == 0
        assert bodies_in(broker, "orders") == [b"0", b"1"]


async def test_a_slow_disk_stops_nobody(autojump_clock: MockClock) -> None:
    async with open_on_disk() as (broker, peer, _deliveries):
        answers = [await begin(broker, peer, b"%d" % number) for number in range(100)]
        await push_out(peer)
        slow = disk_of(broker).faults.slow(Operation.READ, delay=0.005)
        assert (await peer.ask(end_request(answers[0], COMMIT))).code == 0
        await trio.sleep(100)
        slow.lift()
        assert len(halves(broker)) > 100
        assert slow.hits >= 3
        assert slow.on_loop == 0
        assert bodies_in(broker, "orders") == [b"0"]


async def test_a_start_passes_over_half_messages_that_cannot_be_read(
    autojump_clock: MockClock,
) -> None:
    async with open_on_disk(transaction_check_interval=10**9) as (broker, peer, _deliveries):
        answers = [await begin(broker, peer, body) for body in (b"0", b"1", b"2")]
        await push_out(peer)
        bad = break_record(broker, TRANSACTION_HALF_TOPIC, 0, 1)
        files = disk_of(broker)
    async with open_on_disk(files) as (broker, peer, _deliveries):
        assert len(broker.parts.transactions.table) == 2
        await trio.sleep(0.1)
        assert broker.store.unreadable.count == 1
        assert (await peer.ask(end_request(answers[2], COMMIT))).code == 0
        assert (await peer.ask(end_request(answers[1], COMMIT))).code == 1
    bad.lift()
    async with open_on_disk(files) as (broker, peer, _deliveries):
        assert (await peer.ask(end_request(answers[1], COMMIT))).code == 0
        assert bodies_in(broker, "orders") == [b"2", b"1"]
