"""How long a failed message waits: the group's retry policy, else the delay levels.

Follows `CustomizedRetryPolicy` and `ExponentialRetryPolicy` of Apache RocketMQ.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rocketmq_sdk.model.delay_levels import DEFAULT_DELAY_LEVELS, DelayLevels

if TYPE_CHECKING:
    from rocketmq_sdk.protocol.bodies.groups import GroupRetryPolicy

LEVELS: Final = DelayLevels(DEFAULT_DELAY_LEVELS)
"""The delay levels of a broker with default settings."""
_FIRST_LEVEL: Final = 3
"""The delay level of the first retry; in a customized list, the third value."""
_MOST_DOUBLINGS: Final = 32


def delay_ms(policy: GroupRetryPolicy | None, reconsume_times: int) -> int:
    """Milliseconds until the next delivery of a message that failed.

    `reconsume_times` deliveries failed before this one.
    """
    times = max(reconsume_times, 0)
    if (
        policy is not None
        and policy.type == "EXPONENTIAL"
        and policy.exponential_retry_policy is not None
    ):
        exponential = policy.exponential_retry_policy
        factor: int = exponential.multiplier ** min(times, _MOST_DOUBLINGS)
        return min(exponential.initial * factor, exponential.max)
    if (
        policy is not None
        and policy.type == "CUSTOMIZED"
        and policy.customized_retry_policy is not None
        and policy.customized_retry_policy.next
    ):
        values = policy.customized_retry_policy.next
        return values[min(times + _FIRST_LEVEL, len(values)) - 1]
    return LEVELS.delay_ms(times + _FIRST_LEVEL)
