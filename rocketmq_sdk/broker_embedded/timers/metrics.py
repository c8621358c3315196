"""How many timers wait for each topic (`TimerMetrics` of Apache RocketMQ 5.4.0).

In `config/timermetrics` and in the answer to GET_TIMER_METRICS.
"""

from __future__ import annotations

from typing import Final

from rocketmq_sdk.protocol.bodies.timers import TimerMetric, TimerMetricsSerializeWrapper
from rocketmq_sdk.protocol.bodies.topics import DataVersion

FILE_NAME: Final = "timermetrics"


class TimerMetrics:
    """Counts by real topic, for people to read.

    After a crash they may be off by what was under way.
    """

    __slots__ = ("_changed_at", "_changes", "_topics", "_version", "dirty")

    def __init__(self) -> None:
        self._topics: dict[str, tuple[int, int]] = {}
        self._version = DataVersion()
        self._changes = self._changed_at = 0
        self.dirty = False

    def load(self, wrapper: TimerMetricsSerializeWrapper | None) -> None:
        """Take over the content of the file; None means there is none."""
        if wrapper is not None:
            self._topics = {
                topic: (metric.count, metric.time_stamp)
                for topic, metric in wrapper.timing_count.items()
            }
            self._version = wrapper.data_version or DataVersion()
            self._changes = 0

    def wrapper(self) -> TimerMetricsSerializeWrapper:
        """The numbers, as in the file and in the answer."""
        if self._changes:
            self._version = DataVersion(0, self._changed_at, self._version.counter + self._changes)
            self._changes = 0
        return TimerMetricsSerializeWrapper(
            {topic: TimerMetric(*entry) for topic, entry in self._topics.items()}, self._version
        )

    def add(self, topic: str, change: int, now_ms: int) -> None:
        """Count messages in or out.

        What goes to a topic that was deleted meanwhile was forgotten with it.
        """
        if topic and (change > 0 or topic in self._topics):
            self._topics[topic] = (self._topics.get(topic, (0, 0))[0] + change, now_ms)
            self._changes += 1
            self._changed_at = now_ms
            self.dirty = True

    def count(self, topic: str) -> int:
        """How many messages of a topic wait."""
        return self._topics.get(topic, (0, 0))[0]

    def forget(self, topic: str) -> None:
        """Forget a topic that was deleted."""
        if self._topics.pop(topic, None) is not None:
            self.dirty = True
