"""Numbers of waiting timers by topic.

The answer to GET_TIMER_METRICS (61), and a file of the broker
(`TimerMetricsSerializeWrapper`).
"""

from __future__ import annotations

import attrs

from rocketmq_sdk.protocol.bodies.topics import DataVersion
from rocketmq_sdk.protocol.body import Body
from rocketmq_sdk.protocol.header import Long


@attrs.frozen
class TimerMetric(Body):
    """How many timers of a topic wait.

    `time_stamp` (epoch milliseconds) is when that changed last.
    """

    count: Long = 0
    time_stamp: Long = 0


@attrs.frozen
class TimerMetricsSerializeWrapper(Body):
    """The numbers of all topics."""

    timing_count: dict[str, TimerMetric] = attrs.field(factory=dict)
    data_version: DataVersion | None = None
