"""How far groups are behind (`ConsumerLagCalculator` of Apache RocketMQ 5.5.0).

For each group that has members, and each topic that it subscribes to. A queue of which
a group has no offset yet counts as consumed. Where Apache's broker estimates from
samples how many of the messages behind match a filter, here all of them count.
"""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING, Final, NamedTuple

from rocketmq_sdk.broker_embedded.metrics.page import Pace
from rocketmq_sdk.model.enums import ConsumeType, Permission
from rocketmq_sdk.names import (
    RETRY_PREFIX,
    is_system_group,
    pop_retry_topic_v1,
    pop_retry_topic_v2,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rocketmq_sdk.broker_embedded.core import Core
    from rocketmq_sdk.broker_embedded.members.part import MemberPart
    from rocketmq_sdk.broker_embedded.pop.part import PopPart

_SLICE: Final = 64
"""Queues that are looked at without interruption."""
QUEUES_SHOWN: Final = 1000
"""Most queues whose lag is told one by one: those that are behind most."""

Place = tuple[str, int, int]
"""Topic, queue id, offset."""
Progress = tuple[int, int, int, int, int, int]
"""Queue id, lag, messages in flight and ready, and the offsets consumed and pulled."""


class GroupLag(NamedTuple):
    """How far a group is behind in a topic, or in the messages of it that came back."""

    group: str
    topic: str
    retry: bool
    lag: int
    """Messages that are not consumed."""
    oldest_ms: int
    """When the oldest of them was stored; 0 without one."""
    in_flight: int
    """Messages that members have and that are not consumed."""
    oldest_unpulled_ms: int
    """When the oldest message that no member has was stored; 0 without one."""
    ready: int
    """Messages that no member has."""

    def labels(self, system: bool) -> tuple[str, str, str, str]:
        """Its labels; `system`: group or topic is the broker's own."""
        return (
            self.group,
            self.topic,
            "true" if self.retry else "false",
            "true" if system else "false",
        )


class QueueLag(NamedTuple):
    """How far a group is behind in one queue."""

    lag: int
    group: str
    topic: str
    queue_id: int


class LagReport:
    """The lag of all groups at one moment."""

    __slots__ = ("_behind", "groups")

    def __init__(self) -> None:
        self.groups: list[GroupLag] = []
        self._behind: list[QueueLag] = []

    def note(self, lag: QueueLag) -> None:
        """A queue in which a group is behind."""
        heap = self._behind
        if len(heap) < QUEUES_SHOWN:
            heapq.heappush(heap, lag)
        elif heap[0] < lag:
            heapq.heapreplace(heap, lag)

    @property
    def queues(self) -> list[QueueLag]:
        """The queues that are behind, most first; at most `QUEUES_SHOWN`."""
        return sorted(self._behind, reverse=True)


class LagCalculator:
    """Looks through groups, topics and queues in slices."""

    def __init__(self, core: Core, members: MemberPart, pop: PopPart) -> None:
        self._core = core
        self._members = members
        self._pop = pop

    async def report(self) -> LagReport:
        """The lag now. Does not raise for what cannot be read."""
        report, pace = LagReport(), Pace()
        for group, topic, pops in list(self._subscriptions()):
            report.groups.append(await self._lag(report, pace, group, topic, topic, pops=pops))
            if pops:
                retry = self._retry_topic(group, topic)
                report.groups.append(await self._lag(report, pace, group, topic, retry, pops=True))
        return report

    def _subscriptions(self) -> Iterator[tuple[str, str, bool]]:
        """Group and topic, and whether the group pops."""
        groups = self._core.groups
        for group in self._members.consumers.groups():
            if groups.find_existing(group.name) is None:
                continue
            pops = group.consume_type is ConsumeType.CONSUME_POP
            for topic in list(group.subscriptions):
                if not topic.startswith(RETRY_PREFIX) and self._usable(topic):
                    yield group.name, topic, pops

    def _usable(self, topic: str) -> bool:
        config = self._core.topics.get(topic)
        if config is None:
            return False
        permission = config.perm & self._core.config.current.broker_permission
        return bool(permission & (Permission.READ | Permission.WRITE))

    def _retry_topic(self, group: str, topic: str) -> str | None:
        config = self._core.config.current
        names = [pop_retry_topic_v1(topic, group)]
        if config.enable_retry_topic_v2:
            newer = pop_retry_topic_v2(topic, group)
            older = config.retrieve_message_from_pop_retry_topic_v1
            names = [newer, *names] if older else [newer]
        return next((name for name in names if self._usable(name)), None)

    async def _lag(
        self,
        report: LagReport,
        pace: Pace,
        group: str,
        topic: str,
        name: str | None,
        *,
        pops: bool,
    ) -> GroupLag:
        """The lag of a group in the topic `name`, told under `topic`."""
        config = None if name is None else self._core.topics.get(name)
        if config is None or name is None:
            return GroupLag(group, topic, name != topic, 0, 0, 0, 0, 0)
        lag = in_flight = ready = oldest = unpulled = 0
        look = self._popped if pops else self._pulled
        queues = range(config.write_queue_nums)
        for some in (queues[first : first + _SLICE] for first in queues[::_SLICE]):
            behind: list[Place] = []
            left: list[Place] = []
            for queue_id, of_queue, flying, waiting, consumed, pulled in look(group, name, some):
                in_flight += flying
                if of_queue:
                    lag += of_queue
                    report.note(QueueLag(of_queue, group, name, queue_id))
                    behind.append((name, queue_id, consumed))
                if waiting:
                    ready += waiting
                    left.append((name, queue_id, pulled))
            if behind:
                oldest = _older(oldest, await self._core.store.oldest_store_time(behind))
            if left:
                unpulled = _older(unpulled, await self._core.store.oldest_store_time(left))
            await pace.rest()
        return GroupLag(group, topic, name != topic, lag, oldest, in_flight, unpulled, ready)

    def _pulled(self, group: str, topic: str, queues: Sequence[int]) -> Iterator[Progress]:
        committed, pulled = self._core.offsets.progress(group, topic)
        end_of = self._core.store.max_offset
        for queue_id in queues:
            end = end_of(topic, queue_id)
            consumed, reached = committed.get(queue_id, -1), pulled.get(queue_id, -1)
            in_flight = max(0, reached - consumed) if consumed >= 0 else 0
            ready = max(0, end - reached) if reached >= 0 else 0
            lag = max(0, end - consumed) if consumed >= 0 else 0
            yield queue_id, lag, in_flight, ready, consumed, reached

    def _popped(self, group: str, topic: str, queues: Sequence[int]) -> Iterator[Progress]:
        figures, position = self._core.stats.figures, self._pop.state.buffer.position
        committed, _pulled = self._core.offsets.progress(group, topic)
        for queue_id in queues:
            end = self._core.store.max_offset(topic, queue_id)
            key = topic, group, queue_id
            popped = position(key)
            if popped < 0:
                popped = committed.get(queue_id, end)
            flying = 0 if figures is None else figures.in_flight.get(key, 0)
            ready = max(0, end - popped)
            yield queue_id, ready + flying, flying, ready, max(0, popped - flying), popped


def _older(known: int, found: int) -> int:
    """The earlier of two moments; those below 1 are unknown."""
    return found if known <= 0 or 0 < found < known else known


def is_of_system(core: Core, group: str, topic: str) -> bool:
    """Whether a topic or a group is the broker's own."""
    return core.topics.is_system(topic) or is_system_group(group)
