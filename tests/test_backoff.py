"""Delays grow, stop growing, and stay in their spread."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rocketmq_sdk.backoff import Backoff


def test_grows_to_the_limit() -> None:
    backoff = Backoff(first=0.1, limit=1.0, factor=2.0, jitter=0.0)
    assert [backoff.delay(attempt) for attempt in range(6)] == pytest.approx(
        [0.1, 0.2, 0.4, 0.8, 1.0, 1.0]
    )


def test_the_middle_of_the_spread_is_the_delay_itself() -> None:
    assert Backoff(first=2.0, jitter=0.5).delay(0) == 2.0
    assert Backoff(first=2.0, jitter=0.5).delay(0, 0.0) == 1.0
    assert Backoff(first=2.0, jitter=0.5).delay(0, 0.75) == 2.5


@settings(deadline=None)
@given(st.integers(0, 10**9), st.floats(0, 1, exclude_max=True))
def test_never_leaves_the_spread(attempt: int, fraction: float) -> None:
    backoff = Backoff()
    assert (
        backoff.first * (1 - backoff.jitter)
        <= backoff.delay(attempt, fraction)
        <= backoff.limit * (1 + backoff.jitter)
    )
