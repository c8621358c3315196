"""Replication: the part. A master serves slaves, a slave follows its master.

`BrokerController` of Apache.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final

import trio

from rocketmq_sdk.broker_embedded import needs
from rocketmq_sdk.broker_embedded.needs import Action
from rocketmq_sdk.broker_embedded.part import Part, Service
from rocketmq_sdk.broker_embedded.replication.ha_status import HaStatus
from rocketmq_sdk.broker_embedded.replication.master import Master
from rocketmq_sdk.broker_embedded.replication.slave import Slave
from rocketmq_sdk.broker_embedded.replication.slave_sync import SlaveSync
from rocketmq_sdk.broker_embedded.request import BUSY, Cost, Request
from rocketmq_sdk.broker_embedded.settings.config import BrokerRole
from rocketmq_sdk.broker_embedded.store.append.replicas import Replicas
from rocketmq_sdk.broker_embedded.store.messages import GetResult, GetStatus
from rocketmq_sdk.codes import RequestCode, ResponseCode
from rocketmq_sdk.errors import ConfigurationError
from rocketmq_sdk.model.route import MASTER_ID
from rocketmq_sdk.protocol.command import Command
from rocketmq_sdk.protocol.headers.replication import ResetMasterFlushOffsetHeader
from rocketmq_sdk.transport.tcp import open_tcp_listeners

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from rocketmq_sdk.broker_embedded.core import Core
    from rocketmq_sdk.broker_embedded.members.part import MemberPart
    from rocketmq_sdk.broker_embedded.registration.calls import AddressCaller
    from rocketmq_sdk.broker_embedded.registration.part import RegistrationPart
    from rocketmq_sdk.broker_embedded.replication.slave import Connect
    from rocketmq_sdk.broker_embedded.settings.config import BrokerConfig
    from rocketmq_sdk.broker_embedded.timers.part import TimerPart
    from rocketmq_sdk.protocol.bodies.groups import SubscriptionGroupConfig

logger = logging.getLogger(__name__)

_ALONE: Final = 1
_MISSED_SECONDS: Final = 86_400
"""How long a slave that has left is missed; then it was probably taken away."""
_OUT_OF_RANGE: Final = frozenset(
    {
        GetStatus.NO_MATCHED_LOGIC_QUEUE,
        GetStatus.NO_MESSAGE_IN_QUEUE,
        GetStatus.OFFSET_TOO_SMALL,
        GetStatus.OFFSET_OVERFLOW_ONE,
        GetStatus.OFFSET_OVERFLOW_BADLY,
    }
)


class _Trouble:
    """What keeps a slave from following, as `Service.trouble`."""

    __slots__ = ("_slave",)

    def __init__(self, slave: Slave) -> None:
        self._slave = slave

    def __iter__(self) -> Iterator[str]:
        if self._slave.problem is not None:
            yield self._slave.problem


class _MasterTrouble:
    """What is wrong with the slaves of a master."""

    __slots__ = ("_core", "_replicas")

    def __init__(self, core: Core, replicas: Replicas) -> None:
        self._core = core
        self._replicas = replicas

    def __iter__(self) -> Iterator[str]:
        replicas, end = self._replicas, self._core.store.max_physical_offset
        now, config = self._core.clock.monotonic(), self._core.config.current
        for replica in replicas.connected:
            behind = end - max(0, replica.position)
            if behind >= replicas.rules.max_gap:
                yield f"the slave {replica.address} is {behind} bytes behind"
        there = len(replicas.connected)
        wanted = config.store.total_replicas - _ALONE
        if config.broker_role is BrokerRole.SYNC_MASTER:
            wanted = max(wanted, replicas.rules.in_sync_replicas - _ALONE)
        if there < wanted:
            yield f"{there} of {wanted} slaves are connected"
        for host, gone in replicas.gone.items():
            if now - gone.since < _MISSED_SECONDS:
                yield (
                    f"the slave at {host} is gone for {now - gone.since:.0f} s; it has the log up "
                    f"to {gone.position}, {end - gone.position} bytes less than the master"
                )


def wants_port(config: BrokerConfig) -> bool:
    """Whether a broker listens for slaves."""
    replicated = (
        config.broker_role is BrokerRole.SYNC_MASTER or config.store.total_replicas > _ALONE
    )
    return not config.is_slave and (config.ha_listen_port > 0 or replicated)


async def open_ha_listeners(
    host: str, wanted: int, broker_port: int, asked_broker_port: int
) -> tuple[list[trio.SocketListener], int]:
    """Bind the port for slaves; returns the listeners and the port.

    Raises `ConfigurationError` when it cannot be bound.
    """
    try:
        return await open_tcp_listeners(host, wanted or broker_port + 1)
    except ConfigurationError:
        if wanted or asked_broker_port:
            raise
        return await open_tcp_listeners(host, 0)


class ReplicationPart(Part):
    """The replicating half of one broker.

    A master has `master`, a slave has `slave` and `sync`.
    """

    __slots__ = ("_core", "_ha_status", "master", "master_address", "slave", "sync")

    def __init__(
        self,
        core: Core,
        timers: TimerPart,
        members: MemberPart,
        registration: RegistrationPart,
        caller: AddressCaller | None,
        connect: Connect,
    ) -> None:
        """`caller` carries the calls of a slave to its master, `connect` its log."""
        store, config = core.store, core.config.current
        self._core = core
        self._ha_status = HaStatus(core)
        self.master: Master | None = None
        self.slave: Slave | None = None
        self.sync: SlaveSync | None = None
        """Takes over what a slave does not find in the log."""
        self.master_address: str | None = None
        """Where a slave's master serves requests, as a name server told it last."""
        registration.service.on_master = self.found_master
        if config.is_slave:
            assert caller is not None
            store.become_slave()
            self.slave = Slave(store, core.clock, connect, config.ha_master_address)
            self.sync = SlaveSync(core, timers, members, caller, lambda: self.master_address)
            return
        self.master = Master(store, Replicas.of(config.store), core.clock)
        core.supervisor.more.append(_MasterTrouble(core, self.master.replicas))
        if config.broker_role is BrokerRole.SYNC_MASTER:
            replicas, refusing = self.master.replicas, core.supervisor.refusing
            store.replicate_to(replicas)
            core.supervisor.refusing = lambda: (
                refusing() or replicas.lack(store.max_physical_offset)
            )

    def requests(self) -> Iterable[Request]:
        """How replication goes."""
        return (
            Request(
                RequestCode.GET_BROKER_HA_STATUS,
                self._status,
                needs.cluster(Action.GET),
                cost=Cost.TABLE,
            ),
            Request(
                RequestCode.RESET_MASTER_FLUSH_OFFSET,
                _reset_master_flush_offset,
                needs.cluster(Action.UPDATE),
                ResetMasterFlushOffsetHeader,
            ),
        )

    def services(self) -> Iterable[Service]:
        """A slave follows its master."""
        if self.slave is None:
            return ()
        return (Service("replication", self.run, trouble=_Trouble(self.slave)),)

    async def load(self) -> None:
        """A slave learns topics from the records that come."""
        if self.sync is not None:
            self._core.store.listen(self.sync.on_arrival)

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

    # What pulls ask

    def why_not_read(self) -> str | None:
        """Why a slave refuses a pull now, or None.

        Always None on a master, and where `slaveReadEnable` allows it.
        """
        slave = self.slave
        if slave is None:
            return None
        if not self._core.config.current.slave_read_enable:
            return BUSY
        if not slave.may_serve:
            return (
                "[REJECTREQUEST]this slave does not serve now: "
                f"{slave.problem or 'its log is being compared with its master'}"
            )
        return None

    def directed(
        self,
        group: SubscriptionGroupConfig,
        result: GetResult,
        code: int,
        asked_offset: int,
    ) -> tuple[int, int, int]:
        """Code, next offset and suggested broker id of a pull's answer, by role.

        A reader far behind is sent to a slave, one that has caught up to the master. A
        slave whose master is alive sends all other readers there; one that finds
        nothing comes again at once, at the master. A slave alone keeps its readers:
        those that ask for what it does not have wait for it, because the master may
        have it; Apache's slave lets them ask again and again. Offsets outside of a
        queue are not corrected on a slave unless `offsetCheckInSlave` is on.
        """
        config = self._core.config.current
        next_offset = result.next_begin_offset
        suggested = self.suggested(group, result.suggest_slave)
        if not config.slave_read_enable:
            return code, next_offset, suggested
        if not self.is_slave:
            return code, next_offset, suggested
        checks = config.store.offset_check_in_slave
        if result.status in _OUT_OF_RANGE and not checks:
            next_offset = asked_offset
        if self.master_is_there:
            if code != ResponseCode.SUCCESS and not result.suggest_slave:
                code = ResponseCode.PULL_RETRY_IMMEDIATELY
        elif code == ResponseCode.PULL_OFFSET_MOVED and not checks:
            code = ResponseCode.PULL_NOT_FOUND
        return code, next_offset, suggested

    def suggested(self, group: SubscriptionGroupConfig, far_behind: bool) -> int:
        """The broker id that a reader of a group is to ask next."""
        if not self._core.config.current.slave_read_enable:
            return MASTER_ID
        return group.which_broker_when_consume_slowly if far_behind else self.home(group.broker_id)

    def home(self, group_broker_id: int) -> int:
        """The broker id for a consumer that keeps up.

        A slave names its master while that is there, otherwise itself. So consumers of
        a slave that is held up or stopped go to the master.
        """
        if self.slave is None:
            return group_broker_id
        return MASTER_ID if self.master_is_there else self._core.config.current.broker_id

    @property
    def master_is_there(self) -> bool:
        """Whether a slave's master lives.

        The connection for replication tells; where there is none because of what this
        slave has in its log or on its disk, the master's answers tell.
        """
        slave, sync = self.slave, self.sync
        if slave is None or sync is None:
            return False
        return slave.is_connected or (slave.may_be_behind and sync.master_answers)

    async def serve(
        self, listeners: list[Any], task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """Serve slaves until cancelled."""
        assert self.master is not None
        await self.master.serve(listeners, task_status)

    async def run(self) -> None:
        """Follow the master and copy its tables; ends at once on a master."""
        if self.slave is None or self.sync is None:
            return
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.slave.run)
            nursery.start_soon(self.sync.run)

    def _status(self) -> Command:
        """GET_BROKER_HA_STATUS (907)."""
        return self._ha_status.answer(self.master, self.slave)


def _reset_master_flush_offset(_header: ResetMasterFlushOffsetHeader) -> Command:
    """RESET_MASTER_FLUSH_OFFSET (908): nothing to do on a master, as at Apache's.

    A slave there keeps the offset for the modes with a controller or an acting master,
    which are not kept here; this slave compares its log with the master's instead of
    believing a number.
    """
    return Command.response()
