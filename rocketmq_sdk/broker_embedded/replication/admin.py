"""How replication goes: GET_BROKER_HA_STATUS (907) and RESET_MASTER_FLUSH_OFFSET
(908).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rocketmq_sdk.broker_embedded.handlers import Serve, bind_all
from rocketmq_sdk.codes import RequestCode
from rocketmq_sdk.protocol.bodies.replication import (
    HAClientRuntimeInfo,
    HAConnectionRuntimeInfo,
    HARuntimeInfo,
)
from rocketmq_sdk.protocol.command import Command
from rocketmq_sdk.protocol.headers.replication import ResetMasterFlushOffsetHeader

if TYPE_CHECKING:
    from rocketmq_sdk.broker_embedded.core import BrokerContext
    from rocketmq_sdk.broker_embedded.store.append.replicas import Replica
    from rocketmq_sdk.remoting.channel import Handler


class HaStatus:
    """Answers what a master knows of its slaves and a slave of its master. Speeds are
    those between two looks.
    """

    __slots__ = ("_looks",)

    def __init__(self) -> None:
        self._looks: dict[object, tuple[float, int]] = {}

    def serve(self, context: BrokerContext, _command: Command) -> Command:
        """GET_BROKER_HA_STATUS (907)."""
        replication = context.replication
        end = context.store.max_physical_offset
        client = HAClientRuntimeInfo()
        connections: tuple[HAConnectionRuntimeInfo, ...] = ()
        in_sync = 0
        now = context.clock.monotonic()
        if replication.master is not None:
            replicas = replication.master.replicas
            connected = replicas.connected
            self._looks = {key: look for key, look in self._looks.items() if key in connected}
            connections = tuple(
                self._connection(replica, end, now, replicas.rules.max_gap) for replica in connected
            )
            in_sync = sum(1 for connection in connections if connection.in_sync)
        slave = replication.slave
        if slave is not None:
            speed = self._speed(slave, now, slave.transferred)
            client = HAClientRuntimeInfo(
                slave.master_address,
                speed,
                end,
                slave.last_read_ms,
                slave.last_write_ms,
                max(0, slave.master_position),
            )
        return Command.response(
            body=HARuntimeInfo(not replication.is_slave, end, in_sync, connections, client).encode()
        )

    def _connection(
        self, replica: Replica, end: int, now: float, max_gap: int
    ) -> HAConnectionRuntimeInfo:
        behind = end - max(0, replica.acknowledged)
        speed = self._speed(replica, now, replica.transferred)
        in_sync = replica.acknowledged >= 0 and behind < max_gap
        return HAConnectionRuntimeInfo(
            replica.address, replica.acknowledged, behind, in_sync, speed, replica.sent
        )

    def _speed(self, key: object, now: float, total: int) -> int:
        """Bytes per second since the last look at the same thing; 0 at the first."""
        since, before = self._looks.get(key, (now, total))
        self._looks[key] = (now, total)
        return int((total - before) / (now - since)) if now > since else 0


def reset_master_flush_offset(_context: BrokerContext, command: Command) -> Command:
    """RESET_MASTER_FLUSH_OFFSET (908): nothing to do on a master, as at Apache's.

    A slave there keeps the offset for the modes with a controller or an acting master,
    which are not kept here; this slave compares its log with the master's instead of
    believing a number.
    """
    ResetMasterFlushOffsetHeader.from_ext(command.ext_fields)
    return Command.response()


def handlers(context: BrokerContext) -> dict[int, Handler]:
    """The handlers by request code."""
    served: dict[RequestCode, Serve] = {
        RequestCode.GET_BROKER_HA_STATUS: HaStatus().serve,
        RequestCode.RESET_MASTER_FLUSH_OFFSET: reset_master_flush_offset,
    }
    return bind_all(context, served)
