"""A broker on a disk in memory whose old messages have to be read from the device."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from rocketmq_sdk.testing.faults import Fault, Operation
from rocketmq_sdk.testing.faulty_files import FaultyFileSystem
from support.timers import open_watched

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from rocketmq_sdk.broker_embedded.broker import EmbeddedBroker
    from support.broker import Peer
    from support.timers import Deliveries

LOG = "commitlog/*"
FILLER = b"x" * 4000


@asynccontextmanager
async def open_on_disk(
    files: FaultyFileSystem | None = None, **settings: Any
) -> AsyncIterator[tuple[EmbeddedBroker, Peer, Deliveries]]:
    """The broker on `files`, a new disk unless told otherwise, with nothing in memory
    but the last kilobytes of its log.
    """
    files = FaultyFileSystem(blocking=True) if files is None else files
    settings.setdefault("hot_bytes", 0)
    settings.setdefault("mapped_file_size_commit_log", 1 << 20)
    async with open_watched(files, **settings) as opened:
        yield opened


def disk_of(broker: EmbeddedBroker) -> FaultyFileSystem:
    """The disk that a broker was opened on."""
    files = broker.store.files
    assert isinstance(files, FaultyFileSystem)
    return files


async def push_out(peer: Peer) -> None:
    """Write so much that what was sent before is not in memory any more."""
    for _ in range(4):
        await peer.send("filler", FILLER)


def record_of(broker: EmbeddedBroker, topic: str, queue_id: int, offset: int) -> range:
    """The bytes of a message in the log file."""
    unit = broker.store.queue_unit(topic, queue_id, offset)
    assert unit is not None
    return range(unit[0], unit[0] + unit[1])


def break_record(
    broker: EmbeddedBroker, topic: str, queue_id: int, offset: int, **how: Any
) -> Fault:
    """Let reads of one message fail."""
    place = record_of(broker, topic, queue_id, offset)
    return disk_of(broker).faults.fail(Operation.READ, LOG, at=place, **how)
