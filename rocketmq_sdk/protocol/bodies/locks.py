"""Locks of queues for orderly consumption."""

from __future__ import annotations

import attrs

from rocketmq_sdk.model.queue import MessageQueue
from rocketmq_sdk.protocol.body import Body
from rocketmq_sdk.protocol.header import WIRE


@attrs.frozen
class LockBatchRequestBody(Body):
    """Body of LOCK_BATCH_MQ (41)."""

    consumer_group: str
    client_id: str
    mq_set: tuple[MessageQueue, ...] = ()
    only_this_broker: bool = False


@attrs.frozen
class UnlockBatchRequestBody(Body):
    """Body of UNLOCK_BATCH_MQ (42)."""

    consumer_group: str
    client_id: str
    mq_set: tuple[MessageQueue, ...] = ()
    only_this_broker: bool = False


@attrs.frozen
class LockBatchResponseBody(Body):
    """Answer to LOCK_BATCH_MQ: the queues that are locked now for the asking client."""

    lock_ok_mq_set: tuple[MessageQueue, ...] = attrs.field(
        default=(), metadata={WIRE: "lockOKMQSet"}
    )
