"""How long a popped message that failed waits: the group's retry policy
(`CustomizedRetryPolicy`, `ExponentialRetryPolicy` of Apache RocketMQ).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from rocketmq_sdk.protocol.bodies.groups import GroupRetryPolicy

INTERVALS: Final = (10, 30, 60, 120, 180, 240, 300, 360, 420, 480, 540, 600, 1200, 1800, 3600, 7200)
"""Seconds before retry 1, 2, ...; later ones wait as long as the last (delay levels 3
to 18).
"""
LEVELS: Final = (1, 5, *INTERVALS)
"""Seconds of the brokers' delay levels 1, 2, ... as they are unless a broker was set
otherwise.
"""
_FIRST: Final = 2
"""The first retry takes the third value of a customised list: as delay levels, the
first two are for other uses.
"""
_MOST_DOUBLINGS: Final = 32


def interval(reconsume_times: int) -> int:
    """Seconds until the next delivery of a message that failed, after `reconsume_times`
    failures before this one.
    """
    return INTERVALS[min(max(reconsume_times, 0), len(INTERVALS) - 1)]


def delay_ms(policy: GroupRetryPolicy | None, reconsume_times: int) -> int:
    """Milliseconds until the next delivery, after `reconsume_times` failures before
    this one.
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
        return values[min(times + _FIRST, len(values) - 1)]
    return interval(times) * 1000


def level_ms(delay_level: int) -> int:
    """Milliseconds of a delay level, from 1, that a listener has chosen; whatever the
    policy is.
    """
    return LEVELS[min(delay_level, len(LEVELS)) - 1] * 1000
