"""What a consumer can ask about queues: their bounds and the group's offsets."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING

from rocketmq_sdk.client.api.offsets import (
    earliest_store_time,
    max_offset,
    min_offset,
    search_offset,
)
from rocketmq_sdk.client.arguments import checked
from rocketmq_sdk.model.enums import BoundaryType
from rocketmq_sdk.model.message_arguments import epoch_milliseconds

if TYPE_CHECKING:
    from datetime import datetime

    from rocketmq_sdk.client.runtime import Client
    from rocketmq_sdk.consumer.offsets.remote import RemoteOffsets
    from rocketmq_sdk.model.queue import MessageQueue


class QueueQueries:
    """Queries to name servers and brokers.

    Each raises a `RocketMQError` when nobody can answer (`TopicNotFoundError` for an
    unknown topic).
    """

    _client: Client
    _offsets: RemoteOffsets

    @abstractmethod
    def _check_running(self) -> None:
        """Raise `ClosedError` outside of the block, `WrongRunError` in another run."""

    @checked
    async def message_queues(self, topic: str) -> list[MessageQueue]:
        """The readable queues of a topic, sorted."""
        self._check_running()
        topic = self._client.namespace.wrap(topic)
        route = await self._client.route(topic, refresh=True)
        return sorted(map(self._client.namespace.unwrap_queue, route.subscribe_queues(topic)))

    @checked
    async def begin_offset(self, queue: MessageQueue) -> int:
        """The first offset that is still stored (31)."""
        self._check_running()
        queue = self._client.namespace.wrap_queue(queue)
        await self._client.route(queue.topic)
        return max(
            await min_offset(self._client, queue.broker_name, queue.topic, queue.queue_id), 0
        )

    @checked
    async def end_offset(self, queue: MessageQueue) -> int:
        """The offset after the last message (30)."""
        self._check_running()
        queue = self._client.namespace.wrap_queue(queue)
        await self._client.route(queue.topic)
        return await max_offset(self._client, queue.broker_name, queue.topic, queue.queue_id)

    @checked
    async def offset_for_timestamp(
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
        timestamp = epoch_milliseconds(moment)
        self._check_running()
        queue = self._client.namespace.wrap_queue(queue)
        await self._client.route(queue.topic)
        return await search_offset(
            self._client,
            queue.broker_name,
            queue.topic,
            queue.queue_id,
            timestamp,
            boundary=boundary,
        )

    @checked
    async def earliest_message_time(self, queue: MessageQueue) -> int | None:
        """When the first message was stored, in epoch milliseconds (32).

        None for an empty queue.
        """
        self._check_running()
        queue = self._client.namespace.wrap_queue(queue)
        await self._client.route(queue.topic)
        found = await earliest_store_time(
            self._client, queue.broker_name, queue.topic, queue.queue_id
        )
        return None if found < 0 else found

    @checked
    async def committed(self, queue: MessageQueue) -> int | None:
        """The offset that the group has committed at the broker (14), if any."""
        self._check_running()
        queue = self._client.namespace.wrap_queue(queue)
        await self._client.route(queue.topic)
        return await self._offsets.read(queue)
