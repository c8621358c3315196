"""Requests to name servers: routes, topics, key-value configuration, permissions."""

from __future__ import annotations

import attrs

from rocketmq_sdk.protocol.header import Header, TopicRequestHeader
from rocketmq_sdk.protocol.limits import Length, limited


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


@attrs.define(kw_only=True)
class PutKVConfigRequestHeader(Header):
    """PUT_KV_CONFIG (100)."""

    namespace: str
    key: str
    value: str = limited(Length(64 * 1024))


@attrs.define(kw_only=True)
class GetKVConfigRequestHeader(Header):
    """GET_KV_CONFIG (101)."""

    namespace: str
    key: str


@attrs.define(kw_only=True)
class GetKVConfigResponseHeader(Header):
    """Answer to GET_KV_CONFIG."""

    value: str | None = None


@attrs.define(kw_only=True)
class DeleteKVConfigRequestHeader(Header):
    """DELETE_KV_CONFIG (102)."""

    namespace: str
    key: str


@attrs.define(kw_only=True)
class GetKVListByNamespaceRequestHeader(Header):
    """GET_KVLIST_BY_NAMESPACE (219)."""

    namespace: str
