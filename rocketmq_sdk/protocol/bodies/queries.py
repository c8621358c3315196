"""Units of consume queues as an administrator sees them."""

from __future__ import annotations

import attrs

from rocketmq_sdk.protocol.body import Body
from rocketmq_sdk.protocol.header import Long
from rocketmq_sdk.protocol.subscription import SubscriptionData


@attrs.frozen
class ConsumeQueueData(Body):
    """One unit of a consume queue.

    Place and size of the record, tags code, and whether the group's filter takes it.
    """

    physic_offset: Long = 0
    physic_size: int = 0
    tags_code: Long = 0
    extend_data_json: str | None = None
    bit_map: str | None = None
    eval: bool = False
    msg: str | None = None


@attrs.frozen
class QueryConsumeQueueResponseBody(Body):
    """Answer to QUERY_CONSUME_QUEUE (321)."""

    subscription_data: SubscriptionData | None = None
    filter_data: str | None = None
    queue_data: tuple[ConsumeQueueData, ...] | None = None
    max_queue_index: Long = 0
    min_queue_index: Long = 0
