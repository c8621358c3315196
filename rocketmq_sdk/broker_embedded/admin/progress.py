"""Progress of queues and groups: requests 202, 208, 303 and 317."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Final

import trio

from rocketmq_sdk.broker_embedded import needs
from rocketmq_sdk.broker_embedded.needs import Action
from rocketmq_sdk.broker_embedded.request import Cost, Request, refuse
from rocketmq_sdk.broker_embedded.slices import encoded, slices
from rocketmq_sdk.codes import RequestCode, ResponseCode
from rocketmq_sdk.model.queue import MessageQueue
from rocketmq_sdk.protocol.bodies.progress import (
    ConsumeStats,
    ConsumeStatsList,
    OffsetWrapper,
    QueryConsumeTimeSpanBody,
    QueueTimeSpan,
    TopicOffset,
    TopicStatsTable,
)
from rocketmq_sdk.protocol.command import Command
from rocketmq_sdk.protocol.headers.progress import (
    GetConsumeStatsInBrokerHeader,
    GetConsumeStatsRequestHeader,
    GetTopicStatsInfoRequestHeader,
    QueryConsumeTimeSpanRequestHeader,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rocketmq_sdk.broker_embedded.core import Core
    from rocketmq_sdk.broker_embedded.members.part import MemberPart
    from rocketmq_sdk.protocol.bodies.topics import TopicConfig
    from rocketmq_sdk.remoting.channel import Continuation


_SLICE: Final = 32
"""Topics or groups that are looked at without interruption."""


class ProgressRequests:
    """How far queues and groups are."""

    __slots__ = ("_core", "_members")

    def __init__(self, core: Core, members: MemberPart) -> None:
        self._core = core
        self._members = members

    def requests(self) -> Iterable[Request]:
        """Of one topic, one group, all groups."""
        return (
            Request(
                RequestCode.GET_TOPIC_STATS_INFO,
                self.topic_stats,
                needs.topic(Action.GET),
                GetTopicStatsInfoRequestHeader,
                cost=Cost.TABLE,
            ),
            Request(
                RequestCode.GET_CONSUME_STATS,
                self.consume_stats,
                needs.topic_and_group(Action.GET, topics=("topicList", ";")),
                GetConsumeStatsRequestHeader,
                cost=Cost.TABLE,
            ),
            Request(
                RequestCode.QUERY_CONSUME_TIME_SPAN,
                self.consume_time_span,
                needs.topic_and_group(Action.GET, "group"),
                QueryConsumeTimeSpanRequestHeader,
                cost=Cost.TABLE,
            ),
            Request(
                RequestCode.GET_BROKER_CONSUME_STATS,
                self.consume_stats_of_all,
                needs.cluster(Action.GET),
                GetConsumeStatsInBrokerHeader,
                cost=Cost.TABLE,
            ),
        )

    def topic_stats(self, header: GetTopicStatsInfoRequestHeader) -> Command | Continuation:
        """GET_TOPIC_STATS_INFO (202): ends and last store time of each queue."""
        name = header.topic
        topic = self._core.topics.get(name)
        if topic is None:
            return refuse(ResponseCode.TOPIC_NOT_EXIST, f"topic[{name}] not exist")
        store, broker_name = self._core.store, self._core.config.current.broker_name

        async def answer() -> Command:
            table: dict[MessageQueue, TopicOffset] = {}
            queues = range(max(topic.read_queue_nums, topic.write_queue_nums))
            async for some in slices(queues):
                bounds = [
                    (max(0, store.min_offset(name, number)), max(0, store.max_offset(name, number)))
                    for number in some
                ]
                times = await store.store_times(
                    [
                        (name, number, high - 1)
                        for number, (_low, high) in zip(some, bounds, strict=False)
                    ]
                )
                for number, (low, high), time in zip(some, bounds, times, strict=True):
                    queue = MessageQueue(name, broker_name, number)
                    table[queue] = TopicOffset(low, high, max(0, time))
            return Command.response(body=await encoded(TopicStatsTable(table), len(table)))

        return answer

    def consume_stats(self, header: GetConsumeStatsRequestHeader) -> Continuation:
        """GET_CONSUME_STATS (208): a group's progress, in given topics or in all.

        "All" are the topics in which it has offsets. Topics that a group does not
        subscribe to, while it subscribes to others, are left out unless the request
        names them. A topic that is named repeatedly counts once.
        """
        group, offsets = header.consumer_group, self._core.offsets
        listed = [name.strip() for name in (header.topic_list or "").split(";") if name.strip()]
        names = list(dict.fromkeys(listed)) or (
            [header.topic] if header.topic else sorted(offsets.topics_of(group))
        )

        async def in_slices() -> Command:
            found = ConsumeStats({}, 0.0)
            for first in range(0, len(names), _SLICE):
                found = await self._with(
                    found, group, names[first : first + _SLICE], listed=bool(listed)
                )
                if first + _SLICE < len(names):
                    await trio.lowlevel.checkpoint()
            return Command.response(body=await encoded(found, len(found.offset_table)))

        return in_slices

    async def _with(
        self, stats: ConsumeStats, group: str, names: list[str], *, listed: bool
    ) -> ConsumeStats:
        """Statistics with those of some topics more."""
        consumers = self._members.consumers
        table, rate = stats.offset_table, stats.consume_tps
        for name in names:
            topic = self._core.topics.get(name)
            if topic is None or (not listed and consumers.leaves_out(group, name)):
                continue
            table.update(await queue_progress(self._core, group, topic))
            rate += self._core.stats.group_rate(name, group)
        return ConsumeStats(table, rate)

    def consume_time_span(
        self, header: QueryConsumeTimeSpanRequestHeader
    ) -> Command | Continuation:
        """QUERY_CONSUME_TIME_SPAN (303): store times and delay, by queue."""
        topic = self._core.topics.get(header.topic)
        if topic is None:
            return refuse(ResponseCode.TOPIC_NOT_EXIST, f"topic[{header.topic}] not exist")

        async def answer() -> Command:
            spans: list[QueueTimeSpan] = []
            async for some in slices(range(topic.write_queue_nums), _SLICE):
                spans += [
                    await self._span(header.topic, header.group, queue_id) for queue_id in some
                ]
            body = QueryConsumeTimeSpanBody(tuple(spans))
            return Command.response(body=await encoded(body, len(spans)))

        return answer

    async def _span(self, topic: str, group: str, queue_id: int) -> QueueTimeSpan:
        store = self._core.store
        least, end = store.min_offset(topic, queue_id), store.max_offset(topic, queue_id)
        consumed = self._core.offsets.query(group, topic, queue_id)
        first, last, reached, following = await store.store_times(
            [
                (topic, queue_id, offset)
                for offset in (least, end - 1, consumed - 1, max(consumed, least))
            ]
        )
        if consumed <= 0:
            reached = first
        # A group without an offset has everything before it; Apache subtracts -1 as a
        # time there and shows the broker's whole clock as the delay.
        delay = 0
        if consumed < end and following > 0:
            delay = self._core.clock.now_ms() - following
        queue = MessageQueue(topic, self._core.config.current.broker_name, queue_id)
        return QueueTimeSpan(
            queue, first, last, reached, delay, _text(first), _text(last), _text(reached)
        )

    def consume_stats_of_all(self, header: GetConsumeStatsInBrokerHeader) -> Continuation:
        """GET_BROKER_CONSUME_STATS (317): progress of all groups in all topics.

        With the request's flag, in ordered topics only.
        """
        return lambda: self._stats_of_all(ordered_only=header.is_order)

    async def _stats_of_all(self, *, ordered_only: bool) -> Command:
        listed: list[dict[str, tuple[ConsumeStats, ...]]] = []
        behind = inflight = entries = 0
        topics = self._core.offsets.topics_by_group()
        for number, group in enumerate(list(self._core.groups.all()), 1):
            if number % _SLICE == 0:
                await trio.lowlevel.checkpoint()
            stats: list[ConsumeStats] = []
            for name in sorted(topics.get(group, ())):
                topic = self._core.topics.get(name)
                if topic is None or (ordered_only and not topic.order):
                    continue
                if self._members.consumers.leaves_out(group, name):
                    continue
                table = await queue_progress(self._core, group, topic, pulled=False)
                entries += len(table)
                async for some in slices(list(table.items())):
                    for queue, entry in some:
                        pulled = self._core.offsets.pulled(group, name, queue.queue_id)
                        behind += max(0, entry.broker_offset - entry.consumer_offset)
                        inflight += max(0, pulled - entry.consumer_offset)
                stats.append(ConsumeStats(table, self._core.stats.group_rate(name, group)))
            listed.append({group: tuple(stats)})
        body = ConsumeStatsList(tuple(listed), self._core.address(), behind, inflight)
        return Command.response(body=await encoded(body, len(listed) + entries))


def _text(stamp: int) -> str:
    moment = datetime.fromtimestamp(stamp / 1000)
    return f"{moment:%Y-%m-%d#%H:%M:%S}:{stamp % 1000:03d}"


async def queue_progress(
    core: Core, group: str, topic: TopicConfig, *, pulled: bool = True
) -> dict[MessageQueue, OffsetWrapper]:
    """A group's progress in each queue of a topic.

    The offset pulled last is 0 unless it is asked for, as in Apache's list of all
    groups.
    """
    store, offsets = core.store, core.offsets
    name, broker_name = topic.topic_name, core.config.current.broker_name
    table: dict[MessageQueue, OffsetWrapper] = {}
    async for some in slices(range(topic.read_queue_nums)):
        consumed = [max(0, offsets.query(group, name, queue_id)) for queue_id in some]
        times = await store.store_times(
            [(name, queue_id, offset - 1) for queue_id, offset in zip(some, consumed, strict=False)]
        )
        for queue_id, offset, time in zip(some, consumed, times, strict=True):
            table[MessageQueue(name, broker_name, queue_id)] = OffsetWrapper(
                max(0, store.max_offset(name, queue_id)),
                offset,
                max(offset, offsets.pulled(group, name, queue_id)) if pulled else 0,
                max(0, time),
            )
    return table
