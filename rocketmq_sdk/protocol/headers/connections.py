"""Connected clients: their connections, what they consume, and what they report."""

from __future__ import annotations

import attrs

from rocketmq_sdk.protocol.header import Header, RpcRequestHeader, TopicRequestHeader


@attrs.define(kw_only=True)
class GetConsumerRunningInfoRequestHeader(RpcRequestHeader):
    """GET_CONSUMER_RUNNING_INFO (307), admin to broker to consumer."""

    consumer_group: str
    client_id: str
    jstack_enable: bool = False


@attrs.define(kw_only=True)
class ConsumeMessageDirectlyResultRequestHeader(TopicRequestHeader):
    """CONSUME_MESSAGE_DIRECTLY (309), from an administrator by way of the broker.

    The consumer is to consume this message now.
    """

    consumer_group: str
    client_id: str | None = None
    msg_id: str | None = None
    broker_name: str | None = None
    topic: str | None = None
    topic_sys_flag: int | None = None
    group_sys_flag: int | None = None


@attrs.define(kw_only=True)
class GetConsumerConnectionListRequestHeader(RpcRequestHeader):
    """GET_CONSUMER_CONNECTION_LIST (203)."""

    consumer_group: str


@attrs.define(kw_only=True)
class GetProducerConnectionListRequestHeader(RpcRequestHeader):
    """GET_PRODUCER_CONNECTION_LIST (204)."""

    producer_group: str


@attrs.define(kw_only=True)
class GetAllProducerInfoRequestHeader(Header):
    """GET_ALL_PRODUCER_INFO (328), without fields."""


@attrs.define(kw_only=True)
class QueryTopicsByConsumerRequestHeader(RpcRequestHeader):
    """QUERY_TOPICS_BY_CONSUMER (343)."""

    group: str


@attrs.define(kw_only=True)
class QuerySubscriptionByConsumerRequestHeader(TopicRequestHeader):
    """QUERY_SUBSCRIPTION_BY_CONSUMER (345)."""

    group: str
    topic: str | None = None


@attrs.define(kw_only=True)
class QueryTopicConsumeByWhoRequestHeader(TopicRequestHeader):
    """QUERY_TOPIC_CONSUME_BY_WHO (300): which groups consume a topic?"""

    topic: str
