"""Our slave behind Apache's master and Apache's slave behind ours, with as many
messages as wanted; both logs compared byte by byte.
"""

from __future__ import annotations

import math
import random
from typing import TYPE_CHECKING, Any

import trio

from rocketmq_sdk import Admin, EmbeddedBroker, Message, Producer, SendStatus
from rocketmq_sdk.broker_embedded.replication.slave import SlaveState
from support import java
from support.ports import free_port
from support.waiting import unique, until

if TYPE_CHECKING:
    from pathlib import Path

    from rocketmq_sdk.broker_embedded.store.append.replicas import Replicas

LOG_SIZE = 16 * 1024 * 1024
LIMIT = 600


def log_bytes(directory: Path, start: int, end: int) -> bytes:
    """A range of a log by its files."""
    parts = b""
    while start < end:
        name = start - start % LOG_SIZE
        stop = min(end, name + LOG_SIZE)
        with (directory / "commitlog" / f"{name:020d}").open("rb") as file:
            file.seek(start - name)
            parts += file.read(stop - start)
        start = stop
    return parts


async def publish(
    namesrv: str, topic: str, count: int, seed: int
) -> tuple[dict[tuple[int, int], bytes], int]:
    """Messages of many sizes, single and in batches; gives the bodies by queue and
    offset, and a position in the last record of the log.
    """
    generator = random.Random(seed)
    bodies: dict[tuple[int, int], bytes] = {}
    last = 0
    async with Producer(unique("writers"), namesrv=namesrv, send_timeout=60) as producer:
        await Admin(client=producer.client).topics.create(topic, queues=4)
        number = 0
        while number < count:
            messages = []
            for _ in range(min(64, count - number)):
                body = b"%d/" % number + generator.randbytes(generator.choice([10, 100, 300]))
                messages.append(Message(topic, body, tags="t", keys=[f"k{number}"]))
                number += 1
            handles = [(message, producer.submit(message)) for message in messages]
            for message, handle in handles:
                result = await handle
                assert result.status is SendStatus.SEND_OK, result
                bodies[result.queue.queue_id, result.queue_offset] = message.body
                assert result.offset_message_id is not None
                last = max(last, int(result.offset_message_id[-16:], 16))
    return bodies, last


async def ours_behind_apache(cluster: java.ApacheCluster, directory: Path, count: int) -> int:
    """Our slave copies Apache's master in two goes, away in between; gives the number
    of bytes that were equal.
    """
    settings: dict[str, Any] = {
        "broker_role": "SLAVE",
        "broker_id": 1,
        "namesrv_addr": cluster.namesrv,
        "slave_read_enable": True,
        "mapped_file_size_commit_log": LOG_SIZE,
    }
    topic = unique("copied")
    bodies: dict[tuple[int, int], bytes] = {}
    async with EmbeddedBroker(directory, listen=0, **settings) as slave:
        await until(lambda: _state(slave) is SlaveState.FOLLOWING)
        more, last = await publish(cluster.namesrv, topic, count // 2, 1)
        bodies |= more
        await _wait_and_compare(slave, cluster, directory, topic, bodies, last)
    more, last = await publish(cluster.namesrv, topic, count - count // 2, 2)
    bodies |= more
    async with EmbeddedBroker(directory, listen=0, **settings) as slave:
        return await _wait_and_compare(slave, cluster, directory, topic, bodies, last)


def _state(slave: EmbeddedBroker) -> SlaveState | None:
    following = slave.parts.replication.slave
    return None if following is None else following.state


async def _wait_and_compare(
    slave: EmbeddedBroker,
    cluster: java.ApacheCluster,
    directory: Path,
    topic: str,
    bodies: dict[tuple[int, int], bytes],
    last: int,
) -> int:
    store = slave.store
    await until(lambda: store.dispatched.value > last, LIMIT)
    await until(lambda: slave.core.topics.get(topic) is not None)
    for (queue_id, offset), body in bodies.items():
        unit = store.queue_unit(topic, queue_id, offset)
        assert unit is not None, (queue_id, offset)
        record = store.record_at(unit[0], unit[1])
        assert record is not None
        assert body in record, (queue_id, offset)
    least, most = store.min_physical_offset, store.max_physical_offset
    assert log_bytes(directory, least, most) == log_bytes(cluster.directory / "store", least, most)
    return most - least


async def apache_behind_ours(directory: Path, count: int, *, restart: bool = True) -> int:
    """Apache's slave copies our master, which waits for it; with `restart` it is away
    in between. Gives the number of bytes that were equal.
    """
    options: dict[str, Any] = {
        "broker_role": "SYNC_MASTER",
        "total_replicas": 2,
        "in_sync_replicas": 2,
        "slave_timeout": 60_000,
        "mapped_file_size_commit_log": LOG_SIZE,
    }
    ours, theirs = directory / "ours", directory / "theirs"
    theirs.mkdir()
    topic = unique("copied")
    parts = 2 if restart else 1
    async with EmbeddedBroker(ours, listen=0, namesrv_listen=0, **options) as master:
        assert master.namesrv_address is not None
        assert master.parts.replication.master is not None
        replicas = master.parts.replication.master.replicas
        cluster = java.ApacheCluster(
            theirs, master.namesrv_address, f"127.0.0.1:{free_port(-2, 1)}", {}
        )
        try:
            for part in range(parts):
                await trio.to_thread.run_sync(
                    lambda: java.start_broker(
                        cluster,
                        brokerRole="SLAVE",
                        brokerId=1,
                        slaveReadEnable="true",
                        **java.STOPS_SOON,
                    )
                )
                await until(
                    lambda: any(replica.requested >= 0 for replica in replicas.connected), 120
                )
                last = (
                    await publish(master.namesrv_address, topic, math.ceil(count / parts), part)
                )[1]
                await _acknowledged(replicas, last)
                await trio.to_thread.run_sync(lambda: cluster.stop("broker"))
        finally:
            cluster.close()
        files = sorted(int(path.name) for path in (theirs / "store" / "commitlog").iterdir())
        least, most = files[0], replicas.most_acknowledged
        assert log_bytes(theirs / "store", least, most) == log_bytes(ours, least, most)
    return most - least


async def _acknowledged(replicas: Replicas, position: int) -> None:
    await until(lambda: replicas.most_acknowledged > position, LIMIT)
