"""What a consumer tells about itself when it is asked."""

from __future__ import annotations

from enum import Enum

import attrs

from rocketmq_sdk.model.queue import MessageQueue
from rocketmq_sdk.protocol.body import Body
from rocketmq_sdk.protocol.header import WIRE, Long
from rocketmq_sdk.protocol.subscription import SubscriptionData


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
    """One queue of a consumer: what it holds and when it last did what (epoch
    milliseconds). `droped` is spelled as on the wire.
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
    """Answer to CONSUME_MESSAGE_DIRECTLY (309). `spent_time_mills` is spelled as on the
    wire.
    """

    order: bool = False
    auto_commit: bool = True
    consume_result: ConsumeResult | None = None
    remark: str | None = None
    spent_time_mills: Long = 0
