"""Clocks, which are passed to whatever needs the time.

Nobody else in the package reads a clock. Wall time is an epoch fixed when the clock is
made plus the monotonic time since then and the time for which the machine was
suspended, so a step of the system's clock cannot make stored time jump, and under a
virtual trio clock a delay of two hours passes as fast as the test does.
"""

from __future__ import annotations

import time
from abc import abstractmethod
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final, Protocol

import trio

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

SUSPENSION: Final = 1.0
"""The least seconds that count as a suspension of the machine."""
LOOK: float = 0.1
"""Seconds between two looks whether it was suspended."""
STOOD_STILL: Final = 0.05
"""Seconds too late that tell of a loop that was blocked."""
LAST_CHANCE: Final = 0.1
"""Seconds in which such a loop reads what has come meanwhile."""


class AlarmClock(trio.abc.Clock):
    """A virtual clock that calls functions at their moments.

    For what has many moments and no task for each: such a call costs no task, no cancel
    scope and no exception.
    """

    @abstractmethod
    def call_at(self, moment: float, function: Callable[[], bool]) -> None:
        """Call a function at a moment, while all tasks wait.

        It may reschedule tasks, and tells whether it did. It cannot be taken back, and
        must not raise.
        """

    def has_runnable_tasks(self) -> bool:
        """Whether any task can run now."""
        return trio.lowlevel.current_statistics().tasks_runnable > 0


class Clock(Protocol):
    """What the rest of the package knows of time."""

    def now_ms(self) -> int:
        """Wall time: epoch milliseconds."""
        ...

    def monotonic(self) -> float:
        """Seconds that never go back; only differences mean something."""
        ...


def thread_seconds() -> float:
    """Processor seconds of the calling thread; only differences mean something."""
    return time.thread_time()


def monotonic_ms(clock: Clock) -> int:
    """Milliseconds that never go back; only differences mean something."""
    return int(clock.monotonic() * 1000)


_without_suspensions = False


@contextmanager
def without_suspensions() -> Iterator[None]:
    """Let `suspended` tell nothing, in the whole process: for runs in virtual time that
    are the same each time.
    """
    global _without_suspensions
    before, _without_suspensions = _without_suspensions, True
    try:
        yield
    finally:
        _without_suspensions = before


if hasattr(time, "CLOCK_BOOTTIME"):

    def suspended() -> float:
        """Seconds for which the machine has been suspended since it was started.

        The clocks of trio and of `time.monotonic` stand still then. 0.0 where the
        system does not tell (it does on Linux).
        """
        if _without_suspensions:
            return 0.0
        # Two looks are never at the same moment, so there are no exact numbers.
        difference = round(time.clock_gettime(time.CLOCK_BOOTTIME) - time.monotonic(), 1)
        return difference if difference >= SUSPENSION else 0.0

else:

    def suspended() -> float:
        """Seconds for which the machine has been suspended: not known here."""
        return 0.0


def elapsed() -> float:
    """Seconds of the trio clock, and those for which the machine was suspended.

    For what goes on elsewhere meanwhile, as the time of a lock at a broker.
    """
    return trio.current_time() + suspended()


def wall_nanoseconds() -> int:
    """Nanoseconds of the epoch by the system's clock, for other libraries."""
    return time.time_ns()


def timed(work: Callable[[], None], observe: Callable[[float], None]) -> Callable[[], None]:
    """The same work, which then tells how many seconds it took, in any thread."""

    def measured() -> None:
        began = time.monotonic()
        try:
            work()
        finally:
            observe(time.monotonic() - began)

    return measured


class SystemClock:
    """Time of the operating system, for code that runs outside trio."""

    __slots__ = ("_epoch",)

    def __init__(self) -> None:
        self._epoch = time.time() - time.monotonic() - suspended()

    def now_ms(self) -> int:
        """Epoch milliseconds."""
        return int((self._epoch + time.monotonic() + suspended()) * 1000)

    def monotonic(self) -> float:
        """Seconds of `time.monotonic`."""
        return time.monotonic()


class TrioClock:
    """Time of the running trio loop, so a virtual clock moves it.

    The wall epoch is fixed at the first look inside `trio.run`. Under a virtual clock
    all clocks of a run have the same one, so that they agree however much time has been
    skipped. Outside of `trio.run` there is only the wall clock.
    """

    __slots__ = ("_epoch", "_look_at", "_slept", "_time")

    def __init__(self) -> None:
        self._time: Callable[[], float] = trio.current_time
        self._epoch: float | None = None
        self._slept = 0.0
        self._look_at = float("-inf")

    @contextmanager
    def of_this_run(self) -> Iterator[None]:
        """Tell the time of the caller's trio run, in half the time, during a block.

        For a clock that nobody in another run looks at meanwhile.
        """
        self._time = trio.lowlevel.current_clock().current_time
        self.now_ms()  # other threads may look next, who cannot fix the epoch
        try:
            yield
        finally:
            self._time = trio.current_time

    def now_ms(self) -> int:
        """Epoch milliseconds, right again within `LOOK` after a suspension."""
        try:
            now = self._time()
        except RuntimeError:
            return int(time.time() * 1000)
        if now >= self._look_at:
            self._look_at = now + LOOK
            slept = suspended()
            if self._epoch is None:
                self._epoch, self._slept = _epoch_of_run(now), slept
            elif slept - self._slept >= SUSPENSION:
                self._epoch += slept - self._slept
                self._slept = slept
        assert self._epoch is not None
        return int((self._epoch + now) * 1000)

    def set_by(self) -> float:
        """By how many seconds the system's clock was set while this one went on.

        This one does not follow. 0.0 where virtual time makes both differ.
        """
        theirs = time.time() - self.now_ms() / 1000
        try:
            _epoch, began, began_really = _first_look.get()
            passed = trio.current_time() - began
        except (LookupError, RuntimeError):
            return 0.0
        is_virtual = abs(passed - (time.monotonic() - began_really)) > SUSPENSION
        return 0.0 if is_virtual else theirs

    def monotonic(self) -> float:
        """Seconds of the trio clock."""
        return self._time()


_fixed: trio.lowlevel.RunVar[float] = trio.lowlevel.RunVar("fixed epoch")


def begin_at(epoch_ms: int) -> None:
    """Let all clocks of this trio run say this time now, as if it was always so.

    For runs in virtual time that are the same each time. Call it before any clock is
    looked at.
    """
    _fixed.set(epoch_ms / 1000 - trio.current_time())


_first_look: trio.lowlevel.RunVar[tuple[float, float, float]] = trio.lowlevel.RunVar("epoch")


def _epoch_of_run(now: float) -> float:
    """What to add to the trio clock to have wall time."""
    with suppress(LookupError):
        return _fixed.get()
    epoch = time.time() - now
    try:
        first, began, began_really = _first_look.get()
    except LookupError:
        _first_look.set((epoch, now, time.monotonic()))
        return epoch
    is_virtual = abs((now - began) - (time.monotonic() - began_really)) > SUSPENSION
    return first if is_virtual else epoch
