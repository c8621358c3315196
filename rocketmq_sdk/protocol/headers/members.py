"""Members of groups: heartbeats, leaving, consumer lists, queue locks."""

from __future__ import annotations

import attrs

from rocketmq_sdk.protocol.header import WIRE, Header, RpcRequestHeader


@attrs.define(kw_only=True)
class HeartbeatRequestHeader(RpcRequestHeader):
    """HEART_BEAT (34): the body says it all."""


@attrs.define(kw_only=True)
class UnregisterClientRequestHeader(RpcRequestHeader):
    """UNREGISTER_CLIENT (35): a client leaves a producer or a consumer group."""

    client_id: str = attrs.field(metadata={WIRE: "clientID"})
    producer_group: str | None = None
    consumer_group: str | None = None


@attrs.define(kw_only=True)
class UnregisterClientResponseHeader(Header):
    """Answer to UNREGISTER_CLIENT, without fields."""


@attrs.define(kw_only=True)
class GetConsumerListByGroupRequestHeader(RpcRequestHeader):
    """GET_CONSUMER_LIST_BY_GROUP (38): client ids of the members."""

    consumer_group: str


@attrs.define(kw_only=True)
class GetConsumerListByGroupResponseHeader(Header):
    """Answer to GET_CONSUMER_LIST_BY_GROUP, without fields."""


@attrs.define(kw_only=True)
class NotifyConsumerIdsChangedRequestHeader(RpcRequestHeader):
    """NOTIFY_CONSUMER_IDS_CHANGED (40), broker to consumer: rebalance now."""

    consumer_group: str


@attrs.define(kw_only=True)
class LockBatchMqRequestHeader(RpcRequestHeader):
    """LOCK_BATCH_MQ (41): the body names the queues."""


@attrs.define(kw_only=True)
class UnlockBatchMqRequestHeader(RpcRequestHeader):
    """UNLOCK_BATCH_MQ (42): the body names the queues."""
