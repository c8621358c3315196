"""What the test kit raises when a test has failed."""

from __future__ import annotations


class ExpectationError(AssertionError):
    """Something that a test expects did not happen; the text says what was seen."""


class UnhitFaultError(ExpectationError):
    """A declared fault met nothing."""


class WaitTimeoutError(ExpectationError):
    """What was waited for did not come in time."""


class ListenerRaisedError(ExpectationError):
    """A listener raised, which strict brokers do not forgive."""
