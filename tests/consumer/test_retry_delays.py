"""How long failed messages wait when their group has no retry policy; policies are in
`tests/consumer/push/test_pop.py`.
"""

from __future__ import annotations

from rocketmq_sdk.consumer.retry_delays import LEVELS, delay_ms

INTERVALS = [10, 30, 60, 120, 180, 240, 300, 360, 420, 480, 540, 600, 1200, 1800, 3600, 7200]
"""Seconds before retry 1, 2, ..."""


def test_the_intervals_are_the_brokers_delay_levels_from_three_on() -> None:
    assert [LEVELS.delay_ms(level) for level in range(3, 19)] == [
        seconds * 1000 for seconds in INTERVALS
    ]
    assert [delay_ms(None, times) for times in range(16)] == [
        seconds * 1000 for seconds in INTERVALS
    ]


def test_early_and_late_retries_wait_as_the_first_and_the_last() -> None:
    assert [delay_ms(None, times) // 1000 for times in (-1, 0, 1, 15, 16, 99)] == [
        10,
        10,
        30,
        7200,
        7200,
        7200,
    ]


def test_a_chosen_level_counts_from_one_and_the_last_one_is_for_all_above() -> None:
    assert [LEVELS.delay_ms(level) // 1000 for level in (1, 2, 3, 18, 19)] == [1, 5, 10, 7200, 7200]
