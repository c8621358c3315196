"""Conversion and validation of settings."""

from __future__ import annotations

from datetime import timedelta
from enum import Enum
from typing import Any

import attrs
import pytest

from rocketmq_sdk.errors import ConfigurationError
from rocketmq_sdk.validators import (
    at_least,
    between,
    boolean,
    check_count,
    member_of,
    not_negative,
    option_names,
    optional_seconds,
    positive,
    positive_or_none,
    refuse_unknown,
    seconds_between,
    to_seconds,
    with_values,
)


class Colour(Enum):
    RED = 1


@attrs.frozen(kw_only=True)
class Pair:
    low: int = attrs.field(default=1, validator=at_least(0))
    high: int = 2

    def __attrs_post_init__(self) -> None:
        if self.low > self.high:
            raise ConfigurationError(f"{self.low} is above {self.high}")


@attrs.frozen(kw_only=True)
class Settings:
    count: int = attrs.field(default=1, validator=at_least(1))
    share: int = attrs.field(default=-1, validator=between(1, 10, special=-1))
    pause: float = attrs.field(default=0.0, validator=not_negative)
    wait: float = attrs.field(default=1.0, converter=to_seconds, validator=positive)
    limit: float | None = attrs.field(
        default=None, converter=optional_seconds, validator=positive_or_none
    )
    hidden: float = attrs.field(default=5.0, validator=seconds_between(0.01, 30))
    loud: bool = attrs.field(default=False, validator=boolean)
    colour: Colour = attrs.field(default=Colour.RED, validator=member_of(Colour))
    made: int = attrs.field(default=0, init=False)


@pytest.mark.parametrize(
    ("option", "text"),
    [
        ({"count": 0}, "count is 0; it must be a whole number of at least 1"),
        ({"count": True}, "count is True; it must be a whole number of at least 1"),
        ({"share": 11}, "share is 11; it must be a whole number from 1 to 10, or -1"),
        ({"pause": -1}, "pause is -1; it must not be below 0"),
        ({"wait": 0}, "wait is 0.0; it must be above 0"),
        ({"wait": "soon"}, "'soon' is no duration; give seconds or a timedelta"),
        ({"limit": 0}, "limit is 0.0; it must be above 0, or None"),
        ({"hidden": 31}, "hidden is 31 s; it must be from 0.01 to 30"),
        ({"loud": 1}, "loud is 1; it must be True or False"),
        ({"colour": "RED"}, "colour is 'RED'; give a member of Colour"),
    ],
)
def test_a_refusal_names_setting_value_and_rule(option: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        Settings(**option)
    assert str(caught.value) == text


def test_durations_are_numbers_or_timedeltas() -> None:
    settings = Settings(wait=timedelta(minutes=1), limit=timedelta(seconds=2), share=-1)
    assert (settings.wait, settings.limit, settings.share) == (60.0, 2.0, -1)


def test_changed_settings_are_copies_whose_new_values_are_validated() -> None:
    before = Settings(count=3, colour=Colour.RED)
    changed = with_values(before, count=5, pause=2.0)
    assert changed == attrs.evolve(before, count=5, pause=2.0)
    assert hash(changed) == hash(attrs.evolve(before, count=5, pause=2.0))
    assert before == Settings(count=3)
    with pytest.raises(ConfigurationError, match="count is 0"):
        with_values(before, count=0)
    assert with_values(Pair(), high=7) == Pair(high=7)
    with pytest.raises(ConfigurationError, match="3 is above 2"):
        with_values(Pair(), low=3)
    with pytest.raises(TypeError, match="Settings has no setting cuont"):
        with_values(before, cuont=1)


def test_arguments_are_counted_alike() -> None:
    check_count("workers", 4, 1)
    with pytest.raises(ConfigurationError, match="workers is 0; it must be a whole number"):
        check_count("workers", 0, 1)


def test_unknown_settings_are_refused_with_the_nearest_name() -> None:
    known = option_names(Settings)
    assert "made" not in known
    refuse_unknown({"count": 1}, known, "Thing")
    with pytest.raises(ConfigurationError, match="Thing has no setting cuont; did you mean count"):
        refuse_unknown({"cuont": 1}, known, "Thing")
