"""Queue locks of orderly consumers: LOCK_BATCH_MQ (41), UNLOCK_BATCH_MQ (42)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rocketmq_sdk.protocol.bodies.members import (
    LockBatchRequestBody,
    LockBatchResponseBody,
    UnlockBatchRequestBody,
)
from rocketmq_sdk.protocol.command import Command

if TYPE_CHECKING:
    from rocketmq_sdk.broker_embedded.members.queue_locks import QueueLocks


class LockProcessor:
    """Locks queues for members, and unlocks them."""

    def __init__(self, locks: QueueLocks) -> None:
        self._locks = locks

    def lock(self, body: LockBatchRequestBody) -> Command:
        """LOCK_BATCH_MQ: the queues that the member holds now."""
        owned = self._locks.lock(body.consumer_group, body.mq_set, body.client_id)
        return Command.response(body=LockBatchResponseBody(tuple(owned)).encode())

    def unlock(self, body: UnlockBatchRequestBody) -> Command:
        """UNLOCK_BATCH_MQ: release a member's queue locks."""
        self._locks.unlock(body.consumer_group, body.mq_set, body.client_id)
        return Command.response()
