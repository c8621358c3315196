"""What is told of replication."""

from __future__ import annotations

import pytest
import trio

from rocketmq_sdk.broker_embedded.store.append.replicas import Replica
from rocketmq_sdk.protocol.bodies.replication import HARuntimeInfo
from support.broker import open_broker


async def test_a_master_tells_of_its_slaves(autojump_clock: object) -> None:
    async with open_broker() as (broker, peer):
        await peer.send("T", b"hello")
        alone = HARuntimeInfo.decode((await peer.ask(907)).body)
        assert (alone.master, alone.in_sync_slave_nums, alone.ha_connection_info) == (True, 0, ())
        assert alone.master_commit_log_max_offset == broker.store.max_physical_offset
        master = broker.parts.replication.master
        assert master is not None
        replica = Replica("10.0.0.9:1234")
        master.replicas.add(replica)
        replica.sent = replica.transferred = 100
        master.replicas.acknowledge(replica, 60)
        await peer.ask(907)
        replica.transferred = 300
        await trio.sleep(2)
        (told,) = HARuntimeInfo.decode((await peer.ask(907)).body).ha_connection_info
        assert (told.addr, told.slave_ack_offset, told.diff) == (
            "10.0.0.9:1234",
            60,
            broker.store.max_physical_offset - 60,
        )
        assert (told.in_sync, told.transfer_from_where) == (True, 100)
        assert told.transferred_byte_in_second == pytest.approx(100, abs=2)


async def test_a_slave_tells_of_its_master(autojump_clock: object) -> None:
    async with open_broker(
        broker_role="SLAVE", broker_id=1, ha_master_address="10.0.0.8:10912"
    ) as (_broker, peer):
        told = HARuntimeInfo.decode((await peer.ask(907)).body)
        assert not told.master
        assert told.ha_client_runtime_info is not None
        assert told.ha_client_runtime_info.master_addr == "10.0.0.8:10912"


async def test_the_flush_offset_of_a_master(autojump_clock: object) -> None:
    async with open_broker() as (_broker, peer):
        assert (await peer.ask(908, masterFlushOffset=5)).code == 0
        assert (await peer.ask(908)).code != 0
