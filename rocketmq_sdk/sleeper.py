"""How one task sleeps until a moment that others may bring nearer."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import trio

from rocketmq_sdk.clock import AlarmClock

if TYPE_CHECKING:
    from collections.abc import Callable


class Sleeper:
    """The sleep of one task that does again and again what is due next.

    Under an `AlarmClock` it costs no cancel scope and no exception.
    """

    __slots__ = ("_alarms", "_clock", "_pass_over", "_rings", "_scope", "_task", "until")

    def __init__(self, pass_over: Callable[[float], float] | None = None) -> None:
        """`pass_over(now)` tells when the task is needed next, `now` for at once.

        It may do at once what needs no task. Under an `AlarmClock` it is asked when the
        moment has come, and where it names a later one the task sleeps on, without a
        turn. It must make no task runnable.
        """
        self.until = -math.inf
        """When the task wakes, in seconds of trio's clock; -inf while it is awake."""
        self._scope: trio.CancelScope | None = None
        self._task: trio.lowlevel.Task | None = None
        self._pass_over = pass_over
        self._clock: trio.abc.Clock | None = None
        self._rings: AlarmClock | None = None  # the clock, where it has alarms
        self._alarms: AlarmClock | None = None

    async def sleep_until(self, moment: float) -> None:
        """Sleep until `moment`, or until `wake_at` says an earlier one.

        A checkpoint also when that is over.
        """
        self.until = moment
        clock = trio.lowlevel.current_clock()
        if clock is not self._clock:
            self._clock, self._rings = clock, clock if isinstance(clock, AlarmClock) else None
        try:
            if (alarms := self._rings) is not None:
                self._alarms = alarms
                if moment != math.inf:
                    alarms.call_at(moment, self._ring)
                self._task = trio.lowlevel.current_task()
                await trio.lowlevel.wait_task_rescheduled(self._stop)
            else:
                with trio.CancelScope(deadline=moment) as self._scope:
                    await trio.sleep_forever()
        finally:
            self.until, self._scope, self._alarms = -math.inf, None, None

    def wake_at(self, moment: float) -> None:
        """Let the task wake at `moment` if it would sleep longer."""
        if moment >= self.until:
            return
        self.until = moment
        if self._scope is not None:
            self._scope.deadline = moment
        elif self._alarms is not None:
            self._alarms.call_at(max(moment, trio.current_time()), self._ring)

    def _ring(self) -> bool:
        """Wake the task, unless it sleeps again by now; whether it was woken."""
        task, alarms = self._task, self._alarms
        if task is None or alarms is None:
            return False
        now = alarms.current_time()
        if self.until > now:
            return False
        if self._pass_over is not None:
            try:
                moment = self._pass_over(now)
            except Exception:  # noqa: BLE001 - the task meets it again, where it belongs
                moment = now
            if moment > now:
                self.until = moment
                if moment != math.inf:
                    alarms.call_at(moment, self._ring)
                return False
        self._task = None
        trio.lowlevel.reschedule(task)
        return True

    def _stop(self, _raise_cancel: object) -> trio.lowlevel.Abort:
        self._task = None
        return trio.lowlevel.Abort.SUCCEEDED


async def sleep(seconds: float) -> None:
    """`trio.sleep`, under an `AlarmClock` without a scope: for what sleeps often."""
    if isinstance(trio.lowlevel.current_clock(), AlarmClock):
        await Sleeper().sleep_until(trio.current_time() + seconds)
    else:
        await trio.sleep(seconds)
