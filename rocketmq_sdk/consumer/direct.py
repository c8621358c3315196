"""One message that an administrator has a consumer take now
(`ConsumeMessageConcurrentlyService.consumeMessageDirectly` of Apache RocketMQ 5.4.0).
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from rocketmq_sdk.consumer.outcome import ListenerAnswer
from rocketmq_sdk.model.properties import RETRY_TOPIC
from rocketmq_sdk.names import origin_of_pop_retry, retry_topic
from rocketmq_sdk.protocol.bodies.connections import ConsumeMessageDirectlyResult, ConsumeResult

if TYPE_CHECKING:
    from rocketmq_sdk.client.callbacks import DirectConsumption
    from rocketmq_sdk.client.runtime import Client
    from rocketmq_sdk.consumer.workers import ListenerService
    from rocketmq_sdk.model.message import ReceivedMessage

logger = logging.getLogger("rocketmq_sdk.consumer")


def consume_directly(
    service: ListenerService,
    client: Client,
    group: str,
    message: ReceivedMessage,
    broker_name: str | None,
    *,
    orderly: bool,
) -> DirectConsumption:
    """What hands the message to the listener, as a pull would bring it, and tells how
    it was taken. No offset moves, nothing is sent back.
    """
    clock = client.clock

    async def run() -> ConsumeMessageDirectlyResult:
        if message.topic == retry_topic(group):
            message.topic = message.properties.get(RETRY_TOPIC) or message.topic
        message.topic = client.namespace.unwrap(origin_of_pop_retry(message.topic, group))
        message.broker_name = broker_name or message.broker_name
        began = clock.now_ms()
        result, remark = ConsumeResult.SUCCESS, None
        try:
            await service.consume_directly(message)
        except ListenerAnswer as answer:
            result, remark = ConsumeResult.LATER, repr(answer)
        except Exception as error:
            logger.warning(
                "the listener failed on message %s, which it was handed directly",
                message.message_id,
                exc_info=True,
            )
            result, remark = ConsumeResult.THROW_EXCEPTION, repr(error)
        return ConsumeMessageDirectlyResult(orderly, True, result, remark, clock.now_ms() - began)

    return run
