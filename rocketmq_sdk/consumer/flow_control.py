"""When a queue may be pulled: thresholds of what is cached and not consumed yet.

Apache RocketMQ 5.4.0: `DefaultMQPushConsumerImpl.pullMessage`.
"""

from __future__ import annotations

import attrs


@attrs.frozen
class FlowLimits:
    """The most that one queue may hold before it is not pulled for a while: messages,
    bytes of bodies, distance between oldest and newest offset.
    """

    messages: int = 1000
    size: int = 100 * 1024 * 1024
    span: int = 2000

    def blocks(self, messages: int, size: int, span: int) -> bool:
        """Whether a queue that holds this much has to wait."""
        return messages > self.messages or size > self.size or span > self.span


def shared_limits(
    limits: FlowLimits, threshold_for_topic: int, threshold_size_for_topic: int, owned_queues: int
) -> FlowLimits:
    """The limits per queue when totals are set (not -1): each owned queue, of whatever
    topic, gets an equal part, at least 1.

    Follows `RebalancePushImpl.messageQueueChanged`.
    """
    if owned_queues < 1:
        return limits
    messages, size = limits.messages, limits.size
    if threshold_for_topic != -1:
        messages = max(1, threshold_for_topic // owned_queues)
    if threshold_size_for_topic != -1:
        size = max(1, threshold_size_for_topic // owned_queues)
    return attrs.evolve(limits, messages=messages, size=size)
