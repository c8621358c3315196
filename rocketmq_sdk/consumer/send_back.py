"""Sending back a message that a listener did not take.

Three steps, each only when the one before failed
(`ConsumeMessageConcurrentlyService.processConsumeResult` and
`DefaultMQPushConsumerImpl.sendMessageBack` of Apache RocketMQ 5.4.0): ask the broker
that stores the message; send a copy to the group's retry topic at any broker; keep the
message and consume it again after five seconds. The offset never passes a message for
which neither of the first two steps was confirmed.
"""

from __future__ import annotations

import logging
import random
from typing import TYPE_CHECKING, Final

from rocketmq_sdk.client.api.send import consumer_send_back, send_retry_message
from rocketmq_sdk.errors import ConnectError, RocketMQError
from rocketmq_sdk.log_fields import about
from rocketmq_sdk.names import retry_topic

if TYPE_CHECKING:
    from collections.abc import Callable

    from rocketmq_sdk.client.runtime import Client
    from rocketmq_sdk.model.received import ReceivedMessage

logger = logging.getLogger("rocketmq_sdk.consumer")

SEND_BACK_TIMEOUT: Final = 5.0
RECONSUME_DELAY: Final = 5.0
"""Seconds after which a message that could not be sent back is consumed again."""
TIMEOUT_DELAY_LEVEL: Final = 3
"""The delay level of messages that time out (`ProcessQueue.cleanExpiredMsg`)."""


class SendBack:
    """Sends messages of one group back to brokers."""

    def __init__(self, client: Client, group: str, *, most_retries: Callable[[], int]) -> None:
        self._client = client
        self._group = group
        self._most_retries = most_retries

    async def give_back(self, message: ReceivedMessage, delay_level: int) -> bool:
        """Send a message back; returns whether a broker has confirmed it.

        A confirmed message is delivered again, or is in the dead letter topic.
        """
        try:
            await self._ask_its_broker(message, delay_level)
        except RocketMQError as error:
            first = error
        else:
            return True
        try:
            await self._send_copy(message, delay_level)
        except RocketMQError as error:
            logger.warning(
                "group %s: message %s of %s could not be sent back (%s), nor a copy to the retry "
                "topic (%s); it is consumed again in %g s",
                self._group,
                message.message_id,
                message.topic,
                first,
                error,
                RECONSUME_DELAY,
                extra=about(topic=message.topic, group=self._group, message_id=message.message_id),
            )
            return False
        logger.info(
            "group %s: message %s could not be sent back (%s); a copy went to the retry topic",
            self._group,
            message.message_id,
            first,
            extra=about(group=self._group, message_id=message.message_id),
        )
        return True

    async def _ask_its_broker(self, message: ReceivedMessage, delay_level: int) -> None:
        await consumer_send_back(
            self._client,
            message.broker_name,
            self._group,
            message.commit_log_offset,
            delay_level=delay_level,
            origin_message_id=message.message_id,
            origin_topic=self._client.namespace.wrap(message.topic),
            max_reconsume_times=self._most_retries(),
            timeout=SEND_BACK_TIMEOUT,
        )

    async def _send_copy(self, message: ReceivedMessage, delay_level: int) -> None:
        topic = retry_topic(self._group)
        route = await self._client.route(topic)
        # One queue of each broker; the broker that just failed comes last.
        publishable = route.publish_queues(topic)
        random.shuffle(publishable)
        queues = {queue.broker_name: queue for queue in publishable}
        failure: RocketMQError = ConnectError(f"no broker can store messages of {topic}")
        for queue in sorted(
            queues.values(), key=lambda queue: queue.broker_name == message.broker_name
        ):
            try:
                await send_retry_message(
                    self._client,
                    queue,
                    self._group,
                    message,
                    origin_topic=self._client.namespace.wrap(message.topic),
                    delay_level=delay_level,
                    max_reconsume_times=self._most_retries(),
                    born_timestamp=self._client.clock.now_ms(),
                    timeout=SEND_BACK_TIMEOUT,
                )
            except RocketMQError as error:
                failure = error
            else:
                return
        raise failure
