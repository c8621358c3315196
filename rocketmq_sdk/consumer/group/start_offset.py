"""Where the consumption of a queue begins.

Follows `RebalancePushImpl.computePullFromWhereWithException` of Apache RocketMQ 5.4.0.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rocketmq_sdk.client.api.offsets import max_offset, search_offset
from rocketmq_sdk.model.enums import ConsumeFrom
from rocketmq_sdk.names import RETRY_PREFIX

if TYPE_CHECKING:
    from rocketmq_sdk.client.api.caller import Caller
    from rocketmq_sdk.consumer.offsets.store import OffsetStore
    from rocketmq_sdk.model.queue import MessageQueue

DEFAULT_LOOK_BACK_MS: Final = 30 * 60 * 1000


class StartOffsets:
    """Computes the first offsets of one consumer.

    `timestamp` is used with `ConsumeFrom.TIMESTAMP`, in epoch milliseconds.
    """

    def __init__(
        self, client: Caller, offsets: OffsetStore, consume_from: ConsumeFrom, timestamp: int
    ) -> None:
        self._client = client
        self._offsets = offsets
        self._consume_from = consume_from
        self._timestamp = timestamp

    async def first_offset(self, queue: MessageQueue) -> int:
        """The committed offset, or what the settings say when there is none.

        Raises `RocketMQError` when the broker cannot be asked; the queue must not be
        taken then.
        """
        stored = await self._offsets.read(queue)
        if stored is not None:
            return stored
        is_retry = queue.topic.startswith(RETRY_PREFIX)
        if self._consume_from is ConsumeFrom.FIRST_OFFSET:
            return 0
        if self._consume_from is ConsumeFrom.TIMESTAMP:
            if is_retry:
                return await self._end(queue)
            return await search_offset(
                self._client, queue.broker_name, queue.topic, queue.queue_id, self._timestamp
            )
        return 0 if is_retry else await self._last_offset(queue)

    async def _last_offset(self, queue: MessageQueue) -> int:
        # A broker answers 0 for a queue that is still young, but "none" for an empty
        # one. A message that arrives between that answer and the next question would
        # turn the end of an empty queue into an offset after the message, so a queue
        # that is not empty is asked about again.
        end = await self._end(queue)
        if end > 0:
            stored = await self._offsets.read(queue)
            if stored is not None:
                return stored
        return end

    async def _end(self, queue: MessageQueue) -> int:
        return await max_offset(self._client, queue.broker_name, queue.topic, queue.queue_id)
