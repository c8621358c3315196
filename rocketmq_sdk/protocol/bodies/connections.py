"""Connected clients: their connections, what they consume, and what they report."""

from __future__ import annotations

from enum import Enum

import attrs

from rocketmq_sdk.codes import LanguageCode
from rocketmq_sdk.model.enums import ConsumeFrom, ConsumeType, MessageModel
from rocketmq_sdk.model.queue import MessageQueue
from rocketmq_sdk.protocol.body import Body
from rocketmq_sdk.protocol.header import WIRE, Long
from rocketmq_sdk.protocol.subscription import SubscriptionData


@attrs.frozen
class GroupList(Body):
    """A list of group names."""

    group_list: tuple[str, ...] = ()


@attrs.frozen
class ClientConnection(Body):
    """One connected client."""

    client_id: str
    client_addr: str
    language: LanguageCode = LanguageCode.JAVA
    version: int = 0


@attrs.frozen
class ConsumerConnection(Body):
    """Answer to GET_CONSUMER_CONNECTION_LIST (203)."""

    connection_set: tuple[ClientConnection, ...] = ()
    subscription_table: dict[str, SubscriptionData] = attrs.field(factory=dict)
    consume_type: ConsumeType | None = None
    message_model: MessageModel | None = None
    consume_from_where: ConsumeFrom | None = None


@attrs.frozen
class ProducerConnection(Body):
    """Answer to GET_PRODUCER_CONNECTION_LIST (204)."""

    connection_set: tuple[ClientConnection, ...] = ()


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
    """Answer to QUERY_SUBSCRIPTION_BY_CONSUMER (345).

    No subscription means that the group is offline.
    """

    group: str
    topic: str
    subscription_data: SubscriptionData | None = None


class ConsumeResult(Enum):
    """How a message that was handed to a listener directly was taken (`CMResult`)."""

    SUCCESS = "CR_SUCCESS"
    LATER = "CR_LATER"
    ROLLBACK = "CR_ROLLBACK"
    COMMIT = "CR_COMMIT"
    THROW_EXCEPTION = "CR_THROW_EXCEPTION"
    RETURN_NULL = "CR_RETURN_NULL"


@attrs.frozen
class ProcessQueueInfo(Body):
    """One queue of a consumer: what it holds, and when it was last used.

    Times are epoch milliseconds. `droped` is spelled as on the wire.
    """

    commit_offset: Long = 0
    cached_msg_min_offset: Long = 0
    cached_msg_max_offset: Long = 0
    cached_msg_count: int = 0
    cached_msg_size_in_mib: int = attrs.field(default=0, metadata={WIRE: "cachedMsgSizeInMiB"})
    transaction_msg_min_offset: Long = 0
    transaction_msg_max_offset: Long = 0
    transaction_msg_count: int = 0
    locked: bool = False
    try_unlock_times: Long = 0
    last_lock_timestamp: Long = 0
    droped: bool = False
    last_pull_timestamp: Long = 0
    last_consume_timestamp: Long = 0


@attrs.frozen
class PopProcessQueueInfo(Body):
    """One queue of a consumer that pops."""

    wait_ack_count: int = 0
    droped: bool = False
    last_pop_timestamp: Long = 0


@attrs.frozen
class ConsumeStatus(Body):
    """Rates of one topic: milliseconds per pull and consumption, per second."""

    pull_rt: float = attrs.field(default=0.0, metadata={WIRE: "pullRT"})
    pull_tps: float = attrs.field(default=0.0, metadata={WIRE: "pullTPS"})
    consume_rt: float = attrs.field(default=0.0, metadata={WIRE: "consumeRT"})
    consume_ok_tps: float = attrs.field(default=0.0, metadata={WIRE: "consumeOKTPS"})
    consume_failed_tps: float = attrs.field(default=0.0, metadata={WIRE: "consumeFailedTPS"})
    consume_failed_msgs: Long = 0


@attrs.frozen
class ConsumerRunningInfo(Body):
    """Answer to GET_CONSUMER_RUNNING_INFO (307)."""

    properties: dict[str, str] = attrs.field(factory=dict)
    subscription_set: tuple[SubscriptionData, ...] = ()
    mq_table: dict[MessageQueue, ProcessQueueInfo] = attrs.field(factory=dict)
    mq_pop_table: dict[MessageQueue, PopProcessQueueInfo] = attrs.field(factory=dict)
    status_table: dict[str, ConsumeStatus] = attrs.field(factory=dict)
    user_consumer_info: dict[str, str] = attrs.field(factory=dict)
    jstack: str | None = None


@attrs.frozen
class ConsumeMessageDirectlyResult(Body):
    """Answer to CONSUME_MESSAGE_DIRECTLY (309).

    `spent_time_mills` is spelled as on the wire.
    """

    order: bool = False
    auto_commit: bool = True
    consume_result: ConsumeResult | None = None
    remark: str | None = None
    spent_time_mills: Long = 0
