"""Requests to name servers: routes, topics, permissions."""

from __future__ import annotations

import attrs

from rocketmq_sdk.protocol.header import Header, TopicRequestHeader


@attrs.define(kw_only=True)
class GetRouteInfoRequestHeader(TopicRequestHeader):
    """GET_ROUTEINFO_BY_TOPIC (105). A missing topic is answered like a blank one."""

    topic: str = ""
    accept_standard_json_only: bool | None = None


@attrs.define(kw_only=True)
class RegisterTopicRequestHeader(TopicRequestHeader):
    """REGISTER_TOPIC_IN_NAMESRV (217)."""

    topic: str


@attrs.define(kw_only=True)
class RegisterOrderTopicRequestHeader(Header):
    """Legacy registration of an order topic."""

    topic: str
    order_topic_string: str


@attrs.define(kw_only=True)
class DeleteTopicFromNamesrvRequestHeader(TopicRequestHeader):
    """DELETE_TOPIC_IN_NAMESRV (216): of one cluster, or everywhere."""

    topic: str
    cluster_name: str | None = None


@attrs.define(kw_only=True)
class GetTopicsByClusterRequestHeader(Header):
    """GET_TOPICS_BY_CLUSTER (224)."""

    cluster: str


@attrs.define(kw_only=True)
class WipeWritePermOfBrokerRequestHeader(Header):
    """WIPE_WRITE_PERM_OF_BROKER (205): nobody sends to this broker any more."""

    broker_name: str


@attrs.define(kw_only=True)
class WipeWritePermOfBrokerResponseHeader(Header):
    """Answer to WIPE_WRITE_PERM_OF_BROKER."""

    wipe_topic_count: int


@attrs.define(kw_only=True)
class AddWritePermOfBrokerRequestHeader(Header):
    """ADD_WRITE_PERM_OF_BROKER (327)."""

    broker_name: str


@attrs.define(kw_only=True)
class AddWritePermOfBrokerResponseHeader(Header):
    """Answer to ADD_WRITE_PERM_OF_BROKER."""

    add_topic_count: int
