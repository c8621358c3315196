"""How replication goes, as masters and slaves tell it."""

from __future__ import annotations

import attrs

from rocketmq_sdk.protocol.body import Body
from rocketmq_sdk.protocol.header import Long


@attrs.frozen
class HAConnectionRuntimeInfo(Body):
    """One slave of a master.

    How far it is, how many bytes it is behind, whether it counts as in sync, and the
    bytes per second sent to it.
    """

    addr: str | None = None
    slave_ack_offset: Long = 0
    diff: Long = 0
    in_sync: bool = False
    transferred_byte_in_second: Long = 0
    transfer_from_where: Long = 0


@attrs.frozen
class HAClientRuntimeInfo(Body):
    """A slave's own side. Times are epoch milliseconds."""

    master_addr: str | None = None
    transferred_byte_in_second: Long = 0
    max_offset: Long = 0
    last_read_timestamp: Long = 0
    last_write_timestamp: Long = 0
    master_flush_offset: Long = 0


@attrs.frozen
class HARuntimeInfo(Body):
    """Answer to GET_BROKER_HA_STATUS (907)."""

    master: bool = False
    master_commit_log_max_offset: Long = 0
    in_sync_slave_nums: int = 0
    ha_connection_info: tuple[HAConnectionRuntimeInfo, ...] = ()
    ha_client_runtime_info: HAClientRuntimeInfo | None = None
