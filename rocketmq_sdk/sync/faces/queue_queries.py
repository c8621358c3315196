"""`QueueQueries` for threads.

Written by `python -m tools.doors` from `rocketmq_sdk.consumer.lite_pull.queue_queries`;
that is the place for changes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rocketmq_sdk.model.enums import BoundaryType
from rocketmq_sdk.sync.life import Face

if TYPE_CHECKING:
    from datetime import datetime

    from rocketmq_sdk.consumer.lite_pull.queue_queries import QueueQueries as InnerQueueQueries
    from rocketmq_sdk.model.queue import MessageQueue


class QueueQueries(Face):
    """Queries to name servers and brokers.

    Each raises a `RocketMQError` when nobody can answer (`TopicNotFoundError` for an
    unknown topic).
    """

    _inner: InnerQueueQueries

    def message_queues(self, topic: str) -> list[MessageQueue]:
        """The readable queues of a topic, sorted."""
        return self._call(self._inner.message_queues, topic)

    def begin_offset(self, queue: MessageQueue) -> int:
        """The first offset that is still stored (31)."""
        return self._call(self._inner.begin_offset, queue)

    def end_offset(self, queue: MessageQueue) -> int:
        """The offset after the last message (30)."""
        return self._call(self._inner.end_offset, queue)

    def offset_for_timestamp(
        self,
        queue: MessageQueue,
        moment: datetime | int,
        *,
        boundary: BoundaryType = BoundaryType.LOWER,
    ) -> int:
        """The offset of the message stored at a moment, or next to it (29).

        `moment` is an aware datetime or epoch milliseconds; `boundary` chooses among
        equals.
        """
        return self._call(self._inner.offset_for_timestamp, queue, moment, boundary=boundary)

    def earliest_message_time(self, queue: MessageQueue) -> int | None:
        """When the first message was stored, in epoch milliseconds (32).

        None for an empty queue.
        """
        return self._call(self._inner.earliest_message_time, queue)

    def committed(self, queue: MessageQueue) -> int | None:
        """The offset that the group has committed at the broker (14), if any."""
        return self._call(self._inner.committed, queue)
