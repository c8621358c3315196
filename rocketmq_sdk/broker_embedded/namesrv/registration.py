"""A broker's registration and its result, without commands and bytes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import attrs

from rocketmq_sdk.protocol.bodies.topics import DataVersion, TopicConfig

DEFAULT_HEARTBEAT_TIMEOUT_MS: Final = 120_000
OWN_BROKER: Final = "own-broker"
"""Registered as address by the broker in this process.

Clients are then told the host that they dialled.
"""
NEVER_MS: Final = 1 << 62
"""A heartbeat timeout that never ends, for the broker in this process.

It lives as long as the name server.
"""

ZONE_NAME: Final = "__ZONE_NAME"
"""The ext field with the zone of a broker, or of a client that asks for routes."""


@attrs.frozen(slots=True)
class BrokerKey:
    """Which live broker: several clusters may hold the same address."""

    cluster: str
    address: str


@attrs.frozen(slots=True, kw_only=True)
class BrokerRegistration:
    """One REGISTER_BROKER.

    The end of the connection `channel_id` unregisters the broker; None where there is
    none.
    """

    cluster: str
    address: str
    broker_name: str
    broker_id: int = 0
    ha_server_address: str = ""
    heartbeat_timeout_ms: int = DEFAULT_HEARTBEAT_TIMEOUT_MS
    enable_acting_master: bool = False
    zone_name: str | None = None
    topics: Mapping[str, TopicConfig] = attrs.field(factory=dict)
    data_version: DataVersion = attrs.field(factory=DataVersion)
    filter_servers: tuple[str, ...] | None = None
    channel_id: int | None = None

    @property
    def key(self) -> BrokerKey:
        """Which live broker this is."""
        return BrokerKey(self.cluster, self.address)


@attrs.frozen(slots=True)
class RegistrationResult:
    """Where a replica finds its master; empty for masters."""

    master_address: str | None = None
    ha_server_address: str | None = None
