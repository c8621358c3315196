"""How replication goes, as GET_BROKER_HA_STATUS (907) tells it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rocketmq_sdk.protocol.bodies.replication import (
    HAClientRuntimeInfo,
    HAConnectionRuntimeInfo,
    HARuntimeInfo,
)
from rocketmq_sdk.protocol.command import Command

if TYPE_CHECKING:
    from rocketmq_sdk.broker_embedded.core import Core
    from rocketmq_sdk.broker_embedded.replication.master import Master
    from rocketmq_sdk.broker_embedded.replication.slave import Slave
    from rocketmq_sdk.broker_embedded.store.append.replicas import Replica


class HaStatus:
    """Reports a master's slaves, or a slave's master.

    Speeds are averages since the last call.
    """

    __slots__ = ("_core", "_looks")

    def __init__(self, core: Core) -> None:
        self._core = core
        self._looks: dict[object, tuple[float, int]] = {}

    def answer(self, master: Master | None, slave: Slave | None) -> Command:
        """The answer of a broker that is master or slave."""
        core = self._core
        end = core.store.max_physical_offset
        client = HAClientRuntimeInfo()
        connections: tuple[HAConnectionRuntimeInfo, ...] = ()
        in_sync = 0
        now = core.clock.monotonic()
        if master is not None:
            replicas = master.replicas
            connected = replicas.connected
            self._looks = {key: look for key, look in self._looks.items() if key in connected}
            connections = tuple(
                self._connection(replica, end, now, replicas.rules.max_gap) for replica in connected
            )
            in_sync = sum(1 for connection in connections if connection.in_sync)
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
            body=HARuntimeInfo(slave is None, end, in_sync, connections, client).encode()
        )

    def _connection(
        self, replica: Replica, end: int, now: float, max_gap: int
    ) -> HAConnectionRuntimeInfo:
        behind = end - max(0, replica.position)
        speed = self._speed(replica, now, replica.transferred)
        in_sync = replica.position >= 0 and behind < max_gap
        return HAConnectionRuntimeInfo(
            replica.address, replica.position, behind, in_sync, speed, replica.sent
        )

    def _speed(self, key: object, now: float, total: int) -> int:
        """Bytes per second since the last look at the same thing; 0 at the first."""
        since, before = self._looks.get(key, (now, total))
        self._looks[key] = (now, total)
        return int((total - before) / (now - since)) if now > since else 0
