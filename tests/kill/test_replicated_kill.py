"""A master that dies under load (kill -9): what it acknowledged is at its slave, and is
read there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import trio

from rocketmq_sdk import Admin, EmbeddedBroker, Message, Producer, RocketMQError, SendStatus
from rocketmq_sdk.broker_embedded.replication.slave import SlaveState
from support.processes import broker_process
from support.waiting import until

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.real_time, pytest.mark.timeout(300)]

SIZES: dict[str, Any] = {
    "mappedFileSizeCommitLog": 4 * 1024 * 1024,
    "mappedFileSizeConsumeQueue": 20 * 500,
}


async def _load(
    producer: Producer, topic: str, seed: int, acknowledged: dict[bytes, tuple[int, int]]
) -> None:
    """Send until the broker is gone; remember what was acknowledged as replicated."""
    number = 0
    try:
        while True:
            handles = []
            for _ in range(16):
                body = b"%d/%d/" % (seed, number) + bytes(number % 1500)
                handles.append((body, producer.submit(Message(topic, body))))
                number += 1
            for body, handle in handles:
                result = await handle
                if result.status is SendStatus.SEND_OK:
                    acknowledged[body] = (result.queue.queue_id, result.queue_offset)
    except RocketMQError:
        return


@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
async def test_every_acknowledged_message_of_a_killed_master_is_at_its_slave(
    tmp_path: Path, flush: str
) -> None:
    settings = {
        **SIZES,
        "brokerRole": "SYNC_MASTER",
        "totalReplicas": 2,
        "inSyncReplicas": 2,
        "slaveTimeout": 60_000,
        "flushDiskType": flush,
    }
    with broker_process(tmp_path / "master", **settings) as master:
        slave_settings = {
            "broker_role": "SLAVE",
            "broker_id": 1,
            "slave_read_enable": True,
            "flush_disk_type": flush,
            **SIZES,
        }
        async with EmbeddedBroker(
            tmp_path / "slave", listen=0, namesrv_addr=master.namesrv, **slave_settings
        ) as slave:
            replication = slave.parts.replication
            await until(
                lambda: (
                    replication.slave is not None
                    and replication.slave.state is SlaveState.FOLLOWING
                )
            )
            acknowledged: dict[bytes, tuple[int, int]] = {}
            async with Producer("writers", namesrv=master.namesrv, send_timeout=60) as producer:
                # The first acknowledgement says that the slave is waited for and there.
                await Admin(client=producer.client).topics.create("load", queues=4)
                assert (await producer.send(Message("load", b"first"))).status is SendStatus.SEND_OK
            async with (
                Producer("writers", namesrv=master.namesrv, send_timeout=5) as producer,
                trio.open_nursery() as nursery,
            ):
                for seed in range(4):
                    nursery.start_soon(_load, producer, "load", seed, acknowledged)
                await until(lambda: len(acknowledged) > 1000)
                last = await producer.send(
                    Message("made by the last send".replace(" ", "_"), b"last")
                )
                master.kill()
            assert last.status is SendStatus.SEND_OK
            await until(
                lambda: replication.slave is not None and replication.slave.state is SlaveState.AWAY
            )
            for body, (queue_id, offset) in acknowledged.items():
                unit = slave.store.queue_unit("load", queue_id, offset)
                assert unit is not None, (queue_id, offset)
                record = slave.store.record_at(unit[0], unit[1])
                assert record is not None
                assert body in record
            assert (
                slave.store.max_offset("made_by_the_last_send", last.queue.queue_id)
                == last.queue_offset + 1
            )
            assert slave.core.topics.get("made_by_the_last_send") is not None
        async with EmbeddedBroker(tmp_path / "slave", **SIZES) as promoted:
            for queue_id, offset in acknowledged.values():
                assert promoted.store.queue_unit("load", queue_id, offset) is not None
