"""Which topics there are and which queues each broker offers of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import attrs

from rocketmq_sdk.model.enums import Permission
from rocketmq_sdk.model.route import QueueData

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

    from rocketmq_sdk.protocol.bodies.topics import TopicConfig

_WRITE: Final = int(Permission.WRITE)
_READ_WRITE: Final = int(Permission.READ | Permission.WRITE)


class QueueTable:
    """The queues of all brokers by topic. A topic without a broker is gone."""

    __slots__ = ("_topics",)

    def __init__(self) -> None:
        self._topics: dict[str, dict[str, QueueData]] = {}

    def of_topic(self, topic: str) -> Mapping[str, QueueData]:
        """The queues of a topic by broker name; empty for an unknown topic."""
        return self._topics.get(topic, {})

    # What brokers register

    def take(
        self,
        broker_name: str,
        topics: Mapping[str, TopicConfig],
        *,
        changed: bool,
        read_only: bool,
    ) -> None:
        """Take the topics of a broker; known ones stay unless they have `changed`."""
        for topic, config in topics.items():
            queues = self._topics.setdefault(topic, {})
            if changed or broker_name not in queues:
                queues[broker_name] = _queue_data(broker_name, config, read_only=read_only)

    def drop_others(self, broker_name: str, kept: Collection[str]) -> None:
        """A broker has these topics only."""
        for topic in self._of_broker(broker_name):
            if topic not in kept:
                self.drop(topic, broker_name)

    def drop_broker(self, broker_name: str) -> None:
        """A broker has no topics any more."""
        for topic in self._of_broker(broker_name):
            self.drop(topic, broker_name)

    def drop(self, topic: str, broker_name: str) -> None:
        """A broker does not have a topic any more."""
        queues = self._topics.get(topic)
        if queues is not None:
            queues.pop(broker_name, None)
            if not queues:
                del self._topics[topic]

    def _of_broker(self, broker_name: str) -> list[str]:
        return [topic for topic, queues in self._topics.items() if broker_name in queues]

    # What administrators change

    def put(self, topic: str, queue_datas: Iterable[QueueData]) -> None:
        """Set queues of a topic."""
        self._topics.setdefault(topic, {}).update({data.broker_name: data for data in queue_datas})

    def delete(self, topic: str) -> None:
        """Forget a topic."""
        self._topics.pop(topic, None)

    def wipe_write_permission(self, broker_name: str) -> int:
        """Take write permission from a broker's topics; returns how many it holds.

        Nobody sends to the broker until it registers changed topics.
        """
        return self._change_permissions(broker_name, lambda perm: perm & ~_WRITE)

    def add_write_permission(self, broker_name: str) -> int:
        """Give a broker's topics read and write permission; returns their number.

        They have no other permission afterwards.
        """
        return self._change_permissions(broker_name, lambda _perm: _READ_WRITE)

    def _change_permissions(self, broker_name: str, change: Callable[[int], int]) -> int:
        count = 0
        for queues in self._topics.values():
            data = queues.get(broker_name)
            if data is not None:
                queues[broker_name] = attrs.evolve(data, perm=change(data.perm))
                count += 1
        return count

    # Lists

    def topics(self) -> list[str]:
        """All topics."""
        return list(self._topics)

    def topics_of_brokers(self, broker_names: Iterable[str]) -> list[str]:
        """The topics of brokers, those of each broker in turn."""
        return [topic for name in broker_names for topic in self._of_broker(name)]

    def topics_by_flags(self, chosen: Callable[[int], bool]) -> list[str]:
        """The topics whose system flags, as one broker holds them, are chosen."""
        return [
            topic
            for topic, queues in self._topics.items()
            if queues and chosen(next(iter(queues.values())).topic_sys_flag)
        ]


def _queue_data(broker_name: str, config: TopicConfig, *, read_only: bool) -> QueueData:
    perm = config.perm & ~_WRITE if read_only else config.perm
    return QueueData(
        broker_name, config.read_queue_nums, config.write_queue_nums, perm, config.topic_sys_flag
    )
