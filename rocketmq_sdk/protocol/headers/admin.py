"""Operation of a broker: configuration, containers, RocksDB."""

from __future__ import annotations

import attrs

from rocketmq_sdk.protocol.header import Header, Long


@attrs.define(kw_only=True)
class GetBrokerConfigResponseHeader(Header):
    """Answer to GET_BROKER_CONFIG (26): `version` is a data version as JSON."""

    version: str


@attrs.define(kw_only=True)
class AddBrokerRequestHeader(Header):
    """ADD_BROKER (902), to a broker container."""

    config_path: str | None = None


@attrs.define(kw_only=True)
class RemoveBrokerRequestHeader(Header):
    """REMOVE_BROKER (903), to a broker container."""

    broker_name: str
    broker_cluster_name: str
    broker_id: Long


@attrs.define(kw_only=True)
class CheckRocksdbCqWriteProgressRequestHeader(Header):
    """CHECK_ROCKSDB_CQ_WRITE_PROGRESS (354)."""

    topic: str
    check_store_time: Long = 0


@attrs.define(kw_only=True)
class ExportRocksDBConfigToJsonRequestHeader(Header):
    """EXPORT_ROCKSDB_CONFIG_TO_JSON (355)."""

    config_type: str
