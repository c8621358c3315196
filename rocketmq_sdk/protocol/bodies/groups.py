"""Consumer groups: their configuration, their members, who is connected."""

from __future__ import annotations

import attrs

from rocketmq_sdk.codes import LanguageCode
from rocketmq_sdk.model.enums import ConsumeFrom, ConsumeType, MessageModel
from rocketmq_sdk.protocol.bodies.topics import DataVersion
from rocketmq_sdk.protocol.body import EXTRA, Body
from rocketmq_sdk.protocol.header import WIRE, Long
from rocketmq_sdk.protocol.subscription import SubscriptionData


@attrs.frozen
class SimpleSubscriptionData(Body):
    """A subscription that belongs to a group's configuration."""

    topic: str
    expression_type: str | None = None
    expression: str | None = None
    version: Long = 0


@attrs.frozen
class ExponentialRetryPolicy(Body):
    """Waiting times that grow; milliseconds."""

    initial: Long = 5000
    max: Long = 7_200_000
    multiplier: Long = 2


@attrs.frozen
class CustomizedRetryPolicy(Body):
    """Waiting times as a list; milliseconds."""

    next: tuple[Long, ...] = ()


@attrs.frozen
class GroupRetryPolicy(Body):
    """How long a group's messages wait before they are delivered again; `type` is
    CUSTOMIZED or EXPONENTIAL.
    """

    type: str = "CUSTOMIZED"
    exponential_retry_policy: ExponentialRetryPolicy | None = None
    customized_retry_policy: CustomizedRetryPolicy | None = None


@attrs.frozen
class SubscriptionGroupConfig(Body):
    """A consumer group as a broker keeps it. Members that are unknown here are kept in
    `extra` and written again.
    """

    group_name: str
    consume_enable: bool = True
    consume_from_min_enable: bool = True
    consume_broadcast_enable: bool = True
    consume_message_orderly: bool = False
    retry_queue_nums: int = 1
    retry_max_times: int = 16
    group_retry_policy: GroupRetryPolicy = attrs.field(factory=GroupRetryPolicy)
    broker_id: Long = 0
    which_broker_when_consume_slowly: Long = 1
    notify_consumer_ids_changed_enable: bool = True
    group_sys_flag: int = 0
    consume_timeout_minute: int = 15
    subscription_data_set: tuple[SimpleSubscriptionData, ...] | None = None
    attributes: dict[str, str] = attrs.field(factory=dict)
    extra: dict[str, object] = attrs.field(factory=dict, metadata={EXTRA: True})


@attrs.frozen
class SubscriptionGroupWrapper(Body):
    """A table of groups with its version; `forbidden_table` holds bits by group and
    topic.
    """

    subscription_group_table: dict[str, SubscriptionGroupConfig] = attrs.field(factory=dict)
    forbidden_table: dict[str, dict[str, int]] = attrs.field(factory=dict)
    data_version: DataVersion | None = None


@attrs.frozen
class SubscriptionGroupList(Body):
    """Body of UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST (225)."""

    group_config_list: tuple[SubscriptionGroupConfig, ...] = ()


@attrs.frozen
class GroupList(Body):
    """A list of group names."""

    group_list: tuple[str, ...] = ()


@attrs.frozen
class ConsumerList(Body):
    """Answer to GET_CONSUMER_LIST_BY_GROUP (38): client ids."""

    consumer_id_list: tuple[str, ...] = ()


@attrs.frozen
class GroupForbidden(Body):
    """Answer to UPDATE_AND_GET_GROUP_FORBIDDEN (353)."""

    group: str
    topic: str
    readable: bool | None = None


@attrs.frozen
class Connection(Body):
    """One connected client."""

    client_id: str
    client_addr: str
    language: LanguageCode = LanguageCode.JAVA
    version: int = 0


@attrs.frozen
class ConsumerConnection(Body):
    """Answer to GET_CONSUMER_CONNECTION_LIST (203)."""

    connection_set: tuple[Connection, ...] = ()
    subscription_table: dict[str, SubscriptionData] = attrs.field(factory=dict)
    consume_type: ConsumeType | None = None
    message_model: MessageModel | None = None
    consume_from_where: ConsumeFrom | None = None


@attrs.frozen
class ProducerConnection(Body):
    """Answer to GET_PRODUCER_CONNECTION_LIST (204)."""

    connection_set: tuple[Connection, ...] = ()


@attrs.frozen
class ProducerInfo(Body):
    """One connected producer."""

    client_id: str
    remote_ip: str = attrs.field(metadata={WIRE: "remoteIP"})
    language: LanguageCode = LanguageCode.JAVA
    version: int = 0
    last_update_timestamp: Long = 0


@attrs.frozen
class ProducerTableInfo(Body):
    """Answer to GET_ALL_PRODUCER_INFO (328): producers by group."""

    data: dict[str, tuple[ProducerInfo, ...]] = attrs.field(factory=dict)


@attrs.frozen
class QuerySubscriptionResponseBody(Body):
    """Answer to QUERY_SUBSCRIPTION_BY_CONSUMER (345); no subscription means that the
    group is offline.
    """

    group: str
    topic: str
    subscription_data: SubscriptionData | None = None
