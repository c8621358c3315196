"""Delays of groups, all groups, counters: QUERY_CONSUME_TIME_SPAN (303),
GET_BROKER_CONSUME_STATS (317), VIEW_BROKER_STATS_DATA (315).
"""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Final

from rocketmq_sdk.broker_embedded.admin.progress import progress
from rocketmq_sdk.broker_embedded.handlers import Serve, bind_all, refused
from rocketmq_sdk.codes import RequestCode, ResponseCode
from rocketmq_sdk.model.queue import MessageQueue
from rocketmq_sdk.protocol.bodies.progress import (
    BrokerStatsData,
    BrokerStatsItem,
    ConsumeStats,
    ConsumeStatsList,
    QueryConsumeTimeSpanBody,
    QueueTimeSpan,
)
from rocketmq_sdk.protocol.command import Command
from rocketmq_sdk.protocol.headers.progress import (
    GetConsumeStatsInBrokerHeader,
    QueryConsumeTimeSpanRequestHeader,
    ViewBrokerStatsDataRequestHeader,
)

if TYPE_CHECKING:
    from rocketmq_sdk.broker_embedded.core import BrokerContext
    from rocketmq_sdk.broker_embedded.tables.stats import Window
    from rocketmq_sdk.remoting.channel import Handler


def handlers(context: BrokerContext) -> dict[int, Handler]:
    """The handlers by request code."""
    return bind_all(context, _SERVED)


def consume_time_span(context: BrokerContext, command: Command) -> Command:
    """QUERY_CONSUME_TIME_SPAN (303): store times of the first, the last and the last
    consumed message of each queue, and the delay of the group.
    """
    header = QueryConsumeTimeSpanRequestHeader.from_ext(command.ext_fields)
    topic = context.topics.get(header.topic)
    if topic is None:
        return refused(ResponseCode.TOPIC_NOT_EXIST, f"topic[{header.topic}] not exist")
    spans = tuple(
        _span(context, header.topic, header.group, queue_id)
        for queue_id in range(topic.write_queue_nums)
    )
    return Command.response(body=QueryConsumeTimeSpanBody(spans).encode())


def _span(context: BrokerContext, topic: str, group: str, queue_id: int) -> QueueTimeSpan:
    store = context.store
    end = store.max_offset(topic, queue_id)
    first = store.store_time_at(topic, queue_id, store.min_offset(topic, queue_id))
    last = store.store_time_at(topic, queue_id, end - 1)
    consumed = context.offsets.query(group, topic, queue_id)
    reached = store.store_time_at(topic, queue_id, consumed - 1) if consumed > 0 else first
    delay = 0
    if consumed < end:
        # A group without an offset has everything before it; Apache subtracts -1 as a
        # time there and shows the broker's whole clock as the delay.
        following = store.store_time_at(
            topic, queue_id, max(consumed, store.min_offset(topic, queue_id))
        )
        delay = context.clock.now_ms() - following if following > 0 else 0
    queue = MessageQueue(topic, context.config.current.broker_name, queue_id)
    return QueueTimeSpan(
        queue, first, last, reached, delay, _text(first), _text(last), _text(reached)
    )


def _text(stamp: int) -> str:
    moment = datetime.fromtimestamp(stamp / 1000)
    return f"{moment:%Y-%m-%d#%H:%M:%S}:{stamp % 1000:03d}"


def consume_stats_of_all(context: BrokerContext, command: Command) -> Command:
    """GET_BROKER_CONSUME_STATS (317): every group with its progress in every topic, of
    ordered topics only when asked so.
    """
    ordered_only = GetConsumeStatsInBrokerHeader.from_ext(command.ext_fields).is_order
    listed: list[dict[str, tuple[ConsumeStats, ...]]] = []
    behind = inflight = 0
    for group in context.groups.all():
        stats: list[ConsumeStats] = []
        online = context.consumers.group(group) is not None
        for name in sorted(context.offsets.topics_of(group)):
            topic = context.topics.get(name)
            if topic is None or (ordered_only and not topic.order):
                continue
            if online and context.consumers.subscription(group, name) is None:
                continue
            table = progress(context, group, topic, pulled=False)
            behind += sum(
                max(0, queue.broker_offset - queue.consumer_offset) for queue in table.values()
            )
            inflight += sum(
                max(0, context.offsets.pulled(group, name, queue.queue_id) - entry.consumer_offset)
                for queue, entry in table.items()
            )
            stats.append(ConsumeStats(table, context.stats.group_rate(name, group)))
        listed.append({group: tuple(stats)})
    return Command.response(
        body=ConsumeStatsList(tuple(listed), context.address(), behind, inflight).encode()
    )


def stats_item(context: BrokerContext, command: Command) -> Command:
    """VIEW_BROKER_STATS_DATA (315): the last minute, hour and day of one counter,
    sampled every ten seconds.
    """
    header = ViewBrokerStatsDataRequestHeader.from_ext(command.ext_fields)
    found = context.stats.find(header.stats_name, header.stats_key)
    if found is None:
        return refused(
            ResponseCode.SYSTEM_ERROR,
            f"The stats <{header.stats_name}> <{header.stats_key}> not exist",
        )
    minute, hour, day, member = found
    return Command.response(
        body=BrokerStatsData(
            _item(minute, member), _item(hour, member), _item(day, member)
        ).encode()
    )


def _item(window: Window, member: str) -> BrokerStatsItem:
    total = window.bytes if member == "bytes" else window.messages
    return BrokerStatsItem(
        total,
        total / window.seconds if window.seconds else 0.0,
        total / window.times if window.times else 0.0,
    )


_SERVED: Final[dict[RequestCode, Serve]] = {
    RequestCode.QUERY_CONSUME_TIME_SPAN: consume_time_span,
    RequestCode.GET_BROKER_CONSUME_STATS: consume_stats_of_all,
    RequestCode.VIEW_BROKER_STATS_DATA: stats_item,
}
