"""Whether a member has not run for a while, as a program that was stopped or suspended.

Others may have got its queues meanwhile, and its brokers have not told it: what they
said still waits to be read.
"""

from __future__ import annotations

import math
from typing import Final

from rocketmq_sdk.clock import elapsed

LATE: Final = 2.0
"""Seconds too late at which something regular tells of a standstill."""


class Standstill:
    """Compares the time with the moment at which a member was to do something."""

    __slots__ = ("_due",)

    def __init__(self) -> None:
        self._due = math.inf

    def expect(self, seconds: float) -> None:
        """The member will do something so many seconds from now, or soon after."""
        self._due = elapsed() + seconds

    @property
    def lateness(self) -> float:
        """By how many seconds it is late; the time of a suspended machine counts."""
        return elapsed() - self._due

    @property
    def happened(self) -> bool:
        """Whether the member has stood still, until the next `expect`."""
        return self.lateness > LATE
