"""Consumer groups: their configuration."""

from __future__ import annotations

import attrs

from rocketmq_sdk.constructors import explained
from rocketmq_sdk.protocol.bodies.topics import DataVersion
from rocketmq_sdk.protocol.body import EXTRA, Body
from rocketmq_sdk.protocol.header import Long
from rocketmq_sdk.protocol.limits import NOT_NEGATIVE, QUEUES, limited


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

    initial: Long = limited(NOT_NEGATIVE, 5000)
    max: Long = limited(NOT_NEGATIVE, 7_200_000)
    multiplier: Long = limited(NOT_NEGATIVE, 2)


@attrs.frozen
class CustomizedRetryPolicy(Body):
    """Waiting times as a list; milliseconds."""

    next: tuple[Long, ...] = ()


@attrs.frozen
class GroupRetryPolicy(Body):
    """How long a group's messages wait before they are delivered again.

    `type` is CUSTOMIZED or EXPONENTIAL.
    """

    type: str = "CUSTOMIZED"
    exponential_retry_policy: ExponentialRetryPolicy | None = None
    customized_retry_policy: CustomizedRetryPolicy | None = None


@explained
@attrs.frozen
class SubscriptionGroupConfig(Body):
    """A consumer group as a broker keeps it.

    Members that are unknown here are kept in `extra` and written again.
    """

    group_name: str
    consume_enable: bool = True
    consume_from_min_enable: bool = True
    consume_broadcast_enable: bool = True
    consume_message_orderly: bool = False
    retry_queue_nums: int = limited(QUEUES, 1)
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
    """A table of groups with its version.

    `forbidden_table` holds bits by group and topic.
    """

    subscription_group_table: dict[str, SubscriptionGroupConfig] = attrs.field(factory=dict)
    forbidden_table: dict[str, dict[str, int]] = attrs.field(factory=dict)
    data_version: DataVersion | None = None


@attrs.frozen
class SubscriptionGroupList(Body):
    """Body of UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST (225)."""

    group_config_list: tuple[SubscriptionGroupConfig, ...] = ()


@attrs.frozen
class GroupForbidden(Body):
    """Answer to UPDATE_AND_GET_GROUP_FORBIDDEN (353)."""

    group: str
    topic: str
    readable: bool | None = None
