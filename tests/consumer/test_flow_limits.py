"""Thresholds, and how totals are shared out."""

from __future__ import annotations

import pytest

from rocketmq_sdk.consumer.config import FlowLimits, shared_limits

LIMITS = FlowLimits(1000, 5000, 2000)


@pytest.mark.parametrize(
    ("held", "blocked"),
    [((1000, 5000, 2000), False), ((1001, 0, 0), True), ((0, 5001, 0), True), ((0, 0, 2001), True)],
)
def test_a_queue_is_blocked_above_any_threshold(held: tuple[int, int, int], blocked: bool) -> None:
    assert LIMITS.blocks(*held) is blocked


@pytest.mark.parametrize(
    ("topic_messages", "topic_size", "owned", "messages", "size"),
    [
        (-1, -1, 4, 1000, 5000),
        (100, -1, 4, 25, 5000),
        (-1, 100, 3, 1000, 33),
        (3, 3, 10, 1, 1),
        (100, 100, 0, 1000, 5000),
    ],
)
def test_totals_are_shared_equally_among_the_owned_queues(
    topic_messages: int, topic_size: int, owned: int, messages: int, size: int
) -> None:
    assert shared_limits(LIMITS, topic_messages, topic_size, owned) == FlowLimits(
        messages, size, 2000
    )
