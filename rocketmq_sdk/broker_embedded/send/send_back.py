"""CONSUMER_SEND_MSG_BACK (36): a consumer wants a failed message again later.

`AbstractSendMessageProcessor.consumerSendMsgBack` of Apache.
"""

from __future__ import annotations

import random
from functools import partial
from typing import TYPE_CHECKING

from rocketmq_sdk.broker_embedded.core import FAQ
from rocketmq_sdk.broker_embedded.needs import is_of
from rocketmq_sdk.broker_embedded.slices import with_record
from rocketmq_sdk.broker_embedded.store.messages import MessageToStore
from rocketmq_sdk.broker_embedded.tables.topics import UNIT_SUBSCRIPTION_FLAG
from rocketmq_sdk.codes import VERSION_RETRY_TIMES_IN_HEADER, ResponseCode
from rocketmq_sdk.errors import ProtocolError
from rocketmq_sdk.model.enums import Permission
from rocketmq_sdk.model.properties import (
    DELAY,
    ORIGIN_MESSAGE_ID,
    RETRY_TOPIC,
    TAGS,
    WAIT,
    property_in_text,
    without_property,
)
from rocketmq_sdk.names import dead_letter_topic, retry_topic
from rocketmq_sdk.protocol.command import Command
from rocketmq_sdk.protocol.message_codec import decode_message
from rocketmq_sdk.protocol.subscription import tags_code

if TYPE_CHECKING:
    from rocketmq_sdk.broker_embedded.core import Core
    from rocketmq_sdk.broker_embedded.timers.intake import Intake
    from rocketmq_sdk.model.received import ReceivedMessage
    from rocketmq_sdk.protocol.bodies.groups import SubscriptionGroupConfig
    from rocketmq_sdk.protocol.headers.send import ConsumerSendMsgBackRequestHeader
    from rocketmq_sdk.remoting.channel import Channel, Continuation

_FIRST_RETRY_LEVEL = 3
_DEAD_LETTER_QUEUES = 1


class SendBackProcessor:
    """Stores copies of messages for later."""

    def __init__(self, core: Core, intake: Intake) -> None:
        self._core = core
        self._intake = intake

    def send_back(
        self, _channel: Channel, request: Command, header: ConsumerSendMsgBackRequestHeader
    ) -> Command | Continuation | None:
        """Store a copy in the group's retry topic, with a delay level.

        A message that failed too often goes to the dead letter topic.
        """
        core = self._core
        config = core.groups.get(header.group)
        if config is None:
            return Command.response(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
                remark=f"subscription group not exist, {header.group} {FAQ}",
            )
        if not core.config.current.broker_permission & Permission.WRITE:
            remark = f"the broker[{core.address()}] sending message is forbidden"
            return Command.response(ResponseCode.NO_PERMISSION, remark=remark)
        if config.retry_queue_nums <= 0:
            return Command.response()
        flag = UNIT_SUBSCRIPTION_FLAG if header.unit_mode else 0
        topic = core.topics.create_retry(
            retry_topic(header.group), config.retry_queue_nums, sys_flag=flag
        )
        if not topic.perm & Permission.WRITE:
            return Command.response(
                ResponseCode.NO_PERMISSION,
                remark=f"the topic[{topic.topic_name}] sending message is forbidden",
            )
        copy = partial(self._send_back, request, header, config)
        return with_record(core.store, header.offset, copy)

    def _send_back(
        self,
        request: Command,
        header: ConsumerSendMsgBackRequestHeader,
        config: SubscriptionGroupConfig,
        record: bytes | None,
    ) -> Command:
        try:
            original = None if record is None else decode_message(record, inflate=False)
        except ProtocolError:
            original = None
        if original is not None and self._core.config.current.authorization_enabled:
            own = original.topic == retry_topic(header.group)
            if not own and not is_of(header.origin_topic, original):
                original = None  # Nobody gets messages of topics that he may not read.
        if original is None:
            return Command.response(
                ResponseCode.SYSTEM_ERROR, remark=f"look message by offset failed, {header.offset}"
            )
        return self._store_copy(request, header, config, original)

    def _store_copy(
        self,
        request: Command,
        header: ConsumerSendMsgBackRequestHeader,
        config: SubscriptionGroupConfig,
        original: ReceivedMessage,
    ) -> Command:
        core = self._core
        most = config.retry_max_times
        if (
            request.version >= VERSION_RETRY_TIMES_IN_HEADER
            and header.max_reconsume_times is not None
        ):
            most = header.max_reconsume_times
        level = header.delay_level
        dead = original.reconsume_times >= most or level < 0
        if dead:
            level = 0
            topic = core.topics.create_retry(
                dead_letter_topic(header.group), _DEAD_LETTER_QUEUES
            ).topic_name
            queue_id = 0
        else:
            level = level or _FIRST_RETRY_LEVEL + original.reconsume_times
            topic = retry_topic(header.group)
            queue_id = random.randrange(config.retry_queue_nums)
        message = _copy(original, topic, queue_id, level)
        origin = property_in_text(message.properties, RETRY_TOPIC) or original.topic
        result = self._intake.put(message)
        if not result.ok:
            return Command.response(ResponseCode.SYSTEM_ERROR, remark=result.status.name)
        core.stats.sent_back(origin, header.group)
        if dead:
            core.stats.dead_letters += 1
            if core.stats.figures is not None:
                core.stats.figures.dead_letters.add((header.group, header.origin_topic or origin))
        return Command.response()


def _copy(original: ReceivedMessage, topic: str, queue_id: int, level: int) -> MessageToStore:
    """The copy with the properties that lead back to the original."""
    text = original.properties_bytes.decode("utf-8", "replace")
    if text and not text.endswith("\x02"):
        text += "\x02"
    first_topic = property_in_text(text, RETRY_TOPIC)
    first_id = property_in_text(text, ORIGIN_MESSAGE_ID)
    text = without_property(without_property(text, WAIT), DELAY)
    if first_topic is None:
        text += f"RETRY_TOPIC\x01{original.topic}\x02"
    if first_id is None:
        text += f"ORIGIN_MESSAGE_ID\x01{original.offset_message_id}\x02"
    text += f"WAIT\x01false\x02DELAY\x01{level}\x02"
    return MessageToStore(
        topic,
        queue_id,
        original.body,
        text,
        flag=original.flag,
        sys_flag=original.sys_flag,
        born_timestamp=original.born_timestamp,
        born_host=original.born_host,
        reconsume_times=original.reconsume_times + 1,
        tags_code=tags_code(property_in_text(text, TAGS)),
    )
