"""What the test kit raises when a test has failed."""

from __future__ import annotations

import math
from typing import Final

from rocketmq_sdk.errors import ConfigurationError, WrongTypeError

MOST_SECONDS: Final = 100 * 365 * 86_400.0
"""A hundred years: clocks that are moved by more leave what dates can tell."""


class ExpectationError(AssertionError):
    """Something that a test expects did not happen; the text says what was seen."""


class UnhitFaultError(ExpectationError):
    """A declared fault met nothing."""


class WaitTimeoutError(ExpectationError):
    """What was waited for did not come in time."""


class ListenerRaisedError(ExpectationError):
    """A listener raised, which strict brokers do not forgive."""


def checked_seconds(name: str, seconds: float, most: float = MOST_SECONDS) -> float:
    """A duration. Raises `ConfigurationError` for one that is none or too long."""
    if not isinstance(seconds, (int, float)):
        raise WrongTypeError(f"{name} is {seconds!r}; give seconds")
    if not 0 <= seconds < math.inf:
        raise ConfigurationError(f"{name} is {seconds}; give seconds, 0 or more")
    if seconds > most:
        raise ConfigurationError(f"{name} is {seconds}; give at most {most:g} seconds")
    return seconds
