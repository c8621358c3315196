"""Locks of queues for orderly consumers: LOCK_BATCH_MQ (41), UNLOCK_BATCH_MQ (42)
(`AdminBrokerProcessor`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rocketmq_sdk.codes import RequestCode
from rocketmq_sdk.protocol.bodies.members import (
    LockBatchRequestBody,
    LockBatchResponseBody,
    UnlockBatchRequestBody,
)
from rocketmq_sdk.protocol.command import Command

if TYPE_CHECKING:
    from rocketmq_sdk.broker_embedded.core import BrokerContext
    from rocketmq_sdk.remoting.channel import Channel, Handler


def handlers(context: BrokerContext) -> dict[int, Handler]:
    """The table of this module."""

    def lock(_channel: Channel, request: Command) -> Command:
        body = LockBatchRequestBody.decode(request.body)
        owned = context.locks.lock(body.consumer_group, body.mq_set, body.client_id)
        return Command.response(body=LockBatchResponseBody(tuple(owned)).encode())

    def unlock(_channel: Channel, request: Command) -> Command:
        body = UnlockBatchRequestBody.decode(request.body)
        context.locks.unlock(body.consumer_group, body.mq_set, body.client_id)
        return Command.response()

    return {RequestCode.LOCK_BATCH_MQ: lock, RequestCode.UNLOCK_BATCH_MQ: unlock}
