"""Replication between master and slave."""

from __future__ import annotations

import attrs

from rocketmq_sdk.protocol.header import Header, Long


@attrs.define(kw_only=True)
class ExchangeHAInfoRequestHeader(Header):
    """EXCHANGE_BROKER_HA_INFO (906)."""

    master_ha_address: str | None = None
    master_flush_offset: Long | None = None
    master_address: str | None = None


@attrs.define(kw_only=True)
class ExchangeHAInfoResponseHeader(Header):
    """Answer to EXCHANGE_BROKER_HA_INFO."""

    master_ha_address: str | None = None
    master_flush_offset: Long | None = None
    master_address: str | None = None


@attrs.define(kw_only=True)
class ResetMasterFlushOffsetHeader(Header):
    """RESET_MASTER_FLUSH_OFFSET (908)."""

    master_flush_offset: Long
