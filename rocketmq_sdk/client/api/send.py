"""Sending a consumed message back to the broker, or to another one when that fails.

Apache RocketMQ 5.4.0: `DefaultMQPushConsumerImpl.sendMessageBack`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rocketmq_sdk.client.api.caller import Caller, checked
from rocketmq_sdk.codes import RequestCode, ResponseCode
from rocketmq_sdk.errors import broker_error
from rocketmq_sdk.model import properties as names
from rocketmq_sdk.model.properties import encode_properties
from rocketmq_sdk.names import DEFAULT_TOPIC, INNER_PRODUCER_GROUP, retry_topic
from rocketmq_sdk.protocol.command import Command
from rocketmq_sdk.protocol.flags import SysFlag
from rocketmq_sdk.protocol.headers.send import (
    ConsumerSendMsgBackRequestHeader,
    SendMessageRequestHeaderV2,
)

if TYPE_CHECKING:
    from rocketmq_sdk.model.queue import MessageQueue
    from rocketmq_sdk.model.received import ReceivedMessage


FIRST_RETRY_LEVEL: Final = 3
_STORED: Final = frozenset(
    {
        ResponseCode.SUCCESS,
        ResponseCode.FLUSH_DISK_TIMEOUT,
        ResponseCode.FLUSH_SLAVE_TIMEOUT,
        ResponseCode.SLAVE_NOT_AVAILABLE,
    }
)
_HISTORY: Final = frozenset(
    {
        names.TRAN_MSG,
        names.MIN_OFFSET,
        names.MAX_OFFSET,
        names.CRC32,
        names.DELAY,
        names.TIMER_DELAY_MS,
        names.TIMER_DELAY_SEC,
        names.TIMER_DELIVER_MS,
        names.TIMER_OUT_MS,
        names.REAL_TOPIC,
        names.REAL_QID,
        names.RECONSUME_TIME,
        names.MAX_RECONSUME_TIMES,
        names.CONSUME_START_TIME,
        names.DLQ_ORIGIN_TOPIC,
        names.DLQ_ORIGIN_MESSAGE_ID,
        names.POP_CK,
        names.POP_CK_OFFSET,
        names.FIRST_POP_TIME,
    }
)
"""What a dead letter says of its tries, and a message that begins anew must not."""
_NOT_COPIED: Final = (names.TRAN_MSG, names.MIN_OFFSET, names.MAX_OFFSET, names.CRC32)


async def consumer_send_back(
    client: Caller,
    broker_name: str,
    group: str,
    commit_log_offset: int,
    *,
    delay_level: int = 0,
    origin_message_id: str | None = None,
    origin_topic: str | None = None,
    max_reconsume_times: int | None = None,
    timeout: float | None = 5.0,
) -> None:
    """Send one consumed message back to the broker that stores it (36).

    `delay_level` 0 lets the broker choose by the number of tries, below 0 means the
    dead letter topic. Raises the broker's error; after a timeout the message may be
    scheduled again all the same.
    """
    header = ConsumerSendMsgBackRequestHeader(
        offset=commit_log_offset,
        group=group,
        delay_level=delay_level,
        origin_msg_id=origin_message_id,
        origin_topic=origin_topic,
        max_reconsume_times=max_reconsume_times,
        bname=broker_name,
    )
    command = Command.request(RequestCode.CONSUMER_SEND_MSG_BACK, header)
    checked(
        await client.call_broker(broker_name, command, timeout), topic=origin_topic, group=group
    )


async def send_retry_message(
    client: Caller,
    queue: MessageQueue,
    group: str,
    message: ReceivedMessage,
    *,
    origin_topic: str,
    delay_level: int = 0,
    max_reconsume_times: int,
    born_timestamp: int,
    timeout: float | None = 5.0,
) -> None:
    """Send a copy of a message to the group's retry topic (310).

    It is for when the message's own broker cannot be asked.

    `origin_topic` is where it comes from, as brokers know it. `delay_level` as in
    `consumer_send_back`; where the broker would choose, the delay grows with each
    attempt as it would there. (Apache's client forgets the level here, so that a
    message given up would come back.) Raises the broker's error unless the copy was
    stored.
    """
    attempt = (
        message.reconsume_times + 1
        if delay_level >= 0
        else max(max_reconsume_times, message.reconsume_times) + 1
    )
    properties = {
        name: value for name, value in message.properties.items() if name not in _NOT_COPIED
    }
    properties.setdefault(names.RETRY_TOPIC, origin_topic)
    properties.setdefault(names.ORIGIN_MESSAGE_ID, message.offset_message_id)
    properties[names.RECONSUME_TIME] = str(attempt)
    properties[names.MAX_RECONSUME_TIMES] = str(max_reconsume_times)
    properties[names.DELAY] = str(
        delay_level if delay_level > 0 else FIRST_RETRY_LEVEL + message.reconsume_times
    )
    await _send_copy(
        client,
        queue,
        retry_topic(group),
        message,
        properties,
        reconsume_times=attempt,
        max_reconsume_times=max_reconsume_times,
        born_timestamp=born_timestamp,
        group=group,
        timeout=timeout,
    )


async def send_dead_letter_again(
    client: Caller,
    queue: MessageQueue,
    message: ReceivedMessage,
    *,
    born_timestamp: int,
    timeout: float | None = None,
) -> None:
    """Send a dead letter to a queue of its group's retry topic, as if never tried.

    It keeps its unique id, keys, tags and user's properties. Raises the broker's error
    unless it was stored.
    """
    known = message.properties
    properties = {name: value for name, value in known.items() if name not in _HISTORY}
    properties[names.RETRY_TOPIC] = (
        known.get(names.RETRY_TOPIC) or known.get(names.DLQ_ORIGIN_TOPIC) or message.topic
    )
    properties.setdefault(
        names.ORIGIN_MESSAGE_ID,
        known.get(names.DLQ_ORIGIN_MESSAGE_ID) or message.offset_message_id,
    )
    await _send_copy(
        client,
        queue,
        queue.topic,
        message,
        properties,
        reconsume_times=0,
        born_timestamp=born_timestamp,
        timeout=timeout,
    )


async def _send_copy(
    client: Caller,
    queue: MessageQueue,
    topic: str,
    message: ReceivedMessage,
    properties: dict[str, str],
    *,
    reconsume_times: int,
    born_timestamp: int,
    timeout: float | None,
    max_reconsume_times: int | None = None,
    group: str | None = None,
) -> None:
    """Send a message's body with other properties to a queue number of a topic.

    Raises the broker's error unless it was stored.
    """
    header = SendMessageRequestHeaderV2(
        producer_group=INNER_PRODUCER_GROUP,
        topic=topic,
        default_topic=DEFAULT_TOPIC,
        default_topic_queue_nums=4,
        queue_id=queue.queue_id,
        sys_flag=message.sys_flag & SysFlag.MULTI_TAGS,
        born_timestamp=born_timestamp,
        flag=message.flag,
        properties=encode_properties(properties),
        reconsume_times=reconsume_times,
        unit_mode=False,
        max_reconsume_times=max_reconsume_times,
        batch=False,
        bname=queue.broker_name,
    )
    response = await client.call_broker(
        queue.broker_name,
        Command.request(RequestCode.SEND_MESSAGE_V2, header, body=message.body),
        timeout,
    )
    if response.code not in _STORED:
        raise broker_error(response.code, response.remark, topic=queue.topic, group=group)
