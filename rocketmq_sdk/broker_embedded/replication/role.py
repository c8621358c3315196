"""What a broker's role means: a master that serves slaves, or a slave that follows its
master (`BrokerController`).
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final

import trio

from rocketmq_sdk.broker_embedded.replication.master import Master
from rocketmq_sdk.broker_embedded.replication.slave import Slave, SlaveState
from rocketmq_sdk.broker_embedded.replication.slave_sync import SlaveSync
from rocketmq_sdk.broker_embedded.settings.config import BrokerRole
from rocketmq_sdk.broker_embedded.store.append.replicas import Replicas
from rocketmq_sdk.errors import ConfigurationError
from rocketmq_sdk.model.route import MASTER_ID, split_address
from rocketmq_sdk.transport.tcp import open_tcp_listeners, open_tcp_stream

if TYPE_CHECKING:
    from rocketmq_sdk.broker_embedded.core import BrokerContext
    from rocketmq_sdk.broker_embedded.registration.calls import AddressCaller
    from rocketmq_sdk.broker_embedded.settings.config import BrokerConfig
    from rocketmq_sdk.broker_embedded.store.message_store import MessageStore
    from rocketmq_sdk.clock import Clock

logger = logging.getLogger(__name__)

_ALONE: Final = 1


def wants_port(config: BrokerConfig) -> bool:
    """Whether a broker listens for slaves."""
    replicated = (
        config.broker_role is BrokerRole.SYNC_MASTER or config.store.total_replicas > _ALONE
    )
    return not config.is_slave and (config.ha_listen_port > 0 or replicated)


async def _connect(address: str) -> trio.abc.Stream:
    host, port = split_address(address)
    return await open_tcp_stream(host, port)


async def open_ha_listeners(
    host: str, wanted: int, broker_port: int, asked_broker_port: int
) -> tuple[list[trio.SocketListener], int]:
    """Bind the port for slaves; gives the listeners and the port. Raises
    `ConfigurationError` when it cannot be bound.
    """
    try:
        return await open_tcp_listeners(host, wanted or broker_port + 1)
    except ConfigurationError:
        if wanted or asked_broker_port:
            raise
        return await open_tcp_listeners(host, 0)


class Replication:
    """The replicating half of one broker. A master has `master`, a slave has `slave`
    and `sync`.
    """

    def __init__(self, config: BrokerConfig, store: MessageStore, clock: Clock) -> None:
        self._broker_id = config.broker_id
        self.master: Master | None = None
        self.slave: Slave | None = None
        self.sync: SlaveSync | None = None
        self.master_address: str | None = None
        """Where a slave's master serves requests, as a name server told it last."""
        if config.is_slave:
            store.become_slave()
            self.slave = Slave(store, clock, _connect, config.ha_master_address)
            return
        self.master = Master(store, Replicas.of(config.store), clock)
        if config.broker_role is BrokerRole.SYNC_MASTER:
            store.replicate_to(self.master.replicas)

    @property
    def is_slave(self) -> bool:
        """Whether this broker copies a master."""
        return self.slave is not None

    def found_master(self, address: str | None, ha_address: str | None) -> None:
        """A name server tells where the master is; None where it knows of none."""
        if self.slave is None or address is None:
            return
        if address != self.master_address:
            self.master_address = address
            if self.sync is not None:
                self.sync.wake()
        self.slave.set_master(ha_address)

    def follow(self, context: BrokerContext, caller: AddressCaller) -> SlaveSync:
        """The service that takes over what is not in the log, made once the other parts
        of a slave are there.
        """
        self.sync = SlaveSync(context, caller, lambda: self.master_address)
        return self.sync

    # What pulls ask

    @property
    def refuses_reads(self) -> bool:
        """Whether this is a slave that must not show its log now."""
        return self.slave is not None and not self.slave.may_serve

    def home(self, group_broker_id: int) -> int:
        """The broker id that a consumer that keeps up is sent to: of a slave whose
        master is there the master's, of one that is alone its own.
        """
        if self.slave is None:
            return group_broker_id
        return MASTER_ID if self.master_is_there else self._broker_id

    @property
    def master_is_there(self) -> bool:
        """Whether a slave is connected to its master."""
        return self.slave is not None and self.slave.state in (
            SlaveState.COMPARING,
            SlaveState.FOLLOWING,
        )

    async def serve(
        self, listeners: list[Any], task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """Serve slaves until cancelled."""
        assert self.master is not None
        await self.master.serve(listeners, task_status)

    async def run(self) -> None:
        """Follow the master and take over what it keeps beside its log; ends at once on
        a master.
        """
        if self.slave is None or self.sync is None:
            return
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.slave.run)
            nursery.start_soon(self.sync.run)
