"""The text of delay levels, and the waiting times by level."""

from __future__ import annotations

import pytest

from rocketmq_sdk.errors import ConfigurationError
from rocketmq_sdk.model.delay_levels import DEFAULT_DELAY_LEVELS, DelayLevels, parse_delay_levels


def test_levels_wait_and_the_last_one_stands_for_those_above_it() -> None:
    levels = DelayLevels("1s 5s 1m")
    assert [levels.delay_ms(level) for level in (0, 1, 2, 3, 4, 99, -1)] == [
        0,
        1000,
        5000,
        60_000,
        60_000,
        60_000,
        0,
    ]
    assert levels.maximum == 3
    assert levels.clamp(7) == 3
    with pytest.raises(ConfigurationError):
        DelayLevels("1s,5s")


def test_spaces_at_the_end_are_taken_as_java_takes_them() -> None:
    assert parse_delay_levels("1s 2m  ") == (1000, 120_000)


@pytest.mark.parametrize(
    "text", ["", " ", "1s  5s", " 1s", "1s\t5s", "-1s", "+1s", "1.5s", "1S", "\u0661s"]
)
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(ConfigurationError, match="messageDelayLevel="):
        parse_delay_levels(text)


def test_there_are_eighteen_levels_by_default() -> None:
    levels = DelayLevels(DEFAULT_DELAY_LEVELS)
    assert levels.maximum == 18
    assert levels.delay_ms(18) == 2 * 3600 * 1000
