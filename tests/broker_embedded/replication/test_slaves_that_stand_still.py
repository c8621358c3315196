"""Slaves that take nothing more of their master's log while the master lives: where
their readers go, and what becomes of them when they are made masters.
"""

from __future__ import annotations

import errno
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

from rocketmq_sdk import EmbeddedBroker, Message, Producer
from rocketmq_sdk.broker_embedded.replication.slave import SlaveState
from rocketmq_sdk.broker_embedded.timers.checkpoint import read_checkpoint
from rocketmq_sdk.codes import ResponseCode
from rocketmq_sdk.protocol.message_codec import decode_messages
from rocketmq_sdk.testing.faults import Operation
from rocketmq_sdk.testing.faulty_files import FaultyFileSystem
from support.broker import BrokerOnFiles, Peer, connect, pull_request
from support.waiting import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    import trio

pytestmark = pytest.mark.real_time

SETTINGS: dict[str, Any] = {
    "mapped_file_size_commit_log": 65536,
    "message_delay_level": "1s 2s",
    "memory_limit": 64 << 20,
}


@asynccontextmanager
async def open_master() -> AsyncIterator[EmbeddedBroker]:
    async with EmbeddedBroker(
        listen=0,
        namesrv_listen=0,
        slave_read_enable=True,
        ha_listen_port=0,
        total_replicas=2,
        **SETTINGS,
    ) as master:
        yield master


@asynccontextmanager
async def open_slave(
    master: EmbeddedBroker, files: FaultyFileSystem
) -> AsyncIterator[EmbeddedBroker]:
    """A slave that has found its master and follows it."""
    async with BrokerOnFiles(
        files,
        listen=0,
        namesrv_listen=0,
        broker_role="SLAVE",
        broker_id=1,
        namesrv_addr=master.namesrv_address,
        slave_read_enable=True,
        **SETTINGS,
    ) as slave:
        await in_state(slave, SlaveState.FOLLOWING)
        yield slave


async def in_state(slave: EmbeddedBroker, wanted: SlaveState) -> None:
    found = slave.parts.replication.slave
    assert found is not None
    await until(lambda: found.state is wanted)


async def pulled(reader: Peer, offset: int) -> tuple[int, str]:
    """Code of a pull, and the broker that is suggested."""
    answer = await reader.ask(pull_request("orders", offset))
    return answer.code, answer.ext_fields["suggestWhichBrokerId"]


FOUND = (0, "0")
AT_THE_MASTER = (int(ResponseCode.PULL_RETRY_IMMEDIATELY), "0")


@pytest.mark.parametrize("for_good", [False, True], ids=["held up", "stopped"])
async def test_readers_go_to_the_master_as_long_as_it_lives(
    for_good: bool, nursery: trio.Nursery
) -> None:
    files = FaultyFileSystem(1)
    async with open_master() as master, open_slave(master, files) as slave:
        peer, reader = await connect(master, nursery), await connect(slave, nursery)
        await peer.send("orders", b"one")
        await until(lambda: slave.store.max_offset("orders", 0) == 1)
        assert await pulled(reader, 0) == FOUND
        fault = (
            files.faults.fail(Operation.SYNC, "commitlog/*")
            if for_good
            else files.faults.fail(Operation.WRITE, "commitlog/*", code=errno.ENOSPC)
        )
        await peer.send("orders", b"two")
        if for_good:
            await until(lambda: slave.store.needs_restart)
            await peer.send("orders", b"three")
        await in_state(slave, SlaveState.STOPPED if for_good else SlaveState.HELD_UP)
        replication = slave.parts.replication
        assert replication.master_is_there
        assert await pulled(reader, 0) == FOUND
        assert await pulled(reader, 2) == AT_THE_MASTER
        assert any("takes nothing" in reason for reason in slave.health().reasons)
        fault.lift()
        if not for_good:
            await in_state(slave, SlaveState.FOLLOWING)
            await until(lambda: slave.store.max_offset("orders", 0) == 2)
            assert not any("takes nothing" in reason for reason in slave.health().reasons)
            return
        await master_dies(master, slave)
        assert await pulled(reader, 0) == (0, "1")
        assert await pulled(reader, 2) == (int(ResponseCode.PULL_NOT_FOUND), "1")


async def master_dies(master: EmbeddedBroker, slave: EmbeddedBroker) -> None:
    """Its port answers no more."""
    replication = slave.parts.replication
    replication.master_address = "127.0.0.1:1"
    await until(lambda: not replication.master_is_there)


async def test_progress_is_not_taken_over_before_the_records_that_it_rests_on(
    nursery: trio.Nursery,
) -> None:
    """The master delivers what is delayed and the slave does not get it: made master,
    the slave delivers it.
    """
    files = FaultyFileSystem(1)
    async with open_master() as master, open_slave(master, files) as slave:
        sync = slave.parts.replication.sync
        assert sync is not None
        async with Producer("writers", namesrv=master.namesrv_address) as producer:
            begun = master.core.clock.now_ms()
            await producer.send(Message("orders", b"delayed", delay_level=2))
            await producer.send(Message("orders", b"timer", deliver_at=begun + 2500))
            sent = master.store.max_physical_offset
            await until(lambda: slave.store.max_physical_offset == sent)
            files.faults.fail(Operation.WRITE, "commitlog/*", code=errno.ENOSPC)
            await until(lambda: delivered(master) == [b"delayed", b"timer"])
            await until(lambda: master.parts.timers.schedule.offset(2) == 1)
        await sync.sync_all()
        await in_state(slave, SlaveState.HELD_UP)
        assert slave.store.max_physical_offset < master.store.max_physical_offset
        assert slave.parts.timers.schedule.offset(2) == 0
        assert read_checkpoint(slave.store.files).last_read_time < begun + 2500
        assert sync.master_answers
    files.faults.clear()
    async with BrokerOnFiles(files.power_cut(1), **SETTINGS) as promoted:
        # The write that failed may have brought a whole record of the master's.
        await until(lambda: set(delivered(promoted)) == {b"delayed", b"timer"})


def delivered(broker: EmbeddedBroker) -> list[bytes]:
    """Every message that consumers of `orders` see, sorted."""
    store = broker.store
    return sorted(
        message.body
        for queue_id in store.queue_ids("orders")
        for message in decode_messages(store.get("orders", queue_id, 0, 32).body)
    )
