"""Delays of groups, all groups, counters: QUERY_CONSUME_TIME_SPAN (303),
GET_BROKER_CONSUME_STATS (317), VIEW_BROKER_STATS_DATA (315).
"""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from rocketmq_sdk.broker_embedded.admin.progress import queue_progress
from rocketmq_sdk.broker_embedded.request import Cost, Request, refuse
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
    from collections.abc import Iterable

    from rocketmq_sdk.broker_embedded.core import Core
    from rocketmq_sdk.broker_embedded.members.part import MemberPart
    from rocketmq_sdk.broker_embedded.tables.stats import Window


class DelayRequests:
    """How late groups are, and what was counted."""

    def __init__(self, core: Core, members: MemberPart) -> None:
        self._core = core
        self._members = members

    def requests(self) -> Iterable[Request]:
        """The rows."""
        return (
            Request(
                RequestCode.QUERY_CONSUME_TIME_SPAN,
                self.consume_time_span,
                QueryConsumeTimeSpanRequestHeader,
                cost=Cost.TABLE,
            ),
            Request(
                RequestCode.GET_BROKER_CONSUME_STATS,
                self.consume_stats_of_all,
                GetConsumeStatsInBrokerHeader,
                cost=Cost.TABLE,
            ),
            Request(
                RequestCode.VIEW_BROKER_STATS_DATA,
                self.stats_item,
                ViewBrokerStatsDataRequestHeader,
            ),
        )

    def consume_time_span(self, header: QueryConsumeTimeSpanRequestHeader) -> Command:
        """QUERY_CONSUME_TIME_SPAN (303): store times of the first, the last and the
        last consumed message of each queue, and the delay of the group.
        """
        topic = self._core.topics.get(header.topic)
        if topic is None:
            return refuse(ResponseCode.TOPIC_NOT_EXIST, f"topic[{header.topic}] not exist")
        spans = tuple(
            self._span(header.topic, header.group, queue_id)
            for queue_id in range(topic.write_queue_nums)
        )
        return Command.response(body=QueryConsumeTimeSpanBody(spans).encode())

    def _span(self, topic: str, group: str, queue_id: int) -> QueueTimeSpan:
        store = self._core.store
        end = store.max_offset(topic, queue_id)
        first = store.store_time_at(topic, queue_id, store.min_offset(topic, queue_id))
        last = store.store_time_at(topic, queue_id, end - 1)
        consumed = self._core.offsets.query(group, topic, queue_id)
        reached = store.store_time_at(topic, queue_id, consumed - 1) if consumed > 0 else first
        delay = 0
        if consumed < end:
            # A group without an offset has everything before it; Apache subtracts -1 as
            # a time there and shows the broker's whole clock as the delay.
            following = store.store_time_at(
                topic, queue_id, max(consumed, store.min_offset(topic, queue_id))
            )
            delay = self._core.clock.now_ms() - following if following > 0 else 0
        queue = MessageQueue(topic, self._core.config.current.broker_name, queue_id)
        return QueueTimeSpan(
            queue, first, last, reached, delay, _text(first), _text(last), _text(reached)
        )

    def consume_stats_of_all(self, header: GetConsumeStatsInBrokerHeader) -> Command:
        """GET_BROKER_CONSUME_STATS (317): every group with its progress in every topic,
        of ordered topics only when asked so.
        """
        ordered_only = header.is_order
        listed: list[dict[str, tuple[ConsumeStats, ...]]] = []
        behind = inflight = 0
        for group in self._core.groups.all():
            stats: list[ConsumeStats] = []
            online = self._members.consumers.group(group) is not None
            for name in sorted(self._core.offsets.topics_of(group)):
                topic = self._core.topics.get(name)
                if topic is None or (ordered_only and not topic.order):
                    continue
                if online and self._members.consumers.subscription(group, name) is None:
                    continue
                table = queue_progress(self._core, group, topic, pulled=False)
                behind += sum(
                    max(0, queue.broker_offset - queue.consumer_offset) for queue in table.values()
                )
                inflight += sum(
                    max(
                        0,
                        self._core.offsets.pulled(group, name, queue.queue_id)
                        - entry.consumer_offset,
                    )
                    for queue, entry in table.items()
                )
                stats.append(ConsumeStats(table, self._core.stats.group_rate(name, group)))
            listed.append({group: tuple(stats)})
        return Command.response(
            body=ConsumeStatsList(tuple(listed), self._core.address(), behind, inflight).encode()
        )

    def stats_item(self, header: ViewBrokerStatsDataRequestHeader) -> Command:
        """VIEW_BROKER_STATS_DATA (315): the last minute, hour and day of one counter,
        sampled every ten seconds.
        """
        found = self._core.stats.find(header.stats_name, header.stats_key)
        if found is None:
            return refuse(
                ResponseCode.SYSTEM_ERROR,
                f"The stats <{header.stats_name}> <{header.stats_key}> not exist",
            )
        minute, hour, day, member = found
        return Command.response(
            body=BrokerStatsData(
                _item(minute, member), _item(hour, member), _item(day, member)
            ).encode()
        )


def _text(stamp: int) -> str:
    moment = datetime.fromtimestamp(stamp / 1000)
    return f"{moment:%Y-%m-%d#%H:%M:%S}:{stamp % 1000:03d}"


def _item(window: Window, member: str) -> BrokerStatsItem:
    total = window.bytes if member == "bytes" else window.messages
    return BrokerStatsItem(
        total,
        total / window.seconds if window.seconds else 0.0,
        total / window.times if window.times else 0.0,
    )
