"""Requests of the name server: routes, registration, key-value configuration, write
permissions.
"""

from __future__ import annotations

import attrs

from rocketmq_sdk.protocol.header import Header, Long, TopicRequestHeader


@attrs.define(kw_only=True)
class GetRouteInfoRequestHeader(TopicRequestHeader):
    """GET_ROUTEINFO_BY_TOPIC (105). A missing topic is answered like a blank one."""

    topic: str = ""
    accept_standard_json_only: bool | None = None


@attrs.define(kw_only=True)
class RegisterBrokerRequestHeader(Header):
    """REGISTER_BROKER (103): a body CRC of 0 is not checked."""

    broker_name: str
    broker_addr: str
    cluster_name: str
    ha_server_addr: str
    broker_id: Long
    heartbeat_timeout_millis: Long | None = None
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
    broker_id: Long


@attrs.define(kw_only=True)
class BrokerHeartbeatRequestHeader(Header):
    """BROKER_HEARTBEAT (904): the broker is alive."""

    cluster_name: str
    broker_addr: str
    broker_name: str
    broker_id: Long | None = None
    epoch: int | None = None
    max_offset: Long | None = None
    confirm_offset: Long | None = None
    heartbeat_timeout_mills: Long | None = None
    election_priority: int | None = None


@attrs.define(kw_only=True)
class QueryDataVersionRequestHeader(Header):
    """QUERY_DATA_VERSION (322): has the topic table of the body's version changed?"""

    broker_name: str
    broker_addr: str
    cluster_name: str
    broker_id: Long


@attrs.define(kw_only=True)
class QueryDataVersionResponseHeader(Header):
    """Answer to QUERY_DATA_VERSION."""

    changed: bool


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
class GetBrokerMemberGroupRequestHeader(Header):
    """GET_BROKER_MEMBER_GROUP (901)."""

    cluster_name: str
    broker_name: str


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
    value: str


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


@attrs.define(kw_only=True)
class NotifyMinBrokerIdChangeRequestHeader(Header):
    """NOTIFY_MIN_BROKER_ID_CHANGE (905), name server to broker."""

    min_broker_id: Long | None = None
    broker_name: str | None = None
    min_broker_addr: str | None = None
    offline_broker_addr: str | None = None
    ha_broker_addr: str | None = None
