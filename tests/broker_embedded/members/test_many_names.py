"""Whoever names very many groups, queues and expressions finds a limit."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import trio

from rocketmq_sdk.broker_embedded.filter import consumer_filters
from rocketmq_sdk.broker_embedded.members import queue_locks
from rocketmq_sdk.broker_embedded.members.queue_locks import QueueLocks
from rocketmq_sdk.codes import RequestCode, ResponseCode
from rocketmq_sdk.model.queue import MessageQueue
from rocketmq_sdk.protocol.bodies.members import HeartbeatData
from rocketmq_sdk.protocol.command import Command
from rocketmq_sdk.protocol.subscription import SQL92, build_subscription
from support.administration import FixedClock
from support.broker import connect, heartbeat, open_broker, pull_request

if TYPE_CHECKING:
    import pytest
    from trio.testing import MockClock


async def test_what_is_kept_of_a_client_is_counted_and_forgotten(autojump_clock: MockClock) -> None:
    async with open_broker() as (broker, _), trio.open_nursery() as nursery:
        client = await connect(broker, nursery)
        channel = list(broker.server.channels.values())[-1]
        sizes = [channel.kept_bytes]
        for number in range(3):
            wish = build_subscription("T", "||".join(map(str, range(100))), sub_version=1)
            for _ in range(2):  # the second time it is the same
                await client.ask(heartbeat("client", f"G{number}", wish))
            sizes.append(channel.kept_bytes)
        body = HeartbeatData("client", ("P", "Q"), ()).encode()
        await client.ask(Command(RequestCode.HEART_BEAT, body=body))
        assert sizes[0] == 0
        assert sizes[2] - sizes[1] == sizes[3] - sizes[2] > 10_000
        assert channel.kept_bytes > sizes[3]
        for number in range(3):
            await client.ask(
                RequestCode.UNREGISTER_CLIENT, clientID="client", consumerGroup=f"G{number}"
            )
        for group in ("P", "Q"):
            await client.ask(RequestCode.UNREGISTER_CLIENT, clientID="client", producerGroup=group)
        assert channel.kept_bytes == 0
        nursery.cancel_scope.cancel()


def test_locks_have_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queue_locks, "MOST", 5)
    clock = FixedClock()
    locks = QueueLocks(clock)
    queues = [MessageQueue("T", "broker-a", number) for number in range(4)]
    assert locks.lock("A", queues, "one") == queues
    assert locks.lock("B", queues, "two") == queues[:1]
    assert locks.lock("A", queues, "one") == queues
    locks.unlock("A", queues[:2], "one")
    assert locks.lock("B", queues, "two") == queues[:3]
    assert locks.lock("C", queues, "three") == []
    assert not locks.any_alive("C")


async def test_expressions_have_a_limit_and_dead_ones_make_room(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(consumer_filters, "MOST_CHARACTERS", 50)
    caplog.set_level(logging.WARNING)
    wish = build_subscription("T", "name = 'a name'", SQL92, sub_version=1)
    async with open_broker() as (broker, peer), trio.open_nursery() as nursery:
        await peer.send("T", b"x", queue_id=0)
        clients = [await connect(broker, nursery) for _ in range(5)]
        codes = []
        for number, client in enumerate(clients):
            assert (await client.ask(heartbeat(f"c{number}", f"G{number}", wish))).code == 0
            pulled = await client.ask(pull_request("T", 0, group=f"G{number}", expression=None))
            codes.append(pulled.code)
        assert codes == [20, 20, 20, *[ResponseCode.FILTER_DATA_NOT_EXIST] * 2]
        assert len([each for each in caplog.records if "is the limit" in each.message]) == 1
        await clients[1].channel.aclose()
        await clients[4].ask(heartbeat("c4", "G4", wish))
        pulled = await clients[4].ask(pull_request("T", 0, group="G4", expression=None))
        assert pulled.code == 20
        assert [data.group for data in broker.parts.filters.expressions] == ["G0", "G2", "G4"]
        nursery.cancel_scope.cancel()
