"""Clients and their brokers: heartbeats, membership, queue locks, inspection of
consumers.
"""

from __future__ import annotations

import attrs

from rocketmq_sdk.protocol.header import WIRE, Header, RpcRequestHeader, TopicRequestHeader


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


@attrs.define(kw_only=True)
class GetConsumerRunningInfoRequestHeader(RpcRequestHeader):
    """GET_CONSUMER_RUNNING_INFO (307), admin to broker to consumer."""

    consumer_group: str
    client_id: str
    jstack_enable: bool = False


@attrs.define(kw_only=True)
class ConsumeMessageDirectlyResultRequestHeader(TopicRequestHeader):
    """CONSUME_MESSAGE_DIRECTLY (309), admin to broker to consumer: consume this message
    now.
    """

    consumer_group: str
    client_id: str | None = None
    msg_id: str | None = None
    broker_name: str | None = None
    topic: str | None = None
    topic_sys_flag: int | None = None
    group_sys_flag: int | None = None
