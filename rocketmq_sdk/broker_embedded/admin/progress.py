"""How far queues and groups are: GET_TOPIC_STATS_INFO (202) and GET_CONSUME_STATS
(208).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rocketmq_sdk.broker_embedded.request import Cost, Request, refuse
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
    from collections.abc import Iterable

    from rocketmq_sdk.broker_embedded.core import Core
    from rocketmq_sdk.broker_embedded.members.part import MemberPart
    from rocketmq_sdk.protocol.bodies.topics import TopicConfig


class ProgressRequests:
    """How far queues and groups are."""

    def __init__(self, core: Core, members: MemberPart) -> None:
        self._core = core
        self._members = members

    def requests(self) -> Iterable[Request]:
        """The rows."""
        return (
            Request(
                RequestCode.GET_TOPIC_STATS_INFO,
                self.topic_stats,
                GetTopicStatsInfoRequestHeader,
                cost=Cost.TABLE,
            ),
            Request(
                RequestCode.GET_CONSUME_STATS,
                self.consume_stats,
                GetConsumeStatsRequestHeader,
                cost=Cost.TABLE,
            ),
        )

    def topic_stats(self, header: GetTopicStatsInfoRequestHeader) -> Command:
        """GET_TOPIC_STATS_INFO (202): the ends of each queue and the time of its last
        message.
        """
        name = header.topic
        topic = self._core.topics.get(name)
        if topic is None:
            return refuse(ResponseCode.TOPIC_NOT_EXIST, f"topic[{name}] not exist")
        store, broker_name = self._core.store, self._core.config.current.broker_name
        table: dict[MessageQueue, TopicOffset] = {}
        for queue_id in range(max(topic.read_queue_nums, topic.write_queue_nums)):
            low, high = (
                max(0, store.min_offset(name, queue_id)),
                max(0, store.max_offset(name, queue_id)),
            )
            stamp = max(0, store.store_time_at(name, queue_id, high - 1)) if high > low else 0
            table[MessageQueue(name, broker_name, queue_id)] = TopicOffset(low, high, stamp)
        return Command.response(body=TopicStatsTable(table).encode())

    def consume_stats(self, header: GetConsumeStatsRequestHeader) -> Command:
        """GET_CONSUME_STATS (208): how far a group is, in the topics named or in all
        that it has offsets in.

        Topics that an online group has no subscription for any more are left out,
        unless a list names them.
        """
        group = header.consumer_group
        listed = [name.strip() for name in (header.topic_list or "").split(";") if name.strip()]
        names = listed or (
            [header.topic] if header.topic else sorted(self._core.offsets.topics_of(group))
        )
        online = self._members.consumers.group(group) is not None
        table: dict[MessageQueue, OffsetWrapper] = {}
        rate = 0.0
        for name in names:
            topic = self._core.topics.get(name)
            if topic is None or (
                online and not listed and self._members.consumers.subscription(group, name) is None
            ):
                continue
            table.update(queue_progress(self._core, group, topic))
            rate += self._core.stats.group_rate(name, group)
        return Command.response(body=ConsumeStats(table, rate).encode())


def queue_progress(
    core: Core, group: str, topic: TopicConfig, *, pulled: bool = True
) -> dict[MessageQueue, OffsetWrapper]:
    """How far a group is in each queue of a topic; the offset pulled last is 0
    where nobody asks for it, as in Apache's list of all groups.
    """
    store, offsets = core.store, core.offsets
    name, broker_name = topic.topic_name, core.config.current.broker_name
    table: dict[MessageQueue, OffsetWrapper] = {}
    for queue_id in range(topic.read_queue_nums):
        consumed = max(0, offsets.query(group, name, queue_id))
        fetched = max(consumed, offsets.pulled(group, name, queue_id)) if pulled else 0
        stamp = max(0, store.store_time_at(name, queue_id, consumed - 1)) if consumed > 0 else 0
        table[MessageQueue(name, broker_name, queue_id)] = OffsetWrapper(
            max(0, store.max_offset(name, queue_id)), consumed, fetched, stamp
        )
    return table
