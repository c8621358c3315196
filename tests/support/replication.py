"""A master's and a slave's store on a memory network, without brokers around them."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import trio

from rocketmq_sdk.broker_embedded.replication.master import Master
from rocketmq_sdk.broker_embedded.replication.slave import Slave, SlaveState
from rocketmq_sdk.broker_embedded.store.append.replicas import Replicas
from rocketmq_sdk.broker_embedded.store.files.memory_files import MemoryFileSystem
from rocketmq_sdk.broker_embedded.store.message_store import MessageStore
from rocketmq_sdk.clock import Clock, TrioClock
from rocketmq_sdk.lifecycle import open_quiet_nursery
from support.store import STORE_HOST, small_config

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from rocketmq_sdk.broker_embedded.store.config import StoreConfig
    from rocketmq_sdk.broker_embedded.store.files.file_system import FileSystem
    from rocketmq_sdk.transport.memory import MemoryNetwork

ADDRESS = "master:10912"


def pair_config(**settings: Any) -> StoreConfig:
    """Small files, and both copies wanted."""
    return small_config(**{"total_replicas": 2, "in_sync_replicas": 2, **settings})


def log_of(store: MessageStore) -> bytes:
    """The log of an open store from its first file to its end, zeros at the ends of
    files included.
    """
    log = store._log
    parts = b""
    position = log.min_position
    while position < log.position:
        size = log.data_span(position, 1 << 30, log.position)
        part = log.read(position, size)
        assert part is not None, position
        parts += part
        position += size
    return parts


@asynccontextmanager
async def open_master(
    network: MemoryNetwork,
    files: FileSystem | None = None,
    config: StoreConfig | None = None,
    clock: Clock | None = None,
) -> AsyncIterator[tuple[MessageStore, Master]]:
    """An open store that serves slaves at `ADDRESS`."""
    config = config or pair_config()
    store = MessageStore(
        config, files or MemoryFileSystem(write_through=True), clock or TrioClock(), STORE_HOST
    )
    async with store:
        master = Master(store, Replicas.of(config), clock or TrioClock())
        store.replicate_to(master.replicas)
        async with open_quiet_nursery() as nursery:
            await nursery.start(master.serve, [network.listen(ADDRESS)])
            try:
                yield store, master
            finally:
                nursery.cancel_scope.cancel()


@asynccontextmanager
async def open_slave(
    network: MemoryNetwork,
    files: FileSystem | None = None,
    config: StoreConfig | None = None,
    clock: Clock | None = None,
) -> AsyncIterator[tuple[MessageStore, Slave]]:
    """An open store that follows the master at `ADDRESS`."""
    clock = clock or TrioClock()
    store = MessageStore(
        config or pair_config(), files or MemoryFileSystem(write_through=True), clock, STORE_HOST
    )
    async with store:
        store.become_slave()
        slave = Slave(store, clock, network.connect, ADDRESS)
        async with open_quiet_nursery() as nursery:
            nursery.start_soon(slave.run)
            try:
                yield store, slave
            finally:
                nursery.cancel_scope.cancel()


async def caught_up(slave: MessageStore, master: MessageStore) -> None:
    """Wait until the slave shows what the master shows."""
    with trio.fail_after(120):
        await slave.dispatched.wait_reached(master.dispatched.value)


async def in_state(slave: Slave, state: SlaveState) -> None:
    """Wait for a state."""
    with trio.fail_after(120):
        while slave.state is not state:
            await trio.sleep(0.05)


async def connected(master: Master, count: int = 1) -> None:
    """Wait until so many slaves have reported."""
    with trio.fail_after(120):
        while sum(replica.requested >= 0 for replica in master.replicas.connected) < count:
            await trio.sleep(0.05)
