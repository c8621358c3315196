"""Brokers that register at name servers."""

from __future__ import annotations

import attrs

from rocketmq_sdk.protocol.header import Header, Long
from rocketmq_sdk.protocol.limits import NOT_NEGATIVE, limited


@attrs.define(kw_only=True)
class RegisterBrokerRequestHeader(Header):
    """REGISTER_BROKER (103): a body CRC of 0 is not checked."""

    broker_name: str
    broker_addr: str
    cluster_name: str
    ha_server_addr: str
    broker_id: Long = limited(NOT_NEGATIVE)
    heartbeat_timeout_millis: Long | None = limited(NOT_NEGATIVE, None)
    enable_acting_master: bool | None = None
    compressed: bool = False
    body_crc32: int = 0


@attrs.define(kw_only=True)
class RegisterBrokerResponseHeader(Header):
    """Answer to REGISTER_BROKER: addresses of the master, for slaves."""

    ha_server_addr: str | None = None
    master_addr: str | None = None


@attrs.define(kw_only=True)
class UnRegisterBrokerRequestHeader(Header):
    """UNREGISTER_BROKER (104)."""

    broker_name: str
    broker_addr: str
    cluster_name: str
    broker_id: Long = limited(NOT_NEGATIVE)


@attrs.define(kw_only=True)
class BrokerHeartbeatRequestHeader(Header):
    """BROKER_HEARTBEAT (904): the broker is alive."""

    cluster_name: str
    broker_addr: str
    broker_name: str
    broker_id: Long | None = limited(NOT_NEGATIVE, None)
    epoch: int | None = None
    max_offset: Long | None = None
    confirm_offset: Long | None = None
    heartbeat_timeout_mills: Long | None = limited(NOT_NEGATIVE, None)
    election_priority: int | None = None


@attrs.define(kw_only=True)
class QueryDataVersionRequestHeader(Header):
    """QUERY_DATA_VERSION (322): has the topic table of the body's version changed?"""

    broker_name: str
    broker_addr: str
    cluster_name: str
    broker_id: Long = limited(NOT_NEGATIVE)


@attrs.define(kw_only=True)
class QueryDataVersionResponseHeader(Header):
    """Answer to QUERY_DATA_VERSION."""

    changed: bool


@attrs.define(kw_only=True)
class GetBrokerMemberGroupRequestHeader(Header):
    """GET_BROKER_MEMBER_GROUP (901)."""

    cluster_name: str
    broker_name: str


@attrs.define(kw_only=True)
class NotifyMinBrokerIdChangeRequestHeader(Header):
    """NOTIFY_MIN_BROKER_ID_CHANGE (905), name server to broker."""

    min_broker_id: Long | None = None
    broker_name: str | None = None
    min_broker_addr: str | None = None
    offline_broker_addr: str | None = None
    ha_broker_addr: str | None = None
