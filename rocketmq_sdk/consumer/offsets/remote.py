"""Offsets that brokers keep (`RemoteBrokerOffsetStore` of Apache RocketMQ 5.4.0)."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from rocketmq_sdk.client.api.offsets import query_consumer_offset, update_consumer_offset
from rocketmq_sdk.errors import RocketMQError
from rocketmq_sdk.log_fields import about

if TYPE_CHECKING:
    from rocketmq_sdk.client.api.caller import Caller
    from rocketmq_sdk.model.queue import MessageQueue

logger = logging.getLogger("rocketmq_sdk.consumer")

OFFSET_TIMEOUT: Final = 3.0


class RemoteOffsets:
    """Reads and commits the offsets of one group at the brokers of the queues.

    At the masters, or at a slave while no master is known.
    """

    def __init__(self, client: Caller, group: str) -> None:
        self._client = client
        self._group = group

    async def read(self, queue: MessageQueue) -> int | None:
        """The committed offset, or None when there is none.

        Raises `RocketMQError` when the broker cannot be asked.
        """
        return await query_consumer_offset(
            self._client,
            queue.broker_name,
            self._group,
            queue.topic,
            queue.queue_id,
            OFFSET_TIMEOUT,
        )

    async def write(self, queue: MessageQueue, offset: int, *, confirmed: bool) -> None:
        """Commit an offset; without `confirmed` the broker sends no answer.

        Raises `RocketMQError` when it could not be sent, or with `confirmed` when the
        broker does not confirm it.
        """
        await update_consumer_offset(
            self._client,
            queue.broker_name,
            self._group,
            queue.topic,
            queue.queue_id,
            offset,
            OFFSET_TIMEOUT,
            oneway=not confirmed,
        )

    async def commit(self, queue: MessageQueue, offset: int, *, confirmed: bool) -> bool:
        """Commit an offset; returns whether it was sent, or with `confirmed` arrived.

        A failure is logged, not raised.
        """
        try:
            await self.write(queue, offset, confirmed=confirmed)
        except RocketMQError as error:
            logger.info(
                "group %s: offset %d of %r could not be committed: %s",
                self._group,
                offset,
                queue,
                error,
                extra=about(group=self._group, queue=queue),
            )
            return False
        return True
