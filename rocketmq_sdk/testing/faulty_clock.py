"""A wall clock that is wrong for a while, as after a step of the system's clock.

    with broker.faults.wrong_clock(-3600):
        ...

A client of its own clock is wrong by `Client(namesrv, clock=FaultyClock())`. Only wall
time is: what a clock gives as monotonic goes on, and so do timeouts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rocketmq_sdk.clock import TrioClock
from rocketmq_sdk.errors import ConfigurationError
from rocketmq_sdk.testing.failures import MOST_SECONDS

if TYPE_CHECKING:
    from types import TracebackType

    from rocketmq_sdk.clock import Clock


class ClockFault:
    """A clock is wrong by some seconds, until `lift` or the end of a `with`."""

    def __init__(self, clock: FaultyClock, seconds: float) -> None:
        self.seconds = seconds
        """By how many seconds it is ahead; negative when it is behind."""
        self.hits = 0
        """How often somebody has looked at it."""
        self._clock = clock

    def lift(self) -> None:
        """Put the clock right; the count stays."""
        self._clock.faults = tuple(fault for fault in self._clock.faults if fault is not self)

    def __enter__(self) -> ClockFault:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.lift()

    def __repr__(self) -> str:
        return f"<Fault wrong clock: {self.seconds:+g} s, {self.hits} hits>"


class FaultyClock:
    """A clock as another one, without one as those that follow virtual time."""

    __slots__ = ("_clock", "faults", "monotonic")

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock: Clock = clock or TrioClock()
        self.monotonic = self._clock.monotonic
        """Seconds that never go back, whatever is wrong."""
        self.faults: tuple[ClockFault, ...] = ()
        """What is wrong with it; several add up."""

    def wrong_by(self, seconds: float) -> ClockFault:
        """Wall time jumps by so many seconds now, and back when the fault is lifted.

        Forward, or back where `seconds` is negative. Raises `ConfigurationError` for
        more than a hundred years in all, and for what is no number.
        """
        wrong = seconds + sum(fault.seconds for fault in self.faults)
        if not abs(wrong) <= MOST_SECONDS:
            raise ConfigurationError(
                f"a clock cannot be wrong by {wrong} s in all; give -{MOST_SECONDS:g} to "
                f"{MOST_SECONDS:g}"
            )
        fault = ClockFault(self, seconds)
        self.faults = (*self.faults, fault)
        return fault

    def now_ms(self) -> int:
        """Wall time: epoch milliseconds."""
        now = self._clock.now_ms()
        for fault in self.faults:
            fault.hits += 1
            now += round(fault.seconds * 1000)
        return now
