"""How far queues and groups are: GET_TOPIC_STATS_INFO (202) and GET_CONSUME_STATS
(208).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rocketmq_sdk.broker_embedded.handlers import Serve, bind_all, refused
from rocketmq_sdk.codes import RequestCode, ResponseCode
from rocketmq_sdk.model.queue import MessageQueue
from rocketmq_sdk.protocol.bodies.progress import (
    ConsumeStats,
    OffsetWrapper,
    TopicOffset,
    TopicStatsTable,
)
from rocketmq_sdk.protocol.command import Command
from rocketmq_sdk.protocol.headers.progress import (
    GetConsumeStatsRequestHeader,
    GetTopicStatsInfoRequestHeader,
)

if TYPE_CHECKING:
    from rocketmq_sdk.broker_embedded.core import BrokerContext
    from rocketmq_sdk.protocol.bodies.topics import TopicConfig
    from rocketmq_sdk.remoting.channel import Handler


def handlers(context: BrokerContext) -> dict[int, Handler]:
    """The handlers by request code."""
    return bind_all(context, _SERVED)


def topic_stats(context: BrokerContext, command: Command) -> Command:
    """GET_TOPIC_STATS_INFO (202): the ends of each queue and the time of its last
    message.
    """
    name = GetTopicStatsInfoRequestHeader.from_ext(command.ext_fields).topic
    topic = context.topics.get(name)
    if topic is None:
        return refused(ResponseCode.TOPIC_NOT_EXIST, f"topic[{name}] not exist")
    store, broker_name = context.store, context.config.current.broker_name
    table: dict[MessageQueue, TopicOffset] = {}
    for queue_id in range(max(topic.read_queue_nums, topic.write_queue_nums)):
        low, high = (
            max(0, store.min_offset(name, queue_id)),
            max(0, store.max_offset(name, queue_id)),
        )
        stamp = max(0, store.store_time_at(name, queue_id, high - 1)) if high > low else 0
        table[MessageQueue(name, broker_name, queue_id)] = TopicOffset(low, high, stamp)
    return Command.response(body=TopicStatsTable(table).encode())


def consume_stats(context: BrokerContext, command: Command) -> Command:
    """GET_CONSUME_STATS (208): how far a group is, in the topics named or in all that
    it has offsets in.

    Topics that an online group has no subscription for any more are left out, unless a
    list names them.
    """
    header = GetConsumeStatsRequestHeader.from_ext(command.ext_fields)
    group = header.consumer_group
    listed = [name.strip() for name in (header.topic_list or "").split(";") if name.strip()]
    names = listed or ([header.topic] if header.topic else sorted(context.offsets.topics_of(group)))
    online = context.consumers.group(group) is not None
    table: dict[MessageQueue, OffsetWrapper] = {}
    rate = 0.0
    for name in names:
        topic = context.topics.get(name)
        if topic is None or (
            online and not listed and context.consumers.subscription(group, name) is None
        ):
            continue
        table.update(progress(context, group, topic))
        rate += context.stats.group_rate(name, group)
    return Command.response(body=ConsumeStats(table, rate).encode())


def progress(
    context: BrokerContext, group: str, topic: TopicConfig, *, pulled: bool = True
) -> dict[MessageQueue, OffsetWrapper]:
    """How far a group is in each queue of a topic; the offset pulled last is 0 where
    nobody asks for it, as in Apache's list of all groups.
    """
    store, offsets = context.store, context.offsets
    name, broker_name = topic.topic_name, context.config.current.broker_name
    table: dict[MessageQueue, OffsetWrapper] = {}
    for queue_id in range(topic.read_queue_nums):
        consumed = max(0, offsets.query(group, name, queue_id))
        fetched = max(consumed, offsets.pulled(group, name, queue_id)) if pulled else 0
        stamp = max(0, store.store_time_at(name, queue_id, consumed - 1)) if consumed > 0 else 0
        table[MessageQueue(name, broker_name, queue_id)] = OffsetWrapper(
            max(0, store.max_offset(name, queue_id)), consumed, fetched, stamp
        )
    return table


_SERVED: Final[dict[RequestCode, Serve]] = {
    RequestCode.GET_TOPIC_STATS_INFO: topic_stats,
    RequestCode.GET_CONSUME_STATS: consume_stats,
}
