"""What the test kit raises when a test has failed."""

from __future__ import annotations

import math

from rocketmq_sdk.errors import ConfigurationError, WrongTypeError


class ExpectationError(AssertionError):
    """Something that a test expects did not happen; the text says what was seen."""


class UnhitFaultError(ExpectationError):
    """A declared fault met nothing."""


class WaitTimeoutError(ExpectationError):
    """What was waited for did not come in time."""


class ListenerRaisedError(ExpectationError):
    """A listener raised, which strict brokers do not forgive."""


def checked_seconds(name: str, seconds: float) -> float:
    """A duration. Raises `ConfigurationError` for one that is none."""
    if not isinstance(seconds, (int, float)):
        raise WrongTypeError(f"{name} is {seconds!r}; give seconds")
    if not 0 <= seconds < math.inf:
        raise ConfigurationError(f"{name} is {seconds}; give seconds, 0 or more")
    return seconds
