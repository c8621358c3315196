"""A broker with timers whose files outlive it, in virtual time."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import trio

from rocketmq_sdk.broker_embedded.broker import EmbeddedBroker
from rocketmq_sdk.broker_embedded.store.files.memory_files import MemoryFileSystem
from support.broker import Peer, connect

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from rocketmq_sdk.broker_embedded.store.files.file_system import FileSystem


class Deliveries:
    """What arrived in a topic and when, in milliseconds of the broker's clock."""

    def __init__(self, broker: EmbeddedBroker, topic: str = "orders") -> None:
        self.broker = broker
        self.times: list[int] = []
        broker.store.arrivals.append(
            lambda arrival: (
                self.times.append(broker.core.clock.now_ms()) if arrival.topic == topic else None
            )
        )


class KeptBroker(EmbeddedBroker):
    """A broker on files that outlive it, in memory: virtual time knows no threads."""

    files: FileSystem

    def _files(self) -> FileSystem:
        return self.files


@asynccontextmanager
async def open_watched(
    files: FileSystem | None = None, **settings: Any
) -> AsyncIterator[tuple[EmbeddedBroker, Peer, Deliveries]]:
    """The broker, a connection to it, and what comes in the topic `orders`."""
    broker = KeptBroker(**settings)
    broker.files = files or MemoryFileSystem()
    async with broker, trio.open_nursery() as nursery:
        yield broker, await connect(broker, nursery), Deliveries(broker)
        nursery.cancel_scope.cancel()
