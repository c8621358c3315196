"""Consumers of a broker with a slave: they read there while the master is away, and at
the master again when it is back.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import trio

from rocketmq_sdk import (
    Admin,
    ConsumeFrom,
    EmbeddedBroker,
    LitePullConsumer,
    Message,
    Producer,
    PushConsumer,
    ReceivedMessage,
    SendStatus,
)
from rocketmq_sdk.broker_embedded.replication.slave import SlaveState
from rocketmq_sdk.client.brokers import BrokerAddresses
from rocketmq_sdk.model.route import MASTER_ID, BrokerData, TopicRoute
from support.waiting import until

if TYPE_CHECKING:
    from pathlib import Path

SIZES: dict[str, Any] = {"mapped_file_size_commit_log": 65536, "slave_read_enable": True}


def test_a_missing_master_is_replaced_by_its_slave() -> None:
    brokers = BrokerAddresses()
    brokers.update(TopicRoute((), (BrokerData("c", "a", {0: "x:1", 1: "x:2"}),)))
    found = brokers.subscribe_address("a", 1)
    assert found is not None
    assert (found.address, found.is_slave) == ("x:2", True)
    brokers.update(TopicRoute((), (BrokerData("c", "a", {1: "x:2"}),)))
    found = brokers.subscribe_address("a")
    assert found is not None
    assert (found.address, found.is_slave) == ("x:2", True)


def _open_master(slave: EmbeddedBroker, path: Path) -> EmbeddedBroker:
    """A master on a free port, each time another one."""
    settings = {
        "broker_role": "SYNC_MASTER",
        "total_replicas": 2,
        "in_sync_replicas": 2,
        "slave_timeout": 60_000,
        **SIZES,
    }
    return EmbeddedBroker(path, listen=0, namesrv_addr=slave.namesrv_address, **settings)


def _follows(slave: EmbeddedBroker) -> bool:
    replication = slave.parts.replication
    return replication.slave is not None and replication.slave.state is SlaveState.FOLLOWING


def _has_master(slave: EmbeddedBroker) -> bool:
    """Whether the slave's name server knows a master; one that starts may serve slaves
    a moment before it is registered.
    """
    group = slave.namesrv.table.brokers.member_group("DefaultCluster", "broker-a")
    return group is not None and MASTER_ID in group.broker_addrs


async def _send(namesrv: str, topic: str, numbers: range) -> None:
    async with Producer("writers", namesrv=namesrv, send_timeout=60) as producer:
        for number in numbers:
            assert (
                await producer.send(Message(topic, b"%d" % number))
            ).status is SendStatus.SEND_OK


class _Reader:
    """A push consumer and what it got."""

    def __init__(self, group: str, namesrv: str) -> None:
        self.bodies: list[int] = []
        self.consumer = PushConsumer(
            group,
            namesrv=namesrv,
            subscriptions={"orders": "*"},
            listener=self._take,
            consume_from=ConsumeFrom.FIRST_OFFSET,
            pull_time_delay_when_exception=0.2,
        )

    async def _take(self, message: ReceivedMessage) -> None:
        self.bodies.append(int(message.body))

    async def has(self, count: int) -> None:
        await until(lambda: len(set(self.bodies)) >= count)


class _Running:
    """A broker in a task of its own, so that it can end before what was opened
    later.
    """

    def __init__(self, broker: EmbeddedBroker) -> None:
        self.broker = broker
        self._stop, self._ended = trio.Event(), trio.Event()

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        async with self.broker:
            task_status.started()
            await self._stop.wait()
        self._ended.set()

    async def end(self) -> None:
        self._stop.set()
        await self._ended.wait()


@pytest.mark.real_time
async def test_a_group_goes_on_at_the_slave_and_comes_back(tmp_path: Path) -> None:
    options: dict[str, Any] = {"broker_role": "SLAVE", "broker_id": 1, **SIZES}
    async with (
        EmbeddedBroker(tmp_path / "slave", listen=0, namesrv_listen=0, **options) as slave,
        trio.open_nursery() as nursery,
    ):
        namesrv = slave.namesrv_address
        assert namesrv is not None
        master = _Running(_open_master(slave, tmp_path / "master"))
        await nursery.start(master.run)
        await until(lambda: _has_master(slave) and _follows(slave))
        await _send(namesrv, "orders", range(10))
        always = _Reader("always", namesrv)
        async with always.consumer:
            await always.has(10)
            first = _Reader("parted", namesrv)
            async with first.consumer:
                await first.has(10)
            await _send(namesrv, "orders", range(10, 20))
            assert slave.parts.replication.sync is not None
            slave.parts.replication.sync.wake()
            await until(
                lambda: sum(slave.core.offsets.offsets_of("parted", "orders").values()) == 10
            )
            await master.end()
            await always.has(20)
            second = _Reader("parted", namesrv)
            async with second.consumer:
                await second.has(10)
            assert sorted(second.bodies) == list(range(10, 20)), (
                "it goes on where the group had come to, as the slave knows it"
            )
            assert sum(slave.core.offsets.offsets_of("parted", "orders").values()) == 20, (
                "offsets are kept at whoever is there"
            )
            master = _Running(_open_master(slave, tmp_path / "master"))
            await nursery.start(master.run)
            await until(lambda: _has_master(slave) and _follows(slave))
            await _send(namesrv, "orders", range(20, 25))
            await always.has(25)
            await until(lambda: master.broker.parts.pull.held.held > 0)
        assert sorted(set(always.bodies)) == list(range(25))
        await master.end()


@pytest.mark.real_time
async def test_a_slow_reader_follows_the_suggestion_to_the_slave(tmp_path: Path) -> None:
    options: dict[str, Any] = {"broker_role": "SLAVE", "broker_id": 1, **SIZES}
    async with EmbeddedBroker(tmp_path / "slave", listen=0, namesrv_listen=0, **options) as slave:
        namesrv = slave.namesrv_address
        assert namesrv is not None
        master = EmbeddedBroker(
            tmp_path / "master",
            listen=0,
            namesrv_addr=namesrv,
            total_replicas=2,
            access_message_in_memory_max_ratio=0,
            **SIZES,
        )
        async with master:
            await until(lambda: _has_master(slave) and _follows(slave))
            async with Producer("writers", namesrv=namesrv) as producer:
                await Admin(client=producer.client).topics.create("orders", queues=1)
                for number in range(100):
                    await producer.send(Message("orders", b"%d" % number))
            async with LitePullConsumer(
                "readers",
                namesrv=namesrv,
                subscriptions={"orders": "*"},
                consume_from=ConsumeFrom.FIRST_OFFSET,
            ) as consumer:
                found: list[int] = []
                with trio.fail_after(60):
                    while len(found) < 100:
                        found += [int(message.body) for message in await consumer.poll(timeout=5)]
            assert sorted(found) == list(range(100))
            assert slave.core.stats.got_messages > 0
